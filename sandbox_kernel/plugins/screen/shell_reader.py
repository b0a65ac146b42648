"""Commands of a shell: split into simple ones, unwrapped, and asked after by the rules.

No shell reads anything here, and what it would expand is not known, but for variables that the same text sets.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .cell_findings import CellFindings, squeezed
from .codes import ScreenCode
from .known_names import words

MAX_TEXT = 1 << 15
MAX_DEPTH = 4
MAX_COMMANDS = 400
_ASSIGNED = re.compile(r"[A-Za-z_]\w*\+?=")
_VARIABLE = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
_WRAPPERS = frozenset(
    words(
        "sudo doas nohup time env command builtin exec nice ionice stdbuf setsid xargs then do else if while "
        "until ! { ( & timeout unbuffer busybox watch parallel eatmydata trap strace"
    )
)
_SHELLS = frozenset(["bash", "sh", "zsh", "dash", "ksh", "su", "ash"])
_PYTHONS = re.compile(r"(i?python|pypy)[\d.]*$")
_PIECE = re.compile(
    r"""\\.|'[^']*+'?|"(?:\\.|[^"\\])*+"?|(?P<end>[;|\n]|(?<![<>])&(?!>)|(?<![^\s;])\#[^\n]*+)|[^\\'"\#;|\n&]++|.""",
    re.DOTALL,
)
"""A quoted text, the end of a command, or what stands between."""
_WORD = re.compile(r"""(?:\\.|'[^']*+'?|"(?:\\.|[^"\\])*+"?|[^\s'"])++""", re.DOTALL)
_QUOTED = re.compile(r"""\\(.)|'([^']*+)'?|"((?:\\.|[^"\\])*+)"?""", re.DOTALL)
_HEREDOC = re.compile(r"<<-?\s*(['\"]?)(\w+)\1")


class ShellReader:
    """Reads what a cell gives to a shell. `python` is called with code that goes to an interpreter."""

    def __init__(self, findings: CellFindings, python: Callable[[str, int], None]) -> None:
        self._findings = findings
        self._python = python
        self._variables: dict[str, str] = {}
        self._count = 0

    def read(self, text: str, line: int, depth: int = 0) -> None:
        """Read a script of any number of commands, which begins on `line`."""
        if depth > MAX_DEPTH:
            self._findings.add(ScreenCode.CELL_TOO_DEEP, line, "shell")
            return
        if len(text) > MAX_TEXT:
            self._findings.add(ScreenCode.CELL_TOO_LARGE, line, "shell")
            text = text[:MAX_TEXT]
        text = text.replace("\\\n", " ")
        self._findings.text(text, line)
        text, _ = squeezed(text)
        bare, _ = squeezed(re.sub(r"(?m)(^|\s)#(?!!).*$", r"\1", text))
        for pattern, row in self._findings.index.script:
            if (match := pattern.search(bare)) is not None:
                self._findings.row(row, line + bare.count("\n", 0, match.start()), match[0])
        text = self._without_documents(text, line, depth)
        for command, offset in _commands(text):
            self._count += 1
            if self._count > MAX_COMMANDS:
                self._findings.add(ScreenCode.CELL_TOO_DEEP, line, "shell")
                return
            self._command(command, line + offset, depth)

    def words(self, words: list[str], line: int, depth: int = 0) -> None:
        """Read one command that is given as a list of words, which no shell expands."""
        self._simple(list(words[:200]), line, depth)

    def _without_documents(self, text: str, line: int, depth: int) -> str:
        """Take out what is given to a command in lines of its own, and read it as what that command is."""
        lines, out, at = text.split("\n"), [], 0
        while at < len(lines):
            out.append(lines[at])
            match = _HEREDOC.search(lines[at])
            at += 1
            if match is None:
                continue
            first = at
            while at < len(lines) and lines[at].strip() != match[2]:
                at += 1
            body = "\n".join(lines[first:at])
            head = lines[first - 1][: match.start()]
            if re.search(r"\b(i?python|pypy)[\d.]*\b", head) or re.search(r"\.py\b", lines[first - 1]):
                self._python(body, line + first)
            elif not re.search(r"\bcat\b|\btee\b", head) or re.search(r"\.(sh|bash)\b", lines[first - 1]):
                self.read(body, line + first, depth + 1)
            out += [""] * (at - first + 1)
            at += 1
        return "\n".join(out)

    def _command(self, text: str, line: int, depth: int) -> None:
        for inner in _inner(text):
            self.read(inner, line, depth + 1)
        self._simple(_words(_VARIABLE.sub(self._variable, text)), line, depth)

    def _variable(self, match: re.Match[str]) -> str:
        return self._variables.get(match[1] or match[2], match[0])

    def _simple(self, words: list[str], line: int, depth: int) -> None:
        while words and _ASSIGNED.match(words[0]):
            name, _, value = words.pop(0).partition("=")
            if len(self._variables) < 200:
                self._variables[name.rstrip("+")] = value[:1000]
        for _ in range(8):
            if not words:
                return
            words[0] = words[0].lstrip("({!").replace("\\", "")
            if words[0].startswith("/") and "/" in words[0][1:]:
                self._ask(words, line)
                words[0] = words[0].rpartition("/")[2]
            self._ask(words, line)
            self._inside(words, line, depth)
            if words[0] not in _WRAPPERS:
                return
            words = _unwrapped(words)

    def _ask(self, words: list[str], line: int) -> None:
        said = " ".join(words)[:4000]
        for pattern, row in self._findings.index.shell:
            if pattern.search(said) is not None:
                self._findings.row(row, line, said)

    def _inside(self, words: list[str], line: int, depth: int) -> None:
        """Read the code or the commands that a command is given as one of its words."""
        name = words[0]
        if name == "eval":
            self.read(" ".join(words[1:]), line, depth + 1)
        elif name in _SHELLS or _PYTHONS.match(name):
            for at, word in enumerate(words[1:-1], 1):
                if re.fullmatch(r"-\w*c", word):
                    if name in _SHELLS:
                        self.read(words[at + 1], line, depth + 1)
                    else:
                        self._findings.add(ScreenCode.PROCESS_INLINE_CODE, line, " ".join(words))
                        self._python(words[at + 1], line)
                    return


def _unwrapped(words: list[str]) -> list[str]:
    """Return a command without the one that only starts it, its options and assignments."""
    rest = words[1:]
    while rest and (rest[0].startswith("-") or _ASSIGNED.match(rest[0]) or re.fullmatch(r"\d+[smhd]?", rest[0])):
        takes = words[0] in ("sudo", "su", "nice", "xargs") and rest[0] in ("-u", "-g", "-n", "-I", "-P", "-L", "-d")
        rest = rest[2 if takes else 1 :]
    return rest


def _commands(text: str) -> list[tuple[str, int]]:
    """Split a script at the signs that end a command, outside of quotes, with the line of each from 0."""
    found: list[tuple[str, int]] = []
    start, line, first = 0, 0, 0
    for match in _PIECE.finditer(text):
        line += match[0].count("\n")
        if match["end"] is not None:
            found.append((text[start : match.start()], first))
            start, first = match.end(), line
    found.append((text[start:], first))
    return [(part.strip(), where) for part, where in found if part.strip(" \t\n&|;")]


def _inner(text: str) -> list[str]:
    """Return what is run within a command: `$(...)` and backticks."""
    found = [part for number, part in enumerate(text.split("`")) if number % 2] if "`" in text else []
    at = text.find("$(")
    while at >= 0 and len(found) < 20:
        depth, end = 1, at + 2
        while end < len(text) and depth:
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        if text[at + 2 : at + 3] != "(":
            found.append(text[at + 2 : end - 1 if not depth else end])
        at = text.find("$(", end)
    return found


def _words(text: str) -> list[str]:
    """Return the words of a simple command without quotes, whatever is missing at its end."""
    return [_QUOTED.sub(_unquoted, word) for word in _WORD.findall(text)]


def _unquoted(match: re.Match[str]) -> str:
    plain = match[1] or match[2] or ""
    return plain if match[3] is None else re.sub(r"\\([\"\\$`])", r"\1", match[3])
