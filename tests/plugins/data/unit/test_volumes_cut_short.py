"""A process that is killed at each step of its work on a volume: the next one has all volumes, and all the room."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.data import disk_images
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support import ROOT

pytestmark = pytest.mark.skipif(disk_images.available() is not None, reason=f"no disks: {disk_images.available()}")

SIZE = 16 * MIB
WORK = """
import os, signal, sys
from sandbox_kernel.plugins.data import disk_images, volumes

folder, what, last = sys.argv[1], sys.argv[2], int(sys.argv[3])
step = 0

def hear(event, _):
    global step
    if event.startswith(("open", "os.", "fcntl.", "subprocess.", "ctypes.dlsym")):
        step += 1
        if step == last:
            os.kill(os.getpid(), signal.SIGKILL)

volumes.DEFAULT_BYTES = 16 << 20
mine = volumes.Volumes(folder)
sys.addaudithook(hear)
if what == "attach":
    mine.attach("models", writable=True)
else:
    getattr(mine, what)("models", *([16 << 20] if what == "create" else []))
"""


def killed_at(step: int, what: str, folder: Path) -> bool:
    """Return whether a process was killed in its work; False if it had fewer steps."""
    words = [sys.executable, "-c", WORK, str(folder), what, str(step)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize(("what", "least"), [("create", 20), ("attach", 10), ("remove", 5)])
def test_the_next_one_has_the_volume_or_makes_it_and_nothing_else_is_left(
    what: str, least: int, tmp_path: Path
) -> None:
    step, left, there = 1, 0, what != "create"
    while True:
        folder = tmp_path / str(step)
        mine = Volumes(str(folder))
        if there:
            mine.create("models", SIZE)
        if not killed_at(step, what, folder):
            break
        left += (folder / ".new").exists()
        names = [one.name for one in mine.list()]
        assert names in ([], ["models"])
        with pytest.raises(EngineError) as raised:
            mine.remove("other")  # whatever is asked for, what was cut short is removed
        assert raised.value.code is DataCode.VOLUME_NOT_HERE
        assert not (folder / ".new").exists()
        if not names:
            mine.create("models", SIZE)
        device = mine.attach("models", writable=True)
        os.close(device.fd)
        mine.remove("models")
        step += 1
    assert step > least
    assert (left > 0) == (not there)  # there was something to remove
