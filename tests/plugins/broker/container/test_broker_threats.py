"""What befalls a broker: a full disk, an image that is built again, a caller that is gone between two owners."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.client.packets import digest
from tests.plugins.broker.brokers import a_broker, gone
from tests.support.engines import IMAGE
from tests.support.kernels import eventually

REPOSITORY = "sandbox-kernel-test"


# --- an image that is built again -------------------------------------------------------------------------------------


@pytest.fixture
async def tagged() -> AsyncIterator[str]:
    """A name for an image that is the test's own."""
    name = f"{REPOSITORY}:{os.getpid()}"
    await stands_for(name, IMAGE)
    yield name
    await DockerEngine().request("DELETE", f"/images/{name}?noprune=1")


async def stands_for(name: str, image: str) -> None:
    repository, _, tag = name.partition(":")
    await DockerEngine().request("POST", f"/images/{image}/tag?repo={repository}&tag={tag}")


async def test_what_was_made_of_the_image_before_is_not_handed_out(tagged: str) -> None:
    """The same name, another image: what waits is ended, and who asks has one of today's."""
    has_pandas = "import importlib.util; print(importlib.util.find_spec('pandas') is not None)"
    with a_broker("--pool", "1") as daemon:
        for image, found in ((IMAGE, "False\n"), ("sandbox-kernel:data", "True\n")):
            await stands_for(tagged, image)
            async with AsyncSandbox(engine=daemon.address, image=tagged) as one:
                assert "".join((await one.run_code(has_pandas)).logs.stdout) == found
                mine = {row.container for row in await daemon.engine().list() if row.state == "running"}
            if image == IMAGE:
                [waiting] = await daemon.waiting()
            else:
                assert waiting not in mine
                await gone(waiting)
                [waiting] = await daemon.waiting()  # the next one that waits is of the new image, and is claimed
                async with AsyncSandbox(engine=daemon.address, image=tagged) as two:
                    assert "".join((await two.run_code(has_pandas)).logs.stdout) == found
                    mine = {row.container for row in await daemon.engine().list() if row.state == "running"}
                    assert mine == {waiting}


# --- a full disk ------------------------------------------------------------------------------------------------------


def test_a_log_on_a_full_disk_ends_nothing() -> None:
    full = Path("/dev/full")
    with full.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        file.write(b"x")  # the control

    async def used(path: str) -> None:
        async with AsyncSandbox(engine=f"broker://{path}", image=IMAGE) as one:
            assert (await one.run_code("1 + 1")).text == "2"

    with tempfile.TemporaryDirectory(prefix="broker-") as folder, full.open("wb") as log:
        path = f"{folder}/broker.sock"
        command = [sys.executable, "-m", "sandbox_kernel", "broker", "--socket", path, "--engine", "docker", "--pool=0"]
        with subprocess.Popen(command, stderr=log, stdout=log) as process:
            try:
                eventually(lambda: Path(path).exists() or process.poll() is not None, 30, "the broker listens")
                asyncio.run(used(path))
            finally:
                process.terminate()
                code = process.wait(20)
        assert code == 0


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="only root can mount a full disk")
def test_a_broker_without_room_for_its_socket_says_so(tmp_path: Path) -> None:
    """On a disk of its own, which has an entry left, or none."""
    command = [sys.executable, "-m", "sandbox_kernel", "broker", "--socket", f"{tmp_path}/disk/broker.sock"]
    mount = 'mount -t tmpfs -o "nr_inodes=$1,mode=0700" none "$2" && shift 2 && exec timeout 3 "$@"'
    (tmp_path / "disk").mkdir()
    for entries, code, said in (("1", 2, "No space left on device"), ("9", 124, "listening")):
        words_of_it = ["unshare", "--mount", "/bin/sh", "-c", mount, "sh", entries, f"{tmp_path}/disk", *command]
        done = subprocess.run(
            [*words_of_it, "--engine", "docker", "--pool", "0"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert said in " ".join(done.stderr.split())  # a terminal's lines
        assert done.returncode == code, done.stderr


# --- between two owners -----------------------------------------------------------------------------------------------


HOLDS = """
import os, sys
if sys.argv[1] == "adopted":
    os.write(0, b'{"op": "adopt", "n": 2}')
    os.read(0, 9999)
print("held", flush=True)
os.read(0, 1)
"""


@pytest.mark.parametrize("step", ["left", "adopted"])
async def test_a_process_that_dies_between_two_owners_leaves_nothing(step: str) -> None:
    """Somebody has the pipe still; the sandbox ends all the same with its connection, and counts no more."""
    spec = new_spec(Settings(image=IMAGE))
    asked = {"op": "start", "n": 1, "protocol": packets.VERSION, "agent": digest(spec), "spec": packets.asked(spec)}
    with a_broker() as daemon, contextlib.ExitStack() as stack:
        sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        sock.settimeout(60)
        sock.connect(daemon.path)
        sock.send(json.dumps(asked).encode())
        data, fds, _, _ = await asyncio.to_thread(socket.recv_fds, sock, packets.MAX_BYTES, 1)
        stack.callback(os.close, fds[0])
        said = json.loads(data)
        sock.setblocking(True)
        command = [sys.executable, "-c", HOLDS, step]
        holder = await asyncio.create_subprocess_exec(*command, stdin=sock.fileno(), stdout=subprocess.PIPE)
        assert holder.stdout is not None
        assert await holder.stdout.readline() == b"held\n"
        sock.close()
        await daemon.until(all=1)
        holder.kill()
        await holder.wait()
        await gone(said["id"])
        await daemon.until(all=0)
