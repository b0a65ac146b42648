"""What is Docker's own: its API and its answers, its names and labels, its guard. The rest is in test_contract.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError, EngineError, EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines import container_reaper
from sandbox_kernel.engines.docker import api_client, api_version, few_users
from sandbox_kernel.engines.docker import container as docker_container
from sandbox_kernel.engines.docker import engine as docker
from sandbox_kernel.engines.docker.ahead import ask_ahead
from sandbox_kernel.engines.docker.arguments import LABEL, container_arguments
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.docker.few_users import FewUsers
from sandbox_kernel.engines.owner_process import OwnerProcess, host_name
from tests.support.engines import DEAF, IMAGE, containers_of, receive_line
from tests.support.patience import within
from tests.support.processes import python

MakeSpec = Callable[..., SandboxSpec]
Start = Callable[..., Awaitable[DockerContainer]]


async def gone(engine: DockerEngine, session_id: str, seconds: float) -> None:
    async with within(seconds):
        while await containers_of(engine, session_id):  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


# --- the end --------------------------------------------------------------------------------------------------------


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


OWNER = """
import asyncio, os, sys
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.core.model import Limits, SandboxSpec
async def main():
    session_id, image, runtime, closing, *command = sys.argv[1:]
    spec = SandboxSpec(session_id=session_id, image=image, limits=Limits(), command=tuple(command), uid=345678901,
                       runtime=runtime or None)
    container = await DockerEngine().start(spec)
    if closing:
        os.closerange(3, 4096)  # as programs do that become daemons
    print("up", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@contextlib.contextmanager
def an_owner(spec: SandboxSpec, closing: str = "", program: str = OWNER) -> Iterator[subprocess.Popen[str]]:
    words = [spec.session_id, spec.image, spec.runtime or "", closing, *spec.command]
    with python(program, *words) as (process, line):
        assert line == "up"
        yield process


async def test_an_owner_that_closes_every_file_keeps_its_container_until_it_ends(
    engine: DockerEngine, make_spec: MakeSpec
) -> None:
    spec = make_spec(DEAF)
    with an_owner(spec, "closing") as owner:
        await asyncio.sleep(4 * container_reaper.GRACE_SECONDS)  # that nothing happens cannot be waited for
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
    (process,) = [p for p in psutil.Process().children() if any("container_reaper.py" in part for part in p.cmdline())]
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
    async with within(30):
        while await engine.inspect(identity) is not None:  # noqa: ASYNC110 (it happens in another process)
            await asyncio.sleep(0.02)


# --- starting -------------------------------------------------------------------------------------------------------


async def test_what_was_asked_ahead_is_taken_up(make_spec: MakeSpec, engine: DockerEngine) -> None:
    spec = make_spec()
    ahead = ask_ahead(engine.path, spec)
    container = await DockerEngine(ahead=ahead).start(spec)
    try:
        assert container.name == ahead.name
        assert len(await containers_of(engine, spec.session_id)) == 1
    finally:
        await container.kill()


async def test_what_was_asked_ahead_for_another_spec_is_given_up(make_spec: MakeSpec, engine: DockerEngine) -> None:
    other, spec = make_spec(), make_spec()
    ahead = ask_ahead(engine.path, other)
    try:
        async with within(30):
            while not await containers_of(engine, other.session_id):  # noqa: ASYNC110 (it happens in another process)
                await asyncio.sleep(0.02)
        container = await DockerEngine(ahead=ahead).start(spec)
        try:
            assert container.name != ahead.name
            await gone(engine, other.session_id, 20)
        finally:
            await container.kill()
    finally:
        await engine.remove(ahead.name)


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


async def test_a_missing_image_says_how_to_build_it(engine: DockerEngine, make_spec: MakeSpec) -> None:
    with pytest.raises(ImageMissing, match=r"'sandbox-kernel:never'.*sandbox-kernel build"):
        await engine.start(make_spec(image="sandbox-kernel:never"))


def test_importing_the_engine_loads_nothing_heavy() -> None:
    """The engine's own client library takes 0.35 s, more than half of a start."""
    code = "import asyncio, sys; import sandbox_kernel.engines.docker.engine; print(*sys.modules)"
    loaded = set(
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    )
    assert not loaded & {"docker", "requests", "urllib3", "http.client", "email", "jupyter_client", "zmq", "traitlets"}


async def test_no_engine_says_where_one_answers(make_spec: MakeSpec, tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match=r"An engine answers at .*: leave the setting engine out"):
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


LINE: dict[str, Any] = {
    "Id": "a" * 64,
    "Names": ["/sandbox-kernel-1"],
    "Image": IMAGE,
    "State": "running",
    "Created": 1,
    "Labels": {f"{LABEL}.session": "1" * 16, f"{LABEL}.host": host_name()},
}
GHOST = LINE | {"Id": "b" * 64, "Names": [], "State": "removing"}
"""Of a removal that raced with another one: the engine lists it as long as it runs, and knows nothing else of it."""


async def what_runs(folder: Path, lines: object) -> tuple[list[str], list[str]]:
    """Return what is listed, and what a clean-up removes, where the engine says that these run."""
    removed: list[str] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        body = json.dumps(lines).encode()
        if head.startswith("DELETE"):
            removed.append(head.split()[1].partition("?")[0].rpartition("/")[2])
            body = b"{}"
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await writer.drain()
        writer.close()

    async with await asyncio.start_unix_server(answer, f"{folder}/engine.sock"):
        engine = DockerEngine(f"{folder}/engine.sock")
        listed = [row.container for row in await engine.list()]
        await engine.reap()
    return listed, removed


async def test_what_is_listed_without_a_name_is_gone_and_hides_nothing_else(tmp_path: Path) -> None:
    exited = LINE | {"Id": "c" * 64, "State": "exited"}
    assert await what_runs(tmp_path, [GHOST, exited, GHOST | {"Names": None}]) == (["c" * 12], ["c" * 64])


@pytest.mark.parametrize(
    "change",
    [
        *({name: None} for name in ("Id", "Image", "State", "Created", "Labels")),
        {"Names": [7]},
        {"Labels": {f"{LABEL}.uid": "x"}},
        {"Labels": {f"{LABEL}.memory": "1G"}},
        {"Labels": {f"{LABEL}.session": ["x"]}},
    ],
    ids=str,
)
async def test_a_list_that_is_none_is_an_engine_error(tmp_path: Path, change: dict[str, Any]) -> None:
    for lines in ([LINE | change], [{name: value for name, value in LINE.items() if name not in change}], 7, [7]):
        async with within(20):
            with pytest.raises(EngineError, match="not understood"):
                await what_runs(tmp_path, lines)


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
    monkeypatch.setattr(api_client, "REQUEST_SECONDS", 0.2)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/silent.sock")
        silent.listen()
        with pytest.raises(EngineUnavailable, match="does not answer"):
            await DockerEngine(f"{tmp_path}/silent.sock").info()


# --- user ids of which there are few ----------------------------------------------------------------------------------


class Few(DockerEngine):
    """The usual engine, which says that it has few user ids."""

    async def request(self, method: str, target: str, body: object = None) -> Any:
        answer = await super().request(method, target, body)
        if target == "/info":
            answer["SecurityOptions"] += ["name=rootless"]
        return answer


@pytest.fixture
def few(engine: DockerEngine, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Have engines be asked for their user ids, of which there are so many."""

    def few(count: int) -> None:
        monkeypatch.setattr(few_users, "known", {engine.path: FewUsers("rootless", limited=True)})
        monkeypatch.setattr(few_users, "FEW_UIDS", (10_000, 10_000 + count))

    return few


async def test_no_two_sandboxes_have_one_user_however_they_start(
    few: Callable[[int], None], make_spec: MakeSpec
) -> None:
    """Nothing of this process keeps them apart: each start has an engine of its own, as in a process of its own."""
    few(9)
    started = await asyncio.gather(*(Few().start(make_spec()) for _ in range(6)))
    try:
        users = {one.own_user.uid for one in started if one.own_user is not None}
        assert len(users) == 6
        assert users <= set(range(10_000, 10_009))
    finally:
        await asyncio.gather(*(one.kill() for one in started))


async def test_a_start_that_finds_no_free_user_fails_and_leaves_nothing(
    few: Callable[[int], None], make_spec: MakeSpec
) -> None:
    few(1)
    first, spec = await Few().start(make_spec()), make_spec()
    try:
        with pytest.raises(few_users.UserTaken, match="another sandbox has the user id 10000"):
            await Few().start(spec)
        assert await containers_of(Few(), spec.session_id) == []
    finally:
        await first.kill()
    again = await Few().start(spec)  # the control: the id is free again
    await again.kill()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can listen as another user")
@pytest.mark.parametrize(("user", "asked"), [(0, False), (65534, True)])
def test_an_engine_that_listens_as_another_user_than_root_is_asked_first(
    user: int, asked: bool, tmp_path: Path, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_users, "known", {})
    place = f"{tmp_path}/docker.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(place)
        child = os.fork()
        if not child:
            os.setresuid(user, user, user)
            listening.listen()
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        assert few_users.may_be(place) is asked
        if asked:
            with pytest.raises(OSError, match="which user ids it has"):
                ask_ahead(place, make_spec())


async def test_what_was_found_of_an_engine_is_asked_again(
    engine: DockerEngine, few: Callable[[int], None], start: Start, make_spec: MakeSpec
) -> None:
    """The control: the same engine, which does not say so any more, gets the machine's ids again."""
    few(1)
    container = await start(make_spec())
    assert container.own_user is None
    assert engine.path not in few_users.known


# --- the engine goes away -------------------------------------------------------------------------------------------


VERSION = re.compile(rb"(?<= )/v[0-9.]+")


class Relay:
    """Stands between a test and the engine, so that the engine can be lost without harm to others."""

    def __init__(self, path: str, target: str) -> None:
        self.path, self.target = path, target
        self.holds = b""
        """Requests that begin with this wait for `let_go`."""
        self.let_go = asyncio.Event()
        self.lines: list[str] = []
        """Method and path of each request, in their order."""
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
        if head:
            self.lines.append(head.partition(b" HTTP/")[0].decode())
        self._links[link] = VERSION.sub(b"", head)
        link.add_done_callback(self._links.pop)

    async def _link(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.holds and VERSION.sub(b"", head).startswith(self.holds):
            await self.let_go.wait()
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


async def spoken(engine: DockerEngine) -> str:
    """Return what all paths begin with where the engine's own version is no newer than ours."""
    ours, its = api_version.OURS, (await engine.info()).api_version
    return "/v{}.{}".format(*min(ours, tuple(map(int, its.split(".")))))


async def test_requests_name_the_version_that_both_speak(
    engine: DockerEngine, relay: Relay, make_spec: MakeSpec
) -> None:
    """Which it is, is asked before anything else, and never again; a start begins with two requests at a time."""
    version = await spoken(engine)
    for most in (2, 0):
        relay.lines.clear()
        container = await DockerEngine(relay.path).start(make_spec())
        await container.kill()
        others = [line for line in relay.lines if line != "HEAD /_ping"]
        assert relay.lines[: -len(others)] == ["HEAD /_ping"] * (len(relay.lines) - len(others))
        assert len(relay.lines) - len(others) <= most
        assert all(line.split()[1].startswith(f"{version}/") for line in others), others
        assert any("/create?" in line for line in others)


async def test_what_was_asked_ahead_names_the_version_too(
    engine: DockerEngine, relay: Relay, make_spec: MakeSpec
) -> None:
    """Asking does not wait for the loop, which the relay is on."""
    for questions in (["HEAD /_ping"], []):
        relay.lines.clear()
        spec = make_spec()
        ahead = await asyncio.to_thread(ask_ahead, relay.path, spec)
        container = await DockerEngine(relay.path, ahead=ahead).start(spec)
        await container.kill()
        assert relay.lines[: len(questions)] == questions
        assert f"POST {await spoken(engine)}/containers/create?name={ahead.name}" == relay.lines[len(questions)]


@pytest.mark.parametrize("before", ["1.9999", "1.1"], ids=["older", "newer"])
async def test_an_engine_that_was_exchanged_is_asked_again_once(
    relay: Relay, make_spec: MakeSpec, before: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine that this process knew spoke another version, which the one that is there now refuses."""
    known = f"/v{before}"
    monkeypatch.setitem(api_version._prefixes, relay.path, known)
    spec = make_spec()
    ahead = await asyncio.to_thread(ask_ahead, relay.path, spec)
    container = await DockerEngine(relay.path, ahead=ahead).start(spec)
    await container.kill()
    asked = [line for line in relay.lines if "/create?" in line]
    assert len(asked) == 2
    assert asked[0].startswith(f"POST {known}/")
    assert not any(line.split()[1].startswith(known) for line in relay.lines[-3:])


async def test_a_lost_engine_is_named_within_5_s(engine: DockerEngine, relay: Relay, make_spec: MakeSpec) -> None:
    spec = make_spec()
    container = await DockerEngine(relay.path).start(spec)
    receiving = asyncio.create_task(container.receive())
    await relay.lose()
    async with within(20):
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


async def test_a_pause_that_comes_after_nobody_waits_for_it_is_undone(
    engine: DockerEngine, relay: Relay, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is asked for it and to undo it, and does both, the pause last: nobody else would let it go on.

    No sibling is left: where we freeze cgroups ourselves, and where QEMU is told to stop, what is done last counts.
    """
    container = await DockerEngine(relay.path).start(make_spec())
    try:
        relay.holds = f"POST /containers/{container.id}/pause".encode()
        with monkeypatch.context() as patch:
            patch.setattr(api_client, "REQUEST_SECONDS", 0.3)
            with pytest.raises(EngineUnavailable, match="does not answer"):
                await container.pause()
        events = await engine.subscribe(container._session_id, time.time())
        relay.let_go.set()
        async with within(30):
            async for event in events.lines():
                if event.get("Action") == "pause":
                    break
            while (await engine.inspect(container.id) or {})["State"]["Paused"]:  # noqa: ASYNC110 (it happens there)
                await asyncio.sleep(0.02)
        events.close()
        await container.send(b"hello\n")
        assert await receive_line(container) == b"hello\n"
    finally:
        await container.kill()


# --- other owners ---------------------------------------------------------------------------------------------------


async def test_a_container_s_name_says_whose_it_is(engine: DockerEngine, start: Start, make_spec: MakeSpec) -> None:
    """Before it is given away, and after it was adopted."""
    spec = make_spec()
    container = await start(spec)
    await container.owned_by(os.getppid())
    (row,) = [row for row in await engine.list() if row.session == spec.session_id]
    assert (row.owner_pid, row.owner_alive, row.state) == (os.getppid(), True, "running")
    given = container.detach()
    adopted = await DockerEngine().adopt(given.fd, given.state)
    try:
        assert OwnerProcess.parse(adopted.name) == OwnerProcess.of(os.getpid())
        (row,) = [row for row in await engine.list() if row.session == spec.session_id]
        assert row.owner_pid == os.getpid()
    finally:
        await adopted.kill()


async def test_adopting_what_has_ended_is_an_error(engine: DockerEngine, make_spec: MakeSpec) -> None:
    container = await engine.start(make_spec())
    given = container.detach()
    await engine.remove(container.id)
    with pytest.raises(EngineError, match="gone"):
        await engine.adopt(given.fd, given.state)


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


@pytest.mark.parametrize("comes", [True, False], ids=["successor", "control"])
async def test_reap_leaves_what_is_on_its_way_to_the_next_process(
    make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, comes: bool
) -> None:
    """Its pipe holder gave the pipe away and ended; the process that has it now puts its own name a moment later."""
    spec = make_spec()
    given = (await DockerEngine().start(spec)).detach()
    adopted: list[DockerContainer] = []
    monkeypatch.setattr(docker, "REAP_AGE_SECONDS", -5)
    monkeypatch.setattr(docker, "HANDED_OVER_PAUSE", 0.05)
    monkeypatch.setattr(container_reaper, "HANDED_OVER_SECONDS", 0.3)

    class Another(DockerEngine):
        """Another process, whose look comes just before."""

        async def _ours(self) -> list[dict[str, Any]]:
            seen = [row for row in await super()._ours() if row["Id"] == given.state["id"]]
            if comes and not adopted:
                adopted.append(await DockerEngine().adopt(given.fd, given.state))
            return seen

    try:
        await DockerEngine().rename(given.state["id"], spec.session_id, 4_194_305)  # no process has that number
        assert await Another().reap() == int(not comes)
        assert bool(await containers_of(DockerEngine(), spec.session_id)) == comes
        if comes:
            await adopted[0].send(b"hello\n")
            assert await receive_line(adopted[0]) == b"hello\n"
    finally:
        for container in adopted:
            await container.kill()
        if not adopted:
            os.close(given.fd)


HIDING = """
import asyncio, ctypes, os, sys
from sandbox_kernel.engines.docker import api_client
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
    """With a /proc that hides the processes of others (hidepid=2), with and without the label that says whose it is."""
    me, dead = OwnerProcess.of(os.getpid()), OwnerProcess(4_194_305, 1)

    async def leave(owner: OwnerProcess, **labels: str) -> str:
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
    me = OwnerProcess.of(os.getpid())
    assert me.alive()
    assert OwnerProcess.parse("/" + me.container_name("a/b-c")) == me
    assert not OwnerProcess(me.pid, me.started + 1).alive()
    assert not OwnerProcess.of(4_194_305).alive()
    assert OwnerProcess.parse("/somebody-elses") is None


@pytest.mark.parametrize("times", [2, 100])
async def test_a_pause_that_the_engine_gives_up_is_asked_for_again(
    engine: DockerEngine, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch, times: int
) -> None:
    """On a busy machine it does not see all processes stand still; it may never."""
    container = await engine.start(make_spec())
    try:
        request, asked = engine.request, 0

        async def busy(method: str, target: str, body: object = None) -> Any:
            nonlocal asked
            if target.endswith("/pause"):
                asked += 1
                if asked <= times:
                    raise EngineError(EndCode.ENGINE_FAILED)
            return await request(method, target, body)

        monkeypatch.setattr(engine, "request", busy)
        if times == 100:
            with pytest.raises(EngineError):
                await container.pause()
        else:
            await container.pause()
        found = await engine.inspect(container.id)
        assert found is not None
        assert container.paused is found["State"]["Paused"] is (times == 2)
        assert asked < 10
    finally:
        await container.kill()


async def test_a_pause_that_the_engine_answers_too_late_is_taken_back(
    engine: DockerEngine, make_spec: MakeSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine does it all the same; whoever was told that it failed would never let it go on."""
    container = await engine.start(make_spec())
    try:
        request = engine.request

        async def late(method: str, target: str, body: object = None) -> Any:
            answer = await request(method, target, body)
            if target.endswith("/pause"):
                raise EngineError(EndCode.ENGINE_SILENT)
            return answer

        monkeypatch.setattr(engine, "request", late)
        with pytest.raises(EngineError):
            await container.pause()
        assert not container.paused
        found = await engine.inspect(container.id)
        assert found is not None
        assert found["State"]["Paused"] is False
        await container.send(b"still there")
        assert await container.receive(11) == b"still there"
    finally:
        await container.kill()
