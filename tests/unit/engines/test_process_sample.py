"""What this machine's kernel says of processes: where their programs lie, bounded."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_kernel.core.model import ProcessSample, SandboxSample
from sandbox_kernel.engines import process_sample
from sandbox_kernel.engines.limit_watch import CgroupPlace
from tests.support.kernels import eventually

SLEEP = str(shutil.which("sleep"))


@contextmanager
def running(*argv: str, count: int = 1, executable: str | None = None) -> Iterator[list[int]]:
    started = [subprocess.Popen(argv, executable=executable) for _ in range(count)]
    try:
        yield [process.pid for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()


def test_a_process_is_said_with_the_file_of_its_program_whatever_it_calls_itself(tmp_path: Path) -> None:
    program = str(shutil.copy(SLEEP, tmp_path / "brought"))
    with running("python3", "60", executable=program) as (pid,):
        (one,) = process_sample.of_processes([pid]) or ()
        assert (one.files, one.name) == ((program,), "brought")
        assert one.identity.startswith(f"{pid}-")
        assert process_sample.of_processes([pid]) == (one,), "the same identity at each look"


def test_a_name_is_printable_and_short(tmp_path: Path) -> None:
    program = tmp_path / ("\x1b]0;" + "x" * 200)
    shutil.copy(SLEEP, program)
    with running(str(program), "60") as pids:
        (one,) = process_sample.of_processes(pids) or ()
    assert all(text.isprintable() and len(text) <= process_sample.MAX_TEXT for text in (one.name, *one.files))


def test_one_look_takes_a_bounded_number_of_processes_and_later_ones_others() -> None:
    with running(SLEEP, "60", count=process_sample.MAX_PROCESSES + 20) as pids:
        seen: set[str] = set()

        def all_seen() -> bool:
            seen.update(one.identity for one in look(pids))
            return len(seen) == len(pids)

        eventually(all_seen, 20, "each is in one look or another")


def look(pids: list[int]) -> tuple[ProcessSample, ...]:
    found = process_sample.of_processes(pids)
    assert found is not None
    assert len(found) == process_sample.MAX_PROCESSES
    return found


def test_processes_that_are_gone_are_none() -> None:
    with running(SLEEP, "60") as pids:
        pass
    assert process_sample.of_processes(pids) is None
    assert process_sample.of_processes([]) is None


CGROUPS: dict[str, tuple[dict[str, str], int, SandboxSample]] = {
    "of version 1": ({"pids.events": "max 3\n", "cpuacct.usage": "2500000000\n"}, 1, SandboxSample(3, 2.5)),
    "of version 2": (
        {"pids.events": "max 3\n", "cpu.stat": "usage_usec 2500000\nuser_usec 1\n"}, 2, SandboxSample(3, 2.5)
    ),
    "of version 1 with memory": (
        {"memory.usage_in_bytes": "700\n", "memory.stat": "cache 9\ntotal_inactive_file 200\n"}, 1,
        SandboxSample(memory_bytes=500),
    ),
    "of version 2 with memory": (
        {"memory.current": "700\n", "memory.stat": "file 9\ninactive_file 200\n"}, 2, SandboxSample(memory_bytes=500)
    ),
    "that is gone": ({}, 2, SandboxSample()),
    "with processes of another namespace": ({"cgroup.procs": "0\n0\n"}, 2, SandboxSample()),
    "with words": ({"pids.events": "max x\n", "cpu.stat": "usage_usec\n", "cgroup.procs": "x\n"}, 2, SandboxSample()),
}  # fmt: skip


@pytest.mark.parametrize("what", CGROUPS)
def test_a_cgroup_says_what_it_has_counted(what: str, tmp_path: Path) -> None:
    files, version, expected = CGROUPS[what]
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    place = CgroupPlace(str(tmp_path), version)
    assert process_sample.of_cgroup({"pids": place, "cpuacct": place, "memory": place}) == expected
    assert process_sample.of_cgroup({}) == SandboxSample()
