"""MagicReader of IPython: which of them run a shell, which run Python, which write files, and which show pages."""

from __future__ import annotations

import re
from collections.abc import Callable

from .cell_findings import CellFindings
from .codes import ScreenCode
from .known_names import words
from .path_rules import judge
from .shell_reader import ShellReader

_SHELLS = frozenset(words("bash sh sx system ! ksh zsh"))
_COMMANDS = frozenset(words("pip conda mamba micromamba uv cat cp mv rm rmdir mkdir ls ll lf lx ldir lk less more man"))
_TIMERS = frozenset(words("timeit time prun memit mprun lprun debug capture"))
_PAGES = frozenset(words("js javascript html HTML svg SVG"))
_PROGRAMS = frozenset(words("perl ruby R julia octave"))
_TEXTS = frozenset(words("latex markdown sql"))
_FILES = frozenset(words("run load loadpy edit save writefile file pycat pfile"))
_OPTIONS = re.compile(r"^\s*+(?:-\w++(?:=\d++|\s++\w++)?\s++)*+")
_SCRIPT = re.compile(r"(?i)<script|fetch\s*\(|XMLHttpRequest|document\.|kernel\.execute|eval\s*\(")
_RUNS = re.compile(
    r"\b(system|exec|qx|popen|IO\.popen|Open3|spawn|require 'socket'|IO::Socket|child_process|unlink|"
    r"File\.delete|run\(`)\b|`[^`]+`"
)


class MagicReader:
    """Reads magics. `python` is called with the code that they run."""

    def __init__(self, findings: CellFindings, shell: ShellReader, python: Callable[[str, int], None]) -> None:
        self._findings = findings
        self._shell = shell
        self._python = python

    def line(self, name: str, rest: str, where: int) -> None:
        """Read a line magic."""
        add, name = self._findings.add, name.lstrip("%")
        if name in _SHELLS:
            self._shell.read(rest, where)
        elif name in _COMMANDS:
            self._shell.read(f"{name} {rest}", where)
        elif name in _TIMERS:
            self._python(_OPTIONS.sub("", rest), where)
        elif name == "sc":
            self._shell.read(rest.partition("=")[2] or rest, where)
        elif name == "script" or name in _PROGRAMS:
            add(ScreenCode.PROCESS_INLINE_CODE, where, rest)
        else:
            self._findings.text(rest if name != "alias" else f"alias {rest}", where)
            if name == "alias":
                self._shell.read(rest.partition(" ")[2].replace("%l", "").replace("%s", ""), where)
                add(ScreenCode.PROCESS_SHELL, where, rest)
            elif name in ("env", "set_env") and not rest.strip():
                add(ScreenCode.CREDENTIAL_ENVIRONMENT, where, "%env")
            elif name == "run" and re.search(r"https?://", rest):
                add(ScreenCode.PROCESS_DOWNLOAD_RUN, where, rest)
            elif name in _FILES:
                self._file(rest.strip().rpartition(" ")[2], "write" if name in ("save", "writefile") else "read", where)

    def cell(self, name: str, rest: str, body: str, where: int) -> None:
        """Read a cell magic, whose body begins on line `where`."""
        if name in _SHELLS:
            self._shell.read(f"{rest}\n{body}" if rest.strip().startswith("-c") else body, where)
            if name in ("sx", "system", "!") and rest.strip():
                self._shell.read(rest, where - 1)
        elif name == "script":
            program = next((word for word in rest.split() if not word.startswith("-")), "").rpartition("/")[2]
            if re.match(r"(i?python|pypy)", program):
                self._python(body, where)
            elif program in _SHELLS or program.endswith("sh"):
                self._shell.read(body, where)
            else:
                self._shell.read(rest, where - 1)
                self._program(rest, body, where)
        elif name in ("writefile", "file"):
            path = rest.rpartition(" ")[2].strip("'\"")
            self._file(path, "write", where - 1)
            self._findings.text(path, where - 1)
            if path.endswith((".py", ".pth", ".ipy")):
                self._python(body, where)
            elif path.endswith((".sh", ".bash")) or body.startswith("#!") or "." not in path.rpartition("/")[2]:
                self._shell.read(body, where)
            else:
                self._findings.text(body, where)
        elif name in _PROGRAMS:
            self._program(name, body, where)
        elif name in _PAGES | _TEXTS:
            self._findings.text(body, where)
            if name in _PAGES and _SCRIPT.search(body):
                self._findings.add(ScreenCode.ESCAPE_FRONT_END, where, name)
        else:
            if name in _TIMERS and rest.strip():
                self._python(_OPTIONS.sub("", rest), where - 1)
            self._python(body, where)

    def _file(self, path: str, verb: str, where: int) -> None:
        if (code := judge(verb, path)) is not None:
            self._findings.add(code, where, path)

    def _program(self, name: str, body: str, where: int) -> None:
        """Read a program in a language that no rule reads."""
        self._findings.add(ScreenCode.PROCESS_INLINE_CODE, where - 1, name)
        self._findings.text(body, where)
        if (match := _RUNS.search(body)) is not None:
            self._findings.add(ScreenCode.PROCESS_SHELL, where, match[0])
