"""`python -m benchmarks.trajectories FOLDER`: replay sessions of agents here, and in plain containers of one image.

A session is `FOLDER/NAME.jsonl`, with an object `{"code": ...}` on each line, and the files of `FOLDER/NAME/`, if it is
there, which lie in the working folder first. A cell ends the same if the type of its error, what it printed and the
text of what it showed are the same. A stock ipykernel runs every session twice: cells in which these two runs differ
(times, random numbers) are compared with nothing.
"""

from __future__ import annotations

import argparse
import base64
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from sandbox_kernel import Sandbox

from .serve import TOKEN, begun

CELL_SECONDS, SESSION_SECONDS = 120, 1800
MEMORY = "3G"
_CHANGING = re.compile(r"0x[0-9a-f]{6,}|ipykernel_\d+/\d+|\x1b\[[\d;]*m")
"""Addresses and temporary files, which no two runs have the same, and colours."""
_QUOTED = re.compile(r"\A'(.*)'\Z", re.DOTALL)
"""A string as a result, which E2B's services give without its quotes."""
PLAIN = r"""
import base64, json, os, sys
from jupyter_client.manager import start_new_kernel

asked = json.load(sys.stdin)
for name, content in asked["files"].items():
    os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
    open(name, "wb").write(base64.b64decode(content))
manager, client = start_new_kernel(extra_arguments=["--HistoryManager.enabled=False"])
for code in asked["cells"]:
    printed, shown, errors = [], [], []
    def hear(message):
        kind, content = message["msg_type"], message["content"]
        if kind == "stream" and content["name"] == "stdout":
            printed.append(content["text"])
        elif kind in ("execute_result", "display_data"):
            shown.append(content["data"].get("text/plain"))
        elif kind == "error":
            errors.append(content["ename"])
    client.execute_interactive(code, output_hook=hear, allow_stdin=False, timeout=float(sys.argv[1]))
    print(json.dumps(["".join(printed), shown, "".join(errors)]), flush=True)
manager.shutdown_kernel(now=True)
"""
"""What runs in the plain container, beside a stock kernel."""


class Session(NamedTuple):
    name: str
    cells: list[str]
    files: dict[str, bytes]


class Ending(NamedTuple):
    """How a cell ended."""

    printed: str
    shown: tuple[str, ...]
    error: str


Way = Callable[[Session], list[Ending]]


def read(path: Path) -> Session:
    cells = [json.loads(line)["code"] for line in path.read_text(encoding="utf-8").splitlines()]
    folder = path.with_suffix("")
    found = (one for one in folder.rglob("*") if one.is_file())
    return Session(path.stem, cells, {str(one.relative_to(folder)): one.read_bytes() for one in found})


def ending(printed: str, shown: Sequence[str | None], error: str) -> Ending:
    texts = (_QUOTED.sub(r"\1", _CHANGING.sub("", text or "")) for text in shown)
    return Ending(_CHANGING.sub("", printed), tuple(texts), error)


def plain(image: str, session: Session) -> list[Ending]:
    """Run a session in a plain container with a stock kernel."""
    files = {name: base64.b64encode(content).decode() for name, content in session.files.items()}
    command = ["docker", "run", "--rm", "--interactive", "--network", "none", "--user", "1000:1000", "--memory", MEMORY]
    command += ["--tmpfs", "/mnt/data:mode=1777,exec", "--workdir", "/mnt/data", "--env", "HOME=/tmp", image]
    command += ["python3", "-c", PLAIN, str(CELL_SECONDS)]
    asked = json.dumps({"files": files, "cells": session.cells}).encode()
    said = subprocess.run(command, input=asked, stdout=subprocess.PIPE, timeout=SESSION_SECONDS, check=False)
    return [ending(*json.loads(line)) for line in said.stdout.splitlines()]


def in_a_sandbox(made: Callable[[], Any], session: Session) -> list[Ending]:
    """Run a session in a sandbox of the SDK, or of E2B's client, which has the same methods."""
    found = []
    with made() as sandbox:
        for name, content in session.files.items():
            sandbox.files.write(name, content)
        for done in map(sandbox.run_code, session.cells):
            error = "" if done.error is None else done.error.name
            found.append(ending("".join(done.logs.stdout), [each.text for each in done.results], error))
    return found


def compare(options: argparse.Namespace, ways: dict[str, Way]) -> None:
    """Run sessions in each way, and print the share of cells that end as in the plain container."""
    paths = sorted(options.folder.glob("*.jsonl"))
    cells = failed = steady = 0
    same = dict.fromkeys(ways, 0)

    def run(session: Session) -> tuple[Session, list[list[Ending]]]:
        return session, [way(session) for way in (stock, stock, *ways.values())]

    def stock(session: Session) -> list[Ending]:
        return plain(options.image, session)

    with ThreadPoolExecutor(options.workers) as pool:
        for session, (first, second, *others) in pool.map(run, map(read, paths)):
            cells += len(session.cells)
            failed += sum(bool(one.error) for one in first)
            agreed = [one == other for one, other in zip(first, second, strict=False)]
            steady += sum(agreed)
            for name, found in zip(ways, others, strict=True):
                for code, one, ours, agree in zip(session.cells, first, found, agreed, strict=False):
                    same[name] += agree and one == ours
                    if agree and one != ours:
                        print(f"--- {name}: {session.name}\n{code[:500]}\nplain: {one}\nhere:  {ours}", flush=True)
    print(f"{len(paths)} sessions, {cells} cells, of which {failed} fail in the plain container")
    print(f"{steady} end the same in two plain containers, and are compared")
    for name, count in same.items():
        print(f"{name}: {count} of {steady} end the same ({count / max(1, steady):.2%})")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trajectories", description=__doc__, allow_abbrev=False)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--image", default="sandbox-kernel:data")
    parser.add_argument("--e2b", action="store_true", help="through `serve` and E2B's client, which is installed, too")
    parser.add_argument("--workers", type=int, default=2, help="sessions at once")
    options = parser.parse_args(arguments)

    def ours() -> Sandbox:
        return Sandbox(image=options.image, memory=MEMORY, cell_timeout=CELL_SECONDS)

    ways: dict[str, Way] = {"SDK": lambda session: in_a_sandbox(ours, session)}
    if not options.e2b:
        compare(options, ways)
        return 0
    from e2b_code_interpreter import Sandbox as Hosted  # type: ignore[import-not-found,unused-ignore]

    with tempfile.TemporaryDirectory(prefix="benchmarks-") as folder:
        tokens = Path(folder, "tokens")
        tokens.touch(0o600)
        tokens.write_text(f"me {TOKEN}\n", encoding="utf-8")
        command = ["serve", "--port", "0", "--engine", "docker", "--token-file", str(tokens), "--image", options.image]
        server, line = begun([*command, "--memory", MEMORY, "--cell-timeout", str(CELL_SECONDS)], "http")
        url = f"http://127.0.0.1:{line.strip().rpartition(':')[2]}"

        def hosted() -> Any:
            return Hosted.create(timeout=SESSION_SECONDS, api_url=url, sandbox_url=url, api_key=TOKEN)

        try:
            compare(options, ways | {"E2B's client": lambda session: in_a_sandbox(hosted, session)})
        finally:
            server.terminate()
            server.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
