"""Finding a container engine, and what changes on a machine to get one."""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError, EngineUnavailable
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines import select
from sandbox_kernel.engines.docker.discovery import addresses
from sandbox_kernel.engines.docker.engine import engine_info
from sandbox_kernel.setup import engine_setup
from sandbox_kernel.setup.command_steps import Steps
from tests.support.patience import Stopwatch


def test_running_engine_is_found_with_what_it_can_do() -> None:
    status = engine_setup.find_engine()
    assert status.available, f"{status.problem}: run `make setup`"
    assert status.problem == status.remedy == ""
    assert status.product == "docker"
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


def context(folder: Path, name: str, host: str) -> None:
    """Write a context as `docker context create` does."""
    meta = folder / "contexts/meta" / hashlib.sha256(name.encode()).hexdigest() / "meta.json"
    meta.parent.mkdir(parents=True)
    meta.write_text(json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}))


def test_what_docker_s_own_command_asks_is_the_only_one_asked(tmp_path: Path) -> None:
    """A variable comes before a context's name, and that before the file that `docker context use` writes."""
    for name in ("colima", "desktop"):
        context(tmp_path, name, f"unix:///{name}.sock")
    own = {"DOCKER_CONFIG": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    there = addresses(own)
    (tmp_path / "config.json").write_text('{"currentContext": "colima"}')
    assert addresses(own) == ["unix:///colima.sock"]
    assert addresses(own | {"DOCKER_CONTEXT": "desktop"}) == ["unix:///desktop.sock"]
    assert addresses(own | {"DOCKER_CONTEXT": "default"}) == there
    assert addresses(own | {"DOCKER_CONTEXT": "desktop", "DOCKER_HOST": "unix:///own.sock"}) == ["unix:///own.sock"]


@pytest.mark.parametrize("host", ["tcp://192.0.2.1:2375", "ssh://somebody@192.0.2.1"])
def test_an_engine_of_another_machine_is_refused_by_what_names_it(host: str, tmp_path: Path) -> None:
    context(tmp_path, "far", host)
    own = {"DOCKER_CONFIG": str(tmp_path)}
    for environment, setting in (({"DOCKER_HOST": host}, "DOCKER_HOST"), ({"DOCKER_CONTEXT": "far"}, "DOCKER_CONTEXT")):
        with pytest.raises(ConfigurationError, match=f"{setting} names '{host}'.*unix socket") as caught:
            addresses(own | environment)
        assert caught.value.setting == setting
    (tmp_path / "config.json").write_text('{"currentContext": "far"}')
    with pytest.raises(ConfigurationError, match="`docker context use` names"):
        addresses(own)


def test_a_context_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"DOCKER_CONTEXT names the context 'none'"):
        addresses({"DOCKER_CONFIG": str(tmp_path), "DOCKER_CONTEXT": "none"})


def test_sockets_that_exist_are_asked(tmp_path: Path) -> None:
    (tmp_path / "docker.sock").touch()
    hosts = addresses({"XDG_RUNTIME_DIR": str(tmp_path), "DOCKER_CONFIG": str(tmp_path)})
    assert [host for host in hosts if str(tmp_path) in host] == [f"unix://{tmp_path}/docker.sock"]


def test_auto_takes_docker_where_it_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(select, "_own_broker", lambda _: None)
    monkeypatch.setattr(select, "others", list)
    assert select.provider("docker").answers()
    assert select.explained(Settings()) == "docker, which answers this user"


@pytest.mark.parametrize("host", ["unix:///elsewhere.sock", "ssh://somebody@192.0.2.1"])
def test_what_a_session_does_not_read_is_said(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(select, "_own_broker", lambda _: None)
    monkeypatch.setenv("DOCKER_HOST", host)
    said = select.explained(Settings())
    assert said.startswith("docker, which answers this user; DOCKER_HOST names ")
    assert host in said


def test_a_runtime_whose_program_is_missing_is_not_offered(tmp_path: Path) -> None:
    there = tmp_path / "runsc"
    there.touch()
    info = {"Runtimes": {"runc": {"path": "runc"}, "runsc": {"path": str(there)}, "kata": {"path": f"{tmp_path}/kata"}}}
    assert engine_info({}, info | {"DockerRootDir": str(tmp_path)}).runtimes == {"runc", "runsc"}
    assert engine_info({}, info | {"DockerRootDir": "/nonexistent"}).runtimes == {
        "runc",
        "runsc",
        "kata",
    }  # in a machine


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
