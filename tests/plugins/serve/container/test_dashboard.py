"""The page to look at, in a real browser, about a server with two tenants, one of them in trouble."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import httpx2
from selenium.webdriver.common.by import By
from selenium.webdriver.remote.webdriver import WebDriver

from tests.browser.lab import chromium
from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server
from tests.support.kernels import eventually

OPERATOR = "e2b_" + "9" * 40
LIMIT_MIB = 512
HELD = f"""
with open("/sys/fs/cgroup/memory.current" if __import__("os").path.exists("/sys/fs/cgroup/memory.current")
          else "/sys/fs/cgroup/memory/memory.usage_in_bytes") as file:
    used = int(file.read())
held = b"x" * int({LIMIT_MIB} * 2**20 * 0.95 - used)
"""
BLOCKED = """
const made = document.createElement("script");
made.textContent = "document.title = 'bad'";
document.body.append(made);
return document.title;
"""


def tokens(folder: Path) -> Path:
    file = folder / "tokens"
    file.touch(mode=0o600)
    lines = {**TOKENS, "metrics": OPERATOR}
    file.write_text("".join(f"{name} {token}\n" for name, token in lines.items()))
    return file


def made(client: httpx2.Client) -> httpx2.Response:
    return client.post("/v2/sandboxes", json={"templateID": "base"})


def words_of(browser: WebDriver) -> str:
    return browser.find_element(By.TAG_NAME, "main").text


def test_the_operator_sees_who_has_what_and_who_is_in_trouble(tmp_path: Path) -> None:
    limits = ("--memory", f"{LIMIT_MIB}M", "--sandboxes-per-tenant", "1")
    with (
        closing(Server("--token-file", str(tokens(tmp_path)), *limits)) as server,
        httpx2.Client(base_url=server.url, headers={"X-API-Key": TOKENS["ann"]}, timeout=60) as ann,
        httpx2.Client(base_url=server.url, headers={"X-API-Key": TOKENS["bob"]}, timeout=60) as bob,
        chromium(tmp_path) as browser,
    ):
        quiet, busy = made(ann).json(), made(bob).json()
        assert made(bob).status_code == 429
        wire = {"E2b-Sandbox-Id": busy["sandboxID"], "E2b-Sandbox-Port": "49999"}
        wire["E2B-Traffic-Access-Token"] = busy["trafficAccessToken"]
        assert bob.post("/execute", json={"code": HELD}, headers=wire).status_code == 200

        browser.get(f"{server.url}/dashboard")
        browser.find_element(By.ID, "token").send_keys("e2b_" + "0" * 40 + "\n")
        eventually(lambda: "opens nothing" in browser.page_source, 20, "a wrong token is refused")
        browser.get(f"{server.url}/dashboard#{OPERATOR}")
        browser.refresh()
        eventually(lambda: "memory-high" in words_of(browser), 30, "the sandbox that is full is seen")
        said = words_of(browser)
        assert "requests without a token" in said
        for name, one in (("ann", quiet), ("bob", busy)):
            assert name in said
            assert one["sandboxID"][:12] in said
        rows = [row.text for row in browser.find_elements(By.CSS_SELECTOR, "tr.trouble")]
        assert not [row for row in rows if "ann" in row]
        assert "sandboxes-of-tenant 1" in next(row for row in rows if row.startswith("bob"))
        assert OPERATOR not in browser.current_url
        picture = Path(os.environ.get("SANDBOX_KERNEL_PICTURES", tmp_path), "dashboard-serve.png")
        browser.set_window_size(1300, 700)
        assert browser.save_screenshot(str(picture))
        assert browser.execute_script(BLOCKED) == "Sandboxes", "no script runs but the page's own"

        browser.get(f"{server.url}/dashboard#{TOKENS['ann']}")
        browser.refresh()
        eventually(lambda: quiet["sandboxID"][:12] in words_of(browser), 30, "a tenant sees its own")
        assert busy["sandboxID"][:12] not in words_of(browser)
        assert "bob" not in words_of(browser)
