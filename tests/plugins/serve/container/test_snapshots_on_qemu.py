"""Snapshots and copies over E2B's wire, by a real server whose sandboxes are machines.

Machines are emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS, options
from tests.plugins.serve.container.server import Server
from tests.plugins.serve.container.test_e2b_wire import call, run, streamed
from tests.support.engines import ONLY

pytest.importorskip("sandbox_kernel.plugins.qemu", reason="the plugin qemu is not here")
pytestmark = [
    pytest.mark.skipif(ONLY != "qemu", reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(600),
]

PROGRAM = """
import sys
from pathlib import Path
from sandbox_kernel.__main__ import main
from sandbox_kernel.plugins.qemu.snapshots import store
from sandbox_kernel.plugins.qemu import saved_states
store.usual_folder = lambda: {folder!r} + "/snapshots"
saved_states.folder_of_user = lambda: Path({folder!r}, "states")
sys.exit(main(sys.argv[1:]))
"""
"""The command, with folders of the test's own in place of the user's."""
SECONDS = 300
"""For one request: a machine starts from nothing, and computes a tenth as fast."""


class Machines:
    """The servers of one folder, one after another, and a client of each tenant."""

    def __init__(self, folder: Path) -> None:
        from tests.plugins.qemu.engine import machine_of_tests

        class OnQemu(Server):
            program = ("-c", PROGRAM.format(folder=str(folder)))

        self._server = OnQemu
        self._arguments = ("--engine", "qemu", "--image", machine_of_tests(), *options(folder))
        self._arguments += ("--start-timeout", str(SECONDS), "--cell-timeout", str(SECONDS))
        self.server: Server = self._server(*self._arguments)

    def start_again(self) -> None:
        self.server.close()
        self.server = self._server(*self._arguments)

    async def ask(self, method: str, path: str, tenant: str = "ann", **body: Any) -> tuple[int, Any]:
        content: dict[str, Any] = {"json": body} if method == "POST" else {}
        async with httpx2.AsyncClient(base_url=self.server.url, timeout=SECONDS) as client:
            answer = await client.request(method, path, headers={"X-API-Key": TOKENS[tenant]}, **content)
        return answer.status_code, answer.json() if answer.content else None

    async def sandbox(self, held: AsyncExitStack, template: str = "base") -> dict[str, Any]:
        status, said = await self.ask("POST", "/v2/sandboxes", templateID=template, timeout=SECONDS)
        assert status == 201, said
        return self._held(held, said)

    async def copies(self, held: AsyncExitStack, of: dict[str, Any], count: int) -> list[dict[str, Any]]:
        path = f"/sandboxes/{of['sandboxID']}/fork"
        status, said = await self.ask("POST", path, count=count, timeout=SECONDS)
        assert status == 201, said
        return [self._held(held, one["sandbox"]) for one in said]

    def inside(self, sandbox: dict[str, Any]) -> httpx2.AsyncClient:
        """Return a client with the tokens of a sandbox."""
        headers = {
            "E2b-Sandbox-Id": sandbox["sandboxID"],
            "E2b-Sandbox-Port": "49999",
            "E2B-Traffic-Access-Token": sandbox["trafficAccessToken"],
            "X-Access-Token": sandbox["envdAccessToken"],
        }
        return httpx2.AsyncClient(base_url=self.server.url, headers=headers, timeout=SECONDS)

    async def run(self, sandbox: dict[str, Any], code: str) -> str | None:
        """Run a cell, and return the text of its value."""
        async with self.inside(sandbox) as client:
            lines = await run(client, code)
        assert not [line for line in lines if line["type"] == "error"], lines
        return next((line["text"] for line in lines if line["type"] == "result"), None)

    def _held(self, held: AsyncExitStack, sandbox: dict[str, Any]) -> dict[str, Any]:
        held.push_async_callback(self.ask, "DELETE", f"/sandboxes/{sandbox['sandboxID']}")
        return sandbox


@pytest.fixture(scope="module")
def machines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    one = Machines(tmp_path_factory.mktemp("served"))
    yield one
    one.server.close()


async def test_a_snapshot_goes_on_for_its_tenant_alone_and_by_the_next_server_too(machines: Machines) -> None:
    async with AsyncExitStack() as held:
        first = await machines.sandbox(held)
        await machines.run(first, "x = 41\nopen('kept.txt', 'w').write('kept')")
        path = f"/sandboxes/{first['sandboxID']}/snapshots"
        assert await machines.ask("POST", path, name="taken") == (201, {"snapshotID": "taken", "names": ["taken"]})
        assert (await machines.ask("POST", path, name="taken"))[0] == 409
        assert await machines.run(first, "x += 10; x") == "51", "it goes on by itself"
        again = await machines.sandbox(held, "taken")
        assert again["templateID"] == "taken"
        assert await machines.run(again, "import os; x += 1; x, open('kept.txt').read(), os.getcwd()") == (
            "(42, 'kept', '/home/user')"
        )
        listed = [{"snapshotID": "taken", "names": ["taken"]}]
        assert await machines.ask("GET", "/snapshots") == (200, listed)
        assert await machines.ask("GET", "/snapshots", "bob") == (200, [])
        assert (await machines.ask("POST", "/v2/sandboxes", "bob", templateID="taken"))[0] == 404
        assert (await machines.ask("DELETE", "/templates/taken", "bob"))[0] == 404
        assert (await machines.ask("POST", path, "bob", name="theirs"))[0] == 404
    await asyncio.to_thread(machines.start_again)
    assert await machines.ask("GET", "/sandboxes") == (200, []), "machines end with their server"
    assert await machines.ask("GET", "/snapshots") == (200, listed)
    async with AsyncExitStack() as held:
        assert await machines.run(await machines.sandbox(held, "taken"), "x") == "41"
    assert (await machines.ask("DELETE", "/templates/taken"))[0] == 204
    assert await machines.ask("GET", "/snapshots") == (200, [])
    assert (await machines.ask("POST", "/v2/sandboxes", templateID="taken"))[0] == 404


async def test_copies_go_ways_of_their_own_and_count(machines: Machines) -> None:
    async with AsyncExitStack() as held:
        first = await machines.sandbox(held)
        await machines.run(first, "import random; x = 41; random.random()")
        copies = await machines.copies(held, first, 2)
        assert (await machines.ask("POST", "/v2/sandboxes", templateID="base"))[0] == 429
        assert (await machines.ask("POST", f"/sandboxes/{first['sandboxID']}/fork"))[0] == 429
        assert (await machines.ask("GET", f"/sandboxes/{copies[0]['sandboxID']}", "bob"))[0] == 404
        assert [await machines.run(one, "x += 1; x") for one in (first, *copies)] == ["42"] * 3
        assert len({await machines.run(one, "random.random()") for one in copies}) == 2


async def test_a_copy_is_copied_at_once(machines: Machines) -> None:
    """It draws random numbers with a first cell, which is the host's."""
    async with AsyncExitStack() as held:
        first = await machines.sandbox(held)
        await machines.run(first, "x = 41")
        (copy,) = await machines.copies(held, first, 1)
        (third,) = await machines.copies(held, copy, 1)
        assert await machines.run(third, "x") == "41"


async def test_a_command_that_is_heard_goes_on_in_both(machines: Machines) -> None:
    async with AsyncExitStack() as held:
        first = await machines.sandbox(held)
        client = await held.enter_async_context(machines.inside(first))
        process = {"cmd": "/bin/bash", "args": ["-c", "while true; do echo said; sleep 0.2; done"]}
        said = streamed(client, "process.Process/Start", process=process)
        pid = (await anext(said))["event"]["start"]["pid"]
        await anext(said)
        (copy,) = await machines.copies(held, first, 1)
        other = await held.enter_async_context(machines.inside(copy))
        for one in (client, other):
            assert [each["pid"] for each in (await call(one, "process.Process/List"))["processes"]] == [pid]
        heard = await anext(said)
        assert "data" in heard.get("event", {}), heard


async def test_a_snapshot_is_refused_while_a_cell_runs_and_while_paused(machines: Machines) -> None:
    async with AsyncExitStack() as held:
        first = await machines.sandbox(held)
        path = f"/sandboxes/{first['sandboxID']}"
        await machines.run(first, "x = 41")
        async with machines.inside(first) as client:
            code = "import time\nprint('begun', flush=True)\ntime.sleep(100)"
            async with client.stream("POST", "/execute", json={"code": code}) as answer:
                assert json.loads(await anext(answer.aiter_lines()))["text"] == "begun\n"
                status, said = await machines.ask("POST", f"{path}/snapshots", name="busy")
                assert (status, said["error"]) == (400, "snapshot-busy")
        assert await machines.run(first, "x") == "41"
        assert (await machines.ask("POST", f"{path}/pause"))[0] == 204
        assert (await machines.ask("POST", f"{path}/snapshots", name="paused"))[0] == 409
        assert (await machines.ask("POST", f"{path}/connect", timeout=SECONDS))[0] == 201
        assert await machines.run(first, "x") == "41"
        assert await machines.ask("GET", "/snapshots") == (200, [])
