"""A program in a frame does not take what a person types elsewhere, by a real keyboard in a real Chromium."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys

from sandbox_kernel.policy import frame
from tests.support.chromium import SWITCHES

GUARDED = {
    "window": "window.focus()",
    "element": "t.focus()",
    "method of another": "HTMLElement.prototype.focus.call(b)",
    "svg": "s.focus()",
    "dialog": "g.close();g.showModal()",
    "popover": "p.hidePopover();p.showPopover()",
    "label": "l.click()",
    "click on a label": "l.dispatchEvent(new MouseEvent('click',{bubbles:true}))",
    "selected text": "t.select()",
    "whole document": "document.designMode='on';document.body.focus()",
    "editable": "getSelection().setBaseAndExtent(e,0,e,1);document.execCommand('selectAll')",
    "what a form lacks": "r.reportValidity()",
    "child frame": "n.focus()",
    "shadow": "h.focus()",
    "itself from above": "for(let i=0;i<top.length;i++)try{top[i][0].focus.call(self)}catch(e){}",
    "pretended act": "Object.defineProperty(navigator,'userActivation',{value:{isActive:true}});t.focus()",
    "method of a new frame": "const f=document.createElement('iframe');document.body.append(f);"
    "try{f.contentWindow.HTMLElement.prototype.focus.call(t)}finally{f.remove()}",
}
UNGUARDED = {
    "address": "location.hash='';location.hash='#t'",
    "window of a child": "n.contentWindow.focus()",
    "child by its number": "window[0].focus()",
    "outer frame": "parent.focus()",
}
BODY = """<button id=b>x</button><input id=r required><input id=t value=word><label id=l for=t>word</label>
    <svg id=s tabindex=0 width=9 height=9></svg><dialog id=g><input autofocus></dialog>
    <div id=p popover><input autofocus></div><div id=e contenteditable>text</div><iframe id=n></iframe><div id=h></div>
    <script>h.attachShadow({mode:'open',delegatesFocus:true}).innerHTML='<input>';
    setInterval(()=>{try{%s}catch(e){}},10)</script>"""
HONEST = """<button id=b>x</button><input id=t><script>window.seen=[];
    b.onclick=()=>{seen.push('click');t.focus()};b.onmousemove=()=>{window.over=true};
    addEventListener('keydown',event=>seen.push(event.key))</script>"""
TEXT = "what a person types into a cell of theirs"
WAIT = 10.0


@pytest.fixture(scope="module")
def browser() -> Iterator[Chrome]:
    binary, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if not binary or not driver:
        pytest.fail("this test needs a browser: apt-get install chromium chromium-driver")
    options = ChromeOptions()
    options.binary_location = binary
    for switch in (*SWITCHES, "--disable-dev-shm-usage", "--window-size=1200,1000"):
        options.add_argument(switch)
    with TemporaryDirectory(prefix="focus-") as short:
        options.add_argument(f"--user-data-dir={short}/profile")
        environment = {**os.environ, "TMPDIR": short}  # it leaves a folder there when it is killed
        one = Chrome(options=options, service=Service(executable_path=driver, env=environment))
        try:
            yield one
        finally:
            one.quit()


def show(browser: Chrome, folder: Path, bodies: list[str]) -> None:
    pages = "".join(map(frame.wrap, bodies))
    path = folder / "page.html"
    path.write_text(f"<!DOCTYPE html><textarea id=cell style='display:block'></textarea>{pages}")
    browser.get(path.as_uri())


def typed(browser: Chrome) -> str:
    """Click into the cell, type as a person would, and return what has arrived there."""
    browser.execute_script("cell.value = ''")
    press(browser, *browser.execute_script("const at = cell.getBoundingClientRect(); return [at.x + 9, at.y + 9]"))
    for key in TEXT:
        for kind in ({"type": "keyDown", "text": key}, {"type": "keyUp"}):
            browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"key": key, **kind})
        time.sleep(0.02)  # a person is no faster: each program's timer runs between two keys
    return str(browser.execute_script("return cell.value"))


def press(browser: Chrome, x: float, y: float) -> None:
    at = {"x": x, "y": y, "button": "left", "clickCount": 1}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": "mouseMoved", "x": x, "y": y})
    for kind in ("mousePressed", "mouseReleased"):
        browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, **at})


def inside(browser: Chrome, code: str) -> object:
    """Run code in the program of the first frame."""
    for _ in range(2):
        browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    try:
        return browser.execute_script(code)
    finally:
        browser.switch_to.default_content()


def eventually(condition: Callable[[], object], what: str) -> None:
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end, f"not within {WAIT:g} s: {what}"
        time.sleep(0.05)  # the step of a bounded wait


def test_what_a_person_types_is_not_taken_by_programs_in_frames(browser: Chrome, tmp_path: Path) -> None:
    """All at once, each a hundred times a second."""
    show(browser, tmp_path, [BODY % code for code in GUARDED.values()])
    assert typed(browser) == TEXT


@pytest.mark.parametrize("name", ["window", "label"])
def test_without_the_guard_it_is(name: str, browser: Chrome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control; the outer frame's script is off, too."""
    monkeypatch.setattr(frame, "_FIRST", "")
    monkeypatch.setattr(frame, "_CHECK", "")
    monkeypatch.setattr(frame, "_ENDING", "")
    monkeypatch.setattr(frame, "_AFTER", '"></iframe></body></html>')
    show(browser, tmp_path, [BODY % GUARDED[name]])
    assert typed(browser) != TEXT


@pytest.mark.parametrize("name", UNGUARDED)
def test_what_takes_it_past_the_guard_is_stopped(name: str, browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, [BODY % UNGUARDED[name]])
    typed(browser)
    browser.switch_to.frame(browser.find_element("css selector", "iframe"))
    assert "it took the keyboard without a click" in browser.find_element("css selector", "body").text
    browser.switch_to.default_content()
    assert typed(browser) == TEXT


def test_a_program_that_a_person_clicks_or_tabs_into_has_the_keyboard(browser: Chrome, tmp_path: Path) -> None:
    show(browser, tmp_path, [HONEST])
    typed(browser)
    for _ in range(3):
        at = inside(browser, "const at = b.getBoundingClientRect(); seen.length = 0; return [at.x + 9, at.y + 9]")
        place = browser.find_element("css selector", "iframe").rect
        assert isinstance(at, list)
        press(browser, at[0] + place["x"], at[1] + place["y"])
        eventually(lambda: inside(browser, "return seen.length"), "the click")
        browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "text": "z", "key": "z"})
        eventually(lambda: inside(browser, "return seen.join()") == "click,z", "the key")
        assert inside(browser, "return window.over")
        assert typed(browser) == TEXT
    browser.execute_script("cell.focus()")
    browser.switch_to.active_element.send_keys(Keys.TAB, Keys.TAB)
    tab = {"key": "Tab", "code": "Tab", "windowsVirtualKeyCode": 9}
    inside(browser, "seen.length = 0")
    browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "rawKeyDown", **tab})
    browser.execute_cdp_cmd("Input.dispatchKeyEvent", {"type": "keyDown", "text": "q", "key": "q"})
    eventually(lambda: "q" in str(inside(browser, "return seen.join()")), "the key after Tab")
