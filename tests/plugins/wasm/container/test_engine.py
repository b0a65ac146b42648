"""Guests of the engine wasm: the kernel in them, their limits and ends, and what hostile code in one meets."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import CellTimeout, EngineError, ImageMissing, KernelDied, SandboxError
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.inspectable import user_of
from sandbox_kernel.engines.owner_process import account_name
from sandbox_kernel.plugins.wasm.engine import WasmContainer, WasmEngine, sessions
from sandbox_kernel.plugins.wasm.image import COMMAND, find
from tests.support.patience import within
from tests.support.processes import python

pytestmark = pytest.mark.xdist_group("wasm")
INTERRUPTS = int(os.environ.get("SANDBOX_KERNEL_TEST_INTERRUPTS", "20"))


@pytest.fixture(scope="module", autouse=True)
def there() -> None:
    pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
    try:
        find("sandbox-kernel:data")
    except (ImageMissing, EngineError) as error:
        pytest.skip(f"{error.message}; `make test-wasm` runs `{COMMAND}`")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(engine="wasm", cell_timeout=60) as one:
        yield one


def ename(sandbox: Sandbox, code: str) -> str:
    error = sandbox.run_code(code).error
    return "" if error is None else error.name


# --- the kernel -----------------------------------------------------------------------------------------------------


def test_results_streams_errors_and_displays(sandbox: Sandbox) -> None:
    assert sandbox.run_code("6 * 7").text == "42"
    ran = sandbox.run_code("import sys; print('out'); print('err', file=sys.stderr); 1 / 0")
    assert (ran.logs.stdout, ran.logs.stderr) == (["out\n"], ["err\n"])
    assert ran.error is not None
    assert (ran.error.name, "1 / 0" in str(ran.error.traceback)) == ("ZeroDivisionError", True)
    plot = sandbox.run_code("import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('A title'); plt.show()")
    assert plot.error is None
    assert any(result.png for result in plot.results)
    table = sandbox.run_code("import pandas as pd; pd.DataFrame({'a': [1, 2]})")
    assert "<table" in str(table.results[0].html)


def test_an_await_at_the_top_and_a_loop_of_timers(sandbox: Sandbox) -> None:
    code = "import asyncio; await asyncio.gather(*(asyncio.sleep(0.01, n) for n in range(3)))"
    assert sandbox.run_code(code).text == "[0, 1, 2]"


@pytest.mark.parametrize(
    ("code", "error", "word"),
    [
        ("!ls", "OSError", "wasm-no-processes"),
        ("import threading; threading.Thread(target=print).start()", "RuntimeError", "thread"),
        ("import socket; socket.socket()", "OSError", ""),
        ("import asyncio; await asyncio.Event().wait()", "CancelledError", "wasm-no-sockets"),
        ("import pyarrow", "ModuleNotFoundError", ""),
    ],
)
def test_what_it_cannot_is_an_error_that_says_so(sandbox: Sandbox, code: str, error: str, word: str) -> None:
    said = sandbox.run_code(code).error
    assert said is not None
    assert said.name == error
    assert word in str(said)


def test_files_go_in_and_out_and_the_host_s_are_not_there(sandbox: Sandbox) -> None:
    sandbox.files.write("in.txt", b"hello")
    assert sandbox.run_code("open('in.txt').read()").text == "'hello'"
    sandbox.run_code("open('/mnt/data/out.txt', 'w').write('there')")
    assert sandbox.files.read("out.txt") == "there"
    for path in ("/etc/passwd", "../../etc/passwd", "/mnt/data/../../etc/passwd", "/proc/self/environ"):
        assert ename(sandbox, f"open({path!r})") in {"FileNotFoundError", "PermissionError"}


def test_no_link_leads_out(sandbox: Sandbox) -> None:
    """Of the guest's own making, with a slash at its end and without; the control is one that stays inside."""
    code = """
import os
open('target', 'w').write('inside')
os.symlink('target', 'good')
found = [open('good').read()]
for n, to in enumerate(('/etc/passwd', '/', '../../../etc/passwd', '/image', '..')):
    for end in ('', '/'):
        try:
            name = f'bad{n}{len(end)}'
            os.symlink(to + end, name)
            found.append(os.listdir(name) if to in ('/', '..', '/image') else open(name).read())
        except OSError:
            continue
found
"""
    assert sandbox.run_code(code).text == "['inside']"


def test_the_image_cannot_be_written_to(sandbox: Sandbox) -> None:
    assert ename(sandbox, "open('/opt/site/x', 'w')") in {"PermissionError", "OSError"}


# --- limits ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["while True: pass", "import time; time.sleep(600)", "import re; re.match('(a+)+$', 'a' * 40 + 'b')"]
)
def test_a_cell_that_lasts_too_long_is_interrupted_and_the_variables_stay(sandbox: Sandbox, code: str) -> None:
    sandbox.run_code("kept = 7")
    began = time.monotonic()
    with contextlib.suppress(CellTimeout):
        said = sandbox.run_code(code, timeout=0.5).error
        assert said is not None
        assert said.name == "CellTimeout"
    assert time.monotonic() - began < 30
    assert sandbox.run_code("kept").text == "7"


def test_one_that_ignores_the_interrupt_loses_its_variables_and_no_files() -> None:
    with Sandbox(engine="wasm", interrupt_grace=0.5) as own:
        own.run_code("kept = 7; open('file', 'w').write('there')")
        code = "while True:\n try:\n  while True: pass\n except BaseException: pass"
        with contextlib.suppress(CellTimeout):
            assert ename_of(own.run_code(code, timeout=0.5)) == "CellTimeout"
        assert ename(own, "kept") == "NameError"
        assert own.run_code("open('file').read()").text == "'there'"


def ename_of(ran: Any) -> str:
    return "" if ran.error is None else str(ran.error.name)


def test_memory_ends_and_variables_stay() -> None:
    with Sandbox(engine="wasm", memory="512M", scratch_size="32M", tmp_size="32M") as own:
        assert ename(own, "kept, more = 7, []\nwhile True: more.append(bytearray(10**7))") == "MemoryError"
        assert own.run_code("del more; kept").text == "7"
        control = own.run_code("len(bytearray(10**8))")
        assert control.text == "100000000"


def test_scratch_ends_at_its_size() -> None:
    with Sandbox(engine="wasm", scratch_size="8M") as own:
        code = "file = open('big', 'wb', buffering=0)\nwhile file.write(bytes(1 << 20)): pass"
        assert ename(own, code) == "OSError"
        assert own.run_code("import os; os.path.getsize('big') <= 8 << 20").text == "True"


def test_an_exit_is_told_and_the_next_kernel_starts(sandbox: Sandbox) -> None:
    with contextlib.suppress(KernelDied):
        assert ename(sandbox, "import os; os._exit(3)") == "KernelDied"
    assert sandbox.run_code("1 + 1").text == "2"


# --- frames ---------------------------------------------------------------------------------------------------------


class Frames:
    """An agent's other side: what a session's process says, without a session."""

    def __init__(self, container: WasmContainer) -> None:
        self.container = container
        self.decoder = wire.Decoder(256 << 20)
        self.heard: list[tuple[int, tuple[bytes, ...]]] = []
        self.sent = 0

    async def frame(self) -> tuple[int, Any]:
        async with within(60):
            while not self.heard:
                data = await self.container.receive()
                assert data, (await self.container.wait()).detail
                self.heard += self.decoder.feed(data)
        kind, parts = self.heard.pop(0)
        return kind, [json.loads(part) for part in parts[:4]]

    async def event(self, op: str) -> dict[str, Any]:
        while True:
            kind, parts = await self.frame()
            if kind == wire.AGENT and parts[0]["op"] == op:
                return dict(parts[0])

    async def tell(self, op: str, **fields: Any) -> None:
        await self.container.send(b"".join(wire.encode(wire.AGENT, [json.dumps({**fields, "op": op}).encode()])))

    async def send(self, name: str, **content: Any) -> str:
        self.sent += 1
        header = {"msg_id": f"m{self.sent}", "msg_type": name, "session": "s", "username": "", "version": "5.3"}
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        await self.container.send(b"".join(wire.encode(wire.SHELL, parts)))
        return f"m{self.sent}"

    async def ask(self, name: str, **content: Any) -> dict[str, Any]:
        await self.send(name, **content)
        while True:
            kind, parts = await self.frame()
            if kind == wire.SHELL:
                await self.until_idle()
                return dict(parts[3])

    async def until_idle(self) -> None:
        while True:
            kind, parts = await self.frame()
            if kind == wire.IOPUB and parts[3].get("execution_state") == "idle":
                return

    async def execute(self, code: str) -> dict[str, Any]:
        return await self.ask("execute_request", code=code, silent=False, store_history=True)


@pytest.fixture
async def frames() -> AsyncIterator[Frames]:
    spec = shipping.new_spec(Settings(engine="wasm"))
    container = await WasmEngine().start(spec)
    try:
        made = Frames(container)
        hello = await made.event("hello")
        await container.attest(hello["report"], spec)
        await made.event("kernel_ready")
        yield made
    finally:
        await container.kill()


async def test_completion_inspection_and_the_rest_of_a_kernel(frames: Frames) -> None:
    await frames.execute("a_long_name = 1")
    completed = await frames.ask("complete_request", code="a_lon", cursor_pos=5)
    assert (completed["matches"], completed["cursor_start"]) == (["a_long_name"], 0)
    inspected = await frames.ask("inspect_request", code="len", cursor_pos=3, detail_level=0)
    assert "number of items" in inspected["data"]["text/plain"]
    assert (await frames.ask("is_complete_request", code="for x in y:"))["status"] == "incomplete"
    assert (await frames.ask("history_request", hist_access_type="tail", n=5))["history"] == []
    assert (await frames.ask("kernel_info_request"))["language_info"]["name"] == "python"
    await frames.execute("import comm; one = comm.create_comm(target_name='x')")
    assert len((await frames.ask("comm_info_request"))["comms"]) == 1
    assert (await frames.ask("nonsense_request"))["status"] == "error"


async def test_each_interrupt_ends_its_cell_and_keeps_the_variables(frames: Frames) -> None:
    await frames.execute("count = 0; import time")
    awaits = "await __import__('asyncio').sleep(600)"
    codes = ("while True: pass", "time.sleep(600)", "while True: sum(range(1000))", awaits)
    ended = 0
    for number in range(INTERRUPTS):
        await frames.send("execute_request", code=f"count += 1\n{codes[number % 4]}", silent=False, store_history=False)
        while True:
            kind, parts = await frames.frame()
            if kind == wire.IOPUB and parts[0]["msg_type"] == "execute_input":
                break
        await frames.tell("signal", signal=int(signal.SIGINT))
        while True:
            kind, parts = await frames.frame()
            if kind == wire.SHELL:
                break
        await frames.until_idle()
        ended += parts[3]["ename"] == "KeyboardInterrupt"
    assert ended == INTERRUPTS
    assert (await frames.execute("1"))["status"] == "ok"


async def test_an_interrupt_of_a_kernel_without_a_cell_is_of_no_effect(frames: Frames) -> None:
    for _ in range(5):
        await frames.tell("signal", signal=int(signal.SIGINT))
        assert (await frames.execute("sum(range(1000))"))["status"] == "ok"


async def test_a_guest_that_speaks_in_the_agent_s_place_is_not_heard(frames: Frames) -> None:
    """It has the function that sends; the control is a message of its own, which passes."""
    code = """
from _host import call
import struct
def frame(kind, *parts):
    return struct.pack(f'!BH{len(parts)}I', kind, len(parts), *map(len, parts)) + b''.join(parts)
for kind in range(5, 256):
    call(b'S' + frame(kind, b'{"op": "kernel_exited", "number": 1}', b'{}', b'{}', b'{}'))
for junk in (b'', b'S', b'S\\xff', b'X' * 100, b'S' + bytes(70000)):
    call(junk)
call(b'S' + frame(4, b'{"msg_type": "control"}', b'{}', b'{}', b'{}'))
"""
    await frames.send("execute_request", code=code, silent=False, store_history=True)
    heard = []
    while True:
        kind, parts = await frames.frame()
        if kind == wire.SHELL:
            break
        heard.append((kind, parts[0].get("msg_type")))
    assert {kind for kind, _ in heard} == {wire.IOPUB}
    assert (wire.IOPUB, "control") in heard


OPENED = [
    *("/data", "/image/lib", "/image/lib/mpl-data", "/image/memory", "/image/module.cwasm", "/image/site", "/tmp"),
    "/tmp/#N (deleted)",  # its stderr
    *("/memfd:checkpoint (deleted)", "/proc/N/pagemap"),  # of its checkpoints
    *("anon_inode:[eventfd]", "anon_inode:[eventpoll]", "anon_inode:[eventpoll]"),  # of wasmtime's WASI
    *("socket:[N]", "socket:[N]"),  # the pipe, which is its stdin and its stdout
]


async def test_what_the_host_s_side_has_is_little(frames: Frames) -> None:
    """As the machine shows it: no environment, no descriptors but the pipe, a network and a root of its own."""
    place = Path("/proc", frames.container.id.removeprefix("wasm-"))
    assert (place / "environ").read_bytes() in {b"", b"LC_CTYPE=C.UTF-8\0"}
    status = dict(line.split(":\t", 1) for line in (place / "status").read_text().splitlines() if ":\t" in line)
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    assert {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapInh", "CapAmb")} == {0}
    # A template opens the machine code by the machine's own path: a file, from which no way leads on.
    opened = sorted(
        re.sub(r"[0-9]+", "N", re.sub(r".*/(?=module\.cwasm$)", "/image/", str(one.readlink())))
        for one in (place / "fd").iterdir()
    )
    assert opened == sorted(OPENED)
    own = {name: Path("/proc/self/ns", name).readlink() for name in ("net", "mnt", "ipc", "uts")}  # noqa: ASYNC240
    assert not any((place / "ns" / name).readlink() == one for name, one in own.items())
    assert sorted(os.listdir(place / "root")) == ["data", "image", "tmp"]  # noqa: PTH208


async def test_two_sessions_draw_different_numbers() -> None:
    code = """
import json, numpy, random, tempfile, uuid
print(json.dumps([random.random(), numpy.random.rand(), str(uuid.uuid4()), tempfile.mktemp()]))
"""
    drawn = []
    for _ in range(2):
        with Sandbox(engine="wasm") as one:
            drawn.append(json.loads(one.run_code(code).logs.stdout[0]))
    assert all(a != b for a, b in zip(*drawn, strict=True))


# --- ends -----------------------------------------------------------------------------------------------------------


async def gone(session: str) -> None:
    async with within(10):
        while any(found == session for _, found, _, _ in sessions()):  # noqa: ASYNC110 (in another process)
            await asyncio.sleep(0.02)


async def test_it_ends_with_its_pipe() -> None:
    spec = shipping.new_spec(Settings(engine="wasm"))
    container = await WasmEngine().start(spec)
    await Frames(container).event("hello")
    assert any(found == spec.session_id for _, found, _, _ in sessions())
    container.abandon()
    await gone(spec.session_id)


async def test_whose_it_is_and_what_it_uses_is_listed() -> None:
    engine, spec = WasmEngine(), shipping.new_spec(Settings(engine="wasm"))
    container = await engine.start(spec)
    await Frames(container).event("hello")
    [row] = [one for one in await engine.list() if one.session == spec.session_id]
    assert (row.owner_pid, row.owner_alive, user_of(row)) == (os.getpid(), True, account_name(os.geteuid()))
    used = await engine.used(row.container)
    assert used.memory_bytes is not None
    assert 1 << 20 < used.memory_bytes < 1 << 30
    assert used.cpu_seconds is not None
    await container.kill()
    assert (await engine.used(row.container)).memory_bytes in {None, 0}


async def test_a_kill_may_be_repeated_and_is_told() -> None:
    spec = shipping.new_spec(Settings(engine="wasm"))
    container = await WasmEngine().start(spec)
    await container.kill()
    await container.kill()
    assert (await container.wait()).kind == "killed"
    assert await container.receive() == b""
    with pytest.raises(EngineError, match="gone"):
        await container.attest({}, spec)
    await gone(spec.session_id)


OWNER = """
import sys
from sandbox_kernel import Sandbox
sandbox = Sandbox(engine="wasm")
sandbox.run_code("1")
print(sandbox.id, flush=True)
sandbox.run_code("while True: pass")
"""


async def test_sigkill_of_the_owner_ends_it() -> None:
    before = {found for _, found, _, _ in sessions()}
    with python(OWNER) as (_, own):
        assert own in {found for _, found, _, _ in sessions()} - before
    await gone(own)


async def test_what_an_attestation_is_not_asked_for_differs() -> None:
    from sandbox_kernel.engines.attested_start import attestations

    settings = Settings(engine="wasm", limits=Limits())
    as_asked, other = await attestations(settings, WasmEngine())
    assert all(line.ok for line in as_asked)
    assert not all(line.ok for line in other)


def test_a_missing_image_and_another_runtime_are_named() -> None:
    for one, setting in (
        (Sandbox(engine="wasm", image="mine"), "image"),
        (Sandbox(engine="wasm", runtime="runsc"), "runtime"),
    ):
        with pytest.raises(SandboxError) as refused, one:
            pass
        assert refused.value.setting == setting
