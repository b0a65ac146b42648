"""Cgroups of both versions, in made folders: the test writes what a kernel would, and reads what it would be told."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.engines.hardening import protections
from sandbox_kernel.engines.owner_process import OwnerProcess
from sandbox_kernel.plugins.bubblewrap import cgroups
from sandbox_kernel.plugins.bubblewrap.cgroups import CgroupSet, Folders, Freezer, NoCgroup
from tests.unit.engines.test_hardening import SPEC

WANTED = protections(SPEC)
OWN = "user.slice/app.slice/own.scope"


def said(folder: Path, *names: str) -> dict[str, str]:
    return {name: (folder / name).read_text(encoding="ascii").strip() for name in names}


# --- version 2 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path) -> Folders:
    """A tree of version 2 in which somebody has a folder."""
    own = tmp_path / OWN
    own.mkdir(parents=True)
    for each in (own, *own.parents[: len(Path(OWN).parts)]):
        (each / "cgroup.procs").touch()
        (each / "cgroup.subtree_control").write_text("")
        (each / "cgroup.controllers").write_text("cpu memory pids\n")
    return {"": (str(tmp_path), str(own))}


def test_of_version_2_the_highest_that_gives_its_children_all_is_taken(tree: Folders, tmp_path: Path) -> None:
    for name in ("user.slice", "user.slice/app.slice"):
        (tmp_path / name / "cgroup.subtree_control").write_text("cpu io memory pids\n")
    assert cgroups.new_folders("x", tree) == ((("", f"{tmp_path}/user.slice/x"),), 2)


def test_a_delegated_cgroup_of_version_2_gets_a_leaf_for_its_own_processes(tree: Folders, tmp_path: Path) -> None:
    own = tmp_path / OWN
    (own / "cgroup.procs").write_text(f"{os.getpid()}\n")
    assert cgroups.new_folders("x", tree) == ((("", f"{own}/x"),), 2)
    assert (own / cgroups.LEAF / "cgroup.procs").read_text().strip() == str(os.getpid())
    assert set((own / "cgroup.subtree_control").read_text().split()) == {"+memory", "+pids", "+cpu"}


def test_one_without_all_controllers_is_none(tree: Folders, tmp_path: Path) -> None:
    (tmp_path / OWN / "cgroup.controllers").write_text("pids\n")
    with pytest.raises(NoCgroup, match="not all of memory, pids and cpu"):
        cgroups.new_folders("x", tree)
    assert "not all of memory, pids and cpu" in (cgroups.available(tree) or "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has processes of other users to put there")
def test_one_with_processes_of_others_is_none(tree: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / OWN / "cgroup.procs").write_text(f"{os.getpid()}\n")
    monkeypatch.setattr(os, "geteuid", lambda: 64123)
    with pytest.raises(NoCgroup, match="processes of other users"):
        cgroups.new_folders("x", tree)


def test_a_cgroup_of_version_2_is_made_with_its_limits(tree: Folders, tmp_path: Path) -> None:
    (tmp_path / OWN / "cgroup.subtree_control").write_text("cpu memory pids\n")
    group = cgroups.make("x", WANTED, tree)
    folder = tmp_path / OWN / "x"
    assert group == CgroupSet((("", str(folder)),), 2)
    assert said(folder, "memory.max", "pids.max", "cpu.max") == {
        "memory.max": str(2 << 30), "pids.max": "256", "cpu.max": "200000 100000"
    }  # fmt: skip
    assert not (folder / "memory.swap.max").exists(), "a kernel without swap has no such file"
    (folder / "memory.swap.max").touch()
    group.limit(WANTED)
    assert said(folder, "memory.swap.max") == {"memory.swap.max": "0"}
    assert group.seen() == ((str(folder), "/sys/fs/cgroup"),)
    assert cgroups.version(tree) == "2"


def test_in_version_2_it_is_entered_and_its_kills_are_counted(tmp_path: Path) -> None:
    group = CgroupSet((("", str(tmp_path)),), 2)
    assert group.kills_for_memory() == 0
    (tmp_path / "memory.events").write_text("low 0\nhigh 0\nmax 7\noom 3\noom_kill 2\n")
    group.enter(4711)
    assert group.kills_for_memory() == 2
    assert said(tmp_path, "cgroup.procs") == {"cgroup.procs": "4711"}


def test_one_that_nobody_waits_for_gives_way(tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    CgroupSet((("", str(tmp_path)),), 2).give_way()
    CgroupSet((("memory", str(tmp_path / "no")), ("cpu,cpuacct", str(tmp_path / "cpu"))), 1).give_way()
    assert said(tmp_path, "cpu.weight", "cpu/cpu.shares") == {"cpu.weight": "10", "cpu/cpu.shares": "102"}
    CgroupSet((("", str(tmp_path / "nowhere")),), 2).give_way()


def test_what_an_owner_that_has_ended_left_is_found_wherever_it_may_be(tree: Folders, tmp_path: Path) -> None:
    """The controls: one of an owner that is there, one with a process of this machine's, and one of another's name."""
    gone, here = OwnerProcess(2**22 + 1, 1), OwnerProcess.of(os.getpid())
    left = [tmp_path / place / gone.container_name("s") for place in ("", "user.slice", OWN)]
    others = [tmp_path / here.container_name("s"), tmp_path / "sandbox-kernel-host", tmp_path / "docker"]
    busy = tmp_path / gone.container_name("s")
    for folder in (*left, *others, busy):
        folder.mkdir()
        (folder / "cgroup.procs").touch()
    (busy / "cgroup.procs").write_text(f"{os.getpid()}\n0\n")
    hidden = {"memory": (str(tmp_path), str(tmp_path / "hidden"))}
    assert cgroups.left_behind({**tree, **hidden}) == {str(folder) for folder in left}


# --- version 1 --------------------------------------------------------------------------------------------------------


@pytest.fixture
def trees(tmp_path: Path) -> Folders:
    """Hierarchies of version 1 in which somebody has a folder; two controllers share one, as on most machines."""
    found: dict[str, tuple[str, str]] = {}
    for mount in ("memory", "pids", "cpu,cpuacct", "freezer"):
        (tmp_path / mount / "own").mkdir(parents=True)
        found |= dict.fromkeys(mount.split(","), (str(tmp_path / mount), str(tmp_path / mount / "own")))
    return found


def test_a_cgroup_of_version_1_is_one_for_each_hierarchy(trees: Folders, tmp_path: Path) -> None:
    names = ("memory", "pids", "cpu,cpuacct", "freezer")
    group = cgroups.make("x", WANTED, trees)
    assert group == CgroupSet(tuple((name, str(tmp_path / name / "own" / "x")) for name in names), 1)
    assert group.seen()[2:] == ((f"{tmp_path}/cpu,cpuacct/own/x", "/sys/fs/cgroup/cpu,cpuacct"),), "it sees no switch"
    memory, pids, cpu, _ = (tmp_path / name / "own" / "x" for name in names)
    assert said(memory, "memory.limit_in_bytes") == {"memory.limit_in_bytes": str(2 << 30)}
    assert not (memory / "memory.memsw.limit_in_bytes").exists(), "a kernel that does not count swap has no such file"
    (memory / "memory.memsw.limit_in_bytes").touch()
    group.limit(WANTED)
    assert said(memory, "memory.memsw.limit_in_bytes") == {"memory.memsw.limit_in_bytes": str(2 << 30)}
    assert said(pids, "pids.max") == {"pids.max": "256"}
    assert said(cpu, "cpu.cfs_period_us", "cpu.cfs_quota_us") == {
        "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "200000"
    }  # fmt: skip
    assert cgroups.version(trees) == "1"


def test_in_version_1_it_is_entered_everywhere_and_its_kills_are_counted(trees: Folders) -> None:
    group = cgroups.make("x", WANTED, trees)
    group.enter(4711)
    assert {Path(folder, "cgroup.procs").read_text() for _, folder in group.folders} == {"4711\n"}
    Path(group.place("memory").folder, "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n")
    assert group.kills_for_memory() == 3


def test_the_cgroups_of_a_process_are_found_by_the_name_of_its_sandbox(trees: Folders, tmp_path: Path) -> None:
    cgroups.make("x", WANTED, trees)
    rows = ["9:memory:/own/x", "8:pids:/own/x", "4:cpu,cpuacct:/own/x", "2:freezer:/own/x", "1:name=systemd:/own/x"]
    found = cgroups.folders_of(rows, "x", trees)
    assert found == [f"{tmp_path}/{name}/own/x" for name in ("memory", "pids", "cpu,cpuacct", "freezer")]
    assert cgroups.folders_of(rows, "y", trees) == []


def test_a_machine_that_gives_no_freezer_has_sandboxes_all_the_same(trees: Folders) -> None:
    """It only cannot pause them, which is said when somebody asks."""
    given = {name: place for name, place in trees.items() if name != "freezer"}
    group = cgroups.make("x", WANTED, given)
    assert [name for name, _ in group.folders] == ["memory", "pids", "cpu,cpuacct"]
    assert not Freezer(group).there
    assert not Freezer(None).there


async def test_a_sandbox_that_does_not_stand_still_in_time_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that waits for a disk is not frozen before that answers; the files are the test's."""
    monkeypatch.setattr("sandbox_kernel.plugins.bubblewrap.cgroups.FREEZE_SECONDS", 0.05)
    freezer, switch, said = Freezer(CgroupSet((("", str(tmp_path)),), 2)), tmp_path / "cgroup.freeze", "cgroup.events"
    switch.touch()
    (tmp_path / said).write_text("populated 1\nfrozen 0\n")
    assert freezer.there
    with pytest.raises(EngineError, match="standstill"):
        await freezer.freeze()
    assert switch.read_text() == "0\n"
    (tmp_path / said).write_text("populated 1\nfrozen 1\n")
    await freezer.freeze()
    assert switch.read_text() == "1\n"
    freezer.thaw()
    assert switch.read_text() == "0\n"


# --- neither ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("within", [{}, {"pids": ("/nowhere", "/nowhere")}], ids=["none", "one_controller"])
def test_a_machine_without_cgroups_is_told(within: Folders) -> None:
    with pytest.raises(NoCgroup, match="memory, pids and cpu"):
        cgroups.make("x", WANTED, within)


def test_a_folder_in_which_no_kernel_answers_is_none_and_nothing_is_left(trees: Folders) -> None:
    """It is tried: what is made there has no files of limits."""
    assert cgroups.available(trees) == "controllers are missing: memory, pids, cpu"
    assert not [each for _, folder in trees.values() for each in Path(folder).iterdir()]


def test_a_cgroup_that_cannot_be_made_leaves_nothing(trees: Folders) -> None:
    Path(trees["cpu"][1], "x").touch()
    with pytest.raises(NoCgroup, match="File exists"):
        cgroups.make("x", WANTED, trees)
    assert not Path(trees["memory"][1], "x").exists()
