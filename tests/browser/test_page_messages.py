"""What programs in frames post to the page: it reads none of it, so that no value and no flood of ports keeps it.

No sibling is left, as the page has one way to hear a frame, its ports, and no code that could read a message: the
handler takes no event, which tests/unit/test_labextension.py sees in the sources and in the bundle. So what is posted
does not matter, only how often, and that is counted.
"""

from __future__ import annotations

import html
import time
from pathlib import Path

import pytest
from selenium.common.exceptions import TimeoutException

from tests.browser.lab import Lab, chromium, eventually
from tests.browser.test_labextension import FRAME
from tests.support.chromium import page

SECONDS = 5.0
"""How long a page is watched while a frame attacks it."""
ANSWERS = 2.0
"""Seconds within which a page that is not kept does anything, on a machine that works."""
KEPT = 3.0
"""... and for which one was kept that reads."""

VALUE = "Array.from({length:150000},(_,i)=>({['k'+i]:i}))"
"""Quick to write, and many seconds to read: each object has a shape of its own."""
PAST = f"""<div style='height:50px'>past</div><script>const value={VALUE};let n=0;
setTimeout(()=>setInterval(()=>{{n+=1;for(const one of[top,parent.parent])one.postMessage(value,'*');
    if(n>20)for(const one of[parent,parent[0],top[0],top[0][0],top[1]])one.postMessage(value,'*')}},1),3000)</script>"""
"""Posts to the page, and after a while to the frame around it and those beside it, too."""
HONEST = "<div style='height:137px'>honest</div><script>1</script>"
GAUGE = """window.heard = 0; window.late = 0; let last = performance.now();
addEventListener('message', () => { heard += 1 });
setInterval(() => { const now = performance.now(); late = Math.max(late, now - last); last = now }, 20);"""
"""Counts what arrives without reading it, and says how long the page did nothing."""


def raw(program: str) -> str:
    """Return a frame that is not ours, for a page that lets any be shown: its program has the ports to itself."""
    return f'<iframe sandbox="allow-scripts" srcdoc="{html.escape(f"<body><script>{program}</script>")}"></iframe>'


LARGE = f"onmessage=e=>{{const value={VALUE};setInterval(()=>e.ports.forEach(one=>one.postMessage(value)),1)}}"
OFTEN = "onmessage=e=>{setInterval(()=>{for(let i=0;i<2000;i++)e.ports.forEach(one=>one.postMessage(i))},1)}"
FOUR = f"const value={VALUE};for(let i=0;i<4;i++)one.postMessage(value"


def watched(lab: Lab) -> float:
    """Return the longest time in seconds that the page did nothing, or that a question to it took."""
    end, worst = time.monotonic() + SECONDS, 0.0
    while (now := time.monotonic()) < end:
        late = float(lab.js("return late")) / 1000
        worst = max(worst, late, time.monotonic() - now)
    return worst


def test_values_that_frames_post_to_the_page_and_to_each_other_do_not_keep_it(walled_lab: Lab) -> None:
    """Frames of outputs share one process in Chromium. The neighbours of a busy one wait with it; the page does not."""
    lab = walled_lab
    lab.open(
        "sandbox-python", f"from IPython.display import HTML, display\nfor x in {[HONEST, PAST]}: display(HTML(x))"
    )
    lab.js(GAUGE)
    lab.run_all()
    height = f"return document.querySelector('{FRAME}')?.offsetHeight"
    eventually(lambda: lab.js(height) == 145, "the honest frame is as high as what it shows")
    eventually(lambda: lab.js("return heard") > 0, "the attack begins")
    lab.js("late = 0")
    assert watched(lab) < ANSWERS
    assert lab.js("return heard") > 10


def test_a_frame_that_overruns_loses_its_ports_and_what_it_posted_is_not_read(shared_lab: Lab) -> None:
    """As if any frame had got past the policy: it has the ports that our script has in an honest one."""
    lab = shared_lab
    lab.open("sandbox-python", f"from IPython.display import HTML\nHTML({HONEST!r})")
    lab.js(GAUGE)
    lab.js("""window.ended = 0; const {close} = MessagePort.prototype;
        MessagePort.prototype.close = function() { ended += 1; close.call(this) }""")
    lab.run_all()
    eventually(lambda: lab.js(f"return document.querySelector('{FRAME}')?.offsetHeight") == 145, "its height")
    add = "document.querySelector('.jp-OutputArea-output').insertAdjacentHTML('beforeend', arguments[0])"
    lab.js(add, raw(OFTEN))
    eventually(lambda: lab.js("return ended") > 0, "it loses its ports")
    lab.js("late = 0")
    assert watched(lab) < ANSWERS
    assert lab.js("return ended") == 12  # and the honest frame keeps its own
    lab.js(add, raw(LARGE))
    assert watched(lab) < ANSWERS


@pytest.mark.long
@pytest.mark.parametrize("way", ["window", "port"])
def test_control_a_page_that_reads_such_values_is_kept(tmp_path: Path, way: str) -> None:
    program = (
        f"setTimeout(()=>{{const one=top;{FOUR},'*')}},500)"
        if way == "window"
        else f"onmessage=e=>{{const [one]=e.ports;{FOUR})}}"
    )
    read = "e => { const start = performance.now(); e.data; took += performance.now() - start }"
    hand = f"onload = () => {{ const c = new MessageChannel(); c.port1.onmessage = {read};"
    hand += "document.querySelector('iframe').contentWindow.postMessage(0, '*', [c.port2]) }"
    reads = f"addEventListener('message', {read})" if way == "window" else hand
    with (
        chromium(tmp_path) as browser,
        page(f"<!DOCTYPE html><script>window.took = 0; {reads}</script>{raw(program)}") as port,
    ):
        browser.get(f"http://127.0.0.1:{port}/")
        browser.set_script_timeout(5 * KEPT)

        def kept() -> bool:
            try:
                return float(browser.execute_script("return took")) > 500
            except TimeoutException:
                return True

        eventually(kept, "the page was kept")


@pytest.mark.long
def test_control_a_page_that_closes_no_port_hears_all_of_it(tmp_path: Path) -> None:
    count = "const c = new MessageChannel(); c.port1.onmessage = () => { window.n = (window.n ?? 0) + 1 };"
    hand = f"onload = () => {{ {count} document.querySelector('iframe').contentWindow.postMessage(0, '*', [c.port2]) }}"
    with chromium(tmp_path) as browser, page(f"<!DOCTYPE html><script>{hand}</script>{raw(OFTEN)}") as port:
        browser.get(f"http://127.0.0.1:{port}/")
        eventually(lambda: browser.execute_script("return window.n ?? 0") > 60_000, "a hundred times what is taken")
