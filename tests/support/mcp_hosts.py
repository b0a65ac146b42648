"""Real MCP servers for the tests, and the official client to talk to them."""

from __future__ import annotations

import asyncio
import base64
import sys
from collections.abc import Callable
from typing import Any

import psutil
from mcp import Client, StdioServerParameters
from mcp_types import BlobResourceContents, CallToolResult, EmbeddedResource, ImageContent, ResourceLink, TextContent

from tests.support.kernels import arguments_of, eventually

COMMAND = [sys.executable, "-m", "sandbox_kernel", "mcp"]


def over_stdio(*arguments: str, mode: str = "auto", env: dict[str, str] | None = None) -> Client:
    """Return the official client with a server of its own, which ends with it; `env` is added to its environment."""
    return Client(StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *arguments], env=env), mode=mode)


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


async def soon(condition: Callable[[], object], seconds: float, what: str) -> float:
    """Do what `eventually` does beside the event loop."""
    return await asyncio.to_thread(eventually, condition, seconds, what)


def pid_of(mark: str) -> int:
    """Return the process id of the server that this process has started with `mark` among its arguments."""
    found = [child.pid for child in psutil.Process().children() if mark in arguments_of(child)]
    assert len(found) == 1, found
    return found[0]
