"""Snapshots and forks of machines: today's work goes on in another process, and copies go ways of their own.

Machines are emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sandbox_kernel import AsyncSandbox, ConfigurationError, FileNotThere, FileRefused, Sandbox
from sandbox_kernel.core.errors import SandboxPaused
from sandbox_kernel.engines.abilities import Ability
from sandbox_kernel.plugins.qemu import saved_states
from sandbox_kernel.plugins.qemu.snapshots import facts, store
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.plugins.qemu.engine import machine_of_tests
from tests.support import ROOT
from tests.support.engines import ONLY

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]

SLOW: dict[str, Any] = {"start_timeout": 300, "cell_timeout": 300, "idle_timeout": 1800}
DRAWS = """
import json, os, random, secrets, sqlite3, ssl, sys, uuid
drawn = [random.random(), str(uuid.uuid4()), str(uuid.uuid1()), secrets.token_hex(8), os.urandom(8).hex(),
         sqlite3.connect(":memory:").execute("select hex(randomblob(16))").fetchone()[0],
         ssl.RAND_bytes(8).hex(), id(object()) and random.getrandbits(64)]
if "numpy" in sys.modules:
    drawn.append(sys.modules["numpy"].random.random())
print(json.dumps(drawn))
"""
FRAME = """
try:
    import numpy as np, pandas as pd
    frame = pd.DataFrame(np.zeros((1_310_720, 10)))
    size, kind = int(frame.memory_usage(deep=True).sum()), "DataFrame"
except ImportError:
    frame = bytearray(100 << 20)
    size, kind = len(frame), "bytearray"
print(kind, size)
"""
CHANGE = """
if kind == "DataFrame":
    frame.iloc[{n}::7, 0] = {n}
    told = (float(frame[0].max()), int((frame[0] != 0).sum()))
else:
    frame[{n}::7] = b"%c" % {n} * len(frame[{n}::7])
    told = (max(frame), len(frame) - frame.count(0))
told
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The store of this module's tests, and not the user's; so are the states that its machines start from."""
    there = tmp_path_factory.mktemp("data") / "snapshots"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "usual_folder", lambda: str(there))
        patch.setattr(saved_states, "folder_of_user", lambda: there.parent / "states")
        yield there


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox(folder: Path) -> AsyncIterator[AsyncSandbox]:
    """One that the tests of this module share: they leave it usable."""
    machine = await asyncio.to_thread(machine_of_tests)
    async with AsyncSandbox(engine="qemu", image=machine, memory="1G", **SLOW) as sandbox:
        assert sandbox.abilities == frozenset(Ability)
        yield sandbox


def there(folder: Path) -> list[str]:
    """Return what is in the folder of snapshots, but for its lock, which comes with the first."""
    return sorted(path.name for path in folder.glob("*") if path.name != ".lock")


def code_of(error: pytest.ExceptionInfo[FileRefused]) -> str:
    return error.value.code.code


ANOTHER_PROCESS = """
import json, sys
from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.qemu.snapshots import store
store.usual_folder = lambda: sys.argv[1]
with Sandbox.from_snapshot(sys.argv[2]) as sandbox:
    execution = sandbox.run_code(f"x += 1; (x, open('kept.txt').read(), In[{sys.argv[3]}], running.poll())")
    print(json.dumps([sandbox.id, execution.execution_count, execution.text, str(execution.error)]))
    print(sandbox.run_code("1 / 0").error.name, sandbox.files.read("kept.txt"))
"""


async def test_today_s_work_goes_on_in_another_process(sandbox: AsyncSandbox, folder: Path) -> None:
    """Variables, files, history, the counter of cells, and a process of its own that runs; its id is new."""
    of_today = await sandbox.run_code("x = 41\nopen('kept.txt', 'w').write('of today')")
    await sandbox.run_code("import subprocess; running = subprocess.Popen(['sleep', '10000'])")
    before = await sandbox.run_code("x")
    assert await sandbox.snapshot("today") == "today"
    assert stat.S_IMODE((folder / "today" / "content").stat().st_mode) == 0o600
    command = [sys.executable, "-c", ANOTHER_PROCESS, str(folder), "today", str(of_today.execution_count)]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 0
    first, second = said.decode().splitlines()
    identity, count, text, error = json.loads(first)
    assert (error, identity != sandbox.id) == ("None", True)
    assert text.startswith("(42, 'of today', \"x = 41"), "and the history is there"
    assert text.endswith("None)"), "and the process runs"
    assert before.execution_count is not None
    assert count == before.execution_count + 1
    assert second == "ZeroDivisionError of today"
    assert (await sandbox.run_code("x")).text == "41", "the one it was taken of goes on by itself"


async def test_five_forks_with_100_mb_each_see_their_own_changes_only(sandbox: AsyncSandbox) -> None:
    made = await sandbox.run_code(FRAME)
    kind, size = "".join(made.logs.stdout).split()
    assert int(size) >= 100 << 20
    print(f"five forks with a {kind} of {int(size) >> 20} MiB")
    forks = await sandbox.fork(5)
    try:
        assert len({one.id for one in (sandbox, *forks)}) == 6
        told = []
        for number, one in enumerate((sandbox, *forks)):
            told.append((await one.run_code(CHANGE.format(n=number + 1))).text)
        for number, text in enumerate(told):
            assert text is not None
            assert eval(text)[0] == number + 1, "its own change, and nobody else's"  # noqa: S307 (two numbers)
        assert len({eval(str(text))[1] // 10 for text in told}) == 1, "as many entries as one change has"  # noqa: S307
    finally:
        await asyncio.gather(*(one.kill() for one in forks))


async def test_copies_draw_numbers_of_their_own(sandbox: AsyncSandbox) -> None:
    """From a state in which all have drawn before, so that each module's generator was copied."""
    await sandbox.run_code("try:\n import numpy\n numpy.random.random()\nexcept ImportError: pass")
    await sandbox.run_code(DRAWS)
    await sandbox.snapshot("draws")
    copies = await sandbox.fork(2) + [await AsyncSandbox.from_snapshot("draws") for _ in range(2)]
    try:
        drawn = [json.loads("".join((await one.run_code(DRAWS)).logs.stdout)) for one in (sandbox, *copies)]
        for place in range(len(drawn[0])):
            assert len({row[place] for row in drawn}) == len(drawn), f"two have drawn {drawn[0][place]}"
    finally:
        await asyncio.gather(*(one.kill() for one in copies))


async def test_control_copies_that_are_not_seeded_anew_draw_the_same(
    sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.plugins.qemu.snapshots.copies.reseeding", lambda: "")
    await sandbox.run_code("import random; random.random()")
    copies = await sandbox.fork(2)
    try:
        drawn = {(await one.run_code("random.random()")).text for one in copies}
        assert len(drawn) == 1
    finally:
        await asyncio.gather(*(one.kill() for one in copies))


async def test_a_snapshot_is_refused_while_a_cell_runs(sandbox: AsyncSandbox, folder: Path) -> None:
    printed = asyncio.Event()
    cell = asyncio.create_task(
        sandbox.run_code("print(1, flush=True)\nimport time; time.sleep(3)", on_stdout=lambda _: printed.set())
    )
    await printed.wait()
    with pytest.raises(FileRefused) as caught:
        await sandbox.snapshot("busy")
    assert code_of(caught) == "snapshot-busy"
    assert not (folder / "busy").exists()
    assert (await cell).error is None


async def test_a_paused_sandbox_is_resumed_before(sandbox: AsyncSandbox) -> None:
    await sandbox.pause()
    for call in (sandbox.snapshot("paused"), sandbox.fork(1)):
        with pytest.raises(SandboxPaused):
            await call
    await sandbox.resume()
    assert (await sandbox.run_code("6 * 7")).text == "42"


async def test_what_does_not_fit_is_refused(sandbox: AsyncSandbox, folder: Path) -> None:
    await sandbox.snapshot("fits")
    with pytest.raises(ConfigurationError, match="memory is the snapshot's own"):
        await AsyncSandbox.from_snapshot("fits", memory="2G")
    with pytest.raises(FileNotThere):
        await AsyncSandbox.from_snapshot("never")
    with pytest.raises(FileRefused) as caught:
        await AsyncSandbox.from_snapshot("fits", network=["api.example.org"])
    assert code_of(caught) == "snapshot-not-whole"
    with pytest.raises(FileRefused) as caught:
        await sandbox.snapshot("fits")
    assert code_of(caught) == "snapshot-exists"
    content = folder / "fits" / "content"
    with content.open("r+b") as file:
        file.seek(content.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(FileRefused) as caught:
        await AsyncSandbox.from_snapshot("fits")
    assert code_of(caught) == "snapshot-damaged"
    assert await AsyncSandbox.delete_snapshot("fits")


async def test_facts_of_another_machine_are_refused(sandbox: AsyncSandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that this user wrote, with a digest that is in order, of a machine that is not this one."""
    about = facts.about

    def other(*given: Any) -> dict[str, Any]:
        said = about(*given)
        return said | {"facts": said["facts"] | {"machine": "0" * 64}}

    monkeypatch.setattr(facts, "about", other)
    await sandbox.snapshot("other")
    with pytest.raises(FileRefused) as caught:
        await AsyncSandbox.from_snapshot("other")
    assert code_of(caught) == "snapshot-unfit"


async def test_there_is_no_more_than_the_setting_allows(sandbox: AsyncSandbox, folder: Path) -> None:
    machine = await asyncio.to_thread(machine_of_tests)
    before = there(folder)
    async with AsyncSandbox(engine="qemu", image=machine, memory="512M", snapshots_size="1M", **SLOW) as small:
        for call in (small.snapshot("large"), small.fork(1)):
            with pytest.raises(FileRefused) as caught:
                await call
            assert (code_of(caught), caught.value.setting) == ("snapshot-no-room", "snapshots_size")
        assert (await small.run_code("6 * 7")).text == "42"
    assert there(folder) == before


async def test_without_await(folder: Path) -> None:
    await asyncio.to_thread(_without_await, folder)


def _without_await(folder: Path) -> None:
    with Sandbox(engine="qemu", image=machine_of_tests(), memory="512M", **SLOW) as sandbox:
        sandbox.run_code("x = 1")
        assert sandbox.snapshot("plain") == "plain"
        (fork,) = sandbox.fork(1)
        with fork:
            assert fork.run_code("x += 1; x").text == "2"
    with Sandbox.from_snapshot("plain") as again:
        assert again.run_code("x").text == "1"
    assert "plain" in [one.name for one in Sandbox.snapshots()]
    assert (Sandbox.delete_snapshot("plain"), Sandbox.delete_snapshot("plain")) == (True, False)
    assert not (folder / "plain").exists()
