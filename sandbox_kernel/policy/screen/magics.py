"""Magics of IPython: which of them run Python, which a shell, which another language, and which write a file.

A magic that is not known is taken for one that runs Python, for most do.
"""

from __future__ import annotations

import re

from ...core.screen_codes import ScreenCode
from .call import Call, opened
from .desk import Desk
from .value import SYSTEM, UNKNOWN, Value

_SHELLS = frozenset({"bash", "sh", "sx", "system", "!", "ksh", "zsh"})
_OTHERS = frozenset(
    {
        "perl",
        "ruby",
        "js",
        "javascript",
        "html",
        "HTML",
        "svg",
        "SVG",
        "latex",
        "markdown",
        "R",
        "julia",
        "sql",
        "octave",
    }
)
_PAGES = frozenset({"js", "javascript", "html", "HTML", "svg", "SVG"})
_TIMED = re.compile(r"^\s*+(?:-\w++(?:=\d++|\s++\w++)?\s++)*+")
_INSTALLS = frozenset({"pip", "conda", "mamba", "micromamba", "uv"})
_COMMANDS = frozenset(
    {"cat", "cp", "mv", "rm", "rmdir", "mkdir", "ls", "ll", "lf", "lx", "ldir", "lk", "less", "more", "man"}
)
_FILES = frozenset({"run", "load", "loadpy", "edit", "save", "writefile", "file", "pycat", "pfile"})


def line(desk: Desk, name: str, rest: str, where: int) -> Value:
    """Read a line magic."""
    name = name.lstrip("%")
    if name in _SHELLS:
        desk.shell.read(rest, where)
    elif name in _INSTALLS or name in _COMMANDS:
        desk.shell.read(f"{name} {rest}", where)
    elif name in ("timeit", "time", "prun", "memit", "mprun", "lprun", "debug"):
        desk.python(_TIMED.sub("", rest), where)
    elif name == "alias":
        desk.notes.text(f"alias {rest}", where)
        desk.shell.read(rest.partition(" ")[2].replace("%l", "").replace("%s", ""), where)
        desk.notes.add(ScreenCode.PROCESS_SHELL, where, rest)
    elif name in ("env", "set_env") and not rest.strip():
        desk.notes.add(ScreenCode.CREDENTIAL_ENVIRONMENT, where, "%env")
    elif name == "sc":
        desk.shell.read(rest.partition("=")[2] or rest, where)
    elif name in ("script", "perl", "ruby"):
        desk.notes.add(ScreenCode.PROCESS_INLINE_CODE, where, rest)
    else:
        desk.notes.text(rest, where)
        if name in _FILES:
            opened(desk, rest.strip().split(" ")[-1], "w" if name in ("save", "writefile") else "r", where)
        if name == "run" and re.search(r"https?://", rest):
            desk.notes.add(ScreenCode.PROCESS_DOWNLOAD_RUN, where, rest)
    return Value(taints=frozenset((SYSTEM,))) if name in _SHELLS | _COMMANDS else UNKNOWN


def cell(desk: Desk, name: str, rest: str, body: str, where: int) -> None:
    """Read a cell magic, whose body begins on line `where`."""
    if name in _SHELLS:
        desk.shell.read(body if not rest.strip().startswith("-c") else f"{rest}\n{body}", where)
        if name in ("sx", "system", "!") and rest.strip():
            desk.shell.read(rest, where - 1)
    elif name == "script":
        _script(desk, rest, body, where)
    elif name in ("writefile", "file"):
        path = rest.rsplit(" ", maxsplit=1)[-1].strip("'\"")
        opened(desk, path, "w", where - 1)
        desk.notes.text(path, where - 1)
        _kept(desk, path, body, where)
    elif name in _OTHERS:
        desk.notes.text(body, where)
        if name in _PAGES and re.search(
            r"(?i)<script|fetch\s*\(|XMLHttpRequest|document\.|kernel\.execute|eval\s*\(", body
        ):
            desk.notes.add(ScreenCode.ESCAPE_FRONT_END, where, name)
        elif name in ("perl", "ruby", "R", "julia", "octave"):
            desk.notes.add(ScreenCode.PROCESS_INLINE_CODE, where - 1, name)
            _other(desk, body, where)
    else:
        if name in ("timeit", "time", "prun", "capture") and rest.strip():
            desk.python(_TIMED.sub("", rest), where - 1)
        desk.python(body, where)


def _script(desk: Desk, rest: str, body: str, where: int) -> None:
    program = next((word for word in rest.split() if not word.startswith("-")), "").rpartition("/")[2]
    if re.match(r"(i?python|pypy)", program):
        desk.python(body, where)
    elif program in _SHELLS or program.endswith("sh"):
        desk.shell.read(body, where)
    else:
        desk.notes.add(ScreenCode.PROCESS_INLINE_CODE, where - 1, rest)
        desk.shell.read(rest, where - 1)
        _other(desk, body, where)


def _kept(desk: Desk, path: str, body: str, where: int) -> None:
    """Read what is written to a file that is a program."""
    if path.endswith((".py", ".pth", ".ipy")):
        desk.python(body, where)
    elif path.endswith((".sh", ".bash")) or body.startswith("#!") or "." not in path.rpartition("/")[2]:
        desk.shell.read(body, where)
    else:
        desk.notes.text(body, where)


_RUNS = re.compile(
    r"\b(system|exec|qx|popen|IO\.popen|Open3|spawn|require 'socket'|IO::Socket|child_process|unlink|"
    r"File\.delete|run\(`)\b|`[^`]+`"
)


def _other(desk: Desk, body: str, where: int) -> None:
    desk.notes.text(body, where)
    if (match := _RUNS.search(body)) is not None:
        desk.notes.add(ScreenCode.PROCESS_SHELL, where, match[0])


def ipython(desk: Desk, call: Call) -> Value | None:
    """Read a method of IPython's shell, which signs at the start of a line come to; None if it is no such one."""
    first = call.argument(0).shown
    if call.name in (
        "get_ipython().system",
        "get_ipython().getoutput",
        "get_ipython().system_piped",
        "get_ipython().system_raw",
    ):
        if first is not None:
            desk.shell.read(first, call.line)
        return Value(taints=frozenset((SYSTEM,)))
    if call.name in ("get_ipython().run_line_magic", "get_ipython().magic") and first is not None:
        rest = call.argument(1).shown or ""
        if call.name.endswith(".magic"):
            first, _, rest = first.partition(" ")
        return line(desk, first, rest, call.line)
    if call.name == "get_ipython().run_cell_magic" and first is not None:
        cell(desk, first, call.argument(1).shown or "", call.argument(2).shown or "", call.line)
        return UNKNOWN
    return None
