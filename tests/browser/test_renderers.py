"""Documents out of grammars in the renderers that people have: after the policy, nothing acts in any of them.

`make fuzz-renderers` is the long run. The renderers come from npm; without it, the tests are left out.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fuzz.renderers import __main__ as program
from fuzz.renderers import chromium, hunt
from fuzz.renderers.documents import Document, corpus, document, name_of, number_of
from fuzz.renderers.install import MissingError, installed
from tests.support import ROOT
from tests.support.browsers import install_browser

SECONDS = 2
"""For each renderer. `make fuzz-renderers` is the long run."""
SEED = 7
PAGES = ("lab", "vscode")
"""Those that render in the page itself, where the corpus with all its frames takes seconds."""
FOUND = sorted((ROOT / "fuzz/found/renderers").glob("*.json"))

pytestmark = pytest.mark.timeout(900)  # the packages may have to be fetched first


@pytest.fixture(scope="module")
def page() -> Iterator[chromium.Page]:
    install_browser(lambda text: None)
    try:
        folder = installed()
    except MissingError as missing:
        pytest.skip(str(missing))
    with chromium.page(folder) as opened:
        yield opened


def html(number: int, source: str) -> Document:
    return display(number, {"text/html": source})


def display(number: int, data: dict[str, str], metadata: object = None) -> Document:
    return Document(number, "display_data", {"data": data, "metadata": metadata or {}, "transient": {}})


@pytest.mark.parametrize("renderer", hunt.RENDERERS)
def test_nothing_that_passed_the_policy_acts(page: chromium.Page, renderer: str) -> None:
    tally = hunt.Tally(renderer)
    if renderer in PAGES:
        assert list(hunt.hunt(page, renderer, hunt.MODES, corpus(), tally)) == []
    end = time.monotonic() + SECONDS
    for documents in hunt.batches(SEED, 1_000_000):
        found = list(hunt.hunt(page, renderer, hunt.MODES, documents, tally))
        assert found == []
        if time.monotonic() > end:
            break
    assert tally.outputs > tally.documents > 0


@pytest.mark.parametrize("renderer", hunt.RENDERERS)
def test_control_the_same_documents_unfiltered_act(page: chromium.Page, renderer: str) -> None:
    """The corpus and more: some run, some ask for something, and in many the judge sees what could act."""
    documents = [*next(hunt.batches(SEED, 200)), *corpus()] if renderer in PAGES else corpus()[:60:3]
    documents = [given for given in documents if not leaves(given)]
    tally = hunt.Tally(renderer)
    found = list(hunt.hunt(page, renderer, ["trusted"], documents, tally))
    faults = [fault for finding in found for fault in finding.faults]
    some = 10 if renderer in PAGES else 1
    assert len(found) >= 10 * some
    assert sum(fault == "ran" for fault in faults) >= some
    assert sum(fault.startswith("asked for something") for fault in faults) >= some
    assert any(" on <" in fault for fault in faults)


def leaves(given: Document) -> bool:
    """Return whether a document could take the whole page away, which costs a new one."""
    text = json.dumps(given.content).lower()
    return any(word in text for word in ("refresh", "<base", "<plaintext", "<frameset", "top.location"))


@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_was_found_once_does_nothing_now_and_acts_unfiltered(page: chromium.Page, path: Path) -> None:
    finding = program.read(path)
    for mode in hunt.MODES:
        assert hunt.seen(page, finding.renderer, mode, finding.document) == ()
    assert hunt.seen(page, finding.renderer, "trusted", finding.document)


HONEST = {
    "pandas": "<table border=1 class=dataframe><thead><tr style='text-align: right;'><th>a</th></tr></thead></table>",
    "styled": "<style>#T_a td{color:red}</style><table id=T_a><tr><td id=T_a_row0 class='data row0'>1</table>",
    "rich": '<pre style="white-space:pre;overflow-x:auto"><span style="color: #008000">x</span></pre>',
    "plot": '<div><script>document.body.append("x")</script></div>',
    "link": '<a href="https://a.test/">x</a>',
    "formula": r"<p>$\frac{1}{2}$ and $$\begin{pmatrix}1&amp;2\end{pmatrix}$$</p>",
}


@pytest.mark.parametrize("renderer", hunt.RENDERERS)
def test_the_judge_finds_no_fault_in_honest_outputs(page: chromium.Page, renderer: str) -> None:
    documents = [html(number, source) for number, source in enumerate(HONEST.values(), 1)]
    documents += [
        display(20, {"text/markdown": "# a\n\n- [x] b\n\n|a|b|\n|-|-|\n|$x$|1|\n\n```python\nx = 1\n```\n"}),
        display(21, {"text/latex": r"$\displaystyle \int_0^1 x\,dx$", "text/plain": "x http://a.test/ y"}),
        Document(22, "error", {"ename": "E", "evalue": "x", "traceback": ["\x1b[31mE\x1b[0m: a < b > c <module>"]}),
        Document(23, "stream", {"name": "stdout", "text": "\x1b[1mx\x1b[0m 5 < 6 https://a.test/\n"}),
    ]
    tally = hunt.Tally(renderer)
    assert list(hunt.hunt(page, renderer, hunt.MODES, documents, tally)) == []
    assert tally.dropped == 0


BAD = {
    "handler": "<b onclick=x>x</b>",
    "script": "<script>1</script>",
    "foreign": "<img src=http://evil.test/1/x>",
    "srcset": "<img srcset='//evil.test/1/x 1x'>",
    "css": "<b style='background:url(//evil.test/1/x)'>x</b>",
    "link": "<a href='javascript:1'>x</a>",
    "path": "<a href='/lab/tree/x'>x</a>",
    "form": "<form><input></form>",
    "frame": "<iframe srcdoc=x></iframe>",
    "open frame": "<iframe sandbox='allow-scripts allow-same-origin' srcdoc=x></iframe>",
    "frame without a policy": "<iframe sandbox=allow-scripts srcdoc='<iframe sandbox=allow-scripts>'></iframe>",
    "placed": "<b style='position:fixed;inset:0'>x</b>",
    "margin": "<b style='margin-top:-9px'>x</b>",
    "command": "<b data-commandlinker-command=x>x</b>",
    "focus": "<b tabindex=0 autofocus>x</b>",
    "class": "<b class=jp-Dialog>x</b>",
    "id": "<b id=document>x</b>",
    "rule": "<style>body{color:red}</style>",
    "custom": "<jp-button>x</jp-button>",
    "template": "<template><b onclick=x></b></template>",
    "svg": "<svg><use href='#x'/></svg>",
}


@pytest.mark.parametrize("renderer", hunt.RENDERERS)
def test_the_judge_sees_each_fault(page: chromium.Page, renderer: str) -> None:
    documents = [html(number, source) for number, source in enumerate(BAD.values(), 1)]
    tally = hunt.Tally(renderer)
    found = {finding.document.number for finding in hunt.hunt(page, renderer, ["trusted"], documents, tally)}
    assert {name for number, name in enumerate(BAD, 1) if number not in found} == set()


@pytest.mark.long
@pytest.mark.parametrize("renderer", ["lab", "nbconvert"])
def test_a_macro_that_stays_is_seen(page: chromium.Page, renderer: str) -> None:
    name = name_of(5)
    documents = [html(4, "$x$"), html(5, rf"$\def\{name}{{x}}$ $\newcommand\{name}{{1}}$"), html(6, "$y$")]
    found = list(hunt.hunt(page, renderer, ["trusted"], documents, hunt.Tally(renderer)))
    assert [finding.document.number for finding in found] == [5]
    assert any("defined" in fault for fault in found[0].faults)


@pytest.mark.long
def test_what_takes_long_is_seen(page: chromium.Page) -> None:
    busy = "<script>for (const end = Date.now() + 2100; Date.now() < end;);</script>"
    (finding,) = hunt.hunt(page, "lab", ["trusted"], [html(1, busy)], hunt.Tally("lab"))
    assert any("took long" in fault for fault in finding.faults)


@pytest.mark.long
def test_a_document_that_takes_the_page_away_is_told_from_its_neighbours(page: chromium.Page) -> None:
    documents = [html(1, "x"), html(2, "<script>location = '/elsewhere'</script>"), html(3, "<b onclick=x>x</b>")]
    found = list(hunt.hunt(page, "lab", ["trusted"], documents, hunt.Tally("lab")))
    assert {finding.document.number for finding in found} == {2, 3}


@pytest.mark.long
def test_a_finding_is_made_small(page: chromium.Page) -> None:
    finding = hunt.Finding("lab", "trusted", html(1, "some text <b onclick=x>and</b> more"), ("onclick on <b>",))
    (_, text) = next(hunt.texts(hunt.small(page, finding, rounds=80).document.content))
    assert len(text) < len("some text <b onclick=x>")


def test_a_seed_and_a_number_say_which_document_it_is() -> None:
    assert [document(3, number) for number in range(1, 50)] == [document(3, number) for number in range(1, 50)]
    assert document(3, 1) != document(4, 1)
    assert all(number_of(name_of(number)) == number for number in range(1, 2000))
