"""Each bound of the server has an owner, and one owner cannot take what is another's."""

from __future__ import annotations

import asyncio
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.plugins.mcp import connection_limits
from tests.plugins.serve.unit.test_routes import MINE, THEIRS, Served, files_of
from tests.plugins.serve.unit.test_turns import envelope, serving
from tests.support.patience import within

FORM = "multipart/form-data; boundary=x"


def head(method: str, path: str, length: int, headers: dict[str, str]) -> bytes:
    given = {"Host": "localhost", "Content-Length": str(length), "Connection": "close", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def until(condition: Callable[[], bool]) -> None:
    async with within(20):
        while not condition():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.01)


async def test_a_form_of_many_files_has_one_descriptor_and_little_memory() -> None:
    """There were as many descriptors as files over 1 MiB, and 1 MiB of memory for each that is smaller."""
    size, count = 1_100_000, 40
    part = b'--x\r\nContent-Disposition: form-data; name="f"; filename="f"\r\n\r\n' + bytes(size) + b"\r\n"
    async with serving() as (port, _, lease):
        before, memory = descriptors(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        headers = files_of(lease, **{"Content-Type": FORM})
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            async with within(30):
                writer.write(head("POST", "/files", count * len(part) + 7, headers))
                for _ in range(count):
                    writer.write(part)
                    await writer.drain()
                during = descriptors()
                writer.write(b"--x--\r\n")
                said = await reader.read()
        finally:
            writer.transport.abort()
    assert b" 200 " in said
    assert said.count(b"/home/user/") == count
    assert during - before <= 4
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
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(head(method, "/mcp", len(body), headers) + body)
        async with within(20):
            lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
        found = [line.split()[1] for line in lines if line.lower().startswith("mcp-session-id:")]
        return int(lines[0].split()[1]), found[0] if found else ""
    finally:
        writer.transport.abort()


LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_connections_of_mcp_are_bounded_for_each_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever opens one more loses the one that was not used for the longest time, and nobody else any."""
    monkeypatch.setattr(connection_limits, "CONNECTIONS_OF_USER", 5)
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


async def test_a_request_of_mcp_has_few_values_and_a_large_file() -> None:
    """All of a request is parsed in one turn of the loop."""
    async with serving() as (port, _, _lease):
        many = {**INITIALIZE, "params": {**INITIALIZE["params"], "x": [{}] * 60_000}}  # type: ignore[dict-item]
        assert (await mcp(port, MINE, many))[0] == 413
        large = {**INITIALIZE, "params": {**INITIALIZE["params"], "x": "A" * (32 << 20)}}  # type: ignore[dict-item]
        assert (await mcp(port, MINE, large))[0] == 200
        assert (await mcp(port, MINE, {**INITIALIZE, "x": "A" * connection_limits.BODY_BYTES}))[0] == 413
