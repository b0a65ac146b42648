"""`sandbox-kernel mcp`: its options, its start and its end. What needs the extra is imported when it runs.

Whatever ends the server, a signal, a closed stdin or SIGKILL, ends all sandboxes: each hangs on a pipe of this process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from ...config.forms import seconds
from ...config.sources import from_files_for_all, merged, resolve
from ...core.codes import EndCode
from ...core.errors import ConfigurationError
from ...core.model import Settings
from ...engines.select import with_largest_image
from .. import index
from .server_process import asked_to_end, closed_in_time, count, require_packages, say

if TYPE_CHECKING:
    from .clients import ServerLimits

NEEDED = ("mcp", "mcp_types", "pydantic")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--http",
        action="store_true",
        help="serve streamable HTTP, with the server of `sandbox-kernel serve`; without it, stdin and stdout",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=count, default=8808, help="the port; 0 for any free port (default: %(default)s)")
    parser.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="who may use the server: a name and a token on each line. A missing file is created with a new token. "
        "Without this option, it is that of `sandbox-kernel serve`",
    )
    parser.add_argument("--allow-remote", action="store_true", help="allow an address that others can reach")
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a name by which clients reach the server, besides localhost; may be repeated",
    )
    parser.add_argument(
        "--away-timeout",
        default="60",
        metavar="SECONDS",
        help="over HTTP: how long the sessions of a client that has disappeared are kept (default: %(default)s)",
    )
    parser.add_argument(
        "--sessions-per-client", type=count, default=4, metavar="N", help="sessions of one client (default: 4)"
    )
    parser.add_argument("--sessions", type=count, default=16, metavar="N", help="sessions of all clients (default: 16)")
    parser.add_argument(
        "--text-limit",
        type=count,
        default=20_000,
        metavar="N",
        help="characters of one text in an answer; a longer text becomes a resource (default: %(default)s)",
    )


def serve(options: argparse.Namespace) -> int:
    """Serve sandboxes to hosts of language models (Model Context Protocol), over stdio or HTTP.

    Each session of a client is its own sandbox, with the settings below. The sessions of a client end with its
    connection, and all sessions end with the server. It needs the package mcp, and over HTTP those of
    `sandbox-kernel serve`. docs/mcp.md shows how to set up hosts.
    """
    given = merged(from_files_for_all(), options.values)
    settings = resolve(given)
    require_packages(NEEDED, "mcp", "the MCP server")
    from .clients import ServerLimits

    for name in ("sessions", "sessions_per_client"):
        if not 1 <= getattr(options, name) <= 1000:
            raise ConfigurationError(EndCode.WRONG_SETTING, f"{name} must be 1 to 1000", setting=name.replace("_", "-"))
    if not 1000 <= options.text_limit <= 10_000_000:
        raise ConfigurationError(EndCode.WRONG_SETTING, "text-limit must be 1,000 to 10,000,000", setting="text-limit")
    limits = ServerLimits(
        sessions_per_client=min(options.sessions_per_client, options.sessions),
        text_characters=options.text_limit,
        away_seconds=seconds(1)("away-timeout", options.away_timeout),
    )
    if options.http:
        return _over_http(options, limits)
    if "image" not in given:
        settings = asyncio.run(with_largest_image(settings))
        say(f"sandboxes have the image {settings.image}")
    return asyncio.run(_stdio(settings, limits))


def _over_http(options: argparse.Namespace, limits: ServerLimits) -> int:
    """Start the server of the plugin `serve`, with what these options mean to it. Raises `ConfigurationError`."""
    serve = next(one for one in index.plugin("serve", setting="http").commands if one.name == "serve")
    parser = argparse.ArgumentParser(allow_abbrev=False)
    if serve.add_options is not None:
        serve.add_options(parser)
    given = {**vars(options), "mcp": limits, "sandboxes": options.sessions, "sandboxes_per_tenant": options.sessions}
    return serve.run(parser.parse_args([], argparse.Namespace(**given)))


async def _stdio(settings: Settings, limits: ServerLimits) -> int:
    from mcp.server.stdio import stdio_server

    from .clients import McpClient, own_sandbox
    from .server import make_server

    client = McpClient(limits, lambda _: own_sandbox(settings))
    server = make_server(settings, limits, lambda _: client, http=False)

    async def run() -> None:
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())

    serving = asyncio.create_task(run())
    stopping = asyncio.create_task(asked_to_end().wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    await closed_in_time(client.leave())
    if serving.done() and (error := serving.exception()) is not None:
        say(f"the client was lost: {error!r}")
    # A thread of the transport may be waiting for stdin still, and would hold up an orderly end for ever.
    os._exit(0)
