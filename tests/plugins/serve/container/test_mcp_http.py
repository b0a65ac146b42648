"""MCP over HTTP, as `mcp --http` starts the server: who sees what, who may have how much, and when it ends."""

from __future__ import annotations

import asyncio
import base64
import os
import random
import signal
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from mcp import MCPError

from tests.plugins.serve.container.conftest import TOKENS, token_file
from tests.plugins.serve.container.server import McpServer
from tests.support.cases import some
from tests.support.kernels import containers_of
from tests.support.mcp_hosts import blob_of, images_of, links_of, run, soon, text_of
from tests.support.patience import until

SMALL = ("--memory", "512M")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[McpServer]:
    """A server with a token for each of two people."""
    file = token_file(tmp_path_factory.mktemp("tokens"))
    one = McpServer("--token-file", str(file), *SMALL, "--sessions", "3")
    one.token = TOKENS["ann"]
    yield one
    one.close()


async def post(url: str, body: dict[str, Any], **headers: str) -> httpx2.Response:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    async with httpx2.AsyncClient(verify=False) as client:  # no TLS here, and reading all authorities takes a while
        return await client.post(url, json=body, headers={"Accept": "application/json, text/event-stream", **names})


INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
LIST = {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}


async def test_without_the_token_nothing_is_served(server: McpServer) -> None:
    """All that is no token is in `test_guard`, for the routes of every wire."""
    token = TOKENS["ann"]
    for headers in ({}, {"Authorization": "Bearer"}, {"Authorization": f"Bearer {token}x"}):
        assert (await post(server.url, INITIALIZE, **headers)).status_code == 401, headers
    assert (await post(server.url, INITIALIZE, Authorization=f"Bearer {token}")).status_code == 200


async def test_a_page_of_another_site_is_refused_even_with_the_token(server: McpServer) -> None:
    """DNS rebinding: the name is the attacker's, the address is loopback. Which names pass is `test_place`."""
    good = f"Bearer {TOKENS['ann']}"
    assert (await post(server.url, INITIALIZE, Authorization=good, Host="evil.example:8808")).status_code == 421
    for origin, status in (("http://evil.example", 403), ("null", 403), ("http://localhost:6274", 200)):
        answer = await post(server.url, INITIALIZE, Authorization=good, Origin=origin)
        assert answer.status_code == status, origin


async def sandboxes(server: McpServer, name: str) -> list[str]:
    """Return the sandboxes of a name as another wire lists them."""
    url = server.url.removesuffix("/mcp")
    async with httpx2.AsyncClient(base_url=url, headers={"X-API-Key": TOKENS[name]}) as client:
        return [one["sandboxID"] for one in (await client.get("/v2/sandboxes")).json()]


async def test_two_clients_do_not_see_each_other_s_session_of_the_same_name(server: McpServer) -> None:
    async with server.client() as one, server.client() as two, server.client(TOKENS["bob"]) as three:
        await run(one, "secret = 'of one'; open('mine.txt', 'w').write('one')")
        assert "print" not in text_of(await two.call_tool("list_sessions"))
        for other in (two, three):
            assert (await other.call_tool("list_sessions")).structured_content == {"sessions": []}
            for name, arguments in (
                ("list_files", {}), ("download_file", {"path": "mine.txt"}), ("reset", {}), ("end_session", {}),
                ("interrupt", {}),
            ):  # fmt: skip
                answer = await other.call_tool(name, arguments)
                assert answer.is_error, name
                assert "There is no session 'main'" in text_of(answer)
            assert not (await other.list_resources()).resources
            with pytest.raises(MCPError):
                await other.read_resource("sandbox://main/files/mine.txt")
        assert "NameError" in text_of(await run(two, "secret"))
        assert text_of(await two.call_tool("list_files")) == "There are no files."
        assert len(await asyncio.to_thread(containers_of, server.pid)) == 2
        assert [len(await sandboxes(server, name)) for name in TOKENS] == [2, 0]
        assert text_of(await run(one, "secret")) == "'of one'"
    await soon(lambda: not containers_of(server.pid), 10, "both ended with their connections")


async def test_a_connection_goes_with_the_token_that_opened_it(server: McpServer) -> None:
    opened = await post(server.url, INITIALIZE, Authorization=f"Bearer {TOKENS['ann']}")
    session = opened.headers["mcp-session-id"]
    for token, status in ((TOKENS["ann"], 200), (TOKENS["bob"], 404), ("wrong", 401)):
        headers = {"Authorization": f"Bearer {token}", "Mcp-Session-Id": session, "MCP-Protocol-Version": "2025-11-25"}
        assert (await post(server.url, LIST, **headers)).status_code == status
    guessed = {"Authorization": f"Bearer {TOKENS['ann']}", "Mcp-Session-Id": "0" * 32}
    assert (await post(server.url, LIST, **guessed)).status_code == 404


async def test_the_protocol_without_connections_is_not_served(server: McpServer) -> None:
    """There, nothing but the token tells clients apart; a known id of another connection must not help either."""
    opened = await post(server.url, INITIALIZE, Authorization=f"Bearer {TOKENS['ann']}")
    with pytest.raises(BaseExceptionGroup) as raised:
        async with server.client(mode="2026-07-28") as client:
            await client.call_tool("list_sessions")
    assert raised.group_contains(MCPError, match="start with the initialize handshake")
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "list_sessions", "arguments": {}, "_meta": meta}
    answer = await post(
        server.url,
        {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": params},
        Authorization=f"Bearer {TOKENS['ann']}",
        Mcp_Session_Id=opened.headers["mcp-session-id"],
        MCP_Protocol_Version="2026-07-28",
        Mcp_Method="tools/call",
        Mcp_Name="list_sessions",
    )
    assert answer.json()["error"]["code"] == -32022


async def test_all_clients_together_have_a_limit_and_one_that_leaves_makes_room(server: McpServer) -> None:
    async with server.client() as one:
        async with server.client() as two:
            for client, name in ((one, "a"), (one, "b"), (two, "a")):
                assert not (await run(client, "1", session=name)).is_error
            for client in (one, two):
                full = await run(client, "1", session="more")
                assert full.is_error
                assert "You have 3 sandboxes, and the limit is 3" in text_of(full)

        async def room() -> bool:
            return not (await run(one, "1", session="c")).is_error

        await until(room)


async def test_progress_and_cancelling_work_as_over_stdio(server: McpServer) -> None:
    heard: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    async with server.client() as client:
        code = "import time\nprint('hello')\ntry:\n    time.sleep(60)\nfinally:\n    why = 'it'"
        call = asyncio.create_task(client.call_tool("run_code", {"code": code}, progress_callback=hear))

        async def told() -> bool:
            return any("hello" in message for message in heard)

        await until(told)
        call.cancel()
        await asyncio.wait({call})
        assert text_of(await run(client, "why")) == "'it'"


async def test_a_file_of_20_mb_passes_both_ways_under_the_limits_of_the_official_client(server: McpServer) -> None:
    """It takes events of 1 MiB at most, so what is larger must not be one."""
    content = random.Random(5).randbytes(20_000_000)
    async with server.client() as client:
        arguments = {"path": "a.bin", "base64": base64.b64encode(content).decode()}
        assert (await client.call_tool("upload_file", arguments)).structured_content["size"] == len(content)
        (uri,) = links_of(await client.call_tool("download_file", {"path": "a.bin"}))
        (resource,) = (await client.read_resource(uri)).contents
        assert base64.b64decode(resource.blob) == content  # type: ignore[union-attr]
        part = await client.call_tool("download_file", {"path": "a.bin", "offset": 1_000_000, "length": 8_000_000})
        assert blob_of(part) == content[1_000_000:9_000_000]
        too_much = {"path": "b.bin", "base64": base64.b64encode(bytes(48_000_000)).decode()}
        with pytest.raises((MCPError, httpx2.HTTPError)):
            await client.call_tool("upload_file", too_much)
        assert "b.bin" not in text_of(await client.call_tool("list_files"))


async def test_a_large_answer_after_progress_fits_into_an_event(server: McpServer) -> None:
    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append(progress)

    heard: list[float] = []
    noise = "numpy.random.default_rng(0).integers(0, 255, (n, n, 3), dtype='uint8')"
    code = (
        "import io, time, numpy\nfrom PIL import Image\nfrom IPython.display import display\ntime.sleep(1.5)\n"
        f"for n in (100, 400, 500):\n    display(Image.fromarray({noise}))\n"
        "for i in range(200):\n    display('ä\\n\"' * 9000)\nprint('x' * 3_000_000)\n1 / 0"
    )
    async with server.client() as client:
        result = await client.call_tool("run_code", {"code": code}, progress_callback=hear)
        assert heard
        assert "Error: ZeroDivisionError" in text_of(result)
        shown = images_of(result)
        assert 1 <= len(shown) < 3
        pictures = [uri for uri in links_of(result) if uri.endswith(".png")]
        assert len(pictures) == 3 - len(shown)
        (picture,) = (await client.read_resource(pictures[-1])).contents
        assert base64.b64decode(picture.blob).startswith(b"\x89PNG")  # type: ignore[union-attr]


@pytest.mark.parametrize("how", some([signal.SIGKILL, signal.SIGTERM], of=2))
async def test_the_end_of_the_server_is_the_end_of_all_containers(how: signal.Signals) -> None:
    server = await asyncio.to_thread(McpServer, *SMALL)
    answers: list[object] = []
    try:
        async with server.client() as one, server.client() as two:
            await run(one, "1")
            call = asyncio.create_task(run(two, "import time\nopen('began', 'w').close()\ntime.sleep(60)"))

            async def began() -> bool:
                return "began" in text_of(await two.call_tool("list_files"))

            await until(began)
            assert len(await asyncio.to_thread(containers_of, server.pid)) == 2
            os.kill(server.pid, how)
            gone = asyncio.create_task(soon(lambda: not containers_of(server.pid), 10, "its containers are gone"))
            answers = await asyncio.gather(call, return_exceptions=True)  # type: ignore[assignment]
    except* httpx2.HTTPError:
        assert how == signal.SIGKILL  # the clients cannot say goodbye
    finally:
        seconds = await gone
        await asyncio.to_thread(server.process.wait, 20)
        await asyncio.to_thread(server.close)
    assert how != signal.SIGKILL or seconds < 2.0  # 1 s, and the time to ask
    assert server.process.returncode == (0 if how == signal.SIGTERM else -9)
    assert "Traceback" not in "".join(server.log)
    for answer in answers:
        assert isinstance(answer, MCPError) or "SandboxDied" in text_of(answer)  # type: ignore[arg-type]


class Raw:
    """A client that says no more than it must, and leaves without a word."""

    def __init__(self, server: McpServer) -> None:
        self.url = server.url
        self.headers = {"Authorization": f"Bearer {server.token}", "Accept": "application/json, text/event-stream"}
        self.http = httpx2.AsyncClient(timeout=60)
        self.calls = 1

    async def __aenter__(self) -> Raw:
        opened = await post(self.url, INITIALIZE, Authorization=self.headers["Authorization"])
        self.headers |= {
            "Mcp-Session-Id": opened.headers["mcp-session-id"],
            "MCP-Protocol-Version": "2025-11-25",
        }
        await self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.aclose()

    async def post(self, body: dict[str, Any]) -> httpx2.Response:
        return await self.http.post(self.url, json=body, headers=self.headers)

    async def run(self, code: str) -> str:
        self.calls += 1
        params = {"name": "run_code", "arguments": {"code": code}}
        answer = await self.post({"jsonrpc": "2.0", "id": self.calls, "method": "tools/call", "params": params})
        assert answer.headers["content-type"] == "application/json"
        return "\n".join(block["text"] for block in answer.json()["result"]["content"])


async def test_a_client_that_never_listens_is_forgotten_when_it_is_idle() -> None:
    """Nothing tells a server that such a client is gone."""
    server = await asyncio.to_thread(McpServer, *SMALL, "--idle-timeout", "2", "--away-timeout", "1")
    try:
        async with Raw(server) as client:
            assert (await client.run("x = 1; x")).startswith("1")
            await soon(lambda: not containers_of(server.pid), 20, "its session has ended")
    finally:
        await asyncio.to_thread(server.close)


async def test_a_client_that_stopped_listening_is_given_up_soon_and_told_if_it_comes_back() -> None:
    server = await asyncio.to_thread(McpServer, *SMALL, "--away-timeout", "1")
    try:
        async with Raw(server) as client:
            async with client.http.stream("GET", server.url, headers=client.headers) as stream:
                assert stream.status_code == 200
                await client.run("x = 1")
                assert await client.run("import time; time.sleep(2); x") == "1"  # it listens, and so it is there
            await soon(lambda: not containers_of(server.pid), 20, "its session has ended")
            told = await client.run("'x' in dir()")
            assert "is new: the one before it ended because its client was away for too long" in told
            assert told.startswith("False")
    finally:
        await asyncio.to_thread(server.close)
