"""Large outputs of a sandbox are drawn in a frame that has a process apart from the page's, whatever they cost there.

The extension knows no costs. It counts elements, spans and letters, so an output is either small or apart.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.browser.lab import Lab, chromium, eventually
from tests.browser.test_page_messages import ANSWERS, GAUGE, KEPT, watched
from tests.support.chromium import page

OUTPUT = ".jp-OutputArea-output"
APART = f"{OUTPUT} iframe.sk-Heavy"
ROW = "<tr>" + "<td>7</td>" * 40 + "</tr>"
CELL = f"""from IPython.display import HTML, SVG, Markdown, display
display(HTML("<table>" + {ROW!r} * 20 + "</table>"))
display(HTML("<table>" + {ROW!r} * 90 + "</table>"))
display(SVG('<svg xmlns="http://www.w3.org/2000/svg" width="200" height="150">'
    + ''.join(f'<circle cx="{{i % 200}}" cy="{{i // 30}}" r="1"/>' for i in range(5000)) + '</svg>'))
display(Markdown("- *one*\\n" * 2000))
display(HTML("<script>1</script>" + "<i>x</i>" * 4000))"""
SLOW = "<p>" + "word " * 25_000 + "<p>a" + "\u0301\u0316" * 32_000
"""Of these marks on one letter, Chromium thinks for many seconds; the policy lets no such thing pass."""


def apart(lab: Lab) -> list[bool]:
    found: list[bool] = lab.js(
        f"return [...document.querySelectorAll('{OUTPUT}')].map(one => one.querySelector('.sk-Heavy') !== null)"
    )
    return found


def test_large_tables_pictures_and_markdown_are_apart_and_small_ones_and_programs_are_not(walled_lab: Lab) -> None:
    lab = walled_lab
    lab.open("sandbox-python", CELL)
    lab.run_all()
    eventually(lambda: len(apart(lab)) == 5, "all outputs")
    assert apart(lab) == [False, True, True, True, False]
    assert lab.js(f"return document.querySelectorAll('{OUTPUT} td').length") == 800
    shown = []
    for frame in lab.browser.find_elements("css selector", APART):
        lab.browser.switch_to.frame(frame)
        eventually(lambda: lab.js("return document.readyState") == "complete", "it is shown")
        names = ("td", "img", "em")
        shown.append([len(lab.browser.find_elements("css selector", name)) for name in names])
        if shown[-1][1]:
            assert lab.js("const [one] = document.images; return [one.naturalWidth, one.height]") == [200, 150]
        lab.browser.switch_to.default_content()
    assert shown == [[3600, 0, 0], [0, 1, 0], [0, 0, 2000]]
    lab.js("return window.jupyterapp.commands.execute('docmanager:save').then(() => 1)")
    lab.browser.refresh()
    eventually(lambda: apart(lab) == [False, True, True, True, False], "the same in a notebook that is opened again")
    enabled = "return window.jupyterapp?.commands.isEnabled('notebook:run-all-cells')"
    eventually(lambda: lab.js(enabled), "a kernel again")
    lab.js("window.jupyterapp.shell.currentWidget.content.widgets[0].model.sharedModel.setSource('1 + 1')")
    lab.js("window.jupyterapp.commands.execute('notebook:run-all-cells')")
    eventually(lambda: apart(lab) == [False], "a small output in the place of a large one")
    eventually(lambda: lab.text(0) == ["2"], "what the cell has now")


@pytest.mark.long
def test_a_large_program_that_the_user_trusts_runs_in_the_page(spoiled_lab: Lab) -> None:
    """A figure of plotly is one, with its library. What only looks like a program is apart, as any large output."""
    lab = spoiled_lab
    code = """from IPython.display import HTML, display
display(HTML("<i>x</i>" * 4000 + "<script>document.body.dataset.ran = 'yes'</script>"))
display(HTML("<i title='<script>1</script>'>x</i>" * 4000))"""
    lab.open("sandbox-trusted", code)
    lab.run_all()
    eventually(lambda: apart(lab) == [False, True], "both outputs")
    eventually(lambda: lab.js("return document.body.dataset.ran") == "yes", "the program has run")


@pytest.mark.long
def test_outputs_of_other_kernels_are_as_they_were(shared_lab: Lab) -> None:
    shared_lab.open("python3", CELL)
    shared_lab.run_all()
    eventually(lambda: len(apart(shared_lab)) == 5, "all outputs")
    assert apart(shared_lab) == [False] * 5


@pytest.mark.long
def test_an_output_that_is_slow_to_draw_does_not_keep_the_page(spoiled_lab: Lab) -> None:
    """As if it had got past the policy: no output of this kernel is filtered."""
    lab = spoiled_lab
    lab.open("sandbox-trusted", f"from IPython.display import HTML\nHTML({SLOW!r})")
    lab.js(GAUGE)
    lab.run_all()
    eventually(lambda: apart(lab) == [True], "it is apart")
    lab.js("late = 0")
    assert watched(lab) < ANSWERS
    # And drawn it is, in the end.
    frame = lab.browser.find_element("css selector", APART)
    lab.browser.switch_to.frame(frame)
    assert lab.js("return document.body.offsetHeight") > 100
    lab.browser.switch_to.default_content()


@pytest.mark.long
def test_control_in_the_page_itself_it_does(tmp_path: Path) -> None:
    with chromium(tmp_path) as browser, page(f"<!DOCTYPE html><body>{SLOW}") as port:
        start = time.monotonic()
        browser.get(f"http://127.0.0.1:{port}/")
        assert browser.execute_script("return document.body.offsetHeight") > 100
        assert time.monotonic() - start > KEPT
