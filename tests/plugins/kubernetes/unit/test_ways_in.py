"""The examples of docs/kubernetes.md, as their text shows them: those of Argo and Airflow are tried nowhere else."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.cli.program import parse
from tests.plugins.kubernetes.charts import CHART, EXAMPLES, MANIFESTS, manifests

ACCOUNT = next(one for one in manifests(MANIFESTS.read_text(encoding="utf-8")) if one["kind"] == "ServiceAccount")


def _of(name: str, kind: str) -> dict[str, Any]:
    return next(one for one in manifests((EXAMPLES / name).read_text(encoding="utf-8")) if one["kind"] == kind)


def _airflow() -> dict[str, Any]:
    tree = ast.parse((EXAMPLES / "airflow_dag.py").read_text(encoding="utf-8"))
    calls = [one for one in ast.walk(tree) if isinstance(one, ast.Call) and getattr(one.func, "id", "") != "DAG"]
    (made,) = calls
    return {str(one.arg): ast.literal_eval(one.value) for one in made.keywords}


def _job_s() -> tuple[str, list[str]]:
    pod = _of("job.yaml", "Job")["spec"]["template"]["spec"]
    return pod["serviceAccountName"], pod["containers"][0]["command"]


def _argo_s() -> tuple[str, list[str]]:
    spec = _of("argo-workflow.yaml", "Workflow")["spec"]
    container = spec["templates"][0]["container"]
    return spec["serviceAccountName"], container["command"] + container["args"]


def _airflow_s() -> tuple[str, list[str]]:
    found = _airflow()
    return found["service_account_name"], found["cmds"] + found["arguments"]


@pytest.mark.parametrize("found", [_job_s, _argo_s, _airflow_s])
def test_an_example_runs_a_command_of_ours_as_the_caller_of_the_chart(found: Any):
    account, command = found()
    assert account == ACCOUNT["metadata"]["name"]
    assert command[:2] == ["sandbox-kernel", "run"]
    given = parse(command[1:])
    assert (given.setting_engine, given.setting_kubernetes_namespace) == ("kubernetes", "sandboxes")


def test_a_user_s_pod_of_the_hub_has_the_account_that_claims_and_makes_no_pods():
    (values,) = manifests((EXAMPLES / "jupyterhub-values.yaml").read_text(encoding="utf-8"))
    (chart,) = manifests((CHART / "values.yaml").read_text(encoding="utf-8"))
    assert values["singleuser"]["serviceAccountName"] == chart["claimer"]["name"] != ACCOUNT["metadata"]["name"]


def test_every_example_is_on_the_page():
    page = (Path(__file__).parents[4] / "docs/kubernetes.md").read_text(encoding="utf-8")
    assert [one.name for one in EXAMPLES.iterdir() if f"examples/{one.name}" not in page] == []
