"""`python -m benchmarks.crash`: how soon nothing is left of the sandboxes of a process that is killed.

The same number of empty containers, whose one process sleeps, is killed in turn with them: that is what the engine
itself needs to take containers away. It fails if anything is left a minute later.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import signal
import statistics
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, closing, suppress
from typing import NamedTuple

import docker
import psutil  # type: ignore[import-untyped]

from sandbox_kernel.core.model import Settings

from .memory import containers_of

MAX_SECONDS = 60.0
"""How long anything here may take."""

CALLER = """
import asyncio, json, sys
from sandbox_kernel import AsyncSandbox
async def main(count, settings):
    sandboxes = await asyncio.gather(*(AsyncSandbox.create(**settings) for _ in range(count)))
    await asyncio.gather(*(sandbox.run_code("import time") for sandbox in sandboxes))
    cells = [asyncio.create_task(sandbox.run_code("time.sleep(600)")) for sandbox in sandboxes]
    print("ready", flush=True)
    await asyncio.gather(*cells)
asyncio.run(main(int(sys.argv[1]), json.loads(sys.argv[2])))
"""


class Sample(NamedTuple):
    """Seconds from the kill until the end of all processes, and until the engine knows no container any more."""

    processes: float
    containers: float


class Watch:
    """Sees containers and their processes go, at no cost to the engine: asking it for a list takes 10 ms of a core."""

    def __init__(self, engine: docker.DockerClient, ids: set[str]) -> None:
        self.gone = threading.Event()
        self.fds: list[int] = []
        for one in ids:
            first = psutil.Process(engine.api.inspect_container(one)["State"]["Pid"])
            self.fds += [os.pidfd_open(process.pid) for process in (first, *first.children(recursive=True))]
        self.events = engine.events(filters={"type": "container", "event": "destroy"}, decode=True)
        threading.Thread(target=self._listen, args=(set(ids),), daemon=True).start()

    def _listen(self, left: set[str]) -> None:
        for event in self.events:
            left.discard(event["id"])
            if not left:
                self.gone_at = time.monotonic()
                self.gone.set()
                return

    def wait(self, begin: float) -> Sample:
        """Return the sample of a kill at `begin`. Raises `TimeoutError` if something is still there after a minute."""
        with selectors.DefaultSelector() as selector:
            for fd in self.fds:
                selector.register(fd, selectors.EVENT_READ)
            while selector.get_map():
                if not (ready := selector.select(max(0.0, begin + MAX_SECONDS - time.monotonic()))):
                    raise TimeoutError(f"{len(selector.get_map())} processes are left after {MAX_SECONDS:g} s")
                for key, _ in ready:
                    selector.unregister(key.fd)
        dead_at = time.monotonic()
        if not self.gone.wait(begin + MAX_SECONDS - time.monotonic()):
            raise TimeoutError(f"containers are left after {MAX_SECONDS:g} s")
        return Sample(dead_at - begin, self.gone_at - begin)

    def close(self) -> None:
        self.events.close()
        for fd in self.fds:
            os.close(fd)


def sandboxes(engine: docker.DockerClient, count: int, settings: dict[str, str]) -> Sample:
    """Kill a process with `count` sandboxes, each in the middle of a cell."""
    command = [sys.executable, "-c", CALLER, str(count), json.dumps(settings)]
    with ExitStack() as stack:
        caller = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        stack.callback(caller.kill)
        assert caller.stdout is not None
        if caller.stdout.readline() != "ready\n":
            raise RuntimeError("the sandboxes did not start")
        ids = {str(one.id) for one in containers_of({psutil.Process(caller.pid)})}
        return _killed(stack, engine, ids, count, [caller.pid])


def empty(engine: docker.DockerClient, count: int, image: str) -> Sample:
    """Kill the only processes of `count` containers without any setting of ours but that they have no network."""
    with ExitStack() as stack:
        ids, pids = set(), []
        for _ in range(count):
            one = engine.containers.run(
                image, entrypoint=["sleep", "600"], detach=True, auto_remove=True, network_mode="none"
            )
            ids.add(str(one.id))
            stack.callback(_remove, engine, str(one.id))
            pids.append(engine.api.inspect_container(one.id)["State"]["Pid"])
        return _killed(stack, engine, ids, count, pids)


def _killed(stack: ExitStack, engine: docker.DockerClient, ids: set[str], count: int, pids: list[int]) -> Sample:
    if len(ids) != count:
        raise RuntimeError(f"{len(ids)} containers run where {count} should")
    watch = Watch(engine, ids)
    stack.callback(watch.close)
    begin = time.monotonic()
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return watch.wait(begin)


def _remove(engine: docker.DockerClient, identity: str) -> None:
    with suppress(docker.errors.APIError):  # it is gone, or going
        engine.api.remove_container(identity, force=True)


def show(name: str, samples: list[Sample]) -> None:
    columns = zip(*samples, strict=True)
    cells = (f"{statistics.median(one):>8.2f}{f'{min(one):.2f}..{max(one):.2f}':>14}" for one in columns)
    print(f"{name:<24}" + "".join(cells))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash", description=__doc__, allow_abbrev=False)
    parser.add_argument("--sandboxes", type=int, default=50)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--memory", default="256M", help="of each sandbox")
    parser.add_argument("--image", default=Settings().image)
    parser.add_argument("--runtime")
    options = parser.parse_args(arguments)
    if options.sandboxes < 1 or options.repetitions < 1:
        parser.error("one sandbox and one repetition are the least")
    settings = {"memory": options.memory, "image": options.image, "runtime": options.runtime}
    ours, floor = [], []
    with closing(docker.from_env(timeout=MAX_SECONDS)) as engine:
        for _ in range(options.repetitions):
            ours.append(sandboxes(engine, options.sandboxes, settings))
            floor.append(empty(engine, options.sandboxes, options.image))
    print(f"{options.sandboxes} at once on {os.cpu_count()} cores; seconds from the kill, median and range\n")
    print(f"{'':<24}{'processes gone':>22}{'containers gone':>22}")
    show("sandboxes in a cell", ours)
    show("empty containers", floor)
    ratio = statistics.median(one.containers for one in ours) / statistics.median(one.containers for one in floor)
    print(f"\nratio of the medians until the containers are gone: {ratio:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
