"""The chart as tests use it: rendered, installed in a namespace of their own, and called by its service account."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from sandbox_kernel.plugins.kubernetes.cluster_api import ClusterApi
from tests.cluster.__main__ import Cluster
from tests.cluster.build import program
from tests.plugins.kubernetes.engine import kubeconfig, kubectl

FOLDER = Path(__file__).parents[3] / "system/kubernetes"
CHART, MANIFESTS, EXAMPLES = FOLDER / "chart", FOLDER / "sandboxes.yaml", FOLDER / "examples"
RELEASE = "sandbox-kernel"
OLDEST = "1.30.0"
"""The oldest Kubernetes that the chart is for."""


def helm(*words: str) -> str:
    """Run helm. Raises `CalledProcessError`."""
    folder = str(Cluster().state / "helm")
    places = {f"HELM_{kind}_HOME": folder for kind in ("CACHE", "CONFIG", "DATA")}
    command = [str(program("helm")), *words]
    environment = {**os.environ, **places, "KUBECONFIG": kubeconfig() or "/dev/null"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def rendered(*words: str, namespace: str = RELEASE) -> str:
    return helm("template", RELEASE, str(CHART), f"--kube-version={OLDEST}", f"--namespace={namespace}", *words)


def manifests(text: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(text) if one is not None]


class Installed(NamedTuple):
    """The chart in a namespace of a test's own."""

    namespace: str
    callers: str
    """The namespace of the release, which has the service accounts."""


def install(namespace: str, *words: str) -> Installed:
    """Install the chart with helm."""
    callers = f"{namespace}-callers"
    uninstall(namespace)
    helm(
        *("install", RELEASE, str(CHART), f"--namespace={callers}", "--create-namespace"),
        *("--set", f"namespace={namespace}", "--set", "quota.cpu=2", "--wait", "--timeout=60s", *words),
    )
    return Installed(namespace, callers)


def uninstall(namespace: str) -> None:
    """Remove what there is of it."""
    callers = f"{namespace}-callers"
    helm("uninstall", RELEASE, f"--namespace={callers}", "--ignore-not-found", "--wait", "--timeout=90s")
    kubectl("delete", "namespace", callers, namespace, "--ignore-not-found", "--timeout=90s")


def account_s_file(folder: Path, namespace: str, account: str) -> Path:
    """Return a kubeconfig file that has a token of a service account, and nothing else to sign in with."""
    found = json.loads(Path(kubeconfig() or "").read_text(encoding="utf-8"))
    token = kubectl("create", "token", account, f"--namespace={namespace}", "--duration=1h").strip()
    found["users"] = [{"name": account, "user": {"token": token}}]
    found["contexts"] = [{"name": account, "context": {"cluster": found["clusters"][0]["name"], "user": account}}]
    found["current-context"] = account
    path = folder / f"{account}.kubeconfig"
    path.write_text(json.dumps(found), encoding="utf-8")
    path.chmod(0o600)
    return path


async def tried(api: ClusterApi, pod: Mapping[str, Any], namespace: str) -> None:
    """Ask whether a pod may be there, without making it. Raises `ClusterRefused`."""
    metadata = {**pod["metadata"], "namespace": namespace}
    await api.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/pods",
        {**pod, "metadata": metadata},
        query={"dryRun": "All"},
        namespace=namespace,
    )
