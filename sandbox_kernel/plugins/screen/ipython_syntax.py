"""A cell as IPython would run it: prompts, magics, `!` and `?` turned into Python, line for line.

The judge is IPython's own transformer, in the tests; it is not imported here, for it takes as long as a whole start.
This one reads a cell once, from its start to its end.
"""

from __future__ import annotations

import re
import textwrap
from typing import NamedTuple

_CLASSIC = re.compile(r"\s*>>>")
_CLASSIC_FIRST = re.compile(r"^\s*>>>[ \t]?")
_CLASSIC_NEXT = re.compile(r"^\s*\.\.\.[ \t]?")
_NUMBERED = re.compile(r"^(((\[nav\]|\[ins\])?\ )?In\ \[\d+\]:\ |\s*\.{3,}:\ ?)")
_TRIPLE = re.compile(r"(?<!\\)(\"\"\"|''')")
_INTERESTING = re.compile(r"[\[\](){}#'\"\\=]|\"\"\"|'''")
_ASSIGNED_MAGIC = re.compile(r"[ \t]*%[ \t]*[^\W\d]")
_ASSIGNED_SYSTEM = re.compile(r"[ \t]*!")
_HELP_END = re.compile(r"(?<![\w*])\d*+(%{0,2}(?!\d)[\w*]++(?:\.(?!\d)[\w*]++|\[-?[0-9]++\])*)(\?\??)[ \t]*$")
MAX_ASKED = 2000
"""Characters at the end of a line in which a question for help is looked for."""
_ALIASES = frozenset(re.findall(r"\w+", "cat cp ldir less lf lk ll ls lx man mkdir more mv rm rmdir clear"))
_MAGICS = frozenset(
    re.findall(
        r"\w+",
        "alias bookmark cd conda config debug edit env exec history load load_ext loadpy lsmagic macro magic "
        "mamba micromamba notebook page pastebin pdb pdef pdoc pfile pinfo pip popd prun psearch psource "
        "pushd pwd pycat quickref recall rehashx reset rerun run save sc set_env store sx sx system tb time "
        "timeit unalias unload_ext uv who who_ls whos xdel xmode autoreload matplotlib pylab gui precision",
    )
)
_WORD = re.compile(r"^\s*%{0,2}([\w.]+)(.*)$", re.DOTALL)


class CellSyntax(NamedTuple):
    """What a cell comes to."""

    python: str
    """All of it, for a cell without a cell magic."""
    magic: str | None = None
    """The name of a cell magic, without its signs."""
    arguments: str = ""
    body: str = ""
    """What a cell magic is given; it begins on line `first`."""
    first: int = 1


def read(code: str, known: frozenset[str] = frozenset()) -> CellSyntax:
    """Return a cell as it would run. `known` are names that hide commands of the same name."""
    if not code.endswith("\n"):
        code += "\n"
    lines = code.splitlines(keepends=True)
    start = next((number for number, line in enumerate(lines) if line and not line.isspace()), len(lines))
    lines = _without_prompts(_dedented(lines[start:]))
    if lines and lines[0].startswith("%%") and not re.match(r"%%\w+\?", lines[0]):
        name, _, arguments = lines[0][2:].rstrip().partition(" ")
        return CellSyntax("", name, arguments, "".join(lines[1:]), start + 2)
    if len([line for line in lines if line.strip()]) == 1 and (found := _automagic(lines, known)) is not None:
        lines = found
    return CellSyntax("\n" * start + "".join(_transformed(lines)))


def python_of(code: str) -> str:
    """Return a cell as Python, or what its cell magic is given."""
    cell = read(code)
    return cell.python if cell.magic is None else cell.body


def is_plain(code: str) -> bool:
    """Return whether nothing in the first lines is a prompt, which would be Python as it stands."""
    return "In [" not in code[:200] and "...:" not in code[:400]


def _dedented(lines: list[str]) -> list[str]:
    if not lines or not any(line[:1] in " \t" for line in lines[:1]):
        return lines
    return textwrap.dedent("".join(lines)).splitlines(keepends=True)


def _without_prompts(lines: list[str]) -> list[str]:
    if not lines:
        return lines
    if any(_CLASSIC.match(line) for line in lines):
        lines = _without_classic(lines)
    if _NUMBERED.match(lines[0]) or (len(lines) > 1 and _NUMBERED.match(lines[1])):
        return [_NUMBERED.sub("", line, count=1) for line in lines]
    return lines


def _without_classic(lines: list[str]) -> list[str]:
    """Take off `>>>` and `...`, but not in a text with three quotes that began without a prompt."""
    found, inside, kept, seen = [], "", False, False
    masked, stripped = [], []
    for line in lines:
        masks = bool(inside) and kept
        for match in _TRIPLE.finditer(line):
            if not inside:
                before = line[: match.start()]
                bare = _CLASSIC_NEXT.sub("", _CLASSIC_FIRST.sub("", before, count=1), count=1)
                inside = match[1]
                kept = not (bare != before and seen) and re.fullmatch(r"(?i)[rubf]*", bare.strip()) is not None
                masks = kept
            elif inside == match[1]:
                inside, kept = "", False
        seen = seen or _CLASSIC.match(line) is not None
        bare = line if masks else _CLASSIC_FIRST.sub("", line, count=1)
        bare = bare if masks or bare != line else _CLASSIC_NEXT.sub("", line, count=1)
        found.append(bare)
        masked.append(masks)
        stripped.append(bare != line)
    if not any(_CLASSIC.match(line) for line, mask in zip(lines, masked, strict=True) if not mask):
        return lines
    out: list[str] = []
    at = 0
    while at < len(found):
        end = at
        while end < len(found) and masked[end] == masked[at]:
            end += 1
        part = found[at:end]
        dedent = not masked[at] and any(stripped[at:end])
        out += textwrap.dedent("".join(part)).splitlines(keepends=True) if dedent else part
        at = end
    return out


# --- lines ---------------------------------------------------------------------------------------------------------


def _automagic(lines: list[str], known: frozenset[str]) -> list[str] | None:
    """Return the lines of a cell of one line that names a magic or an alias without its sign, None for any other."""
    at = next(number for number, line in enumerate(lines) if line.strip())
    match = _WORD.match(lines[at].rstrip("\n"))
    if match is None:
        return None
    name, rest = match[1], match[2].strip()
    if rest[:1] in ("=", ",") and rest:
        return None
    if name in known or name not in _ALIASES | _MAGICS:
        return None
    return [*lines[:at], f"%{name} {rest}\n" if rest else f"%{name}\n", *lines[at + 1 :]]


def _transformed(lines: list[str]) -> list[str]:
    """Turn each logical line that IPython reads in its own way into Python; the number of lines stays."""
    out: list[str] = []
    at = 0
    while at < len(lines):
        bare = lines[at].lstrip(" \t\f")
        indent = lines[at][: len(lines[at]) - len(bare)]
        if not bare.strip() or bare.startswith("#") or bare == "\\\n":
            out.append(lines[at])
            at += 1
            continue
        end, assigned = _logical(lines, at)
        whole = lines[at : end + 1]
        if (asked := _help(bare, whole, indent)) is not None:
            out += _padded(asked, len(whole))
            at = end + 1
        elif bare[0] in "%!?,;/":
            text, stop = _continued(lines, at, len(indent))
            call = _escaped(text)
            out += _padded(indent + call + "\n", stop - at + 1) if call is not None else lines[at : stop + 1]
            at = stop + 1
        elif assigned is not None:
            row, column = assigned
            text, stop = _continued(lines, row, column)
            text = text.lstrip()
            head = lines[row][:column]
            out += lines[at:row]
            space = head + (lines[row][column:][: len(lines[row][column:]) - len(lines[row][column:].lstrip(" \t"))])
            out += _padded(space + _assigned(text) + "\n", stop - row + 1)
            at = stop + 1
        else:
            out += whole
            at = end + 1
    return out


def _padded(line: str, count: int) -> list[str]:
    return [line, *["\n"] * (count - 1)]


def _continued(lines: list[str], row: int, column: int) -> tuple[str, int]:
    """Return a line with those that a backslash adds to it, and the number of the last of them."""
    end = row
    while end < len(lines) - 1 and lines[end].endswith("\\\n"):
        end += 1
    parts = [lines[row][column:], *lines[row + 1 : end + 1]]
    return " ".join([part.rstrip()[:-1] for part in parts[:-1]] + [parts[-1].rstrip()]), end


def _help(bare: str, whole: list[str], indent: str) -> str | None:
    """Return the call for a line that ends with a question mark outside of a text or a comment."""
    if not whole[-1].rstrip().endswith("?"):
        return None
    piece = "".join(whole)[len(indent) :].rstrip("\n")
    match = _HELP_END.search(piece.rstrip()[-MAX_ASKED:])
    if match is None or bare[0] == "!" or "#" in piece:
        return None
    return f"{indent}{_help_call(match[1], match[2])}\n"


def _help_call(target: str, sign: str) -> str:
    method = "pinfo2" if sign == "??" else "psearch" if "*" in target else "pinfo"
    return f"get_ipython().run_line_magic({method!r}, {target!r})"


def _escaped(text: str) -> str | None:
    """Return the Python of a line that begins with a sign of IPython's; None if it cannot be one."""
    if text.startswith("!!"):
        return f"get_ipython().getoutput({text[2:]!r})"
    if text.startswith("!"):
        return f"get_ipython().system({text[1:]!r})"
    if text.startswith("?"):
        sign = "??" if text.startswith("??") else "?"
        return _help_call(text[len(sign) :], sign) if text[len(sign) :] else "get_ipython().show_usage()"
    name, _, rest = text[1:].partition(" ")
    if text[0] == "%":
        return f"get_ipython().run_line_magic({name!r}, {rest!r})"
    if text[0] == ",":
        quoted = '", "'.join(rest.split())
        return f'{name}("{quoted}")'
    if text[0] == ";":
        return f'{name}("{rest}")'
    return f"{name}({', '.join(rest.split())})" if name else None


def _assigned(text: str) -> str:
    if text.startswith("!"):
        return f"get_ipython().getoutput({text[1:]!r})"
    name, _, rest = text[1:].partition(" ")
    return f"get_ipython().run_line_magic({name!r}, {rest!r})"


def _logical(lines: list[str], start: int) -> tuple[int, tuple[int, int] | None]:
    """Return the last row of the logical line that starts at `start`, and where a magic or a command is assigned in it.

    The place is behind the first equals sign outside of brackets.
    """
    depth, quote, row, first = 0, "", start, True
    while row < len(lines):
        line, column, goes_on = lines[row], 0, False
        while column < len(line):
            if quote:
                column, quote, goes_on = _behind_text(line, column, quote)
                continue
            match = _INTERESTING.search(line, column)
            if match is None:
                break
            sign, column = match[0], match.end()
            if sign == "#":
                break
            if sign in "'\"":
                triple = line[match.start() : match.start() + 3]
                quote = triple if triple in ("'''", '"""') else sign
                column = match.start() + len(quote)
            elif sign in "([{":
                depth += 1
            elif sign in ")]}":
                depth = max(0, depth - 1)
            elif sign == "\\":
                goes_on = line[column:] == "\n"
            elif depth == 0 and first and line[column : column + 1] != "=" and line[column - 2] not in "=!<>:+-*/%@&|^":
                first = False
                rest = line[column:]
                if _ASSIGNED_MAGIC.match(rest) or _ASSIGNED_SYSTEM.match(rest):
                    return row, (row, column)
        if len(quote) == 1 and not goes_on:
            quote = ""  # a text that does not end on its line is no Python; the next line starts fresh
        if depth == 0 and not quote and not goes_on:
            return row, None
        row += 1
    return len(lines) - 1, None


def _behind_text(line: str, column: int, quote: str) -> tuple[int, str, bool]:
    """Return where a text ends, what still quotes it at the end of the line, and whether a backslash ends that."""
    while column < len(line):
        if line[column] == "\\":
            if line[column + 1 :] in ("\n", ""):
                return len(line), quote, True
            column += 2
        elif line.startswith(quote, column):
            return column + len(quote), "", False
        else:
            nearest = min((at for at in (line.find("\\", column), line.find(quote, column)) if at >= 0), default=-1)
            column = nearest if nearest > column else (column + 1 if nearest == column else len(line))
    return column, quote, False
