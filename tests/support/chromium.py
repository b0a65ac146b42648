"""A real browser, and listeners that stand for every other origin and count what reaches them."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

SECONDS = 3
"""How long the programs have in the page, from its load."""

SWITCHES = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync --disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup""".split()  # noqa: SIM905
"""Without the two pages that are ready below the address bar, which nobody sees: half of a start."""

FIREFOX = {
    "network.dns.forceResolve": "127.0.0.1",  # every name, also those that it looks up for itself
    "datareporting.policy.dataSubmissionEnabled": False,
    "app.update.enabled": False,
    "browser.shell.checkDefaultBrowser": False,
    "browser.aboutwelcome.enabled": False,
    "media.peerconnection.ice.loopback": True,
}
"""Its preferences, for what the switches are for in Chromium."""


@dataclass
class Evil:
    """Another origin: what reached it, over TCP (its first line) and UDP."""

    requests: list[str] = field(default_factory=list)
    datagrams: list[bytes] = field(default_factory=list)
    connections: int = 0
    tcp: int = 0
    udp: int = 0

    def paths(self) -> set[str]:
        return {request.split()[1].lstrip("/") for request in self.requests if request.count(" ") > 1}


@contextmanager
def listening() -> Iterator[Evil]:
    """Listen on two free ports until the end of the block."""
    seen = Evil()
    listener = socket.create_server(("127.0.0.1", 0))
    datagrams = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    datagrams.bind(("127.0.0.1", 0))
    seen.tcp, seen.udp = listener.getsockname()[1], datagrams.getsockname()[1]

    def answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(SECONDS)
            try:
                if line := connection.recv(4096).partition(b"\r\n")[0]:
                    seen.requests.append(line.decode("latin-1"))
                    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            seen.connections += 1
            threading.Thread(target=answer, args=(connection,), daemon=True).start()

    def receive() -> None:
        while data := datagrams.recv(4096):
            seen.datagrams.append(data)

    threads = [threading.Thread(target=target, daemon=True) for target in (accept, receive)]
    for thread in threads:
        thread.start()
    yield seen
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    datagrams.sendto(b"", datagrams.getsockname())
    for thread in threads:
        thread.join(5)
    datagrams.close()


def draws(body: str, seconds: float, folder: Path) -> bool:
    """Return whether a browser has drawn a document after so many seconds, its own start included."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "this test needs a browser: apt-get install chromium"
    page, picture = folder / "page.html", folder / "page.png"
    page.write_text(f"<!DOCTYPE html><meta charset=utf-8><body>{body}", encoding="utf-8")
    with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as short:
        process = subprocess.Popen(
            [browser, *SWITCHES, f"--user-data-dir={short}/data", f"--screenshot={picture}", page.as_uri()],
            env={**os.environ, "TMPDIR": short},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
        return picture.exists()


def command(name: str, folder: Path) -> list[str]:
    """Return how a browser is started, "chromium" or "firefox", with its data in a folder and all names on loopback."""
    if name == "firefox":
        browser = shutil.which("firefox-esr") or shutil.which("firefox")
        if not browser:
            pytest.skip("this test needs Firefox: apt-get install firefox-esr")
        lines = [f"user_pref({json.dumps(key)}, {json.dumps(value)});" for key, value in FIREFOX.items()]
        (folder / "user.js").write_text("\n".join(lines))
        return [browser, "--headless", "--no-remote", "--profile", str(folder)]
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "this test needs a browser: apt-get install chromium"
    return [browser, *SWITCHES, f"--user-data-dir={folder}", "--host-resolver-rules=MAP *.test 127.0.0.1"]


def show(bodies: list[str], evil: Evil, folder: Path, browser: str = "chromium") -> list[str]:
    """Load a page of `bodies` in a browser, and return the paths that the page itself asked its own server for."""
    words = command(browser, folder)
    page = f"""<!DOCTYPE html><title>clean</title><link rel=icon href=data:,>
        <script>addEventListener('message',()=>fetch(location.origin+'/message'))</script><body>{"".join(bodies)}
        <script>setTimeout(()=>fetch(location.origin+'/done?'+document.title),{SECONDS}000)</script>"""
    asked: list[str] = []
    done = threading.Event()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(page.encode() if self.path == "/page" else b"")
            if self.path.startswith("/done"):
                done.set()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as short:
            process = subprocess.Popen(
                [*words, f"http://127.0.0.1:{server.server_port}/page"],
                env={**os.environ, "TMPDIR": short, "HOME": short},  # it leaves a folder there when it is killed
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                assert done.wait(120), "the page did not come to its end"
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
                server.shutdown()
    return asked


@contextmanager
def page(body: str) -> Iterator[int]:
    """Serve one page on a port of this machine."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write(body.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
