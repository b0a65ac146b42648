"""The reader of a page: runs its lines and its Python, from a file of them, in the order in which they are printed.

It runs as a program of the reader's environment (`python -c`), with nothing but the standard library.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SECONDS = 120.0
"""For a line that goes on, until it has printed that it is ready."""


def main(given: str) -> None:
    """Do the steps of a page, on an event loop if its Python awaits."""
    page = json.loads(Path(given).read_text(encoding="utf-8"))
    if page["await"]:
        asyncio.run(done(page))
    else:
        with contextlib.suppress(StopIteration):
            done(page).send(None)


async def done(page: dict[str, Any]) -> None:
    """Do the steps. Each is a line number, a kind and a text; one that goes on has a name and what it prints."""
    names, servers = {"__name__": "__main__"}, dict[str, "subprocess.Popen[bytes]"]()
    flags = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT if page["await"] else 0
    try:
        for line, kind, source, server, ready in page["steps"]:
            print(f"--- {page['name']}:{line}: {source.partition(chr(10))[0]}", file=sys.stderr, flush=True)
            begin = time.monotonic()
            if kind == "python":
                code = compile("\n" * (line - 1) + source, page["name"], "exec", flags=flags, dont_inherit=True)
                work = eval(code, names)  # noqa: S307 (our own page)
                if inspect.isawaitable(work):
                    await work
            elif kind != "shell":
                written(kind, source)
            elif server:
                if server in servers:
                    ended(servers.pop(server))
                servers[server] = started(source, ready)
            else:
                typed(source)
            print(f"    {time.monotonic() - begin:.1f} s", file=sys.stderr, flush=True)
    finally:
        for one in reversed(servers.values()):
            ended(one)


def written(name: str, source: str) -> None:
    """Write a file that the page shows."""
    Path(name).write_text(source, encoding="utf-8")


def typed(source: str) -> None:
    """Run a line to its end, as in one shell: what it exports is there for what follows."""
    told = Path(os.environ["XDG_RUNTIME_DIR"], "exported")
    script = f"set -a -o pipefail\n{source}\nstatus=$?\nenv -0 > {told}\nexit $status"
    subprocess.run(["bash", "-c", script], stdin=subprocess.DEVNULL, check=True)
    found = dict(one.split("=", 1) for one in told.read_text(encoding="utf-8").split("\0") if one)
    os.environ.update(found)


def started(source: str, ready: str) -> subprocess.Popen[bytes]:
    """Start what goes on, as in a shell of its own, and wait until it says that it is ready."""
    log = Path(os.environ["XDG_RUNTIME_DIR"], "log")
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", "-c", source], stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
    end = time.monotonic() + SECONDS
    while not re.search(ready, said := log.read_text(encoding="utf-8", errors="replace")):
        if process.poll() is not None or time.monotonic() > end:
            ended(process)
            raise RuntimeError(f"it did not say {ready!r}: {said}")
        time.sleep(0.05)
    return process


def ended(process: subprocess.Popen[bytes]) -> None:
    """End what goes on, as with Ctrl-C or a closed window."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise


if __name__ == "__main__":
    main(sys.argv[1])
