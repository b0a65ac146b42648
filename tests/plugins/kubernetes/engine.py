"""The engine as its contract meets it: on the cluster that KUBECONFIG names, or the one of the tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.base import Container
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from tests.cluster.__main__ import Cluster
from tests.support.engines import DATASET, ECHO, SMALL, UNSEEN, new_spec


def kubeconfig() -> str | None:
    """Return the file that names the cluster of the tests; None where there is none."""
    if given := os.environ.get("KUBECONFIG"):
        return given
    found = Cluster().found.kubeconfig("admin")
    return str(found) if found.exists() else None


def kubectl(*words: str, given: str | None = None) -> str:
    """Run kubectl as whoever the file names. Raises `CalledProcessError`."""
    command = [str(Cluster().binaries / "kubectl"), f"--kubeconfig={kubeconfig()}", *words]
    return subprocess.run(command, input=given, capture_output=True, text=True, check=True).stdout


CPUS = 0.5
"""Of each pod: what is asked for is kept free, and a node of the tests has two."""


@dataclass(frozen=True)
class Kubernetes:
    """Pods of a real cluster."""

    name: str = "kubernetes"
    source: str = "from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine as Engine"
    lacks: Mapping[str, str] = field(
        default_factory=lambda: {
            UNSEEN: "its processes are another machine's",
            DATASET: "its nodes have none of this machine's folders",
        }
    )
    unenforced: Mapping[str, str] = field(default_factory=dict)

    def absent(self) -> str | None:
        if (found := kubeconfig()) is None:
            return "there is no cluster: make cluster"
        os.environ["KUBECONFIG"] = found
        return None

    def make(self) -> KubernetesEngine:
        return KubernetesEngine()

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        limits = fields.pop("limits", SMALL)
        return new_spec(code, *arguments, **fields, limits=replace(limits, cpus=min(limits.cpus, CPUS)))

    async def left(self, session_id: str) -> list[str]:
        return [row.container for row in await self.make().list() if row.session == session_id]

    async def end_from_outside(self, container: Container) -> None:
        kubectl("--namespace=sandboxes", "delete", "pod", container.id, "--grace-period=0", "--force")

    async def sweep(self, session_id: str) -> None:
        for name in await self.left(session_id):
            kubectl("--namespace=sandboxes", "delete", "pod", name, "--grace-period=0", "--force")


UNDER_TEST = Kubernetes()
"""`make test-kubernetes` has it under test, and nothing else."""
