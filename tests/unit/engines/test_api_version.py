"""Asking an engine which version of its API it speaks."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.engines.docker import api_version, discovery


def answer(version: str) -> bytes:
    return f"HTTP/1.0 200 OK\r\nApi-Version: {version}\r\nServer: Docker/29 (linux)\r\n\r\n".encode()


@pytest.fixture(params=[b"H", answer("1.44")])
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


@pytest.mark.parametrize(
    ("listening", "taken"),
    [(answer("1.40"), False), (answer("1.41"), True), (answer("none"), True)],
    indirect=["listening"],
)
def test_auto_passes_by_an_engine_that_is_too_old_and_says_so(
    listening: tuple[str, bytes], taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "socket_path", lambda _: listening[0])
    assert discovery.answers() is taken
    assert ("older than Docker 20.10" in discovery.elsewhere()) is not taken
