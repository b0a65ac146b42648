"""Run each attack in the kernel of a watched sandbox, and print what the monitor sees of it.

`python -m tests.attacks.escape.what_is_seen [SETTING=VALUE ...]`, on a machine that can lose a sandbox: the tables of
docs/monitor.md are made of it. It takes some eight minutes. A line is the attack, how it ended, and what was seen.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.plugins.verify.attack_program import LOAD, heard, sources, table
from sandbox_kernel.plugins.verify.canaries import laid

CELL = """
def _attack(names, given):
    import json, os
    scope = {{}}
    exec({load!r}, scope)
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(read)
            kit = scope["load"](given["modules"])
            kit.GIVEN.update(given)
            kit._before.update(kit.entries())
            there = filter(kit.is_open, range(os.sysconf("SC_OPEN_MAX")))
            kit.GIVEN["open files"] = [number for number in there if os.get_inheritable(number)]
            for name in names:
                os.write(write, (json.dumps([name, *kit.apart(kit.ATTACKS[name].run)]) + chr(10)).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as said:
        print(said.read(), end="")
    os.waitpid(child, 0)
_attack({names!r}, {given!r})
"""
"""In the kernel itself, where Python's own hook is; each attack is a process of its own, made without a program.

Of the kernel's own descriptors none would be handed on to a program, so the host's are looked for among the others.
"""
HEARD_SECONDS = 1.5
"""How long the agent may keep what it has to tell, and a little more."""
KINDS = {"secret": "`secret-sought`", "connect": "a connection, for `port-scan`", "call": "`escape-tried`"}
"""What a line of the trace counts for, by its call; any other call is one that was refused."""
ORDER = (KINDS["call"], KINDS["secret"], KINDS["connect"])
"""An attack that is seen as several is in the first of these rows."""
UNSEEN = "unseen"
LOST = "the sandbox was lost"
STARTS = 3
"""Starts in a row that may fail: more of them say that the engine cannot serve, rather than what an attack did."""


@contextmanager
def watched(**settings: Any) -> Iterator[tuple[Sandbox, Path]]:
    """A sandbox whose calls are written into a file."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "calls.jsonl"
        with Sandbox(trace=str(trace), **settings) as sandbox:
            yield sandbox, trace


def tried(sandbox: Sandbox, trace: Path, name: str, given: dict[str, Any]) -> tuple[str, set[tuple[str, str]]]:
    """Run an attack; return how it ended, in a word, and what was seen of it: calls, each with its target."""
    before = trace.stat().st_size
    try:
        told = {"limits": asdict(sandbox.settings.limits), **given, "modules": sources()}
        done = sandbox.run_code(CELL.format(load=LOAD, names=[name], given=told))
    except SandboxError as error:
        end = f"{LOST}: {error.name}"
    else:
        said = heard("".join(done.logs.stdout), [name])
        end = said[name][0] if said else f"no word: {done.error.name if done.error else 'the cell ended as usual'}"
    time.sleep(HEARD_SECONDS)
    with trace.open("rb") as file:
        file.seek(before)
        lines = [json.loads(line) for line in file]
    return end, {(line["call"], line.get("target", "")) for line in lines if line.get("call", "program") != "program"}


def rows(found: Mapping[str, Collection[str]]) -> Iterator[str]:
    """Yield the rows of the page's table: the attacks by the first of the kinds that they were seen as."""
    first: dict[str, str] = {}
    for name, calls in found.items():
        kinds = {KINDS.get(call, KINDS["call"]) for call in calls}
        first[name] = next((kind for kind in ORDER if kind in kinds), UNSEEN)
    for kind in (*ORDER, UNSEEN):
        yield f"| {kind} | {', '.join(f'`{name}`' for name in first if first[name] == kind)} |"


def main(words: Sequence[str]) -> None:
    # One that hangs is ended by its alarm after `seconds`; where even that does not help, by the clock of its cell.
    usual = {"cell_timeout": 60, "memory": "512M"}
    settings: dict[str, Any] = {**usual, **dict(word.split("=", 1) for word in words)}
    attacks = table()
    names = list(attacks)
    found: dict[str, set[str]] = {}
    others: list[str] = []
    unstarted = 0
    with tempfile.TemporaryDirectory() as folder, laid(secrets.token_hex(8), Path(folder)) as bait:
        given = {**bait.given, "seconds": 20, "udp": 9}
        while len(found) < len(names):
            started = False
            try:
                with watched(**settings) as (sandbox, trace):
                    started, unstarted = True, 0
                    for name in names[len(found) :]:
                        end, calls = tried(sandbox, trace, name, given)
                        found[name] = {call for call, _ in calls}
                        if end not in attacks[name].refused:
                            others.append(f"{name} ({end})")
                        print(json.dumps([name, end, sorted(calls)]), flush=True)
                        if not sandbox.is_alive:
                            print("the sandbox is lost; the next attack has a new one", file=sys.stderr, flush=True)
                            break
            except SandboxError as error:
                print(f"a sandbox {'ended' if started else 'did not start'}: {error}", file=sys.stderr, flush=True)
                unstarted += not started
                if unstarted == STARTS:
                    raise
    print(*rows(found), f"ended otherwise than with Docker and runc: {', '.join(others) or 'none'}", sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:])
