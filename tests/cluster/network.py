"""The cluster's network: a bridge, and a network namespace for each node. Nothing in there has a route to elsewhere.

All addresses are of the range for benchmarks of networks (RFC 2544), which no network uses.
"""

from __future__ import annotations

import subprocess

BRIDGE = "sk-cluster"
HOST = "198.18.1.1"
"""The control plane's address, on the bridge."""
API_SERVER = (HOST, 6443)
SERVICES = "198.18.100.0/24"
API_SERVICE = "198.18.100.1"
PODS = "198.19.0.0/16"


def namespace(number: int) -> str:
    return f"sk-node{number}"


def node_address(number: int) -> str:
    return f"198.18.1.{number + 1}"


def pods_of(number: int) -> str:
    """Return the addresses of a node's pods."""
    return f"198.19.{number}.0/24"


def begin() -> None:
    """Make the bridge."""
    if not _is_there(["ip", "link", "show", BRIDGE]):
        _ip("link", "add", BRIDGE, "type", "bridge")
        _ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
        _ip("link", "set", BRIDGE, "up")


def add_node(number: int, nodes: int) -> None:
    """Make a node's namespace, with ways to the other nodes' pods and to nothing else."""
    name, pair = namespace(number), f"sk-n{number}"
    if _is_there(["ip", "netns", "exec", name, "true"]):
        return
    _ip("netns", "add", name)
    _ip("link", "add", pair, "type", "veth", "peer", "name", "eth0", "netns", name)
    _ip("link", "set", pair, "master", BRIDGE, "up")
    for words in (
        ("link", "set", "lo", "up"),
        ("address", "add", f"{node_address(number)}/24", "dev", "eth0"),
        ("link", "set", "eth0", "up"),
    ):
        _ip("-n", name, *words)
    for other in range(1, nodes + 1):
        if other != number:
            _ip("-n", name, "route", "add", pods_of(other), "via", node_address(other))
    in_it(number, "sysctl", "-q", "-w", "net.ipv4.ip_forward=1")
    _ip("route", "replace", pods_of(number), "via", node_address(number), "dev", BRIDGE)
    if number == 1:
        _ip("route", "replace", SERVICES, "via", node_address(number), "dev", BRIDGE)


def end(nodes: int) -> None:
    for number in range(1, nodes + 1):
        _is_there(["ip", "netns", "delete", namespace(number)])
    _is_there(["ip", "link", "delete", BRIDGE])


def inside(number: int) -> list[str]:
    """Return what a command line begins with that runs in a node's network and in everything else of the machine's."""
    return ["nsenter", f"--net=/run/netns/{namespace(number)}"]


def in_it(number: int, *command: str) -> None:
    subprocess.run([*inside(number), *command], check=True, stdout=subprocess.DEVNULL)


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _is_there(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
