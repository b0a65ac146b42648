r"""In what leaves the policy a line ends at `\n` and nowhere else: no printed line becomes a part of a document.

The class is closed from both sides. What ends a line is taken from the programs that read: each character of Unicode is
given to each of them. And no string of any message is left out, as all go through `line_ends.tree` before any filter:
here each message type, with each of these characters in each of its strings, is looked through as a whole. What is
exported is then read as its readers do, beside the same outputs unfiltered, which get out.
"""

from __future__ import annotations

import io
import re
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from html import escape as html_escape
from html import unescape as html_unescape
from itertools import pairwise
from pathlib import Path
from typing import Any

import docutils.core
import docutils.nodes
import docutils.statemachine
import jupytext
import mistune
import nbconvert
import nbformat
import nbsphinx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from sandbox_kernel.core.model import Message
from sandbox_kernel.policy import line_ends, safe_text
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.replies import REPLIES
from sandbox_kernel.sdk.execution import Execution, ExecutionError, Logs
from tests.support.cases import each
from tests.support.policy.messages import display, filtered, message, model, update

EVIL = "http://evil.example.org/x.png"
PICTURE = f"![x]({EVIL})"
READERS: dict[str, Callable[[str], int]] = {
    "str.splitlines": lambda text: len(text.splitlines()),
    "docutils": lambda text: len(docutils.statemachine.string2lines(text)),
    "docutils, as a file is read": lambda text: len(
        docutils.statemachine.string2lines(text, tab_width=8, convert_whitespace=True)
    ),
    "universal newlines": lambda text: len(list(io.StringIO(text, newline=None))),
    "re, at the start of a line": lambda text: len(re.findall(r"^", text, re.MULTILINE)),
    "re, at the end of a line": lambda text: len(re.findall(r"$", text, re.MULTILINE)),
}
PARSERS: dict[str, Callable[[str], str]] = {
    "markdown-it": lambda text: str(MarkdownIt("commonmark").enable("table").render(text)),
    "mistune": lambda text: str(mistune.create_markdown(escape=False, plugins=["table", "footnotes"])(text)),
}


@cache
def ends() -> frozenset[str]:
    """Return every character that some reader takes for the end of a line."""
    found = {chr(code) for code in range(sys.maxunicode + 1) for read in READERS.values() if read(f"a{chr(code)}b") > 1}
    kinds = {"Cc", "Cf", "Zl", "Zp", "Zs"}
    candidates = [chr(code) for code in range(sys.maxunicode + 1) if unicodedata.category(chr(code)) in kinds]
    candidates += map(chr, range(0x2400, 0x2440))  # pictures of controls
    for parse in PARSERS.values():
        found |= {sign for sign in candidates if EVIL in images(parse(f"    a{sign}{PICTURE}"))}
    return frozenset(found)


def images(page: str) -> str:
    return " ".join(re.findall(r"<img[^>]*>", page))


@pytest.mark.long
@pytest.mark.slow
def test_every_end_of_line_that_a_reader_knows_is_known_here() -> None:
    assert ends() <= {*line_ends.ENDS, "\n"}
    assert {*line_ends.ENDS, "\n"} - ends() == {"\u2424"}  # mistune before version 3


# --- no string of any message -----------------------------------------------------------------------------------------

ALL = "".join(line_ends.ENDS)
BAD = f"a{'b'.join(line_ends.ENDS)}c"


TRAITS = [
    ("TextModel", "value"),
    ("TextModel", "placeholder"),
    ("TextareaModel", "value"),
    ("HTMLModel", "value"),
    ("HTMLMathModel", "value"),
    ("LabelModel", "value"),
    ("TagsInputModel", "value"),
    ("ButtonModel", "tooltip"),
    ("SelectModel", "_options_labels"),
    ("OutputModel", "outputs"),
]


def contents() -> Iterator[Message]:
    """Yield a message of each type that has a rule, with such a text wherever one may be."""
    bundle = {
        "data": dict.fromkeys(("text/plain", "text/html", "text/markdown", "text/latex"), BAD),
        "metadata": {BAD: BAD},
    }
    bundle["data"]["application/json"] = {BAD: [BAD, {"text/latex": BAD, "data": {"text/latex": BAD}}]}  # type: ignore[assignment]
    anything = {
        **bundle,
        **dict.fromkeys(
            ("name", "text", "prompt", "code", "ename", "evalue", "indent", "implementation", "banner"), BAD
        ),
        "traceback": [BAD, f"File {BAD}:1"],
        "payload": [{"source": "page", "data": {"text/plain": BAD}, "start": 0}],
        "user_expressions": {BAD: {"status": "ok", **bundle}, "e": {"status": "error", "ename": BAD, "evalue": BAD}},
        "matches": [BAD, "a"],
        "help_links": [{"text": BAD, "url": "http://example.org/"}],
        "language_info": {"name": BAD, "version": BAD},
        "history": [[1, 2, BAD], [1, 2, [BAD, BAD]]],
        "body": {"variables": [{"name": BAD, "value": BAD, "text/latex": BAD}], **bundle},
        "event": BAD,
        "execution_state": BAD,
        "transient": {},
        "comms": {BAD: {"target_name": BAD}},
        "found": True,
    }
    metadata = {"engine": BAD, "status": BAD}
    for kind in (*OutputPolicy("safe").types, *REPLIES, "unheard_of_reply"):
        channel: Any = "shell" if kind.endswith("_reply") else "stdin" if kind == "input_request" else "iopub"
        for status in ("ok", "error"):
            content = {**anything, "status": status, "name": "stdout" if kind == "stream" else BAD}
            if kind != "update_display_data":
                yield message(kind, content, channel=channel, metadata=metadata)
    for name, trait in TRAITS:
        outputs = [{"output_type": "stream", "name": "stdout", "text": BAD}, {"output_type": "display_data", **bundle},
                   {"output_type": "error", "ename": BAD, "evalue": BAD, "traceback": [BAD]}]  # fmt: skip
        value: Any = outputs if name == "OutputModel" else [BAD] if name in ("TagsInputModel", "SelectModel") else BAD
        yield model(f"w{name}{trait}", name, **{trait: value})
        yield update(f"w{name}{trait}", **{trait: value})


def left(value: Any, allowed: str = "") -> set[str]:
    return {
        sign for text in line_ends.strings(value) for sign in line_ends.ENDS if sign in text and sign not in allowed
    }


@pytest.mark.parametrize("mode", ["safe", "strict"])
def test_no_string_of_any_message_ends_a_line_otherwise(mode: Any) -> None:
    policy = OutputPolicy(mode)
    passed = set()
    for sent in contents():
        assert left(sent.content) == set(line_ends.ENDS)  # the control
        verdict = policy.apply(sent)
        if verdict.message is not None:
            passed.add(sent.type)
            allowed = "\r" if sent.type == "stream" else ""
            assert left([verdict.message.content, verdict.message.metadata], allowed) == set(), sent.type
    assert {*policy.types, *REPLIES} - passed == {"update_display_data"}
    assert mode == "strict" or {"comm_open", "comm_msg"} <= passed


def test_what_makes_characters_of_others_makes_none_of_these() -> None:
    """References of HTML are read by the sanitiser, by Markdown's parser and by the frame that ours replaces."""
    entities = "".join(f"a&#{ord(end)};&#x{ord(end):x};" for end in line_ends.ENDS)
    for kind in ("text/html", "text/markdown"):
        for around in (
            "<b>{}</b>",
            "<b title='{}'>x</b>",
            "<pre>{}</pre>",
            "<script>/*{}*/</script>",
            "<iframe srcdoc='{}'></iframe>",
        ):
            data, _ = filtered({kind: around.format(entities)})
            assert left(data) == set()
    assert left(filtered({"text/html": "<p>x&#8232;y</p>"})[0]) == set()


@given(st.text(st.sampled_from([*line_ends.ENDS, "\n", "a", "]", "(", "<", "\x1b"])))
def test_text_is_the_same_but_for_the_ends_of_its_lines(text: str) -> None:
    kept = line_ends.ended(text)
    assert left(kept) == set()
    assert line_ends.ended(kept) is kept
    assert re.sub(r"[\n\u240a]", "", kept) == re.sub(f"[{ALL}\n]", "", text)
    assert left(line_ends.ended(text, returns=True), "\r") == set()


def test_a_entry_point_hands_out_the_same_whatever_let_it_pass() -> None:
    assert safe_text.plain("a\r\nb\u2028c\rd\x0be") == "a\nb\nde"
    assert left([safe_text.coloured(BAD), safe_text.tree({BAD: [BAD]}), safe_text.plain(BAD)]) == set()
    assert left(safe_text.PrintedStream().feed("stdout", BAD), "\r") == set()


def test_values_of_any_depth_end_their_lines_or_do_not_pass() -> None:
    deep: Any = "\u2028"
    for _ in range(5000):
        deep = [deep]
    verdict = OutputPolicy("safe").apply(message("status", {"execution_state": deep}))
    assert verdict.message is None


# --- documents --------------------------------------------------------------------------------------------------------


def notebook(outputs: list[Any]) -> Any:
    cells = [nbformat.v4.new_code_cell("x", outputs=[output], id=f"c{number}") for number, output in enumerate(outputs)]
    return nbformat.v4.new_notebook(cells=cells)


CARRIERS: dict[str, Callable[[str], Message]] = {
    "stdout": lambda text: message("stream", {"name": "stdout", "text": text}),
    "text/plain": lambda text: display({"text/plain": text}),
    "traceback": lambda text: message("error", {"ename": "E", "evalue": "e", "traceback": [text]}),
    "text/html": lambda text: display({"text/html": f"<b>{text}</b>"}),
}


def output(sent: Message) -> Any:
    content = dict(sent.content)
    if sent.type == "stream":
        return nbformat.v4.new_output("stream", **content)
    if sent.type == "error":
        return nbformat.v4.new_output("error", **content)
    return nbformat.v4.new_output("display_data", data=dict(content["data"]), metadata={})


def outputs(text: Callable[[str], str], *, safe: bool, carriers: Any = CARRIERS) -> list[Any]:
    """Return outputs of each kind with a text for each end of a line, as a front end writes them down as they came."""
    found = []
    for end in sorted({*line_ends.ENDS, "\n"}):
        for carrier in carriers:
            sent: Message | None = CARRIERS[carrier](text(end))
            if safe and sent is not None:
                sent = OutputPolicy("safe").apply(sent).message
            assert sent is not None
            found.append(output(sent))
    return found


def exported(exporter: type[Any], found: list[Any]) -> str:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        body, _ = exporter().from_notebook_node(notebook(found))
    return str(body)


def parsed(rst: str) -> docutils.nodes.document:
    settings = {"file_insertion_enabled": True, "raw_enabled": True, "report_level": 5, "halt_level": 5}
    return docutils.core.publish_doctree(rst, settings_overrides=settings)


@pytest.mark.slow
@pytest.mark.parametrize("exporter", [nbconvert.RSTExporter, nbsphinx.Exporter])
def test_no_output_includes_a_file_or_markup_in_rst(exporter: type[Any], tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("a-file-of-the-host")

    def attack(end: str) -> str:
        raw = f"x{end}{end}.. raw:: html{end}{end}   <img src={EVIL}>{end}{end}"
        return f"{raw}.. include:: {secret}{end}{end}.. image:: {EVIL}{end}"

    seen = {}
    for safe in (True, False):
        document = parsed(exported(exporter, outputs(attack, safe=safe)))
        raws = [raw.astext().strip() for raw in document.findall(docutils.nodes.raw)]
        seen[safe] = (
            document.astext().count("a-file-of-the-host"),
            sum(raw.startswith("<img") for raw in raws),
            sum(1 for _ in document.findall(docutils.nodes.image)),
        )
    assert seen[True] == (0, 0, 0)
    assert min(seen[False]) >= 10, seen


@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
def test_no_output_is_a_picture_a_link_or_a_tag_in_markdown(parser: str) -> None:
    def attack(end: str) -> str:
        return f"x{end}{end}{PICTURE}{end}{end}<img src={EVIL}>{end}[a]({EVIL}){end}[b]: {EVIL}{end}[b]"

    pages = {
        safe: PARSERS[parser](exported(nbconvert.MarkdownExporter, outputs(attack, safe=safe)))
        for safe in (True, False)
    }
    found = {safe: re.findall(rf"<(?:img|a)\b[^>]*{re.escape(EVIL)}", page) for safe, page in pages.items()}
    assert found[True] == []
    assert len(found[False]) >= 10


MARKUP = [
    "<div>\n\n{}\n\n</div>",
    "<div>\n \t \n{}\n</div>",
    "<div>\n&#32;\n{}\n</div>",
    "<div>\n&#10;\n{}\n</div>",
    "<div>&#10;&#10;{}</div>",
    "<div>\n\u2028\n{}</div>",
    "<div>\r\r{}</div>",
    "<div>\x0b\n\n{}</div>",
    "<div>\n\u00a0\n\u200b\n\u3000\n\u2800\n\n{}</div>",
    "<div>\n<!-- x -->\n\n<!-- \n\n -->\n{}</div>",
    "<div>\n<wbr>\n<script></script>\n\n{}</div>",
    "<b>x</b> {}",
    "{}",
    "<pre>x</pre>\n{}",
    "<pre>\n\n\nx\n\n\n</pre>\n\n{}",
    "<ul>\n<li>x</li>\n</ul>\n\n{}",
    "<b title='x\n\n{}'>x</b>",
    "<b title='`'>x</b>`<b title='`{}'>x</b>",
    "`<b title='`{}'>x</b>",
    "<table><tr><td>\n\n{}\n\n</td></tr></table>",
    "<style>td {{color: red}}\n\n\nb {{color: blue}}</style>\n\n<table><tr><td>{}</td></tr></table>",
    "<div style='white-space:pre'>\n\n{}</div>",
    "<script>1\n\n{}\n\n</script>",
    "<button>\n\n{}\n\n</button>",
    "<iframe srcdoc='<p>x</p>\n\n{}'></iframe>",
    "<details>\n<summary>x</summary>\n\n{}\n</details>",
    "<font>\n\n{}",
    "    {}",
    "x\n===\n\n{}",
]
INJECTED = [PICTURE, f"![x][b]\n\n[b]: {EVIL}", f"[x]({EVIL})", f"![x] ({EVIL})", f"![x]\n({EVIL})", f"![x](<{EVIL}>)",
            f"&#33;&#91;x&#93;&#40;{EVIL})", f"!&lsqb;x&rsqb;({EVIL})"]  # fmt: skip


@pytest.mark.slow
@each("markup", MARKUP)
@pytest.mark.parametrize("parser", PARSERS)
def test_no_markup_becomes_markdown(parser: str, markup: str) -> None:
    """The sanitiser wrote blank lines as they were, and Markdown between them was read."""
    shown_by_cell = []
    for injected in INJECTED:
        kept = filtered({"text/html": markup.format(injected)})[0]["text/html"]
        assert not any(is_blank(line) for line in kept.removesuffix("\n").split("\n")), kept
        again = filtered({"text/html": kept})[0]["text/html"]
        # A browser drops the first line of what is preformatted, if that is empty; so does each parser.
        assert again == kept or ("<pre>&#10;" in kept and again.replace("<pre>", "<pre>&#10;") == kept)
        shown_by_cell.append(output(display({"text/html": kept})))
    page = PARSERS[parser](exported(nbconvert.MarkdownExporter, shown_by_cell))
    assert not re.search(rf"<(?:img|a)\b[^>]*(?:src|href)=\"{re.escape(EVIL)}", page), page


def is_blank(line: str) -> bool:
    return not re.sub(r"&nbsp;|[\u200b-\u200f\u2060-\u206f\u2800\ufeff]", "", line).strip()


@pytest.mark.long
@pytest.mark.slow
@pytest.mark.parametrize("parser", PARSERS)
def test_control_the_same_markup_as_it_was_is_read(parser: str) -> None:
    got_out = [
        markup
        for markup in MARKUP
        if EVIL
        in images(
            PARSERS[parser](
                exported(nbconvert.MarkdownExporter, [output(display({"text/html": markup.format(PICTURE)}))])
            )
        )
    ]
    assert len(got_out) >= 12, got_out


@each(
    "source",
    [
        "<pre>a\n\n\n\nb\n</pre>",
        "<div>a\n\n<p>b</p>\n \t\n</div>",
        "<b title='a\n\nb'>`x` [a](b) [c]: d</b>",
        "# a\n\n- b\n1. c\n\n",
    ],
)
def test_a_page_shows_the_same(source: str) -> None:
    """What is written in another way is the same to a parser of HTML."""
    import html5lib

    def tree(text: str) -> str:
        return str(html5lib.serialize(html5lib.parseFragment(text)))

    kept = filtered({"text/html": source})[0]["text/html"]
    assert tree(kept).strip() == tree(source).strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "exporter",
    [
        nbconvert.LatexExporter,
        nbconvert.ASCIIDocExporter,
        nbconvert.PythonExporter,
        nbconvert.ScriptExporter,
        nbconvert.SlidesExporter,
        nbconvert.HTMLExporter,
        nbconvert.RSTExporter,
        nbconvert.MarkdownExporter,
        nbsphinx.Exporter,
    ],
)
def test_whoever_reads_an_export_finds_the_lines_that_were_written(exporter: type[Any]) -> None:
    r"""And so no line leaves its `Verbatim`, its block of code or its comment. Streams are as `run` writes them."""

    def attack(end: str) -> str:
        return (
            f"x{end}\\end{{Verbatim}}{end}\\input{{/etc/hostname}}{end}----{end}include::/etc/hostname[]{end}import os"
        )

    carriers = ["stdout", "text/plain", "traceback"]  # pandoc, which not each machine has, would read the others
    seen = {}
    for safe in (True, False):
        found = outputs(attack, safe=safe, carriers=carriers)
        for one in found if safe else ():
            if one.output_type == "stream":
                one["text"] = line_ends.settled(one["text"])
        text = exported(exporter, found)
        seen[safe] = len(text.splitlines()) - len(text.removesuffix("\n").split("\n"))
        if exporter in (nbconvert.PythonExporter, nbconvert.ScriptExporter):
            assert "/etc/hostname" not in text  # a script holds no output
        elif safe and exporter is nbconvert.LatexExporter:
            assert text.count("\\begin{Verbatim}") == text.count("\\end{Verbatim}")
            assert "\\input{/etc" not in text
    assert seen[True] == 0
    assert exporter in (nbconvert.PythonExporter, nbconvert.ScriptExporter) or seen[False] > 20


@pytest.mark.parametrize("form", ["md", "Rmd", "py:percent", "py:light", "ipynb"])
def test_nothing_of_an_output_is_in_a_text_notebook(form: str) -> None:
    """Those hold what a person wrote; the names and numbers of cells, too, are not the kernel's."""
    found = notebook(outputs(lambda end: f"x{end}# %%{end}import os{end}```{end}", safe=True))
    text = jupytext.writes(found, form)
    assert form == "ipynb" or "import os" not in text
    again = jupytext.reads(text, form)
    assert [cell.source for cell in again.cells] == ["x"] * len(found.cells)
    assert text.removesuffix("\n").split("\n") == text.splitlines()


@pytest.mark.parametrize("parser", PARSERS)
def test_no_answer_of_the_sdk_becomes_markdown_where_a_caller_displays_it(parser: str) -> None:
    """A block of preformatted text ends at its tag, wherever a line does, and Markdown goes on behind it."""
    text = f"x\n\n{PICTURE}\n\n<img src={EVIL}>\n"
    answer = Execution(
        logs=Logs(stdout=[text], stderr=[text]), error=ExecutionError(name="E", value="e", traceback=text)
    )
    pages = {
        "answer": answer._repr_mimebundle_()["text/html"],
        "as it was": "".join(f"<pre>{html_escape(one)}</pre>" for one in (text, text, text)),
    }
    found = {
        name: EVIL
        in images(PARSERS[parser](exported(nbconvert.MarkdownExporter, [output(display({"text/html": page}))])))
        for name, page in pages.items()
    }
    assert found == {"answer": False, "as it was": True}
    assert html_unescape(pages["answer"]).count(text) == 3


# --- lines that are drawn over ----------------------------------------------------------------------------------------


@each(
    ("text", "stands"),
    [
        ("a\rb", "b"),
        ("a\r\nb\r\n", "a\nb\n"),
        ("a\rb\rc\nd\re\n", "c\ne\n"),
        ("a\r", "a"),
        ("a\r\r\nb", "a\nb"),
        ("\r 50%|\u2588 | 1/2\r100%|\u2588\u2588| 2/2\n", "100%|\u2588\u2588| 2/2\n"),
        ("a" * 100_000 + "\r" * 100_000 + "b", "b"),
        ("no returns", "no returns"),
    ],
)
def test_a_settled_stream_is_what_stands_at_the_end(text: str, stands: str) -> None:
    assert line_ends.settled(text) == stands


@pytest.mark.parametrize("cut", [False, True])
def test_what_is_drawn_over_is_no_markup_for_those_who_keep_the_return(cut: bool) -> None:
    """A front end may write a stream as it came, and nbconvert's Markdown takes the return for an end of line."""
    attack = f"x\r{PICTURE}\r<img src={EVIL}>\r[a]: {EVIL}\r.. include:: x\r\r```\r"
    found = {}
    for safe in (True, False):
        policy = OutputPolicy("safe")
        pieces = [*attack] if cut else [attack]
        sent = [message("stream", {"name": "stdout", "text": piece}) for piece in pieces]
        if safe:
            sent = [one for one in (policy.apply(one).message for one in sent) if one is not None]
        text = "".join(one.content["text"] for one in sent)
        assert text.replace("\u2060", "") == attack
        page = PARSERS["markdown-it"](
            exported(nbconvert.MarkdownExporter, [output(message("stream", {"name": "stdout", "text": text}))])
        )
        found[safe] = len(re.findall("<img", page)), any(line.startswith("..") for line in text.splitlines())
    assert found == {True: (0, False), False: (2, True)}


def test_cells_that_take_turns_are_told_apart() -> None:
    """A thread of an earlier cell prints beside the one that runs."""
    policy = OutputPolicy("safe")
    pieces = [
        ("a", "x\r!["),
        ("b", "y\n"),
        ("a", "x]"),
        ("b", "z](c)"),
        ("a", f"({EVIL})"),
        ("b", "\n"),
        ("a", "\n](d)"),
    ]
    shown_by = {"a": "", "b": ""}
    for parent, text in pieces:
        passed = policy.apply(message("stream", {"name": "stdout", "text": text}, parent=parent)).message
        assert passed is not None
        shown_by[parent] += passed.content["text"]
    assert shown_by == {"a": f"x\r![x]\u2060({EVIL})\n](d)", "b": "y\nz](c)\n"}


@each(
    "bar",
    [
        "\r 50%|\u2588\u2588   | 1/2 [00:01<00:01,  1.00it/s]",
        "\r  0%|          | 0/3 [00:00<?, ?it/s]",
        "\r[=====>    ] 50% (1.5 MB)",
        "\r\x1b[K... done",
        "a\b \b",
    ],
)
def test_honest_bars_come_as_they_were_sent(bar: str) -> None:
    policy = OutputPolicy("safe")
    for first, second in pairwise([bar] * 3):
        sent = message("stream", {"name": "stderr", "text": first})
        assert policy.apply(sent).message is sent
        assert first == second
