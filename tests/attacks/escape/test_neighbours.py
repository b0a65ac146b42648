"""Two sandboxes side by side: neither finds, reaches, ends, or starves the other."""

from __future__ import annotations

import contextlib
import json
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.docker.container import DockerContainer
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.verify.attack_program import table
from tests.attacks.escape.alterations import host, network
from tests.attacks.escape.tools import run_once, spec_for
from tests.support.engines import SMALL, receive_line
from tests.support.patience import within

ATTACKS = table()
VICTIM = """
import ctypes, json, os, socket, sys, time
given = json.loads(sys.stdin.readline())
libc = ctypes.CDLL(None)
kept = [socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)]
kept[1].bind(given["abstract"])
kept[1].listen()
mode = 0o1666
shared = [libc.shmget(given["key"], 4096, mode), libc.msgget(given["key"], mode), libc.semget(given["key"], 1, mode)]
os.umask(0)
for folder in ("/dev/shm", "/tmp", "/mnt/data"):
    with open(folder + "/" + given["session"], "w") as file:
        file.write(given["session"])
print(json.dumps({"tcp": kept[0].getsockname()[1], "shared": shared}), flush=True)
for line in sys.stdin:
    begin, count = time.monotonic(), 0
    while time.monotonic() < begin + float(line):
        count += 1
    print(json.dumps(count), flush=True)
"""
REACHING = [
    "tcp_to_a_service_on_the_host_s_loopback",
    "abstract_socket_of_the_host",
    "list_of_abstract_sockets",
    "shared_memory_of_the_host",
    "message_queue_of_the_host",
    "semaphores_of_the_host",
    "shared_memory_file_of_the_host",
    "file_of_the_host",
    "processes_of_the_host",
]
"""The same attacks as on the host, now on the neighbour."""


@contextlib.asynccontextmanager
async def neighbour(runtime: str, ipc: str = "private", **fields: Any) -> AsyncIterator[tuple[DockerContainer, Any]]:
    """Start a sandbox that has everything a hostile neighbour may want."""
    spec = spec_for(runtime, ("python3", "-I", "-c", VICTIM), **fields)
    body = container_arguments(spec)
    body["HostConfig"]["IpcMode"] = ipc
    container = await DockerEngine().start_body(spec.session_id, body)
    try:
        session = spec.session_id
        given = {"abstract": f"\0{session}", "key": 0x5A000000 + secrets.randbelow(1 << 24), "session": session}
        given |= {"secret": session, "file": f"/mnt/data/{session}", "pid": 0}
        await container.send(json.dumps(given).encode() + b"\n")
        answer = json.loads(await receive_line(container))
        assert min(answer["shared"]) >= 0
        yield container, {**given, "tcp": answer["tcp"]}
    finally:
        await container.kill()


async def work(container: DockerContainer, seconds: float) -> int:
    """Let the neighbour work for a while; return how much it got done."""
    await container.send(b"%f\n" % seconds)
    async with within(30):
        return int(await receive_line(container))


@pytest.fixture(autouse=True)
async def _only_runtimes_that_are_there(request: pytest.FixtureRequest) -> None:
    runtime = request.getfixturevalue("runtime") if "runtime" in request.fixturenames else "runc"
    if runtime not in (await DockerEngine().info()).runtimes:
        pytest.skip(f"the engine has no runtime {runtime!r}")


both_runtimes = pytest.mark.parametrize("runtime", ["runc", "runsc"])


@both_runtimes
async def test_nothing_of_a_neighbour_is_found_or_reached(runtime: str) -> None:
    async with neighbour(runtime) as (container, given):
        ended = await run_once(REACHING, runtime, None, given)
        assert {name: said for name, said in ended.items() if said[0] not in ATTACKS[name].refused} == {}
        assert await work(container, 0.1) > 0


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        ("network", REACHING[:3]),
        ("ipc", REACHING[3:7]),
        ("pid", REACHING[8:]),
    ],
)
async def test_control_a_shared_namespace_shows_the_neighbour(kind: str, names: list[str]) -> None:
    async with neighbour("runc", "shareable") as (container, given):
        place = f"container:{container.id}"
        change = {"network": network(place), "ipc": host(IpcMode=place, ShmSize=0), "pid": host(PidMode=place)}[kind]

        def shared(body: dict[str, Any], given: dict[str, Any]) -> None:
            change(body, given)
            if kind == "network":
                del body["Hostname"], body["Domainname"]

        ended = await run_once(names, "runc", shared, given)
        assert {name: word for name, (word, _) in ended.items()} == dict.fromkeys(names, "worked"), ended


@both_runtimes
async def test_a_neighbour_out_of_memory_is_no_end_of_another(runtime: str) -> None:
    async with neighbour(runtime) as (container, given):
        ended = await run_once(["memory_beyond_the_limit"], runtime, None, given)
        assert ended["memory_beyond_the_limit"][0] in {"SIGKILL", "sandbox out_of_memory"}
        assert await work(container, 0.1) > 0


# --- the processor ----------------------------------------------------------------------------------------------------


async def stopped_and_used(container: DockerContainer) -> tuple[int, float]:
    """Return how often the machine has stopped a container for its quota, and the seconds of a processor it had."""
    found = await DockerEngine().request("GET", f"/containers/{container.id}/stats?stream=false&one-shot=true")
    given = found["cpu_stats"]
    return int(given["throttling_data"]["throttled_periods"]), given["cpu_usage"]["total_usage"] / 1e9


@both_runtimes
async def test_a_hog_is_stopped_at_its_share(runtime: str) -> None:
    """It leaves the rest to its neighbour. The counts are the machine's own, so that others' load does not matter."""
    async with neighbour(runtime, limits=replace(SMALL, cpus=0.1)) as (hog, _):
        (_, before), begin = await stopped_and_used(hog), time.monotonic()
        await work(hog, 2)
        stopped, used = await stopped_and_used(hog)
        assert stopped > 3
        assert used - before < 0.1 * (time.monotonic() - begin) + 0.1, "its share, and what one period may be early"


async def test_control_without_a_quota_a_hog_is_not_stopped() -> None:
    spec = spec_for("runc", ("python3", "-I", "-c", VICTIM))
    body = container_arguments(spec)
    body["HostConfig"]["CpuQuota"] = 0
    container = await DockerEngine().start_body(spec.session_id, body)
    try:
        await container.send(json.dumps({"abstract": "\0hog", "key": 0x5A000000, "session": "hog"}).encode() + b"\n")
        await receive_line(container)
        (_, before), begin = await stopped_and_used(container), time.monotonic()
        assert await work(container, 2) > 0
        stopped, used = await stopped_and_used(container)
        assert stopped == 0
        assert used - before > 0.1 * (time.monotonic() - begin) + 0.1
    finally:
        await container.kill()


# --- what the machine counts for each user ----------------------------------------------------------------------------

WATCHES = """
import ctypes, errno, json, os, sys
libc, count = ctypes.CDLL(None, use_errno=True), 0
while count < int(sys.argv[1]) and libc.inotify_init() >= 0:
    count += 1
print(json.dumps([count, ctypes.get_errno() if count < int(sys.argv[1]) else 0]), flush=True)
sys.stdin.read()
"""
EMFILE = 24


async def watches_beside_a_hog(uids: tuple[int, int]) -> tuple[list[int], list[int]]:
    """Return how many of the machine's inotify queues a hog got, and then another sandbox that wants one."""
    answers, engine = [], DockerEngine()
    async with contextlib.AsyncExitStack() as stack:
        for uid, wanted in zip(uids, ("600", "1"), strict=True):
            container = await engine.start(spec_for("runc", ("python3", "-I", "-c", WATCHES, wanted), uid=uid))
            stack.push_async_callback(container.kill)
            answers.append(json.loads(await receive_line(container)))
    return answers[0], answers[1]


async def test_what_the_machine_counts_for_a_user_is_not_taken_from_a_neighbour() -> None:
    """Each session has a user id of its own, and so queues, keys and pipe pages of its own."""
    hog, other = await watches_beside_a_hog((300_000_001, 300_000_002))
    assert hog[1] in {0, EMFILE}
    assert other == [1, 0]


async def test_control_with_one_user_for_both_the_hog_takes_it_all() -> None:
    hog, other = await watches_beside_a_hog((300_000_003, 300_000_003))
    if hog[1] != EMFILE:
        pytest.skip("this machine counts more queues for a user than a sandbox may open files")
    assert other == [0, EMFILE]
