"""Notebook 7 shows outputs with the parts of JupyterLab in a page of its own: hostile ones do no more there."""

from __future__ import annotations

import pytest

from tests.browser.lab import Lab, eventually, settled
from tests.browser.test_heavy_outputs import APART, ROW
from tests.browser.test_labextension import FRAME
from tests.browser.test_page_messages import ANSWERS, GAUGE, HONEST, PAST, watched
from tests.support.chromium import Evil
from tests.support.policy.hostile import HTML

PAGE = "notebooks"
ALL = """from IPython.display import HTML, display
for source in {}: display(HTML(source))"""


def shown(lab: Lab, kernel: str, evil: Evil) -> None:
    """Show the corpus. What would take the page away is left out."""
    at = f"http://evil.test:{evil.tcp}"
    sources = [one.replace("http://evil.test", at) for name, one in HTML.items() if "refresh" not in name]
    lab.open(kernel, ALL.format(sources), page=PAGE)
    lab.run_all()


def test_hostile_outputs_run_nothing_and_load_nothing_in_notebook_7(shared_lab: Lab, evil: Evil) -> None:
    shown(shared_lab, "sandbox-python", evil)
    count = "return document.querySelectorAll('.jp-OutputArea-output').length"
    settled(lambda: int(shared_lab.js(count)))
    assert shared_lab.js(count) > 10
    assert shared_lab.js("return window.pwned") is None
    assert evil.requests == []


@pytest.mark.long
def test_control_unfiltered_they_run_and_load(spoiled_lab: Lab, evil: Evil) -> None:
    shown(spoiled_lab, "sandbox-trusted", evil)
    eventually(lambda: spoiled_lab.js("return window.pwned") == 1, "a script runs")
    eventually(lambda: "leak" in evil.paths(), "something is loaded")


@pytest.mark.long
def test_a_frame_that_posts_slow_values_does_not_keep_notebook_7_and_a_large_output_is_apart(walled_lab: Lab) -> None:
    """The control is one for any page: a page that reads such values is kept."""
    lab = walled_lab
    lab.open("sandbox-python", ALL.format([HONEST, "<table>" + ROW * 90 + "</table>", PAST]), page=PAGE)
    lab.js(GAUGE)
    lab.run_all()
    eventually(lambda: lab.js(f"return document.querySelector('{FRAME}')?.offsetHeight") == 145, "its height")
    assert lab.js(f"return document.querySelectorAll('{APART}').length") == 1
    eventually(lambda: lab.js("return heard") > 0, "the attack begins")
    lab.js("late = 0")
    assert watched(lab) < ANSWERS
