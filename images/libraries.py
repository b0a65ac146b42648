"""The JavaScript libraries of charts, made small while an image is built: a figure in a notebook brings its own along.

With the standard library alone. Each library becomes a script that unpacks itself: LZMA, which is a fifth smaller than
what browsers unpack by themselves, in signs that need no escape in HTML. The host packs
scripts, too, but gets them with each figure: of plotly's 4.8 MB, `output_limit` would let 27 figures of a cell pass.
"""

import lzma
from base64 import b85encode
from pathlib import Path

SIGNS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%,()*+-;.=/?@^_`{|}~"
"""As in the host's `policy/packed.py`: those of base 85, but that none needs an escape."""
_SIGNS = bytes.maketrans(b"&<>", b",./")

MIN_LENGTH = 110_000
"""Characters: what is shorter when packed stays as it is, for the host shares scripts of 100,000 between figures."""

_LC = 3
_FILTERS = [
    {"id": lzma.FILTER_LZMA1, "preset": 9 | lzma.PRESET_EXTREME, "lc": _LC, "lp": 0, "pb": 0, "dict_size": 1 << 23}
]
_UNPACK = (
    "(()=>{const t='TEXT',n=SIZE,k=new Uint8Array(128),b=new Uint8Array(t.length/5*4),v=new DataView(b.buffer),"
    "o=new Uint8Array(n);[...'SIGNS'].forEach((s,i)=>{k[s.charCodeAt(0)]=i});"
    "for(let i=0,j=0;i<b.length;i+=4){let x=0;for(let e=j+5;j<e;j++)x=x*85+k[t.charCodeAt(j)];v.setUint32(i,x)}"
    # The decoder of the LZMA specification, for streams with lp = pb = 0 whose length is known.
    "let p=5,r=2**32-1,c=v.getUint32(1),s=0,d0=0,d1=0,d2=0,d3=0,w=0;"
    "const T=l=>new Uint16Array(l).fill(1024),bit=(P,i)=>{const h=(r>>>11)*P[i];let y;"
    "if(c<h){r=h;P[i]+=2048-P[i]>>5;y=0}else{r-=h;c-=h;P[i]-=P[i]>>5;y=1}"
    "if(r<16777216){r=r*256;c=(c*256+b[p++])}return y},"
    "tree=(P,o,n)=>{let m=1;for(let i=0;i<n;i++)m=m*2+bit(P,o+m);return m-(1<<n)},"
    "back=(P,o,n)=>{let m=1,y=0;for(let i=0;i<n;i++){const z=bit(P,o+m);m=m*2+z;y|=z<<i}return y},"
    "len=L=>bit(L,0)?bit(L,1)?16+tree(L,18,8):8+tree(L,10,3):tree(L,2,3),"
    "L=T(768<<LC),M=T(12),R=T(12),A=T(12),B=T(12),C=T(12),Z=T(12),S=T(256),D=T(128),G=T(16),E=T(274),F=T(274);"
    "while(w<n){if(!bit(M,s)){const q=768*((w?o[w-1]:0)>>8-LC);let m=1;"
    "if(s>6){let x=o[w-d0-1];do{const y=x>>7&1;x<<=1;const z=bit(L,q+(1+y<<8)+m);m=m*2+z;if(y!=z)break}while(m<256)}"
    "while(m<256)m=m*2+bit(L,q+m);o[w++]=m;s=s<4?0:s<10?s-3:s-6;continue}"
    "let l;if(bit(R,s)){if(!bit(A,s)){if(!bit(Z,s)){s=s<7?9:11;o[w]=o[w-d0-1];w++;continue}}"
    "else{let x;if(!bit(B,s))x=d1;else{if(!bit(C,s))x=d2;else{x=d3;d3=d2}d2=d1}d1=d0;d0=x}l=len(F);s=s<7?8:11}"
    "else{d3=d2;d2=d1;d1=d0;l=len(E);s=s<7?7:10;const q=tree(S,64*Math.min(l,3),6);d0=q;"
    "if(q>3){const n=(q>>1)-1;d0=(2|q&1)<<n;if(q<14)d0+=back(D,d0-q,n);else{let x=0;"
    "for(let i=n-4;i--;){r=Math.floor(r/2);let y=0;if(c>=r){c-=r;y=1}x=x*2+y;"
    "if(r<16777216){r=r*256;c=c*256+b[p++]}}d0+=x*16+back(G,0,4)}}}"
    "for(l+=2;l--&&w<n;w++)o[w]=o[w-d0-1]}"
    "(0,eval)(new TextDecoder().decode(o))})()"
)


def packed(code: bytes) -> str:
    """Return a script that does what `code` does; `code` itself if packing gains little."""
    data = lzma.compress(code, format=lzma.FORMAT_RAW, filters=_FILTERS)
    text = b85encode(data, pad=True).translate(_SIGNS).decode()
    if len(text) < MIN_LENGTH:
        return code.decode()
    made = _UNPACK.replace("SIGNS", SIGNS).replace("SIZE", str(len(code))).replace("LC", str(_LC))
    return made.replace("TEXT", text)


def prepare(packages: Path) -> None:
    """Write what is made of the libraries in a folder of packages into `sandbox_libraries_packed` there."""
    folder = packages / "sandbox_libraries_packed"
    folder.mkdir(exist_ok=True)
    for pattern in ("plotly/package_data/plotly.min.js", "bokeh/server/static/js/bokeh*.min.js"):
        for library in packages.glob(pattern):
            (folder / library.name).write_text(packed(library.read_bytes()))
