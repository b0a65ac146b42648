"""Hostile outputs in a real JupyterLab in a real Chromium: nothing runs, nothing leaves, nothing is acted on.

The same outputs with `--outputs trusted` are the control, and show what they do without the policy.
"""

from __future__ import annotations

from policy.browser import Evil, listening

from .corpus import UNSUITED, Attack, attacks, cells
from .lab import Lab, eventually, settled

AFTER = """
    const act = window.jupyterapp.commands;
    for (const one of document.querySelectorAll('.jp-OutputArea *')) {
        const address = one.closest('a')?.protocol ?? '';
        if (address === 'http:' || address === 'https:') continue;  // to follow an honest link is a person's own choice
        try { one.click?.() ?? one.dispatchEvent(new MouseEvent('click', {bubbles: true})); } catch {}
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

    def __init__(self, lab: Lab, evil: Evil, kernel: str, chosen: list[Attack]) -> None:
        by_number = {attack.number: attack.name for attack in chosen}
        sources = cells(chosen)
        lab.open(kernel, *sources)
        window, title = lab.browser.current_url.partition("?")[0], lab.browser.title
        lab.run_all()
        settled(lambda: len(evil.requests))
        self.first = lab.text(0)
        lab.js(AFTER)
        lab.js("fetch(arguments[0], {mode: 'no-cors'}).catch(() => 0)", f"http://evil.test:{evil.tcp}/0")
        eventually(lambda: "0" in evil.paths(), "the page's own request, which shows that the listener counts")
        settled(lambda: len(evil.requests))
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
        self.kernel = lab.js("return window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.status")


def test_hostile_outputs_do_nothing_in_jupyterlab(lab: Lab) -> None:
    with listening() as evil:
        chosen = list(attacks(evil.tcp))
        seen = Seen(lab, evil, "sandbox-python", chosen)
    print(vars(seen))
    lab.browser.save_screenshot("/tmp/bt/safe.png")
    assert len(chosen) >= 60
    assert seen.ran == set()
    assert seen.asked == set()
    assert seen.terminals == []
    assert (seen.new_cells, seen.changed) == (0, [])
    assert seen.first == seen.first_after == ["'the first cell'"]
    assert seen.last == ["the last cell"]
    assert (seen.windows, seen.stayed, seen.kernel) == (1, True, "idle")


def test_the_same_outputs_fire_when_they_are_trusted(lab: Lab) -> None:
    with listening() as evil:
        chosen = [attack for attack in attacks(evil.tcp) if attack.name not in UNSUITED]
        seen = Seen(lab, evil, "sandbox-trusted", chosen)
    print(vars(seen))
    lab.browser.save_screenshot("/tmp/bt/trusted.png")
    assert len(seen.ran) >= 15
    assert len(seen.asked) >= 15
    assert seen.terminals
    assert seen.new_cells > 0
