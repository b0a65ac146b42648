"""The attacks as a program: their sources for the sandbox, and their table for the host.

What the host tells them, and what they say, are lines of JSON; what they say is the sandbox's own word.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from .inside import kit

MODULES = ("kit", "on_agent", "on_network", "on_kernel", "on_rights", "on_files", "on_limits")

LOAD = """
import json, sys, types

def load(modules):
    package = sys.modules["attacks"] = types.ModuleType("attacks")
    package.__path__ = []
    for name, source in modules:
        module = sys.modules["attacks." + name] = types.ModuleType("attacks." + name)
        module.__package__ = "attacks"
        exec(compile(source, name + ".py", "exec", dont_inherit=True), module.__dict__)
    return sys.modules["attacks.kit"]
"""
"""Defines a function that makes the attacks' modules from their sources, in the sandbox."""

PROGRAM = f"""{LOAD}
given = json.loads(sys.stdin.readline())
kit = load(given["modules"])
kit.GIVEN.update(given)
kit.main(given["names"])
"""
"""Reads one line with modules and names, runs these attacks, and prints a line for each."""

_CELL = """
import os, subprocess, sys
def _attack():
    program, line = {program!r}, {line!r}
    given = [sys.executable, "-I", "-c", program]
    # What the kernel of the cells was handed is handed on: the attacks look for it.
    with subprocess.Popen(
        given, stdin=-1, stdout=-1, stderr=subprocess.STDOUT, text=True, close_fds=False
    ) as running:
        running.stdin.write(line + "\\n")
        running.stdin.close()
        for said in running.stdout:
            print(said, end="", flush=True)
_attack()
"""


@cache
def sources() -> list[tuple[str, str]]:
    """Return the modules in the order in which they import each other."""
    folder = Path(__file__).with_name("inside")
    return [(name, (folder / f"{name}.py").read_text(encoding="utf-8")) for name in MODULES]


@cache
def table() -> Mapping[str, kit.Attack]:
    """Return all attacks, by name."""
    for name in MODULES:
        importlib.import_module(f"{__package__}.inside.{name}")
    return kit.ATTACKS


def cell(names: Sequence[str], given: Mapping[str, Any]) -> str:
    """Return the code of a cell that runs these attacks and prints how each ended."""
    line = json.dumps({**given, "modules": sources(), "names": list(names)})
    return _CELL.format(program=PROGRAM, line=line)


def heard(text: str, names: Sequence[str]) -> dict[str, tuple[str, str]]:
    """Return how each attack ended, as the sandbox says: a word, and what it says besides.

    Any text is read: what is no answer to a question is left out, and of several the first counts.
    """
    found: dict[str, tuple[str, str]] = {}
    for line in text.splitlines():
        try:
            said = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if not isinstance(said, list) or len(said) != 3 or not all(isinstance(each, str) for each in said):
            continue
        name, word, rest = said
        if name in names:
            found.setdefault(name, (word[:40], rest[:300]))
    return found
