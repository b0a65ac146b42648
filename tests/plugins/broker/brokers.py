"""Brokers for tests: the real daemon in a process of its own, on a real engine, at a socket of the test's.

Run as a program it is such a broker. With `anything`, callers may name a program of their own to run inside: the
contract of engines is about programs, and a broker's callers get our agent and nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import atexit
import contextlib
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import IO, Any

import psutil

from sandbox_kernel.config.sources import LIMITS_OF_A_SANDBOX
from sandbox_kernel.core.model import Limits, SandboxSpec, Settings
from sandbox_kernel.engines import broker_sockets
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.select import make_own_engine
from sandbox_kernel.plugins.broker import create_request
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy, load
from sandbox_kernel.plugins.broker.client import listener_trust, packets
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from sandbox_kernel.plugins.broker.client.packets import digest
from sandbox_kernel.plugins.broker.create_request import CreateRequest
from sandbox_kernel.plugins.broker.daemon import Broker, bound, on_signals
from sandbox_kernel.plugins.broker.pool import Pool
from tests.support import ROOT
from tests.support.patience import until

UP = b"up\n"


class RawBrokerEngine(BrokerEngine):
    """Asks a broker that runs with `anything` for a program of the test's."""

    def asked(self, spec: SandboxSpec) -> dict[str, Any]:
        raw = {name: getattr(spec, name) for name in ("session_id", "uid", "command")}
        more = {"program": spec.program.decode(), "environment": dict(spec.environment)}
        return {**packets.asked(spec), "raw": {**raw, **more}}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawOrder(CreateRequest):
    """An order for a program."""

    raw: Mapping[str, Any]

    @property
    def is_plain(self) -> bool:
        return False

    def digest(self) -> str:
        return digest(self.spec())

    def spec(self, *, warm: bool = False, preload: tuple[str, ...] = ()) -> SandboxSpec:
        return SandboxSpec(
            session_id=self.raw["session_id"],
            image=self.image,
            runtime=self.runtime,
            limits=self.limits,
            command=tuple(self.raw["command"]),
            program=self.raw["program"].encode(),
            limits_kept=self.limits_kept,
            uid=self.raw["uid"],
            environment=self.raw["environment"],
        )


def read_anything(said: object) -> CreateRequest:
    assert isinstance(said, dict)
    given = {name: value for name, value in said.items() if name != "raw"}
    found = create_request.read(given)
    if "raw" not in said:
        return found
    fields = {name: getattr(found, name) for name in CreateRequest.__dataclass_fields__}
    return RawOrder(**fields, raw=said["raw"])


def told_to_end(process: subprocess.Popen[Any], said: IO[Any] | None) -> None:
    """End a broker's process by SIGTERM, or by force after 20 s, and close what it was heard by."""
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    assert said is not None
    said.close()


class Daemon:
    """A broker in a process of its own."""

    def __init__(self, *options: str, environment: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="broker-"))
        self.path = str(self.folder / "broker.sock")
        command = [sys.executable, "-m", "tests.plugins.broker.brokers", self.path, *options]
        self.log = (self.folder / "log").open("wb")
        environment = {**os.environ, **(environment or {})}
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=self.log, env=environment)
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], 60)
        said = self.process.stdout.readline() if ready else b""
        if said != UP:
            self.end()
            raise AssertionError(f"no broker came up: {said!r} {self.said()}")

    @property
    def address(self) -> str:
        return f"broker://{self.path}"

    def said(self) -> str:
        path = Path(self.log.name)
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def engine(self) -> BrokerEngine:
        return BrokerEngine(self.address)

    async def until(self, **wanted: int) -> None:
        """Wait until the broker says so of itself."""

        async def says() -> bool:
            return wanted.items() <= (await self.engine().status()).items()

        await until(says, 60)

    async def waiting(self) -> list[str]:
        """Return the container that waits, once there is one; somebody has to have asked for one."""
        await self.until(ready=1)
        return [row.container for row in await self.engine().list() if row.state == "ready"]

    def kill(self) -> None:
        """End it as nobody can ask it to."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        told_to_end(self.process, self.process.stdout)
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)


async def gone(*containers: str) -> None:
    """Wait until Docker, whose list has the beginnings of numbers, has none of these containers."""

    async def left() -> set[str]:
        return {row.container for row in await DockerEngine().list()} & {one[:12] for one in containers}

    await until(left, 20, holds=False)


@contextlib.contextmanager
def a_broker(*options: str, environment: Mapping[str, str] | None = None) -> Iterator[Daemon]:
    daemon = Daemon(*options, environment=environment)
    try:
        yield daemon
    finally:
        daemon.end()


@cache
def shared(*options: str) -> Daemon:
    """Return the one broker with these options that all tests of this process share."""
    daemon = Daemon(*options)
    atexit.register(daemon.end)
    return daemon


async def serve(options: argparse.Namespace) -> None:
    sock, _lock = bound(options.path, for_all=options.for_all)
    engine = make_own_engine(Settings(engine=options.engine))
    ceiling = Ceiling(own=True, limits="best-effort", sessions=options.sessions, detached=options.detached)
    policy = load(options.file) if options.file else Policy(everybody=ceiling, only=os.geteuid())
    broker = Broker(
        engine,
        policy,
        pool=Pool(
            engine,
            size=options.pool,
            preload=tuple(options.preload),
            busy=lambda: False,
            rest_seconds=0.1,
            answer_seconds=20.0,  # a busy machine is no reason for another one
            report=lambda line: print(line, file=sys.stderr, flush=True),
        ),
        state=options.state,
        read=read_anything if options.anything else create_request.read,
        say=lambda line: print(line, file=sys.stderr, flush=True),
    )
    on_signals(broker, None)
    broker.listen(sock)
    os.write(1, UP)
    await broker.run()


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("path")
    parser.add_argument("--engine", default="docker")
    parser.add_argument("--anything", action="store_true")
    parser.add_argument("--for-all", action="store_true")
    parser.add_argument("--pool", type=int, default=0)
    parser.add_argument("--preload", nargs="*", default=())
    parser.add_argument("--sessions", type=int, default=64)
    parser.add_argument("--detached", type=int, default=16)
    parser.add_argument("--file", type=Path)
    parser.add_argument("--state", default="/nonexistent", help="a folder for volumes")
    asyncio.run(serve(parser.parse_args()))


def end_unused() -> None:
    """End this user's own broker if nobody uses it: `engine = auto` would take it, and tests are of both ways."""
    with contextlib.suppress(OSError, ValueError), socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.settimeout(5)
        sock.connect(broker_sockets.own())
        sock.send(packets.packed({"op": "status", "n": 1}))
        said = packets.unpacked(sock.recv(packets.MAX_BYTES))
        if said.get("all") == 0:
            process = psutil.Process(listener_trust.peer(sock).pid)
            process.terminate()
            process.wait(20)


def a_request(**fields: Any) -> dict[str, Any]:
    """Return a proper request for a sandbox, with `fields` in place of its own."""
    limits = asdict(Limits())
    return {
        "image": "sandbox-kernel:base",
        "runtime": None,
        "limits": {name: limits[name] for name in LIMITS_OF_A_SANDBOX},
        "limits_kept": "enforced",
        "charts": False,
        "home": False,
        "zone": None,
        "kernel": "python3",
        "watch": False,
        "variables": [],
        "attached": [],
        "inside": None,
        **fields,
    }


@contextlib.contextmanager
def answering(path: str, answer: Callable[[bytes], bytes | None]) -> Iterator[None]:
    """Listen as a broker does. An empty answer is none until the caller is gone; for None, its connection ends."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(path)
    listener.listen()

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller:
                if not (asked := caller.recv(packets.MAX_BYTES)):  # it is not believed
                    continue
                said = answer(asked)
                if said == b"":
                    caller.recv(1)
                elif said is not None:
                    caller.send(said)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join()


if __name__ == "__main__":
    main()
