"""Asking an engine which version of its API it speaks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.engines.docker import api_version


@pytest.fixture(params=[b"H", b"HTTP/1.0 200 OK\r\nApi-Version: 1.44\r\nServer: Docker/29 (linux)\r\n\r\n"])
def listening(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, bytes]]:
    """Something that says the same again and again, slowly, until its client is gone."""

    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            try:
                while not stop.wait(0.02):
                    connection.sendall(request.param)
            except OSError:
                pass

    stop = threading.Event()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path := str(tmp_path / "engine.sock"))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield path, request.param
        stop.set()
        thread.join(20)
    assert not thread.is_alive()


def test_a_socket_that_never_says_a_whole_answer_is_given_up_in_time(listening: tuple[str, bytes]) -> None:
    path, said = listening
    begin = time.monotonic()
    if said == b"H":
        with pytest.raises(TimeoutError):
            api_version.ask(path, 0.2)
    else:
        assert api_version.ask(path, 20) == "/v1.44"
    assert time.monotonic() - begin < 10
