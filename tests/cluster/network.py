"""The cluster's network: a namespace for each node, and one with the bridge between them and the control plane.

Nothing in there has a route to elsewhere. The bridge is apart because the machine's own rules, such as Docker's, hold
for its bridges, and drop what goes over them.

All addresses are of the range for benchmarks of networks (RFC 2544), which no network uses.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass

MAX_CLUSTERS = 8
MAX_NODES = 3


@dataclass(frozen=True)
class Network:
    """The names and addresses of one of this machine's clusters; its number begins at 1, as those of nodes do."""

    number: int = 1

    def __post_init__(self) -> None:
        if not 1 <= self.number <= MAX_CLUSTERS:
            raise SystemExit(f"a cluster's number is one of 1 to {MAX_CLUSTERS}, not {self.number}")

    @property
    def _mark(self) -> str:
        return "" if self.number == 1 else f"{self.number}-"

    @property
    def link(self) -> str:
        """The machine's own link to the bridge, and the name of the bridge's namespace."""
        return f"sk-{self._mark}cluster"

    @property
    def host(self) -> str:
        """The control plane's address, on the bridge."""
        return f"198.18.{self.number}.1"

    @property
    def services(self) -> str:
        return f"198.18.{99 + self.number}.0/24"

    @property
    def api_service(self) -> str:
        return f"198.18.{99 + self.number}.1"

    @property
    def pods(self) -> str:
        return f"198.19.{16 * (self.number - 1)}.0/20"

    def port(self, usual: int) -> int:
        """Return a port of loopback for one that all clusters have."""
        return usual + 100 * (self.number - 1)

    def namespace(self, node: int) -> str:
        return f"sk-{self._mark}node{node}"

    def cgroup(self, node: int) -> str:
        return f"sandbox-kernel-{self._mark}node{node}"

    def node_address(self, node: int) -> str:
        return f"198.18.{self.number}.{node + 1}"

    def pods_of(self, node: int) -> str:
        """Return the addresses of a node's pods."""
        return f"198.19.{16 * (self.number - 1) + node}.0/24"

    def begin(self) -> None:
        """Make the bridge, and the machine's link to it."""
        if _succeeds(["ip", "link", "show", self.link]):
            return
        _ip("netns", "add", self.link)
        _ip("-n", self.link, "link", "add", "nodes", "type", "bridge")
        _ip("-n", self.link, "link", "set", "nodes", "up")
        _set(self.link, "net.bridge.bridge-nf-call-iptables=0")
        _ip("link", "add", self.link, "type", "veth", "peer", "name", "machine", "netns", self.link)
        _ip("-n", self.link, "link", "set", "machine", "master", "nodes", "up")
        _ip("address", "add", f"{self.host}/24", "dev", self.link)
        _ip("link", "set", self.link, "up")

    def add_node(self, node: int) -> None:
        """Make a node's namespace, with ways to the other nodes' pods and to nothing else."""
        name, pair = self.namespace(node), f"node{node}"
        if _succeeds(["ip", "netns", "exec", name, "true"]):
            return
        _ip("netns", "add", name)
        _ip("-n", self.link, "link", "add", pair, "type", "veth", "peer", "name", "eth0", "netns", name)
        _ip("-n", self.link, "link", "set", pair, "master", "nodes", "up")
        for words in (
            ("link", "set", "lo", "up"),
            ("address", "add", f"{self.node_address(node)}/24", "dev", "eth0"),
            ("link", "set", "eth0", "up"),
        ):
            _ip("-n", name, *words)
        for other in range(1, MAX_NODES + 1):
            if other != node:
                _ip("-n", name, "route", "add", self.pods_of(other), "via", self.node_address(other))
        _set(name, "net.ipv4.ip_forward=1")
        _ip("route", "replace", self.pods_of(node), "via", self.node_address(node), "dev", self.link)
        if node == 1:
            _ip("route", "replace", self.services, "via", self.node_address(node), "dev", self.link)

    def end(self) -> None:
        """Remove the bridge, its namespaces, and with these their links, routes and rules."""
        for node in range(1, MAX_NODES + 1):
            _succeeds(["ip", "netns", "delete", self.namespace(node)])
        _succeeds(["ip", "netns", "delete", self.link])
        _succeeds(["ip", "link", "delete", self.link])

    def inside(self, node: int) -> list[str]:
        """Return how a command line begins that runs in a node's network, and else as the machine's programs do."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(node)}"]


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _set(namespace: str, setting: str) -> None:
    subprocess.run(["ip", "netns", "exec", namespace, "sysctl", "-q", "-w", setting], check=True)


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
