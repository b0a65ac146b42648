"""Disks of a fixed size: the machine keeps the size, nothing is left of one, and each refusal says why."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import GIB, MIB
from sandbox_kernel.plugins.data import disk_images
from tests.support import ROOT
from tests.support.disks import loops_of, size_of_its_own

pytestmark = pytest.mark.skipif(disk_images.available() is not None, reason=f"no disks: {disk_images.available()}")

OWNER = 300_000_000
MANY = 30


def free_bytes() -> int:
    space = os.statvfs(disk_images.folder())
    return space.f_bavail * space.f_frsize


def run(code: str, *arguments: str, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run lines in a process of their own, with `disk_images` and `EngineError` imported."""
    head = (
        "import os, signal, sys\nfrom sandbox_kernel.core.errors import EngineError\n"
        "from sandbox_kernel.plugins.data import disk_images\n"
    )
    return subprocess.run(
        [*under, sys.executable, "-c", head + code, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )


REFUSED = """
try:
    disk_images.scratch(64 << 20, 300_000_000)
except EngineError as error:
    print(error.code, error)
"""


def test_its_room_is_reserved_and_given_back() -> None:
    size = size_of_its_own(GIB)
    before = free_bytes()
    device = disk_images.scratch(size, OWNER)
    try:
        assert loops_of(size) == [Path(device.path).name]
        assert before - free_bytes() > size // 2  # others write to the same disk meanwhile
    finally:
        os.close(device.fd)
    assert not loops_of(size)
    assert before - free_bytes() < size // 2


def test_nothing_is_left_for_the_system_to_zero_which_would_free_room(tmp_path: Path) -> None:
    """A loop device makes holes of zeros that are written, and what is a hole can be taken by others."""
    dumped = subprocess.run(["/usr/sbin/mkfs.ext4", "-V"], capture_output=True, text=True, check=False).stderr
    if "mke2fs 1.4" in dumped and int(dumped.split("mke2fs 1.")[1].split(".")[0]) < 47:
        pytest.skip("e2fsprogs 1.47 is needed")
    images = {}
    for name, options in {"ours": None, "control": "nodiscard,lazy_itable_init=1"}.items():
        path = tmp_path / name
        fd = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if options is None:
                disk_images.make(fd, 256 * MIB, OWNER)
            else:
                os.truncate(fd, 256 * MIB)
                subprocess.run(["/usr/sbin/mkfs.ext4", "-q", "-F", "-E", options, path], check=True)
        finally:
            os.close(fd)
        images[name] = subprocess.run(["/usr/sbin/dumpe2fs", path], capture_output=True, text=True, check=True).stdout
    groups = {name: [row for row in text.splitlines() if re.match(r"Group \d+:", row)] for name, text in images.items()}
    assert all("ITABLE_ZEROED" in row for row in groups["ours"])
    assert not all("ITABLE_ZEROED" in row for row in groups["control"])


def test_many_at_once_have_a_device_each() -> None:
    size = size_of_its_own()
    with ThreadPoolExecutor(MANY) as threads:
        devices = list(threads.map(lambda _: disk_images.scratch(size, OWNER), range(MANY)))
    try:
        assert len({device.path for device in devices}) == MANY == len(loops_of(size))
    finally:
        for device in devices:
            os.close(device.fd)
    assert not loops_of(size)


def test_a_process_that_dies_before_it_is_mounted_leaves_no_device() -> None:
    size = size_of_its_own()
    code = "device = disk_images.scratch(int(sys.argv[1]), 1)\nprint(device.path, flush=True)\n"
    ended = run(f"{code}os.kill(os.getpid(), signal.SIGKILL)", str(size))
    assert (ended.returncode, ended.stdout[:9]) == (-signal.SIGKILL, "/dev/loop")
    assert not loops_of(size)


def test_one_for_which_the_host_has_no_room_is_refused_at_once() -> None:
    free = free_bytes()
    with pytest.raises(EngineError, match="that are free") as raised:
        disk_images.scratch(1 << 55, OWNER)
    assert (raised.value.code, raised.value.setting) == (EndCode.DISK_NOT_MADE, "scratch_size")
    assert free - free_bytes() < GIB


def test_one_that_is_too_small_is_refused() -> None:
    with pytest.raises(EngineError, match=r"at least 16\.0 MiB"):
        disk_images.scratch(MIB, OWNER)


def test_an_ordinary_user_is_told_who_can_make_one() -> None:
    ended = run(f"os.setuid(65534)\n{REFUSED}")
    assert ended.stdout.startswith(EndCode.DISK_NOT_MADE.code), ended.stderr
    assert "only root can make one: use a broker that root runs" in ended.stdout


def test_a_missing_program_is_named() -> None:
    """In a mount namespace of its own, where it is covered by what nobody can run."""
    cover = f'mount --bind /dev/null $(readlink -f {disk_images.program()}) && exec "$@"'
    ended = run(REFUSED, under=("unshare", "-m", "/bin/sh", "-c", cover, "sh"))
    assert "mkfs.ext4 is not installed (Debian: e2fsprogs)" in ended.stdout, ended.stderr


@pytest.mark.parametrize("covered", [1, 3])
def test_no_file_is_made_in_memory(covered: int) -> None:
    """The first folder of its own that is on a disk is taken; where there is none, that is refused."""
    cover = " && ".join(f"mount -t tmpfs none {path}" for path in sorted(disk_images.FOLDERS[:covered], reverse=True))
    code = f"{REFUSED}else:\n    print(disk_images.folder())"
    ended = run(code, under=("unshare", "-m", "/bin/sh", "-c", f'{cover} && exec "$@"', "sh"))
    if covered == 1:
        assert ended.stdout == f"{disk_images.FOLDERS[1]}\n", ended.stderr
    else:
        assert "are in memory, or not there" in ended.stdout, ended.stderr
