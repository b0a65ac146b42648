"""Who may ask a broker over the network, and what those get who may not: real TLS on loopback, without an engine."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError, EngineError, EngineUnavailable, QuotaExceeded
from sandbox_kernel.core.model import ExitReason, SandboxSpec, Settings
from sandbox_kernel.core.tasks import Tasks
from sandbox_kernel.engines.base import Handover
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.api import TokenOwner
from sandbox_kernel.plugins.broker import network_listener
from sandbox_kernel.plugins.broker.ceilings import OWN, Ceiling, Policy, load
from sandbox_kernel.plugins.broker.client import network_connection, packets, tls_relay
from sandbox_kernel.plugins.broker.client.network_caller import NetworkCaller
from sandbox_kernel.plugins.broker.codes import BrokerCode
from tests.plugins.broker.network import HOST, Authority, Files, Place, a_listener
from tests.support.patience import within

SOON = 0.2
GOOD = {"token": "good"}


class Review:
    """Knows the tokens of a test."""

    def __init__(self, **owners: TokenOwner) -> None:
        self.owners = owners
        self.asked: list[str] = []

    async def open(self) -> None:
        return None

    async def owner(self, token: str) -> TokenOwner | None:
        self.asked.append(token)
        return self.owners.get(token)

    async def close(self) -> None:
        return None


Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@contextlib.asynccontextmanager
async def wire(place: Place, files: Files | None = None, *, local: str = "127.0.0.1") -> AsyncIterator[Streams]:
    """A connection with TLS on which nothing was said yet."""
    tls = place.tls(files)
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", place.port, ssl=tls, server_hostname=HOST, local_addr=(local, 0)
    )
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def hello(writer: asyncio.StreamWriter, **said: object) -> None:
    await tls_relay.send(writer, tls_relay.HELLO, json.dumps({"token": "", "pipe": None, **said}).encode())


async def is_served(streams: Streams) -> bool:
    """Ask on a connection who was introduced; return whether there is an answer."""
    reader, writer = streams
    try:
        await tls_relay.send(writer, tls_relay.PACKET, packets.packed({"op": "status", "n": 1}))
        while True:
            kind, data = await tls_relay.receive(reader, tls_relay.MAX_FRAME, 20)
            if kind == tls_relay.PACKET:
                return "version" in json.loads(data)
    except tls_relay.ConnectionBroken:
        return False


async def is_closed(reader: asyncio.StreamReader) -> bool:
    """Return whether the other side closes a connection without a word."""
    try:
        return await reader.read(1 << 16) == b""
    except OSError:
        return True


# --- certificates -----------------------------------------------------------------------------------------------------


async def test_a_caller_with_a_certificate_of_the_authority_is_answered(tmp_path: Path) -> None:
    async with a_listener(tmp_path) as (_, place), within(20):
        status = await place.engine(place.certified("alice")).status()
    assert status["yours"] == 0


async def test_a_caller_without_a_certificate_is_refused(tmp_path: Path) -> None:
    (token := tmp_path / "token").write_text("anything")
    async with a_listener(tmp_path) as (_, place), within(20):
        with pytest.raises(EngineUnavailable, match="may not take this certificate"):
            await place.engine(place.settings(broker_token=str(token))).status()


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path) -> None:
    other = Authority(tmp_path, "other").client("alice")
    async with a_listener(tmp_path) as (_, place), within(20):
        settings = place.settings(broker_certificate=other.certificate, broker_private_key=other.private_key)
        with pytest.raises(EngineUnavailable, match="may not take this certificate"):
            await place.engine(settings).status()


async def test_a_server_s_certificate_makes_no_caller(tmp_path: Path) -> None:
    """Each server of the authority could ask as somebody of its name."""
    async with a_listener(tmp_path) as (_, place), within(20):
        server = place.authority.server("alice")
        settings = place.settings(broker_certificate=server.certificate, broker_private_key=server.private_key)
        with pytest.raises(EngineUnavailable, match="may not take this certificate"):
            await place.engine(settings).status()


async def test_a_certificate_with_two_names_is_nobody_s(tmp_path: Path) -> None:
    async with a_listener(tmp_path) as (_, place), within(20):
        two = place.authority.client("alice", names=2)
        settings = place.settings(broker_certificate=two.certificate, broker_private_key=two.private_key)
        with pytest.raises(EngineError) as caught:
            await place.engine(settings).status()
    assert caught.value.code is BrokerCode.BROKER_UNKNOWN_CALLER


async def test_a_caller_who_is_allowed_nothing_is_told_so_and_asks_nothing(tmp_path: Path) -> None:
    policy = Policy(everybody=Ceiling(denied=True), certificates={"alice": Ceiling(set_by={"denied": "the file"})})
    async with a_listener(tmp_path, policy=policy) as (broker, place), within(20):
        with pytest.raises(QuotaExceeded) as caught:
            await place.engine(place.certified("mallory")).status()
        assert caught.value.code is BrokerCode.BROKER_DENIED
        assert broker.connections == 0
        await place.engine(place.certified("alice")).status()


async def test_a_certificate_that_was_renewed_is_shown_from_the_next_connection_on(tmp_path: Path) -> None:
    async with a_listener(tmp_path) as (_, place), within(20):
        settings = place.certified("alice")
        await place.engine(settings).status()
        (tmp_path / "later").mkdir()
        later = Authority(tmp_path / "later")
        server = later.server()
        for name in (server.certificate, server.private_key):
            shutil.copy(name, tmp_path)
        with pytest.raises(EngineUnavailable) as caught:
            await place.engine(settings).status()
        assert caught.value.code is BrokerCode.BROKER_STRANGER
        files = place.authority.client("alice")
        renewed = place.settings(
            broker_authority=later.file,
            broker_certificate=files.certificate,
            broker_private_key=files.private_key,
        )
        await place.engine(renewed).status()


# --- tokens -----------------------------------------------------------------------------------------------------------


async def test_a_token_is_read_for_each_connection_and_is_its_owner_s(tmp_path: Path) -> None:
    token = tmp_path / "token"
    review = Review(first=TokenOwner("alice", frozenset()), second=TokenOwner("alice", frozenset()))
    policy = Policy(everybody=Ceiling(denied=True), callers={"alice": Ceiling(set_by={"denied": "the file"})})
    async with a_listener(tmp_path, review=review, certificates=False, policy=policy) as (_, place), within(20):
        for one in ("first", "second"):
            token.write_text(f"{one}\n")
            await place.engine(place.settings(broker_token=str(token))).status()
    assert review.asked == ["first", "second"]


@pytest.mark.parametrize("token", ["of-nobody", "x" * (8 << 10)])
async def test_a_token_that_the_cluster_does_not_know_is_refused(tmp_path: Path, token: str) -> None:
    (file := tmp_path / "token").write_text(token)
    async with a_listener(tmp_path, review=Review(), certificates=False) as (_, place), within(20):
        with pytest.raises(EngineError) as caught:
            await place.engine(place.settings(broker_token=str(file))).status()
    assert caught.value.code is BrokerCode.BROKER_UNKNOWN_CALLER
    assert token not in str(caught.value)


async def test_a_caller_that_has_neither_token_nor_certificate_connects_to_nobody(tmp_path: Path) -> None:
    async with a_listener(tmp_path, review=Review(), certificates=False) as (broker, place), within(20):
        with pytest.raises(ConfigurationError) as caught:
            await place.engine(place.settings()).status()
        assert broker.connections == 0
    assert (caught.value.code, caught.value.setting) == (BrokerCode.BROKER_NOT_CONFIGURED, "broker_token")


async def test_where_both_are_taken_a_wrong_certificate_is_refused_whatever_the_token(tmp_path: Path) -> None:
    review = Review(good=TokenOwner("alice", frozenset()))
    other = Authority(tmp_path, "other").client("alice")
    async with a_listener(tmp_path, review=review) as (_, place), within(20):
        async with wire(place) as streams:
            await hello(streams[1], **GOOD)
            assert await is_served(streams)
        async with wire(place, other) as streams:
            with contextlib.suppress(tls_relay.ConnectionBroken):
                await hello(streams[1], **GOOD)
            assert not await is_served(streams)
    assert review.asked == ["good"]


async def test_a_token_and_a_certificate_of_one_name_are_two_callers(tmp_path: Path) -> None:
    token, certificate = NetworkCaller("token", "alice"), NetworkCaller("certificate", "alice")
    assert token != certificate
    assert token == NetworkCaller("token", "alice", frozenset({"later"}))
    policy = Policy(callers={"alice": Ceiling(sessions=1, set_by={"sessions": "it"})})
    assert [policy.of(one).sessions for one in (token, certificate)] == [1, 64]


# --- TLS --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("version", "taken"), [(ssl.TLSVersion.TLSv1_2, False), (ssl.TLSVersion.TLSv1_3, True)])
async def test_tls_is_of_its_last_version(tmp_path: Path, version: ssl.TLSVersion, taken: bool) -> None:
    async with a_listener(tmp_path) as (_, place), within(20):
        tls = place.tls(place.authority.client("alice"))
        tls.maximum_version = version
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", place.port, ssl=tls, server_hostname=HOST)
        except OSError:
            assert not taken
        else:
            writer.transport.abort()
            assert taken


class Impostor:
    """Somebody who listens in the broker's place, and keeps what is said."""

    def __init__(self, files: Files) -> None:
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.load_cert_chain(files.certificate, files.private_key)
        self.heard = b""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            self.heard += await reader.read(1 << 16)
        writer.transport.abort()


@pytest.mark.parametrize(
    ("authority", "name", "believed"),
    [("authority", HOST, True), ("authority", "other", False), ("other", HOST, False)],
)
async def test_who_listens_in_a_broker_s_place_gets_no_token(
    tmp_path: Path, authority: str, name: str, believed: bool
) -> None:
    """With a certificate of another authority, or for another name; a broker's own gets it."""
    ours = Authority(tmp_path)
    impostor = Impostor((ours if authority == "authority" else Authority(tmp_path, authority)).server(name))
    (token := tmp_path / "token").write_text("secret-token")
    server = await asyncio.start_server(impostor.serve, "127.0.0.1", 0, ssl=impostor.tls)
    async with server, within(20):
        place = Place(f"{HOST}:{server.sockets[0].getsockname()[1]}", ours)
        with pytest.raises(EngineUnavailable) as caught:
            await place.engine(place.settings(broker_token=str(token))).status()
    assert (b"secret-token" in impostor.heard) is believed
    assert (caught.value.code is BrokerCode.BROKER_STRANGER) is not believed


# --- those of whom nothing is known yet -------------------------------------------------------------------------------


async def until_unknown(place: Place, files: Files, *, served: bool) -> None:
    """Return once a caller of this machine's own address is served, or not."""
    async with within(20):
        while True:
            with contextlib.suppress(OSError, tls_relay.ConnectionBroken):
                async with wire(place, files) as streams:
                    await hello(streams[1])
                    if await is_served(streams) is served:
                        return
            if not served:
                return


@pytest.mark.parametrize("addresses", [1, 4, 64])
async def test_silent_connections_are_in_nobody_s_way(tmp_path: Path, addresses: int) -> None:
    """Nobody else's, and not in that of a caller at their own address: the oldest of whoever has most is closed."""
    async with a_listener(tmp_path) as (_, place), within(40):
        alice = place.authority.client("alice")
        await until_unknown(place, alice, served=True)
        loop, silent = asyncio.get_running_loop(), []
        try:
            for number in range(2 * network_listener.UNKNOWN):
                silent.append(sock := socket.socket())
                sock.setblocking(False)
                sock.bind((f"127.0.0.{number % addresses + 10}", 0))
                await loop.sock_connect(sock, ("127.0.0.1", place.port))
            for local in ("127.0.0.2", "127.0.0.10"):
                async with wire(place, alice, local=local) as streams:
                    await hello(streams[1])
                    assert await is_served(streams)
            for sock in silent[: network_listener.UNKNOWN]:
                assert await loop.sock_recv(sock, 1) == b"", "the oldest are closed, and bounded so"
        finally:
            for sock in silent:
                sock.close()
        await until_unknown(place, alice, served=True)


async def test_a_slow_handshake_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network_listener, "HANDSHAKE_SECONDS", SOON)
    async with a_listener(tmp_path) as (_, place), within(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", place.port)
        writer.write(b"\x16\x03\x01\x02\x00")  # how TLS begins
        assert await is_closed(reader)
        writer.transport.abort()


async def test_who_does_not_say_who_it_is_is_hung_up_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with a_listener(tmp_path) as (broker, place), within(20):
        alice = place.authority.client("alice")
        async with wire(place, alice) as streams:
            await hello(streams[1])
            assert await is_served(streams)
        monkeypatch.setattr(network_listener, "FIRST_WORD_SECONDS", SOON)
        async with wire(place, alice) as (reader, _):
            assert await is_closed(reader)
        assert broker.connections == 0


WRONG = {
    "of another kind": (tls_relay.PACKET, b'{"token": "", "pipe": null}'),
    "longer than any": (tls_relay.HELLO, b" " * (network_listener.MAX_HELLO + 1)),
    "with a longer token than any": (
        tls_relay.HELLO,
        json.dumps({"token": "x" * (network_listener.MAX_TOKEN + 1), "pipe": None}).encode(),
    ),
    "with a token of two lines": (tls_relay.HELLO, b'{"token": "a\\nb", "pipe": null}'),
    "with another field": (tls_relay.HELLO, b'{"token": "", "pipe": null, "name": "root"}'),
    "nested deeply": (tls_relay.HELLO, b'{"token": ' + b"[" * 5000),
    "for a pipe that is none": (tls_relay.HELLO, b'{"token": "", "pipe": "zz"}'),
    "for a pipe that nobody has": (tls_relay.HELLO, b'{"token": "", "pipe": "%s"}' % (b"0" * 32)),
}


@pytest.mark.parametrize("word", WRONG.values(), ids=WRONG)
async def test_a_first_word_that_is_none_is_hung_up_on(tmp_path: Path, word: tuple[int, bytes]) -> None:
    async with a_listener(tmp_path) as (broker, place), within(20):
        async with wire(place, place.authority.client("alice")) as (reader, writer):
            await tls_relay.send(writer, *word)
            assert await is_closed(reader)
        assert broker.connections == 0


# --- those who are known ----------------------------------------------------------------------------------------------

FRAMES = {
    "longer than any": tls_relay.HEAD.pack(tls_relay.PACKET, tls_relay.MAX_FRAME + 1),
    "of no kind": tls_relay.HEAD.pack(9, 1) + b"x",
    "without a content": tls_relay.HEAD.pack(tls_relay.PACKET, 0),
    "with a pipe": tls_relay.HEAD.pack(tls_relay.PACKET_WITH_PIPE, 20) + b"x" * 20,
    "that is there and says more": tls_relay.HEAD.pack(tls_relay.ALIVE, 1) + b"x",
    "that is no request": tls_relay.HEAD.pack(tls_relay.PACKET, 2) + b"[]",
}


@pytest.mark.parametrize("frame", FRAMES.values(), ids=FRAMES)
async def test_a_frame_that_is_none_is_hung_up_on(tmp_path: Path, frame: bytes) -> None:
    async with a_listener(tmp_path) as (broker, place), within(20):
        async with wire(place, place.authority.client("alice")) as (reader, writer):
            await hello(writer)
            assert await is_served((reader, writer))
            writer.write(frame)
            assert await is_closed(reader)
        while broker.connections:  # noqa: ASYNC110 (within the same bound)
            await asyncio.sleep(0)


async def test_a_caller_that_is_silent_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As one whose node vanished: nothing tells the broker but the time."""
    monkeypatch.setattr(tls_relay, "SILENCE_SECONDS", SOON)
    async with a_listener(tmp_path) as (broker, place), within(20):
        async with wire(place, place.authority.client("alice")) as (reader, writer):
            await hello(writer)
            assert await is_closed(reader)
        while broker.connections:  # noqa: ASYNC110 (within the same bound)
            await asyncio.sleep(0)


async def test_each_side_says_that_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a connection on which nothing else is said outlasts the silence that ends it."""
    monkeypatch.setattr(tls_relay, "ALIVE_SECONDS", SOON / 4)
    monkeypatch.setattr(tls_relay, "SILENCE_SECONDS", 3 * SOON)
    async with a_listener(tmp_path) as (_, place), within(20):
        sock = await network_connection.connect(place.address, place.certified("alice"))
        with sock:
            async with wire(place, place.authority.client("bob")) as (reader, writer):
                await hello(writer)
                for _ in range(16):
                    assert await tls_relay.receive(reader, 0, 20) == (tls_relay.ALIVE, b"")
                    await tls_relay.send(writer, tls_relay.ALIVE)
            with pytest.raises(BlockingIOError):
                sock.recv(1)


async def test_a_broker_that_is_silent_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_relay, "SILENCE_SECONDS", SOON)
    ours, ends = Authority(tmp_path), asyncio.Event()
    files = ours.server()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(files.certificate, files.private_key)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ends.wait()
        writer.transport.abort()

    server = await asyncio.start_server(silent, "127.0.0.1", 0, ssl=tls)
    async with server, within(20):
        place = Place(f"{HOST}:{server.sockets[0].getsockname()[1]}", ours)
        with pytest.raises(EngineUnavailable, match="nothing was heard"):
            await place.engine(place.certified("alice")).status()
        ends.set()


# --- the operator's file ----------------------------------------------------------------------------------------------

FILE = """
[all]
denied = true

[caller_group."system:serviceaccounts:hub"]
denied = false
sessions = 2

[caller."system:serviceaccount:hub:alice"]
sessions = 3

[certificate.alice]
denied = false
memory = "1G"
"""


def test_the_file_says_what_each_caller_may_have(tmp_path: Path) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(FILE)
    policy, hub = load(path), frozenset({"system:serviceaccounts:hub"})
    alice = policy.of(NetworkCaller("token", "system:serviceaccount:hub:alice", hub))
    bob = policy.of(NetworkCaller("token", "system:serviceaccount:hub:bob", hub))
    assert [(one.denied, one.sessions) for one in (alice, bob)] == [(False, 3), (False, 2)]
    assert alice.by("sessions").endswith("[caller.system:serviceaccount:hub:alice]")
    assert policy.of(NetworkCaller("token", "alice")).denied
    certified = policy.of(NetworkCaller("certificate", "alice"))
    assert (certified.denied, certified.memory) == (False, 1 << 30)


@pytest.mark.parametrize("line", ['datasets = { a = "/srv" }', "volumes = 1", 'takes = ["root"]'])
def test_the_file_gives_no_caller_of_the_network_what_is_an_account_s(tmp_path: Path, line: str) -> None:
    path = tmp_path / "broker.toml"
    path.write_text(f"[caller.alice]\n{line}\n")
    with pytest.raises(ConfigurationError, match="no account of this machine"):
        load(path)


def test_a_user_s_own_broker_serves_nobody_of_the_network() -> None:
    assert Policy(everybody=OWN).of(NetworkCaller("certificate", "alice")).denied


MISSING = {
    "certificate": ["--private-key=k", "--client-authority=a", "--file=FILE"],
    "private-key": ["--certificate=c", "--client-authority=a", "--file=FILE"],
    "token-review": ["--certificate=c", "--private-key=k", "--file=FILE"],
    "file": ["--certificate=c", "--private-key=k", "--client-authority=a"],
}


@pytest.mark.parametrize("word", MISSING)
def test_a_broker_that_would_not_know_its_callers_does_not_start(tmp_path: Path, word: str) -> None:
    from sandbox_kernel.cli.program import parse

    (file := tmp_path / "broker.toml").write_text("")
    options = [one.replace("FILE", str(file)) for one in MISSING[word]]
    parsed = parse(["broker", "--listen=127.0.0.1:0", "--check", *options])
    with pytest.raises(ConfigurationError, match=f"--{word}") as caught:
        parsed.run(parsed)
    assert caught.value.code is UsageCode.NOT_TOGETHER


# --- a pipe -----------------------------------------------------------------------------------------------------------


class Flooding:
    """An engine whose one sandbox prints without an end, and counts what of it was taken."""

    address, id, image_id, held, introduced = "flooding", "flood", None, True, None

    def __init__(self) -> None:
        self.taken = 0
        self.ended = asyncio.Event()
        self.ours, self._theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.tasks = Tasks()

    async def start(self, spec: SandboxSpec) -> Flooding:
        self.tasks.start(self._flood(), "a flood")
        return self

    async def _flood(self) -> None:
        loop = asyncio.get_running_loop()
        with contextlib.suppress(OSError):
            while True:
                await loop.sock_sendall(self.ours, bytes(1 << 16))
                self.taken += 1 << 16
        self.ended.set()

    async def pass_on(self, state: object, owner_pid: int) -> None:
        return None

    def lend(self) -> Handover:
        return Handover(self._theirs.detach(), {"id": self.id, "pipe": packets.PLAIN})

    async def wait(self) -> ExitReason:
        await self.ended.wait()
        return ExitReason(kind="exited", exit_code=0)

    async def kill(self) -> None:
        self.ours.close()
        self.ended.set()
        await self.tasks.close()


async def test_a_pipe_that_is_not_read_waits_and_holds_up_nobody(tmp_path: Path) -> None:
    """Not its caller's own words, nor another caller; once it is read, it goes on. Its end is the sandbox's."""
    flooding = Flooding()
    async with a_listener(tmp_path, engine=flooding) as (_, place), within(40):
        alice = place.authority.client("alice")
        async with wire(place, alice) as control:
            await hello(control[1])
            spec = new_spec(Settings(time_zone=None))
            said = {"op": "start", "n": 1, **packets.request(spec), "spec": packets.asked(spec)}
            await tls_relay.send(control[1], tls_relay.PACKET, packets.packed(said))
            kind, data = await tls_relay.receive(control[0], tls_relay.MAX_FRAME, 20)
            assert kind == tls_relay.PACKET_WITH_PIPE
            async with wire(place, alice) as (reader, writer):
                await hello(writer, pipe=data[: tls_relay.PASS_BYTES].hex())
                before = -1
                while flooding.taken > before:  # until nothing more is taken for a while
                    before = flooding.taken
                    await asyncio.sleep(SOON)
                assert 0 < before < MOST_ON_ITS_WAY
                assert await is_served(control)
                assert (await place.engine(place.certified("bob")).status())["all"] == 1
                got = 0
                while got < 2 * MOST_ON_ITS_WAY:
                    got += len(await reader.readexactly(1 << 16))
            await flooding.ended.wait()


MOST_ON_ITS_WAY = 24 << 20
"""Bytes that sockets and TLS may keep of a pipe that is not read."""
