"""A real JupyterLab and a real Chromium, both on loopback, both gone afterwards.

Knows nothing of outputs. Chromium resolves `*.test` to this machine and no other name at all, so whatever a page tries,
no request leaves it.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import nbformat
import pytest
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.webelement import WebElement

from tests.support import chromium as chromium_support
from tests.support.labextension import BUILT
from tests.support.programs import program

WAIT = 60.0
"""Seconds for what takes ten on a quiet machine."""
ENDING = 60.0
"""Seconds for a server to end with all its kernels, before it is killed and the test fails."""
READS = 20
"""Times that outputs are read until the page replaced none of them meanwhile."""
QUIET = 2.0
"""Seconds without anything new, after which nothing is expected any more."""

SWITCHES = (
    *chromium_support.SWITCHES,
    "--disable-dev-shm-usage",
    "--window-size=1400,1000",
    "--host-resolver-rules=MAP *.test 127.0.0.1, EXCLUDE 127.0.0.1, MAP * ~NOTFOUND",
)

NO_WEBGL = "--disable-software-rasterizer"
"""For pages that draw nothing with WebGL: no process stands for a graphics card, and a page costs a tenth less."""

SETTINGS = {
    # Cells outside of the window are rendered too.
    "notebook-extension/tracker": {"windowingMode": "none", "autoStartDefaultKernel": True},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
    "docmanager-extension/plugin": {"autosave": False},
    "completer-extension/manager": {"providerTimeout": 30_000},  # a second is little on a machine that works
}


def eventually(condition: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)  # the step of a bounded wait


def settled(count: Callable[[], int]) -> None:
    """Wait until a count stays as it is."""
    end = time.monotonic() + WAIT
    last, since = count(), time.monotonic()
    while time.monotonic() - since < QUIET:
        assert time.monotonic() < end, "there was always something new"
        time.sleep(0.1)  # as above
        if (now := count()) != last:
            last, since = now, time.monotonic()


NOTEBOOK = "[...(window.jupyterapp?.shell?.widgets('main') ?? [])].find(one => one.content?.activeCellIndex >= 0)"
"""The notebook that is open, in JavaScript, whatever has the focus."""


class Server(NamedTuple):
    """Where a JupyterLab listens, and which process it is."""

    url: str
    token: str
    pid: int


class Somebody(NamedTuple):
    """An ordinary user, by number, and a Python that this user can start and that has what the tests' has."""

    user: int
    python: str


class Lab:
    """One JupyterLab with one browser in it."""

    def __init__(self, server: Server, folder: Path, browser: Chrome) -> None:
        self.url, self.token, self.pid = server
        self.folder, self.browser = folder, browser

    def open(self, kernel: str, *cells: str, page: str = "lab/tree", language: str = "python") -> None:
        """Open a new notebook of these cells, with a kernel that is ready; `page` is "notebooks" for Notebook 7."""
        document = nbformat.v4.new_notebook()
        document.metadata["kernelspec"] = {"name": kernel, "display_name": kernel, "language": language}
        document.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
        nbformat.write(document, self.folder / "notebook.ipynb")
        self.browser.get(f"{self.url}{page}/notebook.ipynb?reset&token={self.token}")
        ready = f"""const app = window.jupyterapp, panel = {NOTEBOOK};
            return panel?.context?.isReady && panel.content.widgets.length === arguments[0]
                && panel.sessionContext.session?.kernel?.status === 'idle'
                && app.commands.isEnabled('notebook:run-all-cells')"""
        eventually(lambda: self.js(ready, len(cells)), "a notebook whose kernel is idle")

    def js(self, code: str, *arguments: Any) -> Any:
        return self.browser.execute_script(code, *arguments)

    def run_all(self) -> None:
        """Run all cells and wait until all have ended and the last output is there."""
        count = len(self.cells())
        self.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        ended = f"""return {NOTEBOOK}.content.widgets
            .filter(cell => cell.model.executionCount > 0).length"""
        eventually(lambda: self.js(ended) >= count, "all cells have run")

    def cells(self) -> list[str]:
        """Return the sources of all cells as they stand now."""
        sources: list[str] = self.js(f"""return {NOTEBOOK}.content.widgets
            .map(cell => cell.model.sharedModel.getSource())""")
        return sources

    def output(self, cell: int) -> WebElement:
        """Return the output area of a cell."""
        return self.browser.find_elements("css selector", ".jp-Notebook .jp-CodeCell")[cell].find_element(
            "css selector", ".jp-OutputArea"
        )

    def text(self, cell: int) -> list[str]:
        """Return the outputs of a cell as a person reads them, all of one moment: a page replaces what it shows."""
        for _ in range(READS):
            with contextlib.suppress(StaleElementReferenceException):
                return [one.text for one in self.output(cell).find_elements("css selector", ".jp-OutputArea-output")]
        pytest.fail(f"the outputs of cell {cell} were replaced {READS} times while they were read")

    def language(self) -> dict[str, Any]:
        """Return what the page knows of the language of the notebook's kernel."""
        info = f"return {NOTEBOOK}.sessionContext.session.kernel.info.then(info => info.language_info)"
        return dict(self.js(info))

    def wait_for_pictures(self, place: WebElement) -> list[WebElement]:
        """Return the pictures of an element, once there is one and all are drawn."""
        drawn = """const all = [...arguments[0].querySelectorAll('img')];
            return all.length && all.every(one => one.complete && one.naturalWidth > 0)"""
        eventually(lambda: self.js(drawn, place), "pictures are drawn")
        return place.find_elements("css selector", "img")

    def ask(self, path: str, method: str = "GET") -> Any:
        """Ask the server, not the page; None where it has nothing to say."""
        headers = {"Authorization": f"token {self.token}"}
        request = urllib.request.Request(f"{self.url}{path}", headers=headers, method=method)  # noqa: S310
        with urllib.request.urlopen(request, timeout=WAIT) as answer:  # noqa: S310
            return json.loads(answer.read() or "null")

    def renew(self) -> None:
        """End all that runs, close all pages but an empty one, and forget what they have kept and said."""
        self.browser.switch_to.new_window("tab")
        empty = self.browser.current_window_handle
        for window in self.browser.window_handles:
            if window != empty:
                self.browser.switch_to.window(window)
                self.browser.close()
        self.browser.switch_to.window(empty)
        prepare(self.browser)
        self.browser.execute_cdp_cmd("Network.clearBrowserCookies", {})
        kept = {"origin": self.url.rstrip("/"), "storageTypes": "cookies,local_storage,indexeddb,service_workers"}
        self.browser.execute_cdp_cmd("Storage.clearDataForOrigin", kept)
        self.browser.get_log("browser")
        for kind, key in (("sessions", "id"), ("terminals", "name")):
            for one in self.ask(f"api/{kind}"):
                self.ask(f"api/{kind}/{one[key]}", "DELETE")
        eventually(lambda: self.ask("api/kernels") == [], "no kernel is left")


def prepare(browser: Chrome) -> None:
    """Set up the page that is shown."""
    browser.set_script_timeout(WAIT)
    browser.set_page_load_timeout(WAIT)
    # JupyterLab's current widget is the one with the focus, and no window of a busy machine need have any.
    browser.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})


def install(folder: Path, name: str, image: str, *settings: str, python: str = sys.executable) -> None:
    """Install a kernel for those who find kernels under a folder, to be started by `python`."""
    command = [python, "-m", "sandbox_kernel", "install", "--prefix", str(folder), "--name", name]
    subprocess.run([*command, "--image", image, *settings], check=True, capture_output=True, timeout=WAIT)


KERNELS = {
    "sandbox-python": ("--cell-timeout", "120"),
    "sandbox-strict": ("--cell-timeout", "120", "--outputs", "strict"),
    "sandbox-trusted": ("--cell-timeout", "120", "--outputs", "trusted"),
}
"""The kernels that tests of outputs need: names and settings."""


WALL = "sandbox_kernel.server_extension"


def install_all(folder: Path, image: str, kernels: Mapping[str, Sequence[str]] = KERNELS) -> Path:
    """Install kernels by name, each with its settings, and the extension of the checkout; return the folder."""
    shutil.copytree(BUILT, folder / "share/jupyter/labextensions" / BUILT.name)
    for name, settings in kernels.items():
        install(folder, name, image, *settings)
    return folder


@contextmanager
def running_lab(
    folder: Path, kernels: Path, *words: str, wall: bool = False, somebody: Somebody | None = None
) -> Iterator[Lab]:
    """Start both, with what is installed under `kernels`, and end them; `wall`: the server sends the second wall.

    The server has further `words` of its command line. It is a process of `somebody` else's, who gets the folder; root
    may say so.
    """
    (folder / "config").mkdir()
    settings = {"ServerApp": {"jpserver_extensions": {WALL: wall}}}
    (folder / "config/jupyter_server_config.json").write_text(json.dumps(settings))
    for name in ("notebooks", "home", "tmp"):
        (folder / name).mkdir()
    for name, values in SETTINGS.items():
        path = folder / "settings/@jupyterlab" / f"{name}.jupyterlab-settings"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(values))
    if somebody:
        subprocess.run(["chown", "-R", f"{somebody.user}:{somebody.user}", folder], check=True)
    with _server(folder, kernels, words, somebody) as server, chromium(folder, NO_WEBGL) as browser:
        yield Lab(server, folder / "notebooks", browser)


def _environment(folder: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JUPYTER", "IPYTHON"))}
    return kept | {
        "HOME": str(folder / "home"),
        "TMPDIR": str(folder / "tmp"),
        "JUPYTER_CONFIG_DIR": str(folder / "config"),
        "JUPYTER_DATA_DIR": str(folder / "data"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "JUPYTERLAB_SETTINGS_DIR": str(folder / "settings"),
        "JUPYTERLAB_WORKSPACES_DIR": str(folder / "workspaces"),
    }


@contextmanager
def _server(folder: Path, kernels: Path, words: Sequence[str], somebody: Somebody | None) -> Iterator[Server]:
    token = secrets.token_hex(16)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = f"""--no-browser --allow-root --expose-app-in-browser --ServerApp.ip=127.0.0.1
        --ServerApp.port={port} --IdentityProvider.token={token} --LabApp.news_url=
        --JupyterNotebookApp.expose_app_in_browser=True
        --LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate --LabApp.extension_manager=readonly"""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *([somebody.python, "-m", "jupyterlab"] if somebody else program("jupyterlab")),
                *command.split(),
                f"--ServerApp.root_dir={folder / 'notebooks'}",
                *words,
            ],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=folder / "notebooks",
            env=_environment(folder) | {"JUPYTER_PATH": str(kernels / "share/jupyter")},
            start_new_session=True,
            user=somebody and somebody.user,
            group=somebody and somebody.user,
            extra_groups=[] if somebody else None,
        )
    found = folder / "runtime" / f"jpserver-{process.pid}.json"
    try:
        eventually(lambda: (found.exists() and found.read_text()) or process.poll() is not None, "JupyterLab runs")
        assert found.exists(), (folder / "server.log").read_text()
        yield Server(json.loads(found.read_text())["url"], token, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)  # kernels and terminals are ended by the server
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            pytest.fail(f"JupyterLab did not end in {ENDING} s: {(folder / 'server.log').read_text()[-4000:]}")
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)


@contextmanager
def chromium(folder: Path, *switches: str) -> Iterator[Chrome]:
    binary = shutil.which("chromium") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    if not binary or not driver:
        pytest.fail("this test needs a browser: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = binary
    options.unhandled_prompt_behavior = "accept"
    for switch in (*SWITCHES, *switches, f"--user-data-dir={folder / 'browser'}"):
        options.add_argument(switch)
    # Chromium makes a unix socket among its temporary files, whose path may have 108 characters.
    with TemporaryDirectory(prefix="lab-") as short:
        environment = _environment(folder) | {"TMPDIR": short}
        browser = Chrome(options=options, service=Service(executable_path=driver, env=environment))
        try:
            prepare(browser)
            yield browser
        finally:
            browser.quit()
