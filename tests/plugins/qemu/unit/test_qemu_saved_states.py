"""States of machines as files: what is not this user's alone, has changed or is another one's is refused."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import AgentOptions, Attached, ExitReason, Inside, Limits, SandboxSpec, Settings
from sandbox_kernel.core.tasks import Tasks
from sandbox_kernel.engines import shipping
from sandbox_kernel.plugins.qemu import artifacts, saved_states, state_capture
from sandbox_kernel.plugins.qemu import build as machines
from sandbox_kernel.plugins.qemu.engine import QemuEngine, may_be_kept
from sandbox_kernel.plugins.qemu.inside import reseed
from sandbox_kernel.setup.command_steps import Steps
from tests.support import ROOT
from tests.support.engines import config_of
from tests.support.patience import within

KEY = "0123456789abcdef"
MADE = {"uid": 300_000_001, "machine": "1"}
SPEC = SandboxSpec(session_id="s", image="x", limits=Limits(), command=("a",), uid=300_000_002, made_of=AgentOptions())
OF_SQLITE = """
import json, os, sqlite3
from sandbox_kernel.plugins.qemu.inside import reseed
base = sqlite3.connect(":memory:")
def draw():
    return base.execute("select hex(randomblob(16))").fetchone()[0]
def drawn_by_a_copy(begin):
    reading, writing = os.pipe()
    if not os.fork():
        begin()
        os.write(writing, draw().encode())
        os._exit(0)
    return os.read(reading, 100).decode()
draw()
ways = {"reseeded": reseed.reseed, "control": lambda: None}
print(json.dumps({name: [drawn_by_a_copy(begin) for _ in range(2)] for name, begin in ways.items()}))
"""


def kept(folder: Path, key: str = KEY, data: bytes = b"state") -> Path:
    with saved_states.making(folder, key) as scratch:
        assert scratch is not None
        path = scratch / saved_states.STATE
        path.write_bytes(data)
        path.chmod(0o600)
        saved_states.keep(folder, key, scratch, MADE)
    return folder / key


def test_a_state_is_found_as_it_was_kept(tmp_path: Path) -> None:
    place = kept(tmp_path / "states")
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    found = saved_states.find(place.parent, KEY)
    assert found is not None
    with os.fdopen(found.fd, "rb") as file:
        assert file.read() == b"state"
    assert found.facts == MADE
    assert sorted(path.name for path in place.parent.iterdir()) == [KEY]


def test_there_is_none_where_none_was_kept(tmp_path: Path) -> None:
    assert saved_states.find(tmp_path, KEY) is None


def with_facts(**fields: object) -> Callable[[Path], object]:
    def change(place: Path) -> object:
        path = place / saved_states.FACTS
        return path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def another_byte(place: Path) -> None:
    (place / saved_states.STATE).write_bytes(b"stAte")


def of_another_inode(place: Path) -> None:
    (place / saved_states.STATE).unlink()
    (place / saved_states.STATE).write_bytes(b"other")
    (place / saved_states.STATE).chmod(0o600)


def a_link(place: Path) -> None:
    (place / saved_states.STATE).rename(place / "elsewhere")
    (place / saved_states.STATE).symlink_to(place / "elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        another_byte,
        of_another_inode,
        a_link,
        lambda place: (place / saved_states.STATE).chmod(0o640),
        lambda place: (place / saved_states.FACTS).chmod(0o644),
        lambda place: (place / saved_states.FACTS).write_text("no JSON"),
        with_facts(format=0),
        with_facts(key="another"),
        with_facts(made=None),
        with_facts(looked=[], digest="another"),
    ],
    ids=["a byte", "a file", "a link", "readable", "facts", "no JSON", "format", "key", "nothing said", "digest"],
)
def test_what_has_changed_is_refused(tmp_path: Path, change: Callable[[Path], object]) -> None:
    place = kept(tmp_path)
    change(place)
    with pytest.raises(saved_states.ChangedState):
        saved_states.find(tmp_path, KEY)
    saved_states.remove(tmp_path, KEY)
    assert saved_states.find(tmp_path, KEY) is None


def test_control_the_same_bytes_with_another_time_are_taken(tmp_path: Path) -> None:
    """The file looks as if it had changed, and its digest says that it has not."""
    place = kept(tmp_path)
    os.utime(place / saved_states.STATE, ns=(1, 1))
    found = saved_states.find(tmp_path, KEY)
    assert found is not None
    os.close(found.fd)


def test_only_one_process_makes_a_state(tmp_path: Path) -> None:
    with saved_states.making(tmp_path, KEY) as mine, saved_states.making(tmp_path, KEY) as other:
        assert mine is not None
        assert other is None
    assert list(tmp_path.iterdir()) == []


def test_there_are_never_more_than_a_few(tmp_path: Path) -> None:
    for number in range(saved_states.KEPT + 3):
        place = kept(tmp_path, f"{number:016d}")
        os.utime(place, (number, number))
    assert len(list(tmp_path.iterdir())) == saved_states.KEPT


def test_whatever_a_state_depends_on_makes_another_name() -> None:
    machine = artifacts.MachineParts("/f", "sha256:0", "6.1", "1")
    asked: tuple[Any, ...] = (SPEC, machine, "/bin/sh", 1, ())
    name = saved_states.key_of(*asked)
    others = [
        (replace(SPEC, command=("b",)), *asked[1:]),
        (replace(SPEC, limits=Limits(pids=99)), *asked[1:]),
        (replace(SPEC, environment={"A": "b"}), *asked[1:]),
        (SPEC, machine._replace(identity="2"), *asked[2:]),
        (*asked[:2], "/bin/cat", *asked[3:]),
        (*asked[:3], 2, ()),
        (*asked[:4], ("numpy",)),
    ]
    assert len({name, *(saved_states.key_of(*other) for other in others)}) == len(others) + 1
    assert saved_states.key_of(replace(SPEC, session_id="t", uid=300_000_003), *asked[1:]) == name
    # What the session keeps by itself is nothing to the machine: a longer time for cells needs no other state.
    assert saved_states.key_of(replace(SPEC, limits=Limits(cell_timeout=7, start_timeout=9)), *asked[1:]) == name


def test_what_a_state_is_taken_of_waits_at_a_gate() -> None:
    own = state_capture.spec_of(SPEC, ("numpy",))
    assert (own.session_id, own.uid) != (SPEC.session_id, SPEC.uid)
    config = config_of(own.program)
    assert (config["warm"], config["extension"]) == (True, True)
    assert [*config["first"]] == ["before"]
    assert not {"warm", "extension", "first"} & set(config_of(shipping.program_of(AgentOptions(), Limits())))
    with pytest.raises(ValueError, match="no agent"):
        state_capture.spec_of(replace(SPEC, made_of=None), ())


def test_two_copies_that_begin_anew_draw_differently() -> None:
    before = random.getstate()
    try:
        drawn = []
        for _ in range(2):
            random.seed(1)
            reseed.reseed()
            drawn.append(random.random())
    finally:
        random.setstate(before)
    assert drawn[0] != drawn[1]


def test_two_processes_that_begin_anew_draw_differently_of_sqlite() -> None:
    """A forked process goes on from what its parent's SQLite has drawn, as a copy of a machine does."""
    drawn = json.loads(subprocess.check_output([sys.executable, "-c", OF_SQLITE], cwd=ROOT))
    assert (len(set(drawn["reseeded"])), len(set(drawn["control"]))) == (2, 1)


def test_what_a_crash_left_is_removed_and_what_another_process_makes_is_not(tmp_path: Path) -> None:
    other = KEY[::-1]
    for key in (KEY, other):
        (tmp_path / f"{saved_states.MAKING}{key}-left").mkdir()
        (tmp_path / f"{saved_states.MAKING}{key}-left" / saved_states.STATE).write_bytes(b"large")
    with saved_states.making(tmp_path, "f" * 16) as busy:
        assert busy is not None
        with saved_states.making(tmp_path, KEY) as mine:
            assert mine is not None
            assert {path.name for path in tmp_path.glob(f"{saved_states.MAKING}*")} == {busy.name, mine.name}
    assert list(tmp_path.iterdir()) == []


def test_no_state_is_taken_of_what_is_one_caller_s() -> None:
    inside = Inside(environment={})
    assert may_be_kept(SPEC)
    assert not may_be_kept(replace(SPEC, made_of=AgentOptions(variables=(("KEY", "secret"),))))
    assert not may_be_kept(replace(SPEC, made_of=AgentOptions(inside=inside)))
    assert not may_be_kept(replace(SPEC, made_of=None))
    assert not may_be_kept(replace(SPEC, limits=Limits(scratch="disk")))
    assert not may_be_kept(replace(SPEC, attached=(Attached(kind="dataset", name="d", source="/srv"),)))


# --- a state that cannot be taken -------------------------------------------------------------------------------------


class Engine(QemuEngine):
    """One whose machines fail, or not."""

    def __init__(self, folder: Path, error: Exception | None = None) -> None:
        super().__init__(folder=folder)
        self.error = error

    def place(self, spec: SandboxSpec) -> tuple[Path, str]:
        assert self._folder is not None
        return self._folder, KEY

    async def _start(self, *_: Any, **__: Any) -> Any:
        if self.error is not None:
            raise self.error
        return "a machine"

    async def settle(self) -> None:
        await self._taking.close(patience=10)
        self._taking = Tasks()


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[SandboxSpec]:
    """Return which specs a process was started for that takes a state."""
    specs: list[SandboxSpec] = []
    monkeypatch.setattr(state_capture, "take_in_background", lambda spec, *_, **__: specs.append(spec))
    return specs


async def test_one_that_failed_is_not_tried_again_for_a_while(tmp_path: Path, begun: list[SandboxSpec]) -> None:
    failing = Engine(tmp_path, EngineError(EndCode.ENGINE_FAILED, "no memory to be had"))
    with pytest.raises(EngineError):
        await failing.prepare(SPEC)
    assert saved_states.failures(tmp_path) == ["no memory to be had."]
    one = Engine(tmp_path)
    await one.start(SPEC)
    await one.settle()
    assert begun == []
    os.utime(tmp_path / f".{KEY}{saved_states.FAILED}", (1, 1))
    other = Engine(tmp_path)
    await other.start(SPEC)
    await other.settle()
    assert begun == [SPEC]
    assert saved_states.failures(tmp_path) == []


async def test_control_one_of_which_nothing_is_known_is_taken_once(tmp_path: Path, begun: list[SandboxSpec]) -> None:
    one = Engine(tmp_path)
    for _ in range(3):
        await one.start(SPEC)
    await one.settle()
    assert begun == [SPEC]
    with saved_states.making(tmp_path, KEY):
        assert saved_states.is_one_being_made(tmp_path)
        other = Engine(tmp_path)
        await other.start(SPEC)
        await other.settle()
    assert not saved_states.is_one_being_made(tmp_path)
    assert begun == [SPEC]


async def test_one_is_taken_at_a_time_and_the_next_one_by_whoever_starts_then(
    tmp_path: Path, begun: list[SandboxSpec]
) -> None:
    one = Engine(tmp_path)
    with saved_states.making(tmp_path, KEY[::-1]):
        await one.start(SPEC)
        await one.settle()
    assert begun == []
    await one.start(SPEC)
    await one.settle()
    assert begun == [SPEC]


class Silent(Engine):
    """One whose copies of a state do not answer."""

    async def _start(self, spec: SandboxSpec, state: Any = None, **_: Any) -> Any:
        if state is not None:
            raise EngineError(EndCode.ENGINE_SILENT, "the machine does not say 'thawed' in time")
        return "a machine"


async def test_a_state_whose_copies_do_not_answer_is_removed(tmp_path: Path, begun: list[SandboxSpec]) -> None:
    kept(tmp_path)
    one: Any = Silent(tmp_path)
    assert await one.start(SPEC) == "a machine"
    await one.settle()
    assert not (tmp_path / KEY).exists()
    assert begun == [SPEC], "another one is taken"


def test_who_asks_whether_one_is_made_keeps_nobody_from_it(tmp_path: Path) -> None:
    asking = os.open(tmp_path / f".{KEY}.lock", os.O_CREAT | os.O_RDWR, 0o600)
    fcntl.flock(asking, fcntl.LOCK_SH)
    timer = threading.Timer(0.03, os.close, (asking,))
    timer.start()
    with saved_states.making(tmp_path, KEY) as mine:
        assert mine is not None
    timer.join()


def test_a_lock_that_was_removed_meanwhile_locks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the opening and the locking, whoever had it went, and another one came."""
    held: list[int] = []

    def late(fd: int, how: int, take: Callable[[int, int], None] = fcntl.flock) -> None:
        if not held:
            (tmp_path / f".{KEY}.lock").unlink()
            held.append(os.open(tmp_path / f".{KEY}.lock", os.O_CREAT | os.O_RDWR, 0o600))
            take(held[0], fcntl.LOCK_EX)
        take(fd, how)

    monkeypatch.setattr(fcntl, "flock", late)
    with saved_states.making(tmp_path, KEY) as mine:
        assert mine is None
    os.close(held[0])


async def test_one_that_another_process_has_just_taken_is_not_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = saved_states.making

    @contextlib.contextmanager
    def late(folder: Path, key: str) -> Iterator[Path | None]:
        (folder / key).mkdir()
        (folder / key / saved_states.STATE).touch()
        with making(folder, key) as scratch:
            yield scratch

    monkeypatch.setattr(saved_states, "making", late)
    assert not await Engine(tmp_path, EngineError(EndCode.ENGINE_FAILED, "it was to be taken")).prepare(SPEC)


def test_one_that_was_taken_at_last_is_no_failure(tmp_path: Path) -> None:
    saved_states.note_failure(tmp_path, KEY, "once")
    assert saved_states.failed(tmp_path, KEY) == "once"
    kept(tmp_path)
    assert saved_states.failed(tmp_path, KEY) == ""


def test_a_process_that_takes_one_takes_that_of_the_same_spec(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(engine="qemu", image="x", charts=True, limits=Limits(pids=99))
    spec, commands = shipping.new_spec(settings), []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: commands.append(command))
    state_capture.take_in_background(spec, ("numpy",), tmp_path, cgroup=True)
    said = json.loads(commands[0][-1])
    other = state_capture.spec_asked(said)
    machine = artifacts.MachineParts("/f", "sha256:0", "6.1", "1")
    assert saved_states.key_of(other, machine, "/bin/sh", 1, ()) == saved_states.key_of(spec, machine, "/bin/sh", 1, ())
    assert (other.image, other.limits_kept, said["preload"], said["folder"]) == (
        "x",
        "enforced",
        ["numpy"],
        str(tmp_path),
    )
    assert other.session_id != spec.session_id


def test_states_are_taken_for_every_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel's sandboxes and those of the SDK differ: one state would leave the others' first starts cold."""
    taken = []

    class Taking:
        async def prepare(self, spec: SandboxSpec) -> bool:
            taken.append(spec.program)
            return True

    monkeypatch.setattr(machines, "make_engine", lambda settings: Taking())
    machines.take_states("x", Steps(lambda line: None))
    doors = [replace(Settings(engine="qemu", image="x"), charts=charts) for charts in (False, True)]
    assert taken == [shipping.new_spec(door).program for door in doors]


class Slow:
    """A machine of which nothing comes until it was told twice that somebody is there."""

    def __init__(self) -> None:
        self.heard: list[bytes] = []
        self.twice = asyncio.Event()

    async def send(self, data: bytes) -> None:
        self.heard.append(data)
        if len(self.heard) == 2:
            self.twice.set()

    async def receive(self) -> bytes:
        await self.twice.wait()
        return b""

    async def wait(self) -> ExitReason:
        return ExitReason(kind="exited", exit_code=0)


async def test_a_slow_start_is_told_that_somebody_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that hears nothing for a minute ends: on a busy machine no state was ever taken."""
    monkeypatch.setattr(state_capture, "PING_SECONDS", 0.01)
    slow: Any = Slow()
    async with within(10):
        with pytest.raises(EngineError, match=r"ended before it was ready \(exited, exit code 0\)"):
            await state_capture.get_ready(slow, SPEC)
    assert b'"ping"' in slow.heard[0]


class Saying:
    """An agent that says one frame, and nothing more."""

    def __init__(self, *parts: bytes) -> None:
        self.frames = [b"".join(wire.encode(wire.AGENT, parts))]

    async def send(self, data: bytes) -> None:
        pass

    async def receive(self) -> bytes:
        return self.frames.pop() if self.frames else b""

    async def wait(self) -> ExitReason:
        return ExitReason(kind="exited", exit_code=0)


@pytest.mark.parametrize(
    "parts",
    [(b"[" * 100_000,), (), (b"",), (b"[1]",), (b"\xff",)],
    ids=["deep", "no parts", "empty", "a list", "bytes"],
)
async def test_an_agent_that_says_nothing_of_ours_leaves_no_state(parts: tuple[bytes, ...]) -> None:
    """Whatever it is, it is the engine's error: others are defects of ours to who starts a machine ahead."""
    saying: Any = Saying(*parts)
    with pytest.raises(EngineError, match="sent no frames"):
        await state_capture.get_ready(saying, SPEC)


async def test_control_an_agent_that_says_something_else_of_ours_is_heard_to_its_end() -> None:
    saying: Any = Saying(b'{"op": "something"}')
    with pytest.raises(EngineError, match="ended before it was ready"):
        await state_capture.get_ready(saying, SPEC)
