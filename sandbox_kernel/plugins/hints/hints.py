"""What an ordinary failure of a cell has to do with the sandbox: one line for a person who does not know its walls.

Pure, but for the one question that an entry point may answer: whether a file lies beside the notebook. What the cell
says is looked at and not repeated, so nothing of it gets into a hint; the words of each entry point for the same thing
are its own.
"""

from __future__ import annotations

import posixpath
import re

from ...core.model import Audience, Settings, format_bytes
from ...engines.image_names import FULL, FULL_MODULES, FULL_PROGRAMS
from ..api import MAX_SEARCHED, Beside, CellFailure
from .codes import HintCode

MAX_PIECES = 100
"""Of a traceback, that are looked at."""
MAX_LINES = 2000
"""Of a cell, that are looked at."""
MAX_LINE = 500
"""Characters of one line of a cell, from where it begins: a command names itself there."""
MAX_SOUGHT = 4
MAX_PATH = 400
SCRATCH = "/mnt/data/"


def _rule(code: HintCode, pattern: str) -> tuple[HintCode, re.Pattern[str]]:
    """Return a hint, and its exceptions: by their names, and by the words of the system or the library in them."""
    return code, re.compile(pattern)


_NETWORK = _rule(
    HintCode.NO_NETWORK,
    r"Temporary failure in name resolution|Name or service not known|\[Errno 101\] Network is unreachable"
    r"|\[Errno 113\] No route to host|Could not resolve host|Cannot connect to host .* \[DNS",
)
_RULES = (
    _rule(
        HintCode.STORAGE_FULL,
        r"No space left on device|database or disk is full|^OSError: \d+ requested and \d+ written\Z"
        r"|\bSIGBUS\b|\bsignal: Bus error\b",  # a process of the cell's own, that joblib or PyTorch tells of
    ),
    _rule(HintCode.MEMORY_SHORT, r"Unable to allocate |^MemoryError\b"),
    _rule(HintCode.PROCESSES_SHORT, r"^BlockingIOError: \[Errno 11\]|can't start new thread"),
    _rule(HintCode.FILES_SHORT, r"\[Errno 24\] Too many open files"),
    _NETWORK,
    _rule(HintCode.DATASET_NOT_READABLE, r"(?:\[Errno 13\]|Permission denied|os error 13)[^\n]*/mnt/datasets/"),
    _rule(HintCode.DATASET_NOT_READABLE, r"/mnt/datasets/[^\n]*(?:\[Errno 13\]|Permission denied|os error 13)"),
    _rule(HintCode.READ_ONLY, r"\[Errno 30\]"),
    _rule(HintCode.FOLDER_NOT_HERE, r"^OSError: Cannot save file into a non-existent directory"),
    _rule(HintCode.LOCALE_NOT_HERE, r"^Error: unsupported locale setting\Z"),
    _rule(HintCode.FIGURE_WIDGET, r"^(?:ImportError|ModuleNotFoundError): .*\banywidget\b"),
    _rule(HintCode.VARIABLE_NOT_HANDED_OVER, r"^ModuleNotFoundError: No module named 'jupyter_mimetypes'"),
    _rule(HintCode.SUBMODULE_NOT_HERE, r"^ModuleNotFoundError: No module named '\w+\.[\w.]+'"),
    _rule(
        HintCode.MODULE_NOT_HERE,
        r"^ModuleNotFoundError: |^ImportError: `Import \w+` failed|^RuntimeError: \s*Image export requires the Kaleido",
    ),
    _rule(HintCode.FILE_NOT_HERE, r"^FileNotFoundError\b|\[Errno 2\]|No such file or directory"),
)
_CAUSE = re.compile(r"^(?:\x1b\[[\d;]*m)*OSError(?:\x1b\[[\d;]*m)*: \[Errno 28\] ", re.MULTILINE)
"""The first line of an exception that another one came of, in a traceback; errors of the same kind alone."""
_PROGRAMS = frozenset(
    """
    R Rscript apt apt-get aws brew cargo chromium conda curl docker gh git go google-chrome inkscape java javac julia
    latex mamba micromamba npm npx pdflatex perl pip pip3 psql ruby rustc sudo unrar unzip uv wkhtmltopdf xelatex zip
    """.split()  # noqa: SIM905 (one line a program says no more)
)
"""What code asks for as a program: where it is missing, Python says the same as of a file."""

_NOT_FOUND = r"^(?:\S+: (?:line )?\d+: )?([\w.+-]{1,40}): (?:command )?not found\s*$"
"""What a shell says of a program that is not there; where it ran may come in a message of its own."""
_QUOTED = re.compile(r"'([^'\n]+)'|\"([^\"\n]+)\"")
_UNQUOTED = re.compile(r"\(os error 2\): (.+)$|^(.+) not found\.$|^(.+): No such file or directory$", re.MULTILINE)
_SAID = {"Kaleido": "kaleido", "pytables": "tables"}
"""How messages call a module, where not by its name."""
_MODULE = re.compile(r"(?:No module named '|`Import |requires the )(\w+)")
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
"""A package, as pip knows it."""
_INSTALLERS = re.compile(
    r"(?:[\w, ]+=[ \t]*)?(?:!!?|%)[ \t]*(?:sudo[ \t]+)?(?:\S*python[\d.]*[ \t]+-m[ \t]+)?"
    r"(?:uv[ \t]+)?(?:pip[\d.]*|conda|mamba|micromamba|apt|apt-get)[ \t]+(?:-\S+[ \t]+)*"
    r"(?:install|add|create|download)\b"
)
_FETCHERS = re.compile(
    r"(?:[\w, ]+=[ \t]*)?!!?[ \t]*(?:(?:wget|curl)[ \t]+(?!.*(?:localhost|127\.0\.0\.1|--version|--help))\S"
    r"|git[ \t]+(?:-\S+[ \t]+)*(?:clone|fetch|pull|push|ls-remote)\b)"
)


class Hints:
    """The hints of one session."""

    def __init__(self, settings: Settings, audience: Audience, beside: Beside | None) -> None:
        """`beside` is asked for files that a cell did not find, where only a person gets to see the answer."""
        self._limits, self._audience, self._beside = settings.limits, audience, beside
        self._uploads = None if settings.uploads is None else settings.uploads.rpartition("/")[2]
        self._way_out = settings.has_way_out
        self._installs = bool(settings.get("packages", ()))
        self._volumes = bool(settings.get("volumes", ()))

    def of_cell(self, failure: CellFailure | None, found: str | None, program: str | None, code: str) -> list[str]:
        """Return the hints for a cell, with what `beside` found, and with a program that a shell in it did not find."""
        hint = None if failure is None else self.of_failure(failure, found)
        if hint is None and program is not None:
            hint = self.of_program(program)
        return [*([hint] if hint else []), *self.of_code(code)]

    def of_failure(self, failure: CellFailure, found: str | None = None) -> str | None:
        """Return the hint for an exception, if there is one; `found` is what `beside` has found for it."""
        code = self._code(failure)
        if code is None:
            return None
        if found is not None:
            return self._text(HintCode.FILE_BESIDE, found)
        return self._text(code, _in_full(code, failure))

    @staticmethod
    def program_not_found(printed: str) -> str | None:
        """Return the program that a shell in a cell did not find, if it is one that we know."""
        if "not found" not in (text := printed[:MAX_SEARCHED]):
            return None
        known = _PROGRAMS | FULL_PROGRAMS
        return next((name for name in re.findall(_NOT_FOUND, text, re.MULTILINE) if name in known), None)

    def of_program(self, name: str) -> str:
        """Return the hint for a program that a shell did not find."""
        return self._text(HintCode.PROGRAM_NOT_HERE, name if name in FULL_PROGRAMS else "")

    def of_code(self, code: str) -> list[str]:
        """Return the hints for what a cell asks of the shell that no sandbox does, whatever became of it."""
        found: dict[HintCode, str] = {}
        if "!" in code or "%" in code:
            for line in (line.strip()[:MAX_LINE] for line in code.split("\n", MAX_LINES)[:MAX_LINES]):
                if not self._installs and (match := _INSTALLERS.match(line)):
                    words = _NAME.findall(line[match.end() :].lower())
                    full = next((word for word in words if word in FULL_MODULES), "")
                    found[HintCode.NO_INSTALLING] = found.get(HintCode.NO_INSTALLING) or full
                elif not self._way_out and _FETCHERS.match(line):
                    found[HintCode.NO_FETCHING] = ""
        return [self._text(code, name) for code, name in found.items()]

    def sought(self, failure: CellFailure) -> list[str]:
        """Return the relative paths that an exception may be about and that are worth a check."""
        code = self._code(failure) if self._beside is not None else None
        if code is HintCode.FILE_NOT_HERE:
            return _paths(failure.value)
        if code is HintCode.MODULE_NOT_HERE and (match := _MODULE.search(failure.value[:MAX_SEARCHED])):
            return [f"{match[1]}.py", f"{match[1]}/__init__.py"]
        return []

    def _code(self, failure: CellFailure) -> HintCode | None:
        said = failure.said
        code = next((code for code, pattern in _RULES if pattern.search(said)), None)
        pieces = (piece[:MAX_SEARCHED] for piece in failure.traceback[:MAX_PIECES] if isinstance(piece, str))
        if code is None and any(map(_CAUSE.search, pieces)):
            code = HintCode.STORAGE_FULL
        if code is HintCode.STORAGE_FULL and self._volumes:
            return HintCode.VOLUME_OR_STORAGE_FULL
        if code is HintCode.NO_NETWORK and self._way_out:
            return HintCode.PAST_THE_WAY_OUT
        if code is HintCode.FILE_NOT_HERE:
            paths = _paths(failure.value)
            if any(path in _PROGRAMS or path in FULL_PROGRAMS for path in paths):
                return HintCode.PROGRAM_NOT_HERE
            if self._uploads is not None and any(path.startswith(f"{self._uploads}/") for path in paths):
                return HintCode.FILE_IN_UPLOADS
        return code

    def _text(self, code: HintCode, name: str = "") -> str:
        limits, audience = self._limits, self._audience
        bring = audience.bring
        if self._uploads is not None and audience.bring_by_folder is not None:
            bring = audience.bring_by_folder.format(uploads=self._uploads)
        return code.text.format(
            bring=bring,
            packages=audience.packages,
            name=name,
            full=audience.full.format(image=FULL, name=name) if name else "",
            uploads=self._uploads,
            scratch=format_bytes(limits.scratch_size),
            tmp=format_bytes(limits.tmp_size),
            shm=format_bytes(limits.shm_size),
            memory=format_bytes(limits.memory),
            pids=limits.pids,
            files=limits.open_files,
        )


def _in_full(code: HintCode, failure: CellFailure) -> str:
    """Return the module or program that an exception misses, if the image `full` has it."""
    if code is HintCode.MODULE_NOT_HERE and (match := _MODULE.search(failure.value[:MAX_SEARCHED])):
        name = _SAID.get(match[1], match[1])
        return name if name in FULL_MODULES.values() else ""
    if code is HintCode.PROGRAM_NOT_HERE:
        return next((path for path in _paths(failure.value) if path in FULL_PROGRAMS), "")
    return ""


def _paths(value: str) -> list[str]:
    """Return the paths below the working folder that an exception names; hidden ones are no data."""
    value = value[:MAX_SEARCHED]
    groups = [*_QUOTED.findall(value), *_UNQUOTED.findall(value)]
    found: dict[str, None] = {}
    for text in (text for group in groups for text in group if text):
        if len(text) > MAX_PATH or "\0" in text:
            continue
        path = posixpath.normpath(text.removeprefix(SCRATCH))
        if not path.startswith(("/", ".", "~")) and "/." not in path:
            found[path] = None
    return list(found)[:MAX_SOUGHT]
