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
from sandbox_kernel.engines.bubblewrap.finding import sandboxes
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.setup import enforced
from sandbox_kernel.setup.walls import WALLS
from sandbox_kernel.verify.shipped import table
from tests.attacks.escape.tools import Outcomes, run
from tests.container.engines import test_contract
from tests.support.engines import REPORT, UNDER_TEST, Bubblewrap, EngineUnderTest, receive_line, report_sources

COLUMNS = {"docker": "runc", "docker-gvisor": "runsc", "bubblewrap": "", "bubblewrap-best-effort": ""}
"""For each wall, in the order of the table, what it is called among those under test, and its runtime there."""
BY_NAME = {one.name: one for one in UNDER_TEST}

CPUS = 0.3
SPIN_SECONDS = 1.5
SPUN_SECONDS = 0.7
"""More of a processor than its share in that time, and less than what so many get on a machine that is busy."""
SPIN = """
import os, sys, time
print("up", flush=True)
until = time.monotonic() + float(sys.stdin.readline())
for _ in range(8):
    if not os.fork():
        while time.monotonic() < until: pass
        os._exit(0)
for _ in range(8): os.wait()
print(sum(os.times()[2:4]), flush=True)
"""


class Seen(NamedTuple):
    """What a sandbox, and this machine, say of it."""

    ended: Outcomes
    report: Mapping[str, Any]
    uid: int
    users: set[int]
    """Whose process its first one is, as this machine has it."""
    limits: str
    """Of the same."""
    processor_seconds: float
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
    "user": lambda seen: seen.users == {seen.uid},
    "files": refused("file_of_the_host"),
    "root": refused("file_in_any_other_folder"),
    "sys": lambda seen: "/sys" not in {mount["path"] for mount in seen.report["mounts"]},
    "kernel": lambda seen: seen.report["kernel"] != platform.release(),
    "calls": lambda seen: seen.report["own_filters"]["netlink before"] == EINVAL,
    "calls-agent": lambda seen: seen.report["probes"] == ALL_CLOSED,
    "folders": refused("files_in_tmp_beyond_its_size"),
    "files-number": refused("empty_files_without_end"),
    "memory": refused("memory_file_beyond_the_limit"),
    "threads": refused("threads_without_end"),
    "processors": lambda seen: seen.processor_seconds < SPUN_SECONDS,
    "open-files": refused("open_files_without_end"),
}
ATTACKS = [
    *("tcp_to_a_service_on_the_host_s_loopback", "processes_of_the_host", "shared_memory_of_the_host"),
    *("new_user_namespace", "file_of_the_host", "file_in_any_other_folder", "files_in_tmp_beyond_its_size"),
    *("open_files_without_end", "empty_files_without_end", "threads_without_end", "memory_file_beyond_the_limit"),
]
ENDS = test_contract.test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended.__name__
"""The row "ends" is this test of the contract's, which each of the walls passes."""
PARTLY: Mapping[str, Callable[[Seen], bool]] = {
    "user": lambda _: os.geteuid() == 0,
    "threads": lambda seen: f"Max processes {seen.most_processes} " in " ".join(seen.limits.split()),
}
"""When what holds partly has to hold."""


async def first_process(under: EngineUnderTest, container: Container) -> psutil.Process:
    if isinstance(under, Bubblewrap):
        found = next(each for each in sandboxes() if each.name == container.id)
        return psutil.Process(found.pid).children()[0]
    found_by_docker = await DockerEngine().inspect(container.id)
    assert found_by_docker is not None
    return psutil.Process(int(found_by_docker["State"]["Pid"]))


async def used(container: Container) -> float:
    """Return the seconds of processors that this machine has counted for a container of Docker's."""
    found = await DockerEngine().request("GET", f"/containers/{container.id}/stats?stream=false&one-shot=true")
    return float(found["cpu_stats"]["cpu_usage"]["total_usage"]) / 1e9


async def spun(under: EngineUnderTest) -> float:
    """Return the seconds of processors that a sandbox got which wants all of them, and may have a share."""
    spec = under.spec(SPIN)
    container = await under.make().start(replace(spec, limits=replace(spec.limits, cpus=CPUS)))
    try:
        await receive_line(container)
        docker = not isinstance(under, Bubblewrap)
        before = await used(container) if docker else 0.0
        await container.send(b"%f\n" % SPIN_SECONDS)
        said = float(await receive_line(container))
        return await used(container) - before if docker else said
    finally:
        await container.kill()


async def look(under: EngineUnderTest, ended: Outcomes) -> Seen:
    spec = under.spec(REPORT, *report_sources())
    spinning = asyncio.create_task(spun(under))
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
    if reason := under.absent():
        pytest.skip(reason)
    for each in (tmp_path, *list(tmp_path.parents)[:3]):
        if each.stat().st_uid == os.geteuid():
            each.chmod(0o755)  # so that only the sandbox is in the way
    seen = asyncio.run(look(under, run(ATTACKS, COLUMNS[name] or name, None, tmp_path)))
    cells = enforced.of(list(COLUMNS).index(name))
    expected = {
        code: PARTLY[code](seen) if cell.holds == "partly" else cell.holds == "yes" for code, cell in cells.items()
    }
    found = {code: judge(seen) for code, judge in JUDGES.items()}
    assert found | {"ends": ENDS not in under.lacks} == expected, seen.ended


def test_the_columns_are_the_walls() -> None:
    assert [(wall.engine, wall.runtime) for wall in WALLS] == [
        (name.split("-")[0], runtime if runtime == "runsc" else "") for name, runtime in COLUMNS.items()
    ]
    assert {*JUDGES, "ends"} == {row.code for row in enforced.ROWS}
