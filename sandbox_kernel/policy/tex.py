r"""TeX source that MathJax and KaTeX may typeset: formulas yes, links, styles and loading of extensions no.

Imports nothing of this package. JupyterLab typesets the text of HTML and Markdown outputs and of widgets too, and its
MathJax makes `\href{javascript:…}` a link that runs a script.
"""

from __future__ import annotations

import re

_MACRO = re.compile(
    r"\\(?=(?:href|url|require|class|cssId|style|data|html[A-Za-z]*|includegraphics|bbox|mmlToken|unicode|csname"
    r"|action|toggle|mathtip|texttip|tooltip|Tooltip|eval|javascript|special|input|include|write|openin|openout"
    r"|loadextension|setOptions)(?![A-Za-z]))"
)


def clean(text: str) -> str:
    r"""Return `text` with each such macro turned into the letters of its name (`\ href`): nothing is rejoined.

    Nor by the parser of a browser, which drops every NUL.
    """
    return _MACRO.sub(r"\\ ", text.replace("\0", "")) if "\\" in text else text
