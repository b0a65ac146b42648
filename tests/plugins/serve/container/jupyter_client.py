"""A client of Jupyter's wire for the tests: it sends what it is told, proper or not."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from websockets.asyncio.client import ClientConnection, connect

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.patience import within

V1 = "v1.kernel.websocket.jupyter.org"
EXECUTE = {"silent": False, "store_history": True, "user_expressions": {}, "allow_stdin": True, "stop_on_error": True}


def request(kind: str, content: dict[str, Any] | None = None, channel: str = "shell", **more: Any) -> dict[str, Any]:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "username": "alice", "session": "s", "version": "5.3"}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content or {}, "channel": channel}
    return message | more


class Client:
    """One WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        self.connection = connection
        self.v1 = connection.subprotocol == V1
        self.heard: list[dict[str, Any]] = []

    async def send(self, message: dict[str, Any]) -> str:
        """Send a message; return its id."""
        if self.v1:
            parts = [json.dumps(message[name]).encode() for name in ("header", "parent_header", "metadata", "content")]
            await self.connection.send(serialize_msg_to_ws_v1(parts, message["channel"]))
        else:
            await self.connection.send(json.dumps(message))
        return str(message["header"]["msg_id"])

    async def next(self) -> dict[str, Any]:
        data = await self.connection.recv()
        if self.v1:
            assert isinstance(data, bytes)
            channel, parts = deserialize_msg_from_ws_v1(data)
            header, parent, metadata, content = (json.loads(part) for part in parts[:4])
            found = {"header": header, "parent_header": parent, "metadata": metadata, "content": content}
            found |= {"channel": channel, "msg_type": header["msg_type"]}
        else:
            found = json.loads(data)
        self.heard.append(found)
        return found

    async def until(self, wanted: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return the first message that is wanted."""
        async with within(20):
            while not wanted(found := await self.next()):
                pass
        return found

    async def idle(self, parent: str) -> list[dict[str, Any]]:
        """Return what came of a request up to its idle."""
        done = ("status", "idle", parent)
        await self.until(lambda one: (one["msg_type"], one["content"].get("execution_state"), of(one)) == done)
        return [one for one in self.heard if of(one) == parent]

    async def run(self, code: str, **more: Any) -> list[dict[str, Any]]:
        parent = await self.send(request("execute_request", {"code": code, **EXECUTE, **more}))
        return await self.idle(parent)

    async def answered(self) -> bool:
        """Return whether the kernel says who it is."""
        parent = await self.send(request("kernel_info_request"))
        return any(one["msg_type"] == "kernel_info_reply" for one in await self.idle(parent))


def of(message: dict[str, Any]) -> str:
    return str(message["parent_header"].get("msg_id", ""))


def text(messages: list[dict[str, Any]]) -> str:
    """Return what a cell has written, and its value."""
    return "".join(
        one["content"].get("text", "") or one["content"]["data"]["text/plain"]
        for one in messages
        if one["msg_type"] in {"stream", "execute_result"}
    )


def address(server: Server, kernel: str, token: str | None = TOKENS["ann"]) -> str:
    query = "" if token is None else f"?token={token}"
    return f"{server.url.replace('http', 'ws')}/jupyter/api/kernels/{kernel}/channels{query}"


@asynccontextmanager
async def opened(
    server: Server, kernel: str, *, v1: bool = False, token: str = TOKENS["ann"], **more: Any
) -> AsyncIterator[Client]:
    subprotocols: Any = [V1] if v1 else None
    async with connect(address(server, kernel, token), subprotocols=subprotocols, max_size=None, **more) as connection:
        yield Client(connection)
