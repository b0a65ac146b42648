"""Ways in, as pods of a real cluster: they have the service account of the chart, and find the cluster by themselves.

The node is a network namespace of this machine. So a pod has this checkout and its Python as folders of its node, and
no image is made for it.
"""

from __future__ import annotations

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.plugins.kubernetes.pod import Pod, document
from tests.plugins.kubernetes.charts import EXAMPLES, Installed, install, manifests, rendered, uninstall
from tests.plugins.kubernetes.engine import UNDER_TEST, kubectl
from tests.support.engines import IMAGE
from tests.support.kernels import eventually

NAMESPACE = "ways-sandboxes"
CHECKOUT = Path(__file__).parents[4]
FOLDERS = {
    "python": (sys.base_prefix, "/opt/python"),
    "packages": (sysconfig.get_path("purelib"), "/opt/packages"),
    "checkout": (str(CHECKOUT / "sandbox_kernel"), "/opt/checkout/sandbox_kernel"),
}
COMMAND = [
    f"/opt/python/bin/python{sys.version_info.major}.{sys.version_info.minor}",
    "-c",
    "import sys; from sandbox_kernel.cli import main; sys.exit(main())",
]


@pytest.fixture(scope="module")
def installed() -> Iterator[Installed]:
    yield install(NAMESPACE)
    uninstall(NAMESPACE)


def with_this_checkout(pod: dict[str, Any]) -> dict[str, Any]:
    """Have a pod's `sandbox-kernel` be the one under test."""
    one = pod["containers"][0]
    one["image"] = IMAGE
    one["command"] = [
        *COMMAND,
        *(f"--image={IMAGE}" if word.startswith("--image=") else word for word in one["command"][1:]),
    ]
    one["command"] = [
        f"--kubernetes-namespace={NAMESPACE}" if word.startswith("--kubernetes-namespace=") else word
        for word in one["command"]
    ]
    variables = {
        "PYTHONPATH": "/opt/checkout:/opt/packages",
        "PYTHONDONTWRITEBYTECODE": "1",
        "LD_LIBRARY_PATH": "/opt/python/lib",
    }
    one["env"] += [{"name": name, "value": value} for name, value in variables.items()]
    for name, (path, inside) in FOLDERS.items():
        one["volumeMounts"].append({"name": name, "mountPath": inside, "readOnly": True})
        pod["volumes"].append({"name": name, "hostPath": {"path": path}})
    return pod


def test_a_notebook_runs_as_a_job_with_the_caller_s_account_alone(installed: Installed):
    found = manifests((EXAMPLES / "job.yaml").read_text(encoding="utf-8"))
    pod = found[1]["spec"]["template"]["spec"]
    with_this_checkout(pod)
    where = f"--namespace={installed.callers}"
    kubectl("apply", "--filename=-", where, given="\n---\n".join(map(json.dumps, found)))
    asked = ("get", "job/notebook", where, "--output=jsonpath={.status.conditions[*].type}")
    eventually(lambda: {"Complete", "Failed"} & set(kubectl(*asked).split()), 90, "the Job is over")
    assert "Complete" in kubectl(*asked).split(), kubectl("logs", "job/notebook", where)
    assert "1 cell in" in kubectl("logs", "job/notebook", where)
    assert kubectl("get", "pods", f"--namespace={NAMESPACE}", "--output=name") == ""
    chosen = ("--selector=job-name=notebook", "--output=jsonpath={..serviceAccountName}")
    assert kubectl("get", "pods", where, *chosen) == "sandbox-caller"


def test_a_job_of_another_account_gets_no_sandbox(installed: Installed):
    found = manifests((EXAMPLES / "job.yaml").read_text(encoding="utf-8"))
    found[1]["metadata"]["name"] = "other"
    pod = found[1]["spec"]["template"]["spec"]
    pod["serviceAccountName"] = "default"
    with_this_checkout(pod)
    where = f"--namespace={installed.callers}"
    kubectl("apply", "--filename=-", where, given="\n---\n".join(map(json.dumps, found)))
    asked = ("get", "job/other", where, "--output=jsonpath={.status.conditions[*].type}")
    eventually(lambda: {"Complete", "Failed"} & set(kubectl(*asked).split()), 90, "the Job is over")
    assert "Failed" in kubectl(*asked).split()
    said = " ".join(kubectl("logs", "job/other", where).split())
    assert "the cluster does not let this user do that" in said


def test_the_chart_s_reaper_deletes_what_has_ended_by_its_own_rights(installed: Installed):
    """A pod whose owner never attached ends by itself, and stays until somebody deletes it."""
    labels = {"sandbox-kernel/host": "elsewhere", "sandbox-kernel/owner": "1-2"}
    name = "sandbox-kernel-0123456789ab-1-2-01234567"
    left = document(UNDER_TEST.spec(), Pod(name, NAMESPACE, 3600, labels))
    left["spec"]["containers"][0]["command"][-1] = "1"
    kubectl("create", "--filename=-", given=json.dumps(left))
    asked = ("get", "pods", f"--namespace={NAMESPACE}", "--output=jsonpath={.items[*].status.phase}")
    eventually(lambda: kubectl(*asked) == "Failed", 60, "the pod has ended")
    chosen = ("--set", f"namespace={NAMESPACE}", "--set", f"reaper.image={IMAGE}", "--show-only=templates/reaper.yaml")
    found = manifests(rendered(*chosen, namespace=installed.callers))
    with_this_checkout(next(one for one in found if one["kind"] == "Deployment")["spec"]["template"]["spec"])
    assert kubectl(*asked) == "Failed"
    kubectl("apply", "--filename=-", given="\n---\n".join(map(json.dumps, found)))
    eventually(lambda: kubectl(*asked) == "", 60, "the reaper deletes it")
