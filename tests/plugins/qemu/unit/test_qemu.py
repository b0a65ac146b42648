"""A machine in QEMU's words, what it starts from, and what is made of what it says; no machine is started."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import lzma
import os
import socket
import struct
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB, Attached, Limits, SandboxSpec
from sandbox_kernel.engines.pipe import Pipe
from sandbox_kernel.plugins.bubblewrap.arguments import Descriptors, SandboxFacts, arguments
from sandbox_kernel.plugins.bubblewrap.root_lookup import Root
from sandbox_kernel.plugins.qemu import (
    artifacts,
    build_format,
    container,
    hardware,
    line_protocol,
    profile,
    qmp,
)
from sandbox_kernel.plugins.qemu import build as machines
from sandbox_kernel.plugins.qemu.container import QemuContainer
from sandbox_kernel.plugins.qemu.engine import QemuEngine
from sandbox_kernel.plugins.qemu.line_protocol import LINE_BYTES, LineChannel
from tests.support import ROOT
from tests.support.patience import until, within

SPEC = SandboxSpec(session_id="s", image="x", limits=Limits(memory=1 << 30), command=("python3",), uid=300_000_001)
MACHINE = artifacts.MachineParts("/there/machine", "sha256:0", "6.1", "1")


def a_root(folder: Path) -> Root:
    return Root("x", str(folder), "sha256:0", "", 1, (), (), {"PATH": "/usr/bin"}, etc=False)


@pytest.mark.parametrize(
    ("setting", "spec"),
    [
        ("volumes", replace(SPEC, attached=(Attached(kind="volume", name="v", writable=True),))),
    ],
)
def test_what_no_machine_has_is_refused_and_not_left_out(setting: str, spec: SandboxSpec) -> None:
    with pytest.raises(EngineError) as raised:
        asyncio.run(QemuEngine().start(spec))
    assert (raised.value.code, raised.value.setting) == (EndCode.ENGINE_LACKS_DATA, setting)


def test_folders_above_those_of_the_disk_are_open_to_its_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian's bubblewrap 0.8 makes a folder above a bind for its own user alone, which is root on the disk."""
    ran: list[list[str]] = []
    monkeypatch.setattr(machines, "_run", lambda command, folder, problem: ran.append(command))
    root = a_root(tmp_path)._replace(binds=(("/usr/bin", "/usr/bin"), ("/there/env", "/usr/local"), ("/b", "/opt/a/b")))
    machines._disk(root, tmp_path, tmp_path / "etc", "bwrap", "mksquashfs")  # noqa: SLF001
    (command,) = ran
    pairs = list(itertools.pairwise(command))
    first = command.index("/view/usr/bin")
    for folder in ("/view/usr", "/view/opt", "/view/opt/a"):
        assert pairs.index(("--dir", folder)) < first


# --- the machine ------------------------------------------------------------------------------------------------------


def test_a_machine_has_four_devices_and_no_network() -> None:
    words = hardware.words("/usr/bin/qemu", "/machine", 1 << 30, 2, hardware.Ends(7, 8))
    devices = [words[at + 1].split(",")[0] for at, word in enumerate(words) if word == "-device"]
    assert devices == ["virtio-blk-pci", "virtio-serial-pci", "virtserialport", "virtserialport", "virtio-rng-pci"]
    assert not {"-net", "-netdev", "-nic", "-fsdev", "-virtfs", "-vnc", "-spice", "-usb", "-gdb", "-s"} & set(words)
    assert {"-nodefaults", "-no-user-config"} <= set(words)
    assert words[words.index("-sandbox") + 1].startswith("on,")
    assert all("readonly=on" in words[at + 1] for at, word in enumerate(words) if word == "-drive")
    assert not {"-incoming", "-add-fd"} & set(words)


def test_datasets_are_one_device_that_only_reads() -> None:
    without = hardware.words("/usr/bin/qemu", "/machine", 1 << 30, 2, hardware.Ends(7, 8))
    words = hardware.words("/usr/bin/qemu", "/machine", 1 << 30, 2, hardware.Ends(7, 8), datasets=True)
    device, told, shown = (word for word in words if word not in without)
    assert device == "-fsdev"
    assert {"local", "path=/mnt/datasets", "readonly=on"} <= set(told.split(","))
    assert shown == "virtio-9p-pci,fsdev=datasets,mount_tag=datasets"


def test_a_second_disk_is_an_open_file_that_no_path_leads_to() -> None:
    without = hardware.words("/usr/bin/qemu", "/machine", 1 << 30, 2, hardware.Ends(7, 8))
    words = hardware.words("/usr/bin/qemu", "/machine", 1 << 30, 2, hardware.Ends(7, 8, disk=9))
    more = [word for word in words if word not in without]
    assert more[:2] == ["-add-fd", "fd=9,set=1"]
    assert "file=/dev/fdset/1," in more[2]
    assert more[3:] == ["virtio-blk-pci,drive=scratch"]


def test_every_device_and_every_feature_has_its_reason_on_the_page() -> None:
    words = hardware.words("qemu", "/machine", 1 << 30, 1, hardware.Ends(7, 8))
    page = (ROOT / "docs" / "qemu.md").read_text(encoding="utf-8")
    for reasons in (hardware.DEVICES, hardware.FEATURES):
        assert "\n".join(f"- `{name}`: {reason}." for name, reason in reasons.items()) in page
    for at, word in enumerate(words):
        if word == "-device" and not words[at + 1].startswith("virtserialport"):  # a port is the serial device's
            assert words[at + 1].split(",")[0] in hardware.DEVICES
    assert words[words.index("-M") + 1] in hardware.DEVICES
    assert all(feature.split()[0] in words for feature in hardware.FEATURES)


def test_what_qemu_may_use_has_room_for_the_machine() -> None:
    assert hardware.memory_bytes(1 << 30) > 1 << 30
    assert hardware.process_bytes(1 << 30) > hardware.memory_bytes(1 << 30)
    assert [hardware.processors(cpus, 4) for cpus in (0.1, 1.0, 1.5, 64)] == [1, 1, 2, 4]


def test_qemu_is_held_as_a_sandbox_is() -> None:
    wanted = profile.wanted(SPEC)
    root = profile.root_of("/usr/bin/qemu", MACHINE.folder, MACHINE.contents)
    words = arguments(wanted, root, SandboxFacts(frozenset(), frozenset()), Descriptors(5, 6, {}), ("/usr/bin/qemu",))
    assert {"--unshare-user", "--unshare-net", "--unshare-pid", "--seccomp", "--disable-userns"} <= set(words)
    binds = {words[at + 2]: word for at, word in enumerate(words) if word.endswith("bind")}
    assert "/home" not in binds
    assert "/etc" not in binds
    assert "--bind" not in words
    assert (wanted.capabilities, wanted.networks, wanted.writable) == (frozenset(), frozenset(), ())


LOADS = {
    "access", "arch_prctl", "brk", "close", "execve", "fstat", "mmap", "mprotect", "munmap", "newfstatat", "openat",
    "pread64", "prlimit64", "read", "rseq", "set_robust_list", "set_tid_address",
}  # fmt: skip
"""What the system's loader calls for any program, before the first line of it."""


def test_the_loader_of_programs_has_what_it_calls() -> None:
    """Lists of calls are shared with other engines: one that was taken out of them there was missing here."""
    may = {name for rule in profile.system_calls() if rule.error is None for name in rule.names}
    assert may >= LOADS
    huge = [rule for rule in profile.system_calls() if rule.names in {("mmap",), ("memfd_create",)}]
    assert all(rule.conditions for rule in huge)
    assert len(huge) == 2


def test_qemu_makes_no_socket_starts_no_process_and_traces_none() -> None:
    free = {
        name for rule in profile.system_calls() if rule.error is None and not rule.conditions for name in rule.names
    }
    assert not free & {"socket", "connect", "bind", "listen", "accept", "fork", "vfork", "clone", "ptrace", "mount"}
    assert not free & {"unshare", "setns", "prctl", "ioctl", "bpf", "setuid", "chmod", "unlink", "rename", "mkdir"}
    (clone,) = [rule for rule in profile.system_calls() if rule.names == ("clone",)]
    (one,) = clone.conditions
    assert one.mask is not None
    assert one.value & one.mask == profile.THREAD  # a thread, and in no new namespace


def test_the_order_to_start_holds_the_protections(tmp_path: Path) -> None:
    first, second = (container.start(SPEC, a_root(tmp_path)) for _ in range(2))
    assert first["uid"] == SPEC.uid
    assert first["memory_bytes"] == 1 << 30
    assert first["calls"]
    assert first["seed"] != second["seed"]
    assert all(path.startswith("/proc/") for path in first["masked"])
    assert len(json.dumps(first)) < LINE_BYTES


# --- what it starts from ----------------------------------------------------------------------------------------------


@pytest.fixture
def built(tmp_path: Path) -> Path:
    folder = tmp_path / build_format.FOLDER
    folder.mkdir(mode=0o755)
    for name in build_format.FILES:
        (folder / name).write_bytes(b"x")
        (folder / name).chmod(0o644)
    said = {
        "format": build_format.FORMAT,
        "contents": "sha256:0",
        "guest": build_format.guest_digest(),
        "kernel": "6.1",
        "files": dict.fromkeys(build_format.FILES, "sha256:1"),
    }
    (folder / build_format.DESCRIPTION).write_text(json.dumps(said))
    (folder / build_format.DESCRIPTION).chmod(0o644)
    return folder


def test_a_machine_that_was_built_is_found(built: Path) -> None:
    found = artifacts.find(a_root(built.parent))
    assert (found.folder, found.kernel) == (str(built), "6.1")
    assert machines.is_current(a_root(built.parent))


def other(**fields: object) -> Callable[[Path], object]:
    def change(folder: Path) -> object:
        path = folder / build_format.DESCRIPTION
        return path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def of_another(folder: Path) -> None:
    (folder / build_format.DISK).chmod(0o666)


def a_link(folder: Path) -> None:
    (folder / build_format.KERNEL).rename(folder / "elsewhere")
    (folder / build_format.KERNEL).symlink_to(folder / "elsewhere")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (other(guest="another"), "another version"),
        (other(contents="sha256:2"), "built again"),
        (other(format=0), "another version"),
        (other(files={}), "kernel"),
        (of_another, "others may write"),
        (a_link, "is a link"),
        (lambda folder: (folder / build_format.INITRD).unlink(), "No such file"),
    ],
)
def test_what_does_not_fit_is_refused(built: Path, change: Callable[[Path], object], why: str) -> None:
    change(built)
    with pytest.raises(EngineError, match=why) as caught:
        artifacts.find(a_root(built.parent))
    assert "sandbox-kernel build --engine qemu" in str(caught.value)


def test_the_first_files_are_an_archive_that_others_read(tmp_path: Path) -> None:
    data = machines.archive({"init": (0o100755, b"#!x\n"), "a/b": (0o100644, b"12345")}, ("a",))
    assert data == machines.archive({"init": (0o100755, b"#!x\n"), "a/b": (0o100644, b"12345")}, ("a",))
    listed = subprocess.run(["python3", "-c", READER], input=data, capture_output=True, check=True)
    assert json.loads(listed.stdout) == {"a": "40755 ", "init": "100755 #!x\n", "a/b": "100644 12345"}


READER = """
import json, sys
data, found = sys.stdin.buffer.read(), {}
while True:
    fields = [int(data[6 + 8 * n : 14 + 8 * n], 16) for n in range(13)]
    name, start = data[110 : 110 + fields[11] - 1].decode(), -(-(110 + fields[11]) // 4) * 4
    if name == "TRAILER!!!":
        break
    found[name] = "%o %s" % (fields[1], data[start : start + fields[6]].decode())
    data = data[start + -(-fields[6] // 4) * 4 :]
print(json.dumps(found))
"""


def test_a_kernel_that_unpacks_itself_is_unpacked() -> None:
    kernel = b"\x7fELF" + os.urandom(10_000)
    packed = lzma.compress(kernel)
    header = bytearray(1024)
    header[0x1F1], header[0x202:0x206] = 1, b"HdrS"
    header[0x248:0x250] = struct.pack("<II", 100, len(packed))
    whole = bytes(header) + bytes(100) + packed + b"the rest"
    assert machines.unpacked_kernel(whole) == kernel


@pytest.mark.parametrize(
    "packed", [b"\x28\xb5\x2f\xfd of zstd", lzma.compress(b"no kernel"), lzma.compress(b"\x7fELF")[:-9]]
)
def test_a_kernel_that_is_packed_in_another_way_stays_as_it_is(packed: bytes) -> None:
    header = bytearray(1024)
    header[0x1F1], header[0x202:0x206] = 1, b"HdrS"
    header[0x248:0x250] = struct.pack("<II", 0, len(packed))
    for whole in (bytes(header) + packed, b"", packed):
        assert machines.unpacked_kernel(whole) == whole


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    needs = {"virtio_pci": "virtio,virtio_ring", "virtio_ring": "virtio", "virtio": "", "virtio-rng": "virtio"}
    needs |= {"virtio_blk": "virtio", "virtio_console": "virtio,not_a_module", "squashfs": ""}
    for name, said in needs.items():
        (tmp_path / f"{name}.ko").write_bytes(b"\x7fELF\0license=GPL\0depends=" + said.encode() + b"\0name=x\0")
    order = [name for name, _ in machines.modules(tmp_path)]
    assert order[:3] == ["virtio.ko", "virtio_ring.ko", "virtio_pci.ko"]
    assert len(order) == len(set(order)) == len(needs)


# --- what it says -----------------------------------------------------------------------------------------------------


class Heard:
    def __init__(self, sock: socket.socket) -> None:
        self.said: list[dict[str, Any]] = []
        self.over = asyncio.Event()
        self.lines = LineChannel(sock, self.said.append, self.over.set)


@pytest.mark.slow
@pytest.mark.parametrize(
    "data",
    [b"no json\n", b"[1]\n", b"\xff\n", b"[" * 100_000 + b"\n", b"x" * (LINE_BYTES + 1), b'{"op": 1}\n' * 900_000],
    ids=["no JSON", "a list", "no text", "deep", "without an end", "without number"],
)
async def test_what_is_no_line_of_ours_ends_the_channel(data: bytes) -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        heard = Heard(mine)
        try:
            sending = asyncio.create_task(asyncio.to_thread(_send, theirs, data))
            async with within(30):
                await heard.over.wait()
            await sending
        finally:
            heard.lines.close()


class Told(QemuContainer):
    """What listens to a machine on the second port, and asks it, without the machine."""

    def __init__(self, words: socket.socket, pipe: socket.socket) -> None:
        self._pending = {}
        self._ended = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._pipe = Pipe(pipe)
        self._talk = LineChannel(words, self._told, self._over.set)

    async def hears(self, said: str) -> None:
        """Hear a line, and all before it; the machine is still listened to after that."""
        async with within(10):
            await self.asks("one more", said + '\n{"op": "one more"}\n')

    async def asks(self, answer: str, said: str) -> dict[str, Any]:
        """Ask, and be told this afterwards."""
        assert self._talk is not None
        asked = asyncio.create_task(self._asked({"op": "ask"}, answer, 10.0, other="refused"))
        await asyncio.to_thread(self.machine.recv, 1000)
        await asyncio.to_thread(self.machine.sendall, said.encode())
        return await asked

    machine: socket.socket


@contextlib.contextmanager
def told() -> Iterator[Told]:
    (words, machine), (pipe, other) = socket.socketpair(), socket.socketpair()
    with machine, other:
        one = Told(words, pipe)
        one.machine = machine
        try:
            yield one
        finally:
            assert one._talk is not None  # noqa: SLF001
            one._talk.close()  # noqa: SLF001
            one._pipe.close()  # noqa: SLF001


def ended(**fields: Any) -> str:
    return json.dumps({"op": "ended", "code": 3, "signal": None, "ooms": 0, "tail": "", "written": 0, **fields})


IMPROPER_ENDS = {
    "a number that nobody can write": ended(code=10**4000),
    "more than an exit code": ended(code=256),
    "less than an exit code": ended(code=-1),
    "a truth": ended(code=True),
    "a fraction": ended(code=3.0),
    "no number": ended(code=float("nan")),
    "a list of codes": ended(code=[3]),
    "nothing": '{"op": "ended"}',
    "bytes that are not counted": ended(written="0"),
    "an operation that is a list": '{"op": ["ended"], "code": 3, "written": 0}',
    "an operation that is an object": '{"op": {"ended": 1}, "code": 3, "written": 0}',
}


@pytest.mark.parametrize("said", IMPROPER_ENDS.values(), ids=IMPROPER_ENDS)
async def test_an_end_that_no_machine_of_ours_says_is_none(said: str) -> None:
    """What is kept of a machine's word is a number below 256 and a short text, so no reader of it meets more."""
    with told() as one:
        await one.hears(said)
        assert not one._ended.done()  # noqa: SLF001


DEEP = "[" * 300 + "]" * 300


@pytest.mark.parametrize("field", ["tail", "signal", "ooms", "more"])
@pytest.mark.parametrize("value", [DEEP, "1" * 4000, '"x"', "null", '{"a": 1}', "1e999", '"\\ud800"'])
async def test_control_an_end_is_one_whatever_else_is_said_with_it(field: str, value: str) -> None:
    with told() as one:
        await one.hears(ended(**{field: "here"}).replace('"here"', value))
        reason = one._ended.result()  # noqa: SLF001
        assert (reason.kind, reason.exit_code) == ("exited", 3)
        assert len(reason.detail) <= 8192


async def test_an_end_is_said_once() -> None:
    with told() as one:
        await one.hears(ended(code=1))
        await one.hears(ended(code=137, signal=9, ooms=1))
        assert one._ended.result().exit_code == 1  # noqa: SLF001


async def test_an_answer_is_taken_for_the_question_that_waits_for_it_and_once() -> None:
    """What is said before its question, twice, or to another one, answers nothing."""
    with told() as one:
        await one.hears("\n".join(json.dumps({"op": "first", "n": n}) for n in range(100)))
        assert one._pending == {}  # noqa: SLF001
        said = await one.asks("first", '{"op": "second", "n": 1}\n{"op": "first", "n": 2}\n{"op": "first", "n": 3}\n')
        assert said == {"op": "first", "n": 2}
        assert await one.asks("second", '{"op": "first", "n": 4}\n{"op": "second", "n": 5}\n') == {
            "op": "second",
            "n": 5,
        }


async def test_what_is_said_in_answer_to_many_questions_is_not_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_protocol, "MAX_BYTES", 100)
    mine, theirs = socket.socketpair()
    answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    over = asyncio.Event()
    with closing(LineChannel(mine, answers.put_nowait, over.set)) as one, theirs:
        for _ in range(20):
            await one.send({"op": "ask"})
            theirs.recv(1000)
            theirs.sendall(b'{"op": "answer"}\n')
            async with within(10):
                assert await answers.get() == {"op": "answer"}
        assert not over.is_set()


@pytest.mark.parametrize("given_up", ["", "migrate", "query-migrate"])
async def test_a_state_that_cannot_be_written_is_not_written_on(monkeypatch: pytest.MonkeyPatch, given_up: str) -> None:
    """QEMU would go on with it, while the sandbox does: what that changes is written again, without an end."""
    monkeypatch.setattr(qmp, "SAVE_SECONDS", 600.0 if given_up else 0.05)
    mine, theirs = socket.socketpair()
    asked: list[str] = []
    begun, loop = asyncio.Event(), asyncio.get_running_loop()

    def answer() -> None:
        with contextlib.suppress(OSError), theirs.makefile("rb") as file:
            for row in file:
                said = json.loads(row)
                asked.append(said["execute"])
                status = "cancelled" if "migrate_cancel" in asked else "active"
                if said["execute"] != given_up or status == "cancelled":
                    theirs.sendall(json.dumps({"id": said["id"], "return": {"status": status}}).encode() + b"\n")
                if said["execute"] == given_up:
                    loop.call_soon_threadsafe(begun.set)

    one = qmp.QmpMonitor(mine)
    answering = asyncio.create_task(asyncio.to_thread(answer))
    with theirs:
        writing = asyncio.create_task(one.write_down(theirs.fileno(), 0))
        if given_up:
            async with within(10):
                await begun.wait()
            writing.cancel()
        done = await asyncio.gather(writing, return_exceptions=True)
        one.close()
        async with within(10):
            await answering
    assert isinstance(done[0], asyncio.CancelledError if given_up else EngineError)
    assert getattr(done[0], "code", None) is (None if given_up else EndCode.ENGINE_SILENT)
    assert asked[-2:] == ["migrate_cancel", "query-migrate"]


class Scripted(qmp.QmpMonitor):
    """A monitor with answers of the test's; None is silence."""

    def __init__(self, *answers: str | None) -> None:
        self.answers, self.asked = list(answers), list[str]()

    async def ask(self, what: str, fds: tuple[int, ...] = (), **arguments: object) -> dict[str, Any]:
        self.asked.append(what)
        status = self.answers.pop(0) if what.startswith("query") else ""
        if status is None:
            raise EngineError(EndCode.ENGINE_SILENT, "QEMU does not answer")
        return {"status": status}


async def test_more_than_a_state_is_not_written_on(tmp_path: Path) -> None:
    one = Scripted("active", "cancelled")
    with (tmp_path / "state").open("wb") as file:
        file.truncate(2000)
        await Scripted("active", "completed").write_down(file.fileno(), 2000)
        with pytest.raises(EngineError, match="more than a machine's state"):
            await one.write_down(file.fileno(), 1999)
    assert one.asked[-2:] == ["migrate_cancel", "query-migrate"]


async def test_qemu_may_be_silent_while_it_reads_a_slow_disk() -> None:
    await Scripted("inmigrate", None, "inmigrate", "paused").read_back(1)
    assert [qmp.seconds_for(size) for size in (1, 1 << 30)] == [60, 128]


async def test_a_monitor_that_is_slow_to_begin_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU begins with its monitor once: what does not hear of that in time hears of it with the next question."""
    monkeypatch.setattr(qmp, "ANSWER_SECONDS", 0.05)
    mine, theirs = socket.socketpair()
    one = qmp.QmpMonitor(mine)
    with theirs:
        with pytest.raises(EngineError) as met:
            await one.ask("stop")
        assert met.value.code is EndCode.ENGINE_SILENT
        asked = [json.loads(row) for row in theirs.recv(1000).splitlines()]
        assert [each["execute"] for each in asked] == ["qmp_capabilities"]
        monkeypatch.setattr(qmp, "ANSWER_SECONDS", 10.0)
        theirs.sendall(json.dumps({"id": asked[0]["id"], "return": {}}).encode() + b"\n")
        asking = asyncio.create_task(one.ask("stop"))
        theirs.settimeout(10)
        (said,) = [json.loads(row) for row in (await asyncio.to_thread(theirs.recv, 1000)).splitlines()]
        assert said["execute"] == "stop"
        theirs.sendall(json.dumps({"id": said["id"], "return": {"status": "paused"}}).encode() + b"\n")
        assert await asking == {"status": "paused"}
    one.close()


def _send(sock: socket.socket, data: bytes) -> None:
    with contextlib.suppress(OSError):  # it was closed at the other end
        sock.sendall(data)


async def test_lines_go_both_ways() -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        heard = Heard(mine)
        theirs.sendall(b'{"op": "up"}\n{"op"')
        theirs.sendall(b': "started"}\n')
        async with within(10):
            await until(lambda: len(heard.said) >= 2)
            await heard.lines.send({"op": "start"})
        assert [said["op"] for said in heard.said] == ["up", "started"]
        assert theirs.recv(100) == b'{"op": "start"}\n'
        heard.lines.close()


async def test_a_pipe_ends_at_a_number_of_bytes_though_nobody_closes_it() -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        pipe = Pipe(mine)
        theirs.sendall(b"hello")
        reading = asyncio.create_task(pipe.receive(100))
        await asyncio.sleep(0)
        pipe.end_at(7)
        await asyncio.to_thread(os.write, theirs.fileno(), b", ")
        async with within(10):
            assert await reading == b"hello, "
            assert await pipe.receive() == b""
        pipe.close()


async def test_control_a_pipe_that_has_not_come_to_its_end_waits() -> None:
    mine, theirs = socket.socketpair()
    with theirs:
        pipe = Pipe(mine)
        theirs.sendall(b"hello")
        pipe.end_at(7)
        reading = asyncio.create_task(pipe.receive(100))
        done, _ = await asyncio.wait([reading], timeout=0.1)
        assert not done
        pipe.close()
        await reading


def test_sizes_are_what_the_page_says() -> None:
    assert hardware.process_bytes(0) <= 450 * MIB


@pytest.mark.parametrize("memory", [64 * MIB, 192 * MIB, 2048 * MIB, 1 << 40])
def test_the_room_for_a_state_is_enough_for_all_of_a_machine_s_memory(memory: int) -> None:
    """A page of random bytes, with 17 bytes before it, for each that the machine has, and 8 MB for all else."""
    pages = hardware.memory_bytes(memory) // 4096
    assert hardware.state_bytes(memory) >= pages * (4096 + 17) + 8 * MIB
    assert hardware.state_bytes(memory) < memory * 1.03 + 200 * MIB
