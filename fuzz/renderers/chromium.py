"""One headless Chromium with one page in it, which renders documents by the hundred; nothing leaves this machine."""

from __future__ import annotations

import hashlib
import http.server
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import html5lib
from selenium.common.exceptions import TimeoutException, WebDriverException
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service

from sandbox_kernel.policy import frame
from tests.support.policy.check import WATCH

from .documents import number_of

SECONDS = 60.0
"""For one batch."""
SWITCHES = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
    --disable-component-update --disable-sync --disable-dev-shm-usage --window-size=1200,1000
    --disable-features=IsolateSandboxedIframes""".split()  # noqa: SIM905
"""The last one: no process of its own for each frame, of which one page has hundreds."""
RESOLVER = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"

POLICY = (
    "default-src 'none'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; font-src 'self' data:; media-src 'self' data: blob:; frame-src 'self'; "
    "connect-src 'self'; form-action 'none'"
)
"""What the page would ask another origin for is refused by the browser, and is told to the page."""

HOOKS = r"""
    if (self.origin !== 'null') {
        const log = top.__log ??= [];
        const number = text => Number(/\.test(?::\d+)?\/(\d+)/.exec(text)?.[1]) || 0;
        window.__fired = given => { log.push([given, 'ran']); };
        for (const name of ['alert', 'confirm', 'prompt', 'open', 'print'])
            window[name] = (...given) => { log.push([0, `${name}(${given.join().slice(0, 60)})`]); };
        document.addEventListener('securitypolicyviolation', event => {
            const { blockedURI: address, violatedDirective: by } = event;
            log.push([number(address), `asked for something: ${address.slice(0, 100)} by ${by}`]);
        });
        document.addEventListener('submit', event => {
            event.preventDefault();
            log.push([0, 'submitted a form']);
        }, true);
    }
"""
PAGE = b"""<!DOCTYPE html><meta charset=utf-8><title>renderers</title><link rel=icon href=data:,>
<link rel=stylesheet href=/page.css>
<style>.host{contain:content;max-height:400px;overflow:auto} .export{width:1000px;height:800px}
mjx-assistive-mml{bottom:0}</style>
<body class="jp-ThemedContainer"><script src=/page.js></script>"""


ASK = """
    const done = arguments[arguments.length - 1];
    CALL.then(value => done({value}), error => done({error: String(error && error.stack || error)}));
"""


def _watch() -> str:
    """Return the only script that an outer frame may hold, having looked at its hash, which the tests' judge names."""
    outer = html5lib.parseFragment(frame.wrap(""), namespaceHTMLElements=False)[0].get("srcdoc")
    (script,) = html5lib.parse(outer, namespaceHTMLElements=False).findall(".//script")
    if hashlib.sha256(script.text.encode()).hexdigest() != WATCH:
        raise RuntimeError("the outer frame has a script that tests/support/policy/check.py does not name")
    return str(script.text)


class LostError(Exception):
    """The page did not come back: it hangs, or went away, or its process died."""


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.exports: dict[str, bytes] = {}
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        body: bytes | None = None
        kind = "text/html; charset=utf-8"
        if path == "/page":
            body = PAGE
        elif path == "/empty.js":
            kind, body = "text/javascript", b""
        elif path in self.server.exports:
            body = self.server.exports[path]
        elif path in ("/page.js", "/page.css") or (path.startswith("/mathjax/") and ".." not in path):
            kind = "text/css" if path.endswith(".css") else "text/javascript" if path.endswith(".js") else "font/woff"
            file = self.server.folder / path[1:]
            body = file.read_bytes() if file.is_file() else None
        else:
            self.server.asked.append(self.path)
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body or b"")))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(body or b"")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Page:
    """The page, loaded again whenever it is lost."""

    def __init__(self, folder: Path) -> None:
        self._server = _Server(folder)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self._browser: Chrome | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None
        self._exports = 0

    def close(self) -> None:
        self._quit()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(5)

    def render(self, renderer: str, documents: Sequence[dict[str, Any]], wait_ms: int = 20) -> dict[int, list[str]]:
        """Return what is wrong with each document, by its number; what cannot be told apart is under 0."""
        return self._faults(
            self._ask("__run(arguments[0], arguments[1], arguments[2])", renderer, list(documents), wait_ms)
        )

    def open(self, html: str, numbers: Sequence[int], wait_ms: int = 50) -> tuple[dict[int, list[str]], list[str]]:
        """Return what is wrong with the documents of an export, and the macros that MathJax knows after it."""
        self._exports += 1
        path = f"/export/{self._exports}.html"
        self._server.exports = {path: html.encode("utf-8", "replace")}
        found = self._ask("__open(arguments[0], arguments[1], arguments[2])", path, list(numbers), wait_ms)
        return self._faults(found["faults"]), found["defined"]

    @property
    def port(self) -> int:
        return self._server.server_port

    def _faults(self, found: dict[str, list[str]]) -> dict[int, list[str]]:
        faults: dict[int, list[str]] = {}
        for key, what in found.items():
            for one in dict.fromkeys(what):
                faults.setdefault(int(key) or number_of(one), []).append(one)
        asked, self._server.asked = self._server.asked, []
        for path in asked:
            number = re.search(r"[0-9]+", path)
            faults.setdefault(int(number[0]) if number else 0, []).append(
                f"asked for something of its own server: {path[:100]}"
            )
        return faults

    def _ask(self, call: str, *arguments: Any) -> Any:
        self._server.asked.clear()
        try:
            browser = self._browser or self._load()
            answer = browser.execute_async_script(ASK.replace("CALL", call), *arguments)
        except (TimeoutException, WebDriverException, ConnectionError, OSError) as error:
            self._quit()
            raise LostError(f"the page was lost: {str(error).splitlines()[0][:200]}") from error
        if "error" in answer:
            self._quit()
            raise LostError(answer["error"])
        return answer["value"]

    def _load(self) -> Chrome:
        binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
        if not binary or not driver:
            raise FileNotFoundError("this needs a browser: apt-get install chromium chromium-driver")
        self._home = tempfile.TemporaryDirectory(prefix="renderers-", ignore_cleanup_errors=True)
        options = ChromeOptions()
        options.binary_location = binary
        options.unhandled_prompt_behavior = "accept"
        for switch in (*SWITCHES, RESOLVER, f"--user-data-dir={self._home.name}"):
            options.add_argument(switch)
        environment = {**os.environ, "TMPDIR": self._home.name}  # it leaves a folder there when it is killed
        self._browser = browser = Chrome(options=options, service=Service(executable_path=driver, env=environment))
        browser.set_script_timeout(SECONDS)
        browser.set_page_load_timeout(SECONDS)
        browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": HOOKS})
        browser.get(f"http://127.0.0.1:{self.port}/page")
        if browser.execute_script("return globalThis.__ready") is not True:
            self._quit()
            raise LostError("the page does not start")
        browser.execute_script("globalThis.__watch = arguments[0]", _watch())
        return browser

    def _quit(self) -> None:
        browser, self._browser = self._browser, None
        if browser is not None:
            process = browser.service.process
            try:
                browser.quit()
            except (WebDriverException, ConnectionError, OSError):
                if process is not None:
                    process.kill()
        if self._home is not None:
            self._home.cleanup()
            self._home = None


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Open a page until the end of the block; `folder` is what `install.installed` returns."""
    opened = Page(folder)
    try:
        yield opened
    finally:
        opened.close()
