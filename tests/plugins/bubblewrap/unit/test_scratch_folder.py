"""A folder in place of a disk: what is counted in it, where there is none, and that cells can leave nothing in it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.engines.attachment import file_system
from sandbox_kernel.plugins.bubblewrap import scratch_folder
from sandbox_kernel.plugins.bubblewrap.scratch_folder import INSIDE, OverLimitError, remove
from tests.support.descriptors import open_files

NAME = "sandbox-kernel-session-1-1-00000000"
DEEP = 2500


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Return the closed folder of a sandbox; no other program could remove what is made in it."""
    (tmp_path / NAME / INSIDE).mkdir(parents=True)
    yield tmp_path / NAME
    remove(str(tmp_path / NAME))


def used(folder: str, processes: list[int]) -> int:
    return scratch_folder.used(folder, processes)[0]


def deepen(folder: Path, levels: int) -> None:
    """Make folders within each other, more than any path can name."""
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=fd)
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    os.close(fd)


def test_what_is_written_counts_once_however_many_names_it_has(folder: Path) -> None:
    inside = folder / INSIDE
    (inside / "a").mkdir()
    before = used(str(folder), [])
    (inside / "a/file").write_bytes(b"x" * MIB)
    os.link(inside / "a/file", inside / "again")
    with (inside / "hole").open("wb") as file:
        file.truncate(1 << 40)
    (inside / "link").symlink_to("/")
    assert MIB <= used(str(folder), []) - before < MIB + 64 * 1024


def test_a_file_without_a_name_counts_while_a_process_has_it(folder: Path) -> None:
    with (folder / INSIDE / "file").open("wb", buffering=0) as file:
        os.unlink(file.name)  # noqa: PTH108 (a string)
        file.write(b"x" * MIB)
        assert used(str(folder), []) < MIB <= used(str(folder), [os.getpid()])
    assert used(str(folder), [os.getpid()]) < MIB


@pytest.mark.skipif(os.geteuid() == 0, reason="root looks into every folder")
def test_folders_without_rights_are_looked_into(folder: Path) -> None:
    (folder / INSIDE / "closed").mkdir()
    (folder / INSIDE / "closed/file").write_bytes(b"x" * MIB)
    (folder / INSIDE / "closed").chmod(0)
    (folder / INSIDE).chmod(0)
    assert used(str(folder), []) >= MIB
    (folder / INSIDE / "closed").chmod(0)
    (folder / INSIDE).chmod(0)
    assert remove(str(folder))


def test_a_folder_s_links_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/file").write_bytes(b"x" * MIB)
    (folder / INSIDE / "out").symlink_to(tmp_path / "outside")
    assert used(str(folder), []) < MIB
    assert remove(str(folder))
    assert (tmp_path / "outside/file").exists()


def test_a_look_has_an_end(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_folder, "MAX_FILES", 100)
    for number in range(100):
        (folder / INSIDE / f"{number}").touch()
    assert scratch_folder.used(str(folder), []) == (0, 100)
    (folder / INSIDE / "more").touch()
    with pytest.raises(OverLimitError, match="more than 100 files"):
        used(str(folder), [])


@pytest.mark.slow
def test_a_look_goes_so_deep_and_no_deeper(folder: Path) -> None:
    before = open_files()
    deepen(folder / INSIDE, scratch_folder.MAX_DEPTH - 1)
    used(str(folder), [])
    remove(str(folder))
    (folder / INSIDE).mkdir(parents=True)
    deepen(folder / INSIDE, DEEP)
    with pytest.raises(OverLimitError, match="within each other"):
        used(str(folder), [])
    assert not open_files() - before


@pytest.mark.slow
def test_all_that_cells_can_leave_is_removed(folder: Path) -> None:
    inside = folder / INSIDE
    deepen(inside, DEEP)
    for number in range(2000):
        (inside / f"file{number}").touch()
    (inside / "0").mkdir()  # as what is moved up is called
    (inside / "0/file").touch()
    os.mkfifo(inside / "fifo")
    (inside / "closed").mkdir(0)
    (inside / "written").mkdir()
    (inside / "written/below").mkdir(0o500)
    (inside / "written").chmod(0o500)
    assert remove(str(folder))
    assert not folder.exists()


@pytest.mark.slow
def test_a_removal_has_an_end_and_another_goes_on(folder: Path) -> None:
    deepen(folder / INSIDE, DEEP)
    assert not remove(str(folder), 0.005)
    assert folder.exists()
    assert remove(str(folder), 60)


def test_what_another_process_removes_is_waited_for(folder: Path) -> None:
    import fcntl

    fd = os.open(folder, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    assert not remove(str(folder), 0.05)
    os.close(fd)
    assert remove(str(folder), 0.05)


def test_there_is_none_in_memory() -> None:
    with pytest.raises(EngineError, match="/dev/shm is not on a disk") as raised:
        scratch_folder.make(NAME, MIB, "/dev/shm")
    assert raised.value.code is EndCode.DISK_NOT_MADE
    assert not Path("/dev/shm", NAME).exists()


def test_one_that_the_disk_has_no_room_for_is_refused(tmp_path: Path) -> None:
    if file_system(str(tmp_path)) not in scratch_folder.ON_DISK:
        pytest.skip("the tests' own folder is not on a disk")
    with pytest.raises(EngineError, match="that are free") as raised:
        scratch_folder.make(NAME, 1 << 60, str(tmp_path))
    assert raised.value.setting == "scratch_size"
    assert not list(tmp_path.iterdir())
    fd = scratch_folder.make(NAME, MIB, str(tmp_path))
    os.close(fd)
    assert (tmp_path / NAME).stat().st_mode & 0o777 == 0o700


def test_what_is_of_no_dead_owner_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox_kernel.engines.owner_process import OwnerProcess

    monkeypatch.setattr(scratch_folder, "PLACE", str(tmp_path))
    mine = OwnerProcess.of(os.getpid()).container_name("session")
    for name in (NAME, mine, "sandbox-kernel-other", "else"):
        (tmp_path / name).mkdir()
    assert list(scratch_folder.left_behind()) == [str(tmp_path / NAME)]
