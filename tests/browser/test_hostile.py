"""Hostile outputs in a real JupyterLab in a real Chromium: nothing runs, nothing leaves, nothing is acted on.

The same outputs with `--outputs trusted` are the control, and show what they do without the policy.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

import pytest

from tests.browser.cases import MODES, CaseError
from tests.browser.cases import cases as read
from tests.browser.lab import NOTEBOOK, Lab, eventually, settled
from tests.support.chromium import Evil, listening
from tests.support.corpus import UNSUITED, Attack, attacks, cells

USED = """
    for (const one of document.querySelectorAll('.jp-OutputArea ' + arguments[0])) {
        const address = one.closest('a')?.protocol ?? '';
        if (address === 'http:' || address === 'https:') continue;  // to follow an honest link is a person's own choice
        if (one.click) one.click(); else one.dispatchEvent(new MouseEvent('click', {bubbles: true}));
        for (const kind of ['mouseover', 'focus', 'pointerrawupdate', 'dblclick'])
            one.dispatchEvent(new Event(kind, {bubbles: kind === 'mouseover'}));
    }
"""
RAN = """
    const found = new Set();
    const look = page => {
        for (const name of Object.getOwnPropertyNames(page)) if (/^pwned/.test(name)) found.add(name);
        for (let i = 0; i < page.length; i++) try { look(page[i]); } catch {}  // a frame of another origin throws
    };
    look(window);
    return [...found];
"""


class Seen:
    """What came of a notebook of attacks."""

    def __init__(
        self, lab: Lab, evil: Evil, kernel: str, chosen: list[Attack], used: str, *, wall: bool = False
    ) -> None:
        by_number = {attack.number: attack.name for attack in chosen}
        sources = cells(chosen)
        lab.open(kernel, *sources)
        window, title = lab.browser.current_url.partition("?")[0], lab.browser.title
        lab.run_all()
        settled(lambda: len(evil.paths()))
        self.first = lab.text(0)
        lab.js(USED, used)
        if wall:  # the page itself cannot
            urllib.request.urlopen(f"http://127.0.0.1:{evil.tcp}/0", timeout=10).close()
        else:
            lab.js("fetch(arguments[0], {mode: 'no-cors'}).catch(() => 0)", f"http://evil.test:{evil.tcp}/0")
        eventually(lambda: "0" in evil.paths(), "the page's own request, which shows that the listener counts")
        settled(lambda: len(evil.paths()))
        self.ran = {by_number.get(int(name[5:] or 0), name) for name in lab.js(RAN)}
        numbers = {path.partition("/")[0] for path in evil.paths()} - {"0"}
        self.asked = {by_number.get(int(one), one) if one.isdigit() else one for one in numbers}
        self.new_cells = len(lab.cells()) - len(sources)
        self.changed = [now for now, before in zip(lab.cells(), sources, strict=False) if now != before]
        self.terminals = lab.ask("api/terminals")
        self.windows = len(lab.browser.window_handles)
        self.stayed = lab.browser.current_url.partition("?")[0] == window
        self.title = (title, lab.browser.title)
        self.first_after, self.last = lab.text(0), lab.text(-1)
        self.kernel = lab.js(f"return {NOTEBOOK}.sessionContext.session.kernel.status")


@pytest.mark.parametrize("kernel", ["sandbox-python", pytest.param("sandbox-strict", marks=pytest.mark.long)])
def test_hostile_outputs_do_nothing_in_jupyterlab(shared_lab: Lab, kernel: str) -> None:
    with listening() as evil:
        chosen = list(attacks(evil.tcp))
        seen = Seen(shared_lab, evil, kernel, chosen, used="*")
    assert len(chosen) >= 200
    assert seen.ran == set()
    assert seen.asked == set()
    assert seen.terminals == []
    assert (seen.new_cells, seen.changed) == (0, [])
    assert seen.first[0] == seen.first_after[0] == "'the first cell'"  # a thread of its may add to it, late
    assert seen.last == ["the last cell"]
    assert (seen.windows, seen.stayed, seen.kernel) == (1, True, "idle")
    assert seen.title[0] == seen.title[1]


@pytest.mark.long
def test_the_same_outputs_fire_when_they_are_trusted(spoiled_lab: Lab) -> None:
    """The control. What takes away the page is left out, and only what acts at a click is clicked."""
    with listening() as evil:
        chosen = [attack for attack in attacks(evil.tcp) if attack.name not in UNSUITED]
        seen = Seen(
            spoiled_lab, evil, "sandbox-trusted", chosen, used=":is([data-commandlinker-command], a[href*=script])"
        )
    assert len(seen.ran) >= 30, seen.ran
    assert len(seen.asked) >= 20, seen.asked
    assert len(seen.ran | seen.asked) >= 60
    assert seen.terminals
    assert seen.new_cells > 0
    assert seen.changed
    assert seen.windows > 1


EXAMPLE = Path(__file__).parent / "example.jsonl"


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_cases_of_a_file(mode: str, request: pytest.FixtureRequest) -> None:
    """The example, without `--corpus`; nothing acts but under `trusted`, where all that say so must."""
    files = request.config.getoption("--corpus") or [str(EXAMPLE)]
    read(files, 1)  # a bad file is said before anything starts
    lab: Lab = request.getfixturevalue("spoiled_lab" if mode == "trusted" else "shared_lab")
    with listening() as evil:
        chosen = read(files, evil.tcp)
        kernel = {"safe": "sandbox-python", "strict": "sandbox-strict", "trusted": "sandbox-trusted"}[mode]
        used = "*" if mode != "trusted" else ":is([onfocus], [data-commandlinker-command])"
        seen = Seen(lab, evil, kernel, [attack for attack, _ in chosen], used=used)
    acted = seen.ran | seen.asked
    if mode == "trusted":
        assert {attack.name for attack, acts in chosen if acts} - acted == set()
        return
    assert acted == set()
    assert (seen.terminals, seen.new_cells, seen.changed, seen.windows, seen.stayed) == ([], 0, [], 1, True)
    assert (seen.title[0], seen.kernel) == (seen.title[1], "idle")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no case"),
        ("{", "line 1 is not JSON"),
        ("[{]", "is not JSON"),
        ('{"kind": "display"}', "an object with a name"),
        ('{"name": "x", "kind": "y"}', "is none of display"),
        ('{"name": "x", "data": "y"}', "needs data, of type dict"),
        ('{"name": "x", "data": {}, "dta": 1}', "unknown keys dta"),
    ],
)
def test_a_bad_file_of_cases_is_refused_with_a_reason(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "cases.jsonl"
    path.write_text(text)
    with pytest.raises(CaseError, match=said):
        read([str(path)], 1)
