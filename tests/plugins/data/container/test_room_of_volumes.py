"""Cells that try to give the reserved room of their volume away, and files of volumes that have lost it before."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.data import disk_images, volumes
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.disk_images import Device
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support.engines import IMAGE
from tests.support.kernels import eventually

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices and mounts")

ADD, REMOVE, AUTOCLEAR = 0x4C80, 0x4C81, 4
SIZE = 64 * MIB
LOST = 8 * MIB
"""What the attack gives away at least, if nothing prevents it."""

FULL_DISK = """
import ctypes, os

libc = ctypes.CDLL(None, use_errno=True)

def reserve(fd, block, count):
    return libc.fallocate(fd, 0, ctypes.c_long(block << 12), ctypes.c_long(count << 12)) == 0

def file(name):
    return os.open(f"/mnt/volumes/models/{name}", os.O_RDWR | os.O_CREAT)

def write(name, block):
    fd = file(name)
    os.pwrite(fd, b"x" * 4096, block << 12)
    os.fsync(fd)
    os.close(fd)

# A file's first four pieces are in its inode: one that is split needs a block, and of these a full disk has few.
for number in range(400):
    fd = file(f"small{number}")
    all(reserve(fd, 16 * piece, 4) for piece in range(4))
    os.close(fd)
large = []
size = 2048
while size:
    fd = file(f"large{len(large)}")
    all(reserve(fd, 16 * piece, 1) for piece in range(3))
    while size and not reserve(fd, 64, size):
        size //= 2
    os.close(fd)
    large.append(size)
for number in range(400):
    write(f"small{number}", 2)
for number, size in enumerate(large):
    if size > 8:
        write(f"large{number}", 64 + size // 2)
sum(large) > 2048
"""


@pytest.fixture
def owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volumes:
    monkeypatch.setattr(volumes, "default_folder", lambda: str(tmp_path / "volumes"))
    found = volumes.of_user()
    found.create("models", SIZE)
    return found


def held(owned: Volumes) -> int:
    """Return how many bytes of the host's disk a volume has."""
    fd = os.open(f"{owned.folder}/models.ext4", os.O_RDONLY)
    try:
        os.fsync(fd)
        return os.fstat(fd).st_blocks * 512
    finally:
        os.close(fd)


def make_a_hole(owned: Volumes) -> None:
    where = ("--offset", str(SIZE // 2), "--length", str(SIZE // 4))
    subprocess.run(["/usr/bin/fallocate", "--punch-hole", *where, f"{owned.folder}/models.ext4"], check=True)
    assert held(owned) < SIZE - LOST


def attack() -> None:
    with Sandbox(engine="docker", image=IMAGE, volumes={"models": "rw"}) as sandbox:
        assert sandbox.run_code(FULL_DISK).text == "True"


def test_cells_that_split_what_they_reserved_on_a_full_disk_give_no_room_away(owned: Volumes) -> None:
    attack()
    assert held(owned) >= SIZE


@pytest.fixture
def makes_holes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have volumes shown by a device that no sandbox had before: there is no way back for one that makes no holes."""
    number = 900_000 + os.getpid() % 90_000
    control = os.open("/dev/loop-control", os.O_RDWR)
    fcntl.ioctl(control, ADD, number)

    def attach(fd: int, *, writable: bool) -> Device:
        device = os.open(f"/dev/loop{number}", os.O_RDWR)
        disk_images._configure(device, fd, AUTOCLEAR)  # noqa: SLF001 (one step fewer)
        return Device(f"/dev/loop{number}", device)

    monkeypatch.setattr(disk_images, "attach", attach)
    yield
    eventually(lambda: removed(control, number), 10, "the device is free again")
    os.close(control)


def removed(control: int, number: int) -> bool:
    try:
        fcntl.ioctl(control, REMOVE, number)
    except OSError:
        return False
    return True


def test_control_a_device_that_makes_holes_gives_room_away(owned: Volumes, makes_holes: None) -> None:
    attack()
    assert held(owned) < SIZE - LOST


def test_a_volume_with_holes_has_its_room_reserved_before_it_is_written_to(owned: Volumes) -> None:
    make_a_hole(owned)
    os.close(owned.attach("models", writable=False).fd)
    assert held(owned) < SIZE - LOST
    os.close(owned.attach("models", writable=True).fd)
    assert held(owned) >= SIZE


def test_a_volume_with_holes_for_which_there_is_no_room_is_not_opened(
    owned: Volumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_a_hole(owned)
    monkeypatch.setattr(disk_images, "_free", lambda _: MIB)
    with pytest.raises(EngineError, match="the host's disk has no room for it") as raised:
        owned.attach("models", writable=True)
    assert (raised.value.code, raised.value.limit) == (DataCode.VOLUME_NOT_OPENED, "1.0 MiB that are free")
