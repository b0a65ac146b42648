"""The comparison itself, on made-up witnesses. tests/container/engines/test_refusals.py asks real containers."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.errors import AttestationFailed
from sandbox_kernel.core.model import HOME, SCRATCH, AgentOptions, Attached, Limits, LimitsKept, SandboxSpec
from sandbox_kernel.engines import attestation
from sandbox_kernel.engines.attestation import EXCUSED
from sandbox_kernel.engines.base import AttestationCheck, Inspection
from sandbox_kernel.engines.docker import few_users
from sandbox_kernel.engines.docker.arguments import LABEL, container_arguments, digest
from sandbox_kernel.engines.docker.container import witness
from sandbox_kernel.engines.docker.few_users import FewUsers
from sandbox_kernel.engines.hardening import OF_A_USER
from sandbox_kernel.engines.user_ids import FEW_UIDS
from tests.support.cases import each
from tests.support.examples import examples

KEPT: tuple[LimitsKept, ...] = ("enforced", "best-effort")
SPEC = SandboxSpec(
    session_id="0123456789abcdef",
    image="sandbox-kernel:data",
    limits=Limits(),
    command=("python3", "-c", "the agent"),
    uid=300123456,
    environment={"TZ": "UTC"},
)


def mount(path: str, kind: str, options: str, **more: Any) -> dict[str, Any]:
    return {"path": path, "type": kind, "options": options.split(","), "root": "/", **more}


def honest_report(spec: SandboxSpec = SPEC) -> dict[str, Any]:
    """What a sandbox reports that is as asked for, on a machine with cgroup v1."""
    limits = spec.limits
    return {
        "pid": 1,
        "uids": [spec.uid] * 3,
        "gids": [spec.uid] * 3,
        "groups": [spec.uid],
        "capabilities": dict.fromkeys(("inheritable", "permitted", "effective", "bounding", "ambient"), 0),
        "no_new_privileges": 1,
        "seccomp_mode": 2,
        "seccomp_filters": 1,
        "own_filters": {"taken": 2, "counted": 2, "netlink before": 22},
        "mounts": [
            mount("/", "overlay", "ro,relatime"),
            mount("/proc", "proc", "rw,nosuid,nodev,noexec"),
            mount("/dev", "tmpfs", "rw,nosuid"),
            mount("/dev/pts", "devpts", "rw,nosuid,noexec"),
            mount("/sys", "sysfs", "ro,nosuid,nodev,noexec"),
            mount("/sys/fs/cgroup", "tmpfs", "rw,nosuid,nodev,noexec"),
            mount("/sys/fs/cgroup/memory", "cgroup", "ro,nosuid,nodev,noexec"),
            mount("/dev/mqueue", "mqueue", "rw,nosuid,nodev,noexec"),
            mount("/dev/shm", "tmpfs", "rw,nosuid,nodev,noexec", bytes=limits.shm_size),
            mount("/tmp", "tmpfs", "rw,nosuid,nodev", bytes=limits.tmp_size),
            mount("/mnt/data", "tmpfs", "rw,nosuid,nodev", bytes=limits.scratch_size),
            mount("/etc/hostname", "ext4", "ro,relatime"),
            mount("/proc/sys", "proc", "ro"),
            mount("/dev/mqueue", "tmpfs", "ro"),
            mount("/proc/keys", "tmpfs", "rw,nosuid") | {"root": "/null"},
        ],
        "interfaces": ["lo"],
        "reached": [],
        "rlimits": {"nofile": [limits.open_files] * 2, "core": [0, 0]}
        | {name: [most] * 2 for name, most in OF_A_USER.items()},
        "cgroup": {
            "memory_bytes": limits.memory,
            "memory_and_swap_bytes": limits.memory,
            "swap_bytes": None,
            "pids": limits.pids,
            "cpu_quota": 200_000,
            "cpu_period": 100_000,
        },
        "swap_kib": 8_000_000,
        "writable": ["/dev/shm", "/mnt/data", "/tmp"],
        "devices": ["/dev/null", "/dev/urandom"],
        "environment": ["HOME", "HOSTNAME", "LANG", "PATH", "TZ"],
        "hostname": "sandbox",
        "probes": {"AF_NETLINK": 22, "AF_PACKET": 1, "AF_ALG": 1, "AF_VSOCK": 1, "TIOCSTI": 1, "F_SETLEASE": 1}
        | {"priority of the agent": 1, "signal to the agent": 1},
        "kernel": "6.1.0",
    }


def honest_engine(spec: SandboxSpec = SPEC) -> dict[str, Any]:
    """What an engine says of such a container: the request, with what is empty turned into null, and more."""
    asked = container_arguments(spec)
    host = {name: value or None for name, value in asked.pop("HostConfig").items()}
    return {
        "State": {"Running": True},
        "Config": {
            **asked,
            "Env": ["TZ=UTC", "LANG=C.UTF-8"],
            "Labels": {**asked["Labels"], f"{LABEL}.spec": digest(spec)},
        },
        "HostConfig": {**host, "Sysctls": None, "PortBindings": {}},
        "Mounts": [],
        "NetworkSettings": {"Networks": {}},
        "AppArmorProfile": "docker-default",
    }


def checks(spec: SandboxSpec, report: object, engine: object) -> tuple[AttestationCheck, ...]:
    """Compare both witnesses with the spec; the image brings a variable along."""
    return attestation.checks(spec, report, witness(spec, engine, ["LANG=C.UTF-8"]))


def differences(spec: SandboxSpec, report: object, engine: object) -> tuple[str, ...]:
    return tuple(line.sentence for line in checks(spec, report, engine) if not line.ok)


def attest(spec: SandboxSpec, report: object, engine: object) -> None:
    attestation.demand(checks(spec, report, engine))


def test_an_honest_sandbox_has_no_differences() -> None:
    assert differences(SPEC, honest_report(), honest_engine()) == ()
    attest(SPEC, honest_report(), honest_engine())
    assert len(checks(SPEC, honest_report(), honest_engine())) > 60


def test_an_honest_sandbox_on_cgroup_v2() -> None:
    report = honest_report()
    report["cgroup"] |= {"memory_and_swap_bytes": None, "swap_bytes": 0}
    assert differences(SPEC, report, honest_engine()) == ()


def test_a_kernel_that_does_not_count_swap_is_well_when_there_is_none() -> None:
    report = honest_report()
    report["cgroup"] |= {"memory_and_swap_bytes": None}
    assert differences(SPEC, report, honest_engine())
    report["swap_kib"] = 0
    assert differences(SPEC, report, honest_engine()) == ()


def test_a_refusal_names_every_difference() -> None:
    report = honest_report()
    report["seccomp_mode"] = 0
    report["interfaces"].append("eth0")
    with pytest.raises(AttestationFailed) as caught:
        attest(SPEC, report, honest_engine())
    assert caught.value.differences == (
        "seccomp mode: expected 2, found 0",
        "network interfaces besides lo: expected nothing else, found eth0",
    )


def paths(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of every value in a document, but not those that are empty, which say nothing."""
    found = [path] if path and document not in (None, [], {}, "", False) else []
    items = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    return found + [p for key, item in items for p in paths(item, (*path, key))]


def changed(document: dict[str, Any], path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    document = copy.deepcopy(document)
    parent: Any = document
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return document


NOT_NEEDED = {
    "kernel",
    "seccomp_filters",
    "counted",
    "environment",
    "devices",
    "groups",
    "swap_kib",
    "swap_bytes",
}
"""Parts of a report that need not be there (a seccomp filter is known by its work), or of which less is better."""

OPTIONAL_MOUNTS = ("/proc", "/dev", "/sys", "/etc")


def needed(path: tuple[Any, ...]) -> bool:
    report = honest_report()
    if NOT_NEEDED & set(path) or path[0] in {"writable", "interfaces", "reached"}:
        return False
    if path[0] == "mounts" and len(path) > 1:
        where = report["mounts"][path[1]]["path"]
        return (
            where not in {"/dev/mqueue"}
            and (where == "/dev/shm" or not where.startswith(OPTIONAL_MOUNTS))
            and len(path) == 2
        )
    return True


@each("path", [path for path in paths(honest_report()) if needed(path)], ids=str)
@each("value", [None, "odd", -1, True, [], {"odd": "odd"}], ids=str)
def test_a_report_with_an_odd_value_is_refused(path: tuple[Any, ...], value: object) -> None:
    def put(parent: Any, key: Any) -> None:
        parent[key] = value

    assert differences(SPEC, changed(honest_report(), path, put), honest_engine())


@pytest.mark.parametrize(
    ("taken", "counted", "fine"),
    [(2, 2, True), (2, None, True), (1, 1, False), (1, None, False), (2, 1, False), (2, 0, False), (2, "2", False)],
)
def test_both_filters_of_the_agent_are_wanted(taken: int, counted: object, fine: bool) -> None:
    """A system that counts them has to count both; an old one, and gVisor, counts none."""
    report = honest_report()
    report["own_filters"] |= {"taken": taken, "counted": counted}
    found = differences(SPEC, report, honest_engine())
    assert (found == ()) == fine
    assert all("system call filters of the agent: expected 2" in each for each in found)


@pytest.mark.parametrize(
    ("groups", "docker", "bubblewrap"),
    [
        ([], True, True),
        ([SPEC.uid], True, True),
        ([65534, 65534], False, True),
        ([1, 65534], False, True),
        ([SPEC.uid, 65534], False, True),
        ([0], False, False),
        ([65534, 0], False, False),
        ([65534, True], False, False),
        ([100], False, False),
        ("65534", False, False),
        (None, False, False),
    ],
)
def test_groups_that_an_engine_cannot_drop_are_excused_where_it_compares_them_itself(
    groups: object, docker: bool, bubblewrap: bool
) -> None:
    """Those of an ordinary user's bubblewrap are what a login has: `users`, or its own one again."""
    report = honest_report() | {"groups": groups}
    for engine, fine in (("", docker), ("bubblewrap", bubblewrap)):
        lines = attestation.checks(SPEC, report, Inspection((), frozenset(), engine=engine))
        [line] = [line for line in lines if line.name == "other groups"]
        assert line.ok is fine, line


@each("name", [name for name in honest_report() if name not in NOT_NEEDED - {"environment", "devices", "groups"}])
def test_a_report_with_a_part_missing_is_refused(name: str) -> None:
    report = honest_report()
    del report[name]
    if name == "swap_kib":
        report["cgroup"]["memory_and_swap_bytes"] = None
    assert differences(SPEC, report, honest_engine())


@each(
    ("name", "value"),
    [
        ("NetworkMode", "bridge"),
        ("IpcMode", "host"),
        ("PidMode", "host"),
        ("UTSMode", "host"),
        ("UsernsMode", "host"),
        ("CgroupnsMode", "host"),
        ("ReadonlyRootfs", False),
        ("Privileged", True),
        ("CapAdd", ["SYS_ADMIN"]),
        ("CapDrop", []),
        ("SecurityOpt", ["no-new-privileges:true"]),
        ("SecurityOpt", ["no-new-privileges:true", "seccomp=unconfined"]),
        ("Binds", ["/:/host"]),
        ("Mounts", [{"Type": "volume"}]),
        ("VolumesFrom", ["other"]),
        ("Devices", [{"PathOnHost": "/dev/kvm"}]),
        ("DeviceRequests", [{"Driver": "nvidia"}]),
        ("DeviceCgroupRules", ["a *:* rwm"]),
        ("GroupAdd", ["0"]),
        ("Memory", 0),
        ("MemorySwap", -1),
        ("PidsLimit", None),
        ("CpuQuota", 0),
        ("Tmpfs", {}),
        ("Ulimits", None),
        ("MaskedPaths", []),
        ("ReadonlyPaths", []),
        ("Sysctls", {"net.ipv4.ip_forward": "1"}),
        ("ExtraHosts", ["host:192.0.2.1"]),
        ("PortBindings", {"80/tcp": [{}]}),
        ("OomKillDisable", True),
        ("LogConfig", {"Type": "json-file"}),
        ("AutoRemove", False),
    ],
)
def test_the_engine_s_word_is_compared_too(name: str, value: object) -> None:
    engine = honest_engine()
    engine["HostConfig"][name] = value
    (difference,) = differences(SPEC, honest_report(), engine)
    assert difference.startswith(f"engine: {name}: expected ")


@each(
    ("path", "value"),
    [
        (("State", "Running"), False),
        (("Config", "User"), "0:0"),
        (("Config", "Entrypoint"), ["the agent", "python3", "-c"]),
        (("Config", "StdinOnce"), False),
        (("Config", "Tty"), True),
        (("Config", "Env"), ["TZ=UTC", "LANG=C.UTF-8", "HTTP_PROXY=http://192.0.2.1"]),
        (("Config", "Env"), ["LANG=C.UTF-8"]),
        (("Config", "Labels"), {}),
        (("Mounts",), [{"Type": "volume", "Destination": "/data"}]),
        (("NetworkSettings", "Networks"), {"bridge": {}}),
        (("AppArmorProfile",), "unconfined"),
    ],
    ids=str,
)
def test_the_engine_s_word_on_the_container_is_compared(path: tuple[Any, ...], value: object) -> None:
    def put(parent: Any, key: Any) -> None:
        parent[key] = value

    assert differences(SPEC, honest_report(), changed(honest_engine(), path, put))


@pytest.mark.parametrize("name", ["State", "Config", "HostConfig", "Mounts", "NetworkSettings", "AppArmorProfile"])
def test_an_engine_that_leaves_something_out_is_refused(name: str) -> None:
    engine = honest_engine()
    del engine[name]
    assert differences(SPEC, honest_report(), engine)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*honest_report(), "path"]), inner, max_size=6)
    ),
    max_leaves=20,
)


@examples()
@given(JSON, JSON)
def test_any_report_is_answered_with_a_refusal_and_never_with_a_crash(report: object, engine: object) -> None:
    assert differences(SPEC, report, engine)
    assert differences(replace(SPEC, runtime="runsc"), report, engine)


@examples()
@given(st.sampled_from(sorted(honest_report())), JSON)
def test_one_odd_part_of_a_report_never_crashes_the_comparison(name: str, value: object) -> None:
    for text in differences(SPEC, {**honest_report(), name: value}, honest_engine()):
        assert len(text) < 1000


@each("name", sorted(EXCUSED["runsc"]))
def test_the_excuses_are_for_gvisor_only(name: str) -> None:
    """Each names a check that exists, and on another kernel than gVisor's the sandbox is refused."""
    kinds: tuple[Literal["dataset", "volume"], ...] = ("dataset", "volume")
    attached = tuple(Attached(kind=kind, name="one", source="/srv") for kind in kinds)
    spec = replace(SPEC, runtime="runsc", attached=attached, limits=replace(SPEC.limits, scratch="disk"))
    assert name in {check.name for check in checks(spec, honest_report(spec), honest_engine(spec))}
    assert "gVisor's kernel: expected 4.4.0, found 6.1.0" in differences(spec, honest_report(spec), honest_engine(spec))


# --- Docker with user ids of its own ----------------------------------------------------------------------------------


def refused(report: dict[str, Any], engine: str) -> list[str]:
    """Return the names of what differs, where the excuses of `engine` hold."""
    seen = witness(SPEC, honest_engine(), ["LANG=C.UTF-8"])._replace(engine=engine)
    return [line.name for line in attestation.checks(SPEC, report, seen) if not line.ok]


def test_groups_that_remapped_docker_leaves_writable_are_excused_and_nothing_beside_them() -> None:
    report = honest_report()
    report["mounts"] = [{**one, "options": ["rw"]} if one["type"] == "cgroup" else one for one in report["mounts"]]
    assert refused(report, "") == ["control groups"]  # the control
    assert refused(report, "docker without a cgroup") == ["control groups"]
    assert refused(report, "docker with userns-remap") == []
    strange = report | {"mounts": [*report["mounts"], mount("/sys/fs/cgroup/x", "ext4", "rw")]}
    assert refused(strange, "docker with userns-remap") == ["mounts besides the sandbox's own"]
    written = report | {"writable": [*report["writable"], "/sys/fs/cgroup/memory"]}
    assert refused(written, "docker with userns-remap") == ["writable places"]


def test_limits_that_a_rootless_docker_lacks_are_excused_by_best_effort_alone() -> None:
    report = honest_report() | {"cgroup": {}}
    lacking = ["memory limit", "swap", "process limit", "CPU quota and period"]
    report["swap_kib"] = 1
    assert refused(report, "docker without a cgroup") == []
    for engine in ("", "docker with userns-remap"):
        assert refused(report, engine) == lacking
    rootless = FewUsers("rootless", limited=False)
    kept = {limits: few_users.excused(few_users.drawn(replace(SPEC, limits_kept=limits), rootless)) for limits in KEPT}
    assert kept == {"enforced": "", "best-effort": "docker without a cgroup"}
    limited = rootless._replace(limited=True)
    assert few_users.excused(few_users.drawn(replace(SPEC, limits_kept="best-effort"), limited)) == ""


def test_processes_of_a_user_of_few_are_counted_by_linux_as_well() -> None:
    own = replace(SPEC, uid=FEW_UIDS[0])
    limit = {"Name": "nproc", "Soft": SPEC.limits.pids, "Hard": SPEC.limits.pids}
    assert limit in container_arguments(own)["HostConfig"]["Ulimits"]
    assert limit not in container_arguments(SPEC)["HostConfig"]["Ulimits"]


# --- scratch at the home of hosted interpreters ----------------------------------------------------------------------


AT_HOME = replace(SPEC, made_of=AgentOptions(home=True))


def report_at_home() -> dict[str, Any]:
    """What a sandbox reports whose scratch is at /home/user."""
    report = honest_report(AT_HOME)
    for one in report["mounts"]:
        if one["path"] == SCRATCH:
            one["path"] = HOME
    report["mounts"] += [
        mount("/home", "tmpfs", "ro,nosuid,nodev,noexec", bytes=4096),
        mount("/mnt", "tmpfs", "rw,nosuid,nodev,noexec", bytes=4096),
    ]
    report["writable"] = ["/dev/shm", HOME, "/mnt", "/tmp"]
    return report


def test_scratch_may_be_at_the_home_of_hosted_interpreters_if_that_was_asked_for() -> None:
    assert not differences(AT_HOME, report_at_home(), honest_engine(AT_HOME))
    assert not differences(AT_HOME, honest_report(AT_HOME), honest_engine(AT_HOME))  # an engine that has one place only
    found = differences(SPEC, report_at_home(), honest_engine())
    assert any("/home/user (tmpfs, writable)" in line and "/mnt (tmpfs, writable)" in line for line in found)
    assert any(line.startswith("writable places: expected nothing else, found /home/user, /mnt") for line in found)


@each(
    "path, change, line",
    [
        (HOME, {"bytes": 1}, "size of /mnt/data"),
        (HOME, {"options": ["rw"]}, "options of /mnt/data"),
        ("/home", {"options": ["rw"]}, "mount of /home"),
        ("/home", {"type": "ext4"}, "mount of /home"),
        ("/mnt", {"bytes": 1 << 30}, "size of /mnt"),
        ("/mnt", {"root": "/srv"}, "mount of /mnt"),
    ],
)
def test_the_mounts_around_a_home_are_looked_at(path: str, change: dict[str, Any], line: str) -> None:
    report = report_at_home()
    next(one for one in report["mounts"] if one["path"] == path).update(change)
    assert [found.partition(":")[0] for found in differences(AT_HOME, report, honest_engine(AT_HOME))] == [line]


def test_a_home_has_no_second_scratch() -> None:
    report = report_at_home()
    report["mounts"].append(mount(SCRATCH, "tmpfs", "rw,nosuid,nodev", bytes=1 << 30))
    found = differences(AT_HOME, report, honest_engine(AT_HOME))
    assert [line.partition(":")[0] for line in found] == ["mounts besides the sandbox's own"]
