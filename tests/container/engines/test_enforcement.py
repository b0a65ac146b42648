"""The table of what each wall enforces is true: each yes and each no of it, shown by a sandbox of that wall.

Where it says no, something succeeds in a sandbox that the others refuse. So a table that promises too much fails here,
and so does one that is too modest.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest

from sandbox_kernel.engines.attestation import ALL_CLOSED, EINVAL
from sandbox_kernel.engines.base import Container
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.bubblewrap import cgroups, users
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program
from sandbox_kernel.plugins.bubblewrap.engine import no_layers
from sandbox_kernel.plugins.doctor.walls import ENFORCED, all_walls, enforced
from sandbox_kernel.plugins.verify.attack_program import table
from tests.attacks.escape.tools import Outcomes, run
from tests.container.engines import test_contract
from tests.support.engines import (
    ALL,
    ONLY,
    REPORT,
    Bubblewrap,
    EngineUnderTest,
    of_plugins,
    receive_line,
    report_sources,
)

COLUMNS = {"docker": "runc", "docker-gvisor": "runsc", "bubblewrap": "", "bubblewrap-best-effort": ""}
COLUMNS |= {one.name: "" for one in of_plugins()}
"""For each wall, in the order of the table, what it is called among those under test, and its runtime there."""
BY_NAME = {one.name: one for one in (*ALL, *of_plugins())}

CPUS = 0.1
HOG = """
import sys, time
print("up", flush=True)
share, seconds = map(float, sys.stdin.readline().split())
began, before = time.monotonic(), time.process_time()
more = False
while not more and (passed := time.monotonic() - began) < seconds:
    more = time.process_time() - before > 2 * share * passed + 0.1
print("more" if more else "no more", flush=True)
sys.stdin.read()
"""
"""Wants a processor for so many seconds, or until it has had twice its share."""
STOPPED_WITHIN = f"{CPUS} 1.5\n".encode()
MORE_WITHIN = b"0.04 20\n"
"""A share that a machine gives however busy it is; it is not asked for, so that nobody could hold it to that."""


class Seen(NamedTuple):
    """What a sandbox, and this machine, say of it."""

    ended: Outcomes
    report: Mapping[str, Any]
    uid: int
    users: set[int]
    """Whose process its first one is, as this machine has it."""
    limits: str
    """Of the same."""
    shares: bool
    """Whether a hog was held to its share of the processors."""
    most_processes: int


def refused(attack: str) -> Callable[[Seen], bool]:
    """Whether an attack ended as it must; where all of the sandbox was ended for memory, that was enforced."""

    def judge(seen: Seen) -> bool:
        word = seen.ended[attack][0]
        return word in table()[attack].refused or (word == "sandbox out_of_memory" and "memory" in attack)

    return judge


JUDGES: Mapping[str, Callable[[Seen], bool]] = {
    "network": refused("tcp_to_a_service_on_the_host_s_loopback"),
    "processes": refused("processes_of_the_host"),
    "ipc": refused("shared_memory_of_the_host"),
    "names": lambda seen: seen.report["hostname"] == "sandbox" != platform.node(),
    "within": refused("new_user_namespace"),
    "user": lambda seen: all(each == seen.uid or each in users.ids() for each in seen.users),
    "files": refused("file_of_the_host"),
    "root": refused("file_in_any_other_folder"),
    "inodes": lambda seen: {mount["path"]: mount["root"] for mount in seen.report["mounts"]}.get("/usr", "/") == "/",
    "sys": lambda seen: "/sys" not in {mount["path"] for mount in seen.report["mounts"]},
    "kernel": lambda seen: seen.report["kernel"] != platform.release(),
    "calls": lambda seen: seen.report["own_filters"]["netlink before"] == EINVAL,
    "calls-agent": lambda seen: seen.report["probes"] == ALL_CLOSED,
    "folders": refused("files_in_tmp_beyond_its_size"),
    "files-number": refused("empty_files_without_end"),
    "memory": refused("memory_file_beyond_the_limit"),
    "threads": refused("threads_without_end"),
    "processors": lambda seen: seen.shares,
    "open-files": refused("open_files_without_end"),
}
ATTACKS = [
    *("tcp_to_a_service_on_the_host_s_loopback", "processes_of_the_host", "shared_memory_of_the_host"),
    *("new_user_namespace", "file_of_the_host", "file_in_any_other_folder", "files_in_tmp_beyond_its_size"),
    *("open_files_without_end", "empty_files_without_end", "memory_file_beyond_the_limit", "threads_without_end"),
]
"""Threads are last: where nothing but a look at the sandbox counts them, it may end the sandbox when that attack is
over, and an attack after it would seem to be what was caught.
"""
ENDS = test_contract.test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended.__name__
"""The row "ends" is this test of the contract's, which each of the walls passes."""
PARTLY: Mapping[str, Callable[[Seen], bool]] = {
    "user": lambda _: os.geteuid() == 0 or users.absent() is None,
    "inodes": lambda _: no_layers(bubblewrap_program() or "") is None,
    "threads": lambda seen: f"Max processes {seen.most_processes} " in " ".join(seen.limits.split()),
}
"""When what holds partly has to hold."""


async def first_process(under: EngineUnderTest, container: Container) -> psutil.Process:
    if isinstance(under, Bubblewrap):
        found = next(each for each in under.found() if each.name == container.id)
        return psutil.Process(found.pid).children()[0]
    found_by_docker = await DockerEngine().inspect(container.id)
    assert found_by_docker is not None
    return psutil.Process(int(found_by_docker["State"]["Pid"]))


async def times_stopped(under: EngineUnderTest, container: Container) -> int:
    """Return how often this machine has stopped a sandbox for its share of the processors."""
    if not isinstance(under, Bubblewrap):
        found = await DockerEngine().request("GET", f"/containers/{container.id}/stats?stream=false&one-shot=true")
        return int(found["cpu_stats"]["throttling_data"]["throttled_periods"])
    return stopped_in_its_cgroup((await first_process(under, container)).pid, container.id)


def stopped_in_its_cgroup(pid: int, name: str) -> int:
    rows = Path(f"/proc/{pid}/cgroup").read_text(encoding="ascii").splitlines()
    said = [path for folder in cgroups.folders_of(rows, name) for path in Path(folder).glob("cpu.stat")]
    return int(dict(row.split() for row in said[0].read_text(encoding="ascii").splitlines())["nr_throttled"])


async def held_to_its_share(under: EngineUnderTest) -> bool:
    """Let a sandbox want a processor: it is stopped by a cgroup of its own, or it gets more than its share."""
    spec = under.spec(HOG)
    container = await under.make().start(replace(spec, limits=replace(spec.limits, cpus=CPUS)))
    try:
        await receive_line(container)
        await container.send(STOPPED_WITHIN if container.held else MORE_WITHIN)
        said = await receive_line(container)
        return await times_stopped(under, container) > 3 if container.held else said != b"more\n"
    finally:
        await container.kill()


async def look(under: EngineUnderTest, ended: Outcomes) -> Seen:
    spec = under.spec(REPORT, *report_sources())
    spinning = asyncio.create_task(held_to_its_share(under))
    container = await under.make().start(spec)
    try:
        report = json.loads(await receive_line(container))
        outside = await first_process(under, container)
        limits = Path(f"/proc/{outside.pid}/limits").read_text(encoding="ascii")  # noqa: ASYNC240 (the system's)
        users = set(outside.uids())
        return Seen(ended, report, spec.uid, users, limits, await spinning, spec.limits.pids)
    finally:
        await container.kill()


@pytest.mark.parametrize("name", COLUMNS)
def test_each_word_of_the_table_is_true(name: str, tmp_path: Path) -> None:
    under = BY_NAME[name]
    if name != (ONLY or name) or (under in of_plugins() and ONLY is None):
        pytest.skip("machines are emulated, and make test-qemu has nothing else")
    if reason := under.absent():
        pytest.skip(reason)
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        if each.stat().st_uid == os.geteuid():
            each.chmod(0o755)  # so that only the sandbox is in the way
    seen = asyncio.run(look(under, run(ATTACKS, COLUMNS[name] or name, None, tmp_path)))
    cells = enforced(all_walls()[list(COLUMNS).index(name)])
    expected = {
        code: PARTLY[code](seen) if cell.holds == "partly" else cell.holds == "yes" for code, cell in cells.items()
    }
    found = {code: judge(seen) for code, judge in JUDGES.items()}
    assert found | {"ends": ENDS not in under.lacks} == expected, seen.ended


def test_the_columns_are_the_walls() -> None:
    """But for Podman, which `python -m tests.other_dockers` starts."""
    assert [(wall.engine, wall.runtime) for wall in all_walls() if wall.engine != "podman"] == [
        (name.split("-")[0], runtime if runtime == "runsc" else "") for name, runtime in COLUMNS.items()
    ]
    assert {*JUDGES, "ends"} == ENFORCED.keys()
