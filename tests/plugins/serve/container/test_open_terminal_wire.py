"""Open Terminal's wire against a real server, with real sandboxes."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.patience import within


class User:
    """A user of Open WebUI, in a chat."""

    def __init__(self, server: Server, user: str = "u1", chat: str = "c1", tenant: str = "ann") -> None:
        self.server, self.user, self.token = server, user, TOKENS[tenant]
        headers = {"Authorization": f"Bearer {self.token}", "X-User-Id": user, "X-Session-Id": chat}
        self.http = httpx2.AsyncClient(base_url=f"{server.url}/open-terminal", headers=headers, timeout=60)

    async def ask(self, method: str, path: str, status: int = 200, **given: Any) -> Any:
        answer = await self.http.request(method, path, **given)
        assert answer.status_code == status, answer.text
        return answer.json()

    @asynccontextmanager
    async def at(
        self, terminal: str, user: str | None = None, token: str | None = None
    ) -> AsyncIterator[ClientConnection]:
        url = f"{self.server.url.replace('http', 'ws')}/open-terminal/api/terminals/{terminal}"
        async with connect(f"{url}?user_id={self.user if user is None else user}", max_size=None) as socket:
            await socket.send(json.dumps({"type": "auth", "token": self.token if token is None else token}))
            yield socket


@asynccontextmanager
async def user(server: Server, **given: str) -> AsyncIterator[User]:
    one = User(server, **given)
    async with one.http:
        yield one


async def seen(socket: ClientConnection, words: bytes) -> bytes:
    """Read until something is shown."""
    found = b""
    async with within(20):
        while words not in found:
            piece = await socket.recv()
            assert isinstance(piece, bytes)
            found += piece
    return found


async def test_files_of_a_user_and_of_nobody_else(server: Server) -> None:
    async with user(server) as ann, user(server, tenant="bob") as bob:
        await ann.ask("POST", "/files/write", json={"path": "d/a.py", "content": "import os\nprint('é')\n"})
        assert (await ann.ask("POST", "/files/cwd", json={"path": "d"}))["cwd"] == "/home/user/d"
        assert (await ann.ask("GET", "/files/read?path=a.py&start_line=2"))["content"] == "print('é')\n"
        chunk = {"target": "é", "replacement": "x"}
        await ann.ask("POST", "/files/replace", json={"path": "a.py", "replacements": [chunk]})
        found = await ann.ask("GET", "/files/grep", params={"query": r"print.*'x", "path": "~", "include": "*.py"})
        assert [(row["file"], row["line"]) for row in found["matches"]] == [("/home/user/d/a.py", 2)]
        for path, rows in (
            ("/files/glob?pattern=*.py&path=~", "matches"),
            ("/files/search?query=a&path=~", "results"),
            ("/files/matches?query=PRINT&path=~", "results"),
        ):
            assert len((await ann.ask("GET", path))[rows]) == 1
        assert "Invalid regex" in (await ann.ask("GET", "/files/grep?query=(", 400))["detail"]
        packed = await ann.http.post("/files/archive", json={"paths": ["~/d"]})
        assert zipfile.ZipFile(io.BytesIO(packed.content)).namelist() == ["d/a.py"]
        sent = await ann.ask("POST", "/files/upload?directory=~/up", files={"file": ("../../b.html", b"<script>")})
        assert sent == {"path": "/home/user/up/b.html", "size": 8}
        page = await ann.http.get("/files/serve/home/user/up/b.html")
        assert (page.content, page.headers["content-security-policy"]) == (b"<script>", "sandbox allow-scripts")
        assert [row["name"] for row in (await ann.ask("GET", "/files/list?directory=~"))["entries"]] == ["d", "up"]
        assert (await bob.ask("GET", "/files/list"))["entries"] == []


async def test_commands_run_on_and_are_asked_for_what_they_say(server: Server) -> None:
    async with user(server) as ann, user(server, chat="c2") as other:
        done = await ann.ask("POST", "/execute?wait=20", json={"command": "cd ~; echo $A; exit 3", "env": {"A": "a"}})
        assert (done["status"], done["exit_code"], done["output"]) == ("done", 3, [{"type": "stdout", "data": "a\n"}])
        begun = await ann.ask("POST", "/execute", json={"command": "read x; echo got $x; sleep 99"})
        assert (begun["status"], begun["output"]) == ("running", [])
        path = f"/execute/{begun['id']}"
        await other.ask("GET", f"{path}/status", 404)
        await other.ask("DELETE", path, 404)
        await ann.ask("POST", f"{path}/input", json={"input": r"hello\n"})
        async with within(20):
            while not (said := await ann.ask("GET", f"{path}/status?wait=0.2"))["output"]:
                pass
        assert said["output"] == [{"type": "stdout", "data": "got hello\n"}]
        assert (await ann.ask("GET", f"{path}/status?offset=1"))["output"] == []
        assert await ann.ask("DELETE", path) == {"status": "killed"}
        assert (await ann.ask("GET", f"{path}/status"))["status"] == "killed"


async def test_a_notebook_s_cell_runs_and_is_written(server: Server) -> None:
    cell: dict[str, Any] = {
        "cell_type": "code",
        "source": ["x = 1\n", "x + 1"],
        "metadata": {},
        "outputs": [],
        "execution_count": None,
    }
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    async with user(server) as ann:
        await ann.ask("POST", "/files/write", json={"path": "~/n.ipynb", "content": json.dumps(notebook)})
        path = f"/notebooks/{(await ann.ask('POST', '/notebooks', json={'path': '~/n.ipynb'}))['id']}"
        done = await ann.ask("POST", f"{path}/execute", json={"cell_index": 0})
        assert (done["status"], done["outputs"][0]["data"]["text/plain"]) == ("ok", "2")
        failed = await ann.ask("POST", f"{path}/execute", json={"cell_index": 0, "source": "1/0"})
        assert (failed["status"], failed["outputs"][0]["ename"]) == ("error", "ZeroDivisionError")
        await ann.ask("POST", f"{path}/execute", 400, json={"cell_index": 1})
        written = json.loads((await ann.ask("GET", "/files/read?path=~/n.ipynb"))["content"])
        assert written["cells"][0]["source"] == "1/0"
        assert await ann.ask("DELETE", path) == {"status": "stopped"}
        await ann.ask("DELETE", "/files/delete?path=~/n.ipynb")


async def test_a_terminal_is_its_user_s_and_one_connection_s(server: Server) -> None:
    async with user(server) as ann:
        made = await ann.ask("POST", "/api/terminals")
        for wrong, code in (
            ({"token": "wrong"}, 4001),
            ({"token": TOKENS["bob"]}, 4004),
            ({"user": "u2"}, 4004),
            ({"user": ""}, 4004),
        ):
            async with ann.at(made["id"], **wrong) as socket:
                with pytest.raises(ConnectionClosed):
                    async with within(20):
                        await socket.recv()
                assert socket.close_code == code, wrong
        async with ann.at(made["id"]) as socket:
            await socket.send(json.dumps({"type": "resize", "rows": 30, "cols": 100}))
            await socket.send(b"stty size\n")
            await seen(socket, b"30 100")
            async with ann.at(made["id"]) as second:
                with pytest.raises(ConnectionClosed):
                    async with within(20):
                        await second.recv()
                assert second.close_code == 4009
            await ann.ask("POST", "/api/terminals/user/input", json={"input": "echo $((6 * 7))\n"})
            await seen(socket, b"42")
            assert "42" in (await ann.ask("GET", "/api/terminals/user/output"))["output"]
            for nonsense in ("[", "[]", '{"type": "resize", "rows": -1}', '{"type": "resize", "cols": 1e9}'):
                await socket.send(nonsense)
            await socket.send(b"echo still $((1 + 1))\n")
            await seen(socket, b"still 2")
        async with within(20):
            while await ann.ask("GET", "/api/terminals"):
                pass


async def test_a_client_that_floods_or_never_reads_costs_nobody_else_anything(server: Server) -> None:
    async with user(server) as ann, user(server, tenant="bob") as bob:
        await bob.ask("GET", "/files/list")
        made = await ann.ask("POST", "/api/terminals")
        async with ann.at(made["id"]) as socket:
            await socket.send(b"yes 0123456789012345678901234567890123456789\n")
            flood = asyncio.create_task(_flood(socket))
            async with within(10):
                for _ in range(10):
                    await bob.ask("GET", "/files/list")
            flood.cancel()
            await asyncio.gather(flood, return_exceptions=True)
            socket.transport.abort()
        async with within(30):
            while await ann.ask("GET", "/api/terminals"):
                pass


async def _flood(socket: ClientConnection) -> None:
    while True:
        await socket.send(b"x" * 1000)
