"""A real JupyterLab in a browser, whose gateway is a real server: an analyst joins the sandbox of a chat."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from selenium.webdriver.common.by import By

from tests.browser.lab import eventually, running_lab
from tests.browser.person import TOOLBAR, Person
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

CARD = ".jp-LauncherCard[data-category='Notebook']"


class Chat:
    """A client of E2B's wire."""

    def __init__(self, server: Server) -> None:
        self._client = httpx2.Client(base_url=server.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=60)
        made = self._client.post("/v2/sandboxes", json={"templateID": "base", "metadata": {"name": "sales chat"}})
        said = made.json()
        self.id = said["sandboxID"]
        self._client.headers |= {
            "E2b-Sandbox-Id": self.id,
            "E2b-Sandbox-Port": "49999",
            "E2B-Traffic-Access-Token": said["trafficAccessToken"],
        }

    def run(self, code: str) -> str:
        answer = self._client.post("/execute", json={"code": code})
        assert answer.status_code == 200, answer.text
        return answer.text

    def close(self) -> None:
        self._client.delete(f"/sandboxes/{self.id}")
        self._client.close()


@pytest.fixture
def chat(server: Server) -> Iterator[Chat]:
    one = Chat(server)
    yield one
    one.close()


@pytest.fixture
def person(server: Server, chat: Chat, tmp_path: Path) -> Iterator[Person]:
    words = (f"--gateway-url={server.url}/jupyter", f"--GatewayClient.auth_token={TOKENS['ann']}")
    with running_lab(tmp_path, tmp_path / "none", *words) as lab:
        lab.browser.get(f"{lab.url}lab?reset&token={lab.token}")
        somebody = Person(lab, Path(os.environ.get("SANDBOX_KERNEL_SCREENSHOTS") or tmp_path / "screenshots"))
        yield somebody
        somebody.picture("end")


@pytest.mark.long
@pytest.mark.timeout(180)
def test_an_analyst_joins_a_chat_s_sandbox_and_the_chat_goes_on(person: Person, chat: Chat) -> None:
    chat.run("total = 41")
    logo = person.see(CARD, r"Join: sales chat$").find_element(By.CSS_SELECTOR, "img")
    eventually(lambda: logo.get_property("naturalWidth"), "the logo is a picture")
    person.see(CARD, r"^Python 3 \(sandbox\)$")
    person.picture("launcher")
    person.click(CARD, r"Join: sales chat$")
    person.see(f"{TOOLBAR} .jp-KernelName", "^Join: sales chat$")
    person.await_status("idle")

    place = person.run("total += 1; total")
    assert person.lab.text(place) == ["42"]
    assert '"text":"42"' in chat.run("total")

    # The chat's cell is interrupted by a click.
    said: list[Any] = []
    cell = threading.Thread(target=lambda: said.append(chat.run("import time; time.sleep(100)")))
    cell.start()
    person.await_status("busy")
    person.command("notebook:interrupt-kernel")
    cell.join(30)
    assert "KeyboardInterrupt" in said[0]
    person.await_status("idle")

    # A new kernel has the files of the one before.
    person.run("open('kept', 'w').write('kept')")
    person.menu("Kernel", "Restart Kernel…")
    person.click(".jp-Dialog-button.jp-mod-accept")
    person.await_status("idle")
    place = person.run("print(open('kept').read(), 'total' in globals())")
    assert person.lab.text(place) == ["kept False"]
    person.picture("joined")

    # Who joined leaves: the sandbox goes on.
    person.menu("Kernel", "Shut Down Kernel")
    eventually(lambda: person.lab.ask("api/kernels") == [], "JupyterLab has no kernel")
    assert '"text":"kept"' in chat.run("open('kept').read()")
