"""What a program in a frame may do to the tab as a whole, in Chromium and in Firefox.

The lists of what to try come from the browsers themselves: all that `window` has, and all methods that can be reached.
What is new in a browser is on no list of ours, and fails here.
"""

# ruff: noqa: E501, SLF001 (a script reads best on one line)

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.policy import frame
from tests.support.bidi import Browser, BrowserError, driven
from tests.support.chromium import page

INERT = {"External", "FragmentDirective", "FeaturePolicy", "PermissionsPolicy"}
"""What a program can reach though it has no name for it; none of it does anything."""
KNOWN = Path(__file__).with_name("frame_interface.txt")
SETTLES = 0.7
"""Seconds in which a browser goes back, where it does."""
WAIT = 20.0
CONTROL, ALL = "\ue009", "a"
_VISITS = itertools.count()

TAB = """return {history: history.length, place: location.pathname, same: window.same === 1, title: document.title,
    scrolled: scrollY, full: !!document.fullscreenElement, focus: document.activeElement.tagName}"""

WAYS = {
    "back": "history.back()",
    "go": "history.go(-1)",
    "forward": "history.forward()",
    "method": "History.prototype.back.call(history)",
    "method of another": "Object.getPrototypeOf(history).go.call(history, -1)",
    "push": "for (let i = 0; i < 9; i++) history.pushState(i, '')",
    "replace": "history.replaceState(1, '')",
    "navigate": "navigation.navigate(location.href + '#z', {history: 'push'})",
    "navigate back": "navigation.back()",
    "child": "const c = document.createElement('iframe'); document.body.append(c); c.contentWindow.history.back()",
    "child's method": "const d = document.createElement('iframe'); document.body.append(d);"
    "d.contentWindow.History.prototype.back.call(history)",
    "child with a script": "const e = document.createElement('iframe'); document.body.append(e);"
    "e.srcdoc = '<script>' + document.querySelector('#ways').text + '</' + 'script>'",
    "link": "l.click()",
    "link by an event": "l.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))",
    "link around it": "l.firstChild.dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))",
    "link in no document": "const a = document.createElement('a'); a.href = '#q'; a.click();"
    "a.dispatchEvent(new MouseEvent('click'))",
    "form": "f.submit()",
    "form by a button": "f.requestSubmit()",
    "open": "open('about:srcdoc#w', '_self')",
    "window": "open('about:blank')",
    "refresh": "document.head.insertAdjacentHTML('beforeend', '<meta http-equiv=refresh content=0;url=#m>')",
    "scroll": "f.scrollIntoView()",
    "scroll if needed": "f.scrollIntoViewIfNeeded()",
    "focus": "i.focus()",
    "title": "document.title = 'taken'; top.document.title = 'taken'",
    "full screen": "document.body.requestFullscreen()",
    "dialog": "alert(1); confirm(1); prompt(1); print()",
    "speech": "speechSynthesis.speak(new SpeechSynthesisUtterance('x'))",
}
"""All of them at once, in one program."""
CONTROLS = {
    "chromium": ["push", "navigate", "link", "link in no document", "scroll"],
    "firefox": ["back", "method", "push", "navigate", "scroll"],
}
"""Those that act on the tab of each browser where no guard is."""
BODY = """<button id=b style="width:200px;height:100px">button</button><p id=t>a text of the frame</p>
    <div style="height:3000px">x</div><a id=l href="#f"><b>x</b></a>
    <form id=f action="#f"><input id=i name=q></form><script id=ways>%s</script>"""
TRY = """window.go = () => { %s top.postMessage('all was tried', '*'); };
    if (parent.parent !== top) go();"""
"""It waits for the test, but in a frame that it has made itself."""


@pytest.fixture(params=["chromium", "firefox"], scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Browser]:
    with driven(request.param) as browser:
        yield browser


def unguard(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "Object.defineProperty(Symbol, 'sandboxKernel', {value: true})"
    monkeypatch.setattr(frame, "_FIRST", f"<script>{code}</script>")
    monkeypatch.setattr(frame, "GUARD_HASH", frame._hash(code))


def program(*codes: str) -> str:
    return BODY % (TRY % "".join(f"try {{ {code} }} catch (e) {{}} " for code in codes))


def show(browser: Browser, port: int) -> Any:
    """Open the page as the second one of a new tab, and return the state of the tab."""
    old = browser.context()
    browser.call("browsingContext.create", type="tab")
    browser.call("browsingContext.close", context=old)
    browser.open(f"http://127.0.0.1:{port}/before?{next(_VISITS)}")
    browser.open(f"http://127.0.0.1:{port}/page?{next(_VISITS)}")
    browser.js("window.same = 1; document.body.scrollTo(0, 0)")
    return tab(browser)


def shell(body: str, style: str = "height:600px") -> str:
    """Return a page with an output in it, which hears what a program says: its frame may load once more meanwhile."""
    return f"""<!DOCTYPE html><meta charset=utf-8><title>page</title><textarea id=cell>mine</textarea>
        <script>addEventListener('message', event => {{ window.heard = event.data }})</script>
        <div style="{style}"></div>{body}<div style="height:3000px"></div>"""


def click(browser: Browser) -> None:
    """Click at what is on the top of the program."""
    x, y = browser.js("const at = document.querySelector('iframe').getBoundingClientRect(); return [at.x, at.y]")
    browser.click(x + 60, y + 50)


def tab(browser: Browser) -> Any:
    return {**browser.js(TAB), "windows": len(browser.contexts())}


def eventually(condition: Callable[[], object], what: str, seconds: float = WAIT) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            if condition():
                return
        except BrowserError:  # the frame or the page is going
            pass
        assert time.monotonic() < end, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)  # the step of a bounded wait


def settled(browser: Browser) -> Any:
    """Return the state of the tab once a browser would have gone back."""
    browser.js(f"await new Promise(done => setTimeout(done, {SETTLES * 1000}))")
    return tab(browser)


def test_a_program_acts_in_its_frame_alone(browser: Browser) -> None:
    with page(shell(frame.wrap(program(*WAYS.values())))) as port:
        before = show(browser, port)
        browser.js("setTimeout(go, 50)", 0, 0)
        eventually(lambda: browser.js("return window.heard"), "all was tried")
        assert settled(browser) == before


def test_control_without_the_guard_each_acts_on_the_tab(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    unguard(monkeypatch)
    for name in CONTROLS[browser.name]:
        with page(shell(frame.wrap(program(WAYS[name])))) as port:
            before = show(browser, port)
            browser.js("setTimeout(go, 50)", 0, 0)
            eventually(lambda before=before: tab(browser) != before, name)  # type: ignore[misc]


COPY = """
b.onclick = () => {
    const area = document.body.appendChild(document.createElement('textarea'));
    area.value = 'evil';
    for (const type of ['copy', 'cut']) addEventListener(type, event => {
        event.clipboardData.setData('text/plain', 'evil'); event.preventDefault();
    }, true);
    try { navigator.clipboard.writeText('evil').catch(() => {}) } catch (e) {}
    try { area.select(); document.execCommand('copy'); document.execCommand('cut') } catch (e) {}
    try { Document.prototype.execCommand.call(document, 'copy') } catch (e) {}
    window.clicked = 1;
};"""


def pasted(browser: Browser) -> Any:
    """Return what a person's paste brings."""
    browser.js("cell.value = ''; cell.focus(); scrollTo(0, 0)")
    browser.click(*browser.js("const at = cell.getBoundingClientRect(); return [at.x + 9, at.y + 9]"))
    browser.press(CONTROL, "v")
    return browser.js("return cell.value")


def copies(browser: Browser, by_hand: bool) -> Any:
    """Copy from the page, click into the program, copy there with the keys or not, and return what is pasted."""
    with page(shell(frame.wrap(BODY % COPY), "")) as port:
        show(browser, port)
        browser.js("cell.value = 'mine'; cell.focus(); cell.select()")
        browser.press(CONTROL, "c")
        assert pasted(browser) == "mine"
        click(browser)
        eventually(lambda: browser.js("return window.clicked", 0, 0), "the click")
        if by_hand:
            browser.js("getSelection().selectAllChildren(t)", 0, 0)
            browser.press(CONTROL, "c")
        return pasted(browser)


def test_a_click_into_a_frame_leaves_the_clipboard_as_it_is(browser: Browser) -> None:
    assert copies(browser, by_hand=False) == "mine"


def test_what_a_person_copies_from_a_frame_is_what_is_marked(browser: Browser) -> None:
    assert copies(browser, by_hand=True) in ("a text of the frame", "mine")  # a handler may keep it from being copied


@pytest.mark.parametrize("by_hand", [False, True], ids=["click", "keys"])
def test_control_without_the_guard_it_has_a_command(
    browser: Browser, by_hand: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    unguard(monkeypatch)
    assert copies(browser, by_hand) == "evil"


def test_a_link_of_a_program_scrolls_it_and_its_back_is_the_page_s(browser: Browser) -> None:
    body = """<a id=l href="#place" style="display:block;width:300px;height:100px">link</a>
        <div style="height:3000px"></div><p id=place>place</p><script>1</script>"""
    with page(shell(frame.wrap(body), "")) as port:
        before = show(browser, port)
        click(browser)
        eventually(lambda: browser.js("return scrollY", 0, 0) > 2000, "it has scrolled")
        assert settled(browser) == {**before, "focus": "IFRAME"}


# --- lists that the browsers write ---

NAMES = """
const found = new Set();
for (const owner of [window, Window.prototype, Navigator.prototype])
    for (const name of Object.getOwnPropertyNames(owner)) if (!/^(?:\\d+|cdc_.*|sandboxKernel.*|constructor)$/.test(name)) found.add(name);
return [...found]"""
METHODS = """
const found = new Set();
for (const name of Object.getOwnPropertyNames(window)) {
    const type = Object.getOwnPropertyDescriptor(window, name).value;
    if (typeof type != 'function' || !type.prototype || /^cdc_/.test(name)) continue;
    for (const owner of [type, type.prototype])
        for (const [key, {value, set}] of Object.entries(Object.getOwnPropertyDescriptors(owner)))
            if (typeof value == 'function' && key != 'constructor') found.add(key);
}
return [...found]"""


def known(section: str) -> set[str]:
    text = KNOWN.read_text().partition(f"== {section}\n")[2].partition("\n== ")[0]
    return set(text.split())


WALK = """
const TAGS = `a abbr area audio base blockquote body br button camera canvas caption col data datalist del details dialog
    div dl embed fencedframe fieldset font form frame frameset geolocation h1 head hr html iframe img input install label
    legend li link map marquee menu meta meter microphone object ol optgroup option output p param permission picture pre
    progress q script select selectedcontent slot source span style table tbody td template textarea time title tr track
    ul unknown usermedia video`.split(/\\s+/);
const HARNESS = /^(?:remove.*|replace(?:With|Children|State)?|write|writeln|clear.*|open|close|debug|profile.*|adoptNode)$/;
window.walk = () => {
    const holder = document.body.appendChild(document.createElement('div'));
    const made = TAGS.map(tag => document.createElement(tag));
    made.push(document.createElementNS('http://www.w3.org/2000/svg', 'svg'));
    for (const one of made) {
        if (one.localName == 'a') one.href = '#x';
        try { holder.append(one) } catch (e) {}
    }
    const queue = [window, document, document.body, getSelection(), new Range, new DataTransfer, new DragEvent('drop'),
        new ClipboardEvent('copy'), document.createTextNode('x'), holder.attachShadow({mode: 'open'}), ...made];
    const depth = new Map(queue.map(one => [one, 0])), tags = new Set(), called = new Set(), before = new Map();
    for (const one of queue) {
        if (one === parent || one === top || one === location || one === console) continue;
        tags.add(Object.prototype.toString.call(one).slice(8, -1));
        for (let owner = one; owner && owner !== Object.prototype; owner = Object.getPrototypeOf(owner)) {
            for (const [name, {get, value}] of Object.entries(Object.getOwnPropertyDescriptors(owner))) {
                let found = value;
                try { if (get) found = get.call(one) } catch (e) { continue }
                if (found && typeof found == 'object' && depth.get(one) < 2 && queue.length < 3000 && !depth.has(found)) {
                    depth.set(found, depth.get(one) + 1);
                    queue.push(found);
                }
                if (typeof value != 'function' || name == 'constructor' || HARNESS.test(name) || value.prototype) continue;
                if (owner === window && name == 'walk') continue;
                if (!before.has(owner)) before.set(owner, new Set());
                if (depth.get(one) > 0 && before.get(owner).has(name)) continue;
                before.get(owner).add(name);
                called.add(name);
                const click = () => new MouseEvent('click', {bubbles: true, cancelable: true});
                for (const values of [[], ['#x'], ['copy'], [-1], [{}], [document.createElement('b')], [click()]])
                    try { Promise.resolve(value.apply(one, values)).catch(() => {}) } catch (e) {}
            }
        }
    }
    top.postMessage({tags: [...tags], called: [...called]}, '*');
};
b.onclick = walk;
"""


@pytest.mark.parametrize("clicked", [False, True], ids=["by itself", "clicked"])
def test_no_method_of_a_browser_acts_on_the_tab(browser: Browser, clicked: bool) -> None:
    """All that a program can reach, with words, numbers and elements: by itself, and when a person clicks."""
    with page(shell(frame.wrap(BODY % WALK), "")) as port:
        show(browser, port)
        browser.js("cell.focus(); cell.select()")
        browser.press(CONTROL, "c")
        before = tab(browser)
        if clicked:
            click(browser)
        else:
            browser.js("setTimeout(walk, 100)", 0, 0)
        eventually(lambda: browser.js("return window.heard"), "all was called")
        after = settled(browser)
        if clicked:  # the focus is where the person has put it, or nowhere
            assert after.pop("focus") in ("IFRAME", "BODY")
            del before["focus"]
        assert after == before
        walked = browser.js("return heard")
        assert len(walked["called"]) > 400
        assert set(walked["tags"]) & known("taken away") <= INERT
        assert pasted(browser) == "mine"


def test_control_without_the_guard_the_same_calls_act(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    unguard(monkeypatch)
    with page(shell(frame.wrap(BODY % WALK))) as port:
        before = show(browser, port)
        with suppress(BrowserError):
            browser.js("setTimeout(walk, 100)", 0, 0)
        eventually(lambda: tab(browser) != before, "something of it")


def test_a_new_name_of_a_browser_is_looked_at(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that fails here is new. Say in guard.js whether a program has it, and then write it into the list."""
    with page(shell(frame.wrap("<script>1</script>"))) as port:
        show(browser, port)
        kept, kept_methods = set(browser.js(NAMES, 0, 0)), set(browser.js(METHODS, 0, 0))
    unguard(monkeypatch)
    with page(shell(frame.wrap("<script>1</script>"))) as port:
        show(browser, port)
        every = set(browser.js(NAMES, 0, 0))
    new = {"globals": every - known("kept") - known("taken away"), "methods": kept_methods - known("methods")}
    assert new == {"globals": set(), "methods": set()}
    assert kept - known("kept") == set()
    assert len(every - kept) > 150, "the control: a browser has much that a program has not"
