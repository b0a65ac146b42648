"""Real containers that lack one protection each are refused, and for that reason; the honest one is not."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from sandbox_kernel.core.errors import AttestationFailed
from sandbox_kernel.core.model import SCRATCH, SandboxSpec
from sandbox_kernel.engines.attestation import ALL_CLOSED
from sandbox_kernel.engines.docker.arguments import LABEL, container_arguments, digest
from sandbox_kernel.engines.docker.container import DockerContainer
from tests.support.engines import REPORT, receive_line, report_sources

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[..., Awaitable[DockerContainer]]
Body = dict[str, Any]


async def changed(
    start: Start, spec: SandboxSpec, change: Callable[[Body], object]
) -> tuple[DockerContainer, dict[str, Any]]:
    """Start a container with a changed request; return it, and what it reports of itself."""
    body = container_arguments(spec)
    body["Labels"][f"{LABEL}.spec"] = digest(spec)
    change(body)
    container = await start(spec, body)
    return container, json.loads(await receive_line(container))


async def test_the_honest_one_is_accepted(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    spec = make_spec(REPORT, *report_sources(), runtime=runtime, environment={"TZ": "UTC"})
    container = await start(spec)
    await container.attest(json.loads(await receive_line(container)), spec)


def in_host(**fields: Any) -> Callable[[Body], object]:
    return lambda body: body["HostConfig"].update(fields)


def tmpfs(path: str, old: str, new: str) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        options = body["HostConfig"]["Tmpfs"][path]
        assert old in options
        body["HostConfig"]["Tmpfs"][path] = options.replace(old, new)

    return change


def security(*options: str) -> Callable[[Body], object]:
    """Keep the security options that start with one of `options`, and add the rest."""

    def change(body: Body) -> None:
        old = body["HostConfig"]["SecurityOpt"]
        body["HostConfig"]["SecurityOpt"] = [o for o in old if o.startswith(options)] + [
            o for o in options if "=un" in o
        ]

    return change


def network(mode: str) -> Callable[[Body], object]:
    def change(body: Body) -> None:
        body["NetworkDisabled"] = False
        body["HostConfig"]["NetworkMode"] = mode

    return change


def root(body: Body) -> None:
    body["User"] = "0:0"


def other_user(body: Body) -> None:
    body["User"] = "1000:1000"


def no_tmpfs(body: Body) -> None:
    del body["HostConfig"]["Tmpfs"]["/tmp"]


def proxy(body: Body) -> None:
    body["Env"].append("HTTP_PROXY=http://192.0.2.1:3128")


def image_s_user(body: Body) -> None:
    body["User"] = ""


CASES: dict[str, tuple[Callable[[Body], object], str]] = {
    # name: what is changed, what the sandbox itself must say (the engine's own word is one more difference)
    "a capability added": (in_host(CapAdd=["NET_RAW"]), "bounding capabilities: expected 0"),
    "capabilities kept": (in_host(CapDrop=[]), "bounding capabilities: expected 0"),
    "privileged": (in_host(Privileged=True), "seccomp mode: expected 2, found 0"),
    "network host": (network("host"), "network interfaces besides lo: expected nothing else, found"),
    "network bridge": (network("bridge"), "engine: networks besides none: expected nothing else, found bridge"),
    "a writable root": (in_host(ReadonlyRootfs=False), "root file system: expected read-only"),
    "seccomp off": (security("no-new-privileges", "seccomp=unconfined"), "seccomp mode: expected 2, found 0"),
    "the engine's own seccomp profile": (
        security("no-new-privileges"),
        "of the engine alone for AF_NETLINK (error number): expected 22, found 0",
    ),
    "no-new-privileges off": (security("seccomp={"), "no_new_privs: expected 1, found 0"),
    "root inside": (root, "user ids: expected [3"),
    "another uid": (other_user, "user ids: expected [3"),
    "the image's uid": (image_s_user, "user ids: expected [3"),
    "one group more": (in_host(GroupAdd=["0"]), "other groups: expected none, found"),
    "no memory limit": (in_host(Memory=0, MemorySwap=0), "memory limit: expected 201326592, found"),
    "more memory": (
        in_host(Memory=300 << 20, MemorySwap=300 << 20),
        "memory limit: expected 201326592, found 314572800",
    ),
    "swap": (in_host(MemorySwap=-1), "swap: expected none"),
    "no process limit": (in_host(PidsLimit=0), "process limit: expected 256"),
    "no CPU limit": (in_host(CpuQuota=0), "CPU quota and period: expected [200000, 100000]"),
    "one mount too many": (
        in_host(Tmpfs={"/tmp": "rw", SCRATCH: "rw", "/opt": "rw"}),
        "mounts besides the sandbox's own: expected none, found /opt (tmpfs, writable)",
    ),
    "a folder of the host, read-only": (
        in_host(Binds=["/usr/share/zoneinfo:/zone:ro"]),
        "mounts besides the sandbox's own: expected none, found /zone (",
    ),
    "the engine's socket": (
        in_host(Binds=["/var/run/docker.sock:/run/docker.sock"]),
        "own: expected none, found /run/docker.sock (",
    ),
    "/tmp too big": (
        tmpfs("/tmp", "size=16777216", "size=33554432"),
        "size of /tmp: expected 16777216, found 33554432",
    ),
    "scratch without its limit": (tmpfs(SCRATCH, "size=33554432", "size=0"), f"size of {SCRATCH}: expected 33554432"),
    "/tmp with setuid files": (tmpfs("/tmp", "nosuid", "suid"), "options of /tmp: expected nosuid, nodev"),
    "scratch with device nodes": (tmpfs(SCRATCH, "nodev", "dev"), f"options of {SCRATCH}: expected nosuid, nodev"),
    "no /tmp": (no_tmpfs, "file system of /tmp: expected tmpfs, found nothing"),
    "/dev/shm too big": (in_host(ShmSize=1 << 30), "size of /dev/shm: expected 16777216, found 1073741824"),
    "ipc of the host": (in_host(IpcMode="host"), "size of /dev/shm: expected 16777216"),
    "processes of the host": (in_host(PidMode="host"), "process id of the agent: expected 1, found"),
    "/dev/mqueue not masked": (in_host(MaskedPaths=[]), "writable places: expected nothing else, found /dev/mqueue"),
    "core files": (in_host(Ulimits=[]), "core file size: expected [0, 0]"),
    "a device": (
        in_host(Devices=[{"PathOnHost": "/dev/fuse", "PathInContainer": "/dev/fuse", "CgroupPermissions": "rw"}]),
        "device nodes: expected nothing else, found /dev/fuse",
    ),
    "an environment variable of the host": (
        proxy,
        "engine: environment besides the image's: expected nothing else, found HTTP_PROXY",
    ),
}


async def test_the_agent_s_filter_holds_where_the_engine_has_none(start: Start, make_spec: MakeSpec) -> None:
    """Such a sandbox is refused, and what the list of calls forbids is forbidden in it all the same."""
    spec = make_spec(REPORT, *report_sources())
    _, report = await changed(start, spec, security("no-new-privileges", "seccomp=unconfined"))
    assert (report["seccomp_mode"], report["own_filters"]["netlink before"]) == (0, 0)
    assert report["probes"] == ALL_CLOSED


@pytest.mark.parametrize("case", CASES)
async def test_one_protection_missing_is_refused_for_that_reason(start: Start, make_spec: MakeSpec, case: str) -> None:
    change, reason = CASES[case]
    spec = make_spec(REPORT, *report_sources())
    container, report = await changed(start, spec, change)
    with pytest.raises(AttestationFailed) as caught:
        await container.attest(report, spec)
    assert any(reason in difference for difference in caught.value.differences), caught.value.differences


async def test_a_runtime_that_is_not_gvisor_gets_none_of_its_excuses(start: Start, make_spec: MakeSpec) -> None:
    spec = make_spec(REPORT, *report_sources())
    container, report = await changed(start, spec, lambda body: None)
    pretended = make_spec(runtime="runsc", uid=spec.uid, session_id=spec.session_id, command=spec.command)
    lines = await container.compare(report, pretended)
    assert any("gVisor's kernel" in line.sentence for line in lines if not line.ok)
