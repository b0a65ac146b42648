"""No caller's bytes keep the event loop: every route of every wire, with bodies that are much work, over real sockets.

What is measured is the time of the processor that one turn of the loop takes, so a busy machine changes nothing. The
sandboxes are stand-ins.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import json
import time
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

import pytest

from sandbox_kernel.core.errors import SandboxClosed
from sandbox_kernel.plugins.serve import turns, web_server, web_sockets
from sandbox_kernel.plugins.serve.e2b import cells as e2b_cells
from sandbox_kernel.plugins.serve.e2b import files as e2b_files
from sandbox_kernel.plugins.serve.tenants import Lease, Tenants
from sandbox_kernel.plugins.serve.turns import Turns, paced
from tests.plugins.serve.stand_ins import MINE, Served, StandIn, running
from tests.support.loopback import opened
from tests.support.patience import within

TURN = 0.1
"""Seconds of the processor: the longest turn is the parser's, of JSON that costs as much as it may."""


class Longest:
    """The longest turn of a loop."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.what = ""


@contextmanager
def longest_turn(monkeypatch: pytest.MonkeyPatch) -> Iterator[Longest]:
    found, run = Longest(), asyncio.Handle._run  # noqa: SLF001
    gc.freeze()  # a collection is to look through what comes now, and not through all that other tests have left

    def timed(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        if (seconds := time.thread_time() - began) > found.seconds:
            found.seconds, found.what = seconds, repr(handle)[:300]

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.Handle, "_run", timed)
        try:
            yield found
        finally:
            gc.unfreeze()


class Box(StandIn):
    """A sandbox that takes what is written, and refuses all else as one that has ended."""

    path, name, size = "a", "a", 1

    async def write(self, path: str, file: Any) -> Any:
        return self

    async def send_stdin(self, pid: int, data: bytes) -> None:
        """Take it."""

    def __getattr__(self, name: str) -> Any:
        return Ended()


class Ended:
    def __getattr__(self, name: str) -> Any:
        return self

    async def __call__(self, *given: Any, **more: Any) -> Any:
        raise SandboxClosed("it has ended")


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[tuple[int, Tenants, Lease]]:
    served = Served(is_empty=True, sandboxes_per_tenant=2, **limits)  # it makes none
    tenant = served.tenants.tenant("mine")
    named = f"open-terminal/{hashlib.sha256(b'0:').hexdigest()[:32]}"
    for identity, name in (("s1", ""), ("s2", named)):
        tenant.leases[identity] = Lease(sandbox=Box(identity), tenant=tenant, template="base", name=name)  # type: ignore[arg-type]
    lease = tenant.leases["s1"]
    async with running(served.app) as (port, _):
        yield port, served.tenants, lease


def envelope(content: bytes) -> bytes:
    return b"\0" + len(content).to_bytes(4) + content


def _packed(size: int) -> bytes:
    packing = zlib.compressobj(9, wbits=31)
    return b"".join(packing.compress(bytes(1 << 20)) for _ in range(size >> 20)) + packing.flush()


PART = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n\r\n'
FORM = "multipart/form-data; boundary=x"
BODIES: dict[str, tuple[dict[str, str], bytes]] = {
    "values": ({"Content-Type": "application/json"}, b'{"a":[' + b"0," * 1_000_000 + b"0]}"),
    "as many values as may be": ({"Content-Type": "application/json"}, b'{"a":[' + b"0," * 150_000 + b"0]}"),
    "objects": ({"Content-Type": "application/json"}, b'{"a":[' + b"{}," * 300_000 + b"{}]}"),
    "deep": ({"Content-Type": "application/json"}, b'{"a":' + b"[" * 200_000 + b"]" * 200_000 + b"}"),
    "envelopes": (
        {"Content-Type": "application/connect+json"},
        envelope(json.dumps({"start": {"process": {"pid": 1}}}).encode()) + envelope(b"{}") * 60_000,
    ),
    "packed": ({"Content-Type": "application/octet-stream", "Content-Encoding": "gzip"}, _packed(64 << 20)),
    "parts": ({"Content-Type": FORM}, PART * 300),
    "almost the end of a part": ({"Content-Type": FORM}, PART + b"\r\n--" * 60_000),
    "headers of a part": ({"Content-Type": FORM}, PART * 2 + b"--x\r\n" + b"a:b\r\n" * 50_000),
}


def _headers(path: str, lease: Lease) -> dict[str, str]:
    port = e2b_cells.PORT if path.startswith(("/execute", "/contexts")) else e2b_files.PORT
    return {
        "Host": "localhost",
        "Authorization": f"Bearer {MINE}",
        "X-API-Key": MINE,
        "E2b-Sandbox-Id": lease.id,
        "E2b-Sandbox-Port": port,
        "X-Access-Token": lease.access_token,
        "E2B-Traffic-Access-Token": lease.traffic_token,
        "Accept": "application/json, text/event-stream",
        "Connection": "close",
    }


def _routes() -> list[tuple[str, str]]:
    found = []
    for route in Served().app.routes:
        path = getattr(route, "path", "").replace(":path}", "}")
        for method in sorted(getattr(route, "methods", None) or ()):
            for name in ("sandbox_id", "context_id", "kernel_id"):
                path = path.replace("{" + name + "}", "s1")
            found.append((method, path.replace("{", "").replace("}", "")))
    return found


async def asked(port: int, method: str, path: str, headers: dict[str, str], body: bytes) -> bytes:
    """Return the first bytes of the answer."""
    said = {"Content-Length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in said.items())
    async with opened(port) as (reader, writer), within(30):
        with suppress(OSError):  # it is refused before its end
            writer.write(f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode() + body)
            return await reader.read(4096)
    return b""


@pytest.mark.slow
async def test_no_body_keeps_the_loop_whatever_route_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "SHARE", 1.0)  # this is about the length of one turn; waits would only take time
    statuses = set()
    async with serving() as (port, tenants, lease):
        with longest_turn(monkeypatch) as longest:
            for method, path in _routes():
                if method not in {"POST", "PUT", "PATCH"} or path.startswith("/v2/"):  # the same as without
                    continue
                for name, (kind, body) in BODIES.items():
                    longest.seconds = 0.0
                    said = await asked(port, method, path, {**_headers(path, lease), **kind}, body)
                    statuses.add(said[9:12])
                    assert longest.seconds < TURN, (method, path, name, longest.what)
        assert tenants.tenant("mine").turns.longest > 0
    assert {b"200", b"400", b"413"} <= statuses


async def work(turns_of: Turns, seconds: float) -> float:
    """Return the time of the processor that 20 requests of one tenant had, while they had much to do."""
    used, end = 0.0, time.monotonic() + seconds

    async def one() -> None:
        nonlocal used
        while time.monotonic() < end:
            began = time.thread_time()
            while time.thread_time() - began < 0.005:
                pass
            used += time.thread_time() - began
            await asyncio.sleep(0)

    await asyncio.gather(*(paced(one(), turns_of) for _ in range(20)))
    return used


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.25, 100.0], ids=["paid-for", "control"])
async def test_all_turns_of_a_tenant_have_a_share_of_the_loop(monkeypatch: pytest.MonkeyPatch, share: float) -> None:
    monkeypatch.setattr(turns, "SHARE", share)
    monkeypatch.setattr(turns, "CREDIT_SECONDS", 0.1)
    async with within(20):
        used, others = await asyncio.gather(work(Turns(), 1.0), _rounds(1.0))
    if share < 1:
        assert used < 0.5
        assert others > 100, "somebody else has the loop meanwhile"
    else:
        assert others <= 100


async def _rounds(seconds: float) -> int:
    """Return how often somebody else has had the loop."""
    end, count = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        await asyncio.sleep(0)
        count += 1
    return count


async def test_short_turns_wait_for_nothing() -> None:
    """They are those of honest requests: an upload, a cell's outputs."""
    turns_of = Turns()
    for _ in range(100_000):
        turns_of.took(turns.FREE_SECONDS)
    assert turns_of.owes() == 0


async def test_what_is_cancelled_while_it_waits_for_its_turn_ends() -> None:
    turns_of, ended = Turns(), False

    async def one() -> None:
        nonlocal ended
        try:
            turns_of.took(3600.0)
            await asyncio.sleep(0)
        finally:
            ended = True

    task = asyncio.create_task(paced(one(), turns_of))
    await asyncio.wait({task}, timeout=0.05)
    assert not task.done()
    task.cancel()
    async with within(5):
        await asyncio.wait({task})
    assert task.cancelled()
    assert ended


def _frame(opcode: int, data: bytes = b"") -> bytes:
    return bytes([0x80 | opcode, 0x80 | len(data)]) + bytes(4) + data


UPGRADE = (
    "GET /open-terminal/api/terminals/x HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)
CHUNKED = "POST /sandboxes HTTP/1.1\r\nHost: localhost\r\n{}Transfer-Encoding: chunked\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("head", "flood"),
    [
        (CHUNKED.format(""), b"1\r\nx\r\n" * 100_000),
        (CHUNKED.format(f"X-API-Key: {MINE}\r\n"), b"1\r\nx\r\n" * 100_000),
        ("", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000),
        (UPGRADE, _frame(9) * 100_000),
        (UPGRADE, _frame(10) * 100_000),
        (UPGRADE, _frame(1)[:1].replace(b"\x81", b"\x01") + _frame(1)[1:] + (b"\x00" + _frame(0)[1:]) * 100_000),
    ],
    ids=["chunks-of-a-stranger", "chunks", "requests", "pings", "pongs", "fragments"],
)
async def test_no_stranger_s_pieces_keep_the_loop(monkeypatch: pytest.MonkeyPatch, head: str, flood: bytes) -> None:
    """A piece of six bytes costs as much as a large one."""
    assert await flooded(monkeypatch, head, flood) < TURN


@pytest.mark.long
@pytest.mark.slow
async def test_control_pieces_that_are_taken_at_once_keep_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in ((web_server, "EVENTS_OF_TURN"), (web_server, "MAX_PIECES"), (web_sockets, "PIECE_BYTES")):
        monkeypatch.setattr(module, name, 1 << 30)
    assert await flooded(monkeypatch, CHUNKED.format(""), b"1\r\nx\r\n" * 100_000) > TURN
    assert await flooded(monkeypatch, UPGRADE, _frame(9) * 100_000) > TURN


async def flooded(monkeypatch: pytest.MonkeyPatch, head: str, flood: bytes) -> float:
    """Return the longest turn while one connection sends a flood."""
    async with serving() as (port, _, _lease), opened(port) as (reader, writer), within(60):
        writer.write(head.encode())
        if head == UPGRADE:
            assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
        with longest_turn(monkeypatch) as longest, suppress(OSError):
            writer.write(flood)
            draining = asyncio.create_task(writer.drain())
            reading = asyncio.create_task(reader.read(-1))
            await asyncio.wait({draining, reading}, timeout=1.5)
            for one in (draining, reading):
                one.cancel()
        return longest.seconds


@pytest.mark.slow
async def test_a_body_in_pieces_comes_whole() -> None:
    """It may have many small ones, and as many as it likes that are not small."""
    body = json.dumps({"a": "x" * 500_000}).encode()
    for size, count in ((64, len(body)), (3, 40_000)):
        sent = body[:count] if size == 64 else json.dumps({"a": "x" * (count - 9)}).encode()
        chunks = [sent[at : at + size] for at in range(0, len(sent), size)]
        head = CHUNKED.format(f"X-API-Key: {MINE}\r\n").encode()
        async with serving() as (port, _, _lease), opened(port) as (reader, writer), within(20):
            writer.write(head + b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in chunks) + b"0\r\n\r\n")
            assert b" 404 " in await reader.readline(), "it names no template"
