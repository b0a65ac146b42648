"""A volume outlives the kill of everything that has it: the caller's process, and Docker with all that it started."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support.engines import Bubblewrap, Docker
from tests.support.kernels import eventually
from tests.support.own_engine import IMAGE, OwnEngine, an_own_engine
from tests.support.processes import python

DOCKER, BUBBLEWRAP = Docker("runc", "docker"), Bubblewrap("bubblewrap")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices and mounts")

WRITER = """
import sys
from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.data import volumes
volumes.default_folder = lambda: sys.argv[1]
sandbox = Sandbox(engine=sys.argv[2], image=sys.argv[3], volumes={"models": "rw"})
sandbox.run_code('''
import os
fd = os.open("/mnt/volumes/models/synced", os.O_CREAT | os.O_WRONLY)
os.write(fd, b"kept")
os.fsync(fd)
''')
print("synced", flush=True)
sandbox.run_code("while True: open('/mnt/volumes/models/torn', 'ab').write(bytes(4096)); os.sync()")
"""


@pytest.fixture
def own_engine() -> Iterator[OwnEngine]:
    with an_own_engine() as engine:
        yield engine


def devices_of(volumes: Volumes) -> list[str]:
    """Return which files below a folder loop devices show."""
    found = []
    for one in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it ends just now
            found.append(one.read_text(encoding="utf-8").strip())
    return [name for name in found if name.startswith(volumes.folder)]


def kept_in(volumes: Volumes) -> str:
    """Return the text that was synced, from the volume itself, once nobody holds it: its sandbox ends by itself."""
    eventually(lambda: _is_free(volumes), 30, "its sandbox has let go of it")
    device = volumes.attach("models", writable=False)
    try:
        words = ["debugfs", "-R", "cat /synced", device.path]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout
    finally:
        os.close(device.fd)


def _is_free(volumes: Volumes) -> bool:
    try:
        os.close(volumes.attach("models", writable=False).fd)
    except EngineError as error:
        return error.code is not DataCode.VOLUME_IN_USE
    return True


@pytest.mark.parametrize("engine", [DOCKER, BUBBLEWRAP], ids=lambda one: one.name)
def test_what_was_synced_is_there_after_its_process_was_killed_in_mid_write(
    engine: Docker | Bubblewrap, tmp_path: Path
) -> None:
    if why := engine.absent():
        pytest.skip(why)
    volumes = Volumes(str(tmp_path / "volumes"))
    volumes.create("models", 64 * MIB)
    with python(WRITER, volumes.folder, engine.name, engine.spec().image) as (_, line):
        assert line == "synced"
        with pytest.raises(EngineError) as caught:  # the control: it is written to
            volumes.attach("models", writable=False)
        assert caught.value.code is DataCode.VOLUME_IN_USE
    eventually(lambda: not devices_of(volumes), 30, "the machine has let go of it")
    assert kept_in(volumes) == "kept"
    volumes.remove("models")
    assert [one.name for one in Path(volumes.folder).iterdir()] == ["owner"]


@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.skipif(shutil.which("dockerd") is None, reason="needs dockerd for an engine of its own")
def test_what_was_synced_is_there_after_all_were_killed_in_mid_write(own_engine: OwnEngine, tmp_path: Path) -> None:
    volumes = Volumes(str(tmp_path / "volumes"))
    volumes.create("models", 64 * MIB)
    with python(WRITER, volumes.folder, own_engine.url, IMAGE) as (writer, line):
        assert line == "synced"
        assert devices_of(volumes) == [f"{volumes.folder}/models.ext4"]
        assert own_engine.process is not None
        own_engine.process.send_signal(signal.SIGSTOP)  # it is to see no end of the others
        writer.kill()
        own_engine.crash()

    # The machine still has it mounted where Docker left it, so nobody else gets it.
    with pytest.raises(EngineError) as caught:
        volumes.attach("models", writable=False)
    assert caught.value.code is DataCode.VOLUME_IN_USE
    own_engine.start()

    eventually(lambda: not devices_of(volumes), 60, "Docker has let go of what it had mounted")
    assert kept_in(volumes) == "kept"
    eventually(lambda: own_engine.docker("ps", "-aq").stdout == "", 60, "no container is left")
    volumes.remove("models")
    assert [one.name for one in Path(volumes.folder).iterdir()] == ["owner"]
