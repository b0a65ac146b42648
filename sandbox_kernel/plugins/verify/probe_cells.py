"""Cells that lay something out or try something by themselves. Data: programs, with what is told in braces."""

from __future__ import annotations

PLANT = """
import os, subprocess, sys
_marker = {marker!r}
for _folder in ("/mnt/data", "/tmp", "/dev/shm", "/var/tmp", os.path.expanduser("~")):
    try:
        os.makedirs(_folder, exist_ok=True)
        with open(os.path.join(_folder, _marker), "w") as _file:
            _file.write(_marker)
    except OSError:
        pass
os.chdir("/mnt/data")
for _name in ("plain.csv", ".bashrc", "run.sh", "lines\\nof a name", "desktop.ini", "setuid"):
    with open(_name, "w") as _file:
        _file.write("#!/bin/sh\\n")
os.chmod("run.sh", 0o755)
os.chmod("setuid", 0o6755)
os.symlink("/etc/passwd", "link.csv")
os.symlink("/", "folder")
os.mkfifo("pipe.csv")
_child = subprocess.Popen([sys.executable, "-I", "-c", "import time; time.sleep(600)", {marker!r}])
print("planted")
"""
"""Leaves a file in each place to write, a program that waits, and hostile files for the folder of results."""
VICTIM = """
import ctypes, json, os, socket
_given = json.loads({given!r})
_libc = ctypes.CDLL(None)
_kept = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
_kept[1].bind(_given["abstract"])
_kept[1].listen()
_mode = 0o1666
_key = _given["key"]
_kept += [_libc.shmget(_key, 4096, _mode), _libc.msgget(_key, _mode), _libc.semget(_key, 1, _mode)]
os.umask(0)
for _folder in ("/dev/shm", "/tmp", "/mnt/data"):
    with open(_folder + "/" + _given["session"], "w") as _file:
        _file.write(_given["session"])
print(json.dumps({{"port": _kept[0].getsockname()[1]}}))
"""
"""Has everything that a hostile neighbour may want."""
TIDY = """
_kept[0].close()
_kept[1].close()
_libc.shmctl(_kept[2], 0, None)
_libc.msgctl(_kept[3], 0, None)
_libc.semctl(_kept[4], 0, 0)
for _folder in ("/dev/shm", "/tmp", "/mnt/data"):
    os.unlink(_folder + "/" + _given["session"])
"""
"""Takes that away again: where a namespace is missing, it is this machine's."""
BEYOND = """
import urllib.request
try:
    print(urllib.request.urlopen("http://192.0.2.1/", timeout=10).status)
except OSError as error:
    print(error)
"""
"""Asks for a host that no rule names, the way that libraries do."""

FLOOD = "line = 'x' * 65536\nfor _ in range({lines}): print(line)"
KILL = "import os\nos.kill(os.getpid(), 9)"
MEMORY = "import mmap\n_all = mmap.mmap(-1, {size})\nfor _at in range(0, {size}, 4096): _all[_at] = 1"
BUSY = """
import signal, time
signal.signal(signal.SIGINT, signal.SIG_IGN)
_end = time.monotonic() + {seconds}
while time.monotonic() < _end: pass
"""
"""Hears no interrupt."""
LOOK = """
import os
for _folder in ("/mnt/data", "/tmp", "/dev/shm", os.path.expanduser("~"), "/var/tmp", "/run"):
    if os.path.lexists(os.path.join(_folder, {marker!r})): print(_folder)
"""
"""Says where another sandbox has left something."""
OWNER = """
import asyncio, json, sys
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.sdk.client import AsyncSandbox
given = json.loads(sys.stdin.readline())
async def own():
    sandbox = await AsyncSandbox.create(Settings(**{**given, "limits": Limits(**given["limits"])}))
    print(sandbox.id, flush=True)
    await asyncio.Event().wait()
asyncio.run(own())
"""
"""A program of the host's that owns a sandbox until it is killed."""
