"""The lines that write and unpack archives of volumes in a sandbox, tried on folders that no honest program leaves."""

from __future__ import annotations

import io
import os
import subprocess
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.plugins.data.inside import volume_archive

MANY = 500
FEW_BYTES = 50_000
"""What may be taken by as many entries: a hundred bytes of each."""


def archive_of(folder: Path, to: Path) -> volume_archive.Archive:
    """Write an archive to a file, as `take` does piece by piece; return how it went."""
    archive = volume_archive.export(str(folder))
    with to.open("wb") as file:
        while data := archive.end.read(1 << 20):
            file.write(data)
    archive._thread.join()  # noqa: SLF001 (as `take` does at the end)
    archive.end.close()
    return archive


def names_of(path: Path) -> list[str]:
    with tarfile.open(path) as tar:
        return tar.getnames()


def test_a_path_that_is_too_long_is_left_out_and_the_rest_is_not(tmp_path: Path) -> None:
    top = tmp_path / "volume"
    top.mkdir()
    (top / "z").write_bytes(b"kept")
    folder = os.open(top, os.O_RDONLY)
    for _ in range(25):
        os.mkdir("n" * 200, dir_fd=folder)
        below = os.open("n" * 200, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    archive = archive_of(top, tmp_path / "out.tar")
    assert (archive.error, archive.skipped > 0) == (None, True)
    names = names_of(tmp_path / "out.tar")
    assert "z" in names
    assert max(map(len, names)) < volume_archive.MAX_NAME

    with tarfile.open(tmp_path / "control.tar", "w") as tar, pytest.raises(OSError, match="too long"):
        tar.add(top, "")


@pytest.mark.slow
def test_folders_in_each_other_are_no_recursion(tmp_path: Path) -> None:
    top = tmp_path / "volume"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1100):
        os.mkdir("n", dir_fd=folder)
        below = os.open("n", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    archive = archive_of(top, tmp_path / "out.tar")
    assert (archive.error, archive.skipped, len(names_of(tmp_path / "out.tar"))) == (None, 0, 1100)

    with tarfile.open(tmp_path / "control.tar", "w") as tar, pytest.raises(RecursionError):
        tar.add(top, "")
    subprocess.run(["/bin/rm", "-rf", top], check=True)  # what tidies up after tests recurses, too


def test_names_of_one_file_are_links_to_a_name_that_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read is opened by no name; no second one becomes a link to a first that was left out."""
    top = tmp_path / "volume"
    top.mkdir()
    for name in ("closed", "open"):
        (top / name).write_bytes(b"content")
        os.link(top / name, top / f"{name} too")
    opens = tarfile.bltn_open  # type: ignore[attr-defined]

    def opened(path: str, mode: str) -> io.IOBase:
        if Path(path).name == "closed":
            raise PermissionError(13, "Permission denied")
        found: io.IOBase = opens(path, mode)
        return found

    monkeypatch.setattr(tarfile, "bltn_open", opened)
    archive = archive_of(top, tmp_path / "out.tar")
    with tarfile.open(tmp_path / "control.tar", "w") as tar:
        for name in sorted(path.name for path in top.iterdir()):
            try:
                tar.add(top / name, name)
            except PermissionError:
                continue
    monkeypatch.undo()
    assert (archive.error, archive.skipped) == (None, 1)
    with tarfile.open(tmp_path / "out.tar") as tar:
        links = {one.name: one.linkname for one in tar if one.islnk()}
    assert links == {"open too": "open"}
    with tarfile.open(tmp_path / "control.tar") as tar:
        assert {one.name: one.linkname for one in tar if one.islnk()} == {"closed too": "closed", "open too": "open"}


def taken(work: Callable[[], object]) -> int:
    """Return how many bytes of memory are held at the end of some work, more than before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_entries_are_forgotten_when_they_are_written_and_when_they_are_unpacked(tmp_path: Path) -> None:
    top, into = tmp_path / "volume", tmp_path / "into"
    top.mkdir()
    into.mkdir()
    for number in range(MANY):
        (top / f"{number}").touch()

    def written(add: Callable[[tarfile.TarFile, str, str], object]) -> int:
        with tarfile.open(tmp_path / "all.tar", "w", format=tarfile.PAX_FORMAT) as tar:
            return taken(lambda: [add(tar, f"{top}/{number}", f"{number}") for number in range(MANY)] and None)

    def unpacked(members: Callable[[tarfile.TarFile], object]) -> int:
        with (tmp_path / "all.tar").open("rb") as file, tarfile.open(fileobj=file, mode="r|*") as tar:
            return taken(lambda: members(tar))

    assert written(volume_archive.add) < FEW_BYTES < written(lambda tar, path, name: tar.add(path, name, False))
    forgotten = unpacked(lambda tar: tar.extractall(into, volume_archive.forgotten(tar), filter="tar"))
    assert forgotten < FEW_BYTES < unpacked(lambda tar: tar.getmembers())
    assert len(list(into.iterdir())) == MANY


def test_what_is_unpacked_has_links_folders_and_modes(tmp_path: Path) -> None:
    top, into = tmp_path / "volume", tmp_path / "into"
    (top / "folder").mkdir(parents=True)
    into.mkdir()
    (top / "folder" / "file").write_bytes(b"content")
    os.link(top / "folder" / "file", top / "same")
    (top / "folder").chmod(0o500)
    archive_of(top, tmp_path / "out.tar")
    archive = volume_archive.fill(str(into))
    archive.end.write((tmp_path / "out.tar").read_bytes())
    archive.end.close()
    archive._thread.join()  # noqa: SLF001 (as `finish` does, which syncs the whole machine)
    assert archive.error is None
    assert (into / "same").read_bytes() == b"content"
    assert (into / "same").samefile(into / "folder" / "file")
    assert (into / "folder").stat().st_mode & 0o777 == 0o500
    (into / "folder").chmod(0o700)
    (top / "folder").chmod(0o700)


@pytest.mark.parametrize("there", [False, True], ids=["missing", "control"])
def test_a_link_to_what_is_not_in_the_archive_is_said_by_its_name(tmp_path: Path, *, there: bool) -> None:
    into = tmp_path / "into"
    into.mkdir()
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.LNKTYPE, "weights"
    with tarfile.open(tmp_path / "some.tar", "w") as tar:
        if there:
            tar.addfile(tarfile.TarInfo("weights"))
        tar.addfile(link)
    archive = volume_archive.fill(str(into))
    archive.end.write((tmp_path / "some.tar").read_bytes())
    archive.end.close()
    archive._thread.join()  # noqa: SLF001 (as above)
    assert archive.error is None if there else "'weights' not found" in str(archive.error)
