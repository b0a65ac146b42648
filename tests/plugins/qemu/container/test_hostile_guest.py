"""A guest that is hostile as a whole: its kernel's first process, with every right there is, does what it likes.

No cell comes that far; this is what QEMU and the host meet if one did. Each ends with a reason and within its bound,
and leaves nothing. Emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.qemu import build_format, hardware
from sandbox_kernel.plugins.qemu import container as module
from sandbox_kernel.plugins.qemu.build import archive
from sandbox_kernel.plugins.qemu.container import QemuContainer
from tests.plugins.qemu.container.test_machines import machine_of, seen_of
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.plugins.qemu.engine import machine_of_tests
from tests.support.engines import ECHO, ONLY, SMALL, alive
from tests.support.patience import within
from tests.support.roots import describe

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(300),
]

BEFORE = """
import os, sys, time
sys.path.insert(0, "/run/guest")
from container.guest import Words, port
from container.confinement import libc
pipe, words = port("pipe"), port("words")
for fd in (pipe, words):
    os.set_blocking(fd, True)
def say(data):
    while data:
        data = data[os.write(words, data):]
def began():
    say(b'{"op": "up"}\\n')
    heard = b""
    while b"\\n" not in heard:
        heard += os.read(words, 65536)
    say(b'{"op": "started"}\\n')
def carry(data):
    while data:
        data = data[os.write(pipe, data[:32768]):]
def for_ever():
    while True:
        time.sleep(1)
"""
"""What a hostile first process begins with."""

WITHIN_THE_START = {
    "says nothing": ("for_ever()", EndCode.ENGINE_SILENT),
    "half a line, and no more": ('say(b\'{"op": "u\'); for_ever()', EndCode.ENGINE_SILENT),
    "something else in place of an answer": (
        'say(b\'{"op": "thawed", "ok": true}\\n{"op": [1]}\\n\'); for_ever()',
        EndCode.ENGINE_SILENT,
    ),
    "a line without an end, at full speed": ("while True: say(b'x' * 65536)", EndCode.ENGINE_SILENT),
    "lines without number": ('while True: say(b\'{"op": "x"}\\n\' * 1000)', EndCode.ENGINE_SILENT),
    "bytes at the pipe before its time": ("while True: carry(os.urandom(32768))", EndCode.ENGINE_SILENT),
    "halts": ("libc.reboot(0xCDEF0123 - (1 << 32)); for_ever()", EndCode.ENGINE_SILENT),
    "switches itself off": ("libc.reboot(0x4321FEDC); for_ever()", EndCode.ENGINE_FAILED),
    "starts itself again": ("libc.reboot(0x01234567); for_ever()", EndCode.ENGINE_FAILED),
    "panics": ("open('/proc/sysrq-trigger', 'w').write('c'); for_ever()", EndCode.ENGINE_FAILED),
}
"""What it does, and what is said of it."""
SILENT_SECONDS = 25.0


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return what makes a root of a program, which its machine's first process is."""
    real = Path(machine_of_tests())

    def make(program: str | None) -> str:
        folder = tmp_path_factory.mktemp("hostile")
        for each in (folder, *folder.parents):
            if each.stat().st_uid == os.geteuid() and each.name.startswith(("pytest-", "hostile", "popen-")):
                each.chmod(0o755)
        shutil.copytree(real / build_format.FOLDER, folder / build_format.FOLDER, copy_function=linked)
        python = folder / "root/usr/local/bin/python3"
        python.parent.mkdir(parents=True)
        python.touch(0o755)
        describe(folder)
        if program is not None:  # the kernel takes one archive after another, and of a file the last
            path = folder / build_format.FOLDER / build_format.INITRD
            data = path.read_bytes()
            path.unlink()
            text = (BEFORE + program + "\n").encode()
            path.write_bytes(data + bytes(-len(data) % 4) + archive({"guest/__main__.py": (0o100644, text)}, ()))
            path.chmod(0o644)
        return str(folder)

    return make


def linked(source: str, target: str) -> None:
    os.link(source, target)


async def started(root: str) -> QemuContainer:
    return await QEMU.make().start(QEMU.spec(image=root))


@pytest.mark.parametrize("deed", WITHIN_THE_START)
async def test_a_start_ends_with_its_reason_and_within_its_bound(
    deed: str, hostile: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    program, code = WITHIN_THE_START[deed]
    if code is EndCode.ENGINE_SILENT:
        monkeypatch.setattr(module, "BOOT_SECONDS", SILENT_SECONDS)
    spec = QEMU.spec(image=hostile(program))
    begun = time.monotonic()
    with pytest.raises(EngineError) as caught:
        await QEMU.make().start(spec)
    print(f"{deed}: {caught.value} after {time.monotonic() - begun:.1f} s")
    assert caught.value.code is code
    assert await QEMU.left(spec.session_id) == []


async def test_control_the_machine_of_these_tests_starts_with_our_own_first_process(
    hostile: Callable[[str | None], str],
) -> None:
    async with alive(QEMU.make().start(QEMU.spec(ECHO, image=hostile(None)))) as container:
        await container.send(b"hello")
        assert await container.receive(5) == b"hello"


FORGED = {
    "an end that is yet to come": '{"op": "ended", "code": 0, "written": 1e400}',
    "numbers that are none": '{"op": "ended", "code": true, "written": "1"}',
    "another end after the first": (
        '{"op": "ended", "code": 7, "written": 0}\\n{"op": "ended", "code": 8, "written": 9}'
    ),
    "a tail without an end": '{"op": "ended", "code": 7, "written": 0, "tail": "%s"}',
}
EXPECTED = {"another end after the first": 7, "a tail without an end": 7}


@pytest.mark.parametrize("what", FORGED)
async def test_a_forged_end_is_an_end_of_this_sandbox_or_nothing(what: str, hostile: Callable[[str], str]) -> None:
    line = FORGED[what].replace("%s", "x" * 200_000)
    spec = QEMU.spec(image=hostile(f"began(); say(b'''{line}\\n'''); carry(b'after'); for_ever()"))
    container = await QEMU.make().start(spec)
    try:
        assert await container.receive() in {b"after", b""}
        if what in EXPECTED:
            async with within(30):
                reason = await container.wait()
            assert reason.exit_code == EXPECTED[what]
            assert len(reason.detail) <= module.MAX_DETAIL
    finally:
        async with within(15):
            await container.kill()
    assert await QEMU.left(spec.session_id) == []


async def test_a_flood_at_both_ports_holds_little_of_the_host_and_ends_when_it_is_ended(
    hostile: Callable[[str], str],
) -> None:
    """Nobody reads its pipe, so QEMU holds what fits; its words end the channel."""
    program = (
        "began()\nif os.fork():\n    while True: carry(os.urandom(32768))\n"
        'while True: say(b\'{"op": "frozen"}\\n\' * 1000)'
    )
    container = await started(hostile(program))
    try:
        for _ in range(8):
            assert await container.receive()
        before = own_memory()
        await asyncio.sleep(3)
        assert own_memory() - before < 32 << 20
        with pytest.raises(EngineError):
            await container.save(os.open("/dev/null", os.O_WRONLY | os.O_CLOEXEC))
    finally:
        async with within(15):
            await container.kill()


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def own_memory() -> int:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_its_disk_is_not_written_to(hostile: Callable[[str], str]) -> None:
    program = """
began()
try:
    fd = os.open("/dev/vda", os.O_RDWR)
    os.write(fd, b"owned" * 1000)
    os.fsync(fd)
    carry(b"written")
except OSError as error:
    carry(b"refused %d" % error.errno)
carry(b", read-only: " + open("/sys/block/vda/ro", "rb").read())
for_ever()
"""
    root = hostile(program)
    disk = Path(root, build_format.FOLDER, build_format.DISK)
    before = digest(disk)
    async with alive(started(root)) as container:
        said = b""
        while b"only: " not in said or not said.endswith(b"\n"):
            data = await container.receive()
            assert data, await container.wait()
            said += data
    assert re.match(rb"refused \d+, read-only: 1\n", said), said
    assert digest(disk) == before


async def test_devices_that_are_misused_and_memory_without_end_stay_within_qemu_s_walls(
    hostile: Callable[[str], str],
) -> None:
    """Random bytes in the configuration of each device and at the machine's ports, while all its memory is used."""
    program = """
began()
import glob, mmap, random
if not os.fork():
    held = []
    while True:
        held.append(bytearray(b"x") * (1 << 20))
if not os.fork():
    ports = os.open("/dev/port", os.O_RDWR) if os.path.exists("/dev/port") else -1
    files = [os.open(path, os.O_RDWR) for path in glob.glob("/sys/bus/pci/devices/*/config")]
    carry(b"begun")
    while True:
        for fd in files:
            try:
                os.pwrite(fd, os.urandom(random.choice((1, 2, 4))), 4 * random.randrange(64))
            except OSError:
                pass
        if ports >= 0:
            try:
                os.pwrite(ports, os.urandom(1), random.randrange(0x10000))
            except OSError:
                pass
for_ever()
"""
    root = hostile(program)
    spec = QEMU.spec(image=root)
    container = await QEMU.make().start(spec)
    try:
        await container.receive()
        process = machine_of(spec.session_id)
        most = hardware.process_bytes(SMALL.memory)
        until = time.monotonic() + 6
        while time.monotonic() < until and process.is_running():
            try:
                assert process.memory_info().rss <= most
                status, interfaces, _ = seen_of(process)
            except (OSError, ProcessLookupError):
                break  # it ended, by its own limit or by what it was told: that is contained as well
            assert status["CapEff"] == "0" * 16
            assert interfaces == ["lo"]
            assert process.children() == []
            await asyncio.sleep(0.2)
    finally:
        async with within(15):
            await container.kill()
    assert (await container.wait()).kind in {"killed", "exited", "out_of_memory"}
    assert await QEMU.left(spec.session_id) == []
