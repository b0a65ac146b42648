"""A page of another site in a real browser, which reaches the server on loopback, and even has a token of it.

The browser sends what the page asks for, and tells the page little of the answer: what counts is that nothing is done.
Chromium resolves `*.test` to this machine, as an attacker's name server does for rebinding.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.browser.lab import chromium
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.chromium import page

TOKEN = TOKENS["bob"]
PAGE = "<!DOCTYPE html><title>page</title><link rel=icon href=data:,>"
ASK = """
const [url, kernel, token, done] = arguments;
(async () => {
    const said = {};
    const kernels = `${url}/jupyter/api/kernels`;
    const plain = {method: 'POST', mode: 'no-cors', headers: {'Content-Type': 'text/plain'}, body: '{}'};
    await fetch(`${kernels}?token=${token}`, plain).catch(() => 0);
    said.read = await fetch(`${kernels}?token=${token}`).then(answer => answer.text(), error => 'not readable');
    said.socket = await new Promise(end => {
        const one = new WebSocket(`${kernels.replace('http', 'ws')}/${kernel}/channels?token=${token}`);
        one.onopen = () => end('open');
        one.onerror = () => end('refused');
    });
    done(said);
})();
"""


@pytest.fixture
def kernel(server: Server) -> Iterator[tuple[str, httpx2.Client]]:
    """A sandbox that is there, and a client of its tenant."""
    with httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:
        yield client.post("/jupyter/api/kernels", json={}).json()["id"], client
        for one in client.get("/sandboxes").json():
            client.delete(f"/sandboxes/{one['sandboxID']}")


def test_a_page_of_another_site_does_nothing_and_one_of_this_machine_does(
    server: Server, kernel: tuple[str, httpx2.Client], tmp_path: Path
) -> None:
    identity, client = kernel
    port = server.url.rpartition(":")[2]

    def count() -> int:
        return len(client.get("/sandboxes").json())

    with page(PAGE) as own, chromium(tmp_path) as browser:
        browser.set_script_timeout(60)

        def ask(origin: str) -> dict[str, Any]:
            browser.get(origin)
            found: dict[str, Any] = browser.execute_async_script(ASK, server.url, identity, TOKEN)
            return found

        for origin in (f"http://evil.test:{own}", f"http://localhost.test:{own}"):
            assert ask(origin) == {"read": "not readable", "socket": "refused"}
            assert count() == 1
        browser.get(f"http://evil.test:{port}/jupyter/api/kernels?token={TOKEN}")  # rebound: it is of the same origin
        assert identity not in browser.page_source
        assert "Invalid Host" in browser.page_source
        assert ask(f"http://127.0.0.1:{own}")["socket"] == "open", "the control: a page of this machine"
        assert count() == 2
        browser.get(f"http://127.0.0.1:{port}/jupyter/api/kernels?token={TOKEN}")
        assert identity in json.dumps(browser.page_source)
