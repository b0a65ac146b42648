"""Finding a container engine, and what changes on a machine to get one."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError, EngineUnavailable
from sandbox_kernel.engines.docker.discovery import addresses
from sandbox_kernel.setup import engine_setup
from sandbox_kernel.setup.command_steps import Steps
from tests.support.patience import Stopwatch


def test_running_engine_is_found_with_what_it_can_do() -> None:
    status = engine_setup.find_engine()
    assert status.available, f"{status.problem}: run `make setup`"
    assert status.problem == status.remedy == ""
    assert status.product in {"docker", "podman"}
    assert status.runtimes


def test_missing_socket_is_named_with_a_remedy(tmp_path: Path) -> None:
    status = engine_setup.find_engine(f"unix://{tmp_path}/none.sock")
    assert not status.available
    assert status.problem == f"no container engine listens at {tmp_path}/none.sock"
    assert status.remedy
    with pytest.raises(EngineUnavailable) as caught:
        engine_setup.require_engine(status)
    assert status.problem in str(caught.value)
    assert status.remedy in str(caught.value)


@pytest.fixture(params=["silent", "trickling", "rude"])
def bad_engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """Something that listens where an engine should, and is none."""
    path = tmp_path / "engine.sock"
    stop = threading.Event()

    def serve() -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection, suppress(OSError):
                    connection.recv(1000)
                    if request.param == "rude":
                        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello")
                        continue
                    while not stop.wait(0.1):
                        if request.param == "trickling":
                            connection.sendall(b"H")

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"unix://{path}"
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
        thread.join(5)
    assert not thread.is_alive()


def test_engine_that_does_not_answer_properly_costs_a_bounded_time(bad_engine: str) -> None:
    with Stopwatch() as watch:
        status = engine_setup.find_engine(bad_engine, seconds=1)
    assert watch.seconds < 2
    assert not status.available
    assert bad_engine in status.problem


def test_address_in_the_environment_is_the_only_one_asked() -> None:
    assert addresses({"DOCKER_HOST": "tcp://127.0.0.1:1"}) == ["tcp://127.0.0.1:1"]


def test_sockets_that_exist_are_asked_docker_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("docker.sock", "podman/podman.sock"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    hosts = addresses({"XDG_RUNTIME_DIR": str(tmp_path)})
    assert [host for host in hosts if str(tmp_path) in host] == [
        f"unix://{tmp_path}/docker.sock",
        f"unix://{tmp_path}/podman/podman.sock",
    ]


# --- the settings of the Docker daemon --------------------------------------------------------------------------------


def test_runtime_is_added_to_no_settings() -> None:
    text = engine_setup.with_runtime("", "runsc", "/usr/bin/runsc", ("--a", "--b"))
    assert json.loads(text) == {"runtimes": {"runsc": {"path": "/usr/bin/runsc", "runtimeArgs": ["--a", "--b"]}}}


def test_runtime_is_added_beside_what_is_there() -> None:
    before = {"log-driver": "none", "runtimes": {"kata": {"path": "/k"}}, "dns": ["192.0.2.1"]}
    after = json.loads(engine_setup.with_runtime(json.dumps(before), "runsc", "/r", ()))
    assert after["runtimes"].pop("runsc") == {"path": "/r", "runtimeArgs": []}
    assert after == before


def test_runtime_that_is_configured_already_stays_as_it_is() -> None:
    before = {"runtimes": {"runsc": {"path": "/own/runsc", "runtimeArgs": ["--platform=systrap"]}}}
    assert json.loads(engine_setup.with_runtime(json.dumps(before), "runsc", "/r", ("--x",))) == before


@pytest.mark.parametrize("text", ["{", "[]", '{"runtimes": []}', '"text"'])
def test_settings_that_are_broken_are_not_overwritten(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"daemon\.json"):
        engine_setup.with_runtime(text, "runsc", "/r", ())


def test_long_work_says_that_it_is_alive() -> None:
    said: list[str] = []
    steps = Steps(said.append, every=0.01)
    with steps.during("waiting"):
        until = time.monotonic() + 5
        while len(said) < 3 and time.monotonic() < until:
            time.sleep(0.005)
    assert said[0].endswith("s] waiting")
    assert said[1].endswith("s] still waiting")
    assert len(said) >= 3
