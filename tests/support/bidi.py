"""A browser driven by the W3C's WebDriver BiDi: Chromium by its driver, Firefox by itself, both with the same words.

selenium needs a further program for Firefox, which no distribution's package has.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import websocket

from tests.support.chromium import command

SECONDS = 60.0
"""For any answer of a browser, its start included."""


class BrowserError(Exception):
    """What a browser refused, or what a script threw."""


class Browser:
    """One browser with one tab. A frame is named by its path of indexes below the tab: (0, 0) is a program's frame."""

    def __init__(self, url: str, name: str) -> None:
        self.name = name
        self._socket = websocket.create_connection(url, timeout=SECONDS, suppress_origin=True)
        self._number = 0

    def call(self, method: str, **parameters: Any) -> Any:
        self._number += 1
        self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == self._number:
                if answer["type"] == "error":
                    raise BrowserError(f"{method}: {answer['error']}: {answer['message']}")
                return answer["result"]

    def contexts(self) -> list[Any]:
        """Return all tabs and windows."""
        found: list[Any] = self.call("browsingContext.getTree")["contexts"]
        return found

    def context(self, *path: int) -> str:
        (found, *_) = self.contexts()
        for index in path:
            if index >= len(found["children"]):
                raise BrowserError(f"there is no frame {path}")
            found = found["children"][index]
        return str(found["context"])

    def open(self, url: str) -> None:
        self.call("browsingContext.navigate", context=self.context(), url=url, wait="complete")

    def js(self, code: str, *path: int) -> Any:
        """Return what the body of a function returns, which may be a promise, in a frame."""
        wrapped = f"(async()=>JSON.stringify((await (async()=>{{{code}\n}})()) ?? null))()"
        target = {"context": self.context(*path)}
        answer = self.call("script.evaluate", expression=wrapped, target=target, awaitPromise=True)
        if answer["type"] == "exception":
            raise BrowserError(answer["exceptionDetails"]["text"])
        return json.loads(answer["result"]["value"])

    def click(self, x: float, y: float) -> None:
        """Click at a place of the tab, as a person does."""
        steps = [{"type": "pointerMove", "x": int(x), "y": int(y)}]
        steps += [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        self._perform({"type": "pointer", "id": "mouse", "actions": steps})

    def press(self, *keys: str) -> None:
        """Press keys at once, and let them go."""
        downs = [{"type": "keyDown", "value": key} for key in keys]
        self._perform(
            {"type": "key", "id": "keys", "actions": [*downs, *({**one, "type": "keyUp"} for one in reversed(downs))]}
        )

    def _perform(self, source: dict[str, Any]) -> None:
        self.call("input.performActions", context=self.context(), actions=[source])

    def close(self) -> None:
        with suppress(OSError, websocket.WebSocketException):
            self._socket.close()


@contextmanager
def driven(name: str) -> Iterator[Browser]:
    """Start a browser, "chromium" or "firefox", whose names all lead to this machine."""
    with TemporaryDirectory(prefix="bidi-", ignore_cleanup_errors=True) as short:
        profile = Path(short) / "profile"
        profile.mkdir()
        words = command(name, profile)
        driver = shutil.which("chromedriver")
        if name == "firefox":
            words += ["--remote-debugging-port", "0"]
        elif driver:
            words, options = [driver, "--port=0"], {"binary": words[0], "args": [*words[1:], "--disable-dev-shm-usage"]}
        else:
            pytest.fail("this test needs a driver: apt-get install chromium-driver")
        process = subprocess.Popen(
            words,
            env={**os.environ, "TMPDIR": short, "HOME": short},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        assert process.stdout is not None
        reader = None
        try:
            said = _said(process, r"listening on (ws://\S+)|successfully on port (\d+)")
            # What it says later is not kept, and does not hold it up.
            reader = threading.Thread(target=process.stdout.read, daemon=True)
            reader.start()
            if name == "firefox":
                browser = Browser(f"{said[1]}/session", name)
                browser.call("session.new", capabilities={})
            else:
                browser = Browser(_session(int(said[2]), options), name)
            try:
                yield browser
            finally:
                browser.close()
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            if reader:
                reader.join(10)
            process.stdout.close()


def _said(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    timer = threading.Timer(SECONDS, process.kill)
    timer.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            if found := re.search(pattern, line):
                return found
    finally:
        timer.cancel()
    pytest.fail("the browser does not say where it listens")


def _session(port: int, options: dict[str, Any]) -> str:
    wanted = {"capabilities": {"alwaysMatch": {"webSocketUrl": True, "goog:chromeOptions": options}}}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/session", json.dumps(wanted).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310
        return str(json.load(answer)["value"]["capabilities"]["webSocketUrl"])
