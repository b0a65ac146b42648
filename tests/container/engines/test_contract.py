"""What every engine and every runtime must do. The declared differences stand in conftest.py."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.errors import ConfigurationError, EngineError, EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import MIB, SandboxSpec
from sandbox_kernel.engines import guard
from sandbox_kernel.engines.docker import container as docker_container
from sandbox_kernel.engines.docker import engine as docker
from sandbox_kernel.engines.docker.arguments import LABEL, container_arguments
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.owner import Owner, host_name
from tests.support.engines import IMAGE, containers_of, receive_all, receive_line

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[..., Awaitable[DockerContainer]]


async def gone(engine: DockerEngine, session_id: str, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while await containers_of(engine, session_id):  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


# --- the pipe -------------------------------------------------------------------------------------------------------


async def test_bytes_that_go_in_come_out(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    container = await start(make_spec(runtime=runtime))
    await container.send(b"hello\n")
    assert await receive_line(container) == b"hello\n"


async def test_50_mb_come_through_unchanged(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    code = """
import hashlib, os, sys
data = os.urandom(1 << 20) * 50
sys.stderr.write(hashlib.sha256(data).hexdigest())
sys.stdout.buffer.write(data)
sys.exit(1)
"""
    container = await start(make_spec(code, runtime=runtime))
    data = await receive_all(container)
    assert len(data) == 50 * MIB
    assert (await container.wait()).detail == hashlib.sha256(data).hexdigest()


async def test_50_mb_go_in(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    container = await start(make_spec("import sys; print(len(sys.stdin.buffer.read(50 << 20)))", runtime=runtime))
    await container.send(bytes(50 * MIB))
    assert await receive_line(container) == b"%d\n" % (50 * MIB)


async def test_the_loop_runs_on_while_a_send_waits(start: Start, make_spec: MakeSpec) -> None:
    """A container that reads nothing stops the send, and only that; the send ends with an error when it is killed."""
    container = await start(make_spec("import time; print('up', flush=True); time.sleep(60)"))
    await receive_line(container)
    sending = asyncio.create_task(container.send(bytes(50 * MIB)))
    await asyncio.wait([sending], timeout=0.2)
    assert not sending.done()
    await container.kill()
    with pytest.raises(EngineError, match="pipe"):
        await sending


async def test_a_cancelled_receive_loses_no_byte(start: Start, make_spec: MakeSpec) -> None:
    container = await start(make_spec())
    expected = b"".join(b"%06d\n" % number for number in range(20_000))
    sending = asyncio.create_task(container.send(expected))
    output = bytearray()
    while len(output) < len(expected):
        receiving = asyncio.create_task(container.receive())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        receiving.cancel()
        try:
            output += await receiving
        except asyncio.CancelledError:
            output += await asyncio.wait_for(container.receive(), 5)
    await sending
    assert bytes(output) == expected


# --- the end --------------------------------------------------------------------------------------------------------


async def test_it_ends_with_its_pipe(engine: DockerEngine, start: Start, make_spec: MakeSpec, runtime: str) -> None:
    spec = make_spec(runtime=runtime)
    container = await start(spec)
    os.close(container.detach().fd)
    await gone(engine, spec.session_id, 10)


async def test_it_ends_although_its_owner_was_gone_before_it_started(
    engine: DockerEngine, make_spec: MakeSpec, runtime: str
) -> None:
    spec = make_spec(runtime=runtime)
    created = await engine.request("POST", "/containers/create", container_arguments(spec))
    try:
        (await engine.attach(created["Id"])).close()
        await engine.request("POST", f"/containers/{created['Id']}/start")
        await gone(engine, spec.session_id, 10)
    finally:
        await engine.remove(created["Id"])


async def test_an_exit_code_and_the_last_words(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    container = await start(
        make_spec("import sys; sys.stderr.write('x' * 20000 + 'last words'); sys.exit(3)", runtime=runtime)
    )
    waiting = asyncio.create_task(container.wait())
    assert await receive_all(container) == b""
    reason = await waiting
    assert (reason.kind, reason.exit_code) == ("exited", 3)
    assert reason.detail.endswith("xlast words")
    assert len(reason.detail) == 8192


@pytest.mark.alone
async def test_out_of_memory_is_named(start: Start, make_spec: MakeSpec, runtime: str) -> None:
    container = await start(make_spec("x = bytearray(b'x') * (400 << 20)", runtime=runtime))
    assert await receive_all(container) == b""
    assert (await container.wait()).kind == "out_of_memory"


async def test_killed_from_outside_is_not_out_of_memory(
    engine: DockerEngine, start: Start, make_spec: MakeSpec, runtime: str
) -> None:
    container = await start(make_spec(runtime=runtime))
    await engine.request("POST", f"/containers/{container.id}/kill?signal=KILL")
    reason = await container.wait()
    assert (reason.kind, reason.exit_code) == ("killed", 137)
    assert await container.receive() == b""


async def test_kill_removes_it_and_may_be_repeated(
    engine: DockerEngine, start: Start, make_spec: MakeSpec, runtime: str
) -> None:
    spec = make_spec("import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)", runtime=runtime)
    container = await start(spec)
    receiving = asyncio.create_task(container.receive())
    await container.kill()
    assert await containers_of(engine, spec.session_id) == []
    assert await receiving == b""
    await container.kill()
    assert (await container.wait()).kind == "killed"
    with pytest.raises(EngineError):
        await container.send(b"x")
    with pytest.raises(EngineError, match="gone"):
        await container.attest({}, spec)


async def test_kill_after_it_ended_by_itself(start: Start, make_spec: MakeSpec) -> None:
    container = await start(make_spec("pass"))
    assert (await container.wait()).kind == "exited"
    await container.kill()
    assert (await container.wait()).kind == "exited"


async def test_sigkill_of_the_owner_ends_it_within_a_second(
    engine: DockerEngine, make_spec: MakeSpec, runtime: str
) -> None:
    spec = make_spec(runtime=runtime)
    owner = """
import asyncio, sys
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.core.model import Limits, SandboxSpec
async def main():
    session_id, image, runtime, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(), command=tuple(command), uid=12345,
                       runtime=runtime or None)
    container = await DockerEngine().start(spec)
    await container.send(b"up\\n")
    print((await container.receive()).decode(), flush=True)
    await container.wait()
asyncio.run(main())
"""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-c",
        owner,
        spec.session_id,
        IMAGE,
        spec.runtime or "",
        *spec.command,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"up\n"
    process.send_signal(signal.SIGKILL)
    await process.wait()
    started = time.monotonic()
    await gone(engine, spec.session_id, 10)  # the machine that runs the tests may be busy
    print(f"gone after {time.monotonic() - started:.2f} s")


OWNER = """
import asyncio, os, sys
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.core.model import Limits, SandboxSpec
async def main():
    session_id, image, runtime, closing, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(), command=tuple(command), uid=12345,
                       runtime=runtime or None)
    container = await DockerEngine().start(spec)
    if closing:
        os.closerange(3, 4096)  # as programs do that become daemons
    print("up", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""
DEAF = "import signal, time\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\ntime.sleep(600)"
"""Hears nothing of its pipe, as an agent does that gets no turn of the processor."""


@contextlib.contextmanager
def an_owner(spec: SandboxSpec, closing: str = "", program: str = OWNER) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", program, spec.session_id, spec.image, spec.runtime or "", closing, *spec.command]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"up\n"
            yield process
        finally:
            process.kill()


async def test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended(
    engine: DockerEngine, make_spec: MakeSpec, runtime: str
) -> None:
    """SIGKILL of the owner and of all its group: a guard that outlives both ends the container from outside."""
    spec = make_spec(DEAF, runtime=runtime)
    with an_owner(spec) as owner:
        owner.kill()
        owner.wait()
        started = time.monotonic()
        await gone(engine, spec.session_id, 10)  # the machine that runs the tests may be busy
        print(f"gone after {time.monotonic() - started:.2f} s")


async def test_an_owner_that_closes_every_file_keeps_its_container_until_it_ends(
    engine: DockerEngine, make_spec: MakeSpec
) -> None:
    spec = make_spec(DEAF)
    with an_owner(spec, "closing") as owner:
        await asyncio.sleep(4 * guard.GRACE_SECONDS)  # that nothing happens cannot be waited for
        assert await containers_of(engine, spec.session_id)
        owner.kill()
        owner.wait()
        await gone(engine, spec.session_id, 10)


async def test_a_guard_that_somebody_ended_is_replaced(engine: DockerEngine, make_spec: MakeSpec) -> None:
    spec = make_spec(DEAF)
    code = OWNER.replace(
        "    print(",
        """    import psutil
    from dataclasses import replace
    (process,) = [p for p in psutil.Process().children() if any("guard.py" in part for part in p.cmdline())]
    process.kill()
    process.wait()
    await DockerEngine().start(replace(spec, session_id=session_id[::-1]))
    print(""",
    )
    with an_owner(spec, program=code) as owner:
        owner.kill()
        owner.wait()
        await gone(engine, spec.session_id, 10)
        await gone(engine, spec.session_id[::-1], 10)


async def test_a_container_that_is_on_its_way_out_is_not_in_the_way_of_the_next(
    engine: DockerEngine, start: Start, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not its name, not its removal, and not what the engine tells of its end."""
    monkeypatch.setattr(docker_container, "KILL_SECONDS", 0.2)

    class Stuck(DockerEngine):
        async def remove(self, identity: str) -> bool:
            return await asyncio.Event().wait()

    stuck, spec = Stuck(), make_spec()
    first = await stuck.start(spec)
    try:
        with pytest.raises(EngineError, match="did not remove"):
            await first.kill()
        second = await start(spec)
        assert second.name != first.name
        await gone_container(engine, first.id)  # the guard was told
        await second.send(b"hello\n")
        assert await receive_line(second) == b"hello\n"
    finally:
        await engine.remove(first.id)


async def gone_container(engine: DockerEngine, identity: str) -> None:
    async with asyncio.timeout(20):
        while await engine.inspect(identity) is not None:  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


# --- starting -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["subscribe", "create", "attach", "start"])
async def test_a_cancelled_start_leaves_nothing(make_spec: MakeSpec, moment: str) -> None:
    class Interrupted(DockerEngine):
        async def request(self, method: str, target: str, body: object = None) -> Any:
            if f"/{moment}" in target:
                starting.cancel()
            return await super().request(method, target, body)

        async def attach(self, identity: str) -> Any:
            if moment == "attach":
                starting.cancel()
            return await super().attach(identity)

        async def subscribe(self, session_id: str, since: float) -> Any:
            if moment == "subscribe":
                starting.cancel()
            return await super().subscribe(session_id, since)

    engine, spec = Interrupted(), make_spec()
    starting = asyncio.create_task(engine.start(spec))
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert await containers_of(engine, spec.session_id) == []


async def test_a_command_that_is_not_there_leaves_nothing(engine: DockerEngine, make_spec: MakeSpec) -> None:
    spec = make_spec(command=("/no/such/program",))
    with pytest.raises(EngineError, match="no such file"):
        await engine.start(spec)
    assert await containers_of(engine, spec.session_id) == []


async def test_a_missing_image_says_how_to_build_it(engine: DockerEngine, make_spec: MakeSpec) -> None:
    with pytest.raises(ImageMissing, match=r"'sandbox-kernel:never'.*sandbox-kernel build"):
        await engine.start(make_spec(image="sandbox-kernel:never"))


async def test_an_unknown_runtime_names_the_setting(engine: DockerEngine, make_spec: MakeSpec) -> None:
    with pytest.raises(EngineError, match="no runtime 'kata-never'") as caught:
        await engine.start(make_spec(runtime="kata-never"))
    assert caught.value.setting == "runtime"


async def test_more_cpus_than_the_machine_has_are_no_error(start: Start, make_spec: MakeSpec) -> None:
    spec = make_spec()
    container = await start(replace(spec, limits=replace(spec.limits, cpus=512)))
    await container.send(b"up\n")
    assert await receive_line(container) == b"up\n"


def test_importing_the_engine_loads_nothing_heavy() -> None:
    """The engine's own client library takes 0.35 s, more than half of a start."""
    code = "import asyncio, sys; import sandbox_kernel.engines.docker.engine; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"docker", "requests", "urllib3", "http.client", "email", "jupyter_client", "zmq", "traitlets"}


async def test_no_engine_says_how_to_start_one(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="start it"):
        await DockerEngine(f"unix://{tmp_path}/none.sock").start(make_spec())


async def test_an_engine_that_is_stopped_says_so(make_spec: MakeSpec, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left_over:
        left_over.bind(f"{tmp_path}/left.sock")
    with pytest.raises(EngineUnavailable, match="nothing answers"):
        await DockerEngine(f"{tmp_path}/left.sock").start(make_spec())


@pytest.mark.parametrize("url", ["tcp://192.0.2.1:2375", "ssh://somebody@192.0.2.1", "http://192.0.2.1"])
def test_an_engine_over_a_network_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="unix socket"):
        DockerEngine(url)


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"", "was lost"),
        (b"garbage\r\n\r\n", "does not speak HTTP"),
        (b"x" * 100_000, "does not speak HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{", "was lost"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "not JSON"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n" + b" " * 20_000_000, "over the limit"),
        (b"HTTP/1.1 500 No\r\nContent-Length: 16\r\n\r\n" + b'{"message":"no"}', r"refused \(500\): no"),
    ],
)
async def test_a_strange_answer_is_an_engine_error(tmp_path: Path, reply: bytes, error: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    server = await asyncio.start_unix_server(answer, f"{tmp_path}/engine.sock")
    async with server:
        with pytest.raises(EngineError, match=error):
            await DockerEngine(f"{tmp_path}/engine.sock").info()


@pytest.mark.parametrize("body", [b"{}", b"[]", b'{"Id": 7}', b"null"])
async def test_an_answer_to_a_start_that_makes_no_sense_is_an_engine_error(
    tmp_path: Path, make_spec: MakeSpec, body: bytes
) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 201 Created\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, f"{tmp_path}/engine.sock"):
        with pytest.raises(EngineError, match="not understood"):
            await DockerEngine(f"{tmp_path}/engine.sock").start(make_spec())


async def test_an_engine_that_takes_no_seccomp_profile_is_refused_in_plain_words(tmp_path: Path) -> None:
    """What Podman 4.3 answers to the same request."""
    body = b'{"message": "container create: opening seccomp profile failed: open {...}: file name too long"}'

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 500 Error\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, f"{tmp_path}/engine.sock"):
        with pytest.raises(EngineError, match="does not take all protections"):
            await DockerEngine(f"{tmp_path}/engine.sock").info()


async def test_an_engine_that_never_answers_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker, "REQUEST_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/silent.sock")
        silent.listen()
        with pytest.raises(EngineUnavailable, match="does not answer"):
            await DockerEngine(f"{tmp_path}/silent.sock").info()


# --- the engine goes away -------------------------------------------------------------------------------------------


class Relay:
    """Stands between a test and the engine, so that the engine can be lost without harm to others."""

    def __init__(self, path: str, target: str) -> None:
        self.path, self.target = path, target
        self._links: dict[asyncio.Task[None], bytes] = {}

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._serve, self.path)

    async def lose(self, *, only: bytes = b"") -> None:
        """Cut the connections whose request starts with `only`; without it all of them, and no new ones."""
        if not only:
            self._server.close()
        links = [link for link, head in self._links.items() if head.startswith(only)]
        for link in links:
            link.cancel()
        await asyncio.gather(*links, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.read(65536)
        link = asyncio.create_task(self._link(head, reader, writer))
        self._links[link] = head
        link.add_done_callback(self._links.pop)

    async def _link(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_unix_connection(self.target)
        try:
            back.write(head)
            await asyncio.gather(self._copy(reader, back), self._copy(there, writer))
        finally:
            writer.close()
            back.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
            writer.write_eof()


@pytest.fixture
async def relay(tmp_path: Path, engine: DockerEngine) -> AsyncIterator[Relay]:
    relay = Relay(f"{tmp_path}/relay.sock", engine.path)
    await relay.open()
    yield relay
    await relay.lose()


async def test_a_lost_engine_is_named_within_5_s(engine: DockerEngine, relay: Relay, make_spec: MakeSpec) -> None:
    spec = make_spec()
    container = await DockerEngine(relay.path).start(spec)
    receiving = asyncio.create_task(container.receive())
    await relay.lose()
    async with asyncio.timeout(5):
        reason = await container.wait()
        assert await receiving == b""
    assert reason.kind == "engine_lost"
    assert "relay.sock" in reason.detail
    await container.kill()  # returns, although nobody can be asked
    await gone(engine, spec.session_id, 10)  # with its pipe


async def test_losing_only_the_events_loses_no_reason(relay: Relay, make_spec: MakeSpec) -> None:
    container = await DockerEngine(relay.path).start(make_spec("import sys; sys.stdin.read(); sys.exit(7)"))
    await relay.lose(only=b"GET /events")
    container._pipe._socket.shutdown(socket.SHUT_WR)
    reason = await container.wait()
    assert (reason.kind, reason.exit_code) == ("exited", 7)
    await container.kill()


# --- other owners ---------------------------------------------------------------------------------------------------

KEEPER = """
import os, socket, sys
with socket.socket(fileno=int(sys.argv[1])) as way:
    state, (fd,), _, _ = socket.recv_fds(way, 65536, 1)
    way.sendall(b"mine")
    way.recv(1)
    socket.send_fds(way, [state], [fd])
"""


async def test_another_process_keeps_it_and_a_third_adopts_it(
    engine: DockerEngine, make_spec: MakeSpec, runtime: str
) -> None:
    """The pipe survives in a keeper when its first owner lets go, unread bytes included."""
    spec = make_spec(runtime=runtime)
    container = await engine.start(spec)
    mine, theirs = socket.socketpair()
    with mine, theirs:
        keeper = await asyncio.create_subprocess_exec(
            sys.executable, "-c", KEEPER, str(theirs.fileno()), pass_fds=[theirs.fileno()]
        )
        await container.send(b"unread\n")
        await container.rename_owner(keeper.pid)
        given = container.detach()
        socket.send_fds(mine, [json.dumps(given.state).encode()], [given.fd])
        assert await asyncio.to_thread(mine.recv, 4) == b"mine"
        os.close(given.fd)
        (row,) = [row for row in await engine.list() if row.session == spec.session_id]
        assert (row.owner_pid, row.owner_alive, row.state) == (keeper.pid, True, "running")
        mine.sendall(b"x")
        state, (fd,), _, _ = await asyncio.to_thread(socket.recv_fds, mine, 65536, 1)
        await keeper.wait()
    adopted = await DockerEngine().adopt(fd, json.loads(state))
    try:
        assert Owner.parse(adopted.name) == Owner.of(os.getpid())
        assert await receive_line(adopted) == b"unread\n"
        await adopted.send(b"still there\n")
        assert await receive_line(adopted) == b"still there\n"
        await engine.request("POST", f"/containers/{adopted.id}/kill?signal=KILL")
        assert (await adopted.wait()).kind == "killed"
    finally:
        await adopted.kill()


async def test_adopting_what_has_ended_is_an_error(engine: DockerEngine, make_spec: MakeSpec) -> None:
    container = await engine.start(make_spec())
    given = container.detach()
    await engine.remove(container.id)
    with pytest.raises(EngineError, match="gone"):
        await engine.adopt(given.fd, given.state)


@pytest.mark.parametrize("state", [{}, {"id": "x", "session": "y", "since": "z"}])
async def test_adopting_from_a_strange_state_is_an_error(engine: DockerEngine, state: dict[str, Any]) -> None:
    with pytest.raises(EngineError, match="can be adopted"):
        await engine.adopt(-1, state)


async def test_reap_takes_the_dead_owner_s_and_leaves_the_living_one_s(
    engine: DockerEngine, start: Start, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of each: left by a dead owner, left by a dead owner a moment ago, of a living owner, of another host."""

    async def leave(name: str, host: str) -> str:
        spec = make_spec()
        body = container_arguments(spec)
        body["Labels"][f"{LABEL}.host"] = host
        await engine.request("POST", f"/containers/create?name={name}", body)
        return spec.session_id

    living = make_spec()
    await start(living)
    dead = await leave("sandbox-kernel-dead-4194305-1", host_name())
    foreign = await leave("sandbox-kernel-foreign-4194305-1", "another-host")
    try:
        await engine.reap()
        assert await containers_of(engine, dead), "a young container may belong to a start that is under way"
        monkeypatch.setattr(docker, "REAP_AGE_SECONDS", -5)
        assert await engine.reap() >= 1
        assert not await containers_of(engine, dead)
        assert await containers_of(engine, foreign)
        assert await containers_of(engine, living.session_id)
    finally:
        for name in ("dead", "foreign"):
            await engine.remove(f"sandbox-kernel-{name}-4194305-1")


HIDING = """
import asyncio, ctypes, os, sys
from sandbox_kernel.engines.docker import engine as docker
sessions, path, owner = sys.argv[1].split(","), sys.argv[2], sys.argv[3]
docker.REAP_AGE_SECONDS = -5
class Mine(docker.DockerEngine):
    async def _ours(self):
        return [row for row in await super()._ours() if row["Labels"]["sandbox-kernel.session"] in sessions]
asyncio.run(Mine().list())  # imports what the other user may not read
libc = ctypes.CDLL(None, use_errno=True)
done = [
    libc.unshare(0x20000),
    libc.mount(None, b"/", None, 0x4000 | 0x40000, None),  # MS_REC | MS_PRIVATE: nobody else sees what follows
    libc.mount(b"proc", b"/proc", b"proc", 0, b"hidepid=2"),
]
assert done == [0, 0, 0], (done, ctypes.get_errno())
os.setgroups([os.stat(path).st_gid])
os.setgid(65534)
os.setuid(65534)
assert not os.path.exists("/proc/" + owner)
print(asyncio.run(Mine().reap()))
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root may mount a /proc that hides, and become another user")
async def test_another_user_s_reap_leaves_what_it_cannot_see(engine: DockerEngine, make_spec: MakeSpec) -> None:
    """With a /proc that hides the processes of others (hidepid=2): living, and dead as the control; with and without
    the label that says whose it is."""
    me, dead = Owner.of(os.getpid()), Owner(4_194_305, 1)

    async def leave(owner: Owner, **labels: str) -> str:
        spec = make_spec()
        body = container_arguments(spec)
        body["Labels"] |= {f"{LABEL}.host": host_name()} | {f"{LABEL}.{name}": value for name, value in labels.items()}
        await engine.request("POST", f"/containers/create?name={owner.container_name(spec.session_id)}", body)
        return spec.session_id

    left = {
        "living": await leave(me),
        "living, with its user": await leave(me, uid="0"),
        "dead, of another user": await leave(dead, uid="0"),
        "dead, and nobody's": await leave(dead),
        "dead, and the user's own": await leave(dead, uid="65534"),
    }
    try:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", HIDING, ",".join(left.values()), engine.path, str(os.getpid())),
            stdout=asyncio.subprocess.PIPE,
        )
        said, _ = await process.communicate()
        assert said == b"2\n"
        there = {what for what, session_id in left.items() if await containers_of(engine, session_id)}
        assert there == {"living", "living, with its user", "dead, of another user"}
    finally:
        for row in await engine.list():
            if row.session in left.values():
                await engine.remove(row.container)


def test_an_owner_is_told_from_a_later_process_with_its_number() -> None:
    me = Owner.of(os.getpid())
    assert me.alive()
    assert Owner.parse("/" + me.container_name("a/b-c")) == me
    assert not Owner(me.pid, me.started + 1).alive()
    assert not Owner.of(4_194_305).alive()
    assert Owner.parse("/somebody-elses") is None
