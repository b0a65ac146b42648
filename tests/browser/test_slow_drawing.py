"""A program whose styles keep the browser from drawing, its other tabs included, is stopped by the frame around it."""

# ruff: noqa: SLF001 (the frames' scripts)

from __future__ import annotations

import pytest

from sandbox_kernel.policy import frame
from tests.browser.test_frame_acts import eventually, shell, show
from tests.support.bidi import Browser, BrowserError, driven
from tests.support.chromium import page

LAYERS = 200
PROGRAM = f"""<style>
    i {{ position: fixed; inset: 0; backdrop-filter: blur(30px) hue-rotate(10deg) }}
    b {{ position: fixed; width: 50px; height: 50px; background: red; animation: move 1s infinite linear }}
    @keyframes move {{ to {{ transform: translateX(300px) }} }}
</style><b></b>{"<i></i>" * LAYERS}<script>window.ran = 0; setInterval(() => ran++, 50)</script>"""
COUNT = "<script>window.drawn = 0; (function draw() { drawn++; requestAnimationFrame(draw) })()</script>"
STOPPED = "the browser could draw hardly anything"
PATIENCE = "8e3 + 4e3 * Math.random()"


def patient(monkeypatch: pytest.MonkeyPatch, milliseconds: str) -> None:
    watch = frame._WATCH.replace(PATIENCE, milliseconds)
    assert watch != frame._WATCH
    monkeypatch.setattr(frame, "WATCH_HASH", frame._hash(watch))
    monkeypatch.setattr(frame, "_AFTER", frame._AFTER.replace(frame._WATCH, watch))


def is_stopped(browser: Browser) -> bool:
    return STOPPED in str(browser.js("return document.body.innerText", 0))


def wait_for(browser: Browser, milliseconds: int) -> None:
    browser.js(f"await new Promise(done => setTimeout(done, {milliseconds}))")


def output(program: str = PROGRAM) -> str:
    return frame.wrap(program).replace("height:420px", "height:900px")


def test_who_keeps_the_browser_from_drawing_is_stopped_and_it_draws_again(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch, "2e3")
    with driven("chromium") as browser, page(shell(output(), "") + COUNT) as port:
        show(browser, port)
        eventually(lambda: is_stopped(browser), "it is stopped", 60)
        eventually(lambda: browser.js("return drawn") > 30, "the page draws", 60)
        with pytest.raises(BrowserError, match="no frame"):
            browser.context(0, 0)


@pytest.mark.long
def test_control_without_an_end_the_page_is_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    patient(monkeypatch, "1e9")
    with driven("chromium") as browser, page(shell(output(), "") + COUNT) as port:
        show(browser, port)
        before = browser.js("return drawn")
        wait_for(browser, 6000)
        assert browser.js("return drawn") - before < 10
        assert browser.js("return ran", 0, 0) > 30, "its scripts run"


@pytest.mark.parametrize("name", ["chromium", pytest.param("firefox", marks=pytest.mark.long)])
def test_a_frame_that_is_out_of_view_or_at_rest_goes_on(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is drawn. A limit below a second would end what is drawn at each of them."""
    patient(monkeypatch, "2e3")
    rests = frame.wrap("<p>rests</p><script>1</script>")
    with driven(name) as browser, page(shell(rests, "") + frame.wrap("<p>below</p><script>1</script>")) as port:
        show(browser, port)
        wait_for(browser, 6000)
        assert browser.js("return document.body.innerText", 0, 0).strip() == "rests"
        assert browser.js("return document.body.textContent", 1, 0).startswith("below")
