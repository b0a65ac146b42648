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
from collections.abc import Callable

from . import lines
from .blocks import Block, blocks
from .packed import LIBRARY, MAX_CODE, SIGNS, Packer

MIN_HEIGHT, DEFAULT_HEIGHT, MAX_HEIGHT = 80, 420, 1200
"""CSS pixels. What JupyterLab shows without our extension, and every other front end: a guess, which can be dragged."""

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
    "let h=-1,w=0,q=[],z=0;const tell=()=>{w=0;const x=Math.min(h,2047)^z;z^=x;"
    "q.forEach((p,i)=>{if(x>>i&1)p.postMessage(0)})};"
    "const I=/^[0-9a-f]{64}$/,want=new Map(),gave=new WeakMap(),lied=new WeakSet();let asks=0;"
    "const held=x=>{const i=s.indexOf('data-packed=\"'+x+':'),j=s.indexOf('>',i)+1;"
    "return i<0?'':s.slice(j,s.indexOf('<',j))};"
    "const ask=(x,t)=>{if(want.get(x)||++asks>64)return;const m={sandboxKernelWant:x};q[11]?.postMessage(0);"
    "for(let i=0;i<parent.length&&i<500;i++)if(parent[i]!=self)parent[i].postMessage(m,'*');"
    "setTimeout(ask,t,x,Math.min(2*t,3e4))};"
    "const hash=t=>{const u=new TextEncoder().encode(t),l=u.length,v=new DataView(new ArrayBuffer(l+72>>6<<6)),"
    "r=(x,n)=>x>>>n|x<<32-n,W=new Int32Array(64),K=[],H=[];"
    "for(let p=2;K.length<64;p++){let q=2;while(p%q)q++;"
    "if(q==p){if(H.length<8)H.push(p**.5*2**32|0);K.push(p**(1/3)*2**32|0)}}"
    "new Uint8Array(v.buffer).set(u);v.setUint8(l,128);v.setUint32(v.byteLength-4,l*8);"
    "for(let o=0;o<v.byteLength;o+=64){let[a,b,c,d,e,f,g,h]=H;for(let i=0;i<64;i++){"
    "if(i<16)W[i]=v.getInt32(o+4*i);else{const x=W[i-15],y=W[i-2];"
    "W[i]=W[i-16]+(r(x,7)^r(x,18)^x>>>3)+W[i-7]+(r(y,17)^r(y,19)^y>>>10)}"
    "const s=h+(r(e,6)^r(e,11)^r(e,25))+(e&f^~e&g)+K[i]+W[i]|0,t=(r(a,2)^r(a,13)^r(a,22))+(a&b^a&c^b&c)|0;"
    "h=g;g=f;f=e;e=d+s|0;d=c;c=b;b=a;a=s+t|0}[a,b,c,d,e,f,g,h].forEach((x,i)=>{H[i]=H[i]+x|0})}"
    "return H.map(x=>(x>>>0).toString(16).padStart(8,'0')).join('')};"
    "const check=(x,c,o)=>{if(hash(c)!=x){lied.add(o);return}want.set(x,1);"
    "if(a.isConnected)a.contentWindow.postMessage({sandboxKernelOf:x,sandboxKernelCode:c},'*')};"
    "addEventListener('message',e=>{const m=e.data,o=e.source;if(!m||typeof m!='object'||!o)return;"
    "const v=m.sandboxKernelWant,y=m.sandboxKernelOf,c=m.sandboxKernelCode;"
    "if(o==a.contentWindow){const x=m.sandboxKernelHeight;"
    "if(typeof x=='number'&&x>=0&&x<1e5&&Math.ceil(x)!=h){h=Math.ceil(x);if(!w)w=setTimeout(tell,100)}"
    "if(typeof v=='string'&&I.test(v)&&want.size<8&&want.get(v)!==0){want.set(v,0);ask(v,500)}return}"
    "if(want.get(y)===0&&typeof c=='string'&&c.length<1e7&&!lied.has(o))check(y,c,o);"
    "if(o==parent){if(e.ports.length==12){q=e.ports;z=0;if(h>=0)tell();"
    "if([...want.values()].includes(0))q[11].postMessage(0)}"
    "const t=m.sandboxKernelTheme,c=/^rgba?\\([\\d., ]{5,40}\\)$/;"
    "if(t&&c.test(t.color)&&c.test(t.background)){const u={color:t.color,background:t.background,dark:t.dark===true};"
    "document.documentElement.style.color=u.color;"
    "if(a.isConnected)a.contentWindow.postMessage({sandboxKernelTheme:u},'*')}}"
    "else if(typeof v=='string'&&I.test(v)){const g=gave.get(o)||0,x=g<4?held(v):'';"
    "if(x){gave.set(o,g+1);o.postMessage({sandboxKernelOf:v,sandboxKernelCode:x},'*')}}})}"
)
"""The script of the outer frame: stops the program if it comes to the focus in a way that its guard does not know.

A click in the frame is an act in both frames, a key pressed in the outer one comes before Tab goes on to the inner one.
It also stands between the program and the page: out goes the height that the program's frame would like, at most every
100 ms; in go two colours. Our extension hands it twelve ports when it loads, for the page reads no message: an empty
message on one of the first eleven says that this binary digit of the height has changed since the last one, and one on
the last that a library is wanted. A page without our extension is told nothing. And it asks the
frames beside it for a library that its program does without, by hash, and gives those that it has: what comes is hashed
before the program gets it, and who sends something else is not heard again. The hash is computed here, for a page that
came over plain HTTP has no `crypto.subtle`. The script does nothing outside of a frame
without an origin, so a page may allow it.
"""
_RUNNER = _GUARD.replace("window.sandboxKernelRan=1", "") + (
    'if(self.origin==="null"){const late=[...document.scripts].filter(s=>s.type==="text/later"),'
    'run=(s,c)=>{Object.defineProperty(document,"currentScript",{configurable:true,get:()=>s});'
    "try{(0,eval)(c)}catch(e){reportError(e)}},"
    "get=h=>new Promise(r=>{"
    'addEventListener("message",e=>{const m=e.data;if(e.source===parent&&m&&m.sandboxKernelOf===h)'
    "r(m.sandboxKernelCode)});"
    'parent.postMessage({sandboxKernelWant:h},"*")}),'
    "unpack=async(p,t)=>{const[h,size,length]=p.split(':');"
    'if(!t){const p=document.createElement("p"),w=setTimeout(()=>document.body.append(p),4000);'
    'p.textContent="[sandbox_kernel: what draws this came with the output of another cell, which this page does not "+'
    '"have. Run this cell again, and it comes along.]";'
    "t=await get(h);clearTimeout(w);p.remove()}"
    "const b=new Uint8Array(t.length/5*4),v=new DataView(b.buffer),d=new TextDecoder(),k=new Uint8Array(128);"
    "[...SIGNS].forEach((s,i)=>{k[s.charCodeAt(0)]=i});"
    "for(let i=0;i<b.length;i+=4){let n=0;for(let j=0;j<5;j++)n=n*85+k[t.charCodeAt(i/4*5+j)];v.setUint32(i,n)}"
    'const r=new Blob([b.subarray(0,+length)]).stream().pipeThrough(new DecompressionStream("deflate-raw"))'
    ".getReader();let c='',n=0;"
    "for(;;){const{done,value}=await r.read();if(done)return c+d.decode();"
    "if((n+=value.length)>+size)throw Error('longer than it says');c+=d.decode(value,{stream:true})}};"
    "if(late.length)(async()=>{"
    'if(document.readyState!=="complete")await new Promise(r=>addEventListener("load",r,{once:true}));'
    'for(const s of late){const p=s.getAttribute("data-packed");'
    "try{run(s,p?await unpack(p,s.textContent.trim()):s.textContent)}catch(e){reportError(e)}}"
    'document.dispatchEvent(new Event("DOMContentLoaded",{bubbles:true}));dispatchEvent(new Event("load"))})();'
    "else if(!window.sandboxKernelRan)"
    'for(const s of[...document.scripts])if(s!==document.currentScript&&!s.hasAttribute("src")&&'
    "/^(|(text|application)\\/(x-)?(java|ecma)script)$/i.test(s.type))run(s,s.textContent)}"
    'if(self.origin==="null")for(const e of document.querySelectorAll("*"))'
    "for(const{name:n,value:v}of[...e.attributes])"
    "if(/^on[a-z]+$/.test(n)&&n in e){let f;try{f=Function('event',v)}catch(x){continue}"
    "e.addEventListener(n.slice(2),x=>{if(f.call(e,x)===false)x.preventDefault()})}"
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
).replace("SIGNS", f"'{SIGNS}'")
"""Runs the scripts of a frame where they did not run by themselves: a page whose policy knows no hash but this one.

Each would have run in the same order. So it does with all scripts of a frame in which one is packed, for that one is
unpacked first; those who wait for the document hear once more that it is there. Handlers in attributes, which the
policy does not let run, become listeners, behind the same guard. Then it says what height would fit, and takes the
colours of the page. It does nothing outside of a frame without an origin, so a page may allow it.
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
_LATE = "text/later"
MAX_ATTRIBUTES = 150
"""Characters that the tag of a script may have besides what is written into it here."""
_CODE = re.compile(rf"|module|{_LATE}|(?:text|application)/(?:x-)?(?:java|ecma)script", re.IGNORECASE)
_SRC = re.compile(r"(?:^|[\s\"'/])src\s*=", re.IGNORECASE)
_WRAPPED = re.compile(r'<iframe sandbox="allow-scripts" [^<>]*? srcdoc="([^"]*)"></iframe>')
_SRCDOC = re.compile(r' srcdoc="([^"]*)"')
_HEIGHT = re.compile(r"height[\"']?\s*[:=]\s*[\"']?(\d{2,4})(?:px|[\"',;}\s])", re.IGNORECASE)


def wrap(source: str, leaves_out: Callable[[str], bool] | None = None, packer: Packer | None = None) -> str:
    """Return HTML that shows `source`, a document or a piece of one, inside the frames.

    Libraries are packed. `leaves_out` says of each, by name, whether this page has it already.
    """
    # What the parser of the browser would change before it hashes a script is changed here.
    source = re.sub(r"\r\n?", "\n", source).replace("\0", "").encode("utf-8", "replace").decode()
    found = [block for block in blocks(source, "script") if _is_code(block)]
    if any(_is_late(block) or _is_library(block) for block in found):
        return _framed(_packed(source, found, leaves_out, packer or Packer()), [], source)
    hashes: dict[str, None] = {}
    pieces = []
    position = 0
    for block in found:
        code = _GUARD + source[block.start : block.end]
        hashes[_hash(code)] = None
        pieces += [source[position : block.start], code]
        position = block.end
    return _framed("".join(pieces) + source[position:], list(hashes), source)


def _framed(body: str, hashes: list[str], source: str) -> str:
    allowed = " ".join([*hashes, RUNNER_HASH])
    inner = _START.format(_CSP.format(allowed), _STYLE) + body + _ENDING
    outer = _START.format(_CSP.format(f"{WATCH_HASH} {allowed}"), _FILL) + _BEFORE + _quote(inner) + _AFTER
    return _PAGE.format(_height(source), lines.joined(_quote(outer)))


def _packed(source: str, found: list[Block], leaves_out: Callable[[str], bool] | None, packer: Packer) -> str:
    """Return `source` with its scripts marked as those that run late, and libraries packed."""
    pieces = []
    position, room = 0, MAX_CODE
    for block in found:
        if _is_late(block):
            continue
        code, size = source[block.start : block.end], block.end - block.start
        attributes = block.attributes if len(block.attributes) <= MAX_ATTRIBUTES else ""
        packed = None
        if _is_library(block) and size <= room:
            room -= size
            packed = packer.pack(code)
        if packed is not None:
            attributes = f' data-packed="{packed.name}"{attributes}'
            code = "" if leaves_out is not None and leaves_out(packed.name) else packed.text
        tag = block.start - len(block.attributes) - len("<script>")
        pieces += [source[position:tag], f'<script type="{_LATE}"{attributes}>', code]
        position = block.end
    return "".join(pieces) + source[position:]


def _is_code(block: Block) -> bool:
    kind = _TYPE.search(block.attributes)
    return not _SRC.search(block.attributes) and not (kind and not _CODE.fullmatch(kind[1]))


def _is_late(block: Block) -> bool:
    return block.attributes.startswith(f' type="{_LATE}"')


def _is_library(block: Block) -> bool:
    kind = _TYPE.search(block.attributes)
    return block.end - block.start > LIBRARY and not (kind and kind[1].lower() == "module")


def size(source: str) -> int:
    """Return about how many characters `wrap` makes of `source`: what is escaped twice grows to nine or ten."""
    return len(source) + 9 * source.count('"') + 8 * source.count("&")


def unwrapped(source: str) -> str | None:
    """Return what `source` is made of, if it is exactly what `wrap` makes of something, else None."""
    match = _WRAPPED.fullmatch(source)
    inner = _SRCDOC.search(_unquote(match[1].replace("&#10;", "\n"))) if match else None
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
