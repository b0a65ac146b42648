"""The controller of kubernetes-sigs/agent-sandbox, from its module: its resources, its rights, its program."""

from __future__ import annotations

import subprocess
from pathlib import Path

from .__main__ import Cluster
from .build import program

MODULE = "sigs.k8s.io/agent-sandbox"
ROLES = ("agent-sandbox-controller", "agent-sandbox-controller-extensions")
PROGRAM = "agent-sandbox-controller"


def start(cluster: Cluster) -> None:
    """Install it, and start it unless it runs."""
    file = program(PROGRAM)  # and its sources with it
    manifests = _source() / "k8s"
    apply = ("apply", "--server-side", "--force-conflicts")
    cluster.control.kubectl(*apply, f"--filename={manifests / 'crds'}")
    for name in ("rbac.generated.yaml", "extensions-rbac.generated.yaml"):
        cluster.control.kubectl(*apply, f"--filename={manifests / name}")
    group = "rbac.authorization.k8s.io"
    bindings = [
        {
            "apiVersion": f"{group}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": role},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": "agent-sandbox", "apiGroup": group}],
        }
        for role in ROLES
    ]
    cluster.control.kubectl(*apply, "--filename=-", given={"apiVersion": "v1", "kind": "List", "items": bindings})
    options = ["-extensions", "-leader-elect=false", "-metrics-bind-address=0", "-health-probe-bind-address=0"]
    kubeconfig = f"-kubeconfig={cluster.found.kubeconfig('agent-sandbox')}"
    cluster.programs.start(PROGRAM, [str(file), kubeconfig, *options])


def stop(cluster: Cluster) -> None:
    """End the program; what it manages stays."""
    cluster.programs.stop(PROGRAM)


def _source() -> Path:
    """Return the module's folder, in Go's own store."""
    folder = Path(__file__).parent / "modules" / "agent-sandbox"
    command = ["go", "list", "-m", "-f", "{{.Dir}}", MODULE]
    return Path(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout.strip())
