"""What a cell can do to the host through a dataset: nothing. Each attack succeeds where there is no such wall.

One program attacks from each sandbox; the same runs without a sandbox, and behind a plain read-only mount of Docker's.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.engines.base import Container
from sandbox_kernel.engines.docker.ahead import creation
from sandbox_kernel.engines.docker.engine import DockerEngine
from tests.support.datasets import a_folder, dataset
from tests.support.engines import Bubblewrap, Docker, EngineUnderTest, new_spec, receive_line

WALLS: dict[str, EngineUnderTest] = {
    "docker": Docker("runc", "docker"),
    "docker-gvisor": Docker("runsc", "docker-gvisor"),
    "bubblewrap": Bubblewrap("bubblewrap"),
}
ODD = "a,b: \\c\n\u00e9\u2603'\""
"""Letters that mean something to mounts, shells or JSON, in the dataset's own path and in a file's name."""

PROBE = r"""
import ctypes, errno, fcntl, json, os, shutil, signal, socket, subprocess, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)  # a lease that the host breaks
os.chdir(sys.argv[1])

def tried(call):
    try:
        return call()
    except OSError as error:
        return errno.errorcode[error.errno]

def read(path):
    with open(path) as file:
        return file.read()

def opened(path, flags):
    os.close(os.open(path, flags | os.O_NONBLOCK))
    return "opened"

def connected():
    with socket.socket(socket.AF_UNIX) as one:
        one.connect("socket")
    return "connected"

def done(call):
    call()
    return "done"

def ran(path):
    user = 65534 if os.geteuid() == 0 else None
    return {7: "as root", 8: "as its caller"}[subprocess.run([path], user=user).returncode]

def ran_as_a_copy():
    shutil.copy("program", sys.argv[3] + "/copy")
    return ran(sys.argv[3] + "/copy")

def rewritten(path):
    with open(path, "r+") as file:
        file.write("x")
    return "done"

libc = ctypes.CDLL(None, use_errno=True)

def watched():
    fd = libc.inotify_init1(os.O_NONBLOCK)
    if fd < 0 or libc.inotify_add_watch(fd, b"db", 2) < 0:
        raise OSError(ctypes.get_errno(), "")
    return fd

db = open("db")
found = {
    "link that leads up": tried(lambda: read("up")),
    "link with the host's path": tried(lambda: read("absolute")),
    "mount below": tried(lambda: sorted(os.listdir("below"))),
    "socket": tried(connected),
    "pipe": tried(lambda: opened("fifo", os.O_WRONLY)),
    "device": tried(lambda: opened("device", os.O_RDONLY)),
    "reading": tried(lambda: read("old")),
    "odd name": tried(lambda: read(sys.argv[2])),
    "case": [read("Case"), read("case")],
    "flock": tried(lambda: done(lambda: fcntl.flock(db, fcntl.LOCK_EX | fcntl.LOCK_NB))),
    "lock": tried(lambda: done(lambda: fcntl.lockf(db, fcntl.LOCK_SH | fcntl.LOCK_NB))),
    "lease": tried(lambda: done(lambda: fcntl.fcntl(db, 1024, 0))),
    "setuid program": tried(lambda: ran("./setuid")),
    "program": tried(lambda: ran("./program")),
    "copy of a program": tried(ran_as_a_copy),
}
watch = tried(watched)
print(json.dumps(found), flush=True)
sys.stdin.readline()
told = tried(lambda: os.read(watch, 4096) and "told") if isinstance(watch, int) else watch
writes = {
    "open": lambda: open("file", "r+").close(), "append": lambda: open("file", "a").close(),
    "create": lambda: open("new", "x").close(), "mkdir": lambda: os.mkdir("made"),
    "link": lambda: os.link("file", "hard"), "symlink": lambda: os.symlink("file", "soft"),
    "mkfifo": lambda: os.mkfifo("pipe"), "xattr": lambda: os.setxattr("file", "user.x", b"x"),
    "chmod": lambda: os.chmod("file", 0o600), "utime": lambda: os.utime("file", (1, 1)),
    "truncate": lambda: os.truncate("file", 1), "rename": lambda: os.rename("file", "renamed"),
    "unlink": lambda: os.unlink("goes"), "rmdir": lambda: os.rmdir("empty"),
}
written = {name: tried(lambda: done(call)) for name, call in writes.items()}
open(sys.argv[3] + "/own", "w").close()
links = {
    "hard link out of it": tried(lambda: done(lambda: os.link("linked", sys.argv[3] + "/out"))),
    "hard link into it": tried(lambda: done(lambda: os.link(sys.argv[3] + "/own", "in"))),
    "write to a file with a name outside": tried(lambda: rewritten("linked")),
}
print(json.dumps({"watch": told, "writes": written, **links}), flush=True)
"""


def a_program() -> bytes:
    """Return a program for Linux on x86-64 that needs no library: it ends with 7 where it runs as root, else with 8."""
    # geteuid(); edi = 7; if it is not 0, edi = 8; exit(edi)
    code = bytes.fromhex("b86b0000000f05 85c0 bf07000000 7405 bf08000000 b83c0000000f05")
    start, size = 0x400000, 64 + 56 + len(code)
    head = b"\x7fELF\x02\x01\x01" + bytes(9)
    head += struct.pack("<HHIQQQIHHHHHH", 2, 62, 1, start + 64 + 56, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    return head + struct.pack("<IIQQQQQQ", 1, 5, 0, start, start, size, size, 0x1000) + code


@contextlib.contextmanager
def a_trap(*, mounted: bool) -> Iterator[Path]:
    """Make a folder with all that an attack needs, for everybody to write to: no mode refuses what a mount must."""
    with a_folder(ODD) as folder, contextlib.ExitStack() as stack:
        (folder.parent / "secret").write_text("secret")
        outside = folder.parent / "outside"
        outside.mkdir()
        outside.chmod(0o755)
        (outside / "secret").write_text("secret")
        for name in ("below", "empty"):
            (folder / name).mkdir()
        if mounted:
            subprocess.run(["mount", "--bind", outside, folder / "below"], check=True)
            stack.callback(subprocess.check_call, ["umount", folder / "below"])
        (folder / "up").symlink_to("../secret")
        (folder / "absolute").symlink_to(folder.parent / "secret")
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        with contextlib.chdir(folder):  # the path of a socket is short
            listener.bind("socket")
        listener.listen()
        os.mkfifo(folder / "fifo")
        reader = os.open(folder / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        stack.callback(os.close, reader)
        os.mknod(folder / "device", 0o666 | 0o020000, os.makedev(1, 5))
        for name in ("file", "goes", "db", "old", ODD, "Case", "case"):
            (folder / name).write_text(name)
        for path in folder.iterdir():
            if not path.is_symlink():
                path.chmod(0o777)
        folder.chmod(0o777)
        for name, mode in {"setuid": 0o6755, "program": 0o755}.items():
            (folder / name).write_bytes(a_program())
            (folder / name).chmod(mode)
        os.link(outside / "secret", folder / "linked")
        (folder / "linked").chmod(0o777)
        os.utime(folder / "old", (1_000_000, 2_000_000))
        yield folder


def state_of(folder: Path) -> dict[str, Any]:
    """Return all of it that a write would change."""
    found: dict[str, Any] = {}
    for path in sorted((folder, *folder.iterdir())):
        status = path.lstat()
        times = () if path.name == "db" else (status.st_mtime_ns, status.st_ctime_ns)
        found[path.name] = (status.st_mode, status.st_uid, status.st_nlink, status.st_size, *times)
    return found


def host_s_turn(folder: Path) -> dict[str, str]:
    """Use the database as its own program does, while a sandbox may have a lock on it."""
    found = {}
    with (folder / "db").open("r+") as file:
        for name, lock in (("flock", fcntl.flock), ("lock", fcntl.lockf)):
            try:
                lock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                found[f"{name} of the host"] = "had"
            except BlockingIOError:
                found[f"{name} of the host"] = "refused"
        file.write("x")
    return found


def opens(folder: Path) -> str:
    """Open the database for writing, which a lease delays."""
    try:
        os.close(os.open(folder / "db", os.O_WRONLY | os.O_NONBLOCK))
    except BlockingIOError:
        return "delayed"
    return "had"


async def _attacked(container: Container, folder: Path) -> dict[str, Any]:
    found = json.loads(await receive_line(container))
    found["open of the host"] = opens(folder)
    if found["open of the host"] == "had":
        found |= host_s_turn(folder)
    await container.send(b"\n")
    return found | json.loads(await receive_line(container))


async def _from(name: str, folder: Path) -> dict[str, Any]:
    arguments = ("/mnt/datasets/sales", ODD, "/mnt/data")
    if name == "plain mount":
        engine = DockerEngine()
        spec = new_spec(PROBE, *arguments)
        body, held = creation(spec)
        body["HostConfig"]["Mounts"] = [
            {"Type": "bind", "Source": str(folder), "Target": arguments[0], "ReadOnly": True}
        ]
        container: Container = await engine.start_body(spec.session_id, body, held)
    else:
        container = await WALLS[name].make().start(WALLS[name].spec(PROBE, *arguments, attached=dataset(folder)))
    try:
        return await _attacked(container, folder)
    finally:
        await container.kill()


def _on_the_host(folder: Path) -> dict[str, Any]:
    words = [sys.executable, "-I", "-c", PROBE, str(folder), ODD, str(folder.parent / "outside")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        found: dict[str, Any] = json.loads(process.stdout.readline())
        found["open of the host"] = opens(folder)
        process.stdin.write(b"\n")
        process.stdin.flush()
        return found | json.loads(process.stdout.readline())


@cache
def attacked(name: str) -> dict[str, Any]:
    """Return what came of each attack: from a sandbox, behind a plain mount, or on the host."""
    with a_trap(mounted=name != "bubblewrap") as folder:
        before = state_of(folder)
        found = _on_the_host(folder) if name == "host" else asyncio.run(_from(name, folder))
        found["time of reading"] = "noted" if (folder / "old").stat().st_atime > 1_000_000 else "not noted"
        found["folder"] = "as it was" if state_of(folder) == before else "changed"
        return found


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> str:
    """Return the name of each kind of sandbox that is to be had here."""
    if os.geteuid() != 0:
        pytest.skip("only root can make the device nodes and mounts that lead out")
    if os.uname().machine != "x86_64":
        pytest.skip("the program in the folder is for x86-64")
    if why := WALLS[request.param].absent():
        pytest.skip(why)
    return str(request.param)


THREATS: dict[str, tuple[set[Any], str, Any]] = {
    "link that leads up": ({"ENOENT"}, "host", "secret"),
    "link with the host's path": ({"ENOENT"}, "host", "secret"),
    "mount below": ({()}, "plain mount", ("secret",)),
    "socket": ({"ECONNREFUSED", "EPERM"}, "plain mount", "connected"),
    "pipe": ({"ENXIO", "EPERM"}, "plain mount", "opened"),
    "device": ({"EACCES", "ENXIO"}, "plain mount", "opened"),
    "flock of the host": ({"had"}, "plain mount", "refused"),
    "lock of the host": ({"had"}, "plain mount", "refused"),
    "open of the host": ({"had"}, "host", "delayed"),
    "watch": ({"EAGAIN", "ENOSYS"}, "plain mount", "told"),
    "time of reading": ({"not noted"}, "host", "noted"),
    "folder": ({"as it was"}, "host", "changed"),
    "setuid program": ({"EACCES", "as its caller"}, "host", "as root"),
    "hard link out of it": ({"EXDEV"}, "host", "done"),
    "hard link into it": ({"EXDEV", "EROFS"}, "host", "done"),
    "write to a file with a name outside": ({"EROFS", "EACCES", "EPERM"}, "host", "done"),
}
"""What a sandbox may have of each, and where the attack succeeds."""


@pytest.mark.parametrize("threat", THREATS)
def test_a_dataset_is_no_way_out(wall: str, threat: str) -> None:
    safe, control, harm = THREATS[threat]
    found, without = (attacked(name)[threat] for name in (wall, control))
    assert (tuple(found) if isinstance(found, list) else found) in safe
    assert (tuple(without) if isinstance(without, list) else without) == harm


def test_a_program_in_it_runs_nowhere_or_as_any_other_file_of_a_cell(wall: str) -> None:
    """Docker's mounts are noexec; others cannot say so, and to a cell that runs what it likes it is all the same."""
    found = attacked(wall)
    assert found["program"] == ("EACCES" if wall == "docker" else "as its caller")
    assert found["copy of a program"] == "as its caller"
    assert attacked("plain mount")["program"] == "as its caller"


LATER = """
import json, os, sys
for _ in sys.stdin:
    print(json.dumps(os.listdir(sys.argv[1] + "/below")), flush=True)
"""


@contextlib.contextmanager
def passing_mounts_on(folder: Path) -> Iterator[None]:
    """Have a folder be a mount whose mounts below go to all that have a copy of it, if they let them."""
    subprocess.run(["mount", "--bind", folder, folder], check=True)
    try:
        subprocess.run(["mount", "--make-shared", folder], check=True)
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


async def _later(name: str, folder: Path) -> list[str]:
    """Return what a sandbox sees of a mount that the host makes below while it runs."""
    if name == "plain mount":
        spec = new_spec(LATER, place := "/mnt/datasets/sales")
        body, held = creation(spec)
        options = {"Propagation": "rslave"}
        mount = {"Type": "bind", "Source": str(folder), "Target": place, "ReadOnly": True, "BindOptions": options}
        body["HostConfig"]["Mounts"] = [mount]
        container: Container = await DockerEngine().start_body(spec.session_id, body, held)
    else:
        spec = WALLS[name].spec(LATER, "/mnt/datasets/sales", attached=dataset(folder))
        container = await WALLS[name].make().start(spec)
    try:
        await container.send(b"\n")
        assert json.loads(await receive_line(container)) == []
        subprocess.run(["mount", "--bind", folder.parent / "outside", folder / "below"], check=True)  # noqa: ASYNC221
        await container.send(b"\n")
        found: list[str] = json.loads(await receive_line(container))
        return found
    finally:
        await container.kill()


def test_what_is_mounted_below_it_later_is_not_seen(wall: str) -> None:
    with a_trap(mounted=False) as folder, passing_mounts_on(folder):
        assert asyncio.run(_later(wall, folder)) == []


@pytest.mark.usefixtures("wall")
def test_control_what_is_mounted_below_a_plain_mount_later_is_seen() -> None:
    with a_trap(mounted=False) as folder, passing_mounts_on(folder):
        assert asyncio.run(_later("plain mount", folder)) == ["secret"]


def test_nothing_of_a_dataset_can_be_changed(wall: str) -> None:
    said = {name for name, said in attacked(wall)["writes"].items() if said == "done"}
    assert said <= ({"mkfifo", "truncate"} if wall == "docker-gvisor" else set())  # gVisor keeps these to itself
    assert attacked(wall)["folder"] == "as it was"
    assert set(attacked("host")["writes"].values()) == {"done"}


def test_a_folder_with_a_mount_below_is_refused_where_it_would_be_uncovered() -> None:
    """The kernel lets no user's layer leave out what is mounted below; Docker's layers are root's, and do."""
    if os.geteuid() != 0 or WALLS["bubblewrap"].absent():
        pytest.skip("there is nobody to mount, or no bubblewrap")
    with a_trap(mounted=True) as folder, pytest.raises(ConfigurationError, match="something is mounted below it"):
        asyncio.run(_from("bubblewrap", folder))


def test_odd_names_are_names(wall: str) -> None:
    """Whatever the letters of the folder's own path and of a file's name mean to a mount or a shell."""
    found = attacked(wall)
    assert (found["odd name"], found["case"], found["reading"]) == (ODD, ["Case", "case"], "old")
