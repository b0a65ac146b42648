"""The engine as its contract meets it: on the cluster that KUBECONFIG names, or the one of the tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.base import Container
from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from sandbox_kernel.plugins.kubernetes.plugin import KubernetesProvider
from sandbox_kernel.plugins.kubernetes.settings import NAMESPACE
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


def closed(namespace: str) -> str:
    """Return a namespace whose pods reach nothing, as kubectl takes it."""
    kind = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "nothing", "namespace": namespace},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [kind, policy]})


@cache
def prepare(config: str) -> None:
    """Have the namespace of sandboxes in a cluster, and its policy."""
    kubectl("apply", "-f", "-", given=closed(NAMESPACE))


CPUS = 0.5
"""Of each pod: what is asked for is kept free, and a node of the tests has two."""
DISK = "test_scratch_on_a_disk_is_bounded_and_goes_with_the_sandbox"
CPUS_OF_NOBODY = "test_more_cpus_than_the_machine_has_are_no_error"
NO_PROGRAM = "test_a_command_that_is_not_there_leaves_nothing"
HANDED_OVER = (
    "test_another_process_keeps_it_and_a_third_adopts_it",
    "test_what_was_given_away_ends_with_whoever_has_it",
)
CUT = "a pod's pipe is moved by the process that has it, and ends with it"


@dataclass(frozen=True)
class Kubernetes:
    """Pods of a real cluster."""

    name: str = "kubernetes"
    source: str = "from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine as Engine"
    lacks: Mapping[str, str] = field(
        default_factory=lambda: {
            UNSEEN: "its processes are another machine's",
            DATASET: "its nodes have none of this machine's folders",
            DISK: "its nodes have none of this machine's disks",
            **dict.fromkeys(HANDED_OVER, CUT),
            NO_PROGRAM: "the gate starts it, in a pod that runs already: it ends with 127 and says why",
            CPUS_OF_NOBODY: "what it asks for is kept free, so a node must have it",
        }
    )
    unenforced: Mapping[str, str] = field(default_factory=dict)
    filtered_by_the_agent: bool = True
    """Its list of system calls is the agent's alone; a node has another one of its own."""
    escapes: Mapping[str, str] = field(default_factory=lambda: dict.fromkeys(KubernetesProvider.openings, "worked"))
    """How attacks end that end otherwise than with Docker."""

    def absent(self) -> str | None:
        if (found := kubeconfig()) is None:
            return "there is no cluster: make cluster"
        os.environ["KUBECONFIG"] = found
        prepare(found)
        return None

    def make(self) -> KubernetesEngine:
        return KubernetesEngine()

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        limits = fields.pop("limits", SMALL)
        return new_spec(code, *arguments, **fields, limits=replace(limits, cpus=min(limits.cpus, CPUS)))

    async def left(self, session_id: str) -> list[str]:
        """Return those that run or may: what has ended is deleted by the next look."""
        over = {"succeeded", "failed"}
        rows = await self.make().list()
        return [row.container for row in rows if row.session == session_id and row.state not in over]

    async def end_from_outside(self, container: Container) -> None:
        kubectl(f"--namespace={NAMESPACE}", "delete", "pod", container.id, "--grace-period=0", "--force")

    async def sweep(self, session_id: str) -> None:
        for name in await self.left(session_id):
            kubectl(f"--namespace={NAMESPACE}", "delete", "pod", name, "--grace-period=0", "--force")


UNDER_TEST = Kubernetes()
"""`make test-kubernetes` has it under test, and nothing else."""
