"""What a spec becomes for bubblewrap is pure data, and what it cannot enforce is refused; roots are read strictly."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.core.errors import EngineError, EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import LimitsKept, Settings
from sandbox_kernel.engines import broker_sockets, hardening, select
from sandbox_kernel.engines.attestation import known_mount
from sandbox_kernel.engines.docker import discovery as docker_discovery
from sandbox_kernel.engines.hardening import Protections, protections
from sandbox_kernel.kernel.proxy import Proxy
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.bubblewrap import arguments, discovery, engine_errors, inspection, root_lookup
from sandbox_kernel.plugins.bubblewrap.arguments import Descriptors, SandboxFacts
from sandbox_kernel.plugins.bubblewrap.launch import await_end
from sandbox_kernel.plugins.bubblewrap.root_lookup import ETC, Root
from sandbox_kernel.plugins.doctor import walls
from sandbox_kernel.session.serving.kernel_info import kernel_info
from sandbox_kernel.session.session import Session
from tests.support.json_snapshots import compare
from tests.support.roots import describe
from tests.unit.engines.test_hardening import SNAPSHOTS, SPEC

WANTED = protections(SPEC)
ROOT = Root("base", "/r", "sha256:x", "", 1, (("/r/usr", "/usr"),), (("usr/bin", "/bin"),), {"PATH": "/usr/bin"}, False)
MACHINE = SandboxFacts(
    frozenset({"/proc/keys", "/proc/sysrq-trigger"}),
    frozenset({"/proc/acpi", "/proc/sys"}),
    (("/sys/fs/cgroup/memory/x", "/sys/fs/cgroup/memory"),),
)
DESCRIPTORS = Descriptors(7, 8, {name: 10 + number for number, name in enumerate(ETC)})


def words(wanted: Protections = WANTED) -> list[str]:
    return arguments.arguments(wanted, ROOT, MACHINE, DESCRIPTORS, SPEC.command)


def test_the_arguments() -> None:
    compare(SNAPSHOTS / "bubblewrap.json", {"arguments": words(), "etc": arguments.etc(WANTED)})


def test_what_the_machine_mounts_below_a_read_only_path_is_covered() -> None:
    """Systemd has a mount at /proc/sys/fs/binfmt_misc that can be written to; it came along with /proc/sys."""
    place = "/proc/sys/fs/binfmt_misc"
    given = arguments.arguments(WANTED, ROOT, MACHINE._replace(mounted=(place,)), DESCRIPTORS, SPEC.command)
    at = given.index(place)
    assert given[at - 1 : at + 3] == ["--tmpfs", place, "--remount-ro", place]
    assert at > given.index("/proc/sys")
    cover = {"path": place, "type": "tmpfs", "root": "/", "options": ["ro", "nosuid"]}
    assert known_mount(cover)
    assert not known_mount({**cover, "options": ["rw"]})
    assert not known_mount({**cover, "type": "autofs"})


HOLES: dict[str, dict[str, Any]] = {
    "capabilities": {"capabilities": frozenset({"NET_RAW"})},
    "new_privileges": {"new_privileges": True},
    "networks": {"networks": frozenset({"bridge"})},
    "host_folders": {"host_folders": frozenset({"/srv"})},
    "devices": {"devices": frozenset({"/dev/kvm"})},
    "writable_root": {"writable_root": True},
    "own_namespaces": {"own_namespaces": frozenset({"pid"})},
    "masked_paths": {"masked_paths": ("/opt/x",)},
    "readonly_paths": {"readonly_paths": ("/opt/x",)},
    "core_bytes": {"core_bytes": 1},
    "writable": {"writable": (hardening.Tmpfs("/tmp", 1, 1, 0o700, 4711),)},
}


@pytest.mark.parametrize("name", HOLES)
def test_what_it_cannot_do_is_refused_by_name(name: str) -> None:
    with pytest.raises(EngineError, match=name):
        words(WANTED._replace(**HOLES[name]))


def test_a_disk_is_bound_where_it_is_mounted_for_this_sandbox_alone() -> None:
    limits = replace(SPEC.limits, scratch="disk")
    wanted = protections(replace(SPEC, limits=limits))
    machine = MACHINE._replace(opened={"/mnt/data": "/sys/kernel/0"})
    given = arguments.arguments(wanted, ROOT, machine, DESCRIPTORS, SPEC.command)
    at = given.index("/sys/kernel/0")
    assert given[at - 1 : at + 2] == ["--bind", "/sys/kernel/0", "/mnt/data"]
    assert "--bind" not in words()
    with pytest.raises(EngineError, match="scratch on a disk"):
        words(wanted)


def test_every_protection_is_in_the_arguments_or_somebody_s() -> None:
    """One that is added has to be put into words, to be refused, or to be named as another's."""
    said = set(HOLES) | set(arguments.ELSEWHERE)
    changed = {
        "uid": None,  # beside the owner of the folders, below
        "system_calls": None,  # compiled, and handed over by its descriptor
        "hostname": "other",
        "environment": {"X": "1"},
        "working_folder": "/other",
        "shm_bytes": 4096,
    }
    refused = {"attached", "disks"}
    assert said | set(changed) | refused == set(Protections._fields)
    for name, value in changed.items():
        if value is not None:
            assert words(WANTED._replace(**{name: value})) != words()  # type: ignore[arg-type]
    assert words()[words().index("--seccomp") + 1] == "7"
    assert words(protections(replace(SPEC, uid=4711)))[words().index("--uid") + 1] == "4711"


# --- roots ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A root like that of an image."""
    tree = tmp_path / "root"
    for name in ("etc", "usr/bin", "opt", "proc", "home", "tmp", "run"):
        (tree / name).mkdir(parents=True)
    for name in ETC:
        (tree / "etc" / name).touch()
    (tree / "bin").symlink_to("usr/bin")
    (tree / "usr/bin/python3.12").touch(0o755)
    (tree / "usr/bin/python3").symlink_to("python3.12")
    describe(tmp_path)
    return tmp_path


def test_a_tree_is_bound_entry_by_entry_without_what_a_sandbox_has_of_its_own(folder: Path) -> None:
    root = root_lookup.find(str(folder))
    assert [target for _, target in root.binds] == ["/etc", "/opt", "/usr"]
    assert root.links == (("usr/bin", "/bin"),)
    assert root.etc
    assert root.contents == "sha256:test"


def test_a_program_is_found_inside_over_links(folder: Path) -> None:
    root = root_lookup.find(str(folder))
    assert root_lookup.program(root, "python3") == "/usr/bin/python3"
    assert root_lookup.program(root, "/bin/python3") == "/bin/python3"
    assert root_lookup.program(root, "/no/such/program") is None
    assert root_lookup.locate(root, "/bin/python3") == str(folder / "root/usr/bin/python3.12")


def test_a_link_leads_nowhere_outside(folder: Path) -> None:
    (folder / "root/usr/bin/escape").symlink_to("/../../../../bin/sh")
    root = root_lookup.find(str(folder))
    assert root_lookup.program(root, "escape") is None


def test_folders_of_the_machine_beside_an_environment(tmp_path: Path) -> None:
    (tmp_path / "env/bin").mkdir(parents=True)
    describe(tmp_path, tree=None, binds=[["/usr", "/usr"], ["env", "/usr/local"]], links=[["usr/bin", "/bin"]])
    root = root_lookup.find(str(tmp_path))
    assert root.binds == ((os.path.realpath("/usr"), "/usr"), (str(tmp_path / "env"), "/usr/local"))
    assert not root.etc


BAD: dict[str, dict[str, Any]] = {
    "another format": {"format": 2},
    "nothing said of its contents": {"contents": None},
    "a source that leaves the folder": {"binds": [["../other", "/opt"]]},
    "a source that is not there": {"binds": [["env", "/opt"]]},
    "the machine's /etc": {"binds": [["/etc", "/opt"]]},
    "all of the machine": {"binds": [["/", "/opt"]]},
    "what holds homes": {"binds": [["/home", "/opt"]]},
    "the machine's /proc": {"binds": [["/proc/1", "/opt"]]},
    "a place that is the sandbox's own": {"binds": [["/usr", "/tmp"]]},
    "a place within it": {"binds": [["/usr", "/dev/x"]]},
    "a place that is none": {"binds": [["/usr", "usr"]]},
    "a place that goes up": {"links": [["x", "/usr/../etc"]]},
    "a variable that is nobody's": {"environment": {"LD_PRELOAD": "/x"}},
    "no list": {"binds": 7},
    "no text": {"links": [[1, 2]]},
}


@pytest.mark.parametrize("case", BAD)
def test_a_description_that_must_not_be_used(folder: Path, case: str) -> None:
    describe(folder, **BAD[case])
    with pytest.raises(EngineError, match="cannot be used") as caught:
        root_lookup.find(str(folder))
    assert caught.value.setting == "image"


def test_a_root_that_others_may_write_to_is_refused(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="others may write"):
        root_lookup.find(str(folder))


def test_an_etc_without_the_files_that_take_the_places_of_others(folder: Path) -> None:
    (folder / "root/etc/hosts").unlink()
    with pytest.raises(EngineError, match="hosts"):
        root_lookup.find(str(folder))


def test_a_name_without_a_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(root_lookup, "folders", lambda: [str(tmp_path)])
    with pytest.raises(ImageMissing, match="sandbox-kernel build"):
        root_lookup.find("sandbox-kernel:base")
    (tmp_path / "team%2Fbase").mkdir()
    describe(tmp_path / "team%2Fbase", tree=None)
    assert root_lookup.find("team/base").name == "team/base"
    assert root_lookup.names() == ["team/base"]


def test_no_variable_says_where_roots_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    before = root_lookup.folders()
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert root_lookup.folders() == before


# --- words and choices ------------------------------------------------------------------------------------------------

SAID = {
    "bwrap: No permissions to create new namespace, likely because the kernel does not allow it": EngineUnavailable,
    "bwrap: setting up uid map: Permission denied": EngineUnavailable,
    "bwrap: Can't mount proc on /newroot/proc: Operation not permitted": EngineUnavailable,
    "bwrap: Failed to mount tmpfs: No such file or directory": EngineUnavailable,
    "bwrap: Can't find source path /x: No such file or directory": EngineError,
    "": EngineError,
}


@pytest.mark.parametrize("said", SAID)
def test_what_bubblewrap_says_is_translated(said: str) -> None:
    assert type(engine_errors.refusal(said)) is SAID[said]


@pytest.mark.parametrize(
    ("engine", "docker", "program", "taken"),
    [
        ("auto", True, "/usr/bin/bwrap", "docker"),
        ("auto", False, "/usr/bin/bwrap", "bubblewrap"),
        ("auto", False, None, "docker"),
        ("docker", False, "/usr/bin/bwrap", "docker"),
        ("bubblewrap", True, None, "bubblewrap"),
        ("unix:///x.sock", True, "/usr/bin/bwrap", "unix:///x.sock"),
    ],
)
def test_which_engine_is_taken(
    engine: str, docker: bool, program: str | None, taken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.engines.docker.discovery.answers", lambda: docker)
    monkeypatch.setattr("sandbox_kernel.plugins.bubblewrap.discovery.bubblewrap_program", lambda: program)
    settings = replace(Settings(), engine=engine)
    assert select.chosen(settings) == taken
    made = select.make_engine(settings)
    assert made.address == (taken if taken == "bubblewrap" else made.address)
    assert made.address.startswith("unix://") or taken == "bubblewrap"


# --- which engine it is -----------------------------------------------------------------------------------------------


@pytest.fixture
def no_podman(monkeypatch: pytest.MonkeyPatch) -> None:
    if index.is_here("podman"):
        monkeypatch.setattr("sandbox_kernel.plugins.podman.discovery.answers", lambda: False)


NEITHER = "Docker and no Podman" if index.is_here("podman") else "Docker"


@pytest.mark.usefixtures("no_podman")
@pytest.mark.parametrize(
    ("answers", "program", "taken", "said"),
    [
        (True, "/usr/bin/bwrap", "docker", "docker, which answers this user"),
        (False, "/usr/bin/bwrap", "bubblewrap", f"bubblewrap, for no {NEITHER} answers this user"),
        (False, None, "docker", "docker, which does not answer this user"),
    ],
)
def test_auto_says_which_engine_it_takes_and_why(
    monkeypatch: pytest.MonkeyPatch, answers: bool, program: str | None, taken: str, said: str
) -> None:
    """Without a broker: those of this machine, which it would name as well, may be another checkout's."""
    monkeypatch.setattr(broker_sockets, "own_folder", lambda: "/none")
    monkeypatch.setattr(docker_discovery, "answers", lambda: answers)
    monkeypatch.setattr("sandbox_kernel.plugins.bubblewrap.discovery.bubblewrap_program", lambda: program)
    settings = Settings(engine="auto")
    assert (select.chosen(settings), select.explained(settings)) == (taken, said)
    assert select.explained(Settings(engine="bubblewrap")) == "bubblewrap"


@pytest.mark.usefixtures("no_podman")
def test_auto_takes_it_where_its_folder_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_sockets, "own_folder", lambda: "/none")
    monkeypatch.setattr(docker_discovery, "answers", lambda: False)
    monkeypatch.setattr("sandbox_kernel.plugins.bubblewrap.discovery.bubblewrap_program", lambda: "/usr/bin/bwrap")
    assert select.chosen(Settings(engine="auto")) == "bubblewrap"
    monkeypatch.setattr(index, "is_here", lambda name: name != "bubblewrap")
    assert select.chosen(Settings(engine="auto")) == "docker"


def test_no_wall_is_here_where_there_is_no_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sandbox_kernel.plugins.bubblewrap.engine.bubblewrap_program", lambda: None)
    code = main(["doctor", "--walls", "--json", "--engine", f"unix://{tmp_path}/nobody.sock"])
    seen = json.loads(capsys.readouterr().out)
    assert (code, [one["here"] for one in seen]) == (1, [False] * len(walls.all_walls()))


def test_a_user_whom_the_system_does_not_know_has_no_home_with_a_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr("pwd.getpwuid", unknown)
    assert docker_discovery.socket_path(None)


@pytest.mark.parametrize(
    ("kept", "held", "said"),
    [
        ("enforced", True, "Limits: 2.0 GiB of memory, 2 CPUs, 512.0 MiB of files"),
        ("best-effort", True, "Limits: 2.0 GiB of memory, 2 CPUs, 512.0 MiB of files"),
        ("best-effort", False, "Limits: 512.0 MiB of files"),
    ],
)
def test_the_banner_says_what_the_machine_enforces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: LimitsKept, held: bool, said: str
) -> None:
    """Once there is a sandbox: with best-effort, it has a cgroup where one is to be had."""
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, Settings(engine="bubblewrap", limits_kept=kept))
    monkeypatch.setattr(Session, "held", property(lambda _: held))
    info = kernel_info(proxy.session, proxy.engine_address, file_messages={})
    assert said in info["banner"]
    assert ("processors are not limited" in info["banner"]) == (not held)
    assert info["sandbox"]["limits_held"] == held


@pytest.mark.parametrize(
    ("settings", "wall", "limits"),
    [
        (Settings(engine="bubblewrap"), ", on bubblewrap.\n", "Limits: "),
        (Settings(engine="bubblewrap", limits_kept="best-effort"), ", on bubblewrap.\n", "Limits, as far as they go: "),
        (Settings(engine="unix:///e.sock", runtime="runsc"), ", on Docker (unix:///e.sock) with runsc.\n", "Limits: "),
    ],
    ids=["bubblewrap", "best-effort", "gvisor"],
)
def test_the_banner_says_which_wall_it_is(tmp_path: Path, settings: Settings, wall: str, limits: str) -> None:
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, settings)

    info = kernel_info(proxy.session, proxy.engine_address, file_messages={})
    assert wall in info["banner"]
    assert limits in info["banner"]
    assert (info["sandbox"]["engine"], info["sandbox"]["limits_kept"]) == (settings.engine, settings.limits_kept)


def test_the_end_of_a_child_is_awaited_where_nobody_keeps_how_it_ended() -> None:
    """The owner of this process may ignore SIGCHLD, which is its own affair."""
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        for _ in range(2):
            child = os.fork()
            if not child:
                os._exit(3)
            await_end(child)
            with pytest.raises(ProcessLookupError):
                os.kill(child, 0)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # the control: as it is elsewhere
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    ("found", "of_root", "of_a_user"),
    [
        ("", True, True),
        ("27 100 1000", False, True),
        ("100", False, True),
        ("0 100", False, False),
        ("7", False, False),
        ("?", False, False),
    ],
)
def test_the_machine_s_groups_are_the_owner_s_and_never_root_s(
    monkeypatch: pytest.MonkeyPatch, found: str, of_root: bool, of_a_user: bool
) -> None:
    monkeypatch.setattr(os, "getgid", lambda: 1000)
    monkeypatch.setattr(os, "getgroups", lambda: [0, 27, 100])
    for drops, fine in ((True, of_root), (False, of_a_user)):
        monkeypatch.setattr(inspection, "drops", lambda drops=drops: drops)
        assert inspection.other_groups(found).ok is fine


def test_root_s_group_is_the_owner_s_own_in_a_container_with_a_user_s_number_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "getgid", lambda: 0)
    monkeypatch.setattr(os, "getgroups", lambda: [0])
    monkeypatch.setattr(inspection, "drops", lambda: False)
    assert inspection.other_groups("0").ok
    assert not inspection.other_groups("0 7").ok


@pytest.mark.parametrize(
    ("switch", "works", "taken"),
    [("1", False, "system"), ("1", True, "package"), ("0", False, "package"), (None, False, "package")],
)
def test_of_two_bubblewraps_the_one_that_may_have_namespaces_is_taken(
    switch: str | None, works: bool, taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AppArmor may let the path of the system's have them, and no other."""
    for name, ok in (("package", works), ("system", True)):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {0 if ok else 1}\n")
        (tmp_path / name).chmod(0o755)
    if switch is not None:
        (tmp_path / "switch").write_text(f"{switch}\n")
    monkeypatch.setattr(discovery, "RESTRICTED", str(tmp_path / "switch"))
    monkeypatch.setattr(discovery, "_brought", lambda: str(tmp_path / "package"))
    monkeypatch.setattr(discovery, "_of_the_system", lambda: str(tmp_path / "system"))
    assert discovery.bubblewrap_program() == str(tmp_path / taken)
