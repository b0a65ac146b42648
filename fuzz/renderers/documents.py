"""Documents out of grammars: Markdown, formulas, HTML, SVG and colours, and above all their seams. The same for a seed.

Each document has a number, which its scripts say when they run, and which is in the addresses that it asks for.
"""

# ruff: noqa: E501 (a construct reads best on one line)

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.policy.hostile import EVIL, HTML, MARKDOWN, RUN

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
MAX_LENGTH = 4000
"""Characters of one document."""


@dataclass(frozen=True, slots=True)
class Document:
    """One output of a kernel, as its message says it."""

    number: int
    kind: str
    """display_data, stream or error."""
    content: dict[str, Any] = field(hash=False)


def document(seed: int, number: int) -> Document:
    """Return the document of this number."""
    return _Maker(random.Random(f"{seed}/{number}"), number).document()


def corpus() -> list[Document]:
    """Return the corpus of hostile HTML and Markdown, each entry with a number of its own."""
    entries = [("text/html", text) for text in HTML.values()] + [("text/markdown", text) for text in MARKDOWN.values()]
    result = []
    for number, (name, text) in enumerate(entries, 10_000_001):
        data = {name: named(text, number)}
        result.append(Document(number, "display_data", {"data": data, "metadata": {}, "transient": {}}))
    return result


def named(text: str, number: int) -> str:
    """Return an entry of the corpus whose script and addresses say the number."""
    text = text.replace(RUN, fired(number)).replace("alert(1)", fired(number))
    return text.replace(EVIL, f"http://evil.test/{number}")


def fired(number: int) -> str:
    return f"window.__fired({number})"


def address(number: int) -> str:
    return f"http://evil.test/{number}/leak"


def name_of(number: int) -> str:
    """Return the name of macros that a document defines: letters, as TeX knows no other names."""
    digits = ""
    while number:
        number, digit = divmod(number, 25)
        digits += "abcdefghijklmnopqrstuvwxy"[digit]
    return f"fz{digits}z"


def number_of(name: str) -> int:
    """Return the number in such a name, 0 if there is none."""
    found = re.search("fz([a-y]+)z", name)
    return (
        sum("abcdefghijklmnopqrstuvwxy".index(digit) * 25**place for place, digit in enumerate(found[1]))
        if found
        else 0
    )


QUOTES = ('"', "'", "", "`", "&quot;", "&#34;", "&#x27;", '\\"', "&amp;quot;", "%22", "\u201d")
SPACES = (" ", "\t", "\n", "/", "\f", "  ", "\u00a0", "\r", "", "\0", "\u200b", "/ ", "\x1b[31m")
INFO = (
    "python",
    "",
    "js",
    "c++",
    "mermaid",
    "math",
    "html",
    "latex",
    "none",
    "{python}",
    "Python ",
    "text/html",
    "ipython",
)
ENVIRONMENTS = (
    "align",
    "equation*",
    "matrix",
    "array",
    "aligned",
    "document",
    "x",
    "verbatim",
    "table",
    "cases",
    "eqnarray",
)
MACROS = (
    r"\alpha", r"\frac12", r"\text{a}", r"\text{ $y$ }", r"\href{U}{x}", r"\href{javascript:F}{x}", r"\style{position:fixed}{x}",
    r"\class{jp-Dialog}{x}", r"\cssId{NAME}{x}", r"\data{commandlinker-command=x}{y}", r"\def\NAME{1}", r"\gdef\NAME{1}", r"\let\NAME=\alpha",
    r"\global\let\NAME\beta", r"\newcommand{\NAME}{1}", r"\renewcommand{\alpha}{NAME}", r"\providecommand\NAME{1}",
    r"\newenvironment{NAME}{a}{b}", r"\renewenvironment{matrix}{a}{b}", r"\DeclareMathOperator{\NAME}{x}", r"\newtagform{NAME}{(}{)}", r"\usetagform{NAME}",
    r"\DeclarePairedDelimiter\NAME{|}{|}", r"\require{html}", r"\require{unicode}", r"\unicode{x41}", r"\label{NAME}", r"\tag{NAME}", r"\ref{a}", r"\eqref{a}",
    r"\mmlToken{mi}[href='U']{x}", r"\bbox[background:url(U)]{x}", r"\includegraphics{U}", r"\htmlClass{jp-x}{x}", r"\htmlData{a=b}{x}", r"\htmlStyle{position:fixed}{x}",
    r"\url{U}", r"\rule{99em}{99em}", r"\hspace{-99em}", r"\raise99em{x}", r"\kern-99em", r"\verb|<b>|", r"\begingroup", r"\endgroup", r"\csname href\endcsname{U}{x}",
    r"\color{red}{x}", r"\textcolor{red}{x}", r"\left(", r"\right)", r"\limits", r"\char60", r"\mathtip{a}{b}", r"\texttip{a}{b}", r"\toggle{a}{b}\endtoggle", r"\mathchoice{a}{b}{c}{d}",
    r"\ce{H2O}", r"\xrightarrow{a}", r"\overset{a}{b}", r"\boxed{x}", r"\cancel{x}", r"\enclose{circle}{x}", r"\lower{1em}{x}", r"\llap{x}", r"\smash{x}", r"\mathtoolsset{showonlyrefs}", r"\newcolumntype{x}{y}",
    r"\let\alpha\NAME", r"\expandafter\def\csname NAME\endcsname{x}", r"\catcode`\<=0", r"\setlength{\unitlength}{1em}", r"\newcounter{NAME}", r"\colorlet{NAME}{red}", r"\definecolor{NAME}{rgb}{1,0,0}",
    "x", "1", "&", "\\\\", "{", "}", "<", ">", "^2", "_a", "~", "%", "#1", "'", '"', " ",
)  # fmt: skip
ANSI = (
    "\x1b[31m", "\x1b[0m", "\x1b[1;32m", "\x1b[K", "\x1b]8;;javascript:F\x1b\\x\x1b]8;;\x1b\\", "\x1b]8;;U\x07x\x1b]8;;\x07", "\x1b[38;5;1m", "\x1b[48;2;1;2;3m",
    "\x1b[38;2;1;2;3m", "\x1b[", "\x1b[<b>m", "\x9b31m", "\r", "\x08", "\x1b[A", "\x1b[39\"onload=F m", "\x1b[31;1;4;7;9m", "\u202e", "\x1b]0;x\x07",
)  # fmt: skip
ELEMENTS = (
    "a", "abbr", "audio", "b", "blockquote", "br", "button", "center", "code", "col", "dd", "del", "details", "div", "em", "embed", "fieldset", "figure", "font", "form",
    "frameset", "h1", "hr", "iframe", "img", "image", "input", "ins", "isindex", "kbd", "label", "legend", "li", "link", "listing", "map", "marquee", "math", "menu", "meta", "mglyph",
    "mi", "mo", "mtext", "noembed", "noscript", "object", "ol", "optgroup", "option", "p", "param", "plaintext", "portal", "pre", "progress", "rp", "s", "script",
    "section", "select", "slot", "small", "source", "span", "strike", "style", "sub", "summary", "sup", "svg", "table", "tbody", "td", "template", "textarea", "th", "thead", "time", "title",
    "tr", "track", "u", "ul", "var", "video", "wbr", "xmp", "foreignObject", "desc", "animate", "set", "use", "annotation-xml", "x-y", "dialog", "body", "html", "head", "base",
)  # fmt: skip
ATTRIBUTES = (
    "onerror=Q F Q src=x?N", "onload=QFQ", "autofocus tabindex=1 onfocus=QFQ", "style=Qanimation:fz 1sQ onanimationstart=QFQ", "onpointerover=QFQ", "ontoggle=QFQ open",
    "onbegin=QFQ attributeName=x dur=1s", "href=Qjavascript:FQ", "href=QUQ", "src=QUQ", "srcset=QU 1xQ", "poster=QUQ", "background=QUQ", "action=QUQ", "formaction=Qjavascript:FQ",
    "style=Qbackground:url(U)Q", "style=Qposition:fixed;inset:0;z-index:9Q", "style=Qmargin:-99pxQ", "class=Qjp-Dialog lm-WidgetQ", "id=QdocumentQ", "name=QcookieQ",
    "data-commandlinker-command=Qterminal:create-newQ", "contenteditable", "accesskey=x", "popover", "tabindex=0", "is=x", "slot=x", "title=Q\"><img src=x onerror=F>Q", "title=Q$x$Q",
    "srcdoc=Q<script>F</script>Q", "src=Qjavascript:FQ", "src=Qdata:text/html,<script>F</script>Q", "type=image src=QUQ", "http-equiv=refresh content=Q0;url=UQ", "ping=QUQ", "xlink:href=QUQ",
    "width=QxQ", "height=Q1Q", "align=right", "dir=rtl", "lang=en", "colspan=999", "cite=QUQ", "download", "target=_top", "xmlns=Qhttp://www.w3.org/1999/xhtmlQ", "encoding=Qtext/htmlQ",
)  # fmt: skip
LINES = ("\n", "\n\n", " ", "", "\n    ", "\n> ", "\n- ", "\r\n", "\n\t", "  \n", "\\\n", "\n1. ", "|")


class _Maker:
    """What makes one document."""

    def __init__(self, chance: random.Random, number: int) -> None:
        self._chance = chance
        self._number = number
        self._depth = 0
        self._nesting = chance.choice((1, 2, 2, 3, 4))
        self._constructs: tuple[Callable[[], str], ...] = (
            self.words, self.link, self.bare, self.image, self.fence, self.code, self.table, self.heading, self.quoted,
            self.emphasis, self.reference, self.html, self.html, self.attribute, self.formula, self.formula, self.formula,
            self.macro, self.colour, self.svg, self.hostile, self.hole, self.entity, self.style, self.quote_out, self.strange,
        )  # fmt: skip

    def document(self) -> Document:
        pick = self._chance.random()
        if pick < 0.06:
            return Document(self._number, "stream", {"name": self._one(("stdout", "stderr")), "text": self.text()})
        if pick < 0.13:
            content = {
                "ename": self.text(1),
                "evalue": self.text(1),
                "traceback": [self.text() for _ in range(self._chance.randint(1, 3))],
            }
            return Document(self._number, "error", content)
        data: dict[str, Any] = {}
        for _ in range(1 if self._chance.random() < 0.9 else 2):
            name = self._chance.choices(MIMES, WEIGHTS)[0]
            if self._chance.random() < 0.02:
                data[f"text/{self.text(1)}"[:200]] = "x"
            data[name] = self.svg() if name == "image/svg+xml" else PNG if name == "image/png" else self.text()
        return Document(self._number, "display_data", {"data": data, "metadata": self.metadata(data), "transient": {}})

    def metadata(self, data: dict[str, Any]) -> dict[str, Any]:
        if self._chance.random() < 0.8 and "image/png" not in data:
            return {}
        values = (
            1,
            "1",
            "100%",
            "1 " + self.attribute(),
            "x onload=" + fired(self._number),
            True,
            None,
            [1],
            -1,
            {"a": 1},
        )
        inner = {
            self._one(("width", "height", "unconfined", "needs_background", "isolated", "alt")): self._one(values)
            for _ in range(2)
        }
        return {self._one(tuple(data)): inner} if self._chance.random() < 0.7 else inner

    def text(self, pieces: int = 0) -> str:
        """Return some constructs one after another, one in another, and then damaged a little."""
        count = pieces or self._chance.choice((1, 1, 2, 2, 3, 4, 6))
        result = ""
        for _ in range(count):
            piece = self.construct()
            if result and self._chance.random() < 0.4:
                at = self._chance.randint(0, len(result))
                result = result[:at] + piece + result[at:]
            else:
                result += (self._one(LINES) if result else "") + piece
        while self._chance.random() < 0.25 and result:
            result = self._damaged(result)
        return result[:MAX_LENGTH]

    def construct(self) -> str:
        if self._depth >= self._nesting:
            return "x"
        self._depth += 1
        try:
            return self._filled(self._chance.choice(self._constructs)())
        finally:
            self._depth -= 1

    def _damaged(self, text: str) -> str:
        one, two = sorted((self._chance.randint(0, len(text)), self._chance.randint(0, len(text))))
        return self._chance.choice((
            lambda: text[:one] + text[two:],
            lambda: text[:two] + text[one:two] + text[two:],
            lambda: text[:one] + self._one(('"', "'", "$", "`", "<", ">", "\\", "\n", "|", "]", ")", "*", "&", "{", "}", "@@0@@", "~D", "\0", "\x1b[0m", "$$", "-->", "<!--")) + text[one:],
            lambda: text[:one] + text[one:two].swapcase() + text[two:],
            lambda: text[:one] + text[one:two][::-1] + text[two:],
            lambda: text.replace(self._one((" ", '"', "\n", "$", "<")), self._one(("\n", "'", "$", "\t", "\\", "")), 1),
        ))()  # fmt: skip

    def _one(self, choices: Any) -> Any:
        return choices[self._chance.randrange(len(choices))]

    def _filled(self, text: str) -> str:
        quote = self._one(QUOTES[:3])
        return (
            text.replace("window.__fired", "\ue000").replace("evil.test", "\ue001")
            .replace("QUQ", quote + address(self._number) + quote).replace("QFQ", quote + fired(self._number) + quote)
            .replace("Q F Q", quote + fired(self._number) + quote)
            .replace("\ue000", "window.__fired").replace("\ue001", "evil.test")
        )  # fmt: skip

    # --- constructs

    def words(self) -> str:
        return self._one(
            (
                "x",
                "some text",
                "a < b",
                "5 $ and 6 $",
                "a_b*c",
                "1. 2",
                "# a",
                "\\*a",
                "x  \ny",
                "www.a.test",
                "a@b.test",
                "---",
                "|a|",
            )
        )

    def inner(self) -> str:
        pick = self._chance.random()
        if pick < 0.2:
            return self.quote_out()
        if pick < 0.4 and self._depth < 4:
            return self.formula()
        return self.construct() if pick < 0.7 else self._one(("x", "a b", "1"))

    def target(self) -> str:
        if self._chance.random() < 0.3:
            return "https://a.test/" + self._one((self.formula, self.quote_out))()
        scheme = self._one(
            (
                "https://a.test/",
                address(self._number),
                "javascript:" + fired(self._number),
                "/x",
                "#a",
                "mailto:a@b.test",
                "data:text/html,x",
                "//evil.test/x",
                "",
            )
        )
        return scheme + (self.inner() if self._chance.random() < 0.5 else "")

    def link(self) -> str:
        title = self._one(("", "", f' "{self.inner()}"', f" '{self.inner()}'", f" ({self.inner()})"))
        target = self.target()
        return f"[{self.inner()}]({target if self._chance.random() < 0.8 else f'<{target}>'}{title})"

    def bare(self) -> str:
        start = self._one(
            ("https://a.test/", "www.a.test/", "http://a.test/?", "<https://a.test/", "a@b.test", "ftp://a.test/")
        )
        return start + self._one((self.inner, self.formula))() + self._one(("", ">", "/", " "))

    def image(self) -> str:
        return "!" + self.link()

    def reference(self) -> str:
        label = self._one(("y", "$y$", self.inner()))
        return f"{self._one(('', '!'))}[{self.inner()}][{label}]\n\n[{label}]: {self.target()} {self._one(('', chr(34) + self.inner() + chr(34)))}"

    def fence(self) -> str:
        mark = self._one(("```", "~~~", "````"))
        return f"\n{mark}{self._one(INFO)}{self._one(('', ' ', self.quote_out(), self.inner()))}\n{self.inner()}\n{self._one((mark, '', '~~~'))}\n"

    def code(self) -> str:
        mark = self._one(("`", "``", "`", "\\`"))
        return f"{mark}{self.inner()}{mark}"

    def table(self) -> str:
        return f"\n|{self.inner()}|b|\n|{self._one(('-', ':-:', '---'))}|-|\n|{self.inner()}|{self.inner()}|\n"

    def strange(self) -> str:
        """Return what the policy takes out and may say a word on, which is a formula or markup."""
        word = self._one((self.formula, self.macro, self.quote_out))().replace(" ", "").replace("/", "")
        return self._one(
            (f"<p{word} src=x:y>", f"<p on{word}=1>", f"<b class=x{word} id=T_{word} style='a{word}:b'>x</b>",
             f"<img{word} src=data:{word}>", f"<a href='{word}:x'>x</a>", f"<style>.x{word}{{color:red}}</style>")
        )  # fmt: skip

    def heading(self) -> str:
        return (
            f"\n{self._one(('#', '##', '######'))} {self.inner()}\n"
            if self._chance.random() < 0.7
            else f"\n{self.inner()}\n===\n"
        )

    def quoted(self) -> str:
        return (
            self._one(("> ", "- ", "- [x] ", "1. ", "    ", "* * ", "+ [ ] ", ">     ", "[^1]: ", ": ", ":::"))
            + self.inner()
        )

    def emphasis(self) -> str:
        mark = self._one(("*", "**", "_", "~~", "==", "^", "~"))
        return mark + self.inner() + mark

    def quote_out(self) -> str:
        """Return what leaves an attribute and adds one."""
        quote = '"' if self._chance.random() < 0.5 else self._one(QUOTES)
        space = " " if self._chance.random() < 0.5 else self._one(SPACES)
        return (
            quote
            + self._one(("", "", ">"))
            + space
            + self.attribute()
            + self._one(SPACES[:3])
            + self._one(("z=", "", "/"))
            + self._one((quote, ""))
        )

    def attribute(self) -> str:
        quote = self._one(QUOTES[:3])
        text = self._one(ATTRIBUTES)
        text = (
            text.replace("Q F Q", "QFQ").replace("Q", quote)
            if self._chance.random() < 0.85
            else text.replace("Q F Q", "QFQ").replace("Q", self._one(QUOTES))
        )
        return self._numbered(text)

    def _numbered(self, text: str) -> str:
        text = re.sub(r"(?<![A-Za-z])N(?![A-Za-z])", str(self._number), text.replace("NAME", name_of(self._number)))
        return re.sub(
            r"(?<![A-Za-z])[UF]", lambda match: address(self._number) if match[0] == "U" else fired(self._number), text
        )

    def html(self) -> str:
        tag = self._one(ELEMENTS)
        tag = tag if self._chance.random() < 0.9 else tag.upper()
        attributes = "".join(self._one(SPACES[:5]) + self.attribute() for _ in range(self._one((0, 1, 1, 2))))
        opened = f"<{tag}{attributes}{self._one(('>', '>', '>', '/>', '', ' >'))}"
        return (
            opened
            + self._one(("", self.inner(), self.inner()))
            + self._one((f"</{tag}>", f"</{tag}>", "", f"</{tag} x>", "</p>", "-->"))
        )

    def svg(self) -> str:
        inside = self._one((
            "<script>F</script>", "<image href='U'/>", "<a href='javascript:F'><text>x</text></a>", "<foreignObject><img src=x onerror='F'></foreignObject>", "<use href='U#x'/>", "<style>@import 'U';</style>",
            "<animate onbegin='F' attributeName='x' dur='1s'/>", "<set attributeName='href' to='javascript:F'/>", "<rect width='9' height='9' fill='url(U)'/>", "<filter id='a'><feImage href='U'/></filter>", "<text>$x$</text>",
            "<desc><![CDATA[</desc><img src=x onerror=F>]]></desc>", "<title><style><img src=x onerror=F></style></title>", "<circle r='1'/>",
        ))  # fmt: skip
        return self._numbered(
            f"<svg xmlns='http://www.w3.org/2000/svg' {self._one(('', 'onload=F', 'width=9'))}>{inside}"
        ) + self._one(("</svg>", "</svg>", "", self.inner()))

    def style(self) -> str:
        rule = self._one((
            "body{display:none}", "p{background:url(U)}", "@import 'U';", ".jp-Cell{visibility:hidden}", "*{position:fixed}", "p{color:red}} body{display:none}", "@font-face{font-family:x;src:url(U)}", "@keyframes fz{to{color:red}}",
            "p{animation:fz 1s}", "td{color:red}", "p::before{content:'$x$'}", "a[href^='$']{color:red}", "@media all{body{display:none}}", "/* */p{color:red}", "p:has(x){top:-9px}", "#T_a td{background-color:rgb(1,2,3)}", "@layer a{p{color:red}}", "p{&:hover{color:red}}", "p{--a:url(U);background:var(--a)}",
        ))  # fmt: skip
        return (
            f"<style{self._one(('', ' type=text/css', ' media=all'))}>{self._numbered(rule)}{self._one(('', self.inner()))}{self._one(('</style>', '</style>', '</style/>', '', '</STYLE >'))}"
            + self._one(("", "<p>x</p>", "<table id=T_a><tr><td>x</td></tr></table>"))
        )

    def formula(self) -> str:
        inside = "".join(self._one((self.macro, self.inner, self.quote_out))() for _ in range(self._one((1, 1, 2, 3))))
        name = self._one(ENVIRONMENTS)
        start, end = self._one((
            ("$", "$"), ("$", "$"), ("$$", "$$"), ("\\(", "\\)"), ("\\[", "\\]"), ("\\\\(", "\\\\)"), ("\\\\[", "\\\\]"), (f"\\begin{{{name}}}", f"\\end{{{name}}}"), ("$", ""), ("\\$", "$"), ("\n$$\n", "\n$$\n"), ("$`", "`$"), ("<wbr>$", "$"), ("$<!---->", "$"),
        ))  # fmt: skip
        return start + inside + end

    def macro(self) -> str:
        text = self._numbered(self._one(MACROS))
        if self._chance.random() < 0.15:
            at = self._chance.randint(0, len(text))
            text = (
                text[:at]
                + self._one(
                    ("<wbr>", "\0", "\u200b", "<b></b>", "&#8203;", "%\n", "&shy;", "\x1b[0m", "<!-- -->", "{}", " ")
                )
                + text[at:]
            )
        return text

    def colour(self) -> str:
        return self._numbered(self._one(ANSI)) + self.inner() + self._one(("\x1b[0m", ""))

    def hostile(self) -> str:
        table = HTML if self._chance.random() < 0.7 else MARKDOWN
        names = list(table)
        return named(table[self._one(names)], self._number)

    def hole(self) -> str:
        """Return what parsers leave in place of what they took out."""
        return self._one(
            (
                "@@0@@",
                "@@1@@",
                "~D",
                "~T",
                "\ue0000\ue001",
                "\x1a0\x1a",
                "~~D",
                "@@@0@@@",
                "&#64;&#64;0@@",
                "$@@0@@$",
                "\x02stx\x03",
                "MathJax-Element-1",
            )
        )

    def entity(self) -> str:
        return self._one(
            (
                "&lt;",
                "&gt;",
                "&quot;",
                "&amp;lt;",
                "&#60;",
                "&#x3c;",
                "&colon;",
                "&NewLine;",
                "&Tab;",
                "&#0;",
                "&dollar;",
                "&#36;",
                "&lbrace;",
                "&bsol;",
                "&grave;",
                "&#96;",
                "&nbsp;",
                "&#128;",
                "&notit;",
            )
        )


MIMES = ("text/markdown", "text/html", "text/latex", "text/plain", "image/svg+xml", "image/png", "application/json")
WEIGHTS = (44, 30, 12, 6, 5, 2, 1)
