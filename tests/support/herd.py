"""Several processes that write one audit, some of which are killed at random: what they were told is in it, is.

A program of one thread, so that it may fork: `python -m tests.support.herd '{"path": ...}'` prints what became of it.
"""

from __future__ import annotations

import json
import os
import random
import select
import signal
import sys
import time
from typing import Any

from sandbox_kernel.plugins.record.audit import Audit

SIZE = 8
MAX_WAITING = 200


def write(path: str, key: str, *, session: str, numbers: range, limit: int, told: int) -> None:
    """Write lines of one session, and tell of each line that is in the file."""
    audit = Audit(path, session=session, key=key, limit_bytes=limit)
    for number in numbers:
        audit("cell", status="ok", number=number, text="x" * (number % 900))
        while audit.waiting > MAX_WAITING:  # a session makes no lines as fast as this; its audit would lose some
            select.select([], [], [], 0.002)
            audit("file", op="none")
        os.write(told, max(0, number + 1 - audit.waiting).to_bytes(SIZE, "big"))
    audit.close()
    os.write(told, (numbers.stop if not audit.lost else 0).to_bytes(SIZE, "big"))


class Herd:
    """See the module."""

    def __init__(self, path: str, key: str, *, workers: int, lines: int, kills: int, seed: int, limit: int) -> None:
        self._path, self._key, self._limit = path, key, limit
        self._random = random.Random(seed)
        self._shares = [lines // workers] * workers
        self._kills_at = sorted(self._random.randrange(lines * 4 // 5) for _ in range(kills))
        self._running: dict[int, tuple[int, str, int]] = {}
        """By the pipe of a process: its id, its session, and which share it writes."""
        self.acknowledged: dict[str, int] = {}
        """How many lines of a session are in the file, as its process was told."""
        self.killed: list[str] = []
        self._shot: set[int] = set()

    def run(self) -> None:
        for share in range(len(self._shares)):
            self._start(share)
        done = 0
        while self._running:
            for pipe in select.select(list(self._running), [], [])[0]:
                pid, session, share = self._running[pipe]
                data = os.read(pipe, SIZE * 512)
                if data:
                    last = int.from_bytes(data[-SIZE:], "big")
                    done += max(0, last - self.acknowledged.get(session, 0))
                    self.acknowledged[session] = max(last, self.acknowledged.get(session, 0))
                    continue
                os.close(pipe)
                del self._running[pipe]
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                if status == 0 and pid in self._shot:  # too late for this one
                    self._kills_at.insert(0, done)
                elif status != 0:
                    self.killed.append(session)
                    self._shares[share] -= self.acknowledged.get(session, 0)
                    self._start(share)
            alive = [pid for pid, _, _ in self._running.values() if pid not in self._shot]
            if alive and self._kills_at and done >= self._kills_at[0]:
                self._kills_at.pop(0)
                pid = self._random.choice(alive)
                self._shot.add(pid)
                os.kill(pid, signal.SIGKILL)

    def _start(self, share: int) -> None:
        session = f"s{share}x{len(self.acknowledged)}"
        self.acknowledged[session] = 0
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                numbers = range(max(1, self._shares[share]))
                write(self._path, self._key, session=session, numbers=numbers, limit=self._limit, told=theirs)
                code = 0
            finally:
                os._exit(code)
        os.close(theirs)
        self._running[ours] = pid, session, share


def main(given: dict[str, Any]) -> None:
    herd, began = Herd(**given), time.monotonic()
    herd.run()
    seconds = time.monotonic() - began
    print(json.dumps({"acknowledged": herd.acknowledged, "killed": herd.killed, "seconds": seconds}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
