"""Sessions of the engine wasm that return to what they were, or go on in another sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import threading
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.codes import Survived
from sandbox_kernel.core.errors import CellTimeout, FileNotThere, FileRefused, KernelDied, OutOfMemory, SandboxError
from sandbox_kernel.plugins.wasm.image import find
from sandbox_kernel.sdk.execution import Execution
from tests.plugins.wasm.container.test_engine import there

__all__ = ["there"]
pytestmark = pytest.mark.xdist_group("wasm")
IGNORES = "while True:\n try:\n  while True: pass\n except BaseException: pass"
FILL = """
hold, size = None, 1 << 24
while size >= 1024:
    try:
        while True: hold = hold, bytes(size)
    except MemoryError:
        size >>= 1
"""
"""What is left is too little for the guest's own work after the cell."""
DRAWS = """
import json, os, random, secrets, tempfile, uuid
import numpy as np
names = [random.random(), np.random.rand(), np.random.default_rng().random(), secrets.token_hex(8), os.urandom(8).hex()]
print(json.dumps([*names, str(uuid.uuid1()), str(uuid.uuid4()), tempfile.mktemp()]))
"""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(engine="wasm", undo="on", cell_timeout=60, interrupt_grace=0.5) as one:
        yield one


def failure(ran: Execution) -> tuple[str, str]:
    return ("", "") if ran.error is None else (ran.error.name, str(ran.error))


def drawn(sandbox: Sandbox) -> list[object]:
    return list(json.loads(sandbox.run_code(DRAWS).logs.stdout[0]))


# --- in a cell ------------------------------------------------------------------------------------------------------


def test_undo_takes_back_one_cell_after_the_other(sandbox: Sandbox) -> None:
    for value in ("1", "2", "3"):
        sandbox.run_code(f"value = {value}")
    found = []
    for _ in range(2):
        sandbox.run_code("%undo")
        found.append(sandbox.run_code("value").text)
        sandbox.run_code("%undo")  # of the look
    assert found == ["2", "1"]


def test_a_checkpoint_of_a_name_is_returned_to_more_than_once(sandbox: Sandbox) -> None:
    sandbox.run_code("value = 1")
    assert sandbox.run_code("%checkpoint one").text == "'one'"
    for _ in range(2):
        sandbox.run_code("value = 2; later = 3")
        sandbox.run_code("%undo one")
        assert sandbox.run_code("value, 'later' in globals()").text == "(1, False)"


@pytest.mark.parametrize("undo", ["on", "off"])
def test_a_cell_that_runs_in_a_copy_leaves_nothing(undo: str) -> None:
    with Sandbox(engine="wasm", undo=undo, cell_timeout=1, interrupt_grace=0.5) as one:
        one.run_code("value = 1")
        assert one.run_code("%%fork\nvalue += 1; new = 3\nvalue").text == "2"
        assert failure(one.run_code("%%fork\nvalue = 4\n1 / 0"))[0] == "ZeroDivisionError"
        assert failure(one.run_code(f"%%fork\nvalue = 5\n{IGNORES}"))[0] == CellTimeout.__name__
        assert one.run_code("value, 'new' in globals()").text == "(1, False)"
        assert one.run_code('text = \'"code":"%%fork\\\\n\'; value = 6\nvalue').text == "6"
        assert one.run_code("value").text == "6", "control: any other cell leaves what it did"
        if undo == "on":
            one.run_code("%undo")  # of the look
            one.run_code("%undo")
            assert one.run_code("value").text == "1"


@pytest.mark.parametrize(
    ("line", "word"), [("%undo none", "checkpoint-missing"), ("%checkpoint a/b", "checkpoint-name-unfit")]
)
def test_what_cannot_be_is_said(sandbox: Sandbox, line: str, word: str) -> None:
    name, words = failure(sandbox.run_code(line))
    assert name == "UsageError"
    assert word in words


def test_without_the_setting_a_cell_has_no_checkpoint() -> None:
    with Sandbox(engine="wasm") as own:
        own.run_code("value = 1")
        assert failure(own.run_code("%undo"))[0] == "UsageError"
        own.run_code("%checkpoint")
        own.run_code("value = 2")
        own.run_code("%undo")
        assert own.run_code("value").text == "1"


@pytest.mark.parametrize("setting", [{"undo": "on"}, {"fuel": 10}])
def test_another_engine_refuses_the_settings(setting: dict[str, Any]) -> None:
    with pytest.raises(SandboxError, match="the engine wasm alone") as refused:
        Sandbox(engine="bubblewrap", **setting)
    assert refused.value.setting == next(iter(setting))


def test_a_cell_ends_with_its_fuel_where_the_image_counts_it() -> None:
    """And is refused where it does not. Each cell has as much."""
    with contextlib.ExitStack() as held:
        own = Sandbox(engine="wasm", undo="on", fuel=200_000_000)
        if not find("sandbox-kernel:data").metered:
            with pytest.raises(SandboxError, match="built without fuel"):
                held.enter_context(own)
            return
        held.enter_context(own)
        own.run_code("kept = 7")
        for code in ("for number in range(10**9): pass", IGNORES):
            ended = own.run_code(code).error
            assert ended is not None
            assert (ended.name, ended.code, ended.kept) == ("CellTimeout", "cell-out-of-fuel", Survived.BEFORE_CELL)
            assert own.run_code("kept").text == "7"


# --- the end of a cell ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"), [(IGNORES, "CellTimeout"), (FILL, "OutOfMemory"), ("import os; os.abort()", "KernelDied")]
)
def test_a_cell_that_is_ended_is_taken_back(code: str, error: str) -> None:
    """By its time, by memory, and by a trap. The control is a session without the setting."""
    for undo, left in (("on", "7"), ("off", None)):
        with Sandbox(engine="wasm", undo=undo, memory="512M", scratch_size="32M", tmp_size="32M") as own:
            own.run_code("kept = 7; open('file', 'w').write('there')")
            said = ""
            with contextlib.suppress(CellTimeout, KernelDied, OutOfMemory):
                name, said = failure(own.run_code(f"kept = 8\n{code}", timeout=20 if error == "OutOfMemory" else 0.5))
                assert name == error
            assert (Survived.BEFORE_CELL.sentence() in said) is (undo == "on")
            assert own.run_code("kept").text == left
            assert own.run_code("open('file').read()").text == "'there'"


def test_an_exit_and_a_restart_are_not_taken_back(sandbox: Sandbox) -> None:
    sandbox.run_code("kept = 7")
    with contextlib.suppress(KernelDied):
        sandbox.run_code("import os; os._exit(3)")
    assert failure(sandbox.run_code("kept"))[0] == "NameError"
    sandbox.run_code("kept = 7")
    sandbox.restart()
    assert failure(sandbox.run_code("kept"))[0] == "NameError"


@pytest.mark.parametrize("asks", ["call(b'C')", "call(b'U' + bytes(200)); call(b'C\\xff'); call(b'C' + b'x' * 64)", ""])
def test_a_guest_that_never_comes_to_an_end_for_its_checkpoint_is_ended(sandbox: Sandbox, asks: str) -> None:
    """It asks for one, and then for requests again and again, with its cell on the stack."""
    code = f"from _host import call\n{asks or 'pass'}\nwhile True: call(b'R') if {bool(asks)} else None"
    with contextlib.suppress(CellTimeout):
        assert failure(sandbox.run_code(code, timeout=0.5))[0] == "CellTimeout"
    assert sandbox.run_code("6 * 7").text == "42"


# --- the SDK --------------------------------------------------------------------------------------------------------


def test_checkpoint_and_restore(sandbox: Sandbox) -> None:
    sandbox.run_code("value = 1")
    first, second = sandbox.checkpoint(), sandbox.checkpoint("second")
    assert (second, first != second) == ("second", True)
    sandbox.run_code("value = 2; open('file', 'w').write('stays')")
    sandbox.restore(second)
    assert sandbox.run_code("value, open('file').read()").text == "(1, 'stays')"
    sandbox.restart()
    sandbox.restore(first)
    assert sandbox.run_code("value").text == "1"
    with pytest.raises(FileNotThere):
        sandbox.restore(second)  # it was taken later
    with pytest.raises(FileRefused, match="not valid"):
        sandbox.checkpoint("../name")


def test_a_checkpoint_while_a_cell_runs_is_refused(sandbox: Sandbox) -> None:
    begun = threading.Event()
    code = "print('begun', flush=True); import time; time.sleep(600)"
    running = threading.Thread(
        target=sandbox.run_code, args=(code,), kwargs={"on_stdout": lambda _: begun.set(), "timeout": 60}
    )
    running.start()
    try:
        assert begun.wait(30)
        with pytest.raises(FileRefused, match="a cell runs"):
            sandbox.checkpoint()
    finally:
        sandbox.interrupt()
        running.join(60)


# --- what goes on ---------------------------------------------------------------------------------------------------


def test_a_fork_has_variables_and_files_and_goes_its_own_way(sandbox: Sandbox) -> None:
    sandbox.run_code("import numpy as np; big = np.arange(3_000_000); open('file', 'w').write('before')")
    one, other = sandbox.fork(2)
    with one, other:
        one.run_code("big[0] = 7; open('file', 'w').write('after')")
        look = "int(big[0]), int(big.sum()), open('file').read()"
        total = sum(range(3_000_000))
        assert one.run_code(look).text == str((7, total + 7, "after"))
        assert other.run_code(look).text == sandbox.run_code(look).text == str((0, total, "before"))


def test_a_snapshot_goes_on_in_a_sandbox_of_its_own(sandbox: Sandbox) -> None:
    sandbox.run_code("value = [1, 2]; open('/tmp/file', 'w').write('there')")
    name = sandbox.snapshot(f"test-wasm-{secrets.token_hex(4)}")
    try:
        with Sandbox.from_snapshot(name) as own:
            assert own.run_code("value, open('/tmp/file').read()").text == "([1, 2], 'there')"
    finally:
        Sandbox.delete_snapshot(name)


def test_no_two_that_go_on_draw_the_same_numbers(sandbox: Sandbox) -> None:
    """Two forks, and twice after the same checkpoint. The control is a generator that was made before."""
    sandbox.run_code("import numpy as np; own = np.random.default_rng(1); import random; random.seed(1)")
    drawn(sandbox)
    sandbox.checkpoint("point")
    found, own = [], []
    one, other = sandbox.fork(2)
    with one, other:
        for each in (one, other):
            found.append(drawn(each))
            own.append(each.run_code("own.random()").text)
    for _ in range(2):
        sandbox.restore("point")
        found.append(drawn(sandbox))
        own.append(sandbox.run_code("own.random()").text)
    assert [len(set(each)) for each in zip(*found, strict=True)] == [4] * 8
    assert len(set(own)) == 1


def test_what_was_open_is_no_other_file_afterwards(sandbox: Sandbox) -> None:
    """Its descriptor is a folder's, and a chart still has its font, which is a file that matplotlib keeps open."""
    chart = "import matplotlib.pyplot as plt; plt.plot([1, 2]); plt.title('$x^2$'); plt.show()"
    assert any(result.png for result in sandbox.run_code(chart).results)
    sandbox.run_code("old = open('old', 'w'); old.write('text')")
    sandbox.checkpoint("point")
    sandbox.restore("point")
    sandbox.run_code("new = open('new', 'w'); new.write('new'); new.flush()")
    assert failure(sandbox.run_code("old.flush()"))[0] == "OSError"
    assert sandbox.run_code("old.fileno() != new.fileno(), open('new').read()").text == "(True, 'new')"
    assert any(result.png for result in sandbox.run_code(chart).results)


def test_a_timer_of_before_goes_on(sandbox: Sandbox) -> None:
    sandbox.run_code("import asyncio; task = asyncio.ensure_future(asyncio.sleep(0.5))")
    sandbox.checkpoint("point")
    sandbox.restore("point")
    assert failure(sandbox.run_code("await task", timeout=20)) == ("", "")


async def test_snapshots_and_forks_go_over_e2b_s_wire(tmp_path: Path) -> None:
    pytest.importorskip("sandbox_kernel.plugins.serve", reason="the plugin serve is not here")
    from tests.plugins.serve.container import test_snapshots_on_qemu
    from tests.plugins.serve.container.conftest import options
    from tests.plugins.serve.container.server import Server

    class Guests(test_snapshots_on_qemu.Machines):
        def __init__(self) -> None:
            self.server = Server("--engine", "wasm", *options(tmp_path))

    guests, name = await asyncio.to_thread(Guests), f"test-{secrets.token_hex(4)}"
    try:
        async with AsyncExitStack() as held:
            first = await guests.sandbox(held)
            await guests.run(first, "import random; value = 41; open('file', 'w').write('there')")
            copies = await guests.copies(held, first, 2)
            assert len({await guests.run(one, "value, open('file').read(), random.random()") for one in copies}) == 2
            path = f"/sandboxes/{first['sandboxID']}/snapshots"
            assert (await guests.ask("POST", path, name=name))[0] == 201
            await guests.ask("DELETE", f"/sandboxes/{copies[0]['sandboxID']}")  # a tenant has three
            again = await guests.sandbox(held, name)
            assert await guests.run(again, "value, open('file').read()") == "(41, 'there')"
            assert (await guests.ask("DELETE", f"/templates/{name}"))[0] == 204
    finally:
        await asyncio.to_thread(guests.server.close)
