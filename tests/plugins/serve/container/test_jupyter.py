"""Jupyter's wire against a real server: kernels, and sandboxes of other wires that its clients join."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import Iterator
from typing import Any

import httpx2
import nbformat
import psutil
import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from sandbox_kernel.plugins.serve.jupyter import channels as jupyter_channels
from sandbox_kernel.plugins.serve.jupyter import front as jupyter_front
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.jupyter_client import EXECUTE, Client, address, of, opened, request, text
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import run, sandbox
from tests.support.patience import within

ANN, BOB = TOKENS["ann"], TOKENS["bob"]


def jupyter(server: Server, token: str | None = ANN) -> httpx2.AsyncClient:
    headers = {} if token is None else {"Authorization": f"token {token}"}
    return httpx2.AsyncClient(base_url=f"{server.url}/jupyter", headers=headers, timeout=30)


@pytest.fixture(scope="module")
def shared(server: Server) -> Iterator[str]:
    """A kernel for several tests."""
    with httpx2.Client(base_url=f"{server.url}/jupyter", params={"token": BOB}, timeout=30) as client:
        kernel = client.post("/api/kernels").json()["id"]
        yield kernel
        client.delete(f"/api/kernels/{kernel}")


async def refused(server: Server, url: str, **more: Any) -> int:
    """Return the status with which a WebSocket is refused."""
    with pytest.raises(InvalidStatus) as found:
        async with connect(url, **more):
            pass
    return int(found.value.response.status_code)


# --- whose it is ---


async def test_a_tenant_s_own_token_opens_and_no_other(server: Server, shared: str) -> None:
    """Each route is in `test_guard` and `test_routes`."""
    async with jupyter(server, None) as client:
        assert (await client.get(f"/api/kernels/{shared}", params={"token": ANN})).status_code == 404
        assert (await client.get("/api/kernels", params={"token": ANN})).json() == []
    for token, status in ((None, 401), ("", 401), (BOB[:-1], 401), (ANN, 404)):
        assert await refused(server, address(server, shared, token)) == status


async def test_control_the_token_opens_in_each_form(server: Server, shared: str) -> None:
    for headers, params in (
        ({"Authorization": f"token {BOB}"}, {}),
        ({"Authorization": f"Bearer {BOB}"}, {}),
        ({}, {"token": BOB}),
    ):
        async with jupyter(server, None) as client:
            found = await client.get("/api/kernels", headers=headers, params=params)
            assert [one["id"] for one in found.json()] == [shared]
        url = address(server, shared, params.get("token"))
        async with connect(url, additional_headers=headers) as connection:
            assert await Client(connection).answered()


async def test_a_page_of_another_site_opens_nothing(server: Server, shared: str) -> None:
    """With the token even: what a browser adds by itself gives it away."""
    for origin in ("https://evil.example", "null", server.url.replace("127.0.0.1", "evil.example")):
        assert await refused(server, address(server, shared, BOB), origin=origin) == 403
    headers = {"Host": "evil.example"}
    assert await refused(server, address(server, shared, BOB), additional_headers=headers) in {400, 421}
    async with connect(address(server, shared, BOB), origin=server.url) as connection:  # type: ignore[arg-type]
        assert await Client(connection).answered(), "the control"


# --- kernels ---


async def test_a_kernel_from_its_start_to_its_end(server: Server) -> None:
    async with jupyter(server) as client:
        specs = (await client.get("/api/kernelspecs")).json()
        for logo in specs["kernelspecs"][specs["default"]]["resources"].values():
            assert (await client.get(logo.removeprefix("/jupyter"))).headers["content-type"].startswith("image/")
        made = await client.post("/api/kernels")
        assert (made.status_code, made.json()["name"]) == (201, "python3")
        kernel = made.json()["id"]
        assert made.headers["location"] == f"/jupyter/api/kernels/{kernel}"
        await live(server, client, kernel)
        assert (await client.get(f"/api/kernels/{kernel}")).status_code == 404
        assert (await client.get("/api/kernels")).json() == []


async def live(server: Server, client: httpx2.AsyncClient, kernel: str) -> None:
    async with opened(server, kernel, v1=True) as one:
        reply = await one.run("import os; x = 6; print(os.getcwd()); open('kept', 'w').write('kept') and 6 * 7")
        assert text(reply) == "/mnt/data\n42"
        session = reply[0]["header"]["session"]
        model = (await client.get(f"/api/kernels/{kernel}")).json()
        assert (model["name"], model["connections"], model["execution_state"]) == ("python3", 1, "idle")
        for kind, content, name in (
            ("complete_request", {"code": "os.getc", "cursor_pos": 7}, "matches"),
            ("inspect_request", {"code": "os", "cursor_pos": 2, "detail_level": 0}, "found"),
            ("is_complete_request", {"code": "if x:"}, "indent"),
            ("history_request", {"hist_access_type": "tail", "n": 1, "output": False, "raw": True}, "history"),
            ("comm_info_request", {}, "comms"),
        ):
            said = await one.idle(await one.send(request(kind, content)))
            assert [bool(name in part["content"]) for part in said if part["channel"] == "shell"] == [True], kind
        restarted = await client.post(f"/api/kernels/{kernel}/restart")
        assert (restarted.status_code, restarted.json()["id"]) == (200, kernel)
        reply = await one.run("print(open('kept').read(), 'x' in globals())")
        assert text(reply) == "kept False\n"
        assert reply[0]["header"]["session"] != session
        await one.send(request("shutdown_request", {"restart": False}, "control"))
        await one.until(lambda found: found["msg_type"] == "shutdown_reply")
        with pytest.raises(ConnectionClosed):
            await one.until(lambda _: False)
        assert one.heard[-1]["content"] == {"execution_state": "dead"}


async def test_what_is_no_kernelspec_starts_nothing(server: Server) -> None:
    async with jupyter(server) as client:
        for name in ("nonesuch", "join-nonesuch-0", "sandbox-kernel:data", "../x"):
            answer = await client.post("/api/kernels", json={"name": name})
            assert (answer.status_code, name in answer.json()["message"]) == (404, True)
        assert (await client.post("/api/kernels", json={"name": ["python3"]})).status_code == 400
        made = await client.post(
            "/api/kernels", json={"name": "python3", "path": None, "env": {"KERNEL_USERNAME": "x"}}
        )
        assert made.status_code == 201, "the control"
        assert (await client.delete(f"/api/kernels/{made.json()['id']}")).status_code == 204


async def test_a_cell_right_behind_a_failure_runs_if_the_client_asks_first(shared: str, server: Server) -> None:
    """A client that takes the error for the end: AG2's does. Without the question, the cell is aborted."""
    async with opened(server, shared, token=BOB) as one:
        for _ in range(20):
            failing = await one.send(request("execute_request", {"code": "1/0", **EXECUTE}))
            await one.until(lambda found, to=failing: (found["msg_type"], of(found)) == ("error", to))  # type: ignore[misc]
            asked = await one.send(request("kernel_info_request"))
            await one.until(lambda found, to=asked: (found["channel"], of(found)) == ("shell", to))  # type: ignore[misc]
            assert text(await one.run("'next'")) == "'next'"


async def test_control_a_kernel_says_who_it_is_while_a_cell_runs(shared: str, server: Server) -> None:
    async with opened(server, shared, token=BOB) as one:
        cell = await one.send(request("execute_request", {"code": "input()", **EXECUTE}))
        await one.until(lambda found: found["msg_type"] == "input_request")
        assert await one.answered()
        await one.send(request("input_reply", {"value": ""}, "stdin"))
        await one.idle(cell)


# --- a chat's sandbox ---


async def test_an_analyst_joins_the_sandbox_of_a_chat(server: Server) -> None:
    async with sandbox(server, metadata={"name": "sales chat"}) as (chat, said), jupyter(server) as client:
        await run(chat, "total = 41\nprint('from the chat')")
        specs = (await client.get("/api/kernelspecs")).json()["kernelspecs"]
        [name] = [name for name, one in specs.items() if one["spec"]["display_name"] == "Join: sales chat"]
        joined = (await client.post("/api/kernels", json={"name": name, "env": {}})).json()
        assert (joined["sandbox"]["id"], joined["name"]) == (said["sandboxID"], name)
        assert [one["id"] for one in (await client.get("/api/kernels")).json()] == [joined["id"]]
        async with opened(server, joined["id"]) as one, opened(server, joined["id"], v1=True) as two:
            assert text(await one.run("total += 1; total")) == "42"
            mine = one.heard[-1]["parent_header"]["msg_id"]
            assert text(await two.idle(mine)) == "42"
            assert [found for found in two.heard if of(found) == mine and found["channel"] == "shell"] == []

            # The chat goes on, and both hear of it.
            await run(chat, "print(total, 'in the chat')")
            for each in (one, two):
                shown = await each.until(lambda found: found["msg_type"] == "stream" and "chat" in str(found))
                assert shown["content"]["text"] == "42 in the chat\n"
                inputs = [found for found in each.heard if found["msg_type"] == "execute_input"]
                assert inputs[-1]["content"]["code"] == "print(total, 'in the chat')"

            # A question goes to the one that asked, and nobody else can answer it.
            asking = await one.send(request("execute_request", {"code": "input('who? ')", **EXECUTE}))
            question = await one.until(lambda found: found["msg_type"] == "input_request")
            assert question["content"]["prompt"] == "who? "
            await two.send(request("input_reply", {"value": "two"}, "stdin"))
            assert await two.answered()
            await one.send(request("input_reply", {"value": "one"}, "stdin"))
            assert text(await one.idle(asking)) == "'one'"
            assert not [found for found in two.heard if found["msg_type"] == "input_request"]

            # A failure of the analyst's ends no cell of the chat that waits behind it.
            failing = await one.send(request("execute_request", {"code": "import time; time.sleep(1); 1/0", **EXECUTE}))
            await one.until(lambda found: found["msg_type"] == "execute_input" and of(found) == failing)
            behind = asyncio.create_task(run(chat, "'behind'"))
            aborted = await one.send(request("execute_request", {"code": "'aborted'", **EXECUTE}))
            assert [found["content"]["status"] for found in await one.idle(aborted) if found["channel"] == "shell"] == [
                "aborted"
            ]
            assert (await behind)[0]["text"] == "behind"

            # An interrupt ends the chat's cell.
            cell = asyncio.create_task(run(chat, "import time; print('begun'); time.sleep(100)"))
            await two.until(lambda found: found["content"].get("text") == "begun\n")
            assert (await client.post(f"/api/kernels/{joined['id']}/interrupt")).status_code == 204
            assert [line["name"] for line in await cell if line["type"] == "error"] == ["KeyboardInterrupt"]

        document = await client.get(f"/api/kernels/{joined['id']}/notebook")
        cells = history(document.json())
        assert cells[0] == ("e2b", "ann", "total = 41\nprint('from the chat')", "from the chat\n")
        assert cells[1] == ("jupyter", "ann/alice", "total += 1; total", "42")
        assert [wire for wire, *_ in cells] == [
            "e2b", "jupyter", "e2b", "jupyter", "jupyter", "e2b", "e2b",
        ]  # fmt: skip

        # Who joined leaves, and the sandbox goes on.
        assert (await client.delete(f"/api/kernels/{joined['id']}")).status_code == 204
        assert (await run(chat, "total"))[0]["text"] == "42"


async def test_a_chat_is_where_it_thinks_it_is_after_jupyter_s_clients_ended_its_kernel(server: Server) -> None:
    async with sandbox(server) as (chat, said), jupyter(server) as client, opened(server, said["sandboxID"]) as one:
        asked = "import os; (os.getcwd(), os.environ['HOME'])"
        assert (await run(chat, asked))[0]["text"] == "('/home/user', '/home/user')"
        assert (await client.post(f"/api/kernels/{said['sandboxID']}/restart")).status_code == 200
        assert (await run(chat, asked))[0]["text"] == "('/home/user', '/home/user')"
        await one.run("import os; os._exit(1)")
        assert (await run(chat, asked))[0]["text"] == "('/home/user', '/home/user')"


def history(document: Any) -> list[tuple[str, str, str, str]]:
    """Return the cells of a notebook: by which wire, by whom, their code, and what they wrote or returned."""
    nbformat.validate(document)
    found = []
    for cell in document["cells"]:
        shown = "".join(
            one.get("text", "") or one.get("data", {}).get("text/plain", "") for one in cell.get("outputs", ())
        )
        about = cell["metadata"]["sandbox"]
        found.append((about["wire"], about["who"], cell["source"], shown))
    return found


async def test_commands_and_files_of_other_wires_are_not_shown(server: Server) -> None:
    """They are cells of ours, which no person wrote."""
    async with sandbox(server) as (chat, said), jupyter(server) as client, opened(server, said["sandboxID"]) as one:
        headers = {"E2b-Sandbox-Port": "49983"}
        for call in ("Start", "List"):
            body = {"process": {"cmd": "/bin/echo", "args": ["secret"]}} if call == "Start" else {}
            content = json.dumps(body).encode()
            start = b"\0" + len(content).to_bytes(4) + content if call == "Start" else content
            kind = "application/connect+json" if call == "Start" else "application/json"
            answer = await chat.post(
                f"/process.Process/{call}", headers={**headers, "Content-Type": kind}, content=start
            )
            assert answer.status_code == 200
        await chat.post("/files?path=a", headers={**headers, "Content-Type": "application/octet-stream"}, content=b"x")
        await run(chat, "'the control'")
        await one.until(lambda found: found["msg_type"] == "execute_result")
        assert {found["msg_type"] for found in one.heard} <= {"status", "execute_input", "execute_result"}
        assert [found["content"]["code"] for found in one.heard if found["msg_type"] == "execute_input"] == [
            "'the control'"
        ]
        cells = history((await client.get(f"/api/kernels/{said['sandboxID']}/notebook")).json())
        assert [code for _, _, code, _ in cells] == ["'the control'"]


# --- what is hostile ---


@pytest.mark.parametrize("v1", [False, True])
@pytest.mark.parametrize(("data", "code"), [("x", 1007), (b"\0\0\0\1", 1007), ("x" * (11 << 20), 1009)])
async def test_what_is_no_message_ends_its_connection_and_nothing_else(
    shared: str, server: Server, data: str | bytes, code: int, v1: bool
) -> None:
    async with opened(server, shared, v1=v1, token=BOB) as one, opened(server, shared, token=BOB) as other:
        await one.connection.send(data)
        with pytest.raises(ConnectionClosed) as closed:
            await one.until(lambda _: False)
        assert closed.value.rcvd is not None
        assert (closed.value.rcvd.code, bool(closed.value.rcvd.reason)) == (code, True)
        assert await other.answered()


def upgraded(server: Server, kernel: str) -> socket.socket:
    """Return a connection that is a WebSocket, without a client that knows how to behave."""
    port = int(server.url.rpartition(":")[2])
    raw = socket.create_connection(("127.0.0.1", port), timeout=20)
    raw.sendall(
        f"GET /jupyter/api/kernels/{kernel}/channels?token={TOKENS['bob']} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n"
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        head += raw.recv(1)
    assert head.startswith(b"HTTP/1.1 101"), head
    return raw


def test_a_frame_of_4_gb_that_is_announced_costs_nothing(shared: str, server: Server) -> None:
    before = psutil.Process(server.process.pid).memory_info().rss
    with upgraded(server, shared) as raw:
        raw.sendall(struct.pack("!BBQ", 0x82, 0xFF, 4 << 30) + b"\0\0\0\0")
        received = b""
        while piece := raw.recv(65536):
            received += piece
    assert struct.pack("!H", 1009) in received
    assert psutil.Process(server.process.pid).memory_info().rss - before < 64 << 20


async def test_who_does_not_read_loses_the_connection_and_costs_nobody_else_anything(
    shared: str, server: Server
) -> None:
    process = psutil.Process(server.process.pid)
    async with opened(server, shared, token=BOB) as other, jupyter(server, BOB) as client:
        before = process.memory_info().rss
        with upgraded(server, shared):
            assert (await client.get(f"/api/kernels/{shared}")).json()["connections"] == 2
            parent = await other.send(
                request("execute_request", {"code": LARGE, **EXECUTE, "allow_stdin": False, "silent": True})
            )
            said = await other.idle(parent)
            assert len(text(said)) == 60 << 20
            async with within(20):
                while (await client.get(f"/api/kernels/{shared}")).json()["connections"] == 2:
                    await other.answered()
        assert process.memory_info().rss - before < 4 * jupyter_channels.MAX_UNSENT
        assert await other.answered()


LARGE = "import sys\nfor _ in range(60): print('x' * ((1 << 20) - 1), flush=True)"


async def test_requests_that_wait_are_bounded_in_bytes(shared: str, server: Server) -> None:
    async with opened(server, shared, token=BOB) as one, opened(server, shared, token=BOB) as other:
        await other.send(request("execute_request", {"code": "input()", **EXECUTE}))
        await other.until(lambda found: found["msg_type"] == "input_request")
        size = 8 << 20
        for _ in range(jupyter_front.MAX_HELD // size):
            await one.send(request("execute_request", {"code": "1", "more": "#" * size, **EXECUTE}))
        with pytest.raises(ConnectionClosed) as closed:
            await one.until(lambda _: False)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1008
        await other.send(request("input_reply", {"value": ""}, "stdin"))
        assert text(await other.run("'the control'")) == "'the control'"
        assert text(await other.run("7", more="#" * size)) == "7", "the control: those that waited have ended"


async def test_a_flood_of_messages_leaves_room_for_others(shared: str, server: Server) -> None:
    async with opened(server, shared, token=BOB) as one, jupyter(server) as client:
        small = [json.dumps(request(kind)) for kind in ("kernel_info_request", "comm_info_request", "comm_msg")]

        async def flood() -> None:
            for number in range(600):
                await one.connection.send(small[number % 3])
            await one.send(last)

        last = request("is_complete_request", {"code": "1"})
        flooding, reading = asyncio.create_task(flood()), asyncio.create_task(one.idle(last["header"]["msg_id"]))
        async with within(20):
            while not flooding.done():
                assert (await client.get("/api/kernels")).status_code == 200
        await flooding
        assert await reading
    async with opened(server, shared, token=BOB) as other:
        assert await other.answered()


async def test_a_sandbox_has_so_many_connections(shared: str, server: Server) -> None:
    held = [await connect(address(server, shared, BOB)) for _ in range(jupyter_front.MAX_SOCKETS)]
    assert await refused(server, address(server, shared, BOB)) == 403
    for one in held:
        await one.close()
    async with opened(server, shared, token=BOB) as again:
        assert await again.answered(), "the control"
