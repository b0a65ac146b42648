"""Where Podman is taken, and where it is not: a socket of Docker's name may be Podman's."""

from __future__ import annotations

import contextlib
import socketserver
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines import select
from sandbox_kernel.engines.docker import discovery as of_docker
from sandbox_kernel.plugins.podman import discovery
from sandbox_kernel.plugins.podman.engine import PodmanEngine
from sandbox_kernel.setup import engine_setup


@contextlib.contextmanager
def listening(path: Path, server: str) -> Iterator[None]:
    """Answer a ping as Podman 4.3 and Docker do: not every machine has both."""

    class Answer(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_response_only(200)
            self.send_header("Api-Version", "1.41")
            self.send_header("Server", server)
            self.end_headers()

    with socketserver.ThreadingUnixStreamServer(str(path), Answer) as listener:
        thread = threading.Thread(target=listener.serve_forever)
        thread.start()
        try:
            yield
        finally:
            listener.shutdown()
            thread.join()


PODMAN, DOCKER = "Libpod/4.3.1 (linux)", "Docker/28.2.2 (linux)"


@pytest.fixture(autouse=True)
def _places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_own_broker", lambda _: None)
    monkeypatch.setattr(select, "others", list)
    monkeypatch.setattr(of_docker, "sockets", lambda *_: [f"{tmp_path}/docker.sock"])
    monkeypatch.setattr(discovery, "sockets", lambda: [f"{tmp_path}/podman.sock", f"{tmp_path}/docker.sock"])
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["podman.sock", "docker.sock"])
def test_auto_takes_podman_where_docker_does_not_answer(tmp_path: Path, name: str) -> None:
    with listening(tmp_path / name, PODMAN):
        assert not select.provider("docker").answers()
        assert select.chosen(Settings()) == "podman"
        assert select.explained(Settings()) == "podman, for no Docker answers this user"
        made = select.make_engine(Settings())
        assert (type(made), made.address) == (PodmanEngine, f"podman://{tmp_path}/{name}")


@pytest.mark.slow
def test_auto_takes_docker_before_podman(tmp_path: Path) -> None:
    with listening(tmp_path / "docker.sock", DOCKER), listening(tmp_path / "podman.sock", PODMAN):
        assert select.chosen(Settings()) == "docker"


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["", "unix://"])
def test_a_socket_is_the_engine_s_that_listens_there(tmp_path: Path, scheme: str) -> None:
    address = f"{scheme}{tmp_path}/any.sock"
    with listening(tmp_path / "any.sock", PODMAN):
        assert select.chosen(Settings(engine=address)) == f"podman://{tmp_path}/any.sock"
    (tmp_path / "any.sock").unlink()
    with listening(tmp_path / "any.sock", DOCKER):
        assert select.chosen(Settings(engine=address)) == address
    assert select.chosen(Settings(engine=address)) == address  # whose error says that nothing listens


def test_setup_asks_podman_where_docker_does_not_answer(tmp_path: Path) -> None:
    """It answers no more than a ping here, and is named all the same: nothing else is installed in its place."""
    with listening(tmp_path / "podman.sock", PODMAN):
        assert engine_setup.find_engine().host == f"podman://{tmp_path}/podman.sock"
        assert engine_setup.find_engine("docker").host == f"unix://{tmp_path}/docker.sock"
