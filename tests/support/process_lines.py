"""What a look at processes shows of a sandbox's: short words that say what each is, and nothing packed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

import psutil

MAX_LINE = 300
PACKED = re.compile(r"[A-Za-z0-9+/=_-]{100,}")
AGENT = ["sandbox-kernel", "agent"]
INSIDE = """
import json, os
def words(pid):
    with open(f"/proc/{pid}/cmdline") as file:
        return file.read().split("\\0")[:-1]
print(json.dumps([words(name) for name in os.listdir("/proc") if name.isdigit()]))
"""
END = "import os; os._exit(3)"


def outside(folder: str) -> list[list[str]]:
    """Return what the machine shows of a kernel with this folder, and of the agent that is its parent."""
    there = psutil.process_iter(["cmdline"])
    found = [one for one in there if any(folder in word for word in one.info["cmdline"] or ())]
    return [one.cmdline() for process in found for one in (process, *process.parents()[:1])]


def check(lines: Iterable[list[str]]) -> None:
    for line in lines:
        assert len(" ".join(line)) <= MAX_LINE, line
        assert not PACKED.search(" ".join(line)), line


async def check_kernels(sandbox: Any) -> None:
    """Look at the first kernel of a sandbox and the next one, from inside and from outside."""
    seen = set()
    for number in (1, 2):
        inside = json.loads("".join((await sandbox.run_code(INSIDE)).logs.stdout))
        check(inside)
        (agent,) = (line for line in inside if line[-2:] == AGENT)
        (kernel,) = (line for line in inside if "-f" in line)
        folder = kernel[kernel.index("-f") + 1].rpartition("/")[0]
        assert f"/k{number}-" in folder
        assert kernel[1] == f"{folder}/kernel.py"
        there = outside(folder)
        check(there)
        assert {tuple(agent), tuple(kernel)} <= set(map(tuple, there))
        seen.add(folder)
        assert (await sandbox.run_code(END)).error is not None
    assert len(seen) == 2
