"""Ten thousand connections that say nothing, half a head, or half a body: who speaks is served beside them.

That a server without such bounds is closed by far fewer is a control of `test_web_server`.
"""

from __future__ import annotations

import asyncio
import resource
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.patience import within

MANY = 10_000
HEAD = "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n"
SAID = (b"", HEAD.encode(), f"{HEAD}X-API-Key: wrong\r\nContent-Length: 100\r\n\r\n{{".encode())
"""Nothing, half a head, and half a body for which nobody is known."""
MOST_OPEN = 700
"""Descriptors of the server: connections that wait, those just accepted, and its own."""


@contextmanager
def files(count: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def memory_of(pid: int) -> int:
    """Return the KiB that a process has."""
    [line] = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith("VmRSS")]
    return int(line.split()[1])


def open_in(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


@pytest.mark.long
async def test_who_speaks_is_served_beside_ten_thousand_that_do_not(server: Server) -> None:
    port, pid = int(server.url.rpartition(":")[2]), server.process.pid
    held: list[socket.socket] = []
    most = 0

    async def fill() -> None:
        nonlocal most
        for number in range(MANY):
            one = socket.socket()
            one.setblocking(False)
            held.append(one)
            await asyncio.get_running_loop().sock_connect(one, ("127.0.0.1", port))
            if said := SAID[number % len(SAID)]:
                one.send(said)
            if number % 100 == 0:
                most = max(most, open_in(pid))

    with files(MANY + 500):
        try:
            before = memory_of(pid)
            filling = asyncio.create_task(fill())
            answered = 0
            async with (
                within(60),
                httpx2.AsyncClient(base_url=server.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=30) as client,
            ):
                made = await client.post("/sandboxes", json={"templateID": "base"})
                assert made.status_code == 201
                while not filling.done():
                    assert (await client.get(f"/sandboxes/{made.json()['sandboxID']}")).status_code == 200
                    answered += 1
                await filling
                assert (await client.delete(f"/sandboxes/{made.json()['sandboxID']}")).status_code == 204
        finally:
            for one in held:
                one.close()
    assert answered > 10
    assert most < MOST_OPEN
    assert memory_of(pid) - before < 100 << 10
