"""Memory of sockets, in a made folder of a cgroup: the test writes what a kernel would."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.engines import socket_memory
from sandbox_kernel.engines.limit_watch import CgroupPlace


def of_version_1(folder: Path, sockets: str) -> CgroupPlace:
    (folder / "memory.limit_in_bytes").write_text(f"{64 << 20}\n")
    (folder / socket_memory.SOCKETS).write_text(sockets)
    return CgroupPlace(str(folder), 1)


def test_sockets_hold_a_part_of_memory_besides_where_the_system_counts_them_apart(tmp_path: Path) -> None:
    place = of_version_1(tmp_path, f"{1 << 62}\n")
    socket_memory.limit_sockets(place)
    assert (tmp_path / socket_memory.SOCKETS).read_text(encoding="ascii") == f"{4 << 20}\n"
    line = socket_memory.sockets_line(place)
    assert (line.ok, line.found) == (True, "at most 4.0 MiB besides")
    assert socket_memory.sockets_line(CgroupPlace(str(tmp_path), 2)).found == "a part of memory"


@pytest.mark.parametrize("sockets", [f"{1 << 62}\n", "of no number\n"])
def test_sockets_without_a_limit_are_a_difference_where_this_process_could_set_one(
    tmp_path: Path, sockets: str
) -> None:
    assert not socket_memory.sockets_line(of_version_1(tmp_path, sockets)).ok


def test_sockets_without_a_limit_are_said_where_nobody_can_set_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = of_version_1(tmp_path, f"{1 << 62}\n")
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert (socket_memory.sockets_line(place).ok, socket_memory.sockets_line(place).found) == (
        True,
        socket_memory.UNLIMITED,
    )
    (tmp_path / socket_memory.SOCKETS).unlink()  # and a kernel that has no such limit
    socket_memory.limit_sockets(place)
    assert socket_memory.sockets_line(place).found == socket_memory.UNLIMITED
    assert socket_memory.sockets_line(None).ok
