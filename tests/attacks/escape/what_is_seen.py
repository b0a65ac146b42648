"""Run each attack in the kernel of a watched sandbox, and print what the monitor sees of it.

`python -m tests.attacks.escape.what_is_seen [SETTING=VALUE ...]`, on a machine that can lose a sandbox: the tables of
docs/monitor.md are made of it. It takes some twenty minutes.
"""

from __future__ import annotations

import json
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.plugins.verify.attack_program import LOAD, sources, table
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
"""In the kernel itself, where Python's own hook is; each attack is a process of its own, made without a program."""
HEARD_SECONDS = 1.5
"""How long the agent may keep what it has to tell, and a little more."""


@contextmanager
def watched(**settings: Any) -> Iterator[tuple[Sandbox, Path]]:
    """A sandbox whose calls are written into a file."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "calls.jsonl"
        with Sandbox(trace=str(trace), **settings) as sandbox:
            yield sandbox, trace


def seen(sandbox: Sandbox, trace: Path, names: Sequence[str], given: dict[str, Any]) -> set[tuple[str, str]]:
    """Run attacks, and return what was seen of them: calls, each with its target."""
    before = trace.stat().st_size
    with suppress(SandboxError):
        sandbox.run_code(CELL.format(load=LOAD, names=list(names), given={**given, "modules": sources()}))
    time.sleep(HEARD_SECONDS)
    with trace.open("rb") as file:
        file.seek(before)
        lines = [json.loads(line) for line in file]
    return {(line["call"], line.get("target", "")) for line in lines if line.get("call", "program") != "program"}


def main(words: Sequence[str]) -> None:
    settings = dict(word.split("=", 1) for word in words)
    names = list(table())
    with tempfile.TemporaryDirectory() as folder, laid(secrets.token_hex(8), Path(folder)) as bait:
        while names:
            with suppress(SandboxError), watched(**settings) as (sandbox, trace):
                limits = {"limits": {}, "seconds": 5, "udp": 9}
                while names:
                    name = names.pop(0)
                    found = seen(sandbox, trace, [name], {**bait.given, **limits})
                    print(json.dumps([name, sorted(found)]), flush=True)
                    if not sandbox.is_alive:
                        break


if __name__ == "__main__":
    main(sys.argv[1:])
