"""What a spec becomes is pure data: a change of it must be seen in a diff of the snapshots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.model import Attached, Limits, SandboxSpec
from sandbox_kernel.engines import seccomp
from sandbox_kernel.engines.docker import arguments
from sandbox_kernel.engines.docker.arguments import container_arguments, digest, profile
from sandbox_kernel.engines.hardening import Protections, ScratchDisk, protections
from tests.support.json_snapshots import compare

SNAPSHOTS = Path(__file__).parent / "snapshots"
SPEC = SandboxSpec(
    session_id="0123456789abcdef",
    image="sandbox-kernel:data",
    limits=Limits(),
    command=("python3", "-I", "-c", "the agent"),
    uid=300123456,
)


def without_profile(arguments: dict[str, Any]) -> dict[str, Any]:
    options = arguments["HostConfig"]["SecurityOpt"]
    arguments["HostConfig"]["SecurityOpt"] = [option.partition("{")[0] for option in options]
    return arguments


def test_the_default_spec() -> None:
    compare(SNAPSHOTS / "default.json", without_profile(container_arguments(SPEC)))


def test_every_setting_of_a_spec() -> None:
    limits = Limits(
        memory=4 << 30,
        cpus=0.5,
        pids=64,
        open_files=256,
        scratch_size=1 << 30,
        tmp_size=1 << 20,
        shm_size=2 << 20,
    )
    spec = replace(SPEC, limits=limits, runtime="runsc", uid=7, environment={"TZ": "UTC", "LANG": "C.UTF-8"})
    compare(SNAPSHOTS / "every-setting.json", without_profile(container_arguments(spec)))


def test_the_system_calls() -> None:
    compare(SNAPSHOTS / "seccomp.json", profile(seccomp.rules()))


CHANGED: dict[str, Any] = {
    "capabilities": {"NET_RAW"},
    "system_calls": (),
    "networks": {"bridge"},
    "own_namespaces": set(),
    "environment": {"A": "b"},
    "host_folders": {"/:/host"},
    "devices": {"/dev/kvm"},
    "masked_paths": (),
    "readonly_paths": (),
    "writable": (),
    "attached": (Attached(kind="dataset", name="sales", source="/srv/sales"),),
    "disks": (ScratchDisk("/mnt/data", 1 << 30, 7),),
    "hostname": "other",
    "cpuset": "0",
    "working_folder": "/",
}
"""Other values than those of a sandbox; a number or a truth is changed by itself."""


@pytest.mark.parametrize("field", Protections._fields)
def test_each_protection_reaches_the_engine(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What were not translated would be missing without a word."""
    before, wanted = container_arguments(SPEC), protections(SPEC)
    value: Any = CHANGED.get(field)
    if value is None:
        was = getattr(wanted, field)
        value = not was if isinstance(was, bool) else was + 1
    monkeypatch.setattr(arguments, "protections", lambda _: wanted._replace(**{field: value}))
    assert container_arguments(SPEC) != before


def test_the_profile_travels_with_the_request() -> None:
    (option,) = [o for o in container_arguments(SPEC)["HostConfig"]["SecurityOpt"] if o.startswith("seccomp=")]
    assert json.loads(option.removeprefix("seccomp=")) == profile(seccomp.rules())


@pytest.mark.parametrize(
    "change",
    [{"uid": 8}, {"image": "other"}, {"runtime": "runsc"}, {"limits": Limits(pids=9)}, {"environment": {"A": "b"}}],
)
def test_the_digest_tells_specs_apart(change: dict[str, Any]) -> None:
    assert digest(SPEC) == digest(replace(SPEC))
    assert digest(SPEC) != digest(replace(SPEC, **change))


CONDITIONAL = {"socket", "socketpair", "clone", "personality", "ioctl", "prctl", "setpriority", "ioprio_set"}

FORBIDDEN = """
    acct add_key adjtimex bpf chroot clock_adjtime clock_settime clone3 create_module delete_module fanotify_init
    fanotify_mark finit_module fsconfig fsmount fsopen fspick init_module io_setup io_submit io_uring_enter
    io_uring_register io_uring_setup ioperm iopl kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind
    memfd_secret migrate_pages modify_ldt mount mount_setattr move_mount move_pages mq_open name_to_handle_at
    nfsservctl open_by_handle_at open_tree perf_event_open pidfd_getfd pivot_root process_madvise process_vm_readv
    process_vm_writev ptrace quotactl quotactl_fd reboot request_key set_mempolicy setdomainname sethostname setns
    settimeofday stime swapoff swapon syslog umount umount2 unshare uselib userfaultfd ustat vhangup vm86 vm86old
    vmsplice
"""


def test_no_forbidden_call_is_on_the_list() -> None:
    allowed = {name for rule in seccomp.rules() if rule.error is None for name in rule.names}
    assert not allowed & set(FORBIDDEN.split())
    assert len(seccomp.ALLOWED) == len(set(seccomp.ALLOWED)), "a name stands twice"
    assert not set(seccomp.ALLOWED) & CONDITIONAL, "these have conditions"


def test_tiocsti_is_not_among_the_ioctls() -> None:
    assert not {0x5412, 0x541C} & set(seccomp.IOCTLS.values())
