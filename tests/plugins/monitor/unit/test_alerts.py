"""Alerts on their way: a real server and a real program, that fail, hang, or answer with an address of their own."""

from __future__ import annotations

import asyncio
import http.server
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.plugins.monitor.alerts import MAX_WAITING, Alerts, command, webhook
from tests.support.patience import within


class Server:
    """A webhook that answers with each of `answers`, and then with 204."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, object]]] = []
        self.answers: list[tuple[int, dict[str, str]]] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.got.append((self.path, body))
                status, headers = server.answers.pop(0) if server.answers else (204, {})
                self.send_response(status)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/hook?token=s3cret"
        self._thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self._thread.join()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    one = Server()
    yield one
    one.close()


def alerts(lost: Lost, *ways: Callable[[bytes], None], tries: int = 5) -> Alerts:
    return Alerts(
        {f"way {number}": way for number, way in enumerate(ways)}, lost.put_nowait, tries=tries, first_pause=0.01
    )


class Lost(asyncio.Queue[str]):
    """What is said of alerts that were not sent."""

    async def next(self) -> str:
        async with within(10):
            return await self.get()


async def test_an_alert_is_posted_and_given_to_a_program_on_its_stdin(server: Server, tmp_path: Path) -> None:
    out, lost = tmp_path / "got", Lost()
    program = (
        "import json, os, sys\n"
        "open(sys.argv[1], 'w').write(json.dumps([sys.stdin.read(), sys.argv[2:], [*os.environ]]))"
    )
    one = alerts(lost, webhook(server.url, None, None), command((sys.executable, "-c", program, str(out))))
    one.send({"code": "many-denials", "reason": "`id`; $(reboot) \x1b"})
    await one.close()
    text, arguments, variables = json.loads(out.read_text())
    assert server.got == [("/hook?token=s3cret", {"code": "many-denials", "reason": "`id`; $(reboot) \x1b"})]
    assert json.loads(text) == server.got[0][1]
    assert arguments == []
    assert set(variables) <= {"PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "LD_LIBRARY_PATH"}
    assert lost.empty()


async def test_what_fails_is_tried_again_and_what_goes_on_failing_is_said(server: Server) -> None:
    lost = Lost()
    one = alerts(lost, webhook(server.url, None, None), tries=3)
    server.answers = [(500, {}), (429, {}), (204, {}), (503, {}), (503, {}), (503, {})]
    one.send({"number": 1})
    one.send({"number": 2})
    assert await lost.next() == "an alert was not sent by the way 0: the answer was 503"
    await one.close()
    assert [body["number"] for _, body in server.got] == [1, 1, 1, 2, 2, 2]


async def test_an_answer_cannot_send_an_alert_elsewhere(server: Server) -> None:
    lost = Lost()
    one = alerts(lost, webhook(server.url, None, None), tries=1)
    server.answers = [(307, {"Location": "/elsewhere"})]
    one.send({"number": 1})
    assert "307" in await lost.next()
    await one.close()
    assert [path for path, _ in server.got] == ["/hook?token=s3cret"]


async def test_an_answer_that_is_no_http_ends_one_alert_and_none_after_it() -> None:
    lost, got = Lost(), list[bytes]()

    async def garbage(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.append(await reader.readuntil(b"}"))
        writer.write(b"garbage\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(garbage, "127.0.0.1", 0) as listener:
        one = alerts(lost, webhook(f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/", None, None), tries=1)
        for number in range(2):
            one.send({"number": number})
            assert await lost.next() == "an alert was not sent by the way 0: BadStatusLine"
        await one.close()
    assert [json.loads(data.partition(b"\r\n\r\n")[2])["number"] for data in got] == [0, 1]


async def test_no_token_is_said_of_a_server_that_is_not_there() -> None:
    lost = Lost()
    one = alerts(lost, webhook("http://127.0.0.1:1/s3cret", None, None), tries=1)
    one.send({})
    assert await lost.next() == "an alert was not sent by the way 0: ConnectionRefusedError"
    await one.close()


async def test_nobody_waits_for_a_way_that_hangs_and_what_waits_is_bounded() -> None:
    lost = Lost()
    release, began = threading.Event(), time.monotonic()

    def hang(document: bytes) -> None:
        release.wait(30)

    one = alerts(lost, hang)
    for number in range(MAX_WAITING + 50):
        one.send({"number": number})
    assert time.monotonic() - began < 5
    assert 49 <= lost.qsize() <= 50
    release.set()
    await one.close()


async def test_a_program_that_fails_or_is_gone_is_said_without_its_arguments(tmp_path: Path) -> None:
    lost = Lost()
    gone = str(tmp_path / "gone")
    one = alerts(lost, command((sys.executable, "-c", "import os; os._exit(3)", "s3cret")), command((gone,)), tries=1)
    one.send({})
    assert await lost.next() == "an alert was not sent by the way 0: it ended with 3"
    assert await lost.next() == "an alert was not sent by the way 1: FileNotFoundError"
    await one.close()


async def test_an_end_waits_for_what_is_under_way_and_no_longer() -> None:
    done: list[bytes] = []
    one = alerts(Lost(), done.append)
    for number in range(20):
        one.send({"number": number})
    await one.close()
    assert len(done) == 20
    assert "sandbox-alerts" not in [thread.name for thread in threading.enumerate()]
