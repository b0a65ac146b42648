"""No front end parses a language of a cell's: Markdown goes out as a tree, and formulas meet no markup."""

# ruff: noqa: E501 (an attack reads best on one line)

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies
from markdown_it import MarkdownIt
from nbconvert.filters.markdown_mistune import markdown2html_mistune as markdown2html

from sandbox_kernel.core.model import OutputMode
from sandbox_kernel.policy import markdown, tex
from sandbox_kernel.policy.allowance import MAX_ELEMENTS
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.tex import MACROS
from tests.support.cases import each
from tests.support.policy.check import faults
from tests.support.policy.messages import filtered, message, model, update

RUN = "window.pwned=1"
ACTS = f'" style="animation:fadeIn 1s" onanimationstart="{RUN}" z="'

MARKDOWN = {
    "a formula in an address": f"[x](https://a.test/${ACTS}$)",
    "a formula in a bare address": f"https://a.test/${ACTS}$",
    "a formula in an address without scheme": f"www.a.test/${ACTS}$",
    "a formula in a cell of a table": f"|a|\n|-|\n|[x](https://a.test/${ACTS}$)|",
    "a formula in an info string": f"```py${ACTS}$\nx\n```",
    "parentheses": f"[x](https://a.test/\\\\({ACTS}\\\\))",
    "an environment": f"[x](https://a.test/\\begin{{a}}{ACTS}\\end{{a}})",
    "two dollars": f"[x](https://a.test/$${ACTS}$$)",
    "an info string": f'```python" autofocus tabindex=1 onfocus="{RUN}" z="\nx\n```',
    "an info string that loads": '```python" style="background:url(http://a.test/leak)\nx\n```',
    "a title": f"[x](https://a.test/ '${ACTS}$')",
    "a formula in an image": f"![x](https://a.test/${ACTS}$)",
    "a reference": f"[x]\n\n[x]: https://a.test/${ACTS}$",
    "raw HTML over two lines": f"<a href='https://a.test/$\n{ACTS}$'>x</a>",
    "a mail address": f"a@a.test${ACTS}$",
    "an address after words": "Please read a.test and a.test/x for more.",
    "a diagram": "~~~mermaid\ngraph TD\n~~~",
    "a footnote": "x[^1]\n\n[^1]: https://a.test/",
}
"""Each was read by some front end as more than the policy saw in it."""

READ = re.compile(r"[$\\`*_~<>\[\]{}|#@&^=+]|://|\.\S|:\S|^\s*[\d-]|^\s", re.MULTILINE)
"""What every construct of every dialect needs at least one of."""


@each("name", MARKDOWN)
@each("mode", ["safe", "strict"])
def test_markdown_that_a_parser_could_read_goes_out_as_a_tree(name: str, mode: OutputMode) -> None:
    """Passed as they are, most of these run in JupyterLab."""
    data, _ = filtered({"text/markdown": MARKDOWN[name]}, OutputPolicy(mode))
    assert "text/markdown" not in data
    assert faults(data["text/html"]) == []


@each(
    "source",
    [
        "one $x$", "1. one", "1) one", "- one", "a_b_", "*a*", "see a.test", "a@b", "x: y:smile:", "    code", "\tcode",
        "# x", "x\n===", "a\n---", "|a|", "[x]", "`x`", "~~~", "<b>", "&amp;", "\\(x\\)", "x^2^", "H~2~", "==x==", "[^1]",
        "{.x}", "x http", "http://a", "x\n: y", "i. one", "(1) one\n(2) two", " x", "x  ", "x\r\ny", "x\x1b]0;t\x07", "x\ty",
    ],
)  # fmt: skip
def test_what_passes_as_markdown_holds_nothing_to_read(source: str) -> None:
    if markdown.is_text(source):
        assert source in SET_APART or not READ.search(source)
        assert source in ("x http", *SET_APART)


SET_APART = ("1. one", "- one", "*a*", "|a|", "`x`")
"""Words all the same, and nothing to look up."""
TAGS = set("p h1 h2 h3 h4 h5 h6 ul ol li strong em code table thead tbody tr th td br".split())  # noqa: SIM905


def found_by_parsers(source: str) -> set[str]:
    """Return the tags, with names of attributes, that real parsers make: those of nbconvert and of markdown-it."""
    found: set[str] = set()

    class Tags(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            named = dict(attrs)
            if tag == "a" and named.get("class") == "anchor-link":
                return  # nbconvert's own, beside a heading
            assert "-" in (identity := named.pop("id", None) or "-") or identity.istitle()
            if named.keys() == {"style"} and re.fullmatch("text-align: ?(left|right|center)", named["style"] or ""):
                named = {}
            if tag == "ol":
                named.pop("start", None)
            found.add(" ".join([tag, *named]))

    page = Tags()
    page.feed(markdown2html(source))
    page.feed(MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"]).render(source))
    return found


@pytest.mark.slow
@hypothesis.given(strategies.from_regex(markdown._PLAIN, fullmatch=True))  # noqa: SLF001
@hypothesis.settings(deadline=None)
def test_parsers_make_no_more_of_what_passes_than_words_set_apart(source: str) -> None:
    if markdown.is_text(source):
        assert found_by_parsers(source) <= TAGS
        assert markdown.elements(source) >= markdown2html(source).count("<td") // 2


def test_control_parsers_make_more_of_what_does_not_pass() -> None:
    source = "a <https://a.test/> and [x](https://a.test/) and <b>x</b>"
    assert not markdown.is_text(source)
    assert {"a href", "b"} <= found_by_parsers(source)


@each(
    "source",
    ["# Title\n\nSome **bold** text, and `code`.", "- a\n- b\n  - c", "| a | b |\n|---|--:|\n| 1 | 2.5 |", "The *mean* is 3.14."],
)  # fmt: skip
def test_simple_markdown_stays_as_a_stored_notebook_has_it(source: str) -> None:
    bundle = {"text/markdown": source, "text/plain": "<IPython.core.display.Markdown object>"}
    assert filtered(bundle) == (bundle, filtered(bundle)[1])
    assert filtered(bundle)[1].reasons == ()


def test_a_table_whose_rows_are_filled_up_goes_out_as_a_tree() -> None:
    """Twenty thousand signs of Markdown are a table of fifty million cells."""
    assert not markdown.is_text("|a|b|c|\n|-|-|-|\n|a|\n")
    assert not markdown.is_text("|" + "a|" * 31 + "\n")
    assert markdown.is_text("- *one*\n" * 100)
    assert not markdown.is_text("- *one*\n" * 1000), "the extension shows large HTML apart, and no Markdown"


def test_markdown_in_replies_and_widgets_is_a_tree_as_well() -> None:
    hostile = MARKDOWN["an info string"]
    policy = OutputPolicy("safe")
    expression = {"status": "ok", "data": {"text/markdown": hostile}, "metadata": {}}
    sent = message("execute_reply", {"status": "ok", "user_expressions": {"a": expression}}, channel="shell")
    reply = policy.apply(sent).message
    assert reply is not None
    found: list[dict[str, Any]] = [reply.content["user_expressions"]["a"]["data"]]
    reply = policy.apply(message("inspect_reply", {"found": True, "data": expression["data"]}, channel="shell")).message
    assert reply is not None
    found.append(reply.content["data"])
    policy.apply(model("o", "OutputModel"))
    output = {"output_type": "display_data", "data": expression["data"], "metadata": {}}
    changed = policy.apply(update("o", outputs=[output])).message
    assert changed is not None
    found.append(changed.content["data"]["state"]["outputs"][0]["data"])
    for data in found:
        assert "text/markdown" not in data
        assert faults(data["text/html"]) == []


# --- formulas ---------------------------------------------------------------------------------------------------------

KEPT_BY_THE_PAGE = [
    "def", "gdef", "edef", "xdef", "let", "global", "newcommand", "renewcommand", "providecommand", "newenvironment",
    "renewenvironment", "DeclareMathOperator", "DeclarePairedDelimiter", "newtagform", "renewtagform", "usetagform",
    "definecolor", "label", "tag", "ref", "eqref", "require", "catcode", "futurelet", "setOptions", "mathtoolsset",
]  # fmt: skip
ACTING = [
    "href", "url", "class", "cssId", "style", "data", "htmlData", "htmlClass", "includegraphics", "bbox", "mmlToken",
    "unicode", "csname", "action", "toggle", "mathtip", "texttip", "input", "include", "write", "openin", "VerbatimInput",
    "lstinputlisting", "verbatiminput", "special", "immediate", "read", "loop", "usepackage", "expandafter", "verb",
    "raise", "lower", "kern", "hskip", "rule", "smash", "rlap", "llap", "moveleft", "mathchoice", "pmb",
]  # fmt: skip
BAD_FORMULAS = [
    *(rf"\{name}{{x}}{{y}}" for name in KEPT_BY_THE_PAGE + ACTING),
    r"\hre<wbr>f{javascript:x}{y}", r"\hre%" "\n" r"f{x}{y}", "^^5cinput{x}", "x^^41", r"\begin{filecontents}x\end{filecontents}",
    r"\begin{verbatim}x\end{verbatim}", r"\begin{array}{*{999999}{c}}x\end{array}", r"\\[-99em] x", r"\color{x;y:url(z)} a",
    "#1", "}{", "{" * 50 + "}" * 50, r"\left(" * 50 + r"\right)" * 50, r"\!" * 100, "x" * 20_000,
]  # fmt: skip


class Texts(HTMLParser):
    """Runs of text as a finder of formulas reads them: over line breaks, and not in code."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.runs, self._skipped = [""], 0
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self._skipped += tag in ("pre", "code")
        if tag not in ("br", "wbr"):
            self.runs.append("")
        elif tag == "br":
            self.runs[-1] += "\n"

    def handle_endtag(self, tag: str) -> None:
        self._skipped -= tag in ("pre", "code")
        if tag not in ("br", "wbr"):
            self.runs.append("")

    def handle_comment(self, data: str) -> None:
        pass

    def handle_data(self, data: str) -> None:
        if not self._skipped:
            self.runs[-1] += data


FOUND = re.compile(r"\$\$.*?\$\$|\$.+?\$|\\\(.*?\\\)|\\\[.*?\\\]|\\begin\s*\{([^}]*)\}.*?\\end\s*\{\1\}", re.DOTALL)


def typeset(source: str) -> list[str]:
    """Return what a page could take for formulas in HTML."""
    return [match[0] for run in Texts(source).runs for match in FOUND.finditer(run)]


def test_control_the_page_would_find_these_in_what_is_not_filtered() -> None:
    assert typeset(r"<p>$\def\x{1}$ and \(y\)<br>$a<br>b$ <code>$c$</code></p>") == [r"$\def\x{1}$", r"\(y\)", "$a\nb$"]


@pytest.mark.slow
@each("inside", BAD_FORMULAS)
@each("around", ["$%s$", "$$%s$$", r"\(%s\)", r"\[%s\]", r"\begin{align}%s\end{align}", r"\$%s\$ $"])
@each("mime", ["text/html", "text/markdown", "text/latex"])
def test_a_formula_of_anything_else_than_ordinary_macros_is_text(mime: str, around: str, inside: str) -> None:
    """A page keeps definitions for all notebooks in it, LaTeX reads files, and some macros act or leave their place."""
    source = around.replace("%s", inside)
    if mime == "text/html":
        source = f"<p>{source}</p>"
    data, _ = filtered({mime: source})
    assert "text/latex" not in data
    for formula in typeset(data.get("text/html", "")):
        assert all(name in MACROS or name in ("begin", "end") for name in re.findall(r"\\([A-Za-z]+)", formula)), (
            formula
        )
        assert "^^" not in formula
        assert len(formula) <= tex.MAX_FORMULA
    again, _ = filtered(data)
    assert again == data


@each("inside", BAD_FORMULAS)
def test_a_label_is_no_place_for_them_either(inside: str) -> None:
    for around in ("$%s$", r"\(%s\)", r"a $x$ \[%s\]"):
        shown = tex.clean(around.replace("%s", inside))
        assert not FOUND.search(shown)
        assert tex.clean(shown) == shown


@each(
    "source",
    [
        r"<p>$a<br>\def\x{1}$</p>", r"<p>$\de<wbr>f\x{1}$</p>", r"<p>$\de<!-- -->f\x{1}$</p>", r"<p>$a$$\def\x{1}$</p>",
        r"<p>\$$\def\x{1}$</p>", r"<p>$a<b>$</b>\def\x{1}$</p>", r"<p>$x$\(\def\x{1}\)</p>", r"<p>$\{$\def\x{1}$</p>",
        r"<p>\\(\def\x{1}\\)</p>", r"<p>&#36;&#92;def\x{1}&dollar;</p>", r"<p>$\text{$\def\x{1}$}$</p>",
        r"<p>\begin {align}\def\x{1}\end {align}</p>", r"<p>\eqref{x} \ref{x}</p>", r"<p>\begin{x}\def\y{}\end{x}</p>",
    ],
)  # fmt: skip
def test_no_formula_is_put_together_from_pieces(source: str) -> None:
    data, _ = filtered({"text/html": source})
    assert not any("def" in formula for formula in typeset(data["text/html"]))
    assert not any(re.search(r"\\(?:eq)?ref", run) for run in Texts(data["text/html"]).runs)


@pytest.mark.parametrize(
    "source",
    [
        r"$\displaystyle \int\limits_{0}^{\infty} e^{- x^{2}}\, dx$",
        r"$\displaystyle \left[\begin{matrix}1 & x\\\frac{1}{2} & \sqrt{2}\end{matrix}\right]$",
        r"$\displaystyle \left\{\begin{array}{lcl}1 & \text{for}\: x < 1 \\0 & \text{otherwise} \end{array}\right.$",
        r"$\displaystyle \operatorname{atan}{\left(x \right)} + \log{\left(y \right)} \bmod 2$",
        r"\begin{equation}\sum_{i=1}^{n} \hat{\beta}_i\end{equation}",
        "$$\\begin{aligned}a &= b \\\\[2pt] &= c\\end{aligned}$$",
        "\\begin{tabular}{lrr}\n\\toprule\n & a & b \\\\\n\\midrule\n0 & 1 & 2\\% \\\\\n\\bottomrule\n\\end{tabular}\n",
        "The value is $x = 1$ and $y = 2$.",
        r"$\color{red}{x} \approx \textcolor{#00ff00}{y}$",
    ],
)
def test_ordinary_formulas_stay_as_they_are(source: str) -> None:
    data, verdict = filtered({"text/plain": "x", "text/latex": source})
    assert data == {"text/plain": "x", "text/latex": source}
    assert verdict.reasons == ()
    assert tex.clean(source) == source


def unescaped(source: str) -> str:
    """Return what Python makes of LaTeX in a literal without `r`."""
    return re.sub(r"\\([abtvf])", lambda match: "\a\b\t\v\f"["abtvf".index(match[1])], source)


@each("name", sorted(name for name in MACROS if name[0] in "abtvf" and name != "textcolor"))
def test_a_macro_that_was_written_without_an_r_is_what_its_author_meant(name: str) -> None:
    """Python makes a control of these letters behind a backslash, and an end of line of `n` and `r`."""
    meant = rf"$\displaystyle x^2 \{name} {{1}}{{2}}$"
    sent = unescaped(meant)
    assert sent != meant
    data, verdict = filtered({"text/plain": "x", "text/latex": sent})
    assert data == {"text/plain": "x", "text/latex": meant}
    assert verdict.reasons == ()


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("$\\displaystyle \text{if } x$", r"$\displaystyle \text{if } x$"),
        ("$$\begin{matrix}\n\t1 & 2\n\\end{matrix}$$", "$$\\begin{matrix}\n 1 & 2\n\\end{matrix}$$"),
        ("$a\fb$", "$a b$"),
        ("$a$\r\n", "$a$\n"),
    ],
)
def test_other_controls_in_latex_are_spaces(sent: str, shown: str) -> None:
    assert filtered({"text/latex": sent})[0] == {"text/latex": shown}


@each("sent", ["$\fref{x}$", "$\fbox{\\def\\x{1}}$", "$x$\x0bb\\def\\x{1}", "$\x0bspace{1cm}$", "$a\x1b[1m$"])
def test_what_would_act_does_not_pass_as_a_lost_macro(sent: str) -> None:
    data, _ = filtered({"text/latex": sent})
    assert set(data) == {"text/plain"} or not re.search(r"\\(href|fbox|def|vspace)", data["text/latex"])
    assert not re.search(r"[\a\b\v\f\r]", "".join(data.values()))


@pytest.mark.parametrize(
    "source",
    [
        "$<img src=x onerror=x>$",
        "$[x](http://a.test)$",
        "$![x](y)$",
        "$x$ http://a.test",
        "$x$ www.a.test",
        "$`x`$",
        "    $x$",
    ],
)
def test_latex_that_is_also_markdown_is_text(source: str) -> None:
    """VS Code reads text/latex as Markdown with HTML in it."""
    data, _ = filtered({"text/latex": source})
    assert set(data) == {"text/plain"}


def test_so_many_formulas_that_a_page_would_be_busy_are_text() -> None:
    data, _ = filtered({"text/html": "<p>" + "<b>$x$</b> " * 5000 + "</p>"})
    assert len(typeset(data["text/html"])) == MAX_ELEMENTS / 2 // (tex.FORMULA + 3 * tex.BOX)
    data, _ = filtered({"text/html": "<p>" + "$" * 1_000_000 + "</p>"})
    assert len(data["text/html"]) < 1_200_000


def test_a_note_of_ours_is_no_passport() -> None:
    """What looks like one, at the end of an output, is filtered as all the rest is."""
    forged = r"<b>x</b><div><small>[sandbox_kernel: removed $\def\x{1}$; setting: outputs]</small></div>"
    data, _ = filtered({"text/html": forged})
    assert typeset(data["text/html"]) == []
    data, _ = filtered({"text/markdown": "x\n\n[sandbox_kernel: www.a.test]"})
    assert "text/markdown" not in data


LINK = r"$\href{javascript:alert(1)}{x}$"
NAMES = {
    "a tag": {"text/html": f"<p{LINK} src=x:y>x"},
    "a tag in Markdown": {"text/markdown": f"<i>a</i> <p{LINK} src=x:y>x"},
    "a tag of a widget": {"value": f"<p{LINK} src=x:y>x"},
    "a handler": {"text/html": f"<p onerror=1 onload{LINK}=1 data-commandlinker-x{LINK}=1>x"},
    "a type": {"text/plain": "x", f"text/{LINK}": "x", f"application/vnd.plotly{LINK}": "x"},
    "a type beside HTML": {"text/html": "<b>x</b>", f"image/{LINK}": "x", "image/\u202e\x1b]0;a\x07": "x"},
}
"""Words of a cell's that a note of ours could repeat."""


@each("name", NAMES)
@each("mode", ["safe", "strict"])
def test_no_note_of_ours_repeats_what_a_page_typesets(name: str, mode: OutputMode) -> None:
    """The name of a tag was repeated as it was, and MathJax defined macros for the whole page and made links of it."""
    policy = OutputPolicy(mode)
    if "value" in NAMES[name]:
        notes = policy.apply(model("a", "HTMLModel", **NAMES[name])).reasons
    else:
        data, verdict = filtered(NAMES[name], policy)
        notes = verdict.reasons
        assert faults(data.get("text/html", "")) == []
        assert LINK not in data.get("text/html", "")
        assert "\x1b" not in "".join(data.values())
    assert notes or "Markdown" in name
    assert [note for note in notes if not re.fullmatch(r"[ -#%-\[\]-~]+", note)] == []


def test_control_a_plain_name_is_repeated() -> None:
    assert "<p-x>" in " ".join(filtered({"text/html": "<p-x src=x:y>x"})[1].reasons)
    assert "text/x-y" in " ".join(filtered({"text/x-y": "x"})[1].reasons)


# --- metadata, and power over a terminal ------------------------------------------------------------------------------


@each(
    "size",
    [
        "1 onload=",
        "eval(T_a.title)",
        "1\nonload=x",
        "calc(1px)",
        "1e400",
        "1px x",
        "-1",
        "",
        " ",
        True,
        None,
        [1],
        {"a": 1},
        1e9,
        -5,
    ],
)
def test_a_size_is_a_number(size: Any) -> None:
    """An export of a notebook writes it into a tag, without quotes."""
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
    metadata = {"image/png": {"width": size, "height": size}, "width": size}
    sent = message("display_data", {"data": {"image/png": png}, "metadata": metadata, "transient": {}})
    shown = OutputPolicy("safe").apply(sent).message
    assert shown is not None
    assert shown.content["metadata"] == {"image/png": {}}
    for good in (300, 12.5, "300", "50%", "20.5px"):
        metadata = {"image/png": {"width": good, "height": good}}
        sent = message("display_data", {"data": {"image/png": png}, "metadata": metadata, "transient": {}})
        assert OutputPolicy("safe").apply(sent).message is sent


@pytest.mark.parametrize(
    "line",
    [
        "File x' onmouseover='f()' y=':1", "Fi\x1b[41mle x'y:1", "x' onfocus='f()' y='Cell In[1], line 1",
        "x'\x1b[0KCell \x1b[32mIn[1]\x1b[0m, line 1", "'Input \x1b[0;32mIn [1]\x1b[0m", "File javascript:f()//:1",
        "File java\x1b[1mscript:f()//:1", "javascript:f()//Cell In[1], line 1", "a\nFile x'y:1\nb",
    ],
)  # fmt: skip
def test_no_place_of_an_error_leaves_the_address_of_its_link(line: str) -> None:
    """VS Code writes the place into `<a href='...'>`, colours taken away."""
    shown = OutputPolicy("safe").apply(message("error", {"ename": "E", "evalue": "x", "traceback": [line]})).message
    assert shown is not None
    text = re.sub(r"\x1b\[.+?m", "", shown.content["traceback"][0])
    assert not re.search(r"File\s|Cell\s*In|Input\s", text)
    assert text.replace("\u2060", "") == re.sub(r"\x1b\[[0-9;]*[mK]", "", line)


@pytest.mark.parametrize("between", ["", "\x1b[42m", "\x1b[1m\x1b[49m", "\x1b[0K"])
def test_a_tag_is_cut_ahead_of_colours_that_a_front_end_takes_away(between: str) -> None:
    line = f"<{between}a href=''><{between}img src=x></a>"
    shown = OutputPolicy("safe").apply(message("error", {"ename": "E", "evalue": "x", "traceback": [line]})).message
    assert shown is not None
    assert shown.content["traceback"][0].startswith(f"<\x1b[29m{between}a")
    assert "<a" not in re.sub(r"\x1b\[4\dm", "", shown.content["traceback"][0])


@pytest.mark.parametrize(
    "line",
    [
        "File \x1b[32m~/x.py:3\x1b[39m, in f(a)", "File C:\\x.py:3, in f()", "    print('a File')", "Cell \x1b[32mIn[1], line 1\x1b[39m",
        "Input \x1b[0;32mIn [1]\x1b[0m, in <module>", "  File \"/usr/lib/x.py\", line 3, in f", "----> 1 Cell('x')",
    ],
)  # fmt: skip
def test_an_honest_place_stays_as_it_is(line: str) -> None:
    sent = message("error", {"ename": "E", "evalue": "x", "traceback": [line]})
    assert OutputPolicy("safe").apply(sent).message is sent


@pytest.mark.parametrize("gap", ["<wbr>", "<br>", "<wbr><!-- --><wbr>"])
@pytest.mark.parametrize("around", [("(", ")"), ("[", "]"), ("begin{equation}", "end{equation}")])
def test_no_backslash_stands_before_a_break_that_a_finder_reads_over(gap: str, around: tuple[str, str]) -> None:
    r"""`\<wbr>(\de<wbr>f...` is a formula to a finder, and defines a macro for the whole page."""
    source = rf"a \{gap}{around[0]}\de{gap}f\alpha{{x}}\{gap}{around[1]} b".replace("\\\\", "\\")
    markdown = source.replace(f"\\{gap}", f"\\\\{gap}")
    for bundle in ({"text/html": source}, {"text/markdown": markdown}):
        data, _ = filtered(bundle, OutputPolicy("strict"))
        texts = re.split(r"<(?!w?br)[^>]*>", data["text/html"])
        assert any("de<wbr>f" in text or "de<br" in text or "de" in text for text in texts)
        for text in texts:
            assert "\\" not in text or text == "\\", data


@pytest.mark.parametrize(
    "control", ["\x1b]0;t\x07", "\x1b]8;;http://a.test\x1b\\x", "\x1b[2J", "\x9b2J", "\x07", "\x90q\x9c"]
)
def test_no_text_of_a_bundle_has_power_over_a_terminal(control: str) -> None:
    bundle = {
        "text/plain": f"a{control}b",
        "text/markdown": f"a{control}b",
        "text/latex": f"$a{control}b$",
        "text/html": f"<p title='{control}' class='x{control}'>a{control}b</p>",
        "application/json": {f"a{control}": [f"b{control}", {"c": control}]},
    }
    for chosen in [bundle, *({name: value} for name, value in bundle.items())]:
        for mode in ("safe", "strict"):
            data, _ = filtered(chosen, OutputPolicy(mode))
            assert not re.search(
                r"[\x00-\x08\x0b-\x1f\x7f-\x9f]|\\u00(?:1b|9)", repr(data).encode().decode("unicode_escape")
            )
    framed, _ = filtered({"text/html": f"<script>1</script>{control}"})
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", framed["text/html"])
    entity, _ = filtered({"text/html": "<p>&#27;]0;t&#7; &#155;2J</p>"})
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]", entity["text/html"])


def test_a_traceback_holds_no_html() -> None:
    """VS Code looks for links in tracebacks, and puts what it finds into the page as it is."""
    line = "<a href=''><img src=x onerror=x></a> in <module>, <class 'int'>, 1 < 2, a<b"
    sent = message("error", {"ename": "E", "evalue": "x", "traceback": [line]})
    shown = OutputPolicy("safe").apply(sent).message
    assert shown is not None
    assert not re.search(r"<(?:a|img|/a|b)", shown.content["traceback"][0])
    assert shown.content["traceback"][0].replace("\x1b[29m", "") == line
    honest = ["File <ipython-input-1>", "Cell In[1], line 1, in <module>", "TypeError: <class 'int'> <= 1"]
    sent = message("error", {"ename": "E", "evalue": "x", "traceback": honest})
    assert OutputPolicy("safe").apply(sent).message is sent


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg=="


@pytest.mark.parametrize(
    "source",
    [
        f"![](data:image/png;base64,{PIXEL}) ![](data:image/png;base64,sandboxPicture0x)",
        f"![](data:image/png;base64,{PIXEL})\n\n<img src='data:image/png;base64,sandboxPicture7x'>",
        f"`data:image/png;base64,{PIXEL}` $data:image/png;base64,sandboxPicture0x$",
        f"[x](data:image/png;base64,{PIXEL})<b title='data:image/png;base64,sandboxPicture0x'>",
        f"![](data:image/svg+xml;base64,{'PHN2ZyBvbmxvYWQ9ImFsZXJ0KDEpIj48c2NyaXB0PjE8L3NjcmlwdD48L3N2Zz4='})",
    ],
)
def test_a_picture_of_markdown_is_a_picture_wherever_its_mark_stands(source: str) -> None:
    """While Markdown is parsed a mark stands for a picture; one that a cell writes gets it nothing but a picture."""
    data, _ = filtered({"text/markdown": source})
    assert faults(data["text/html"]) == []
    assert not re.search("sandboxPicture[1-9]x", data["text/html"].replace("sandboxPicture7x", ""))
