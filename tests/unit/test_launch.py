"""The launcher and the process that kernels are forked from: what the front end knows behaves as the kernel itself."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from sandbox_kernel.broker import kernels as of_broker
from sandbox_kernel.broker.ceilings import Policy
from sandbox_kernel.broker.daemon import Broker
from sandbox_kernel.broker.metrics import Figures
from sandbox_kernel.engines import sightings
from sandbox_kernel.engines.broker import places
from sandbox_kernel.kernel import doors, keeper, launch, prepared
from tests.support.cases import each
from tests.support.kernels import WAIT, eventually
from tests.support.launching import PROGRAM, SCRIPT, Place, file_of, listens, ports, state_of, turned, words_of
from tests.support.patience import within

AT_ONCE = 1.0
"""Seconds for the system to end a process."""
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs to be another user")
NOBODY = 65534


@pytest.fixture(scope="module")
def shared() -> Iterator[Place]:
    one = Place()
    yield one
    one.close()


@pytest.fixture
def own() -> Iterator[Place]:
    one = Place()
    yield one
    one.close()


def gone(pid: int, seconds: float = WAIT) -> float:
    return eventually(lambda: not state_of(pid), seconds, f"process {pid} is there")


# --- what the front end knows -----------------------------------------------------------------------------------------


def test_a_kernel_is_forked_and_the_launcher_stays(shared: Place) -> None:
    """It leads a session of its own, and people who list sandboxes see what it is for.

    Its memory is not written to for that: lists of processes show the process that it is a copy of.
    """
    file = shared.file()
    launcher = shared.start("--display-name=Ours", file=file, env={"JPY_SESSION_NAME": "/work/some.ipynb"})
    kernel = shared.kernel_of(launcher)
    assert words_of(launcher.pid)[:5] == [sys.executable, "-I", "-S", SCRIPT, "sandbox_kernel"]
    assert shared.process is not None
    assert words_of(kernel) == words_of(shared.process.pid)
    assert max(map(len, words_of(kernel))) < 200
    assert sightings.launcher_of(kernel) == launcher.pid
    assert sightings.name_of(kernel) == "Ours"
    assert sightings.work_of(kernel) == "/work/some.ipynb"
    assert os.getsid(kernel) == kernel
    assert launcher.poll() is None


@each("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_reach_the_kernel(shared: Place, number: int) -> None:
    """SIGTERM is a proper end with exit code 0, of both; SIGINT is what a kernel pays no heed to."""
    launcher = shared.start()
    kernel = shared.kernel_of(launcher)
    os.killpg(launcher.pid, number)
    if number == signal.SIGINT:
        assert listens(file_of(launcher))
        launcher.terminate()
    assert launcher.wait(WAIT) == 0
    assert not state_of(kernel)


def test_a_stop_stops_both_and_both_go_on(shared: Place) -> None:
    launcher = shared.start()
    kernel = shared.kernel_of(launcher)
    launcher.send_signal(signal.SIGTSTP)
    eventually(lambda: (state_of(kernel), state_of(launcher.pid)) == ("T", "T"), WAIT, "both are stopped")
    launcher.send_signal(signal.SIGCONT)
    eventually(lambda: "T" not in state_of(kernel) + state_of(launcher.pid), WAIT, "both go on")


@each("busy", [False, True])
@each("group", [False, True])
def test_a_launcher_that_is_killed_takes_the_kernel_along(shared: Place, *, busy: bool, group: bool) -> None:
    """At once, and by the system: also one that is stopped, and can do nothing itself."""
    launcher = shared.start()
    kernel = shared.kernel_of(launcher)
    if busy:
        os.kill(kernel, signal.SIGSTOP)
        eventually(lambda: state_of(kernel) == "T", WAIT, "it is stopped")
    (os.killpg if group else os.kill)(launcher.pid, signal.SIGKILL)
    assert launcher.wait(WAIT) == -signal.SIGKILL
    gone(kernel, AT_ONCE)


@each("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGHUP])
def test_a_kernel_that_is_killed_is_seen_as_that(shared: Place, number: int) -> None:
    launcher = shared.start()
    os.kill(shared.kernel_of(launcher), number)
    assert launcher.wait(WAIT) == -number


def test_one_who_ignores_the_end_of_children_starts_a_process_that_hears_of_it() -> None:
    """That is passed on to children: a front end may be such a one, whose kernel started the broker."""
    place = Place(("-c", f"import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN); {PROGRAM}"))
    try:
        for _ in range(2):  # the second shows that the process is still there
            launcher = place.start()
            os.kill(place.kernel_of(launcher), signal.SIGKILL)
            assert launcher.wait(WAIT) == -signal.SIGKILL
    finally:
        place.close()


def test_arguments_that_are_wrong_end_as_ever(shared: Place) -> None:
    """The same words on stderr, and the same code, as of a kernel that nobody prepared."""
    found = []
    for start in ([sys.executable, "-I", "-m"], [sys.executable, "-I", "-S", SCRIPT]):
        words = ["sandbox_kernel", "-f", "/nonexistent", "--memory=x", f"--engine=broker://{shared.broker}"]
        done = subprocess.run([*start, *words], capture_output=True, timeout=WAIT, check=False)
        found.append((done.returncode, done.stderr))
    assert found[0] == found[1]
    assert found[0][0] == 2


def test_the_end_of_the_front_end_ends_both(shared: Place) -> None:
    """The process that started the launcher is named by JPY_PARENT_PID; when it is gone, nobody wants the kernel."""
    program = (
        "import os, subprocess, sys, json\n"
        "env = {**os.environ, 'JPY_PARENT_PID': str(os.getpid())}\n"
        "one = subprocess.Popen(json.loads(sys.argv[1]), env=env, start_new_session=True)\n"
        "print(one.pid, flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, json.dumps(shared.command())]
    env = {**os.environ, **of_broker.of_kernels()}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env) as front:
        assert front.stdin is not None
        assert front.stdout is not None
        launcher = int(front.stdout.readline())
        eventually(lambda: len(words_of(launcher)) > 6, WAIT, "the launcher is started")
        file = words_of(launcher)[6]
        eventually(lambda: listens(file), WAIT, "the kernel is up")
        [kernel] = shared.kernels_of(launcher)
        front.kill()
    gone(kernel)
    gone(launcher)


# --- what the kernel is given -----------------------------------------------------------------------------------------


def test_a_kernel_has_the_launcher_s_place_in_the_world(shared: Place, tmp_path: Path) -> None:
    """Files, folder, umask, limits and niceness."""

    def before() -> None:
        os.umask(0o027)
        os.nice(3)
        resource.setrlimit(resource.RLIMIT_NOFILE, (300, 400))
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    with (tmp_path / "out").open("wb") as out, (tmp_path / "err").open("wb") as err:
        options = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": err, "cwd": tmp_path, "preexec_fn": before}
        launcher = shared.start(**options)  # type: ignore[arg-type]
        kernel = shared.kernel_of(launcher)
    there, here = Path(f"/proc/{kernel}"), Path(f"/proc/{launcher.pid}")
    for name in ("cwd", "fd/0", "fd/1", "fd/2", "root"):
        assert (there / name).readlink() == (here / name).readlink(), name
    assert (there / "cwd").readlink() == tmp_path
    told = [line for line in (here / "limits").read_text().splitlines() if not line.startswith("Max core")]
    assert set((there / "limits").read_text().splitlines()) >= set(told)
    assert "300                  400" in (there / "limits").read_text()
    assert "\nUmask:\t0027\n" in (there / "status").read_text()
    assert os.getpriority(os.PRIO_PROCESS, kernel) == os.getpriority(os.PRIO_PROCESS, launcher.pid)
    assert os.sched_getaffinity(kernel) == os.sched_getaffinity(launcher.pid) == {min(os.sched_getaffinity(0))}


def test_a_launcher_leaves_no_core_file(shared: Place) -> None:
    """Its variables may hold a secret; the kernel's own limit is the kernel's affair."""
    launcher = shared.start()
    shared.kernel_of(launcher)
    eventually(lambda: core_of(launcher.pid) == ["0", "0"], WAIT, "it can leave none")


def core_of(pid: int) -> list[str]:
    lines = Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines()
    return next(line for line in lines if line.startswith("Max core")).split()[4:6]


def test_each_kernel_has_its_own(shared: Place) -> None:
    """Nothing of one is open in the next, and the process that they are copies of has one thread."""
    first = shared.start()
    kernel = shared.kernel_of(first)
    second = shared.start()
    other = shared.kernel_of(second)
    assert kernel != other
    assert shared.process is not None
    assert len(list(Path(f"/proc/{shared.process.pid}/task").iterdir())) == 1

    def sockets(pid: int) -> set[str]:
        links = [str(path.readlink()) for path in Path(f"/proc/{pid}/fd").iterdir() if path.is_symlink()]
        return {link for link in links if link.startswith("socket:")}

    assert sockets(kernel) & sockets(other) == set()
    first.kill()
    gone(kernel, AT_ONCE)
    assert listens(file_of(second))


def test_a_kernel_s_helpers_are_left_nothing_open(shared: Place) -> None:
    """What came over the socket is closed by whatever a kernel starts, as all else that it has open."""
    kernel = shared.kernel_of(shared.start())
    left = {}
    for place in Path(f"/proc/{kernel}/fd").iterdir():
        flags = (
            (place.parent.parent / "fdinfo" / place.name).read_text(encoding="ascii").partition("flags:")[2].split()[0]
        )
        if int(place.name) > 2 and not int(flags, 8) & os.O_CLOEXEC:
            left[place.name] = str(place.readlink())
    assert left == {}


def test_ports_are_open_before_the_kernel_is(shared: Place) -> None:
    """A client that comes early waits at an open door; what is none of the connection file is closed."""
    given = ports(2)
    connection = {"ip": "127.0.0.1", "transport": "tcp", "shell_port": given[0], "iopub_port": 1}
    socks = [socket.socket(), socket.socket()]
    for sock, port in zip(socks, given, strict=True):
        sock.bind(("127.0.0.1", port))
        sock.listen(1)
    numbers = [sock.detach() for sock in socks]
    found = doors.fitting(connection, {"shell": numbers[0], "iopub": numbers[1]})
    assert found == {"shell": numbers[0]}
    os.close(numbers[0])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(numbers[1])


@pytest.mark.parametrize(
    "text", ["{", "", '{"transport": "ipc", "ip": "/x"}', '{"ip": "localhost", "shell_port": 1}', '{"ip": "1.2.3.4"}']
)
def test_a_connection_file_of_another_kind_has_no_doors(tmp_path: Path, text: str) -> None:
    (tmp_path / "c.json").write_text(text)
    assert launch.doors_of(["-f", str(tmp_path / "c.json")]) == ([], [])


# --- who is not served ------------------------------------------------------------------------------------------------


@each(
    "changed",
    [
        {"GLIBC_TUNABLES": "glibc.malloc.check=0"},
        {"LD_LIBRARY_PATH": "/nonexistent"},
        {"MALLOC_ARENA_MAX": "3"},
    ],
)
def test_what_libraries_read_at_their_start_must_be_the_same(shared: Place, changed: dict[str, str]) -> None:
    launcher = shared.start(env=changed)
    turned(launcher)
    assert launch.ASKED + "libraries would have read other variables" in words_of(launcher.pid)


@root
def test_a_process_with_other_rights_starts_as_ever(shared: Place) -> None:
    """Control: without the change, it is served. One that has given up a right must not get it back."""
    launcher = shared.start(preexec_fn=lambda: os.setgroups([os.getgid(), 12345]))
    turned(launcher)
    assert shared.kernels_of(launcher.pid) == []
    shared.kernel_of(shared.start())


WHY = {
    "nobody": launch.NOBODY,
    "silent": launch.SILENT,
    "hangs up": launch.NOT_YET,
    "says why": "it is a test's?",
    "garbage": "x" * 64,
}


@each("what", WHY)
def test_one_who_is_not_served_loses_little_time(what: str) -> None:
    """It becomes the kernel, within a bound, with all of its arguments and the reason, which its log has then."""
    place = Place(listens=False)
    try:
        if what != "nobody":
            place.listener.bind(place.broker + launch.SUFFIX)
            place.listener.listen(4)
        begin = time.monotonic()
        log = place.folder / "log"
        with log.open("wb") as stderr:
            launcher = place.start("--memory=1G", stderr=stderr)
        if what not in {"nobody", "silent"}:
            with place.listener.accept()[0] as peer:
                if what == "says why":
                    peer.sendall(b"it is a test's\n")
                elif what == "garbage":
                    peer.sendall(b"x" * 64)
                    peer.recv(1 << 20)
        turned(launcher)
        assert time.monotonic() - begin < launch.ANSWER_SECONDS + WAIT / 4
        words = words_of(launcher.pid)
        assert words[1:4] == ["-I", "-m", "sandbox_kernel"]
        assert words[-2:-1] == ["--memory=1G"]
        assert words[-1] == launch.ASKED + WHY[what]
        line = f"has not forked this kernel, which starts by itself: {WHY[what]}\n"
        eventually(lambda: line in log.read_text(encoding="utf-8"), WAIT, "its log says so")
    finally:
        place.close()


GONE = """
import os, pathlib, socket, subprocess, sys, time
sys.path.insert(0, sys.argv[4])
import launch
path, file, goes = sys.argv[1], sys.argv[2], sys.argv[3] == "goes"
def asked_by_a_child():
    sock = socket.socket(socket.AF_UNIX)
    child = os.fork()
    if not child:
        sock.connect(path)
        os._exit(0) if goes else time.sleep(60)
    return sock, child
sock, child = asked_by_a_child()
tries = 0
while goes:
    os.waitpid(child, 0)
    pathlib.Path("/proc/sys/kernel/ns_last_pid").write_text(str(child - 1))
    other = subprocess.Popen(["/bin/sleep", "60"])
    if other.pid == child:
        break
    other.kill()
    other.wait()
    sock.close()
    tries += 1
    if tries == 100:
        sys.exit("others have its number each time")
    sock, child = asked_by_a_child()  # whoever has the first one's number may keep it for long
while True:
    try:
        sock.getpeername()
        break
    except OSError:  # it is on its way
        pass
launch.knock = lambda path: sock
found = launch.hand_over(["-f", file], path)
print("served" if found else "declined", flush=True)
os.kill(child, 9)
"""


@pytest.mark.skipif(not os.access("/proc/sys/kernel/ns_last_pid", os.W_OK), reason="only root chooses numbers")
@each("goes", [True, False])
def test_a_number_that_another_process_has_by_now_is_not_the_launcher_s(shared: Place, *, goes: bool) -> None:
    """Somebody with fewer rights could connect, go, and have the kernel be like whoever gets its number."""
    words = [shared.broker + launch.SUFFIX, shared.file(), "goes" if goes else "stays", str(Path(SCRIPT).parent)]
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", GONE, *words],
        capture_output=True,
        text=True,
        timeout=WAIT,
        check=False,
        env={**os.environ, **of_broker.of_kernels()},
    )
    assert done.stdout == ("declined\n" if goes else "served\n"), done.stderr


@root
def test_another_user_cannot_have_a_kernel_and_cannot_give_one(shared: Place) -> None:
    """By the system's word: even where the folder and the socket were open to all."""
    path = shared.broker + launch.SUFFIX
    ask = (
        "import socket, sys; one = socket.socket(socket.AF_UNIX); one.settimeout(20); one.connect(sys.argv[1]);"
        "print(repr(one.recv(1)))"
    )

    def asked(user: int) -> str:
        options = {"user": user, "group": user, "extra_groups": []} if user else {}
        command = ["/usr/bin/env", "python3", "-c", ask, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=WAIT, check=False, cwd="/", **options)  # type: ignore[call-overload]
        return done.stdout.strip() or re.sub(r"[\s\S]*\n(\w+Error).*\n", r"\1", done.stderr)

    assert asked(NOBODY) == "PermissionError"
    before = set(shared.children())
    shared.folder.chmod(0o755)
    os.chmod(path, 0o666)  # noqa: PTH101, S103 (a socket, for a moment)
    try:
        assert asked(NOBODY) == "b''"
        assert set(shared.children()) == before
    finally:
        shared.folder.chmod(0o700)
        os.chmod(path, 0o600)  # noqa: PTH101 (as above)


@root
@pytest.mark.parametrize("user", [0, NOBODY])
def test_a_launcher_asks_nobody_else(tmp_path: Path, user: int) -> None:
    """Control: this user's own listener is taken."""
    path = str(tmp_path / "broker.sock.kernels")
    program = (
        "import os, socket, sys\none = socket.socket(socket.AF_UNIX)\none.bind(sys.argv[1])\n"
        "os.setuid(int(sys.argv[2]))\n"
        "one.listen(1); print('up', flush=True); sys.stdin.read()\n"
    )
    command = [sys.executable, "-c", program, path, str(user)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdin is not None
        assert other.stdout.readline() == b"up\n"
        try:
            if user:
                with pytest.raises(OSError, match="another user"):
                    launch.knock(path)
            else:
                launch.knock(path).close()
        finally:
            other.stdin.close()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o775])
def test_a_folder_in_which_others_may_write_is_passed_over(own: Place, mode: int) -> None:
    own.folder.chmod(mode)
    with pytest.raises(OSError, match="others may write"):
        launch.knock(own.broker + launch.SUFFIX)
    own.folder.chmod(0o700)
    launch.knock(own.broker + launch.SUFFIX).close()


# --- the end of what was prepared -------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["with its broker", "killed"])
def test_kernels_outlive_what_they_are_copies_of(own: Place, how: str) -> None:
    launcher = own.start()
    kernel = own.kernel_of(launcher)
    assert own.process is not None
    assert own.process.stdin is not None
    if how == "killed":
        own.process.kill()
    else:
        own.process.stdin.close()
    own.process.wait(WAIT)
    assert listens(file_of(launcher))
    launcher.terminate()
    assert launcher.wait(WAIT) == 0
    gone(kernel, AT_ONCE)


def test_the_end_of_a_kernel_is_told_when_nobody_is_left_to_say_how() -> None:
    """A signal that ended it is then SIGKILL to the front end, which is what it would have sent next."""
    place = Place()
    try:
        launcher = place.start()
        kernel = place.kernel_of(launcher)
        assert place.process is not None
        place.process.kill()
        place.process.wait(WAIT)
        os.kill(kernel, signal.SIGKILL)
        assert launcher.wait(WAIT) == -signal.SIGKILL
    finally:
        place.close()


@each("changed", [False, True])
def test_another_package_on_the_disk_is_not_what_was_loaded(changed: bool) -> None:
    """Then the copy ends before it is anything, so does what it is a copy of, and the start is an ordinary one."""
    other = (
        "prepared.loaded_files = lambda known=None, was=prepared.loaded_files: {**was(known), 'x': (id(known),) * 3}"
    )
    program = f"import sys; from sandbox_kernel.kernel import prepared; {other if changed else ''}\n{PROGRAM}"
    place = Place(["-c", program])
    try:
        launcher = place.start()
        assert place.process is not None
        if changed:
            turned(launcher)
            assert place.process.wait(WAIT) == 0
        else:
            place.kernel_of(launcher)
    finally:
        place.close()


def test_a_file_that_changes_is_seen(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("one = 1")
    before = prepared.loaded_files({str(file): (0, 0, 0)})
    assert prepared.loaded_files(before) == before
    (tmp_path / "new.py").write_text("one = 2")
    (tmp_path / "new.py").replace(file)
    assert prepared.loaded_files(before) != before
    file.unlink()
    assert prepared.loaded_files(before) == {}


async def test_a_broker_counts_how_kernels_start() -> None:
    """Each way back is a figure, and no word in a log alone: none prepared yet, one that declined, and one forked."""
    with tempfile.TemporaryDirectory(prefix="kernels-") as folder:
        kernels = of_broker.Kernels(f"{folder}/broker.sock", busy=lambda: False, rest_seconds=0.01)
        place = Place(listens=False)
        place.broker = f"{folder}/broker.sock"
        kernels.listen()
        try:
            await asyncio.to_thread(turned, place.start())
            assert dict(kernels.starts) == {"not-prepared": 1}
            async with within(WAIT):
                while kernels.pid is None:  # noqa: ASYNC110 (a state of another's, within a bound)
                    await asyncio.sleep(0.01)
            launcher = place.start()
            other = place.start(env={"MALLOC_ARENA_MAX": "3"})
            await asyncio.to_thread(turned, other)
            await asyncio.to_thread(eventually, lambda: listens(file_of(launcher)), WAIT, "a kernel is there")
            async with within(WAIT):
                while kernels.starts["declined"] != 1 or kernels.starts["forked"] != 1:  # noqa: ASYNC110 (as above)
                    await asyncio.sleep(0.01)
            assert kernels.starts["not-prepared"] == 1
        finally:
            place.close()
            await kernels.close()
    page = Figures()
    page.kernels.update(kernels.starts)
    broker = Broker(cast("Any", None), Policy())
    assert 'sandbox_kernel_broker_kernels_total{start="declined"} 1' in page.page(broker).splitlines()


# --- words that two say ----------------------------------------------------------------------------------------------


def test_both_ends_mean_the_same_place(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (launch.OPERATORS, launch.SUFFIX) == (places.OPERATORS, of_broker.SUFFIX)
    assert launch.own_broker() == places.own()
    monkeypatch.setattr(launch, "OPERATORS", "/nonexistent")
    assert launch.place_of(["-f", "x", "--engine=broker"]) == places.own() + of_broker.SUFFIX
    assert launch.place_of(["--engine=docker", "--engine=broker:///x/b.sock"]) == "/x/b.sock.kernels"


@pytest.mark.parametrize("folder", ["own", "open to others"])
def test_both_kernel_processes_mean_the_same_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    """The one that leaves something has all of Python, and the one that comes next to nothing of it."""
    home = tmp_path / "home"
    (runtime := tmp_path / "runtime").mkdir(mode=0o700)
    home.mkdir(mode=0o700)
    monkeypatch.setattr(launch, "_home", lambda user: str(home))
    connection = runtime / "kernel-1.json"
    connection.write_text(json.dumps({"shell_port": 1, "key": "3f-ab", "transport": "tcp"}))
    argv = ["-f", str(connection), "--engine=docker"]
    assert launch.place_after(argv) is None
    if folder == "open to others":
        runtime.chmod(0o777)
    meeting = keeper.place(str(connection), "3f-ab")
    listener, path = keeper.listen(keeper.Place((meeting.folders[0], str(home)), meeting.name))
    with listener:
        assert launch.place_after(argv) is None, "nothing but a keeper is there"
        Path(path + launch.NEXT).touch()
        assert launch.place_after(argv) == path + launch.NEXT
        connection.write_text(json.dumps({"shell_port": 1, "key": "another", "transport": "tcp"}))
        assert launch.place_after(argv) is None


@pytest.mark.parametrize("text", ["", "no JSON", '{"key": ""}', '{"key": "a\\u0041"}'])
def test_a_connection_file_that_is_not_plain_has_nobody_before_it(tmp_path: Path, text: str) -> None:
    (tmp_path / "one.json").write_text(text)
    assert launch.place_after(["-f", str(tmp_path / "one.json")]) is None
    assert launch.place_after(["-f"]) is None


@each("argv", [[], ["--engine=docker"], ["--engine=auto"], ["--engine=broker://relative"], ["--engine=unix:///x"]])
def test_other_engines_have_no_kernels_prepared(argv: list[str]) -> None:
    assert launch.place_of(argv) is None


def test_the_operator_s_broker_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    monkeypatch.setattr(launch, "OPERATORS", str(tmp_path / "there"))
    assert launch.place_of(["--engine=broker"]) is None


def test_the_launcher_loads_next_to_nothing() -> None:
    """Each of json, os's users, socket and signal costs as much as all of it. Nothing here is a package's."""
    program = f"import sys; sys.argv = [{SCRIPT!r}, 'x']; exec(open({SCRIPT!r}).read().split('if __name__')[0])"
    listed = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", "-c", program], capture_output=True, text=True, check=True
    )
    bare = subprocess.run(
        [sys.executable, "-I", "-S", "-X", "importtime", "-c", ""], capture_output=True, text=True, check=True
    )
    assert listed.stderr.count("\n") == bare.stderr.count("\n")
