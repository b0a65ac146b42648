"""A dataset in a file system that a user serves himself, and that tells root nothing (FUSE)."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Attached
from sandbox_kernel.engines.attachment import Attachment
from sandbox_kernel.plugins.data.attached import open_dataset
from sandbox_kernel.plugins.data.codes import DataCode
from tests.support.descriptors import open_files

NOBODY = 65534
DETACH = 2
INIT, GETATTR, SILENT = 26, 3, (2, 36, 42)
"""Of linux/fuse.h; what is silent has no answer."""
NOT_THERE = -38

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user"),
    pytest.mark.skipif(not Path("/dev/fuse").exists(), reason="this machine has no FUSE"),
]


def serve(device: int) -> None:
    """Answer for one folder, which others may read, until it is unmounted."""
    attributes = struct.pack("<6Q10I", 1, *[0] * 8, stat.S_IFDIR | 0o755, 2, NOBODY, NOBODY, 0, 4096, 0)
    bodies = {
        INIT: struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 0, 0, 4096, 1, 0, 0, *[0] * 8),
        GETATTR: struct.pack("<QII", 0, 0, 0) + attributes,
    }
    while True:
        try:
            asked = os.read(device, 1 << 17)
        except OSError:
            return
        _, what, number = struct.unpack_from("<IIQ", asked)
        body = bodies.get(what, b"")
        if what not in SILENT:
            os.write(device, struct.pack("<IiQ", 16 + len(body), 0 if body else NOT_THERE, number) + body)


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    libc = ctypes.CDLL(None, use_errno=True)
    closed = [one for one in (tmp_path, *tmp_path.parents) if not one.stat().st_mode & 0o001]
    modes = [one.stat().st_mode for one in closed]
    for one, mode in zip(closed, modes, strict=True):
        one.chmod(mode | 0o001)
    place, device = tmp_path / "data", os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
    place.mkdir()
    thread = threading.Thread(target=serve, args=(device,))

    def mount(options: str) -> Path:
        words = f"fd={device},rootmode=40000,user_id={NOBODY},group_id={NOBODY}{options}".encode()
        assert libc.mount(b"a user's own", bytes(place), b"fuse", 6, words) == 0, os.strerror(ctypes.get_errno())
        thread.start()
        return place

    yield mount
    libc.umount2(bytes(place), DETACH)
    thread.join(10)
    os.close(device)
    for one, mode in zip(closed, modes, strict=True):
        one.chmod(mode)


def test_what_a_user_alone_may_look_at_is_refused_and_no_descriptor_of_it_is_left(
    mounted: Callable[[str], Path],
) -> None:
    one = Attached(kind="dataset", name="data", source=str(mounted("")))
    before = open_files()
    for _ in range(3):
        with pytest.raises(ConfigurationError, match="Permission denied") as raised:
            open_dataset(one, NOBODY)
        assert raised.value.code is DataCode.DATASET_NOT_OPENED
    assert not open_files() - before


def test_control_what_root_may_look_at_too_is_opened(mounted: Callable[[str], Path]) -> None:
    held = Attachment()
    one = Attached(kind="dataset", name="data", source=str(mounted(",allow_other")))
    held.keep(one.path, open_dataset(one, NOBODY))
    assert list(held.identities()) == [one.path]
    held.close()
