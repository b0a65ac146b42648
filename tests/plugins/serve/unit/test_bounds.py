"""Each bound of the server has an owner, and one owner cannot take what is another's."""

from __future__ import annotations

import ast
import asyncio
import importlib
import json
import re
import resource
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import HTTPConnection

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.broker import daemon, detached_registry, detached_sandbox
from sandbox_kernel.plugins.broker.ceilings import OF_ALL, UNSAID
from sandbox_kernel.plugins.serve import mcp_wire, replicas, web_server
from sandbox_kernel.plugins.serve.replicas import Locus, Replicas, asking
from sandbox_kernel.plugins.serve.requests import Refusal
from sandbox_kernel.plugins.serve.tenants import ServeLimits, Tenants
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served, files_of
from tests.plugins.serve.unit.test_replicas import peer, scope
from tests.plugins.serve.unit.test_turns import envelope, serving
from tests.support import ROOT
from tests.support.descriptors import open_files
from tests.support.loopback import listening, opened
from tests.support.patience import until, within

FORM = "multipart/form-data; boundary=x"


def head(method: str, path: str, length: int, headers: dict[str, str]) -> bytes:
    given = {"Host": "localhost", "Content-Length": str(length), "Connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


async def test_a_form_of_many_files_has_one_descriptor_and_little_memory() -> None:
    """There were as many descriptors as files over 1 MiB, and 1 MiB of memory for each that is smaller."""
    size, count = 1_100_000, 40
    part = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n' + bytes(size) + b"\r\n"
    async with serving() as (port, _, lease):
        before, memory = open_files(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        headers = files_of(lease, **{"Content-Type": FORM})
        async with within(30), opened(port) as (reader, writer):
            writer.write(head("POST", "/files", count * len(part) + 7, headers))
            for _ in range(count):
                writer.write(part)
                await writer.drain()
            opened_since = open_files() - before
            writer.write(b"--x--\r\n")
            said = await reader.read()
    assert b" 200 " in said
    assert said.count(b"/home/user/") == count
    assert len(opened_since) <= 4
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 24 << 10


async def test_a_form_keeps_each_file_as_it_came() -> None:
    """Also where the next begins within what was read at once, and one is empty."""
    served = Served()
    stand_in: Any = served.mine.sandbox
    files = [("file", (f"f{one}", bytes([one]) * size)) for one, size in enumerate((3, 0, 70_000, 1))]
    answer = await served.ask("POST", "/files", headers=files_of(served.mine), files=files)
    assert answer.status_code == 200
    assert stand_in.written == [content for _, (_, content) in files]


async def test_a_stream_that_comes_is_a_call_of_its_sandbox() -> None:
    first = envelope(json.dumps({"start": {"process": {"pid": 1}}}).encode())
    headers = {"Content-Type": "application/connect+json"}
    async with serving(calls_per_sandbox=3) as (port, _, lease), within(20):
        open_ones = []
        for _ in range(3):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head("POST", "/process.Process/StreamInput", 1000, files_of(lease, **headers)) + first)
            open_ones.append((reader, writer))
        await until(lambda: lease.calls == 3)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(head("POST", "/process.Process/StreamInput", len(first), files_of(lease, **headers)) + first)
        assert b"resource_exhausted" in await reader.read()
        for _, one in [*open_ones, (reader, writer)]:
            one.transport.abort()
        await until(lambda: not lease.calls)


@pytest.mark.parametrize("signal", [[], {}, [9], {"a": []}, None, True, 1.5, "SIGNAL_SIGTERM"])
async def test_a_signal_that_is_none_is_refused(signal: Any) -> None:
    served = Served()
    body = {"process": {"pid": 1}, "signal": signal}
    headers = files_of(served.mine, **{"Content-Type": "application/json"})
    answer = await served.ask("POST", "/process.Process/SendSignal", headers=headers, json=body)
    assert answer.status_code == 501


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
}


async def mcp(port: int, token: str, said: dict[str, Any], key: str = "", method: str = "POST") -> tuple[int, str]:
    """Return the status of an answer, and the connection that it is of."""
    body = json.dumps(said).encode()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        **({"Mcp-Session-Id": key} if key else {}),
    }
    async with within(20), opened(port) as (reader, writer):
        writer.write(head(method, "/mcp", len(body), headers) + body)
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    found = [line.split()[1] for line in lines if line.lower().startswith("mcp-session-id:")]
    return int(lines[0].split()[1]), found[0] if found else ""


LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_connections_of_mcp_are_bounded_for_each_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens one more loses the one that was not used for the longest time, and nobody else any."""
    monkeypatch.setattr(mcp_wire, "CONNECTIONS_OF_TENANT", 5)
    async with serving() as (port, _, _lease):
        status, theirs = await mcp(port, THEIRS, INITIALIZE)
        assert status == 200
        mine = [(await mcp(port, MINE, INITIALIZE))[1] for _ in range(5)]
        assert len(set(mine)) == 5
        assert (await mcp(port, MINE, LIST, mine[0]))[0] == 200, "it is used, and is not the oldest any more"
        for _ in range(3):
            assert (await mcp(port, MINE, INITIALIZE))[0] == 200
        assert [(await mcp(port, MINE, LIST, one))[0] for one in mine] == [200, 404, 404, 404, 200]
        assert (await mcp(port, THEIRS, LIST, theirs))[0] == 200
        assert (await mcp(port, MINE, LIST, theirs))[0] == 404


@pytest.mark.slow
async def test_a_request_of_mcp_has_few_values_and_a_large_file() -> None:
    """All of a request is parsed in one turn of the loop."""
    async with serving() as (port, _, _lease):
        many = {**INITIALIZE, "params": {**INITIALIZE["params"], "x": [{}] * 60_000}}  # type: ignore[dict-item]
        assert (await mcp(port, MINE, many))[0] == 413
        large = {**INITIALIZE, "params": {**INITIALIZE["params"], "x": "A" * (32 << 20)}}  # type: ignore[dict-item]
        assert (await mcp(port, MINE, large))[0] == 200
        assert (await mcp(port, MINE, {**INITIALIZE, "x": "A" * mcp_wire.BODY_BYTES}))[0] == 413


# --- replicas ---------------------------------------------------------------------------------------------------------

ID = "0123456789abcdef"
NAMED = f"HTTP/1.1 404 Not Found\r\nx-sandbox-kernel-replica: {ID}\r\n"


def counts(number: int) -> bytes:
    said = f"x-sandbox-kernel-owner: mine\r\nx-sandbox-kernel-sandboxes: {number}\r\ncontent-length: 0"
    return f"{NAMED}{said}\r\n\r\n".encode()


def of_peers(tenants: Tenants, *ports: int) -> Replicas:
    tenants.replicas = Replicas([("127.0.0.1", port) for port in ports])
    return tenants.replicas


async def makes_one(tenants: Tenants) -> int:
    """Return how a tenant without a sandbox is answered who may have three and asks for one: 200 if there is room."""
    request = HTTPConnection({**scope("/sandboxes"), "query_string": b""})
    tenant = tenants.tenant("mine")
    with asking(request, "mine"):
        try:
            await tenants.create(tenant, "base", Settings(), 60, make=_none)
        except Refusal as refusal:
            return refusal.status
        except LookupError:
            return 200
        finally:
            assert tenant.starting == 0
    return 0


async def _none() -> Any:
    raise LookupError


@pytest.mark.parametrize(
    ("said", "status"),
    [
        (counts(2), 200),
        (counts(3), 429),
        (counts(10**12), 503),
        (f"{NAMED}content-length: 0\r\n\r\n".encode(), 503),
        (b"HTTP/1.1 500 No\r\ncontent-length: 0\r\n\r\n", 503),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]", 503),
        (b"HTTP/1.1 429 Too Many\r\ncontent-length: 0\r\n\r\n", 503),
        (b"garbage\r\n\r\n", 503),
        (b"", 503),
    ],
    ids=["two", "three", "a-number-that-is-none", "no-number", "an-error", "a-list", "refused", "garbage", "nothing"],
)
async def test_a_peer_that_does_not_say_is_no_peer_without_sandboxes(said: bytes, status: int) -> None:
    tenants = Tenants({"base": Settings()}, ServeLimits(sandboxes_per_tenant=3))
    async with within(20), peer(said) as port:
        of_peers(tenants, port)
        assert await makes_one(tenants) == status


async def test_a_silent_peer_makes_nobody_pass_a_limit_and_nobody_there_has_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replicas, "ASK_SECONDS", 0.3)
    tenants = Tenants({"base": Settings()}, ServeLimits(sandboxes_per_tenant=3))
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        gone = nobody.getsockname()[1]
    async with within(20), peer(b"", silent=True) as hangs, peer(counts(0)) as good:
        of_peers(tenants, good, hangs)
        assert await makes_one(tenants) == 503
        of_peers(tenants, good, gone)
        assert await makes_one(tenants) == 200


async def test_of_two_that_make_the_last_one_in_the_same_moment_one_is_refused() -> None:
    """The peer is in the middle of making one: it counts it before it asks, as this replica does."""
    tenants = Tenants({"base": Settings()}, ServeLimits(sandboxes_per_tenant=1))
    seen: list[int] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        seen.append(tenants.tenant("mine").starting)
        writer.write(counts(1))

    async with within(20), listening(speak) as port:
        of_peers(tenants, port)
        assert await makes_one(tenants) == 429
    assert seen == [1]


async def test_a_lookup_that_fails_leaves_the_peers_that_were_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """All who ask meanwhile wait for one lookup: each would hold a thread that others need."""
    monkeypatch.setattr(replicas, "RESOLVED_SECONDS", 0.0)
    tenants = Tenants({"base": Settings()}, ServeLimits(sandboxes_per_tenant=3))
    loop, lookups = asyncio.get_running_loop(), []
    fails: list[Exception] = []

    async def getaddrinfo(name: str, port: int, **more: Any) -> Any:
        lookups.append(name)
        await asyncio.sleep(0.05)
        if fails:
            raise fails[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(loop, "getaddrinfo", getaddrinfo)
    async with within(20), peer(counts(3)) as port:
        known = of_peers(tenants, port)
        fails.append(socket.gaierror(socket.EAI_AGAIN, "try again"))
        assert await makes_one(tenants) == 503, "it was never known who the peers are"
        fails.clear()
        assert await makes_one(tenants) == 429
        for error in (socket.gaierror(socket.EAI_AGAIN, "try again"), TimeoutError(), socket.gaierror(-2, "no name")):
            fails[:] = [error]
            assert await makes_one(tenants) == 429, "its peers are known still"
        lookups.clear()
        await asyncio.gather(*(known.other(scope(), Locus(is_here=False), proven=False) for _ in range(100)))
        assert len(lookups) == 1


@asynccontextmanager
async def hanging() -> AsyncIterator[tuple[int, list[bytes]]]:
    """Give the port of a peer that answers questions about the path `/good` alone, and what it was asked."""
    came: list[bytes] = []

    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        came.append(await reader.readuntil(b"\r\n\r\n"))
        if b"/good" in came[-1]:
            writer.write(counts(0))
            await writer.drain()
        await reader.read()

    async with listening(speak) as port:
        yield port, came


async def status_of(port: int, path: str, **headers: str) -> int:
    """Return the status of an answer; 0 if there is none."""
    async with opened(port) as (reader, writer):
        writer.write(head("GET", path, 0, {name.replace("_", "-"): value for name, value in headers.items()}))
        line = await reader.readline()
        return int(line.split()[1]) if line else 0


async def test_what_is_asked_of_a_peer_that_hangs_counts_and_is_in_no_other_s_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A tenant's waits are its own, and strangers' are strangers'."""
    monkeypatch.setattr(replicas, "ASK_SECONDS", 60.0)
    monkeypatch.setattr(replicas, "MAX_ASKS", 3)
    monkeypatch.setattr(web_server, "MAX_REQUESTS", 8)
    async with serving(requests_per_tenant=6) as (port, tenants, _), within(30):
        async with hanging() as (hangs, came):
            of_peers(tenants, hangs)
            waiting = [asyncio.create_task(status_of(port, f"/sandboxes/x{one}", X_API_Key=MINE)) for one in range(6)]
            try:
                await until(lambda: tenants.tenant("mine").requests == 6)
                assert await status_of(port, "/sandboxes/x7", X_API_Key=MINE) == 429, "what peers are asked counts"
                await until(lambda: len(came) == 3)
                assert await status_of(port, "/sandboxes/good", X_API_Key=THEIRS) == 404, "another has turns of its own"
                stranger = {"E2b_Sandbox_Id": "x", "E2b_Sandbox_Port": "49983", "X_Access_Token": "x"}
                waiting += [asyncio.create_task(status_of(port, "/files?path=a", **stranger)) for _ in range(8)]
                await until(lambda: len(came) == 7)
                assert await status_of(port, "/files?path=a", **stranger) == 503, "strangers have a bound together"
                assert await status_of(port, "/healthz") == 200, "what waits for nothing is served"
                assert await status_of(port, "/v2/sandboxes", X_API_Key=THEIRS, X_Sandbox_Kernel_Forwarded="1") == 200
                assert await status_of(port, "/sandboxes/good", X_API_Key=THEIRS) == 404, "and tenants are not in it"
            finally:
                for one in waiting:
                    one.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)
        await until(lambda: not tenants.tenant("mine").requests)


# --- the table --------------------------------------------------------------------------------------------------------

BOUND = re.compile(r"(MAX|CONNECTIONS)\w*|REQUESTS_OF_USER|WAITING|STARTS|EVENTS_OF_TURN|OF_ALL|KEPT|(TAKEN_)?AT_ONCE")
"""How a number is named that bounds how many there are, or how large."""
MODULES = (
    "serve/*.py",
    "serve/[!i]*/*.py",  # but what runs in a sandbox
    *(f"mcp/{name}.py" for name in ("output_store",)),
    *(f"broker/{name}.py" for name in ("daemon", "caller_connection", "ceilings", "user_volumes")),
    *(f"broker/{name}.py" for name in ("detached_registry", "detached_sandbox", "usage_counters", "create_request")),
)
OWNERS = {"request", "connection", "sandbox", "tenant", "user", "strangers", "server"}


def _bounds() -> dict[str, float]:
    """Return all numbers of the code that are named as bounds."""
    found = {}
    for path in sorted(one for pattern in MODULES for one in (ROOT / "sandbox_kernel/plugins").glob(pattern)):
        name = str(path.relative_to(ROOT / "sandbox_kernel/plugins").with_suffix(""))
        module = importlib.import_module(f"sandbox_kernel.plugins.{name.replace('/', '.')}")
        for line in ast.parse(path.read_text()).body:
            targets = line.targets if isinstance(line, ast.Assign) else []
            for target in (part for one in targets for part in (one.elts if isinstance(one, ast.Tuple) else [one])):
                if isinstance(target, ast.Name) and BOUND.fullmatch(target.id):
                    value = getattr(module, target.id)
                    if isinstance(value, (int, float)):
                        found[f"{name}.{target.id}"] = value
    return found


def _rows() -> dict[str, tuple[str, str, str]]:
    text = (ROOT / "tests/plugins/serve/bounds.md").read_text()
    found = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \|(.*)\|$", text, re.MULTILINE)
    return {name: (value, owner, why.strip()) for name, value, owner, why in found}


def _said(value: float) -> set[str]:
    return {f"{value:,}", f"{value / 1024:g} KiB", f"{value / 1048576:g} MiB"}


def test_each_bound_of_the_code_is_in_the_table_with_its_owner() -> None:
    rows, bounds = _rows(), _bounds()
    assert bounds.keys() - rows.keys() == set()
    assert {name for name in rows if "/" in name} - bounds.keys() == {"serve/turns.SHARE"}
    for name, value in bounds.items():
        said, owner, why = rows[name]
        assert said in _said(value) or name == "broker/daemon.STARTS", name
        assert owner in OWNERS, name
        assert why or owner not in {"strangers", "server"}, f"{name}: why can nobody take another's?"


def test_each_test_that_the_table_names_is_there() -> None:
    named = {one for _, _, why in _rows().values() for one in re.findall(r"`(tests/[^`]+)`", why)}
    assert len(named) > 8
    for one in named:
        path, _, name = one.partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), one


def test_one_owner_has_a_part_of_what_all_have() -> None:
    """Where there is no test of its own in the table, the numbers say so."""
    limits, ceiling = ServeLimits(), UNSAID
    assert ceiling.sessions is not None
    for own, every in (
        (limits.sandboxes_per_tenant, limits.sandboxes),
        (daemon.CONNECTIONS_OF_A_USER, daemon.CONNECTIONS),
        (ceiling.sessions, OF_ALL),
        (ceiling.detached * detached_sandbox.MAX_BYTES, detached_registry.MAX_KEPT),
    ):
        assert 4 * own <= every
