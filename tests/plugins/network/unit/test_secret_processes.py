"""A value is in the memory of one process of the host, and nowhere that another user can look."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import ROOT

from .hosts import KEY

HOLDER = """
import sys
from dataclasses import dataclass
from sandbox_kernel.plugins.network.settings import SecretSource
from sandbox_kernel.plugins.network.secrets import Secrets
sources = [SecretSource(name="API_KEY", kind="env", place="GIVEN", hosts=("api.example.test",))]
secrets = Secrets.load(sources)
secrets._authority.context("api.example.test")
print(secrets, flush=True)
sys.stdin.read()
"""
LOOKER = """
import os, sys
if int(sys.argv[2]):
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
for folder, _, names in os.walk("/proc/" + sys.argv[1]):
    if folder.count("/") > 3:
        continue
    for name in names:
        path = os.path.join(folder, name)
        try:
            sys.stdout.buffer.write(os.readlink(path).encode())
        except OSError:
            pass
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                sys.stdout.buffer.write(os.read(fd, 1 << 20))
            finally:
                os.close(fd)
        except OSError:
            pass
"""
"""Writes whatever it can read below a process's folder, as another user or as this one."""


@pytest.fixture
def holder() -> Iterator[int]:
    """A process that holds a secret of its environment, and the key of an authority."""
    environment = {**os.environ, "GIVEN": KEY, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"<Secrets API_KEY>\n"
        yield process.pid
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait(20)


def looked_at(process: int, *, by_another: bool) -> bytes:
    command = [sys.executable, "-I", "-S", "-c", LOOKER, str(process), str(int(by_another))]
    return subprocess.run(command, capture_output=True, timeout=60, check=True).stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_another_user_finds_no_value_below_proc(holder: int) -> None:
    seen = looked_at(holder, by_another=True)
    assert b"python" in seen  # what everybody may read was read
    assert KEY.encode() not in seen


def test_control_the_same_user_reads_the_environment_in_which_it_was_given(holder: int) -> None:
    """Whoever runs the kernel gave it the value; a file keeps it out of here."""
    assert KEY.encode() in looked_at(holder, by_another=False)


def test_no_handle_leads_to_a_key(holder: int) -> None:
    """The certificates' keys were in files of memory, which are closed."""
    handles = []
    for link in Path(f"/proc/{holder}/fd").iterdir():
        with suppress(OSError):
            handles.append(str(link.readlink()))
    assert handles
    assert not [one for one in handles if "memfd" in one or one.endswith(".pem")]


def test_the_process_is_named_by_what_was_started(holder: int) -> None:
    assert KEY.encode() not in Path(f"/proc/{holder}/cmdline").read_bytes()
