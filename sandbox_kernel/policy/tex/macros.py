r"""What a formula may be made of: macros and environments that draw, and do nothing else.

An allow-list, since nobody can list what must not be there: MathJax keeps `\def`, `\newcommand`, `\definecolor` and
`\label` for the whole page, `\href` and `\data` act, and LaTeX itself reads files by half a dozen names. Not here
either: what moves a piece of a formula out of its place (`\raise`, `\kern`, `\smash`, `\rlap`), what repeats its
argument (`\pmb`, `\mathchoice`), and `\verb`.
"""

# ruff: noqa: SIM905 (a list of words reads better as words)

from __future__ import annotations

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
