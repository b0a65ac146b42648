"""One server after another, on one broker: SIGTERM and SIGKILL in each state, and what the next server finds."""

from __future__ import annotations

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from websockets.exceptions import ConnectionClosed

from sandbox_kernel import AsyncSandbox
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.plugins.serve.container.conftest import TOKENS, options
from tests.plugins.serve.container.jupyter_client import opened, text
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import run, streamed
from tests.support.patience import within

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    with a_broker() as daemon:
        yield daemon


class Servers:
    """One server after another, which have a token file in common."""

    def __init__(self, daemon: Daemon, folder: Path) -> None:
        self.options = (*options(folder), "--engine", daemon.address, "--image", "sandbox-kernel:base")
        self.folder, self.daemon = folder, daemon
        self.now = Server(*self.options)

    async def next(self, number: signal.Signals = signal.SIGKILL) -> Server:
        """End the one that runs by a signal, and return the next."""
        self.now.process.send_signal(number)
        await asyncio.to_thread(self.now.process.wait, 20)
        await asyncio.to_thread(self.now.close)
        self.now = await asyncio.to_thread(Server, *self.options)
        return self.now

    def written(self) -> list[Path]:
        return list((self.folder / "tokens.sandboxes").iterdir())

    async def ids(self) -> set[str]:
        return {info.id for info in await AsyncSandbox.list(engine=self.daemon.address)}


@pytest.fixture
async def servers(daemon: Daemon, tmp_path: Path) -> AsyncIterator[Servers]:
    found = await asyncio.to_thread(Servers, daemon, tmp_path)
    yield found
    await asyncio.to_thread(found.now.close)
    for identity in await found.ids():
        await AsyncSandbox.kill_by_id(identity, engine=daemon.address)


@asynccontextmanager
async def client(
    server: Server, said: dict[str, Any] | None = None, who: str = "ann"
) -> AsyncIterator[httpx2.AsyncClient]:
    """Give a client of a server, with the tokens of a sandbox that it was told of."""
    headers = {"X-API-Key": TOKENS[who]}
    if said is not None:
        headers |= {
            "E2b-Sandbox-Id": said["sandboxID"],
            "E2b-Sandbox-Port": "49999",
            "E2B-Traffic-Access-Token": said["trafficAccessToken"],
            "X-Access-Token": said["envdAccessToken"],
        }
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=30) as one:
        yield one


async def made(server: Server, who: str = "ann", **asked: Any) -> dict[str, Any]:
    async with client(server, who=who) as one:
        answer = await one.post("/sandboxes", json={"templateID": "base", **asked})
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found


async def said_in_chat(server: Server, code: str, path: str = "", **more: Any) -> Any:
    """Run code in a conversation of LibreChat's."""
    async with client(server, who="bob") as one:
        asked = {"lang": "py", "code": code, "runtime_session_hint": "chat", **more}
        answer = await one.post(f"/librechat/v1/exec{path}", json=asked)
        assert answer.status_code == 200, answer.text
        return answer.json()


def cell(number: int) -> str:
    return f"print('begun', flush=True)\nimport time\ntime.sleep(1.5)\nkept = {number}\nkept"


async def value(server: Server, said: dict[str, Any], code: str) -> Any:
    async with client(server, said) as one:
        [text] = [line["text"] for line in await run(one, code) if line["type"] == "result"]
        return text


async def test_the_next_server_has_the_sandboxes_of_the_one_before(servers: Servers) -> None:
    """One that was asked to end, and one that was killed: while sandboxes are idle, paused, at work, made and ended."""
    first = servers.now
    asked: list[dict[str, Any]] = [
        {"timeout": 900, "metadata": {"chat": chat}, "autoPause": chat != "3"} for chat in "123"
    ]
    idle, paused, busy = await asyncio.gather(*(made(first, **one) for one in asked))
    await value(first, idle, "kept = 1; open('file', 'w').write('x')")
    await said_in_chat(first, "kept = 5")
    await value(first, paused, "kept = 2; kept")
    async with client(first) as one:
        ends = (await one.get(f"/sandboxes/{idle['sandboxID']}")).json()["endAt"]
        # Its time is up while the server ends, or later.
        assert (await one.post(f"/sandboxes/{paused['sandboxID']}/timeout", json={"timeout": 1})).status_code == 204
    async with client(first, busy) as one, one.stream("POST", "/execute", json={"code": cell(3)}) as answer:
        lines = answer.aiter_lines()
        assert json.loads(await anext(lines))["text"] == "begun\n"
        second = await servers.next(signal.SIGTERM)
    assert any("sandboxes go on without this server" in line for line in first.log)
    assert "; 4 of them go on" in second.said[-1]
    async with client(second) as one:

        async def chats() -> dict[str, dict[str, Any]]:
            return {row["metadata"]["chat"]: row for row in (await one.get("/v2/sandboxes")).json()}

        async with within(10):
            while (rows := await chats())["2"]["state"] == "running":  # noqa: ASYNC110 (in another process)
                await asyncio.sleep(0.02)
        assert {chat: row["state"] for chat, row in rows.items()} == {"1": "running", "2": "paused", "3": "running"}
        assert [rows[chat]["lifecycle"]["onTimeout"] for chat in "123"] == ["pause", "pause", "kill"]
        moved = datetime.fromisoformat(rows["1"]["endAt"]) - datetime.fromisoformat(ends)
        assert abs(moved.total_seconds()) < 0.1
        assert {row["sandboxID"] for row in rows.values()} == {said["sandboxID"] for said in (idle, paused, busy)}
        again = await one.post(f"/sandboxes/{paused['sandboxID']}/connect", json={"timeout": 900})
        assert (again.status_code, again.json()) == (201, paused)
    assert await value(second, paused, "kept") == "2"
    assert await value(second, busy, "kept") == "3"  # behind the cell, which went on to its end
    assert await value(second, idle, "kept, open('file').read()") == "(1, 'x')"
    assert (await said_in_chat(second, "print(kept)"))["stdout"] == "5\n"
    tools = [{"name": "get_weather", "parameters": {"type": "object", "properties": {}}}]
    program = await said_in_chat(second, "print(await get_weather())", "/programmatic", tools=tools)
    assert [one["name"] for one in program["tool_calls"]] == ["get_weather"]  # this server serves it
    async with client(second, idle, who="bob") as one:
        assert (await one.get(f"/sandboxes/{idle['sandboxID']}")).status_code == 404
        one.headers["E2B-Traffic-Access-Token"] = "0" * 48
        assert (await one.post("/execute", json={"code": "1"})).status_code == 502

    hanging = asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield b"new" * 100_000
        hanging.set()
        await asyncio.sleep(60)

    async with client(second, idle) as one, client(second, busy) as two, client(second, who="bob") as other:
        [chat] = [row["sandboxID"] for row in (await other.get("/v2/sandboxes")).json()]
        assert (await other.post(f"/sandboxes/{chat}/pause", json={})).status_code == 204  # its program waits
        line = "while ! test -e go; do sleep 0.05; done; echo went on > gone"
        process = {"cmd": "/bin/bash", "args": ["-l", "-c", line]}
        command = streamed(one, "process.Process/Start", process=process, stdin=False)
        assert (await anext(command))["event"]["start"]["pid"] > 0
        file = {"E2b-Sandbox-Port": "49983", "content-type": "application/octet-stream"}
        upload = asyncio.create_task(one.post("/files?path=/mnt/data/file", content=slowly(), headers=file))
        async with within(20):
            await hanging.wait()
        async with two.stream("POST", "/execute", json={"code": cell(4)}) as answer:
            lines = answer.aiter_lines()
            assert json.loads(await anext(lines))["text"] == "begun\n"
            end = asyncio.create_task(two.delete(f"/sandboxes/{paused['sandboxID']}"))
            create = asyncio.create_task(made(second, "bob"))
            there = await servers.ids()
            async with within(20):  # it is made, and its client was not told, or just now
                while await servers.ids() <= there and not create.done():  # noqa: ASYNC110 (in another process)
                    await asyncio.sleep(0.002)
            third = await servers.next(signal.SIGKILL)
        upload.cancel()
        await asyncio.gather(upload, end, create, return_exceptions=True)
    assert await value(third, busy, "kept") == "4"
    assert await value(third, idle, "open('file').read()") == "x"  # the file of before, and no part of the next
    code = "import os, time; open('go', 'w')\nwhile not os.path.exists('gone'): time.sleep(0.02)\n'went on'"
    assert await value(third, idle, code) == "went on"
    async with client(third) as one, client(third, who="bob") as other:

        async def listed() -> set[str]:
            return {row["sandboxID"] for each in (one, other) for row in (await each.get("/v2/sandboxes")).json()}

        states = {row["sandboxID"]: row["state"] for row in (await other.get("/v2/sandboxes")).json()}
        assert states[chat] == "paused"
        assert (await said_in_chat(third, "print(kept)"))["stdout"] == "5\n"  # behind the program, whose tool is gone
        async with within(20):
            # What no client was told of is ended.
            while await servers.ids() != await listed():  # noqa: ASYNC110 (in another process)
                await asyncio.sleep(0.02)
        assert {idle["sandboxID"], busy["sandboxID"]} <= await listed()
        assert await listed() == {path.name for path in servers.written() if path.name != "lock"}
        for said in (idle, busy):
            assert (await one.delete(f"/sandboxes/{said['sandboxID']}")).status_code == 204
        assert {idle["sandboxID"], busy["sandboxID"]}.isdisjoint(await servers.ids())
        assert {idle["sandboxID"], busy["sandboxID"]}.isdisjoint(path.name for path in servers.written())


async def test_a_client_of_jupyter_s_finds_its_kernel_at_the_next_server(servers: Servers) -> None:
    async with httpx2.AsyncClient(params={"token": TOKENS["ann"]}, timeout=30) as one:
        made = await one.post(f"{servers.now.url}/jupyter/api/kernels", json={"name": "python3"})
        kernel = made.json()["id"]
        async with opened(servers.now, kernel) as connected:
            assert text(await connected.run("kept = 41; kept")) == "41"
            server = await servers.next()
            with pytest.raises(ConnectionClosed):
                await connected.until(lambda _: False)
        found = (await one.get(f"{server.url}/jupyter/api/kernels")).json()
        assert [(each["id"], each["name"]) for each in found] == [(kernel, "python3")]
        async with opened(server, kernel) as again:
            assert text(await again.run("kept + 1")) == "42"
            assert (await one.post(f"{server.url}/jupyter/api/kernels/{kernel}/restart")).status_code == 200
            assert text(await again.run("'kept' in globals()")) == "False"
        assert (await one.delete(f"{server.url}/jupyter/api/kernels/{kernel}")).status_code == 204
        assert (await one.get(f"{server.url}/jupyter/api/kernels")).json() == []


async def test_who_is_no_tenant_any_more_has_no_sandbox_at_the_next_server(servers: Servers) -> None:
    theirs, mine = await made(servers.now, "bob"), await made(servers.now)
    file = servers.folder / "tokens"
    file.write_text("".join(line for line in file.read_text().splitlines(keepends=True) if "bob" not in line))
    server = await servers.next()
    assert await value(server, mine, "6 * 7") == "42"
    async with client(server, theirs, who="bob") as one:
        assert (await one.post("/execute", json={"code": "1"})).status_code == 502
        assert (await one.get("/sandboxes")).status_code == 401

    async with within(20):
        while theirs["sandboxID"] in await servers.ids():  # noqa: ASYNC110 (nothing tells of it)
            await asyncio.sleep(0.05)  # the step of a bounded wait
    assert theirs["sandboxID"] not in {path.name for path in servers.written()}
