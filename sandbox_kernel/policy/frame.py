"""Active HTML in a frame that has no origin and no network.

Two frames, one in the other. The inner one runs the scripts, without `allow-same-origin`: it cannot reach the page, its
cookies or the Jupyter server. The Content-Security-Policy of both lets nothing load from a network. Three gaps that a
policy leaves are closed besides:

- It does not stop a document from navigating *itself* to an address with a secret in it, but the policy of the frame
  around it does: that one is ours, has no script but ours, and says `frame-src 'none'`.
- It does not cover WebRTC. So every script starts with a guard that takes WebRTC away, and only scripts with it run,
  being named by their hash: a frame made by a script cannot run one without it.
- It does not cover looking up names ahead; for links that is switched off.

Nor does any policy that browsers have today keep a frame from taking the keyboard (`focus-without-user-activation` is
set for those that will). So the guard makes all that moves the focus wait for a person's act in the frame: a click or a
key there in the last five seconds. What gets to the focus past the guard, by the address or by a window of another
frame, is stopped by the script of the outer frame, which a program cannot reach. Measured in Chromium.

What is left: a script that navigates its frame, or adds a link for it, makes some browsers look up a name and connect
before anything is refused: nothing is sent, but the name is seen. `strict` runs no script at all.
"""

from __future__ import annotations

import base64
import hashlib
import re

from .blocks import blocks

MIN_HEIGHT, DEFAULT_HEIGHT, MAX_HEIGHT = 80, 420, 1200
"""CSS pixels. What JupyterLab shows without our extension, and every other front end: a guess, which can be dragged."""
LIBRARY = 100_000
"""Characters; a longer script is a library, whose numbers say nothing about this output."""

_CSP = (
    "default-src 'none'; script-src 'unsafe-eval' {}; style-src 'unsafe-inline'; img-src data: blob:; font-src data:; "
    "media-src data: blob:; connect-src 'none'; worker-src 'none'; frame-src 'none'; object-src 'none'; "
    "base-uri 'none'; form-action 'none'"
)
_META = (
    '<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{}">'
    '<meta http-equiv="x-dns-prefetch-control" content="off">'
)
_GUARD = (
    '{for(const n of["RTCPeerConnection","webkitRTCPeerConnection","RTCIceTransport","WebTransport"])'
    "if(n in window)Object.defineProperty(window,n,{value:undefined});"
    "const d=Object.getOwnPropertyDescriptor,r=Reflect.apply,u=navigator.userActivation,"
    "g=u&&d(UserActivation.prototype,'isActive').get,E=Element.prototype.closest,"
    "w=(t,s,q)=>{const o=t&&(t.prototype||t);if(o)for(const k of s.split(' ')){const p=d(o,k);"
    "if(p&&p.value&&p.configurable)Object.defineProperty(o,k,"
    "{value(...a){if(r(g,u,[])||q&&!q(this,a))return r(p.value,this,a)}})}},"
    "l=(e,a)=>e instanceof Element&&(!a[0]||a[0].type=='click')&&r(E,e,['label']);"
    "if(g&&self.origin=='null'){for(const t of[HTMLElement,SVGElement,window.MathMLElement])w(t,'focus');"
    "w(window,'focus find');"
    "w(HTMLDialogElement,'show showModal');w(HTMLElement,'showPopover togglePopover');w(Document,'execCommand');"
    "w(Selection,'addRange collapse extend modify selectAllChildren setBaseAndExtent setPosition');"
    "for(const n of['Input','TextArea','Select','Button','FieldSet','Form','Object','Output'])"
    "w(window['HTML'+n+'Element'],'reportValidity select setSelectionRange setRangeText');"
    "w(window.ElementInternals,'reportValidity');w(HTMLElement,'click',l);w(EventTarget,'dispatchEvent',l)}"
    "window.sandboxKernelRan=1}\n"
)
"""Goes before every script. `q` says what needs a person's act, if not every call does."""
_WATCH = (
    "if(self.origin=='null'){const f=document.querySelector('iframe'),s=f.srcdoc;"
    "let a=f,n=0,k=-1e4,was=false,over=false;"
    "for(const t of['pointerover','pointermove'])addEventListener(t,()=>{over=true},true);"
    "document.documentElement.addEventListener('pointerleave',()=>{over=false});"
    "addEventListener('keydown',e=>{if(e.key=='Tab')k=performance.now()},true);"
    "addEventListener('pointerdown',()=>{was=true},true);"
    "const stop=()=>{a.remove();const p=document.createElement('p'),b=document.createElement('button');"
    "p.textContent='[sandbox_kernel: stopped this output: it took the keyboard without a click] ';"
    "b.textContent='Run it again';b.onclick=()=>"
    "{p.remove();a=f.cloneNode();a.srcdoc=s;document.body.append(a);n=0;was=true};"
    "p.append(b);document.body.append(p)};"
    "setInterval(()=>{const e=document.activeElement,now=e==a||document.hasFocus()&&e==document.body;"
    "if(!now){was=false;n=0}else if(!was){"
    "if(e==a&&(navigator.userActivation.isActive||performance.now()-k<1000))was=true;"
    "else if(++n>(over?5:0)&&a.isConnected)stop()}},10);"
    "let h=-1,w=0;const tell=()=>{w=0;parent.postMessage({sandboxKernelHeight:h},'*')};"
    "addEventListener('message',e=>{const m=e.data;if(!m||typeof m!='object')return;"
    "if(e.source==a.contentWindow){const x=m.sandboxKernelHeight;"
    "if(typeof x=='number'&&x>=0&&x<1e5&&Math.ceil(x)!=h){h=Math.ceil(x);if(!w)w=setTimeout(tell,50)}}"
    "else if(e.source==parent){const t=m.sandboxKernelTheme,c=/^rgba?\\([\\d., ]{5,40}\\)$/;"
    "if(t&&c.test(t.color)&&c.test(t.background)){const u={color:t.color,background:t.background,dark:t.dark===true};"
    "document.documentElement.style.color=u.color;"
    "if(a.isConnected)a.contentWindow.postMessage({sandboxKernelTheme:u},'*')}}})}"
)
"""The script of the outer frame: stops the program if it comes to the focus in a way that its guard does not know.

A click in the frame is an act in both frames, a key pressed in the outer one comes before Tab goes on to the inner one.
It also stands between the program and the page: out goes a number, the height that the program's frame would like, at
most every 50 ms; in go two colours. A page without our extension hears the number and does nothing. The script does
nothing outside of a frame without an origin, so a page may allow it.
"""
_RUNNER = _GUARD.replace("window.sandboxKernelRan=1", "") + (
    'if(self.origin==="null"&&!window.sandboxKernelRan)'
    'for(const s of[...document.scripts])if(s!==document.currentScript&&!s.hasAttribute("src")&&'
    "/^(|(text|application)\\/(x-)?(java|ecma)script)$/i.test(s.type)){"
    'Object.defineProperty(document,"currentScript",{configurable:true,get:()=>s});'
    "try{(0,eval)(s.textContent)}catch(e){reportError(e)}}"
    'if(self.origin==="null"&&parent!==self){const D=document.documentElement,b=document.body;let h=-1;'
    "const say=()=>{if(!innerHeight||!innerWidth)return;"
    "let x=b.getBoundingClientRect().bottom+scrollY+(parseFloat(getComputedStyle(b).marginBottom)||0);"
    "if(D.scrollHeight>D.clientHeight)x=Math.max(x,D.scrollHeight);"
    "if(D.scrollWidth>D.clientWidth)x+=innerHeight-D.clientHeight;x=Math.ceil(x);"
    'if(x!==h)parent.postMessage({sandboxKernelHeight:h=x},"*")};'
    "const o=new ResizeObserver(say);o.observe(b);o.observe(D);for(const c of b.children)o.observe(c);"
    'addEventListener("load",say);'
    'addEventListener("message",e=>{const t=e.source===parent&&e.data&&e.data.sandboxKernelTheme;if(t){'
    'D.style.color=t.color;D.style.background=t.background;D.style.colorScheme=t.dark?"dark":"light"}})}'
)
"""Runs the scripts of a frame where they did not run by themselves: a page whose policy knows no hash but this one.

Each would have run in the same order. Then it says what height would fit, and takes the colours of the page. It does
nothing outside of a frame without an origin, so a page may allow it.
"""


def _hash(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


RUNNER_HASH, WATCH_HASH = _hash(_RUNNER), _hash(_WATCH)
_ENDING = f"<script>{_RUNNER}</script>"
_STYLE = "<style>html{background:#fff;color:#000;font:13px system-ui,sans-serif}body{margin:4px}</style>"
_FILL = (
    "<style>html,body,iframe{margin:0;border:0;width:100%;height:100%;display:block;overflow:hidden}"
    "b{position:absolute;width:1px;height:1px}p{font:13px system-ui,sans-serif;margin:8px}</style>"
)

_START = "<!DOCTYPE html><html><head>" + _META + "{}</head><body>"
_TAB = "<b tabindex=0></b>"
"""Where Tab stops in the outer frame, before and after the program."""
_BEFORE = (
    _TAB + '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'allow="focus-without-user-activation \'none\'" srcdoc="'
)
_AFTER = '"></iframe>' + _TAB + "<script>" + _WATCH + "</script></body></html>"
_PAGE = (
    '<iframe sandbox="allow-scripts" referrerpolicy="no-referrer" '
    'style="border:0;width:100%;height:{}px;resize:vertical;overflow:auto" srcdoc="{}"></iframe>'
)

_TYPE = re.compile(r"\btype\s*=\s*[\"']?\s*([^\s\"'>]*)", re.IGNORECASE)
_CODE = re.compile(r"|module|(?:text|application)/(?:x-)?(?:java|ecma)script", re.IGNORECASE)
_SRC = re.compile(r"(?:^|[\s\"'/])src\s*=", re.IGNORECASE)
_WRAPPED = re.compile(r'<iframe sandbox="allow-scripts" [^<>]*? srcdoc="([^"]*)"></iframe>')
_SRCDOC = re.compile(r' srcdoc="([^"]*)"')
_HEIGHT = re.compile(r"height[\"']?\s*[:=]\s*[\"']?(\d{2,4})(?:px|[\"',;}\s])", re.IGNORECASE)


def wrap(source: str) -> str:
    """Return HTML that shows `source`, a document or a piece of one, inside the frames."""
    # What the parser of the browser would change before it hashes a script is changed here.
    source = re.sub(r"\r\n?", "\n", source).replace("\0", "").encode("utf-8", "replace").decode()
    hashes: dict[str, None] = {}
    pieces = []
    position = 0
    for block in blocks(source, "script"):
        kind = _TYPE.search(block.attributes)
        if _SRC.search(block.attributes) or (kind and not _CODE.fullmatch(kind[1])):
            continue
        code = _GUARD + source[block.start : block.end]
        hashes[_hash(code)] = None
        pieces += [source[position : block.start], code]
        position = block.end
    allowed = " ".join([*hashes, RUNNER_HASH])
    inner = _START.format(_CSP.format(allowed), _STYLE) + "".join(pieces) + source[position:] + _ENDING
    outer = _START.format(_CSP.format(f"{WATCH_HASH} {allowed}"), _FILL) + _BEFORE + _quote(inner) + _AFTER
    return _PAGE.format(_height(source), _quote(outer))


def size(source: str) -> int:
    """Return about how many characters `wrap` makes of `source`: what is escaped twice grows to nine or ten."""
    return len(source) + 9 * source.count('"') + 8 * source.count("&")


def unwrapped(source: str) -> str | None:
    """Return what `source` is made of, if it is exactly what `wrap` makes of something, else None."""
    match = _WRAPPED.fullmatch(source)
    inner = _SRCDOC.search(_unquote(match[1])) if match else None
    if not inner:
        return None
    document = _unquote(inner[1])
    _, start, body = document.partition("</head><body>")
    body = body.removesuffix(_ENDING).replace(_GUARD, "")
    return body if start and wrap(body) == source else None


def loads_scripts(source: str) -> bool:
    """Return whether some script would come from a network; it does not."""
    return any(_SRC.search(block.attributes) for block in blocks(source, "script"))


def _quote(text: str) -> str:
    """Escape for an attribute in double quotes; only what must be, as some libraries are megabytes of quotes."""
    return text.replace("&", "&amp;").replace('"', "&quot;")


def _unquote(text: str) -> str:
    return text.replace("&quot;", '"').replace("&amp;", "&")


def _height(source: str) -> int:
    """Guess from the largest height that the markup itself names; libraries write their plot's height in it."""
    own = source
    for block in reversed([block for block in blocks(source, "script") if block.end - block.start > LIBRARY]):
        own = own[: block.start] + own[block.end :]
    found = [int(height) for height in _HEIGHT.findall(own)]
    plausible = [height + 20 for height in found if MIN_HEIGHT <= height <= MAX_HEIGHT]
    return max(plausible, default=DEFAULT_HEIGHT)
