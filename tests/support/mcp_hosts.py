"""Real MCP servers for the tests, and the official client to talk to them."""

from __future__ import annotations

import asyncio
import base64
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import psutil
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent

from tests.support.kernels import arguments_of, containers_of, eventually

COMMAND = [sys.executable, "-m", "sandbox_kernel", "mcp"]
START_SECONDS = 30


def over_stdio(*arguments: str, mode: str = "auto", env: dict[str, str] | None = None) -> Client:
    """Return the official client with a server of its own, which ends with it; `env` is added to its environment."""
    return Client(StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *arguments], env=env), mode=mode)


class HttpServer:
    """A server on a free port of loopback."""

    def __init__(self, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "--http", "--port", "0", *arguments], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        guard = threading.Timer(START_SECONDS, self.process.kill)
        guard.start()
        self.url = self.process.stderr.readline().strip()
        said = self.process.stderr.readline().strip()
        guard.cancel()
        assert self.url.startswith("http://127.0.0.1:"), self.url
        self.token = said.removeprefix("token: ")
        self.log: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)

    @property
    def pid(self) -> int:
        return self.process.pid

    @asynccontextmanager
    async def client(self, token: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(20)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        eventually(lambda: not containers_of(self.pid), 10, "its containers are gone")


async def run(client: Client, code: str, **arguments: Any) -> CallToolResult:
    return await client.call_tool("run_code", {"code": code, **arguments})


def text_of(result: CallToolResult) -> str:
    """Return all text of a result, a block a line."""
    return "\n".join(block.text for block in result.content if isinstance(block, TextContent))


def code_in(result: CallToolResult) -> str:
    """Return why a call was refused, for programs."""
    return str((result.meta or {})["sandbox-kernel/code"])


def images_of(result: CallToolResult) -> list[bytes]:
    return [base64.b64decode(block.data) for block in result.content if isinstance(block, ImageContent)]


def links_of(result: CallToolResult) -> list[str]:
    return [block.uri for block in result.content if isinstance(block, ResourceLink)]


def blob_of(result: CallToolResult) -> bytes:
    """Return the binary content of a download."""
    (block,) = (block for block in result.content if isinstance(block, EmbeddedResource))
    assert isinstance(block.resource, BlobResourceContents)
    return base64.b64decode(block.resource.blob)


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    """Wait until something that has to be asked for holds. Fails when it does not in time."""
    end = asyncio.get_running_loop().time() + 30
    while not await condition():
        assert asyncio.get_running_loop().time() < end, f"not in time: {what}"
        await asyncio.sleep(0.05)  # the step of a bounded wait, not a wait itself


async def soon(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Do what `eventually` does beside the event loop."""
    return await asyncio.to_thread(eventually, condition, seconds, what)


def pid_of(mark: str) -> int:
    """Return the process id of the server that this process has started with `mark` among its arguments."""
    found = [child.pid for child in psutil.Process().children() if mark in arguments_of(child)]
    assert len(found) == 1, found
    return found[0]
