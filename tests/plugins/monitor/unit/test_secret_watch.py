"""Which events of Python's are about a secret, and that the usual ones are not."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from sandbox_kernel.plugins.monitor.inside import secret_watch
from sandbox_kernel.plugins.monitor.inside.secret_watch import EXACT, SYSTEM, Starts, sought, started
from sandbox_kernel.session.agent_messages import SECRETS

READ, WRITE = ("r", os.O_RDONLY), ("w", os.O_WRONLY | os.O_CREAT)
FOUND: list[tuple[str, tuple[Any, ...], str]] = [
    ("open", ("/etc/shadow", *READ), "password hashes"),
    ("open", (b"/etc/gshadow", *READ), "password hashes"),
    ("open", ("../../../etc/shadow", *READ), "password hashes"),
    ("open", ("/etc/sudoers.d/all", *READ), "who may become root"),
    ("open", ("/home/user/.ssh/id_ed25519", *READ), "keys of SSH"),
    ("os.listdir", (".ssh",), "keys of SSH"),
    ("open", ("/tmp/home/.aws/credentials", *READ), "credentials of a cloud"),
    ("open", ("/x/.config/gcloud/credentials.db", *READ), "credentials of a cloud"),
    ("open", ("/tmp/home/.netrc", *READ), "stored passwords"),
    ("os.scandir", ("/var/run/secrets/kubernetes.io",), "a pod's token"),
    ("os.listdir", ("/root",), "root's files"),
    ("open", ("/proc/1/environ", *READ), "another process's memory or variables"),
    ("open", ("/proc/1/root/etc/hostname", *READ), "another process's memory or variables"),
    ("open", ("/proc/kcore", *READ), "the machine's memory or kernel"),
    ("open", ("/var/run/docker.sock", *READ), "an engine's socket"),
    ("subprocess.Popen", ("/bin/sh", ["/bin/sh", "-c", "cat /etc/shadow | head"], None, None), "password hashes"),
    ("subprocess.Popen", ("curl", "curl --unix-socket /var/run/docker.sock x", None, None), "an engine's socket"),
    ("os.system", (b"tar c ~/.ssh",), "keys of SSH"),
    ("os.system", ("cat /proc/*/environ",), "another process's memory or variables"),
    ("os.system", ("echo '* * * * * x' >> /etc/crontab",), "a change of files of the system"),
    ("os.system", ("x | tee -a /etc/hosts",), "a change of files of the system"),
    ("open", ("/etc/passwd", *WRITE), "a change of files of the system"),
    ("os.chmod", ("/etc/hosts", 0o777, -1), "a change of files of the system"),
    ("open", ("/usr/share/notes.txt", *WRITE), "a change of files of the system"),
    ("os.remove", ("/usr/bin/env", -1), "a change of files of the system"),
    ("os.rename", ("/etc/hosts", "/mnt/data/x", -1, -1), "a change of files of the system"),
]
USUAL: list[tuple[str, tuple[Any, ...]]] = [
    ("open", ("/etc/passwd", *READ)),
    ("open", ("/usr/lib/python3/json/__init__.py", *READ)),
    ("open", ("/usr/lib/python3/json/__pycache__/tool.cpython-313.pyc.1", *WRITE)),
    ("os.mkdir", ("/opt/venv/lib/python3.13/site-packages/numba/__pycache__", 0o777, -1)),
    ("open", ("/etc/ssl/certs/ca-certificates.crt", *READ)),
    ("open", ("/mnt/data/etc/shadow.csv", *WRITE)),
    ("open", ("/mnt/data/.sshfs-notes", *READ)),
    ("open", ("/mnt/data/root", *READ)),
    ("open", ("/tmp/home/.config/matplotlib/matplotlibrc", *READ)),
    ("open", ("/proc/self/environ", *READ)),
    ("open", (f"/proc/{os.getpid()}/environ", *READ)),
    ("open", ("/proc/1234/stat", *READ)),
    ("open", ("/sys/fs/cgroup/cpu.max", *READ)),
    ("open", ("/dev/null", *WRITE)),
    ("open", (7, *READ)),
    ("open", (None, *READ)),
    ("os.listdir", (None,)),
    ("os.listdir", ("/root-of-all",)),
    ("subprocess.Popen", ("git", ["git", "log", "/root-cause"], None, None)),
    ("os.system", ("ls /etc > /mnt/data/x",)),
]


@pytest.mark.parametrize(("event", "arguments", "what"), FOUND)
def test_a_secret_that_is_sought(event: str, arguments: tuple[Any, ...], what: str) -> None:
    found = sought(event, arguments)
    assert found is not None
    assert SECRETS[found] == what


@pytest.mark.parametrize(("event", "arguments"), USUAL)
def test_what_honest_code_does(event: str, arguments: tuple[Any, ...]) -> None:
    assert sought(event, arguments) is None


STARTS: list[tuple[str, tuple[Any, ...], str]] = [
    ("subprocess.Popen", ("git", ["git", "log"], None, None), "git"),
    ("subprocess.Popen", ("/usr/bin/git", ["/usr/bin/git"], None, None), "git"),
    ("subprocess.Popen", ("/bin/sh", ["/bin/sh", "-c", "/opt/x/tool --all | head"], None, None), "tool"),
    ("subprocess.Popen", ("/bin/bash", ["/bin/bash", "-c"], None, None), "bash"),
    ("subprocess.Popen", ("/bin/bash", ["/bin/bash"], None, None), "bash"),
    ("subprocess.Popen", (b"/bin/ls", [b"ls"], None, None), "ls"),
    ("os.system", ("curl x",), "curl"),
    ("os.system", (b"",), ""),
    ("os.system", ("(date; date)",), "date"),
    ("os.exec", ("/bin/ls", ["ls"], {}), "ls"),
    ("os.posix_spawn", ("/bin/ls", ["ls"], {}), "ls"),
    ("os.system", ("x" * 9999,), "x" * secret_watch.MAX_NAME),
    ("os.system", (7,), ""),
]


@pytest.mark.parametrize(("event", "arguments", "name"), STARTS)
def test_the_program_that_is_started(event: str, arguments: tuple[Any, ...], name: str) -> None:
    assert started(event, arguments) == name


def test_of_many_starts_each_doubling_is_told() -> None:
    """And of few, each: so a loop that starts a thousand is told of some thirty times."""
    starts = Starts()
    told = [starts.to_tell(b"true", 9 + number / 1000) for number in range(1000)]
    assert told[:EXACT] == [1] * EXACT
    assert sum(map(bool, told)) == EXACT + 5
    assert 500 < sum(told) <= 1000
    assert starts.to_tell(b"ls", 10) == 1
    assert starts.to_tell(b"true", 11) == 1, "after a pause it begins anew"
    assert [starts.to_tell(b"%d" % number, 12) for number in range(1000)] == [1] * 1000


SPAWNS = """
import os, subprocess, sys
from sandbox_kernel.plugins.monitor.inside import secret_watch
told = []
def hook(event, arguments):
    if event in secret_watch.COMMANDS and not secret_watch.is_told_already(event):
        told.append(event)
sys.addaudithook(hook)
subprocess._USE_POSIX_SPAWN, subprocess._USE_VFORK = True, False
subprocess.run([sys.executable, "-c", ""], close_fds=False, check=True)
os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", ""], {}), 0)
print(told)
"""


def test_what_subprocess_says_twice_is_one_start() -> None:
    done = subprocess.run([sys.executable, "-c", SPAWNS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("['subprocess.Popen', 'os.posix_spawn']\n", "")


def test_the_host_has_a_name_for_each_and_each_is_tried() -> None:
    assert len(SECRETS) == len(secret_watch.SECRETS) == SYSTEM + 1
    assert {what for _, _, what in FOUND} == set(SECRETS)


ODD = """
import os, sys
from sandbox_kernel.plugins.monitor.inside import secret_watch
secret_watch.install_here()
for event in ("open", "os.listdir", "subprocess.Popen", "os.system", "os.chmod"):
    for odd in ((), (object(),), (["\\0" * 9], 3), (b"\\xff\\xfe/etc/shadow", 1, 2), (b"/etc/" + bytes(99), None, "x")):
        sys.audit(event, *odd)
open("/etc/hostname").close()
print(os.listdir("/proc/self/task") != [])
"""


def test_no_event_fails_for_it() -> None:
    done = subprocess.run([sys.executable, "-c", ODD], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\n", "")
