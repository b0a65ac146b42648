"""Detached sandboxes against hostile owners, cells and strangers, over a real broker and a real engine."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import secrets
import signal
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.container import wire
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError, QuotaExceeded, SandboxError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.client.packets import digest
from sandbox_kernel.plugins.broker.codes import BrokerCode
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.plugins.broker.container.test_broker import NOBODY, as_nobody, connected
from tests.plugins.broker.container.test_detached import (
    CALLER,
    Elsewhere,
    ids,
    info_of,
    kept,
    killed_in_a_cell,
    resident,
    until_done,
    until_ended,
    until_free,
)
from tests.support.engines import IMAGE
from tests.support.patience import until, within


def asking(**wish: Any) -> dict[str, Any]:
    """Return a request for a sandbox that is kept."""
    wanted = new_spec(Settings(image=IMAGE))
    kept = {"name": secrets.token_hex(16), "seconds": 600, "metadata": {}, "settings": "{}", "prepared": {}, **wish}
    said = {"op": "start", "n": 1, "protocol": packets.VERSION, "agent": digest(wanted), "spec": packets.asked(wanted)}
    return {**said, "kept": kept}


async def started(daemon: Daemon, **wish: Any) -> tuple[socket.socket, dict[str, Any], socket.socket]:
    """Return a connection that owns a sandbox, what was asked for, and its pipe."""
    sock, said = connected(daemon.path), asking(**wish)
    sock.send(json.dumps(said).encode())
    data, fds, _, _ = await asyncio.to_thread(socket.recv_fds, sock, packets.MAX_BYTES, 1)
    assert "refused" not in json.loads(data), data
    pipe = socket.socket(fileno=fds[0])
    pipe.setblocking(True)
    return sock, said["kept"], pipe


async def ask(daemon: Daemon, **said: Any) -> dict[str, Any]:
    with connected(daemon.path) as sock:
        sock.send(json.dumps({"n": 1, **said}).encode())
        answer: dict[str, Any] = json.loads(await asyncio.to_thread(sock.recv, packets.MAX_BYTES))
        return answer


async def answered(pipe: socket.socket) -> None:
    """Ask the agent something, and wait for its answer."""
    pipe.sendall(b"".join(wire.encode(wire.AGENT, [b'{"op": "ping", "id": 7}'])))
    heard = b""
    while b'"id": 7' not in heard:
        heard += await asyncio.to_thread(pipe.recv, 1 << 16)


@pytest.mark.parametrize(
    "wish",
    [
        {"name": "../../x"},
        {"name": 3},
        {"seconds": -1},
        {"seconds": "600"},
        {"seconds": True},
        {"seconds": 1e400},
        {"seconds": 10**400},
        {"seconds": float("nan")},
        {"metadata": []},
        {"metadata": {"a": "\x1b]0;x\x07"}},
        {"metadata": {"a": "x" * 10_000}},
        {"metadata": {str(number): "x" for number in range(1000)}},
        {"settings": "x" * 100_000},
        {"settings": {}},
        {"more": 1},
    ],
)
async def test_what_is_asked_improperly_is_refused_and_starts_nothing(daemon: Daemon, wish: dict[str, Any]) -> None:
    answer = await ask(daemon, **asking(**wish))
    assert answer["refused"]["code"] == "broker-improper"
    assert await ids(daemon) == []


@pytest.mark.parametrize(
    "said",
    [
        {"op": "connect", "name": "0" * 32, "take": False},
        {"op": "end", "name": "0" * 32},
        {"op": "extend", "name": "0" * 32, "lasts": 3},
        {"op": "described", "name": "0" * 32},
    ],
)
async def test_what_is_not_there_is_answered_for_with_one_code(daemon: Daemon, said: dict[str, Any]) -> None:
    assert (await ask(daemon, **said))["refused"]["code"] == "detached-not-there"
    for change in ({"name": None}, {"name": ["x"]}, {"name": "x" * 9999}):
        assert (await ask(daemon, **{**said, **change}))["refused"]["code"] == "broker-improper"


async def test_an_owner_that_dies_in_the_midst_of_a_frame_leaves_the_sandbox_in_step(daemon: Daemon) -> None:
    """What it wrote of it never arrives; the control is a whole frame, which does."""
    sock, wish, pipe = await started(daemon)
    with sock, pipe:
        await answered(pipe)
        whole = b"".join(wire.encode(wire.SHELL, [b"x" * 100_000]))
        pipe.sendall(whole[:50_000])
    await until_free(daemon, wish["name"])
    said = await ask_for_pipe(daemon, wish["name"])
    with said[0], said[1] as other:
        await answered(other)
    await ask(daemon, op="end", name=wish["name"])


async def ask_for_pipe(daemon: Daemon, name: str, *, take: bool = False) -> tuple[socket.socket, socket.socket]:
    sock = connected(daemon.path)
    sock.send(json.dumps({"op": "connect", "n": 1, "name": name, "take": take}).encode())
    data, fds, _, _ = await asyncio.to_thread(socket.recv_fds, sock, packets.MAX_BYTES, 1)
    assert "refused" not in json.loads(data), data
    pipe = socket.socket(fileno=fds[0])
    pipe.setblocking(True)
    return sock, pipe


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("!IB", 1 << 31, 1),
        struct.pack("!IB", 100, 77),
        b"GET / HTTP/1.1\r\n\r\n",
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", "cell": 3}'])),
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", "cell": {"id": "x", "seconds": "y"}}'])),
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", "cell": {"id": "x", "seconds": NaN}}'])),
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", "cell": {"id": "x", "seconds": 1' + b"0" * 400 + b"}}"])),
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", ' + b"[" * 30_000])),
        b"".join(wire.encode(wire.AGENT, [b'{"op": "keep", "session": {"a": "' + b"x" * packets.MAX_NOTE + b'"}}'])),
    ],
    ids=["huge", "no kind", "text", "no cell", "no clock", "never", "too late", "nested", "long"],
)
async def test_an_owner_that_says_garbage_is_no_owner_any_more(daemon: Daemon, data: bytes) -> None:
    """The sandbox goes on for the next one."""
    sock, wish, pipe = await started(daemon)
    with sock, pipe:
        pipe.sendall(data)
        await until_free(daemon, wish["name"])
    sandbox_of, other = await ask_for_pipe(daemon, wish["name"])
    with sandbox_of, other:
        await answered(other)
    assert (await ask(daemon, op="end", name=wish["name"])) == {"n": 1}


async def test_a_name_is_one_sandbox_s_and_they_are_counted(daemon: Daemon) -> None:
    sock, wish, pipe = await started(daemon)
    with sock, pipe:
        answer = await ask(daemon, **asking(name=wish["name"]))
        assert answer["refused"]["code"] == "broker-improper"
    await ask(daemon, op="end", name=wish["name"])
    await until_ended(daemon, wish["name"])
    with a_broker("--detached", "1") as small:
        one = await kept(small)
        with pytest.raises(QuotaExceeded, match="1 detached sandboxes at once"):
            await kept(small)
        await one.kill()
        await until_ended(small, one.id)
        await (await kept(small)).kill()


async def test_an_owner_that_stands_still_holds_nobody_up_for_ever(daemon: Daemon) -> None:
    """It is stopped in the midst of a cell, and reads nothing: its user takes the sandbox from it."""
    code = "print('begun', flush=True)\nfor _ in range(30): print('x' * (1 << 20))\nprint('end')"
    process = Elsewhere(CALLER, daemon.address, json.dumps({"image": IMAGE}), code)
    try:
        name = await process.next()
        assert await process.next() == "begun"
        process.process.send_signal(signal.SIGSTOP)
        with pytest.raises(EngineError) as caught:
            await AsyncSandbox.connect(name, engine=daemon.address)
        assert caught.value.code is BrokerCode.DETACHED_OWNED
        sandbox = await AsyncSandbox.connect(name, engine=daemon.address, take=True)
        execution = await sandbox.rejoin()
        assert execution is not None
        assert execution.error is None
        assert "".join(execution.logs.stdout).startswith("begun")
        assert (await sandbox.run_code("1 + 1")).text == "2"
        await sandbox.kill()
    finally:
        process.kill()


async def test_a_kernel_that_ends_while_nobody_is_there_is_replaced_and_that_is_told(daemon: Daemon) -> None:
    name = await killed_in_a_cell(daemon, "print('begun')\nimport os, time; time.sleep(1); os.kill(os.getpid(), 9)")
    async with within(30):
        while not [row for row in await DockerEngine().list() if row.state == "running"]:  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        execution = await sandbox.rejoin()
        assert execution is not None
        assert execution.error is not None
        assert execution.error.code == EndCode.KERNEL_DIED.code
        assert (await sandbox.run_code("1 + 1")).text == "2"


FLOOD = """
print('begun', flush=True)
import time; time.sleep(1)
from ipykernel.kernelapp import IPKernelApp
kernel = IPKernelApp.instance().kernel
for _ in range(200_000):
    kernel.session.send(kernel.iopub_socket, 'status', {'execution_state': 'busy'}, parent=kernel.get_parent())
time.sleep(60)
"""


async def test_a_cell_that_floods_a_broker_while_nobody_reads_is_ended(daemon: Daemon) -> None:
    """With messages that are kept beyond the bound of outputs, since they tell how a cell ended."""
    before = resident(daemon)
    name = await killed_in_a_cell(daemon, FLOOD)
    await until_ended(daemon, name, 60)
    print(f"broker {before >> 20} -> {resident(daemon) >> 20} MiB")
    assert resident(daemon) - before < 64 << 20
    page = {row.container for row in await daemon.engine().list()}
    assert not page


PRETENDS = """
kernel = get_ipython().kernel
here, ident = kernel.get_parent(), kernel._parent_ident['shell']
shell = kernel.shell_channel_thread.manager.get_subshell_to_shell_channel_socket(None)
print('begun', flush=True)
kernel.session.send(shell, 'execute_reply', {'status': 'ok'}, parent=here, ident=ident)
kernel.session.send(kernel.iopub_socket, 'status', {'execution_state': 'idle'}, parent=here)
while True: pass
"""


async def test_a_cell_that_pretends_to_have_ended_is_ended_by_the_next_one_s_clock_or_the_lifetime(
    daemon: Daemon,
) -> None:
    """As with a thread that a cell leaves behind: its own time is over, and that of its sandbox is not."""
    name = await killed_in_a_cell(daemon, PRETENDS, cell_timeout=3)
    await until_done(daemon, name)
    sandbox = await AsyncSandbox.connect(name, engine=daemon.address)
    execution = await sandbox.run_code("1 + 1")  # which waits behind it
    assert execution.error is not None
    assert execution.error.code == EndCode.CELL_TIMEOUT.code
    assert (await sandbox.run_code("1 + 1")).text == "2"
    await sandbox.detach()
    again = await killed_in_a_cell(daemon, PRETENDS, cell_timeout=3)
    for one in (name, again):
        await AsyncSandbox.set_timeout_by_id(one, 1, engine=daemon.address)
        await until_ended(daemon, one)


async def test_a_cell_that_nobody_reads_and_that_never_stops_is_interrupted(daemon: Daemon) -> None:
    """Or has no memory left, as its output waits to be read at the broker's pace; others are served meanwhile."""
    name = await killed_in_a_cell(daemon, "print('begun', flush=True)\nwhile True: print('x' * (1 << 20))")
    async with within(5):
        await ids(daemon)
    await until_done(daemon, name)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        execution = await sandbox.rejoin()
        assert execution is not None
        assert execution.error is not None
        assert sandbox.missed.bytes > 32 << 20
        assert (await sandbox.run_code("1 + 1")).text == "2"


async def test_a_file_that_was_under_way_is_whole_or_not_there(daemon: Daemon) -> None:
    code = CALLER.replace(
        'sandbox.run_code(sys.argv[3], on_stdout=lambda line: print(line, end="", flush=True))',
        "sandbox.files.write('first', b'x' * 1000); print('begun', flush=True)\n"
        "sandbox.files.write('big', b'y' * (200 << 20))",
    )
    process = Elsewhere(code, daemon.address, json.dumps({"image": IMAGE}))
    try:
        name = await process.next()
        assert await process.next() == "begun"
    finally:
        process.kill()
    await until_free(daemon, name)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        assert await sandbox.files.read("first", format="bytes") == b"x" * 1000
        if await sandbox.files.exists("big"):
            assert len(await sandbox.files.read("big", format="bytes")) == 200 << 20
        await sandbox.files.write("after", "z")
        assert (await sandbox.run_code("open('after').read()")).text == "'z'"


async def test_many_idle_ones_cost_the_broker_little(daemon: Daemon) -> None:
    before = resident(daemon)
    names = []
    for _ in range(4):
        sandbox = await kept(daemon)
        names.append(sandbox.id)
        await sandbox.detach()
    each = (resident(daemon) - before) / len(names)
    print(f"an idle detached sandbox costs the broker {each / 2**20:.2f} MiB")
    assert each < 4 << 20
    process = psutil.Process(daemon.process.pid)
    begin = process.cpu_times()
    await asyncio.sleep(3)
    end = process.cpu_times()
    used = end.user + end.system - begin.user - begin.system
    print(f"four of them, {used / 3 * 100:.2f} % of a processor")
    assert used < 0.3
    assert await asyncio.gather(*(AsyncSandbox.kill_by_id(name, engine=daemon.address) for name in names)) == [True] * 4


async def test_a_list_while_they_end_has_those_that_are_there(daemon: Daemon) -> None:
    made = [await kept(daemon) for _ in range(3)]
    await asyncio.gather(*(one.kill() for one in made), *(ids(daemon) for _ in range(20)))
    for one in made:
        await until_ended(daemon, one.id)


# --- other users ------------------------------------------------------------------------------------------------------


@pytest.fixture
async def for_all(tmp_path: Path) -> AsyncIterator[Daemon]:
    if os.geteuid():
        pytest.skip("only root can be another user")
    nobody = pwd.getpwuid(NOBODY).pw_name
    file = tmp_path / "broker.toml"
    file.write_text(f'[all]\nimages = ["{IMAGE}"]\n[user.root]\ntakes = ["{nobody}"]\n', encoding="utf-8")
    with a_broker("--for-all", "--file", str(file)) as daemon:
        daemon.folder.chmod(0o755)
        yield daemon


async def test_another_user_s_ids_are_as_if_they_were_not_there(for_all: Daemon) -> None:
    sandbox = await kept(for_all, metadata={"secret": "x"})
    name, nowhere = sandbox.id, "0" * 32
    await sandbox.detach()
    asked: list[dict[str, Any]] = [
        {"op": "connect", "take": True},
        {"op": "end"},
        {"op": "extend", "lasts": 3},
        {"op": "described"},
    ]
    answers = await as_nobody(
        for_all, {"op": "kept"}, *({**one, "name": id_} for one in asked for id_ in (name, nowhere))
    )
    assert answers[0]["rows"] == []
    assert all(mine == none for mine, none in zip(answers[1::2], answers[2::2], strict=True))
    assert {answer["refused"]["code"] for answer in answers[1:]} == {"detached-not-there"}
    assert await AsyncSandbox.kill_by_id(name, engine=for_all.address)  # the control: its own user's is there


async def test_whom_the_operator_s_file_names_may_take_over_another_s(for_all: Daemon) -> None:
    """Under its own output policy. The other way round is not named, and so is refused (above)."""
    said = asking(metadata={"user": "nobody"}, settings=json.dumps({"image": IMAGE}))
    process = await asyncio.to_thread(owner_of_another_user, for_all, said)
    try:
        name = said["kept"]["name"]
        await until(lambda: info_of(for_all, name), 30)
        assert (await ask(for_all, op="described", name=name))["own"] is False
        sock, pipe = await ask_for_pipe(for_all, name, take=True)
        with sock, pipe:
            pass
        assert (await ask(for_all, op="end", name=name)) == {"n": 1}
    finally:
        process.kill()
        process.wait()


def owner_of_another_user(daemon: Daemon, said: dict[str, Any]) -> Any:
    import subprocess

    code = (
        "import json, socket, sys, time\n"
        "sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "sock.connect(sys.argv[1]); sock.send(sys.argv[2].encode()); time.sleep(120)"
    )
    command = ["/usr/bin/python3", "-I", "-c", code, daemon.path, json.dumps(said)]
    return subprocess.Popen(command, user=NOBODY, group=NOBODY, extra_groups=[])


async def test_a_default_sandbox_is_nobody_s_to_take(daemon: Daemon) -> None:
    """Neither by its own id nor by the broker's."""
    async with await AsyncSandbox.create(engine=daemon.address, image=IMAGE) as sandbox:
        [row] = await daemon.engine().list()
        for name in (sandbox.id, row.session):
            assert (await ask(daemon, op="connect", name=name, take=True))["refused"]["code"] == "detached-not-there"
        with pytest.raises(SandboxError):
            await sandbox.detach()
