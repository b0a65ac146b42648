"""What has come of a download that was cut off: gone on with if it is a plain file of this user, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import FileRefused
from sandbox_kernel.files.host_paths import open_folder

PART = ".sandbox-1.part"


def test_a_part_is_gone_on_with(tmp_path: Path) -> None:
    with open_folder(tmp_path) as folder:
        with folder.create("a", PART) as file:
            file.write(b"one, ")
            file.keep_part()
        assert [path.name for path in tmp_path.iterdir()] == [PART]
        with folder.create("a", PART) as file:
            assert (file.size, file.read(3), file.read(3)) == (5, b"one", b", ")
            file.write(b"two")
            file.commit()
        assert [path.name for path in tmp_path.iterdir()] == ["a"]
        assert (tmp_path / "a").read_bytes() == b"one, two"


def test_a_part_is_begun_again_or_removed(tmp_path: Path) -> None:
    (tmp_path / PART).write_bytes(b"far too much")
    with open_folder(tmp_path) as folder:
        with folder.create("a", PART) as file:
            file.start_again()
            file.write(b"new")
            file.commit()
        assert (tmp_path / "a").read_bytes() == b"new"
        with folder.create("b", PART) as file:
            file.write(b"not committed")
        assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("kind", ["link", "hard link", "FIFO", "folder"])
def test_what_is_no_plain_file_is_no_part(tmp_path: Path, kind: str) -> None:
    outside, place = tmp_path / "outside", tmp_path / "place"
    place.mkdir()
    outside.write_bytes(b"secret")
    planted = place / PART
    {
        "link": lambda: planted.symlink_to(outside),
        "hard link": lambda: planted.hardlink_to(outside),
        "FIFO": lambda: os.mkfifo(planted),
        "folder": planted.mkdir,
    }[kind]()
    with open_folder(place) as folder, pytest.raises((FileRefused, OSError)):
        folder.create("a", PART)
    assert outside.read_bytes() == b"secret"
    assert [path.name for path in place.iterdir()] == [PART]
