r"""Markdown as a page may show it: plain words as they are, everything else as sanitised HTML.

Every front end reads Markdown in its own way: JupyterLab takes formulas out of the source and pastes them back into the
page, others make links of bare addresses or pictures of diagrams. So the source that passes is words, in which no
parser finds more than headings, lists, tables and emphasis; the rest is parsed here, formulas included, and goes out as
a tree. The formulas are found by rules of our own: those of mdit-py-plugins end one at the next dollar, braces or not,
and do not look inside.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import count, pairwise
from typing import Any

from ..core.codes import OutputCode
from . import html, tex
from .allowance import Allowance, of_formulas, of_text
from .verdict import Notes

MAX_PLAIN = 20_000
"""Characters of Markdown that passes as it is."""
MAX_SOURCE = 100_000
"""Characters; more is a file, not an output, and would keep the parser busy for seconds."""
MAX_SPECIAL = 20_000
"""Characters of them that mean something to a parser."""
MAX_LINES = 5_000
"""Lines of them: each may be a block of its own, and for so many the parser needs a third of a second."""
MAX_LINE_FORMULA = 2_000

_LETTER = "A-Za-zÀ-ÖØ-öø-ɏ"
_WORD = rf"[\"'(]?(?:[0-9{_LETTER}]{{1,60}}(?:['-][{_LETTER}]{{1,60}})?|[0-9]{{1,20}}\.[0-9]{{1,20}})%?[\"')]?"
_WORDS = rf"{_WORD}(?:[,;:]? {_WORD})*[.?!:]?"
_PART = rf"(?:{_WORD}|\*\*{_WORDS}\*\*|\*{_WORDS}\*|`[0-9{_LETTER}]{{1,60}}(?:[_=+-][0-9{_LETTER}]{{1,60}}){{0,5}}`)"
_LINE = rf"{_PART}(?:[,;:?!]? {_PART}(?:[.,;:?!]? {_PART})*)?[.?!:]?"
_ROW = rf"\|(?: {{0,20}}(?:{_WORDS} {{0,20}}|-{_WORD} {{0,20}})?\|){{1,30}}"
_RULE = r"\|(?: ?:?-{1,60}:? ?\|){1,30}"
_HEAD = r"#{1,6} (?=[^ \n]{1,99} [^ \n]|[A-Z][a-z]{1,60}\n)"
"""An export names a heading by its words: no name of a program's own can be made of one."""
_ITEM = r"(?: {2,4})?(?:[-*]|[0-9]{1,3}\.) {1,4}"
_PLAIN = re.compile(
    rf"(?:(?:(?:{_HEAD}|{_ITEM})?(?=[{_LETTER}*`\"']|[0-9]+[{_LETTER}% ]){_LINE}|{_ROW}|{_RULE})\n{{1,2}})*"
)
"""Words in lines, headings, lists and tables, bold, slanted or as code; and punctuation only where a space or the end
of the line follows. No parser makes more of them: there is no address, no HTML and no formula."""
MAX_SET_APART = 500
"""Marks of Markdown that passes as it is: a front end shows more of it apart, which it does with HTML alone."""
_SET_APART = re.compile(r"[|*`#]|^ *[-0-9]", re.MULTILINE)
_MARKS = re.compile(r"\n|\||\*|`")
_PICTURE = "data:image/png;base64,sandboxPicture"
_DATA = re.compile(r"data:image/(?:png|jpeg|gif|webp|svg\+xml);base64,[A-Za-z0-9+/]{16,}={0,2}")
_HELD = re.compile(
    r"data:([a-z]{1,20})/([a-z0-9-]{1,40})[\w.+-]{0,40}(?:;[\w.=-]{1,60}){0,3};base64,[A-Za-z0-9+/]{40,}={0,2}"
)
"""What an address holds itself, such as a picture."""
_OBJECT = re.compile(r"<[\w.<>]+(?: object)? at 0x[0-9a-f]+>|<[\w.]+ object>")
"""What stands for the text of what has none, as Python and IPython have it."""
_AWAY = re.compile(re.escape(_PICTURE) + r"(\d{1,6})x")
"""A picture of the source, by its number, while that is parsed."""
_SPECIAL = re.compile(r"[*_`\[\]()!<>&\\$~|#]")
_NESTED = re.compile(r"(?:^|\n)(?:[ \t]*(?:>|[-*+]|[0-9]{1,9}[.)])){21}")


def is_text(source: str) -> bool:
    """Return whether no parser of any front end could read anything but words: set apart, and in tables as written."""
    if len(source) > MAX_PLAIN or _PLAIN.fullmatch(source if source.endswith("\n") else source + "\n") is None:
        return False
    if len(_SET_APART.findall(source)) > MAX_SET_APART:
        return False
    # A row that is shorter than the head of its table is filled up.
    rows = [row.count("|") if row.startswith("|") else 0 for row in source.split("\n")]
    return all(not after or not before or after == before for before, after in pairwise(rows))


def elements(source: str) -> int:
    """Return how many elements a page has of a source that `is_text`, at most."""
    return 1 + len(_MARKS.findall(source))


def stands_for(text: object) -> bool:
    """Return whether the text of a bundle is none, or no more than the kind of an object."""
    return not isinstance(text, str) or _OBJECT.fullmatch(text) is not None


def readable(source: str) -> str:
    """Return a source for readers of text: what its addresses hold has a name in its place, such as `picture-1.png`."""
    if ";base64," not in source:
        return source
    numbers = count(1)
    return _HELD.sub(lambda held: f"{'picture' if held[1] == 'image' else held[1]}-{next(numbers)}.{held[2]}", source)


def render(source: str, notes: Notes) -> str:
    """Return sanitised HTML for Markdown, formulas left for the page to typeset."""
    pictures: list[str] = []

    def away(found: re.Match[str]) -> str:
        pictures.append(found[0])
        return f"{_PICTURE}{len(pictures) - 1}x"

    def back(found: re.Match[str]) -> str:
        number = int(found[1])
        return pictures[number] if number < len(pictures) else found[0]

    # Their letters mean nothing to a parser, and are far more than Markdown may have: they come back when it is HTML.
    short = _DATA.sub(away, source) if "data:image/" in source else source
    return html.sanitise(_AWAY.sub(back, _parsed(short, notes)), notes)


def _parsed(source: str, notes: Notes) -> str:
    is_long = len(source) > MAX_SOURCE or source.count("\n") > MAX_LINES or len(_SPECIAL.findall(source)) > MAX_SPECIAL
    if is_long or _NESTED.search(source):
        notes.add(OutputCode.MARKDOWN_AS_TEXT)
        notes.work += of_text(min(len(source), MAX_SOURCE))
        return html.as_text(source[:MAX_SOURCE])
    # Formulas come back as text, and all is sanitised after that.
    return str(_parser().render(source, {"left": of_formulas()}))


def _inline(state: Any, silent: bool) -> bool:
    r"""Take a formula out of a line, before `_` and `\` mean anything: `$…$`, `$$…$$`, `\\(…\\)`, `\\[…\\]`."""
    text = state.src
    if text[state.pos] not in "$\\":
        return False
    found = _found(text, state.pos, state.env["left"])
    if found is None:
        return False
    end, formula = found
    if not silent:
        state.push("formula", "", 0).content = formula
    state.pos = end
    return True


def _found(text: str, start: int, left: Allowance) -> tuple[int, str] | None:
    if text.startswith(("\\\\(", "\\\\["), start):
        close = "\\\\)" if text[start + 2] == "(" else "\\\\]"
        end = text.find(close, start + 3, start + MAX_LINE_FORMULA)
        if end < 0:
            return None
        formula = text[start + 1 : end] + close[1:]
        return (end + 3, formula) if tex.formula(formula, 0, left) == len(formula) else None
    if text.startswith("$", start) and not text.startswith("$$", start) and text[start + 1 : start + 2].isspace():
        return None
    if text.startswith("\\", start) and not text.startswith("\\begin", start):
        return None
    closed = tex.formula(text, start, left)
    return None if closed is None else (closed, text[start:closed])


def _block(state: Any, start: int, last: int, silent: bool) -> bool:
    """Take a formula out that begins a line and goes over several, whatever its lines begin with."""
    position = state.bMarks[start] + state.tShift[start]
    if state.is_code_block(start) or not state.src.startswith(("$$", "\\begin{", "\\\\["), position):
        return False
    found = _found(state.src, position, state.env["left"])
    if found is None or "\n\n" in found[1] or found[0] > state.eMarks[last - 1]:
        return False
    end, formula = found
    line = start
    while state.eMarks[line] < end:
        line += 1
    if state.src[end : state.eMarks[line]].strip():
        return False
    if not silent:
        state.line = line + 1
        token = state.push("formula_block", "", 0)
        token.content, token.map = formula, [start, line + 1]
    return True


@cache
def _parser() -> Any:
    from markdown_it import MarkdownIt

    parser: Any = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    parser.inline.ruler.before("escape", "formula", _inline)
    parser.block.ruler.before("fence", "formula", _block, {"alt": ["paragraph", "reference", "blockquote", "list"]})
    rules = parser.renderer.rules
    rules["formula"] = lambda tokens, index, options, env: html.escape(tokens[index].content)
    rules["formula_block"] = lambda tokens, index, options, env: f"<p>{html.escape(tokens[index].content)}</p>\n"
    return parser
