"""Files of the sandbox that are not in scratch, with the agent's own code: what is read, what is not even opened."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sandbox_kernel.container import file_requests
from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.errors import FileNotThere, FileRefused
from sandbox_kernel.files import scratch_files
from sandbox_kernel.files.file_rules import CHUNK_BYTES
from sandbox_kernel.sdk import folder_entries
from tests.support.cases import each
from tests.support.files_agent import Liar, read, real

LIMIT = 1 << 30


@pytest.fixture
def other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give a folder beside scratch."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(file_requests, "ROOT", str(tmp_path / "scratch"))
    (tmp_path / "other").mkdir()
    return tmp_path / "other"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_files_elsewhere_are_written_read_listed_moved_and_removed(other: Path) -> None:
    path, data = f"{other}/new/a.bin", os.urandom(2 * CHUNK_BYTES + 7)
    await scratch_files.write(real, path, data)
    assert await read(real, path) == data
    assert names(other / "new") == ["a.bin"]
    assert names(other.parent / "scratch") == []
    assert [stat.S_IMODE(one.stat().st_mode) & 0o700 for one in (other / "new", other / "new/a.bin")] == [0o700, 0o600]
    assert [one.path for one in (await scratch_files.scan(real, elsewhere=str(other)))[0]] == [path]
    assert [one.path for one in await folder_entries.entries(real, str(other), 2)] == [f"{other}/new", path]
    assert (await folder_entries.stat(real, path)).size == len(data)
    assert (await folder_entries.rename(real, path, f"{other}/b")).path == f"{other}/b"
    await scratch_files.remove(real, f"{other}/b")
    with pytest.raises(FileNotThere):
        await read(real, f"{other}/b")
    assert (await scratch_files.scan(real))[0] == []


async def test_what_fails_elsewhere_leaves_no_part(other: Path) -> None:
    (other / "taken").mkdir()
    with pytest.raises(FileRefused) as refused:
        await scratch_files.write(real, f"{other}/taken", bytes(CHUNK_BYTES + 1))
    assert refused.value.code is FileCode.IS_FOLDER
    assert names(other) == ["taken"]


async def test_a_link_leads_where_it_leads_elsewhere_and_nowhere_in_scratch(other: Path) -> None:
    (other / "target").write_text("there")
    (other / "link").symlink_to("target")
    (other.parent / "scratch/link").symlink_to(other / "target")
    assert await read(real, f"{other}/link") == b"there"
    with pytest.raises(FileRefused) as refused:
        await read(real, "link")
    assert refused.value.code is FileCode.LINK_INSIDE


@each("path", ["/dev/zero", "/dev/full", "/dev/tty", "FIFO", "to zero", "to FIFO", "/proc/self/fd/0"])
async def test_what_may_have_no_end_is_not_opened(tmp_path_factory: pytest.TempPathFactory, path: str) -> None:
    folder = tmp_path_factory.mktemp("other")
    os.mkfifo(folder / "FIFO")
    (folder / "to zero").symlink_to("/dev/zero")
    (folder / "to FIFO").symlink_to("FIFO")
    with pytest.raises(FileRefused) as refused:
        await read(real, str(folder / path))
    assert refused.value.code in {FileCode.LINK_INSIDE, FileCode.MISSING}


async def test_files_of_the_system_have_no_size_and_are_read_whole(other: Path) -> None:
    text = (await read(real, "/proc/self/status")).decode()
    assert text.startswith("Name:")
    assert f"Pid:\t{os.getpid()}\n" in text
    assert await read(real, "/proc/sys/kernel/ostype") == b"Linux\n"
    stamp, data = await scratch_files.chunk(real, "/proc/self/status", 6, 10, LIMIT)
    assert (len(data), stamp.is_made_anew) == (10, True)


async def test_one_without_an_end_is_refused(other: Path) -> None:
    with pytest.raises(FileRefused) as refused:
        await read(real, "/proc/self/pagemap")
    assert refused.value.code is FileCode.ENDLESS


@each("path", ["//etc/x", "/etc/../x", "/tmp//x", "/tmp/x/", "/a\\b", "/a\nb", "/" + "a/" * 20 + "b"])
async def test_an_improper_path_is_not_asked_for(path: str) -> None:
    liar = Liar()
    for refused in (
        read(liar, path),
        scratch_files.write(liar, path, b""),
        scratch_files.remove(liar, path),
        scratch_files.make_folder(liar, path),
        folder_entries.stat(liar, path),
        folder_entries.rename(liar, "a", path),
        folder_entries.remove_all(liar, path),
    ):
        with pytest.raises(FileRefused):
            await refused
    assert liar.asked == []


async def test_a_listing_of_scratch_names_nothing_elsewhere(other: Path) -> None:
    stamp = [1, 2, 3, 4]
    listed = Liar(list=lambda **_: ({"ok": True, "files": [["/etc/x", *stamp], ["a", *stamp]]}, b""))
    assert [one.path for one in (await scratch_files.scan(listed))[0]] == ["a"]
    rows = [["/etc/x", "file", 0o644, None, *stamp], ["a", "file", 0o644, None, *stamp]]
    entries = Liar(entries=lambda **_: ({"ok": True, "entries": rows}, b""))
    assert [one.path for one in await folder_entries.entries(entries, "", 1)] == ["a"]
    assert [one.path for one in await folder_entries.entries(entries, "/etc", 1)] == ["/etc/x"]
