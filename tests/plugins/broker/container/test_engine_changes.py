"""Which engine "auto" takes changes while a session runs: an operator's broker, or the user's own, comes or goes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.__main__ import main
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.engines import broker_sockets
from sandbox_kernel.plugins.broker.client import listener_trust
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.support.engines import IMAGE
from tests.support.kernels import Kernel

PROGRAM = """
import sys
from sandbox_kernel.engines import broker_sockets
whose, path = sys.argv.pop(1), sys.argv.pop(1)
broker_sockets.OPERATORS = path if whose == "operator" else "/nonexistent/broker.sock"
broker_sockets.own = lambda: path if whose == "own" else "/nonexistent/broker.sock"
from sandbox_kernel.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A place for a broker that is the test's own."""
    (tmp_path / "run").mkdir(mode=0o700)
    return tmp_path / "run/broker.sock"


def start(folder: Path, whose: str, place: Path) -> Kernel:
    """Start a kernel with `engine = auto`."""
    spec = folder / "kernels" / "auto"
    spec.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-c", PROGRAM, whose, str(place), "-f", "{connection_file}", "--image", IMAGE]
    (spec / "kernel.json").write_text(json.dumps({"argv": argv, "display_name": "auto", "language": "python"}))
    specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")])
    manager = KernelManager(kernel_name="auto", kernel_spec_manager=specs)
    manager.start_kernel()
    return Kernel(manager)


def restart(kernel: Kernel) -> None:
    kernel.manager.restart_kernel()
    kernel.client.wait_for_ready(timeout=30)


@pytest.mark.parametrize("whose", [pytest.param("operator", marks=pytest.mark.long), "own"])
@pytest.mark.parametrize("change", ["comes", "goes"])
def test_a_restart_goes_on_with_the_sandbox_and_not_with_another_engine(
    tmp_path: Path, place: Path, change: str, whose: str
) -> None:
    def lent(daemon: Daemon) -> int:
        return len([row for row in asyncio.run(daemon.engine().list()) if row.state == "running"])

    with a_broker() as daemon:
        if change == "goes":
            place.symlink_to(daemon.path)
        with closing(start(tmp_path, whose, place)) as kernel:
            kernel.run("open('kept.txt', 'w').write('yes')")
            assert lent(daemon) == (change == "goes")
            if change == "goes":
                place.unlink()
            else:
                place.symlink_to(daemon.path)
            for _ in range(2):
                restart(kernel)
                assert kernel.run("open('kept.txt').read()").value == "'yes'"
                assert lent(daemon) == (change == "goes")
        another = start(tmp_path, whose, place)  # control: one that begins takes what is there now
        try:
            another.run("1 + 1")
            assert lent(daemon) == (change == "comes")
        finally:
            another.close()


@pytest.fixture
def ended(place: Path) -> Iterator[Path]:
    """The same place, where a broker that a session has started is ended."""
    yield place
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(place))
        process = psutil.Process(listener_trust.peer(sock).pid)
        process.terminate()
        process.wait(20)


async def test_a_session_has_a_sandbox_again_when_the_user_s_own_broker_has_ended(
    ended: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such a broker ends when it was unused for half an hour, and a notebook is open for longer."""
    monkeypatch.setattr(broker_sockets, "OPERATORS", "/nonexistent/broker.sock")
    monkeypatch.setattr(broker_sockets, "own", lambda: str(ended))

    async def there(*command: str) -> str:
        """Return what a command says, which asks the engine itself: it sees also what is there without a broker."""
        assert await asyncio.to_thread(main, list(command)) == 0
        return capsys.readouterr().out

    async with AsyncSandbox(image=IMAGE) as direct:  # control: nobody listens, and nobody is started for it
        assert (await direct.run_code("1 + 1")).text == "2"
        assert not ended.is_symlink()  # noqa: ASYNC240 (of a test)
        with a_broker() as daemon:
            ended.symlink_to(daemon.path)  # noqa: ASYNC240 (as above)
            async with AsyncSandbox(image=IMAGE) as sandbox:
                assert (await sandbox.run_code("kept = 1; kept")).text == "1"
                [row] = await daemon.engine().list()
                assert (await daemon.engine().status())["yours"] == 1
                shown = {each["container"] for each in json.loads(await there("ps", "--json"))}
                assert row.container[:12] in shown
                assert len(shown) >= 2
                daemon.end()
                ended.unlink()  # noqa: ASYNC240 (as above)
                await there("reap")
                assert (await sandbox.run_code("kept")).text == "1"  # what is lent goes on
                await asyncio.to_thread(subprocess.run, ["docker", "rm", "-f", row.container], check=True)
                with contextlib.suppress(SandboxError):
                    await sandbox.run_code("1")  # says that it has ended
                assert (await sandbox.run_code("1 + 1")).text == "2"
                assert (await BrokerEngine(f"broker://{ended}").status())["yours"] == 1


@pytest.mark.long
def test_a_machine_is_set_up_for_a_broker_of_the_user_s_own_that_nobody_has_started_yet(
    ended: Path, tmp_path: Path
) -> None:
    """As its first session would have it; what the broker takes is set up before."""

    def said(*command: str) -> str:
        words = [sys.executable, "-c", PROGRAM, "own", str(ended), *command, "--engine", "broker"]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    said("ps")  # starts nothing
    said("reap")
    assert not ended.exists()
    printed = said("setup", "--prefix", str(tmp_path / "prefix"))
    assert re.search(r"^engine +docker ", printed, re.MULTILINE)
    assert re.search(r"^image +sandbox-kernel:data$", printed, re.MULTILINE)
    assert "everything a session needs is there" in printed
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.connect(str(ended))
        psutil.Process(listener_trust.peer(sock).pid).terminate()
        sock.settimeout(20)
        assert sock.recv(1) == b""  # it is gone, and the next command has another
    assert json.loads(said("doctor", "--json", "--image", IMAGE))["ok"] is True
