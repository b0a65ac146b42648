r"""Formulas that MathJax, KaTeX and LaTeX may typeset: found on the host, made of what only draws, and kept apart.

A page looks for formulas in the text of everything that is shown: HTML, Markdown, labels of widgets. So three things
hold of whatever leaves here. A formula is made of an allow-list, of bounded length and depth. It lies in one piece of
text that holds nothing else, or only what no finder takes for a delimiter. And every other delimiter stands alone, so
that nothing pairs it with another.
"""

# ruff: noqa: SIM905 (a list of words reads better as words)

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from .allowance import Allowance, of_formulas
from .line_ends import ENDS

# --- what a formula may be made of: macros and environments that draw, and do nothing else ---
#
# An allow-list, since no list of what is forbidden is complete: MathJax keeps `\def`, `\newcommand`, `\definecolor` and
# `\label` for the whole page, `\href` and `\data` act, and LaTeX itself reads files by half a dozen names. Not here
# either: what moves a piece of a formula out of its place (`\raise`, `\kern`, `\smash`, `\rlap`), what repeats its
# argument (`\pmb`, `\mathchoice`), and `\verb`.

MACROS = frozenset(
    r"""
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa varkappa lambda mu nu xi omicron pi
    varpi rho varrho sigma varsigma tau upsilon phi varphi chi psi omega digamma Gamma Delta Theta Lambda Xi Pi Sigma
    Upsilon Phi Psi Omega varGamma varDelta varTheta varLambda varXi varPi varSigma varUpsilon varPhi varPsi varOmega
    aleph beth gimel daleth hbar hslash ell wp Re Im Bbbk imath jmath partial nabla infty emptyset varnothing forall
    exists nexists neg lnot angle measuredangle sphericalangle triangle square blacksquare lozenge blacklozenge bigstar
    backslash prime backprime surd top bot flat natural sharp clubsuit diamondsuit heartsuit spadesuit complement eth
    Finv Game circledS circledR maltese mho checkmark yen degree pounds copyright dag ddag S P
    pm mp times div ast star circ bullet cdot cdotp centerdot cap cup uplus sqcap sqcup vee wedge lor land setminus
    smallsetminus wr amalg diamond bigtriangleup bigtriangledown triangleleft triangleright lhd rhd unlhd unrhd oplus
    ominus otimes oslash odot bigcirc dagger ddagger barwedge veebar doublebarwedge curlywedge curlyvee circledast
    circledcirc circleddash boxplus boxminus boxtimes boxdot divideontimes ltimes rtimes leftthreetimes rightthreetimes
    dotplus intercal Cap Cup doublecap doublecup gtrdot lessdot colon
    leq le geq ge neq ne equiv sim simeq approx approxeq cong doteq propto varpropto models perp mid nmid parallel
    nparallel prec succ preceq succeq ll gg lll ggg subset supset subseteq supseteq subsetneq supsetneq nsubseteq
    nsupseteq subseteqq supseteqq sqsubset sqsupset sqsubseteq sqsupseteq in ni notin owns vdash dashv vDash Vdash
    Vvdash nvdash nvDash smile frown bowtie asymp leqslant geqslant leqq geqq lesssim gtrsim lessgtr gtrless lesseqgtr
    gtreqless eqsim backsim backsimeq thicksim thickapprox eqcirc circeq triangleq bumpeq Bumpeq doteqdot risingdotseq
    fallingdotseq precsim succsim preccurlyeq succcurlyeq curlyeqprec curlyeqsucc nless ngtr nleq ngeq lneq gneq lneqq
    gneqq lnsim gnsim nprec nsucc npreceq nsucceq nsim ncong between pitchfork therefore because trianglelefteq
    trianglerighteq vartriangle vartriangleleft vartriangleright ntriangleleft ntriangleright shortmid shortparallel
    leftarrow gets rightarrow to leftrightarrow Leftarrow Rightarrow Leftrightarrow mapsto longmapsto longleftarrow
    longrightarrow longleftrightarrow Longleftarrow Longrightarrow Longleftrightarrow iff implies impliedby uparrow
    downarrow updownarrow Uparrow Downarrow Updownarrow nearrow searrow swarrow nwarrow hookleftarrow hookrightarrow
    leftharpoonup leftharpoondown rightharpoonup rightharpoondown rightleftharpoons leftrightharpoons upharpoonleft
    upharpoonright downharpoonleft downharpoonright leadsto rightsquigarrow leftrightsquigarrow curvearrowleft
    curvearrowright circlearrowleft circlearrowright leftleftarrows rightrightarrows upuparrows downdownarrows
    leftrightarrows rightleftarrows Lleftarrow Rrightarrow twoheadleftarrow twoheadrightarrow leftarrowtail
    rightarrowtail looparrowleft looparrowright Lsh Rsh multimap nleftarrow nrightarrow nleftrightarrow nLeftarrow
    nRightarrow nLeftrightarrow dashleftarrow dashrightarrow restriction
    sum prod coprod int intop oint iint iiint iiiint idotsint smallint bigcap bigcup bigsqcup bigvee bigwedge bigodot
    bigoplus bigotimes biguplus limits nolimits
    arccos arcsin arctan arg cos cosh cot coth csc deg det dim exp gcd hom inf injlim ker lg lim liminf limsup ln log
    max min Pr projlim sec sin sinh sup tan tanh varinjlim varliminf varlimsup varprojlim bmod pmod mod pod
    operatorname mathop mathbin mathrel mathord mathopen mathclose mathpunct mathinner
    frac dfrac tfrac cfrac binom dbinom tbinom sqrt over atop choose brace brack stackrel overset underset substack
    boxed not
    hat widehat check widecheck tilde widetilde acute grave dot ddot dddot ddddot breve bar vec mathring overline
    underline overbrace underbrace overbracket underbracket overparen underparen overleftarrow overrightarrow
    overleftrightarrow underleftarrow underrightarrow underleftrightarrow xleftarrow xrightarrow
    cancel bcancel xcancel
    mathrm mathbf mathit mathsf mathtt mathbb mathcal mathfrak mathscr mathnormal boldsymbol rm bf it sf tt cal
    frak scr Bbb mit oldstyle symbf symrm
    text textrm textbf textit textsf texttt textnormal textup mbox emph
    displaystyle textstyle scriptstyle scriptscriptstyle tiny scriptsize small normalsize large Large LARGE huge Huge
    left right middle big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm
    langle rangle lang rang lceil rceil lfloor rfloor lbrace rbrace lbrack rbrack lvert rvert lVert rVert vert Vert
    lgroup rgroup lmoustache rmoustache ulcorner urcorner llcorner lrcorner
    arrowvert Arrowvert bracevert bra ket braket Bra Ket Braket set Set
    dots ldots cdots vdots ddots dotsb dotsc dotsi dotsm dotso iddots
    quad qquad space thinspace medspace thickspace enspace enskip nobreakspace
    phantom hphantom vphantom mathstrut strut nonumber notag displaylines hline hdashline cr newline
    color textcolor
    toprule midrule bottomrule cline multicolumn textbackslash textasciitilde textasciicircum textless textgreater
    textquotesingle textunderscore textdollar
    TeX LaTeX
    """.split()
)
"""Named without their backslash."""

SYMBOLS = frozenset(",:;!> {}|\\_%$#&/.\n")
"""The character of macros that have only one: spaces, braces, new rows and characters that have a meaning."""

ENVIRONMENTS = frozenset(
    """matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix smallmatrix cases array subarray tabular align align* aligned
    alignat alignat* alignedat gather gather* gathered equation equation* eqnarray eqnarray* multline multline* split
    math displaymath""".split()
)
TOP = ENVIRONMENTS - {"matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "smallmatrix", "subarray"}
"""Environments that are a formula without dollar signs around them."""
COLUMNS = frozenset(("array", "tabular", "subarray", "alignat", "alignat*", "alignedat"))
"""Those that begin with an argument that says their columns."""
BUILT = frozenset(
    r"""
    frac dfrac tfrac cfrac binom dbinom tbinom sqrt over atop choose brace brack stackrel overset underset substack
    boxed not operatorname mathop limits
    hat widehat check widecheck tilde widetilde acute grave dot ddot dddot ddddot breve bar vec mathring overline
    underline overbrace underbrace overbracket underbracket overparen underparen overleftarrow overrightarrow
    overleftrightarrow underleftarrow underrightarrow underleftrightarrow xleftarrow xrightarrow
    cancel bcancel xcancel
    left right middle big Big bigg Bigg bigl Bigl biggl Biggl bigr Bigr biggr Biggr bigm Bigm biggm Biggm
    bra ket braket Bra Ket Braket set Set phantom hphantom vphantom color textcolor begin multicolumn cline hline
    text textrm textbf textit textsf texttt textnormal textup mbox emph TeX LaTeX pmod
    """.split()
)
"""Those that put something around, over or beside what they are given, and what is made of several pieces."""

# --- formulas, and what a page could take for one ---

MAX_FORMULA = 10_000
"""Characters of one formula. A matrix of sympy's with 400 terms has about as many."""
MAX_LATEX = 80_000
"""Characters of one output that is LaTeX."""
BOX, FORMULA, MARK = 2, 25, 5
"""Elements of a page that a box, a formula beside its boxes, and a delimiter in an element of its own count as.

A page makes 12,000 boxes within four seconds, and needs some milliseconds for each formula. A matrix of 400 terms has
8,000.
"""
LOOK = 6
"""Characters that a look at a dollar or a backslash counts as, whether a formula begins there or not."""
MAX_BACKWARDS = 40
r"""Negative spaces (`\!`) of one formula: with many of them it would leave its place."""

_MARK = re.compile(
    r"\$|\\(?:[\\$]|(?=[\[\]()]|(?:begin|end|(?:eq)?ref"
    r"|href|url|require|class|cssId|style|data|html[A-Za-z]*|includegraphics|bbox|mmlToken|unicode|csname|action|toggle"
    r"|mathtip|texttip|tooltip|Tooltip|def|[gex]def|let|futurelet|global|(?:re)?newcommand|providecommand|(?:re)?newenvironment"
    r"|Declare\w+|newtagform|definecolor|label|tag|catcode|input|include|write|openin|openout)(?![A-Za-z])))"
)
"""What a finder takes for the start of a formula, its end, an escape or a reference; and names of macros that act.

No safety lies in these names: a formula is made of those of the allow-list.
"""
_ANY_MARK = re.compile(r"[$\\]")
"""At a line break (`<br>`, `<wbr>`) a finder reads on: what follows a backslash may stand behind it."""
_OPENED = re.compile(r"\$\$?|\\[(\[]|\\begin\s{0,8}\{([A-Za-z]{1,12}\*?)\}")
_CLOSES = {"$": "$", "$$": "$$", "\\(": "\\)", "\\[": "\\]"}
_TOKEN = re.compile(
    r"\\(?P<name>[A-Za-z]+)(?P<star>\*?)|\\(?P<symbol>.)|(?P<brace>[{}])|(?P<bad>[%#$\\]|\^\^|[\x00-\x08\x0b-\x1f\x7f-\x9f])",
    re.DOTALL,
)
_PIECE = re.compile(r"\\([A-Za-z]+)|\\.|\S", re.DOTALL)
_LIGHT, _HEAVY = "}", ("&", "_", "^", "\\\\", "\\cr", "\\newline")
_ENVIRONMENT = re.compile(r"\s{0,8}\{([A-Za-z]{1,12}\*?)\}")
_COLUMNS = re.compile(r"\s{0,8}(?:\[[tcb]\]\s{0,8})?\{(?:[lcr|:. ]{0,200}|[0-9]{1,2})\}")
_COLOUR = re.compile(r"\s{0,8}\{(?:[A-Za-z]{1,30}|#[0-9A-Fa-f]{3,6})\}")
_SPAN = re.compile(r"\s{0,8}\{[0-9]{1,3}(?:-[0-9]{1,3})?\}(?:\s{0,8}\{[lcr|]{1,9}\})?")
_ROW = re.compile(r"\s*\[")
_HEIGHT = re.compile(r"\s{0,8}\[\s*[0-9]{0,2}(?:\.[0-9]{1,3})?\s*(?:pt|em|ex|mm|px|mu)\s*\]")
_SIZED = {"color": _COLOUR, "textcolor": _COLOUR, "cline": _SPAN, "multicolumn": _SPAN}
_WORDS = re.compile(r"[A-Za-z0-9À-ɏ \n,.;:!?'()=+*/-]*")
"""What may stand between formulas in text/latex: LaTeX reads it as well."""
_ESCAPES = {"\a": "a", "\b": "b", "\t": "t", "\v": "v", "\f": "f"}
_ESCAPED = re.compile(r"^[ \t]+|([\a\x08\t\v\f])([A-Za-z]*)", re.MULTILINE)
"""Characters that Python makes of the beginning of a macro, beside tabs that indent a line; not the end of a line."""
_MARKDOWN = re.compile(r"<(?=[A-Za-z/!?])|\]\s*[(:\[]|!\[|`|://|www\.|~~~|^ {4}|\t", re.IGNORECASE | re.MULTILINE)
"""Some front ends read text/latex as Markdown with HTML in it: no tag, link, image or block of code may be found."""


def _bears(left: Allowance, formula: str) -> bool:
    return left.bears(FORMULA + BOX * boxes(formula))


def _looks(left: Allowance, text: str) -> bool:
    """Return whether formulas may still be looked for in this text."""
    return left.bears(characters=LOOK * (text.count("$") + text.count("\\")))


def boxes(formula: str) -> int:
    """Estimate how many boxes a page makes of a formula. Each costs a third of a millisecond.

    It is what stands in it that costs, wherever that lies: a letter is one, what is built around others is four, cells
    and rows are two. Braces, fences or roots in each other cost no more than as many beside each other.
    """
    total = 0
    for piece in _PIECE.finditer(formula):
        text = piece[0]
        total += 4 if piece[1] in BUILT else 2 if text in _HEAVY else text != _LIGHT
    return total


def clean(text: str, left: Allowance | None = None) -> str:
    """Return text that a page shows as text and looks for formulas in, such as a label: harmless formulas stay.

    If anything else could be found there, no character of it is a delimiter any more; it looks almost the same.
    """
    text = text.replace("\0", "")
    if not _risky(text):
        return text
    left = left or of_formulas()
    if not _looks(left, text):
        return _blunted(text)
    for piece, formula in _pieces(text, left):
        if not _bears(left, piece) if formula else _MARK.search(piece):
            # It looks as before, and nothing in it is a delimiter.
            return _MARK.sub(lambda mark: _blunted(mark[0]), text)
    return text


def _blunted(text: str) -> str:
    """Return text without any dollar, and with no backslash before anything: fast, whatever it is made of."""
    return text.replace("\\", "\\\u2060").replace("$", "\uff04")


def as_meant(text: str) -> str:
    r"""Return LaTeX as its author meant it: `'\frac'` that was written without an `r` begins with a form feed.

    Every other control is a space, as TeX has it. The text is still anybody's: `is_latex` judges what is returned.
    """
    if len(text) > MAX_LATEX:
        return text
    return _ESCAPED.sub(_as_meant, text)


def _as_meant(match: re.Match[str]) -> str:
    if match[1] is None:
        return match[0].replace("\t", " ")
    name = _ESCAPES[match[1]] + match[2]
    return f"\\{name}" if name in MACROS or name == "begin" else f" {match[2]}"


def is_latex(text: str, left: Allowance) -> bool:
    """Return whether text/latex is formulas, and no more than a few plain words between them."""
    if len(text) > MAX_LATEX or _MARKDOWN.search(text) or any(end in text for end in ENDS):
        return False
    found = False
    for piece, formula in _pieces(text, left):
        found = found or formula
        if not (_bears(left, piece) if formula else _WORDS.fullmatch(piece)):
            return False
    return found


def apart(text: str, left: Allowance, *, alone: bool, write: Callable[[str], str]) -> str:
    """Return the markup of one piece of text, given without entities: formulas and delimiters in elements of their own.

    `alone` says that no other text follows or goes before in the same element; `write` turns text into markup. Where
    it is not alone, each dollar and each backslash outside of a formula is: a finder joins the texts.
    """
    if not _looks(left, text):
        return write(_blunted(text))
    if alone and (text in ("\\\\", "\\$", "\\") or not _risky(text)):
        return write(text)
    pieces = list(_pieces(text, left))
    if alone and len(pieces) == 1 and pieces[0][1] and _bears(left, text):
        return write(text)
    result = []
    marks = _MARK if alone else _ANY_MARK
    for piece, formula in pieces:
        if formula and _bears(left, piece):
            result.append(f"<span>{write(piece)}</span>")
            continue
        position = 0
        for mark in marks.finditer(piece):
            # More than honest text has are replaced: each element is thirteen characters, and a box of the page.
            shown = f"<span>{mark[0]}</span>" if left.bears(MARK) else _blunted(mark[0])
            result += [write(piece[position : mark.start()]), shown]
            position = mark.end()
        result.append(write(piece[position:]))
    return "".join(result)


def has_marks(text: str) -> bool:
    """Return whether there is anything that could be a formula."""
    return "$" in text or "\\" in text


def formula(text: str, start: int, left: Allowance) -> int | None:
    """Return where the formula that opens at `start` ends, None if there is none, or not a harmless one."""
    opened = _OPENED.match(text, start)
    if opened is None or left.characters <= 0:
        return None
    if opened[1]:
        return _body(text, start, None, left) if opened[1] in TOP else None
    close = _CLOSES[opened[0]]
    end = _body(text, opened.end(), close, left)
    # "$5 and $6" is no formula.
    return None if end and close == "$" and text[end : end + 1].isdecimal() else end


def _risky(text: str) -> bool:
    """Return whether a finder could find anything: a single dollar has no other to go with."""
    if not has_marks(text):
        return False
    return text.count("$") > 1 or any(mark[0] not in ("$", "\\$") for mark in _MARK.finditer(text))


def _pieces(text: str, left: Allowance) -> Iterator[tuple[str, bool]]:
    """Yield the pieces of a text in order, and of each whether it is a harmless formula with its delimiters."""
    start = position = 0
    while match := _MARK.search(text, position):
        end = formula(text, match.start(), left)
        if end is None:
            position = match.end()
            continue
        if match.start() > start:
            yield text[start : match.start()], False
        yield text[match.start() : end], True
        start = position = end
    if start < len(text):
        yield text[start:], False


def _body(text: str, start: int, close: str | None, left: Allowance) -> int | None:
    """Return the end of a formula whose inside begins at `start`, with `close` or else at the end of an environment.

    None, if that does not come, or comes after anything that is not on the lists.
    """
    stack: list[str] = []
    backwards = 0
    skip = 0
    for token in _TOKEN.finditer(text, start, start + MAX_FORMULA):
        left.characters -= 1
        if token.start() < skip:
            continue
        if close and not stack and text.startswith(close, token.start()):
            return token.start() + len(close) if text[start : token.start()].strip() else None
        name, symbol, brace = token["name"], token["symbol"], token["brace"]
        if token["bad"]:
            return None
        if brace == "{":
            stack.append("}")
        elif brace:
            if not stack or stack.pop() != "}":
                return None
        elif symbol is not None:
            backwards += symbol == "!"
            if symbol not in SYMBOLS or backwards > MAX_BACKWARDS:
                return None
            if symbol == "\\" and _ROW.match(text, token.end()) and not _HEIGHT.match(text, token.end()):
                return None
        elif name in ("begin", "end"):
            named = _ENVIRONMENT.match(text, token.end())
            if named is None or token["star"] or named[1] not in ENVIRONMENTS:
                return None
            skip = named.end()
            if name == "end":
                if not stack or stack.pop() != named[1]:
                    return None
                if not stack and close is None:
                    return skip
            else:
                stack.append(named[1])
                if named[1] in COLUMNS:
                    columns = _COLUMNS.match(text, skip)
                    if columns is None:
                        return None
                    skip = columns.end()
        elif name == "left":
            stack.append("right")
        elif name == "right":
            if not stack or stack.pop() != "right":
                return None
        elif name not in MACROS:
            return None
        elif name in _SIZED:
            sized = _SIZED[name].match(text, token.end())
            if sized is None:
                return None
            skip = sized.end()
        if len(stack) > left.depth:
            return None
    return None
