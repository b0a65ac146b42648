"""Build, start and stop the cluster of the tests: `python -m tests.cluster build | up | down | kubeconfig`."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from . import network
from .build import VERSION, build, cache
from .configuration import Configuration
from .control_plane import ControlPlane
from .nodes import Node
from .programs import Programs

IMAGES = ("sandbox-kernel:base", "sandbox-kernel:data")
NODES = 2


class Cluster:
    """The cluster of this machine."""

    def __init__(self, nodes: int = NODES) -> None:
        self.state = cache() / "state"
        self.binaries = cache() / "bin"
        self.found = Configuration(self.state / "configuration")
        self.programs = Programs(self.state / "programs")
        self.control = ControlPlane(self.binaries, self.found, self.programs, self.state)
        self.nodes = [self._node(number) for number in range(1, nodes + 1)]

    def _node(self, number: int) -> Node:
        return Node(
            *(number, self.binaries, self.state),
            found=self.found,
            programs=self.programs,
            control=self.control,
        )

    def up(self) -> None:
        """Start what does not run."""
        self.found.make(len(self.nodes))
        network.begin()
        for node in self.nodes:
            network.add_node(node.number, len(self.nodes))
        self.control.start()
        self.control.kubectl("apply", "-f", "-", given=_rights())
        for node in self.nodes:
            node.start(IMAGES)
        for node in self.nodes:
            node.until_ready()

    def down(self) -> None:
        """End all of it; nothing but the programs is left."""
        for node in self.nodes:
            node.stop()
        self.control.stop()
        network.end(len(self.nodes))
        shutil.rmtree(self.state, ignore_errors=True)


def _rights() -> dict[str, Any]:
    """What the program that enforces network policies may read."""
    rule = {
        "apiGroups": ["", "discovery.k8s.io", "networking.k8s.io"],
        "resources": ["pods", "namespaces", "nodes", "services", "endpoints", "endpointslices", "networkpolicies"],
        "verbs": ["get", "list", "watch"],
    }
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "policies"}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "policies"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"},
        "subjects": [{"kind": "User", "name": "network-policies", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    return {"apiVersion": "v1", "kind": "List", "items": [role | {"rules": [rule]}, binding]}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster", description=__doc__, allow_abbrev=False)
    parser.add_argument("command", choices=("build", "up", "down", "kubeconfig"))
    parser.add_argument("--nodes", type=int, default=NODES)
    given = parser.parse_args()
    if given.command == "kubeconfig":
        print(Cluster().found.kubeconfig("admin"))
        return 0
    if os.geteuid():
        raise SystemExit("a cluster is made by root: it makes network namespaces and runs containerd")
    begin = time.monotonic()
    cluster = Cluster(given.nodes)
    if given.command in {"build", "up"}:
        build()
    if given.command == "up":
        cluster.up()
        size = sum(path.stat().st_size for path in Path(cache()).rglob("*") if path.is_file()) >> 20
        print(f"--- Kubernetes {VERSION}, {given.nodes} nodes, in {time.monotonic() - begin:.0f} s; {size} MiB on disk")
        print(f"    KUBECONFIG={cluster.found.kubeconfig('admin')}")
    if given.command == "down":
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
