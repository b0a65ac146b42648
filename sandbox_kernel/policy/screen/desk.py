"""What the parts of the reader share while they read one cell: names, findings, loops they are in, and a bound on work.

Knows no syntax. A `State` is what is carried along to the next cell.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import NamedTuple

from .notes import Notes
from .rules.rule import words
from .shell import ShellReader
from .value import UNKNOWN, Value, weight

MOST_STEPS = 40_000
"""Parts of the syntax tree that are looked at for one cell."""
OF_A_STEP = 32
"""Characters or items of a value that count as one such part, whenever something looks through them."""
MOST_NAMES = 3000
"""Names that are carried from cell to cell."""
MOST_CARRIED = 4096
"""Characters of a constant that is carried."""

MODULES = frozenset(
    words(
        "os sys subprocess socket shutil requests urllib ctypes pickle base64 builtins importlib platform "
        "pathlib glob json marshal codecs zlib pty signal threading multiprocessing asyncio time math random "
        "re smtplib ftplib paramiko psutil tempfile http itertools functools operator types gc inspect mmap "
        "resource yaml hashlib getpass scapy posix nt runpy code atexit binascii ssl select struct winreg "
        "docker boto3 httpx aiohttp pynput pyautogui telnetlib dill"
    )
)
"""Modules that a name means where nothing else is known of it."""
SHORT = {"np": "numpy", "pd": "pandas", "plt": "matplotlib.pyplot", "tf": "tensorflow", "sp": "subprocess"}
_BUILTINS = frozenset(dir(builtins)) | {"execfile", "unichr", "reload", "raw_input"}


class TooIntricateError(Exception):
    """A cell has more in it than is looked at."""


class State:
    """What is known of a session's names and files after the cells that ran; bounded."""

    def __init__(self) -> None:
        self.names: dict[str, Value] = {}
        self.inputs: dict[str, None] = {}
        """Paths that were read as data."""

    def learn(self, names: dict[str, Value]) -> None:
        """Take over the names that a cell left."""
        for name, value in names.items():
            large = isinstance(value.const, str | bytes | list | tuple | dict) and len(value.const) > MOST_CARRIED
            self.names.pop(name, None)
            self.names[name] = Value(value.ref, taints=value.taints) if large else value
        while len(self.names) > MOST_NAMES:
            plain = next((name for name, value in self.names.items() if value.ref is None and not value.taints), None)
            del self.names[plain if plain is not None else next(iter(self.names))]

    def read(self, path: str) -> None:
        self.inputs[path[:1000]] = None
        while len(self.inputs) > MOST_NAMES:
            del self.inputs[next(iter(self.inputs))]


class Desk(NamedTuple):
    """The shared things; each is changed by whoever has it."""

    notes: Notes
    state: State
    scopes: list[dict[str, Value]]
    shell: ShellReader
    python: Callable[[str, int], None]
    """Reads code that is given as a text, which begins on a line."""
    flags: set[str]
    """What was seen anywhere in the cell, for what only tells together."""
    loops: list[float]
    """How often each loop runs around what is read now; infinity for one without an end."""
    steps: list[int]
    reads: dict[str, Value | None]
    """What was asked of the state, so that a cell that comes again is known by the same answers."""

    def step(self) -> None:
        """Count one step. Raises `TooIntricateError`."""
        self.steps[0] += 1
        if self.steps[0] > MOST_STEPS:
            raise TooIntricateError

    def weigh(self, *values: Value) -> None:
        """Count what it takes to read through values, a step for some characters. Raises `TooIntricateError`."""
        for value in values:
            if value.known:
                self.steps[0] += weight(value.const) // OF_A_STEP
            elif value.text is not None:
                self.steps[0] += len(value.text) // OF_A_STEP
        if self.steps[0] > MOST_STEPS:
            raise TooIntricateError

    @property
    def times(self) -> float:
        """How often what is read now would run."""
        found = 1.0
        for count in self.loops:
            found *= count
        return found

    def name(self, name: str) -> Value:
        """Return what a name means here."""
        for scope in reversed(self.scopes):
            found: Value | None = scope.get(name)
            if found is not None:
                return found
        known = self.state.names.get(name)
        self.reads[name] = known
        if known is not None:
            return known
        if name in _BUILTINS:
            return Value(ref=f"builtins.{name}")
        if name in MODULES:
            return Value(ref=name)
        if name == "__builtins__":
            return Value(ref="builtins")
        if name == "get_ipython":
            return Value(ref=name)
        return Value(ref=SHORT[name]) if name in SHORT else UNKNOWN

    def assign(self, name: str, value: Value) -> None:
        self.scopes[-1][name] = value
