"""MCP at the same port: its sessions are sandboxes of the tenant, which other wires see."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.mcp_hosts import run, text_of, until


@asynccontextmanager
async def connected(server: Server, name: str) -> AsyncIterator[Client]:
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {TOKENS[name]}"}) as http,
        Client(streamable_http_client(f"{server.url}/mcp", http_client=http)) as client,
    ):
        yield client


async def sandboxes(server: Server, name: str) -> list[str]:
    async with httpx2.AsyncClient(base_url=server.url, headers={"X-API-Key": TOKENS[name]}) as client:
        return [one["sandboxID"] for one in (await client.get("/v2/sandboxes")).json()]


async def test_a_session_is_a_sandbox_of_its_tenant_until_its_client_goes(server: Server) -> None:
    async with connected(server, "ann") as ann, connected(server, "ann") as second, connected(server, "bob") as bob:
        assert text_of(await run(ann, "secret = 6 * 7\nsecret")).startswith("42")
        assert text_of(await run(ann, "secret")) == "42"
        for other in (second, bob):
            assert "NameError" in text_of(await run(other, "secret"))
        assert len(await sandboxes(server, "ann")) == 2
        assert len(await sandboxes(server, "bob")) == 1
        await run(ann, "1", session="third")
        full = await run(ann, "1", session="fourth")
        assert full.is_error
        assert "You have 3 sandboxes, and the limit is 3" in text_of(full)

    async def gone() -> bool:
        return not await sandboxes(server, "ann") + await sandboxes(server, "bob")

    await until(gone, "the sandboxes ended with the connections")


async def test_nobody_comes_in_without_a_token_of_this_server(server: Server) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with httpx2.AsyncClient(base_url=server.url) as client:
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Cookie": f"token={TOKENS['ann']}"}):
            for method in ("GET", "POST", "DELETE"):
                assert (await client.request(method, "/mcp", json=body, headers=headers)).status_code == 401
        right = {"Authorization": f"Bearer {TOKENS['ann']}", "Accept": "application/json, text/event-stream"}
        assert (await client.post("/mcp", json=body, headers=right)).status_code != 401
        assert (
            await client.post("/mcp", json=body, headers={**right, "Origin": "https://evil.example"})
        ).status_code == 403
