"""Each protection of a pod is taken away once in what is really made, and the sandbox is refused by its line.

The cluster is asked for the whole pod; what it gets instead is as a webhook of its own would have it.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest

from sandbox_kernel.core.errors import AttestationFailed
from tests.plugins.kubernetes.cluster.weaker_pods import Change, an_open_namespace, started
from tests.plugins.kubernetes.engine import UNDER_TEST
from tests.support.engines import REPORT, receive_line, report_sources


def of_pod(**fields: Any) -> Change:
    return lambda spec: spec.update(fields)


def of_container(**fields: Any) -> Change:
    return lambda spec: spec["containers"][0].update(fields)


def of_rights(**fields: Any) -> Change:
    return lambda spec: spec["containers"][0]["securityContext"].update(fields)


def of_user(**fields: Any) -> Change:
    return lambda spec: spec["securityContext"].update(fields)


def more(which: str, value: str) -> Change:
    def change(spec: dict[str, Any]) -> None:
        resources = spec["containers"][0]["resources"]
        resources["limits"] = {**resources["limits"], which: value}

    return change


def volume(name: str, **source: Any) -> Change:
    """Give a volume that there is another source."""

    def change(spec: dict[str, Any]) -> None:
        spec["volumes"] = [{"name": name, **source} if one["name"] == name else one for one in spec["volumes"]]

    return change


def of_the_node(spec: dict[str, Any]) -> None:
    spec["volumes"].append({"name": "node", "hostPath": {"path": "/usr/share"}})
    spec["containers"][0]["volumeMounts"].append({"name": "node", "mountPath": "/srv"})


def nothing_covered(spec: dict[str, Any]) -> None:
    container = spec["containers"][0]
    container["volumeMounts"] = [one for one in container["volumeMounts"] if one["name"] != "nothing"]


SIDECAR = {"name": "beside", "image": "sandbox-kernel:base", "command": ["sleep", "60"]}
BEFORE = {"name": "before", "image": "sandbox-kernel:base", "command": ["true"]}
CONTEXT = "cluster: container's securityContext"


class Weaker(NamedTuple):
    """What is taken away, and the lines that must differ: the cluster's word, and what the sandbox itself sees."""

    change: Change
    lines: set[str]


WEAKER: dict[str, Weaker] = {
    "the node's network": Weaker(of_pod(hostNetwork=True), {"cluster: hostNetwork", "addresses that answer"}),
    "the node's processes": Weaker(of_pod(hostPID=True), {"cluster: hostPID", "process id of the agent"}),
    "the node's IPC": Weaker(of_pod(hostIPC=True), {"cluster: hostIPC"}),
    "processes of all containers": Weaker(
        of_pod(shareProcessNamespace=True), {"cluster: shareProcessNamespace", "process id of the agent"}
    ),
    "a token": Weaker(
        of_pod(automountServiceAccountToken=True),
        {
            "cluster: automountServiceAccountToken",
            "cluster: volumes",
            "cluster: container's volumeMounts",
            "mounts besides the sandbox's own",
        },
    ),
    "variables of services": Weaker(of_pod(enableServiceLinks=True), {"cluster: enableServiceLinks"}),
    "another user": Weaker(of_user(runAsUser=300_000_001), {"cluster: securityContext", "user ids"}),
    "another group": Weaker(of_user(supplementalGroups=[7]), {"cluster: securityContext", "other groups"}),
    "no filter": Weaker(
        of_user(seccompProfile={"type": "Unconfined"}), {"cluster: securityContext", "system call filter of the node"}
    ),
    "rights to be had": Weaker(of_rights(allowPrivilegeEscalation=True), {CONTEXT, "no_new_privs"}),
    "a capability": Weaker(
        of_rights(capabilities={"drop": ["ALL"], "add": ["NET_RAW"]}), {CONTEXT, "bounding capabilities"}
    ),
    "all rights": Weaker(
        of_rights(privileged=True, allowPrivilegeEscalation=True),
        {CONTEXT, "no_new_privs", "bounding capabilities", "device nodes"},
    ),
    "a writable root": Weaker(of_rights(readOnlyRootFilesystem=False), {CONTEXT, "root file system"}),
    "more memory": Weaker(more("memory", "1Gi"), {"cluster: container's resources", "memory limit"}),
    "more of a processor": Weaker(more("cpu", "1"), {"cluster: container's resources", "CPU quota and period"}),
    "a folder of the node": Weaker(
        of_the_node, {"cluster: volumes", "cluster: container's volumeMounts", "mounts besides the sandbox's own"}
    ),
    "scratch on the node's disk": Weaker(
        volume("scratch", emptyDir={}), {"cluster: volumes", "mounts besides the sandbox's own"}
    ),
    "larger scratch": Weaker(
        volume("scratch", emptyDir={"medium": "Memory", "sizeLimit": "128Mi"}),
        {"cluster: volumes", "size of /mnt/data"},
    ),
    "nothing covered": Weaker(nothing_covered, {"cluster: container's volumeMounts"}),
    "a container beside it": Weaker(lambda spec: spec["containers"].append(SIDECAR), {"cluster: containers"}),
    "a container before it": Weaker(of_pod(initContainers=[BEFORE]), {"cluster: initContainers"}),
    "another name": Weaker(of_pod(hostname="other"), {"cluster: hostname", "host name"}),
    "names of the cluster's": Weaker(of_pod(dnsPolicy="Default", dnsConfig=None), {"cluster: dnsPolicy"}),
    "an end that is another's": Weaker(of_pod(restartPolicy="Always"), {"cluster: restartPolicy"}),
    "no deadline": Weaker(of_pod(activeDeadlineSeconds=None), {"cluster: activeDeadlineSeconds"}),
    "a pipe that may be taken up again": Weaker(of_container(stdinOnce=False), {"cluster: container's stdinOnce"}),
    "another variable": Weaker(of_container(env=[{"name": "LD_PRELOAD", "value": ""}]), {"cluster: container's env"}),
}


async def refused(change: Change, namespace: str | None = None) -> set[str]:
    """Return by which lines a sandbox is refused; none if it is accepted."""
    spec = UNDER_TEST.spec(REPORT, *report_sources(), environment={"TZ": "UTC"})
    where = {} if namespace is None else {"namespace": namespace}
    async with started(spec, change, **where) as container:
        report = json.loads(await receive_line(container))
        found = {line.name for line in await container.compare(report, spec) if not line.ok}
        if found:
            with pytest.raises(AttestationFailed):
                await container.attest(report, spec)
        else:
            await container.attest(report, spec)
    return found


async def test_control_what_was_asked_for_is_accepted() -> None:
    assert await refused(lambda spec: None) == set()


@pytest.mark.parametrize("name", WEAKER)
async def test_a_weaker_pod_is_refused_by_its_lines(name: str) -> None:
    weaker = WEAKER[name]
    found = await refused(weaker.change)
    assert weaker.lines <= found, found


async def test_a_namespace_without_a_policy_is_refused_by_what_answers() -> None:
    with an_open_namespace() as namespace:
        assert await refused(lambda spec: None, namespace) == {"addresses that answer"}
