"""Languages that JupyterLab parses for itself: Markdown, TeX, SVG and CSS of a cell's, in the real page.

The same outputs with `--outputs trusted` are the control.
"""

# ruff: noqa: E501 (an attack reads best on one line)

from __future__ import annotations

from textwrap import dedent

import pytest

from tests.browser.lab import Lab, eventually, settled
from tests.support.chromium import listening
from tests.unit.policy.test_languages import MARKDOWN
from tests.unit.policy.test_svg import BOMBS

PRELUDE = """
    from IPython.display import publish_display_data
    def show(data, metadata=None):
        publish_display_data(data, metadata or {})
"""
RAN = "return Object.getOwnPropertyNames(window).filter(name => name.startsWith('pwned'))"
TYPESET = "return document.querySelectorAll('.jp-OutputArea mjx-container').length"

FORMULAS = r"""
    show({"text/latex": "$\\displaystyle \\frac{a}{b}$"})
    show({"text/markdown": "So $x_1*y_1*z$ and \\\\(\\alpha\\\\), *of course*.\n\n$$\n\\sum_i i\n$$"})
    show({"text/html": "<p>costs $5 and $6, but <b>$\\alpha$</b> and \\(x &lt; y\\)</p>"})
"""
"""Six formulas, in every type that may have them."""
COUNT = 6


def shapes() -> str:
    """Return a cell that shows each of the shapes; one that fires leaves its number."""
    lines = []
    for number, source in enumerate(MARKDOWN.values()):
        numbered = source.replace("window.pwned=1", f"window.pwned{number}=1")
        lines.append(f"show({{'text/markdown': {numbered.replace('fadeIn 1s', 'jp-spin 1s, fadeIn 1s')!r}}})")
    return "\n".join(lines)


@pytest.mark.parametrize("kernel", ["sandbox-python", pytest.param("sandbox-trusted", marks=pytest.mark.long)])
def test_markdown_and_formulas_in_the_page(shared_lab: Lab, kernel: str) -> None:
    """What a parser of the page could make an attribute of does nothing; formulas are typeset as they were."""
    shared_lab.open(kernel, dedent(PRELUDE), shapes(), dedent(FORMULAS))
    shared_lab.run_all()
    eventually(lambda: shared_lab.js(TYPESET) >= COUNT, "the formulas are typeset")
    settled(lambda: shared_lab.js(TYPESET))
    if kernel == "sandbox-trusted":
        assert len(shared_lab.js(RAN)) >= 2
        return
    assert shared_lab.js(RAN) == []
    assert (
        shared_lab.js("return document.querySelectorAll('.jp-OutputArea [onfocus], .jp-OutputArea [autofocus]').length")
        == 0
    )
    assert len(shared_lab.output(2).find_elements("css selector", "mjx-container")) == COUNT
    assert "costs $5 and $6, but" in shared_lab.text(2)[2]


@pytest.mark.parametrize("kernel", ["sandbox-python", pytest.param("sandbox-trusted", marks=pytest.mark.long)])
def test_no_output_changes_the_macros_of_another(shared_lab: Lab, kernel: str) -> None:
    """MathJax keeps a definition for the whole page, for all notebooks in it."""
    hostile = r"""
        for name in ("alpha", "beta"):
            for source in (r"$\de<wbr>f\NAME{HA}$", r"\begin{align}\def\NAME{HA}x\end{align}", r"$\def\NAME{HA}$",
                           r"$$\renewcommand{\NAME}{HA}$$"):
                source = source.replace("NAME", name)
                show({"text/html": f"<p>{source}</p>"})
                show({"text/latex": source})
                show({"text/markdown": source})
    """
    shared_lab.open(kernel, dedent(PRELUDE), dedent(hostile), 'show({"text/latex": "$\\\\alpha\\\\beta$"})')
    shared_lab.run_all()
    eventually(
        lambda: shared_lab.output(2).find_elements("css selector", "mjx-container mjx-c"), "the formula is typeset"
    )
    settled(lambda: shared_lab.js(TYPESET))
    drawn = str(shared_lab.output(2).find_element("css selector", "mjx-container math").get_attribute("textContent"))
    greek = "\N{GREEK SMALL LETTER ALPHA}\N{GREEK SMALL LETTER BETA}"
    assert (drawn == greek) is (kernel == "sandbox-python")


FLOODS = {
    "nested use": f"show({{'image/svg+xml': {BOMBS['use']!r}}})",
    "nested use in an address": "import base64; show({'text/html': '<img src=\"data:image/svg+xml;base64,' + base64.b64encode("
    f"{BOMBS['use']!r}.encode()).decode() + '\">'}})",
    "nested use in markup": f"show({{'text/html': {BOMBS['use, without xlink']!r}}})",
    "a table": "show({'text/html': '<table>' + ('<tr>' + '<td>1</td>' * 20 + '</tr>') * 11_800 + '</table>'})",
    "siblings": "show({'text/html': '<style>' + ''.join(f'p ~ p ~ p ~ b{i} {{color:red}}' for i in range(40)) + '</style>' + '<p>x</p>' * 200_000})",
    "fewer siblings": "show({'text/html': '<style>' + ''.join(f'p ~ p ~ p ~ b{i} {{color:red}}' for i in range(40)) + '</style>' + '<p>x</p>' * 40_000})",
    "emphasis": "show({'text/markdown': '*a_' * 60_000})",
    "Thai without a space": "show({'text/html': '<table><tr><td>' + chr(0xe01) * 450_000 + '</table>'})",
    "Thai as entities": "show({'text/html': '<p>' + '&#3585;' * 450_000})",
    "accents as entities": "show({'text/html': '<p>a' + '&#769;' * 80_000})",
    "Japanese by phrases": "show({'text/html': '<p lang=ja style=word-break:auto-phrase>' + chr(0x3042) * 200_000})",
    "formulas": "show({'text/html': '<p>' + '<b>$\\\\frac{1}{2}$</b> ' * 20_000 + '</p>'})",
    "one long formula": "show({'text/latex': '$' + '\\\\frac{1}{2} + ' * 3_000 + 'x$'})",
}


MEASURE = """
    let last = performance.now(), longest = 0, left = 100;
    const measuring = setInterval(() => {
        const now = performance.now(), areas = document.querySelectorAll('.jp-Notebook .jp-OutputArea');
        longest = Math.max(longest, now - last);
        last = now;
        if (areas[areas.length - 1].innerText.trim() === 'the last cell') left -= 1;
        if (left) return;
        clearInterval(measuring);
        fetch(arguments[0] + longest + '/' + document.querySelectorAll('.jp-OutputArea td').length, {mode: 'no-cors'});
        document.querySelectorAll('iframe').forEach(one => one.remove());  // they draw for minutes, and the driver waits
    }, 50)"""
"""Tells a listener the longest time that the page did nothing until five seconds after the last output."""


def test_a_page_bears_whatever_is_shown(shared_lab: Lab) -> None:
    """Each of these kept the tab busy for ten seconds to minutes: now the page answers all the time."""
    shared_lab.open("sandbox-python", dedent(PRELUDE), *FLOODS.values(), "print('the last cell')")
    # Chromium's driver also waits for frames that draw, which share a process and not the page's. So the page measures.
    with listening() as evil:
        shared_lab.js(MEASURE, f"http://evil.test:{evil.tcp}/")
        shared_lab.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
        eventually(evil.paths, "the page has shown all of it, and worked for five seconds")
        [[longest, cells]] = [path.split("/") for path in evil.paths()]
    assert int(cells) < 60_000
    assert float(longest) < 15_000
