"""Sandboxes that outlive their caller, over a real broker and a real engine: found, taken over, left and ended."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox, Progress, Sandbox, SandboxInfo
from sandbox_kernel.cli.subcommands import for_people
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError, EngineError, QuotaExceeded, SandboxDied, SandboxError
from sandbox_kernel.core.model import SandboxSample
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.bubblewrap.process_labels import sandboxes
from tests.plugins.broker.brokers import Daemon, a_broker, gone
from tests.support import ROOT
from tests.support.cases import some
from tests.support.engines import IMAGE, Bubblewrap
from tests.support.patience import until, within
from tests.support.roots import root_of_tests


async def kept(daemon: Daemon, **keywords: Any) -> AsyncSandbox:
    return await AsyncSandbox.create(engine=daemon.address, image=IMAGE, detached=True, **keywords)


async def ids(daemon: Daemon, **query: Any) -> list[str]:
    return [info.id for info in await AsyncSandbox.list(engine=daemon.address, **query)]


async def info_of(daemon: Daemon, name: str) -> SandboxInfo | None:
    return next((info for info in await AsyncSandbox.list(engine=daemon.address) if info.id == name), None)


async def until_free(daemon: Daemon, name: str) -> None:
    """Wait until the owner's end has been noticed."""

    async def is_free() -> bool:
        info = await info_of(daemon, name)
        return info is not None and not info.owned

    await until(is_free, 20)


async def until_done(daemon: Daemon, name: str) -> None:
    """Wait until its cell has ended."""

    async def is_done() -> bool:
        info = await info_of(daemon, name)
        return info is not None and not info.busy

    await until(is_done, 60)


async def until_ended(daemon: Daemon, name: str, seconds: float = 20) -> None:
    await until(lambda: info_of(daemon, name), seconds, holds=False)


async def test_one_goes_on_with_the_next_owner_where_the_last_one_left_it(daemon: Daemon) -> None:
    first = await kept(daemon, metadata={"user": "42"}, memory="1G", cell_timeout=30)
    await first.run_code("kept = 41; open('file', 'w').write('x')")
    name = first.id
    await first.detach()
    assert name in await ids(daemon)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as second:
        assert second is not first
        assert second.id == name
        assert (await second.run_code("kept + 1, open('file').read()")).text == "(42, 'x')"
        assert (second.metadata, second.settings.limits.cell_timeout) == ({"user": "42"}, 30)
        assert await second.rejoin() is None
        assert (await second.run_code("1")).execution_count == 3
    await until_ended(daemon, name)


async def test_what_nobody_owns_is_found_by_its_metadata_and_ended_by_its_id(daemon: Daemon) -> None:
    names = []
    for user in ("one", "two"):
        sandbox = await kept(daemon, metadata={"user": user, "app": "chat"}, lifetime="20m")
        names.append(sandbox.id)
        await sandbox.detach()
    assert await ids(daemon, metadata={"app": "chat"}) == names[::-1]
    assert await ids(daemon, metadata={"user": "two"}) == names[1:]
    assert await ids(daemon, metadata={"user": "three"}) == []
    [info] = await AsyncSandbox.list(engine=daemon.address, metadata={"user": "one"})
    assert (info.detached, info.owned, info.image, info.state) == (True, False, IMAGE, "running")
    assert info.started_at is not None
    assert info.end_at is not None
    assert 1190 < (info.end_at - info.started_at).total_seconds() < 1210
    assert [await AsyncSandbox.kill_by_id(name, engine=daemon.address) for name in names] == [True, True]
    for name in names:
        await until_ended(daemon, name)
    assert not await AsyncSandbox.kill_by_id(names[0], engine=daemon.address)
    with pytest.raises(EngineError) as caught:
        await AsyncSandbox.connect(names[0], engine=daemon.address)
    assert caught.value.code is EndCode.DETACHED_NOT_THERE


async def test_one_owner_at_a_time_and_another_only_by_taking_it(daemon: Daemon) -> None:
    """Of two that come at the same time, one is told that there is an owner."""
    first = await kept(daemon)
    name = first.id
    await first.detach()
    await until_free(daemon, name)
    answers = await asyncio.gather(*(connected_elsewhere(daemon, name) for _ in range(2)))
    try:
        assert {process.line for process in answers} == {"detached-owned", name}
        second = await AsyncSandbox.connect(name, take=True, engine=daemon.address)
        loser = next(process for process in answers if process.line == name)
        assert await loser.next() == "detached-taken"
        assert (await second.run_code("1 + 1")).text == "2"
        await second.kill()
    finally:
        for process in answers:
            process.end()


COPY = """
import asyncio, os, signal, sys
from sandbox_kernel import AsyncSandbox
def told(progress):
    if progress.done > 5 << 20:
        os.kill(os.getpid(), signal.SIGKILL)
async def main():
    sandbox = await AsyncSandbox.connect(sys.argv[2], engine=sys.argv[1])
    copy = sandbox.files.upload if sys.argv[3] == "up" else sandbox.files.download
    await copy(sys.argv[4], sys.argv[5], progress=told, resume=True)
asyncio.run(main())
"""


async def test_a_copy_whose_process_was_killed_goes_on_where_it_was(daemon: Daemon, tmp_path: Path) -> None:
    size = 24 << 20
    source, out = tmp_path / "source", tmp_path / "out"
    await asyncio.to_thread(source.write_bytes, os.urandom(size))
    sandbox = await kept(daemon, lifetime="20m")
    name = sandbox.id
    for way, first, second in (("up", str(source), "a"), ("down", "a", str(out))):
        await sandbox.detach()
        command = [sys.executable, "-c", COPY, daemon.address, name, way, first, second]
        killed = await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=False)
        assert killed.returncode == -signal.SIGKILL
        await until_free(daemon, name)
        sandbox = await AsyncSandbox.connect(name, engine=daemon.address)
        told: list[Progress] = []
        if way == "up":
            assert not await sandbox.files.exists("a")
            await sandbox.files.upload(source, "a", progress=told.append, resume=True)
        else:
            await sandbox.files.download("a", out, progress=told.append, resume=True)
        assert 5 << 20 < told[0].done < told[-1].done == size
    assert await asyncio.to_thread(out.read_bytes) == await asyncio.to_thread(source.read_bytes)
    assert sorted(path.name for path in await asyncio.to_thread(lambda: [*tmp_path.iterdir()])) == ["out", "source"]
    await sandbox.kill()
    await until_ended(daemon, name)


CONNECT = """
import asyncio, sys
from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import SandboxError
async def main():
    try:
        sandbox = await AsyncSandbox.connect(sys.argv[2], engine=sys.argv[1])
        print(sandbox.id, flush=True)
        while True:
            found = await sandbox.run_code("import time; time.sleep(0.05)")
            if found.error is not None and found.error.code != "sandbox-died":  # its reason is not known yet
                print(found.error.code, flush=True)
                break
    except SandboxError as error:
        print(error.code.code, flush=True)
asyncio.run(main())
"""
CALLER = """
import json, sys
from sandbox_kernel import Sandbox
sandbox = Sandbox.create(engine=sys.argv[1], detached=True, **json.loads(sys.argv[2]))
print(sandbox.id, flush=True)
sandbox.run_code(sys.argv[3], on_stdout=lambda line: print(line, end="", flush=True))
"""


class Elsewhere:
    """A process of this user's, whose lines are read."""

    def __init__(self, code: str, *arguments: str) -> None:
        command = [sys.executable, "-c", code, *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        self.line = ""

    async def next(self) -> str:
        assert self.process.stdout is not None
        async with within(60):
            self.line = (await asyncio.to_thread(self.process.stdout.readline)).strip()
        return self.line

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


async def connected_elsewhere(daemon: Daemon, name: str) -> Elsewhere:
    process = Elsewhere(CONNECT, daemon.address, name)
    await process.next()
    return process


async def killed_in_a_cell(daemon: Daemon, code: str, **keywords: Any) -> str:
    """Have a caller run a cell and die by SIGKILL once that said its first line; return the sandbox's id."""
    process = Elsewhere(CALLER, daemon.address, json.dumps({"image": IMAGE, **keywords}), code)
    try:
        name = await process.next()
        assert await process.next() == "begun"
    finally:
        process.kill()
    await until_free(daemon, name)
    return name


async def test_a_cell_goes_on_when_its_caller_is_killed_and_the_next_owner_has_all_of_it(daemon: Daemon) -> None:
    """Also what the one before had read. It ends while nobody is there, and number and variables go on."""
    code = "print('begun')\nimport time\nfor step in range(20): print(step); time.sleep(0.05)\nlast = step\nlast + 1"
    name = await killed_in_a_cell(daemon, code)
    heard: list[str] = []
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        execution = await sandbox.rejoin(on_stdout=lambda line: heard.append(str(line)))
        assert execution is not None
        assert execution.error is None
        assert "".join(execution.logs.stdout).split() == ["begun", *map(str, range(20))]
        assert "".join(heard) == "".join(execution.logs.stdout)
        assert (execution.text, execution.execution_count, execution.code) == ("20", 1, code)
        assert tuple(sandbox.missed) == (0, 0)
        assert (await sandbox.run_code("last")).text == "19"
        assert await sandbox.rejoin() is None


async def test_a_cell_that_nobody_waits_for_ends_by_its_clock(daemon: Daemon) -> None:
    """And what it set is there for the next owner, who is told how it ended."""
    code = "print('begun')\nset_before = 1\nwhile True: pass"
    name = await killed_in_a_cell(daemon, code, cell_timeout=2)
    await until_done(daemon, name)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        execution = await sandbox.rejoin()
        assert execution is not None
        assert execution.error is not None
        assert execution.error.name in {"KeyboardInterrupt", "CellTimeout"}
        assert (await sandbox.run_code("set_before")).text == "1"


async def test_what_nobody_reads_is_kept_up_to_a_bound_and_the_rest_is_said(daemon: Daemon) -> None:
    """The broker holds no more of it than that, and the cell is not held up."""
    before = resident(daemon)
    code = "print('begun', flush=True)\nfor _ in range(64): print('x' * (1 << 20))\nprint('end'); 'value'"
    name = await killed_in_a_cell(daemon, code)
    await until_done(daemon, name)
    async with await AsyncSandbox.connect(name, engine=daemon.address) as sandbox:
        execution = await sandbox.rejoin()
        assert execution is not None
        assert execution.error is None
        text = "".join(execution.logs.stdout)
        print(f"kept {len(text)} bytes, missed {sandbox.missed}, broker {before >> 20} -> {resident(daemon) >> 20} MiB")
        assert text.startswith("begun")
        assert sandbox.missed.messages > 0
        assert len(text) + sandbox.missed.bytes >= 64 << 20
        assert len(text) <= 9 << 20
        assert "not kept were" in "".join(execution.logs.stderr)
        assert (await sandbox.run_code("1 + 1")).text == "2"
        assert resident(daemon) - before < 64 << 20


def resident(daemon: Daemon) -> int:
    import psutil

    return int(psutil.Process(daemon.process.pid).memory_info().rss)


async def test_a_lifetime_ends_it_whoever_uses_it_and_is_put_off_up_to_a_bound_only(daemon: Daemon) -> None:
    sandbox = await kept(daemon, lifetime=600)
    with pytest.raises(QuotaExceeded) as caught:
        await sandbox.set_timeout(2 * 86400)
    assert caught.value.code is BrokerCode.LIFETIME_TOO_LONG
    assert caught.value.set_by
    await AsyncSandbox.set_timeout_by_id(sandbox.id, 300, engine=daemon.address)
    await sandbox.set_timeout(1)
    execution = await sandbox.run_code("import time; time.sleep(30)")
    assert execution.error is not None
    assert execution.error.code == EndCode.LIFETIME_OVER.code
    await until_ended(daemon, sandbox.id)
    with pytest.raises(SandboxDied) as gone:  # no other one takes its place unasked
        await sandbox.run_code("1")
    assert gone.value.code is EndCode.LIFETIME_OVER
    with pytest.raises(QuotaExceeded):
        await kept(daemon, lifetime="25h")


async def test_a_sandbox_that_is_not_detached_ends_with_its_caller(daemon: Daemon) -> None:
    """The control: by default, the caller's end is the sandbox's end."""
    code = CALLER.replace("detached=True, ", "")
    process = Elsewhere(
        code, daemon.address, json.dumps({"image": IMAGE}), "print('begun'); import time; time.sleep(60)"
    )
    await process.next()
    assert await process.next() == "begun"
    mine = process.process.pid
    docker = DockerEngine()  # its list has the beginnings of the numbers
    rows = [row.container[:12] for row in await daemon.engine().list() if row.owner_pid == mine]
    containers = {row.container for row in await docker.list()} & set(rows)
    assert len(containers) == len(rows) == 1
    process.kill()
    await gone(*containers)


async def used_up(sandbox: AsyncSandbox) -> None:
    """Run cells until there is no sandbox for them."""
    async with within(20):
        while True:
            await sandbox.run_code("1")


@pytest.mark.parametrize("how", ["stops", "is killed"])
async def test_detached_sandboxes_end_with_their_broker(how: str) -> None:
    with a_broker() as daemon:
        sandbox = await kept(daemon)
        docker = DockerEngine()
        rows = [row.container[:12] for row in await daemon.engine().list()]
        containers = {row.container for row in await docker.list()} & set(rows)
        assert len(containers) == len(rows) > 0
        if how == "stops":
            daemon.process.terminate()
        else:
            daemon.kill()
        with pytest.raises(SandboxError) as caught:
            await used_up(sandbox)
        if how == "stops":
            assert caught.value.code is EndCode.BROKER_ENDED
        await gone(*containers)
        await sandbox.detach()


def test_the_same_without_await(daemon: Daemon) -> None:
    sandbox = Sandbox.create(engine=daemon.address, image=IMAGE, detached=True, metadata={"door": "blocking"})
    name = sandbox.id
    sandbox.run_code("kept = 1")
    sandbox.detach()
    assert [info.id for info in Sandbox.list(engine=daemon.address, metadata={"door": "blocking"})] == [name]
    found = Sandbox.connect(name, timeout=300, engine=daemon.address)
    assert found.run_code("kept").text == "1"
    assert found.rejoin() is None
    assert found.info.detached
    assert found.info.end_at is not None
    found.detach()
    Sandbox.set_timeout_by_id(name, 200, engine=daemon.address)
    assert Sandbox.kill_by_id(name, engine=daemon.address)
    assert not Sandbox.kill_by_id(name, engine=daemon.address)


@pytest.mark.parametrize(
    ("keywords", "setting"),
    [
        ({"uploads": "/tmp"}, "uploads"),
        ({"engine": "docker"}, "engine"),
        ({"metadata": {"a": "\x1b[31m"}}, "metadata"),
        ({"metadata": {"a": "x" * 1000}}, "metadata"),
        ({"metadata": {str(n): "" for n in range(100)}}, "metadata"),
        ({"timeout": 3, "lifetime": 3}, "lifetime"),
    ],
)
def test_what_cannot_outlive_its_caller_is_refused(keywords: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        AsyncSandbox(**{"engine": "broker:///none", "detached": True, **keywords})
    assert caught.value.setting == setting
    if setting == "uploads":
        assert caught.value.code is BrokerCode.OF_THE_CALLER
        assert "without detached=True" in caught.value.code.remedy
        AsyncSandbox(**{"engine": "broker:///none", **keywords})  # the control: with its caller, it can be had


@pytest.mark.parametrize("ending", some(["", "\nraise SystemExit(3)", "\nimport os; os._exit(0)"], of=2))
async def test_a_program_that_ends_leaves_it(daemon: Daemon, ending: str) -> None:
    process = Elsewhere(CALLER + ending, daemon.address, json.dumps({"image": IMAGE}), "kept = 1; print('begun')")
    name = await process.next()
    await asyncio.to_thread(process.process.wait, 60)
    process.end()
    await until_free(daemon, name)
    sandbox = await AsyncSandbox.connect(name, engine=daemon.address)
    assert (await sandbox.run_code("kept")).text == "1"
    await sandbox.kill()


async def test_a_dropped_handle_leaves_it_and_its_kill_ends_it(daemon: Daemon) -> None:
    sandbox = await kept(daemon)
    name = sandbox.id
    assert os.getpid() in [row.owner_pid for row in await daemon.engine().list()]
    del sandbox
    await until_free(daemon, name)
    again = await AsyncSandbox.connect(name, engine=daemon.address)
    await again.kill()
    await until_ended(daemon, name)


async def test_the_record_of_the_next_owner_goes_on_under_the_same_session(daemon: Daemon, tmp_path: Path) -> None:
    first, second = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    sandbox = await kept(daemon, audit=str(first))
    await sandbox.run_code("1")
    await sandbox.detach()
    again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address, audit=str(second))
    await again.run_code("2")
    await again.kill()
    rows = [[json.loads(line) for line in file.read_text().splitlines()] for file in (first, second)]
    assert {row["session"] for lines in rows for row in lines if "session" in row} == {sandbox.id}
    [taken] = [row for row in rows[1] if row.get("event") == "taken_over"]
    assert taken["age_seconds"] > 0
    assert not [row for row in rows[0] if row.get("event") == "taken_over"]


async def test_commands_and_widgets_of_the_sandbox_go_on(daemon: Daemon) -> None:
    """What runs in it is not the process's: a command is found by its number."""
    sandbox = await kept(daemon)
    handle = await sandbox.commands.run("sleep 3; echo done", background=True)
    await sandbox.detach()
    async with await AsyncSandbox.connect(sandbox.id, engine=daemon.address) as again:
        assert [one.pid for one in await again.commands.list()] == [handle.pid]
        found = await again.commands.connect(handle.pid)
        assert (await found.wait()).stdout == "done\n"


async def test_code_of_e2b_finds_its_sandboxes_again(daemon: Daemon) -> None:
    """With its meanings, and its exception for an id that is nobody's."""
    from sandbox_kernel.plugins.frameworks import e2b

    keywords: dict[str, Any] = {"engine": daemon.address, "detached": True, "metadata": {"user": "7"}, "timeout": 600}
    sandbox = await e2b.AsyncSandbox.create(IMAGE, **keywords)
    await sandbox.run_code("word = 'text'")
    await sandbox.detach()
    query = e2b.SandboxQuery(metadata={"user": "7"})
    [info] = await e2b.AsyncSandbox.list(query=query, engine=daemon.address).next_items()
    found = await e2b.AsyncSandbox.connect(info.sandbox_id, timeout=300, engine=daemon.address)
    assert isinstance(found, e2b.AsyncSandbox)
    assert (await found.run_code("word")).text == "text"
    await found.set_timeout(200)
    assert await e2b.AsyncSandbox.kill(info.sandbox_id)
    for name in (info.sandbox_id, "0" * 32):
        with pytest.raises(e2b.SandboxNotFoundException):
            await e2b.AsyncSandbox.connect(name, engine=daemon.address)


async def test_the_operator_and_ps_see_detached_ones(daemon: Daemon) -> None:
    sandbox = await kept(daemon)
    [mine] = [row for row in await daemon.engine().list() if row.session == sandbox.id]
    assert (mine.state, mine.owner_pid) == ("running", os.getpid())
    await sandbox.detach()
    await until_free(daemon, sandbox.id)
    [mine] = [row for row in await daemon.engine().list() if row.session == sandbox.id]
    assert (mine.state, mine.owner_pid) == ("detached", None)
    assert for_people(mine, SandboxSample())["owner"] == "nobody"
    assert await DockerEngine().reap() == 0  # nobody's, and yet not left over
    [said] = [row for row in await daemon.engine().conditions() if row.name == "detached"]
    assert said.met
    assert said.found.endswith("of 16 sandboxes that outlive their caller, each for 86400 s at most")
    assert await AsyncSandbox.kill_by_id(sandbox.id, engine=daemon.address)


async def test_bubblewrap_s_outlive_their_caller_as_docker_s() -> None:
    """Whatever engine a broker has: what it keeps is a pipe. It ends with its broker there, too."""
    if (why := Bubblewrap("bubblewrap-best-effort", cgroup=False).absent()) is not None:
        pytest.skip(why)
    keywords: dict[str, Any] = {"image": root_of_tests(), "limits": "best-effort", "detached": True}
    with a_broker("--engine", "bubblewrap") as daemon:
        sandbox = await AsyncSandbox.create(engine=daemon.address, **keywords)
        await sandbox.run_code("kept = 41")
        await sandbox.detach()
        again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address)
        assert (await again.run_code("kept + 1")).text == "42"
        there = {found.name for found in sandboxes()}
        mine = {row.container for row in await daemon.engine().list()}
        assert mine
        assert mine <= there
        daemon.kill()
        await until(lambda: not mine & {found.name for found in sandboxes()}, 20)
        await again.kill()


async def test_one_that_was_ready_can_be_kept() -> None:
    """It is claimed as any other, and goes on after its owner."""
    with a_broker("--pool", "1") as daemon:
        engine = daemon.engine()
        await (await AsyncSandbox.create(engine=daemon.address, image=IMAGE)).kill()
        ready = await daemon.waiting()
        sandbox = await kept(daemon)
        assert [row.container for row in await engine.list() if row.session == sandbox.id] == ready
        await sandbox.run_code("kept = 1")
        await sandbox.detach()
        again = await AsyncSandbox.connect(sandbox.id, engine=daemon.address)
        assert (await again.run_code("kept")).text == "1"
        await again.kill()
