"""What Podman is asked for, and what it says of a container; `make test-engines` has real ones."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB, Limits, SandboxSpec
from sandbox_kernel.engines.attestation import at
from sandbox_kernel.engines.docker.arguments import LABEL, container_arguments, digest
from sandbox_kernel.engines.docker.engine import engine_info
from sandbox_kernel.engines.docker.engine_errors import NoSuchContainer, refusal
from sandbox_kernel.engines.select import excuses
from sandbox_kernel.plugins.podman.create_body import filter_of, libpod_body
from sandbox_kernel.plugins.podman.engine import PodmanEngine, docker_info, filter_file
from sandbox_kernel.plugins.podman.inspection import LIBPOD, NOT_SHOWN, RUNTIME, witness
from tests.support.json_snapshots import compare

LIMITS = Limits(memory=192 * MIB, scratch_size=32 * MIB, tmp_size=16 * MIB, shm_size=16 * MIB)
SPEC = SandboxSpec(
    session_id="0123456789abcdef",
    image="sandbox-kernel:base",
    limits=LIMITS,
    command=("python3", "-I", "-c", "the agent"),
    uid=312_033_617,
    environment={"TZ": "UTC"},
)
FOLDERS = {
    "/dev/shm": "rw,nosuid,nodev,noexec,size=16777216,mode=1777,rprivate",
    "/tmp": "rw,nosuid,nodev,exec,size=16777216,mode=1777,rprivate",
    "/mnt/data": "rw,nosuid,nodev,exec,size=33554432,mode=0700,uid=312033617,gid=312033617,rprivate",
}
"""As Podman 4.3 shows what was asked for."""


def test_the_body_of_a_create() -> None:
    body = libpod_body(container_arguments(SPEC), "sandbox-kernel-0", "/filter.json")
    compare(Path(__file__).with_name("snapshots") / "libpod_body.json", body)


def test_an_engine_that_limits_nothing_is_asked_for_no_limit() -> None:
    """With one that it cannot keep, Podman refuses the container."""
    body = libpod_body(container_arguments(SPEC), "x", "/filter.json", limited=False)
    assert "resource_limits" not in body


def test_a_number_of_processes_is_always_named_once() -> None:
    few = container_arguments(replace(SPEC, uid=23_456))
    for asked in (container_arguments(SPEC), few):
        limits = [one["type"] for one in libpod_body(asked, "x", "/filter.json")["r_limits"]]
        assert sorted(set(limits) & {"nofile", "core", "nproc"}) == ["core", "nofile", "nproc"]
        assert len(limits) == len(set(limits))


def test_a_filter_of_another_s_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sandbox_kernel.plugins.podman.engine.home_folder", lambda: str(tmp_path))
    text = filter_of(container_arguments(SPEC))
    path = Path(filter_file(text))
    assert json.loads(path.read_text())["defaultAction"] == "SCMP_ACT_ERRNO"
    path.write_text("{}")
    assert Path(filter_file(text)).read_text() == text
    monkeypatch.setattr("sandbox_kernel.plugins.podman.engine.home_folder", lambda: f"{path}/no/folder")
    with pytest.raises(EngineError, match="cannot write"):
        filter_file(text)


def test_a_runtime_of_its_own_is_refused() -> None:
    """Podman ignores it in silence."""
    body = container_arguments(replace(SPEC, runtime="kata"))
    with pytest.raises(EngineError, match="no runtime 'kata'") as refused:
        PodmanEngine("podman:///nowhere.sock").spoken("/containers/create?name=x", body)
    assert refused.value.setting == "runtime"


def honest() -> dict[str, Any]:
    """Return the documents of a container that is what was asked for, in the words of Podman 4.3."""
    asked = container_arguments(SPEC)
    docker, rules = asked["HostConfig"], json.loads(filter_of(asked))
    same = ("AutoRemove", "ReadonlyRootfs", "OomScoreAdj", "ShmSize", "Memory", "MemorySwap", "CpuPeriod", "CpuQuota")
    limits = {"RLIMIT_NOFILE": 1024, "RLIMIT_CORE": 0, "RLIMIT_NPROC": 4096}
    own: dict[str, Any] = {
        "EffectiveCaps": None,
        "BoundingCaps": None,
        "Mounts": [],
        "Config": {"Passwd": False},
        "HostConfig": {
            **{name: docker[name] for name in (*same, "PidsLimit")},
            "NetworkMode": "none",
            "LogConfig": {"Type": "none", "Config": None},
            "RestartPolicy": {"Name": "", "MaximumRetryCount": 0},
            "IpcMode": "shareable",
            **dict.fromkeys(("PidMode", "UTSMode", "CgroupMode"), "private"),
            "SecurityOpt": ["no-new-privileges"],
            "Ulimits": [{"Name": name, "Soft": most, "Hard": most} for name, most in limits.items()],
            "Tmpfs": dict(FOLDERS),
            "PortBindings": {},
            "CapDrop": ["CAP_CHOWN"],
        },
    }
    linux = {"maskedPaths": ["/proc/acpi", *docker["MaskedPaths"]], "seccomp": rules}
    return {
        "State": {"Running": True},
        "NetworkSettings": {"Networks": {}},
        "AppArmorProfile": "",
        "Config": {name: asked[name] for name in ("User", "Hostname", "WorkingDir", "Entrypoint", "Cmd", "OpenStdin")}
        | {"Labels": {f"{LABEL}.spec": digest(SPEC)}, "Tty": False}
        | {"Env": [*asked["Env"], "LANG=C.UTF-8", "container=podman", "HOSTNAME=sandbox", "TERM=xterm"]},
        LIBPOD: own,
        RUNTIME: {"linux": linux},
    }


def different(document: object) -> set[str]:
    return {line.name for line in witness(SPEC, document, ["LANG=C.UTF-8"]).lines if not line.ok}


def test_a_container_that_is_what_was_asked_for() -> None:
    assert different(honest()) == set()
    later = honest()
    later[LIBPOD]["HostConfig"] |= {"IpcMode": "private", "RestartPolicy": {"Name": "no"}}  # of Podman 5
    assert different(later) == set()


def bent(path: tuple[str, ...], value: object) -> Callable[[dict[str, Any]], None]:
    def bend(document: dict[str, Any]) -> None:
        at(document, *path[:-1])[path[-1]] = value

    return bend


HOST = (LIBPOD, "HostConfig")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("running", ("State", "Running"), False),
        ("spec", ("Config", "Labels"), {}),
        ("User", ("Config", "User"), "0:0"),
        ("Entrypoint", ("Config", "Entrypoint"), ["sh"]),
        ("networks besides none", ("NetworkSettings", "Networks"), {"podman": {}}),
        ("environment besides the image's", ("Config", "Env"), [*honest()["Config"]["Env"], "LD_PRELOAD=/tmp/x.so"]),
        ("environment that is lost", ("Config", "Env"), []),
        ("environment that is lost", ("Config", "Env"), [{}]),
        ("AppArmor", ("AppArmorProfile",), "unconfined"),
        ("Privileged", (*HOST, "Privileged"), True),
        ("ReadonlyRootfs", (*HOST, "ReadonlyRootfs"), False),
        ("CapAdd", (*HOST, "CapAdd"), ["CAP_SYS_ADMIN"]),
        ("EffectiveCaps", (LIBPOD, "EffectiveCaps"), ["CAP_CHOWN"]),
        ("BoundingCaps", (LIBPOD, "BoundingCaps"), ["CAP_CHOWN"]),
        ("SecurityOpt", (*HOST, "SecurityOpt"), ["no-new-privileges", "seccomp=unconfined"]),
        ("PidMode", (*HOST, "PidMode"), "host"),
        ("IpcMode", (*HOST, "IpcMode"), ["shareable"]),
        ("CgroupMode", (*HOST, "CgroupMode"), "host"),
        ("UsernsMode", (*HOST, "UsernsMode"), "host"),
        ("Memory", (*HOST, "Memory"), 0),
        ("PidsLimit", (*HOST, "PidsLimit"), -1),
        ("Devices", (*HOST, "Devices"), [{"PathOnHost": "/dev/kvm"}]),
        ("Tmpfs", (*HOST, "Tmpfs"), FOLDERS | {"/mnt/data": "rw,size=1,uid=0"}),
        ("Tmpfs", (*HOST, "Tmpfs"), FOLDERS | {"/etc": "rw"}),
        ("Tmpfs", (*HOST, "Tmpfs"), 7),
        ("mounted", (LIBPOD, "Mounts"), [{"Type": "bind", "Source": "/", "Destination": "/host"}]),
        ("Passwd", (LIBPOD, "Config"), {}),
        ("Ulimits", (*HOST, "Ulimits"), []),
        ("MaskedPaths", (RUNTIME, "linux", "maskedPaths"), ["/proc/acpi"]),
        ("MaskedPaths", (RUNTIME, "linux", "maskedPaths"), 7),
        ("system call filter", (RUNTIME, "linux", "seccomp"), {"defaultAction": "SCMP_ACT_ALLOW"}),
        ("system call filter", (RUNTIME, "linux"), {}),
    ],
)
def test_each_difference_is_one(name: str, path: tuple[str, ...], value: object) -> None:
    document = copy.deepcopy(honest())
    bent(path, value)(document)
    assert f"engine: {name}" in different(document)


@pytest.mark.parametrize(
    "strange", [None, 7, [], {}, {LIBPOD: 7, RUNTIME: 7}, honest() | {LIBPOD: None}, honest() | {LIBPOD: []}]
)
def test_a_document_that_is_none_differs(strange: object) -> None:
    assert {"engine: Tmpfs", "engine: mounted", "engine: EffectiveCaps"} <= different(strange)


def test_what_cannot_be_read_is_excused_by_its_name_and_nothing_else_is() -> None:
    """Of a service of another user's, or of another machine's."""
    lines = {line.name: line for line in witness(SPEC, honest() | {RUNTIME: None}, ["LANG=C.UTF-8"]).lines}
    lost = {name for name, line in lines.items() if not line.ok}
    assert lost == {"engine: MaskedPaths", "engine: system call filter"}
    table = excuses("podman")
    assert table is not None
    assert {name: (lines[name].found, table[name][0]) for name in lost} == dict.fromkeys(lost, (NOT_SHOWN, NOT_SHOWN))


def test_what_it_may_limit_is_what_its_user_may() -> None:
    """Without root, and on cgroup v1, Docker's form of the same says that the machine could limit all of it."""
    host = {"arch": "amd64", "cgroupVersion": "v1", "cgroupControllers": [], "security": {"rootless": True}}
    info = engine_info({"Version": "4.3.1"}, docker_info({"host": host}))
    assert (info.architecture, info.cgroup_version, info.users) == ("x86_64", "1", "rootless")
    assert info.limited == frozenset()
    host |= {"cgroupVersion": "v2", "cgroupControllers": ["cpu", "memory", "pids"]}
    host["security"] = {"seccompEnabled": True}
    info = engine_info({}, docker_info({"host": host}))
    assert (info.cgroup_version, info.users, info.seccomp) == ("2", "", True)
    assert info.limited == {"memory", "swap", "cpus", "pids"}
    assert engine_info({}, docker_info([])).limited == frozenset()


def test_what_is_removed_in_the_midst_of_a_request_is_gone() -> None:
    """Podman calls that an error of its own, as it does with all that fails later than it looked."""
    gone = refusal(500, 'no container with name or ID "x" found: no such container', None)
    assert isinstance(gone, NoSuchContainer)
    assert not isinstance(refusal(500, "runc: no such file", None), NoSuchContainer)
    missing = refusal(500, "sandbox-kernel:never: image not known", {"Image": "sandbox-kernel:never"})
    assert missing.code is EndCode.IMAGE_MISSING
