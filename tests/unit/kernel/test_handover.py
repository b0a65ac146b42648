"""What one kernel process leaves for the next: in memory, for the same settings, and for nobody else."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.base import Handover
from sandbox_kernel.kernel import handover, pipe_holder
from sandbox_kernel.kernel.kept_ports import CHANNELS, NO_PORTS, listen
from sandbox_kernel.session.session import Session
from tests.support.kernels import eventually

KEY = "-----BEGIN PRIVATE KEY----- never to be seen"


class Parting:
    """A session whose container is one end of a pipe."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.engine = self
        self.read, self._write = os.pipe()
        self.pipe_holder = 0

    async def park(self) -> Any:
        return Handover(self._write, {"name": "a container"})

    @property
    def is_held(self) -> bool:
        """Whether somebody holds the other end of the pipe."""
        os.set_blocking(self.read, False)
        try:
            return os.read(self.read, 1) != b""
        except BlockingIOError:
            return True


def leave(
    old: Parting,
    place: pipe_holder.MeetingPlace,
    plugins: dict[str, Any] | None = None,
    ports: Mapping[str, int] = NO_PORTS,
) -> None:
    """Leave a container with a pipe holder; the ports stay open here."""
    old.pipe_holder = asyncio.run(handover.leave(cast("Session", old), place, plugins or {}, ports=ports))


@dataclass(frozen=True)
class Reach:
    """What a plugin keeps of its settings."""

    hosts: tuple[str, ...] = ()


def settings_of(*hosts: str) -> Settings:
    return Settings(of_plugins=(Reach(hosts),))


@pytest.fixture
def place(tmp_path: Path) -> pipe_holder.MeetingPlace:
    return pipe_holder.place(str(tmp_path / "connection.json"), "key")


def test_the_way_out_goes_from_process_to_process_in_memory(place: pipe_holder.MeetingPlace, tmp_path: Path) -> None:
    """Not over a file, a command line or an environment; and the pipe holder writes no core file."""
    old = Parting(settings_of("api.example.org"))
    leave(old, place, {"key": KEY})
    process = Path(f"/proc/{old.pipe_holder}")
    eventually(lambda: b"pipe_holder.py" in (process / "cmdline").read_bytes(), 10, "the pipe holder's own program")
    assert KEY.encode() not in (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    eventually(lambda: limit_of_core_files(process) == ["0", "0"], 10, "its limit of core files")
    assert [path for path in tmp_path.rglob("*") if path.is_file() and KEY in path.read_text()] == []
    left = handover.collect(settings_of("api.example.org"), place)
    assert left is not None
    assert (left.container, left.plugins) == ({"name": "a container"}, {"key": KEY})
    assert old.is_held
    left.close()
    os.close(old.read)


def limit_of_core_files(process: Path) -> list[str]:
    line = next(line for line in (process / "limits").read_text().splitlines() if line.startswith("Max core file"))
    return line.split()[4:6]


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [(Settings(), True), (settings_of("api.example.org", "other.example.org"), True), (None, False)],
    ids=["nothing allowed now", "more allowed now", "wrong settings"],
)
def test_a_container_of_other_settings_ends(
    place: pipe_holder.MeetingPlace, settings: Settings | None, wanted: bool
) -> None:
    """The rules of a session are those that it was started with: a container does not get others later."""
    old = Parting(settings_of("api.example.org"))
    leave(old, place, {"key": KEY})
    assert handover.collect(settings or old.settings, place, wanted=wanted) is None
    eventually(lambda: not old.is_held, 10, "the end of the pipe holder")
    os.close(old.read)


# --- ports ----------------------------------------------------------------------------------------------------------


def listening() -> socket.socket:
    return socket.create_server(("127.0.0.1", 0))


def port_of(one: socket.socket) -> int:
    return int(one.getsockname()[1])


def connection_to(**ports: int) -> dict[str, Any]:
    return {"ip": "127.0.0.1"} | {f"{channel}_port": ports.get(channel, 0) for channel in CHANNELS}


def test_a_kernel_listens_on_the_ports_of_its_connection_file() -> None:
    with listening() as one:
        free = port_of(one)
    found = listen(connection_to(shell=free))
    assert list(found) == list(CHANNELS)
    socket.create_connection(("127.0.0.1", free)).close()
    for each in found.values():
        assert not os.get_inheritable(each)
        os.close(each)


@pytest.mark.parametrize("changed", [{"transport": "ipc"}, {"ip": "localhost"}, {"ip": None}, {"hb_port": 1 << 16}])
def test_what_zmq_has_to_bind_itself_is_left_to_it(changed: dict[str, Any]) -> None:
    assert listen({**connection_to(), **changed}) == {}


def test_where_one_port_is_another_s_none_is_kept() -> None:
    with listening() as strangers, listening() as one:
        free = port_of(one)
        one.close()
        assert listen(connection_to(shell=free, hb=port_of(strangers))) == {}
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", free))


@pytest.mark.parametrize(("changed", "open_still"), [({}, True), ({"cell_timeout": 7.0}, False)])
def test_who_knocks_between_two_processes_waits_at_an_open_port(
    changed: dict[str, Any], open_still: bool, place: pipe_holder.MeetingPlace
) -> None:
    """A process with other settings gets nothing, and finds the port free."""
    settings = resolve({})
    old, shell = Parting(settings), listening()
    address = shell.getsockname()
    leave(old, place, ports={"shell": shell.fileno()})
    shell.close()
    knocking = socket.create_connection(address)  # nobody but the pipe holder has the socket now
    left = handover.collect(resolve(changed), place)
    with knocking:
        if not open_still:
            assert left is None
            eventually(lambda: port_is_free(address), 10, "the port is free")
            return
        assert left is not None
        with socket.socket(fileno=left.ports["shell"]) as door, door.accept()[0] as client:
            client.sendall(b"come in")
            assert knocking.recv(100) == b"come in"
        os.close(left.files[handover.PIPE])


def port_is_free(address: tuple[str, int]) -> bool:
    try:
        socket.create_server(address).close()
    except OSError:
        return False
    return True
