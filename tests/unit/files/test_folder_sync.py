"""Copies between a host folder and scratch: with the agent's own code, and with an agent that lies."""

from __future__ import annotations

import ast
import asyncio
import errno
import io
import json
import os
import stat
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sandbox_kernel.container import file_requests
from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.errors import FileRefused, SandboxDied
from sandbox_kernel.core.model import GIB, MIB
from sandbox_kernel.files import folder_sync, scratch_files
from sandbox_kernel.files.file_rules import CHUNK_BYTES, FileLimits, check_name, safe_name, stands_in
from sandbox_kernel.files.folder_sync import Downloads, FileRefusal, SyncReport, SyncState, Uploads
from sandbox_kernel.files.host_tree import DownloadFolder, UploadFolder
from sandbox_kernel.files.scratch_files import Ask, Stamp
from sandbox_kernel.sdk import folder_entries
from sandbox_kernel.sdk.folder_entries import FileType
from sandbox_kernel.session.requests.queue import MAX_TOLD
from tests.support.descriptors import open_below
from tests.support.examples import examples
from tests.support.files_agent import Liar, read, real
from tests.support.patience import Stopwatch, cancelled, within


class Place:
    """A scratch, host folders, and one synchronisation of each direction for them."""

    def __init__(self, base: Path, same: bool = False) -> None:
        self.base = base
        self.scratch, self.up = base / "scratch", base / "up"
        self.down = self.up if same else base / "down"
        for folder in (self.scratch, self.up, self.down, base / "outside"):
            folder.mkdir(exist_ok=True)
        (base / "outside" / "secret").write_text("secret")
        self.state = SyncState()
        self.limit(FileLimits())

    def limit(self, limits: FileLimits) -> None:
        self.uploads = Uploads(UploadFolder(self.up, limits), self.state, limits)
        self.downloads = Downloads(DownloadFolder(self.down), self.state, limits)

    def require_safe(self) -> None:
        """Nothing was written outside the folders, and nothing of an unfinished copy is left in them."""
        assert {path.name for path in self.base.iterdir()} <= {"scratch", "up", "down", "outside"}
        assert tree(self.base / "outside") == {"secret"}
        assert (self.base / "outside" / "secret").read_text() == "secret"
        assert not [path for path in self.base.rglob(".*") if path.name.startswith((".upload-", ".sandbox-"))]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(file_requests, "ROOT", str(tmp_path / "scratch"))
    return Place(tmp_path)


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def names(report: SyncReport) -> set[str]:
    return {path for path, _ in report.copied}


async def cancelled_after_a_chunk(sync: Callable[[Ask], Coroutine[Any, Any, SyncReport]]) -> None:
    """Copy a file of several chunks, and cancel that while the second is on its way."""
    reached = asyncio.Event()

    async def ask(op: str, data: bytes = b"", **fields: Any) -> Any:
        if fields.get("offset"):
            reached.set()
            await asyncio.Event().wait()
        return await real(op, data, **fields)

    task = asyncio.create_task(sync(ask))
    async with within(30):
        await reached.wait()
        await cancelled(task)


# --- the agent's side ------------------------------------------------------------------------------------------------


async def test_a_file_goes_in_and_comes_back_in_chunks(place: Place) -> None:
    data = os.urandom(2 * CHUNK_BYTES + 17)
    liar = Liar()
    assert await scratch_files.write(liar, "a/b/data.bin", data) == len(data)
    assert liar.asked == ["file.write"] * 3
    assert (place.scratch / "a/b/data.bin").read_bytes() == data
    assert await read(real, "a/b/data.bin") == data
    assert await scratch_files.write(real, "stream.bin", io.BytesIO(data)) == len(data)
    assert await read(real, "stream.bin") == data


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES, 2 * CHUNK_BYTES])
async def test_sizes_at_the_edge_of_a_chunk(place: Place, size: int) -> None:
    data = bytes(size)
    liar = Liar()
    await scratch_files.write(liar, "a", data)
    assert len(liar.asked) == max(1, size // CHUNK_BYTES)
    assert await read(real, "a") == data


async def test_a_cell_never_sees_half_a_file(place: Place) -> None:
    (place.scratch / "a").write_text("old")
    seen = []

    def look(**fields: Any) -> Any:
        seen.append((place.scratch / "a").read_bytes())
        return file_requests.handle("file.write", {key: fields[key] for key in fields if key != "data"}, fields["data"])

    await scratch_files.write(Liar(write=look), "a", bytes(2 * CHUNK_BYTES))
    assert seen == [b"old", b"old"]
    assert [file.path for file in (await scratch_files.scan(real))[0]] == ["a"]


async def test_sdk_functions_name_what_is_wrong(place: Place) -> None:
    await scratch_files.make_folder(real, "full/inner")
    (place.scratch / "link").symlink_to(place.base / "outside")
    os.mkfifo(place.scratch / "fifo")
    await scratch_files.write(real, "file", b"x")
    for path, reason in {
        "none": "no such file", "link/secret": "a link", "fifo": "a link, lies behind", "full": "a folder of that name",
        "file/x": "a part of its path is a file", "../outside/secret": "'..'", "//etc/passwd": "absolute",
    }.items():  # fmt: skip
        with pytest.raises(FileRefused, match=reason):
            await read(real, path)
    with pytest.raises(FileRefused, match="a folder of that name"):
        await scratch_files.write(real, "full", b"x")
    with pytest.raises(FileRefused, match="a link"):
        await scratch_files.write(real, "link/secret", b"x")
    with pytest.raises(FileRefused, match="not empty"):
        await scratch_files.remove(real, "full")
    with pytest.raises(FileRefused, match="too large"):
        await read(real, "file", limit=0)
    with pytest.raises(FileRefused, match="too large"):
        await scratch_files.write(real, "b", io.BytesIO(bytes(3 * CHUNK_BYTES)), limit=2 * CHUNK_BYTES)
    for path in ("full/inner", "full", "link", "fifo"):
        await scratch_files.remove(real, path)
    assert tree(place.scratch) == {"file"}
    place.require_safe()


async def test_the_agent_lists_what_is_near_first_and_stops(place: Place) -> None:
    (place.scratch / "deep").mkdir()
    for number in range(30):
        (place.scratch / "deep" / f"{number}").touch()
    (place.scratch / "result.csv").touch()
    reply, _ = await real("file.list", limit=10)
    assert reply["complete"] is False
    assert reply["files"][0][0] == "result.csv"
    assert len(reply["files"]) == 9


async def test_the_agent_does_not_follow_a_folder_swapped_for_a_link(place: Place) -> None:
    (place.scratch / "a").mkdir()
    (place.scratch / "a" / "secret").write_text("mine")
    await scratch_files.scan(real)
    (place.scratch / "a").rename(place.scratch / "moved")
    (place.scratch / "a").symlink_to(place.base / "outside")
    with pytest.raises(FileRefused, match="a link"):
        await read(real, "a/secret")


async def test_the_agent_does_not_follow_a_folder_swapped_between_check_and_open(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    (place.scratch / "a").mkdir()
    real_open = os.open

    def swap_first(path: object, *args: int, **kwargs: int) -> int:
        if path == "a":
            (place.scratch / "a").rename(place.scratch / "moved")
            (place.scratch / "a").symlink_to(place.base / "outside")
        return real_open(path, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(file_requests.os, "open", swap_first)  # type: ignore[attr-defined]
    with pytest.raises(FileRefused, match="a part of its path"):
        await read(real, "a/secret")
    assert (place.scratch / "a").is_symlink()


def test_the_agents_code_runs_on_an_older_python_with_its_standard_library_alone() -> None:
    tree = ast.parse(Path(file_requests.__file__).read_text(), feature_version=(3, 9))
    modules = {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    modules |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {module.split(".")[0] for module in modules} <= sys.stdlib_module_names


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3),
)


@pytest.mark.slow
@given(
    op=st.sampled_from(["file.list", "file.read", "file.write", "file.mkdir", "file.remove", "file.discard", "", "x"]),
    request_=st.dictionaries(st.sampled_from(["path", "offset", "size", "token", "limit", "final"]), JSON),
    data=st.binary(max_size=50),
)
@examples(200)
def test_the_agent_never_raises(
    tmp_path_factory: pytest.TempPathFactory, op: str, request_: dict[str, Any], data: bytes
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_requests, "ROOT", str(tmp_path_factory.mktemp("root")))
        reply, content = file_requests.handle(op, request_, data)
    assert isinstance(content, bytes)
    assert reply["ok"] is True or reply["error"] in {*file_requests._CODES.values(), "failed", "bad_request"}
    json.dumps(reply)


async def test_the_agent_answers_without_a_scratch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_requests, "ROOT", str(place.base / "none"))
    with pytest.raises(FileRefused, match="no such file"):
        await scratch_files.write(real, "a", b"x")
    assert (await real("file.list", limit=10))[0]["files"] == []


# --- uploads ---------------------------------------------------------------------------------------------------------


async def test_what_is_new_or_changed_goes_in_and_nothing_else_is_asked(place: Place) -> None:
    (place.up / "data").mkdir()
    (place.up / "data" / "数据.csv").write_text("1")
    (place.up / "b").write_text("2")
    liar = Liar()
    report = await place.uploads.sync(liar)
    assert set(report.copied) == {("data/数据.csv", 1), ("b", 1)}
    assert (place.scratch / "data" / "数据.csv").read_text() == "1"
    liar.asked.clear()
    assert not await place.uploads.sync(liar)
    assert liar.asked == []
    (place.up / "b").write_text("22")
    assert names(await place.uploads.sync(liar)) == {"b"}
    assert (place.scratch / "b").read_text() == "22"


async def test_a_refusal_is_reported_once(place: Place) -> None:
    (place.up / "link\x1b[2J").symlink_to(place.base / "outside" / "secret")
    (place.up / "link").symlink_to(place.base / "outside" / "secret")
    report = await place.uploads.sync(real)
    assert dict(report.refused).keys() == {"link", "link\\x1b[2J"}
    assert not await place.uploads.sync(real)
    (place.up / "link").unlink()
    assert not await place.uploads.sync(real)
    (place.up / "link").symlink_to(place.base / "outside" / "secret")
    assert dict((await place.uploads.sync(real)).refused).keys() == {"link"}
    assert tree(place.scratch) == set()


async def test_a_report_is_bounded(place: Place) -> None:
    for number in range(70):
        (place.up / f"{number}-{'x' * 200}").symlink_to("x")
    report = await place.uploads.sync(real)
    assert len(report.refused) == folder_sync.MAX_REPORTED
    assert report.more_refused == 70 - folder_sync.MAX_REPORTED
    assert all(len(path) <= 160 for path, _ in report.refused)


@pytest.mark.parametrize("how", ["statvfs", "pwrite"])
async def test_a_full_scratch_refuses_one_file_and_takes_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    (place.up / "a-large").write_bytes(bytes(3 * CHUNK_BYTES))
    (place.up / "b-small").write_text("x")
    if how == "statvfs":
        full = os.statvfs_result((4096, 4096, 512, 512, 512, 9, 9, 9, 0, 255))  # 2 MiB
        monkeypatch.setattr(file_requests.os, "fstatvfs", lambda _: full)  # type: ignore[attr-defined]
    else:
        real_pwrite = os.pwrite

        def pwrite(fd: int, data: bytes, offset: int) -> int:
            if offset >= 2 * CHUNK_BYTES:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real_pwrite(fd, data[:100_000], offset)  # and short writes on the way

        monkeypatch.setattr(file_requests.os, "pwrite", pwrite)  # type: ignore[attr-defined]
    report = await place.uploads.sync(real)
    assert names(report) == {"b-small"}
    assert report.refused == (("a-large", "scratch is full. Setting to change: scratch_size."),)
    assert tree(place.scratch) == {"b-small"}


async def test_a_file_that_changes_on_its_way_in_follows_later(place: Place) -> None:
    (place.up / "a").write_bytes(bytes(8 * CHUNK_BYTES))  # more than is read ahead

    def grow(data: bytes, **fields: Any) -> Any:
        with (place.up / "a").open("ab") as file:
            file.write(b"more")
        return file_requests.handle("file.write", fields, data)

    report = await place.uploads.sync(Liar(write=grow))
    assert "being changed" in dict(report.refused)["a"]
    assert tree(place.scratch) == set()
    assert names(await place.uploads.sync(real)) == {"a"}
    assert (place.scratch / "a").read_bytes() == (place.up / "a").read_bytes()


@pytest.mark.parametrize(
    "answer",
    [
        ({"ok": True}, b""),
        ({"ok": True, "stamp": [1, 2, 3]}, b""),
        ({"ok": True, "stamp": [1, -2, 3, 4]}, b""),
        ({"ok": True, "stamp": [1, 2.5, 3, True]}, b""),
        ({"ok": "yes"}, b""),
        ({"ok": False, "error": ["link"], "message": "<img>\x1b"}, b""),
        ({}, b""),
        (["ok"], b""),
        ({"ok": True, "stamp": [1, 2, 3, 4]}, None),
    ],
)
async def test_a_lying_agent_gets_its_upload_refused(place: Place, answer: Any) -> None:
    (place.up / "a").write_text("x")
    report = await place.uploads.sync(Liar(write=lambda **_: answer))
    assert report.copied == ()
    assert len(report.refused) == 1
    assert "<img>" not in report.refused[0][1]


@pytest.mark.slow
async def test_cancelling_leaves_nothing_in_scratch_and_no_open_file(place: Place) -> None:
    (place.up / "a").write_bytes(bytes(3 * CHUNK_BYTES))
    before = open_below(place.base)
    await cancelled_after_a_chunk(place.uploads.sync)
    assert tree(place.scratch) == set()
    assert open_below(place.base) == before


async def test_the_end_of_the_sandbox_ends_a_copy(place: Place) -> None:
    (place.up / "a").write_text("x")

    async def ask(*_: Any, **__: Any) -> Any:
        raise SandboxDied("the container is gone")

    for sync in (place.uploads.sync, place.downloads.sync):
        with pytest.raises(SandboxDied):
            await sync(ask)


async def test_an_agent_that_stops_answering_costs_a_bounded_time(place: Place) -> None:
    place.limit(FileLimits(seconds=0.3))
    (place.up / "a").write_text("x")
    (place.scratch / "b").write_text("x")

    async def ask(op: str, data: bytes = b"", **fields: Any) -> Any:
        if op in ("file.write", "file.read"):
            await asyncio.Event().wait()
        return await real(op, data, **fields)

    async with within(30):
        up, down = await place.uploads.sync(ask), await place.downloads.sync(ask)
    assert "time is up; 1 files are left" in dict(up.refused)["a"]
    assert "time is up; 1 files are left" in dict(down.refused)["b"]
    assert tree(place.down) == set()


@pytest.mark.slow
@pytest.mark.parametrize(("slowest", "whole"), [(1 << 10, True), (1 << 60, False)], ids=["its time", "control"])
async def test_bytes_that_move_have_time_and_no_more_of_it(
    place: Place, monkeypatch: pytest.MonkeyPatch, slowest: int, whole: bool
) -> None:
    """A pipe that brings each piece late is given the time of its bytes, at the slowest rate that is waited for."""
    monkeypatch.setattr(folder_sync, "SLOWEST", slowest)
    place.limit(FileLimits(seconds=0.4))
    (place.up / "a").write_bytes(bytes(9 * MIB))
    (place.scratch / "b").write_bytes(bytes(9 * MIB))
    late = asyncio.Semaphore()

    async def ask(op: str, data: bytes = b"", **fields: Any) -> Any:
        if op in ("file.write", "file.read"):
            async with late:
                await asyncio.to_thread(threading.Event().wait, 0.1)
        return await real(op, data, **fields)

    async with within(60):
        up, down = await place.uploads.sync(ask), await place.downloads.sync(ask)
    assert (bool(up.copied), bool(down.copied)) == (whole, whole)
    for report, name in ((up, "a"), (down, "b")):
        assert whole or "time is up" in dict(report.refused)[name]


async def test_the_loop_is_free_while_a_disk_is_slow(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_sync, "FOLDER_SECONDS", 0.2)
    go_on = asyncio.Event()
    loop = asyncio.get_running_loop()

    def slow() -> None:
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(10)

    monkeypatch.setattr(place.uploads._folder, "scan", slow, raising=False)
    report = await place.uploads.sync(real)  # would never return if the scan held up the loop
    go_on.set()
    assert report.refused == (("up", "the host's folder does not answer. Limit: 0 s."),)


# --- downloads -------------------------------------------------------------------------------------------------------


async def test_what_a_cell_makes_or_changes_comes_out_and_what_was_uploaded_does_not(place: Place) -> None:
    (place.up / "sales.csv").write_text("1")
    await place.uploads.sync(real)
    assert not await place.downloads.sync(real)
    (place.scratch / "out").mkdir()
    (place.scratch / "out" / "图.png").write_bytes(bytes(CHUNK_BYTES + 1))
    (place.scratch / "empty").touch()
    assert set((await place.downloads.sync(real)).copied) == {("out/图.png", CHUNK_BYTES + 1), ("empty", 0)}
    assert (place.down / "out" / "图.png").read_bytes() == bytes(CHUNK_BYTES + 1)
    assert not await place.downloads.sync(real)
    (place.scratch / "sales.csv").write_text("2")
    assert names(await place.downloads.sync(real)) == {"sales.csv"}
    assert (place.down / "sales.csv").read_text() == "2"
    (place.scratch / "sales.csv").unlink()
    assert not await place.downloads.sync(real)
    assert (place.down / "sales.csv").read_text() == "2"
    place.require_safe()


@pytest.mark.parametrize("name", ["Makefile", "-x.txt", "-rf", "CON", "run.desktop"])
async def test_what_the_host_put_there_is_no_download_whatever_its_name(place: Place, name: str) -> None:
    """A checkout has a Makefile. The control is one that a cell has changed: programs act upon files of that name."""
    (place.up / name).write_text("all:\n")
    copied = names(await place.uploads.sync(real))
    assert not await place.downloads.sync(real)
    if copied:
        (place.scratch / name).write_text("all:\n\trm -rf /\n")
        assert dict((await place.downloads.sync(real)).refused).keys() == {name}
    assert tree(place.down) == set()


def test_the_lines_of_both_directions_fit_into_a_cell() -> None:
    """The last one counts those that are left out, and is never one of them itself."""
    refused = tuple(FileRefusal(f"m/{number}", "too many", FileCode.SESSION_FILES) for number in range(50))
    copied = tuple((f"_m~{number:08x}.csv", 1) for number in range(50))
    lines = folder_sync._notes(SyncReport(copied, refused, 449), "not copied")
    assert lines[-1] == f"not copied: {449 + 50 - folder_sync.MAX_LINES} more"
    lines += folder_sync._renamed(SyncReport(copied, refused, 449))
    assert lines[-1].endswith(f"{50 - folder_sync.MAX_RENAMED_LINES} more")
    assert 2 * len(lines) <= MAX_TOLD


async def test_odd_things_in_scratch_stay_there_and_are_named(place: Place) -> None:
    folder = place.scratch
    (folder / "real").mkdir()
    (folder / "real" / "a").write_text("a")
    os.link(folder / "real" / "a", folder / "hard")
    (folder / "link").symlink_to(place.base / "outside" / "secret")
    (folder / "folder").symlink_to(place.base / "outside")
    (folder / "loop").symlink_to("loop")
    os.mkfifo(folder / "fifo")
    os.mknod(folder / "null", 0o666 | stat.S_IFCHR, os.makedev(1, 3))
    (folder / "two\nlines").write_text("x")
    (folder / "\udcff.csv").write_text("x")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text("x")
    (folder / "large").touch()
    os.truncate(folder / "large", 10 * GIB)
    (folder / "/".join("d" * 16)).mkdir(parents=True)
    (folder / "/".join("d" * 16) / "deep").write_text("x")
    async with within(30):
        report = await place.downloads.sync(real)
    renamed = {safe_name("two\nlines"), "_~bb4e63d9.csv"}
    assert names(report) == {"real/a", "hard"} | renamed
    assert {path: reason.split(".")[0] for path, reason in report.refused} == {
        "link": "it is a link", "folder": "it is a link", "loop": "it is a link", "fifo": "it is a FIFO",
        "null": "it is a device", ".git/config": "it is hidden, or in a hidden folder",
        "large": "it is too large", "/".join("d" * 16): "it lies too deep",
    }  # fmt: skip
    assert tree(place.down) == {"real", "real/a", "hard"} | renamed
    place.require_safe()
    assert not await place.downloads.sync(real)


HOSTILE_NAMES = [
    "../outside/secret", "/etc/passwd", "..", ".", "", "a/../../outside/secret", "a//b", "out/secret", "\u200e/../x",
    "link", ".bash\nrc", ".bashrc", "x" * 300, "\0/b\0/../../a", "/".join("x" * 40),
]  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE_NAMES)
async def test_a_name_that_leads_elsewhere_is_refused(place: Place, name: str) -> None:
    (place.down / "link").symlink_to(place.base / "outside" / "secret")
    (place.down / "out").symlink_to(place.base / "outside")
    stamp = [4, 1, 1, 1]
    liar = Liar(
        list=lambda **_: ({"ok": True, "files": [[name, *stamp]], "complete": True}, b""),
        read=lambda **_: ({"ok": True, "stamp": stamp}, b"evil"),
    )
    report = await place.downloads.sync(liar)
    assert report.copied == ()
    assert len(report.refused) == 1
    assert tree(place.down) == {"link", "out"}
    place.require_safe()


@given(names_=st.lists(st.sampled_from([*HOSTILE_NAMES, "a", "a/b", "ok.txt"]) | st.text(max_size=12), max_size=5))
@examples(40)
def test_nothing_is_ever_written_outside(tmp_path_factory: pytest.TempPathFactory, names_: list[str]) -> None:
    place = Place(tmp_path_factory.mktemp("case"))
    (place.down / "out").symlink_to(place.base / "outside")
    stamp = [4, 1, 1, 1]
    liar = Liar(
        list=lambda **_: ({"ok": True, "files": [[name, *stamp] for name in names_], "complete": True}, b""),
        read=lambda **_: ({"ok": True, "stamp": stamp}, b"evil"),
    )
    report = asyncio.run(place.downloads.sync(liar))
    written = {str(path.relative_to(place.down)) for path in place.down.rglob("*") if path.is_file()}
    assert written == names(report)
    place.require_safe()


def listed(*files: Any, **fields: Any) -> Any:
    return lambda **_: ({"ok": True, "files": list(files), "complete": True, **fields}, b"")


@pytest.mark.parametrize(
    ("size", "read"),
    [
        (3, lambda **_: ({"ok": True, "stamp": [3, 1, 1, 1]}, b"more than three")),
        (3, lambda **_: ({"ok": True, "stamp": [3, 1, 1, 1]}, b"")),
        (3, lambda **_: ({"ok": True, "stamp": [3, 1, 1, 1]}, b"1")),
        (3, lambda **_: ({"ok": True, "stamp": [4, 1, 1, 1]}, b"four")),
        (3, lambda **_: ({"ok": True}, b"abc")),
        (3, lambda **_: ({"ok": True, "stamp": "3"}, b"abc")),
        (3, lambda **_: ({"ok": True, "stamp": [3, 1, 1, 1]}, "abc")),
        (3, lambda **_: ([], b"abc")),
        (3, lambda **_: ({"ok": False}, b"abc")),
        (MIB * 9, lambda offset, **_: ({"ok": True, "stamp": [MIB * 9 + offset, 1, 1, 1]}, bytes(MIB))),
        (MIB * 9, lambda **_: ({"ok": True, "stamp": [MIB * 9, 1, 1, 1]}, b"1")),
        (MIB * 9, lambda **_: ({"ok": True, "stamp": [MIB * 9, 1, 1, 1]}, bytes(MIB + 1))),
    ],
)
async def test_a_file_that_is_not_what_was_listed_is_not_kept(place: Place, size: int, read: Any) -> None:
    liar = Liar(list=listed(["new/a", size, 1, 1, 1]), read=read)
    report = await place.downloads.sync(liar)
    assert report.copied == ()
    assert dict(report.refused).keys() == {"new/a"}
    assert len(liar.asked) <= 2 + scratch_files.AHEAD
    assert tree(place.down) == set()


@pytest.mark.parametrize(
    "reply",
    [
        {"ok": True},
        {"ok": True, "files": "abc", "others": 7},
        {"ok": True, "files": {"a": 1}, "others": [1, [], ["a"], ["a", 1], [None, None]]},
        {"ok": True, "files": [None, 1, [], [1], [["a"]], {"a": 1}]},
        {"ok": True, "files": [["a"], ["b", 1], ["c", -1, 0, 0, 0], ["d", 1 << 64, 0, 0, 0], ["e", "1", 0, 0, 0]]},
    ],
)
async def test_a_listing_that_is_none_copies_nothing(place: Place, reply: Any) -> None:
    report = await place.downloads.sync(Liar(list=lambda **_: (reply, b"")))
    assert report.copied == ()
    assert tree(place.down) == set()


async def test_no_refusal_hides_behind_many_others(place: Place) -> None:
    place.limit(FileLimits(file_bytes=100))
    many = [[f".{number}", 1, 1, 1, 1] for number in range(80)] + [[f"f{n}.desktop", 1, 1, 1, 1] for n in range(80)]
    liar = Liar(list=listed(*many, ["big", 1000, 1, 1, 1], others=[["link", "link"]]))
    report = await place.downloads.sync(liar)
    assert len(report.refused) == folder_sync.MAX_REPORTED
    assert {"big", "link", "f0.desktop"} <= dict(report.refused).keys()
    assert sum(path.startswith(".") for path, _ in report.refused) == 0


async def test_a_link_in_a_cache_does_not_hide_behind_many_limits(place: Place) -> None:
    place.limit(FileLimits(file_bytes=100))
    liar = Liar(list=listed(*([f"big{n}", 1000, 1, 1, 1] for n in range(80)), others=[["__pycache__/link", "link"]]))
    assert "__pycache__/link" in dict((await place.downloads.sync(liar)).refused)


@pytest.mark.parametrize("answer", [([], b""), ("x", b""), ({"ok": False, "error": "boo"}, b""), ({}, None)])
async def test_an_answer_that_is_none_is_a_line_of_the_report(place: Place, answer: Any) -> None:
    report = await place.downloads.sync(Liar(list=lambda **_: answer))
    assert dict(report.refused).keys() == {"."}


@pytest.mark.slow
async def test_a_million_entries_cost_bounded_work(place: Place) -> None:
    place.limit(FileLimits(files=10))
    files = [[f"{number}", 0, 1, 1, 1] for number in range(1_000_000)]
    liar = Liar(list=listed(*files), read=lambda **_: ({"ok": True, "stamp": [0, 1, 1, 1]}, b""))
    with Stopwatch() as watch:
        report = await place.downloads.sync(liar)
    assert watch.seconds < 20
    assert len(report.copied) == 10
    assert len(report.refused) == folder_sync.MAX_REPORTED
    assert len(list(place.down.iterdir())) == 10


async def test_number_and_total_size_hold_for_the_whole_session(place: Place) -> None:
    place.limit(FileLimits(files=2, total_bytes=100, file_bytes=80))
    (place.scratch / "a").write_bytes(bytes(60))
    assert names(await place.downloads.sync(real)) == {"a"}
    (place.scratch / "b").write_bytes(bytes(60))
    (place.scratch / "c").write_bytes(bytes(81))
    report = await place.downloads.sync(real)
    assert "together" in dict(report.refused)["b"]
    assert "too large. Limit: 80 bytes. Reached: 81 bytes" in dict(report.refused)["c"]
    (place.scratch / "a").write_bytes(bytes(30))  # the same file again takes the place of the old one
    copied = names(await place.downloads.sync(real)) | names(await place.downloads.sync(real))
    assert copied == {"a", "b"}  # b fits as soon as a is smaller, in whatever order the agent lists them
    (place.scratch / "d").touch()
    place.state.forget_scratch()
    assert "too many files" in dict((await place.downloads.sync(real)).refused)["d"]


async def test_cells_that_end_together_copy_a_file_once(place: Place) -> None:
    (place.scratch / "a").write_text("x")
    reports = await asyncio.gather(*(place.downloads.sync(real) for _ in range(3)))
    assert sorted(map(len, (report.copied for report in reports))) == [0, 0, 1]


async def test_a_failed_copy_is_tried_again(place: Place) -> None:
    (place.scratch / "a").write_text("x")
    (place.down / "a").symlink_to(place.base / "outside" / "secret")
    assert "a link of that name" in dict((await place.downloads.sync(real)).refused)["a"]
    (place.down / "a").unlink()
    assert names(await place.downloads.sync(real)) == {"a"}
    place.require_safe()


@pytest.mark.slow
async def test_cancelling_leaves_nothing_in_the_folder_and_no_open_file(place: Place) -> None:
    (place.scratch / "new").mkdir()
    (place.scratch / "new" / "a").write_bytes(bytes(3 * CHUNK_BYTES))
    before = open_below(place.base)
    await cancelled_after_a_chunk(place.downloads.sync)
    assert tree(place.down) == set()
    assert open_below(place.base) == before


# --- both directions at once -----------------------------------------------------------------------------------------


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(file_requests, "ROOT", str(tmp_path / "scratch"))
    return Place(tmp_path, same=True)


async def test_in_one_folder_for_both_nothing_goes_round(shared: Place) -> None:
    (shared.up / "sales.csv").write_text("1")
    assert names(await shared.uploads.sync(real)) == {"sales.csv"}
    (shared.scratch / "chart.png").write_text("png")
    assert names(await shared.downloads.sync(real)) == {"chart.png"}
    for _ in range(3):
        assert not await shared.uploads.sync(real)
        assert not await shared.downloads.sync(real)
    (shared.up / "chart.png").write_text("edited by a person")
    assert names(await shared.uploads.sync(real)) == {"chart.png"}
    assert not await shared.downloads.sync(real)
    (shared.scratch / "sales.csv").write_text("changed by a cell")
    assert names(await shared.downloads.sync(real)) == {"sales.csv"}
    assert not await shared.uploads.sync(real)
    assert (shared.up / "sales.csv").read_text() == "changed by a cell"


async def test_in_one_folder_for_both_the_work_of_a_person_is_not_written_over(shared: Place) -> None:
    (shared.up / "notes.txt").write_text("1")
    await shared.uploads.sync(real)
    (shared.scratch / "notes.txt").write_text("by a cell")
    (shared.up / "notes.txt").write_text("by a person, meanwhile")
    report = await shared.downloads.sync(real)
    assert "did not write the host's file of that name" in dict(report.refused)["notes.txt"]
    assert (shared.up / "notes.txt").read_text() == "by a person, meanwhile"
    assert names(await shared.uploads.sync(real)) == {"notes.txt"}
    assert not await shared.downloads.sync(real)


async def test_a_new_container_gets_everything_again(shared: Place) -> None:
    (shared.up / "sales.csv").write_text("1")
    await shared.uploads.sync(real)
    (shared.scratch / "chart.png").write_text("png")
    await shared.downloads.sync(real)
    for file in shared.scratch.iterdir():
        file.unlink()
    shared.state.forget_scratch()
    assert names(await shared.uploads.sync(real)) == {"sales.csv", "chart.png"}
    assert not await shared.downloads.sync(real)


async def test_a_restarted_host_process_goes_on_where_the_other_was(place: Place) -> None:
    (place.up / "sales.csv").write_text("1")
    await place.uploads.sync(real)
    (place.scratch / "sales.csv").write_text("changed by a cell")
    (place.scratch / "a").write_text("x")
    await place.downloads.sync(real)
    said, place.state = json.loads(json.dumps(place.state.as_json())), SyncState()
    place.state.restore(said)
    place.limit(FileLimits())
    assert not await place.uploads.sync(real)
    assert not await place.downloads.sync(real)
    assert (place.scratch / "sales.csv").read_text() == "changed by a cell"


def test_a_stamp_is_four_plain_numbers() -> None:
    assert Stamp.parse([1, 2, 3, 4]) == Stamp(1, 2, 3, 4)
    for value in (None, {}, [1, 2, 3], [1, 2, 3, True], [1, 2, 3, 4.0], [1, 2, 3, -1], [1, 2, 3, 1 << 64]):  # type: ignore[var-annotated]
        with pytest.raises(FileRefused):
            Stamp.parse(value)


# --- names and folders that add up -----------------------------------------------------------------------------------


async def test_folders_count_as_files_do(place: Place) -> None:
    """A thousand empty files, each 14 folders deep, made 15,000 inodes of a limit of a thousand files."""
    place.limit(FileLimits(files=40))
    for side in (place.scratch, place.up):
        for number in range(10):
            deep = side.joinpath(f"{side.name}-{number:02}", *"abcdefghijklm")
            deep.mkdir(parents=True)
            (deep / "x").touch()
    report = await place.downloads.sync(real)
    assert len(report.copied) == 2
    assert all("Limit: 40 files and folders" in reason for _, reason in report.refused)
    assert len(tree(place.down)) == 2 * 15
    before = len(tree(place.scratch))
    report = await place.uploads.sync(real)
    assert len(report.copied) == 2
    assert len(tree(place.scratch)) == before + 2 * 15


async def test_a_session_that_goes_on_elsewhere_counts_on(place: Place) -> None:
    place.limit(FileLimits(files=3))
    (place.scratch / "a").mkdir()
    (place.scratch / "a" / "x").touch()
    assert names(await place.downloads.sync(real)) == {"a/x"}
    place.limit(FileLimits(files=3))  # as after a restart of the host's process: only what was synchronised is kept
    for name in ("y", "z", "A"):
        (place.scratch / "a" / name).touch()
    report = await place.downloads.sync(real)
    assert len(report.copied) == 1
    assert len(tree(place.down)) == 3


async def test_two_names_that_are_one_elsewhere_do_not_both_go_out(place: Place) -> None:
    """On Windows and macOS, the second would replace the first unseen."""
    for name in ("Plot.png", "plot.PNG", "b/x", "B/y", "caf\u00e9", "cafe\u0301", "plain"):
        (place.scratch / name).parent.mkdir(exist_ok=True)
        (place.scratch / name).write_text(name)
    report = await place.downloads.sync(real)
    assert len(report.copied) == 4
    assert len(report.refused) == 3
    assert all("on other systems its name is that of" in reason for _, reason in report.refused)
    assert len(tree(place.down)) == 5
    (place.scratch / "plain").write_text("changed")
    assert names(await place.downloads.sync(real)) == {"plain"}


ODD_NAMES = [
    b"\xb2\xe2.csv", b"\xb2\xe2/\xca\xd4.csv", "\u200em.csv".encode(), "a/\u202etxt.exe".encode(), b"two\nlines",
    b"a\\b.csv", "\u200e".encode() + b"\xb2.csv", b"\xb2" * 240 + b".csv", b".hid\xb2", "x\ufeff/y".encode(),
]  # fmt: skip


@pytest.mark.parametrize("raw", ODD_NAMES)
async def test_a_file_whose_name_is_refused_has_one_that_stands_for_it(place: Place, raw: bytes) -> None:
    path = place.scratch / os.fsdecode(raw)
    path.parent.mkdir(exist_ok=True)
    second = path.with_name(f"{path.name}2")
    for other in (path, second, place.scratch / "plain"):
        other.write_bytes(bytes(other))
    listed = await folder_entries.entries(real, "", 16)
    files = {entry.path: entry for entry in listed if entry.type is FileType.FILE}
    assert listed.complete
    assert files.keys() == {file.path for file in (await scratch_files.scan(real))[0]}
    assert len(files) == 3
    contents = {name: await read(real, name) for name in files}
    assert sorted(contents.values()) == sorted([bytes(path), bytes(second), bytes(place.scratch / "plain")])
    name = next(one for one, content in contents.items() if content == bytes(path))
    assert stands_in(name)
    assert str(check_name(name)) == name
    assert await folder_entries.stat(real, name) == files[name]
    await scratch_files.write(real, name, b"new")
    assert path.read_bytes() == b"new"
    assert len((await scratch_files.scan(real))[0]) == 3  # the same file, and no second one
    assert (await folder_entries.rename(real, name, "moved")).path == "moved"
    assert (place.scratch / "moved").read_bytes() == b"new"
    assert not path.exists()


async def test_a_listing_that_is_not_whole_says_so(place: Place) -> None:
    (place.scratch / "a").touch()
    assert (await folder_entries.entries(real, "", 16)).complete
    deep = place.scratch / "/".join("d" * 16)
    deep.mkdir(parents=True)
    (deep / "deep").touch()
    assert not (await folder_entries.entries(real, "", 16)).complete
    assert not (await scratch_files.scan(real))[1]
    assert (await folder_entries.entries(real, "", 1)).complete  # all that was asked for


@given(st.text(max_size=40))
@example("\x1f.")
@examples(300)
def test_a_safe_name_is_one_and_stays_one(text: str) -> None:
    try:
        name = safe_name(text)
    except FileRefused:
        with pytest.raises(FileRefused):
            check_name(text)
        return
    assert str(check_name(name)) == name
    assert safe_name(name) == name
    assert (name == text) != stands_in(name) or stands_in(text)
