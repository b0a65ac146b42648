"""Build, start and stop the cluster of the tests: `python -m tests.cluster build | up | down | kubeconfig`."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import time
from typing import Any

from . import kernel_settings
from .build import VERSION, build, cache, install
from .configuration import Configuration
from .control_plane import ControlPlane
from .network import MAX_NODES, Network
from .nodes import Node
from .programs import Programs

IMAGES = ("sandbox-kernel:base", "sandbox-kernel:data")
NODES = 1
KEPT = cache() / "kernel-settings.json"


class Cluster:
    """A cluster of this machine; the first has the number 1."""

    def __init__(self, nodes: int = NODES, number: int = 1) -> None:
        if not 1 <= nodes <= MAX_NODES:
            raise SystemExit(f"a cluster has 1 to {MAX_NODES} nodes, not {nodes}")
        self.network = Network(number)
        self.state = cache() / ("state" if number == 1 else f"state-{number}")
        self.binaries = cache() / "bin"
        self.found = Configuration(self.state / "configuration", self.network)
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
        kernel_settings.keep(KEPT)
        self.found.make()
        self.network.begin()
        for node in self.nodes:
            self.network.add_node(node.number)
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
        self.network.end()
        shutil.rmtree(self.state, ignore_errors=True)
        if not list(cache().glob("state*")):  # no other cluster's kubelet runs
            kernel_settings.put_back(KEPT)


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
    parser.add_argument("--number", type=int, default=1, help="of the cluster: several may run beside each other")
    given = parser.parse_args()
    if given.command == "kubeconfig":
        print(Cluster(number=given.number).found.kubeconfig("admin"))
        return 0
    if os.geteuid():
        raise SystemExit("a cluster is made by root: it makes network namespaces and runs containerd")
    begin = time.monotonic()
    cluster = Cluster(MAX_NODES if given.command == "down" else given.nodes, given.number)
    if given.command in {"build", "up"}:
        install()
        build()
    if given.command == "up":
        cluster.up()
        places = (str(cluster.binaries), str(cluster.state))
        sizes = subprocess.run(["du", "-smx", *places], capture_output=True, text=True, check=False).stdout.splitlines()
        programs, state = (line.split()[0] for line in sizes)
        took = time.monotonic() - begin
        print(f"--- Kubernetes {VERSION}: {given.nodes} nodes in {took / 60:.1f} minutes")
        print(f"    {programs} MiB of programs and {state} MiB of images and state in {cache()}")
        print(f"    KUBECONFIG={cluster.found.kubeconfig('admin')}")
    if given.command == "down":
        cluster.down()
    return 0


if __name__ == "__main__":
    sys.exit(main())
