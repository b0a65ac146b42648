"""Cells that print without measure: a person's JupyterLab goes on scrolling and saving, and says where the rest is.

The control, that all of it reaches a front end without the limit, needs no browser: tests/container/test_overflow.py.
"""

from __future__ import annotations

import json

from tests.browser.lab import NOTEBOOK, Lab
from tests.support.patience import Stopwatch

CELLS = {
    "ten million lines": "for n in range(0, 10**7, 1000): print('\\n'.join(map(str, range(n, n + 1000))))",
    "one line": "print('x' * 5_000_000)",
    "one result": "'y' * 5_000_000",
    "displays": "for n in range(1100): display(n)",
    "a bar": "for n in range(5_000): print(f'\\r{n:60}', end='')",
    "links": "print('www.a.b ' * 120_000)",
    "an error": "raise ValueError('z ' * 2_000_000)",
}
STEPS = 20
SCROLL = f"""const done = arguments[0], node = {NOTEBOOK}.content.node;
    const page = node.querySelector('.jp-WindowedPanel-outer') ?? node;
    let steps = 0;
    const step = () => {{
        page.scrollTop += 400;
        if (++steps < {STEPS}) requestAnimationFrame(step); else done();
    }};
    requestAnimationFrame(step);"""
SAVE = f"const done = arguments[0]; {NOTEBOOK}.context.save().then(() => done(''), error => done(String(error)));"


def text(lab: Lab, cell: int) -> str:
    """Return all of a cell's text as it stands in the page."""
    found: str = lab.js(
        "return document.querySelectorAll('.jp-CodeCell .jp-OutputArea')[arguments[0]].textContent", cell
    )
    return found


def test_a_page_bears_what_is_printed_without_measure(shared_lab: Lab) -> None:
    shared_lab.open("sandbox-python", *CELLS.values())
    shared_lab.run_all()
    shown = {name: text(shared_lab, cell) for cell, name in enumerate(CELLS)}
    with Stopwatch() as watch:
        shared_lab.browser.execute_async_script(SCROLL)
    assert watch.seconds < STEPS * 0.5, "steps of scrolling"
    assert not shared_lab.browser.execute_async_script(SAVE)
    saved = (shared_lab.folder / "notebook.ipynb").read_text()
    assert len(saved) < 20 << 20
    assert "9999999\n" in shown["ten million lines"]
    assert shown["a bar"].strip() == "4999"
    for cell, (name, there) in zip(json.loads(saved)["cells"], shown.items(), strict=True):
        assert len(there) < 3 << 20, name
        # Of many outputs, JupyterLab shows the first fifty and a button.
        assert ("/mnt/data/outputs/cell-" in json.dumps(cell["outputs"])) is (name != "a bar"), name
