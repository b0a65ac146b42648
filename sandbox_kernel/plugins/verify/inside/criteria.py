"""What `verify --against` has a product run: programs that ask seven things, and do no harm where nothing protects.

They are no attacks of `kit`, which would be real ones on an unprotected machine: each looks for what the command has
planted, and is bounded. Standard library only, and it may be any Python: one in WebAssembly has no processes. `GIVEN`
is set before, and what is found is printed as lines of JSON behind `GIVEN["mark"]`.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

GIVEN: dict[str, Any] = {}


def say(probe: str, got_out: object, words: object = "") -> None:
    print(GIVEN["mark"] + json.dumps([probe, bool(got_out), str(words)[:200]]), flush=True)


def ask(probe: str, function: Callable[[], object]) -> None:
    """Say what a function returns: a text if it got out, nothing if not; an error is no way out."""
    try:
        found = function()
    except BaseException as error:
        say(probe, False, f"{type(error).__name__}: {error}")
    else:
        say(probe, found, found or "nothing was found")


def is_the_process(number: object) -> bool:
    """Return whether a number is the process that was started for this; it may be another's here."""
    with open(f"/proc/{number}/cmdline", "rb") as file:
        return GIVEN["process"].encode() in file.read().split(b"\0")  # this program may stand in a command line too


def processes() -> object:
    for name in os.listdir("/proc"):
        try:
            if name.isdigit() and is_the_process(name):
                return f"it sees a process of the machine, by the number {name}"
        except OSError:
            pass
    return ""


def signals() -> object:
    os.kill(GIVEN["pid"], 0)
    return is_the_process(GIVEN["pid"]) and "it may send signals to a process of the machine"


def reads() -> object:
    with open(GIVEN["folder"] + "/planted") as file:
        return file.read() == GIVEN["word"] and "it reads a file of the machine"


def writes() -> object:
    with open(GIVEN["folder"] + "/written", "w") as file:
        file.write(GIVEN["word"])
    return ""  # the command looks whether it is there


def environment() -> object:
    return GIVEN["word"] in os.environ.values() and "it has the variables of whoever starts it"


def loopback() -> object:
    import socket

    with socket.create_connection(("127.0.0.1", GIVEN["port"]), 3) as connection:
        return connection.recv(100).decode() == GIVEN["word"] and "it reaches a service on the machine's loopback"


def outside() -> object:
    import socket

    try:  # nobody is there: who says that there is a connection has made none yet, as some in WebAssembly do
        socket.create_connection((GIVEN["nowhere"], 9), 3).close()
    except TimeoutError:
        pass
    return "packets to other machines are not refused"


def forks() -> None:
    """Start processes that wait, up to a bound; each ends by itself, whatever becomes of this one."""
    import signal

    children: list[int] = []
    why = ""
    try:
        while len(children) < GIVEN["processes"] and not why:
            try:
                child = os.fork()
            except (OSError, AttributeError) as error:
                why = str(error)
                break
            if not child:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(20)
                while True:
                    time.sleep(20)
            children.append(child)
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            os.waitpid(child, 0)
    say("processes", not why, f"{why or 'no limit was met'} at {len(children)} processes")


def leaves() -> object:
    """Leave a process behind, which ends within half a minute by itself; the command looks for it."""
    import subprocess

    line = "import signal, time; signal.alarm(30); time.sleep(30)"
    null = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-c", line, GIVEN["left"]], stdin=null, stdout=null, stderr=null, start_new_session=True
    )
    return ""


PLACES = ("/tmp", "/var/tmp", "/dev/shm", ".", "/mnt/data", "/home", "/root", "/sandbox", "/workspace")


def plants() -> object:
    for place in PLACES:
        try:
            with open(f"{place}/{GIVEN['left']}", "w") as file:
                file.write(GIVEN["word"])
        except OSError:
            pass
    return ""


def finds() -> object:
    """Look for what an earlier call has planted, and take it away."""
    found = []
    for place in PLACES:
        try:
            os.remove(f"{place}/{GIVEN['left']}")
            found.append(place)
        except OSError:
            pass
    return found and f"it finds what an earlier call left in {', '.join(found)}"


def memory() -> None:
    held: list[bytearray] = []
    mib = 0
    while mib < GIVEN["mib"]:
        try:
            held.append(bytearray(os.urandom(1) * (32 << 20)))
        except MemoryError:
            say("memory", False, f"MemoryError at {mib} MiB")
            return
        mib += 32
    say("memory", True, f"no limit was met at {mib} MiB")


def endless() -> None:
    begun = time.time()
    while time.time() - begun < GIVEN["seconds"]:
        pass
    say("time", True, f"it ran for {GIVEN['seconds']} s, the default of its time limit is longer or there is none")


def terminal() -> object:
    print(f"\x1b]0;{GIVEN['word']}\x07")
    return ""  # the command looks whether that has arrived


STEPS = {
    "look": {
        "process-seen": processes,
        "process-signal": signals,
        "file-read": reads,
        "file-written": writes,
        "secret": environment,
        "loopback": loopback,
        "outside": outside,
        "left-process": leaves,
        "left-file": plants,
        "output-terminal": terminal,
    },
    "again": {"left-file": finds},
}


def run(step: str) -> None:
    if step in STEPS:
        say("python", False, sys.version.split()[0] + " on " + sys.platform)
        for probe, function in STEPS[step].items():
            ask(probe, function)
    elif step == "fail":
        say("told", False)
        raise ValueError(GIVEN["left"])
    else:
        {"memory": memory, "processes": forks, "time": endless}[step]()
