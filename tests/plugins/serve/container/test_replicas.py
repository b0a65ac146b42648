"""Several servers, each with sandboxes of its own: any of them answers for the sandbox of another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from sandbox_kernel.plugins.serve.replicas import FORWARDED
from tests.plugins.serve.container.conftest import TOKENS, options
from tests.plugins.serve.container.jupyter_client import opened, text
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import run, sandbox, streamed, texts
from tests.plugins.serve.container.test_librechat_wire import Client
from tests.plugins.serve.container.test_open_terminal_wire import seen, user
from tests.support.patience import within

FILES = {"E2b-Sandbox-Port": "49983", "Content-Type": "application/octet-stream"}


class Three(NamedTuple):
    a: Server
    b: Server
    c: Server


def free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        some = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in some]


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Three]:
    """Give three servers with each other as peers, and a fourth peer that is down."""
    *ports, dead = free_ports(4)
    peers = [one for port in (*ports, dead) for one in ("--peers", f"127.0.0.1:{port}")]
    servers: list[Server] = []
    try:
        for port in ports:
            folder = tmp_path_factory.mktemp("tokens")
            servers.append(Server(*options(folder), "--port", str(port), *peers))
        yield Three(*servers)
    finally:
        for one in servers:
            one.close()


def through(server: Server, client: httpx2.AsyncClient) -> httpx2.AsyncClient:
    """Return a client with the same tokens for another server."""
    return httpx2.AsyncClient(base_url=server.url, headers=client.headers, timeout=30)


async def test_each_finds_a_sandbox_of_another(three: Three) -> None:
    async with sandbox(three.a) as (client, said), through(three.b, client) as b, through(three.c, client) as c:
        path = f"/sandboxes/{said['sandboxID']}"
        assert await texts(b, "x = 6 * 7\nx") == ["42"]
        assert await texts(c, "x") == ["42"]
        assert (await b.post("/files?path=f", content=b"one", headers=FILES)).status_code == 200
        assert (await c.get("/files?path=f", headers=FILES)).content == b"one"
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", "cat f"]}
        pieces = [one async for one in streamed(b, "process.Process/Start", process=process)]
        assert any("data" in one.get("event", {}) for one in pieces)
        for one in (client, b, c):
            assert (await one.get(path)).json()["sandboxID"] == said["sandboxID"]
            assert [row["sandboxID"] for row in (await one.get("/v2/sandboxes")).json()] == [said["sandboxID"]]
        again = (await c.post(f"{path}/connect", json={"timeout": 300})).json()
        assert again["envdAccessToken"] == said["envdAccessToken"]
        assert (await b.delete(path)).status_code == 204
        for one in (client, b, c):
            assert (await one.get(path)).status_code == 404
            assert (await one.post("/execute", json={"code": "1"})).status_code == 502


async def test_output_is_passed_on_while_the_cell_runs_and_a_client_that_goes_ends_it(three: Three) -> None:
    async with sandbox(three.a) as (client, _), through(three.b, client) as b:
        code = "import time\ntry:\n    print('begun', flush=True)\n    time.sleep(100)\nfinally:\n    ended = True"
        async with within(30), b.stream("POST", "/execute", json={"code": code}) as answer:
            assert json.loads(await anext(answer.aiter_lines()))["text"] == "begun\n"
        async with within(30):
            [result, _] = await run(client, "ended")
        assert result["text"] == "True"


def peak(server: Server) -> int:
    """Return the most memory that a server has had, in bytes."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) << 10


async def test_a_file_passes_in_little_memory(three: Three) -> None:
    size = 48 << 20

    async def pieces() -> Any:
        for _ in range(size >> 20):
            yield b"x" * (1 << 20)

    async with sandbox(three.a) as (client, _), through(three.c, client) as c:
        await texts(c, "1")
        before = peak(three.c)
        sent = await c.post("/files?path=f", content=pieces(), headers=FILES)
        assert sent.status_code == 200, sent.text
        got = 0
        async with c.stream("GET", "/files?path=f", headers=FILES) as answer:
            async for piece in answer.aiter_bytes():
                got += len(piece)
        assert got == size
        assert peak(three.c) - before < 16 << 20


async def test_a_wrong_token_and_no_sandbox_are_one_answer(three: Three) -> None:
    async with sandbox(three.a) as (client, said), through(three.b, client) as b:

        async def refused(identity: str, token: str) -> tuple[int, bytes]:
            headers = {"E2b-Sandbox-Id": identity, "E2B-Traffic-Access-Token": token}
            answer = await b.post("/execute", json={"code": "1"}, headers=headers)
            return answer.status_code, answer.content

        right, unknown = said["trafficAccessToken"], "0" * len(said["sandboxID"])
        assert await refused(said["sandboxID"], "0" * len(right)) == await refused(unknown, right)
        assert (await refused(unknown, right))[0] == 502
        theirs = {"X-API-Key": TOKENS["bob"]}
        found = [await b.get(f"/sandboxes/{one}", headers=theirs) for one in (said["sandboxID"], unknown)]
        assert [one.status_code for one in found] == [404, 404]
        words = [one.text.replace(said["sandboxID"], "").replace(unknown, "") for one in found]
        assert words[0] == words[1]
        assert (await b.get("/v2/sandboxes", headers=theirs)).json() == []
        assert await texts(b, "'control'") == ["control"]


async def test_what_was_passed_on_is_not_passed_on_again(three: Three) -> None:
    async with sandbox(three.a) as (client, said), through(three.b, client) as b:
        path, marked = f"/sandboxes/{said['sandboxID']}", {FORWARDED.decode(): "1"}
        assert (await b.get(path, headers=marked)).status_code == 404
        assert (await b.post("/execute", json={"code": "1"}, headers=marked)).status_code == 502
        assert (await client.get(path, headers=marked)).status_code == 200
        assert (await b.get(path)).status_code == 200


async def test_a_tenant_has_as_many_as_with_one_server(three: Three) -> None:
    async with sandbox(three.a) as (_, _), sandbox(three.b) as (client, _), sandbox(three.c) as (_, _):
        full = await client.post("/v2/sandboxes", json={"templateID": "base"})
        assert (full.status_code, full.json()["error"]) == (429, "sandboxes-of-tenant")
        rows = (await client.get("/v2/sandboxes")).json()
        assert len(rows) == 3
        page = await client.get("/v2/sandboxes?limit=2")
        rest = await client.get(f"/v2/sandboxes?limit=2&nextToken={page.headers['x-next-token']}")
        assert [*page.json(), *rest.json()] == rows


@pytest.mark.long
async def test_a_client_of_jupyter_joins_by_another_server(three: Three) -> None:
    headers = {"Authorization": f"token {TOKENS['ann']}"}
    async with (
        httpx2.AsyncClient(base_url=f"{three.a.url}/jupyter", headers=headers, timeout=30) as a,
        httpx2.AsyncClient(base_url=f"{three.b.url}/jupyter", headers=headers, timeout=30) as b,
    ):
        kernel = (await a.post("/api/kernels")).json()["id"]
        try:
            assert [one["id"] for one in (await b.get("/api/kernels")).json()] == [kernel]
            for v1 in (True, False):
                async with within(30), opened(three.b, kernel, v1=v1) as client:
                    assert client.v1 == v1
                    assert text(await client.run("6 * 7")) == "42"
                    assert text(await client.run(f"len('{'x' * (1 << 20)}')")) == str(1 << 20)
            with pytest.raises(InvalidStatus) as found:
                async with opened(three.b, kernel, token=TOKENS["bob"]):
                    pass
            assert found.value.response.status_code == 404
        finally:
            assert (await b.delete(f"/api/kernels/{kernel}")).status_code == 204
        assert (await a.get("/api/kernels")).json() == []


async def test_a_user_of_open_terminal_has_one_sandbox(three: Three) -> None:
    async with user(three.a) as a, user(three.b) as b, user(three.c) as c:
        both = await asyncio.gather(*(one.ask("GET", "/files/cwd") for one in (a, b, c)))
        assert len({str(one) for one in both}) == 1
        rows = (await a.http.get(f"{three.a.url}/v2/sandboxes")).json()
        assert len(rows) == 1
        terminal = (await a.ask("POST", "/api/terminals"))["id"]
        async with within(30), b.at(terminal) as shell:
            await shell.send(b"echo $((6 * 7))x\n")
            assert b"42x" in await seen(shell, b"42x")
        await a.http.delete(f"{three.b.url}/sandboxes/{rows[0]['sandboxID']}")


def test_a_conversation_of_librechat_goes_on_at_another_server(three: Three) -> None:
    a, b, c = (Client(server, "bob") for server in three)
    first = a.run("open('/mnt/data/a.txt', 'w').write('one')", runtime_session_hint="c1")
    second = b.run("cat a.txt", "bash", runtime_session_hint="c1")
    assert (second["stdout"], second["runtime_status"]) == ("one", "reused")
    kept = first["files"][0]
    assert c.http.get(f"/download/{first['session_id']}/{kept['id']}").content == b"one"
    for one in (a, b, c):
        one.http.delete(f"{three.c.url}/sandboxes/{first['runtime_session_id']}")
        one.http.close()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Give two servers of one test, with each other as peers by a name."""
    ports = free_ports(2)
    peers = [one for port in ports for one in ("--peers", f"localhost:{port}")]
    servers: list[Server] = []
    try:
        for port in ports:
            (tmp_path / str(port)).mkdir()
            servers.append(Server(*options(tmp_path / str(port)), "--port", str(port), *peers))
        yield servers[0], servers[1]
    finally:
        for one in servers:
            one.close()


async def test_what_a_dead_server_had_is_gone_and_others_go_on(two: tuple[Server, Server]) -> None:
    a, b = two
    async with httpx2.AsyncClient(base_url=b.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=30) as client:
        made = await client.post(f"{a.url}/v2/sandboxes", json={"templateID": "base"})
        path = f"/sandboxes/{made.json()['sandboxID']}"
        assert (await client.get(path)).status_code == 200
        a.process.kill()
        a.process.wait(20)
        assert (await client.get(path)).status_code == 404
        assert (await client.get("/v2/sandboxes")).json() == []
        mine = (await client.post("/v2/sandboxes", json={"templateID": "base"})).json()["sandboxID"]
        assert (await client.delete(f"/sandboxes/{mine}")).status_code == 204
