"""Every class of ipywidgets with hostile values in each of its traits, drawn by the real views in a real JupyterLab.

The messages are raw: what ipywidgets itself would refuse to send is sent. The same with `--outputs trusted` is the
control.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest

from sandbox_kernel.plugins.widgets.known_models import NAMES
from tests.browser.lab import Lab, settled
from tests.support.chromium import Evil, listening
from tests.support.policy.widget_spec import own_names, registered

EVIL = "http://evil.test"
RUN = "<img src=x onerror=window.pwned=1>"
VALUES: list[Any] = [
    RUN, [RUN], {"toString": RUN}, f"{EVIL}/leak", f"url({EVIL}/leak)", [f"url({EVIL}/leak)"], "x lm-Menu jp-Dialog",
    ["x lm-Menu jp-Dialog"], r"$\href{javascript:window.pwned=1}{x}$", [RUN, RUN],
]  # fmt: skip
VIEWS = ("HTMLView", "HTMLMathView", "ImageView", "VideoView")
PLACE = "application/vnd.jupyter.widget-view+json"

CELL = """
    import base64, json
    ip = get_ipython()
    def send(kind, content, **more):
        ip.kernel.session.send(ip.kernel.iopub_socket, kind, content, parent=ip.kernel.get_parent("shell"), **more)
    shown = []
    for number, (state, value) in enumerate(json.loads(base64.b64decode("STATES"))):
        content = dict(comm_id=f"hostile-{number}", target_name="jupyter.widget")
        content["data"] = dict(state=state, buffer_paths=[["value"]] if value else [])
        buffers = [value.encode()] if value else []
        send("comm_open", content, metadata=dict(version="2.1.0"), buffers=buffers)
        shown.append(f"hostile-{number}")
    for one in shown[START:START + 49]:
        data = {"VIEW": dict(model_id=one, version_major=2, version_minor=0)}
        send("display_data", dict(data=data, metadata={}, transient={}))
"""

FOUND = """
    const found = [];
    for (const one of document.querySelectorAll('.jp-OutputArea *')) {
        for (const {name, value} of one.attributes)
            if (/^on/.test(name) || /evil\\.test/.test(value) && name !== 'title' && name !== 'placeholder'
                && !name.startsWith('data-') && name !== 'value')
                found.push(`${one.tagName} ${name}=${value}`);
        if (/jp-Dialog|lm-Menu/.test(one.className)) found.push(`class ${one.className}`);
        if (/^(IFRAME|SCRIPT|OBJECT|EMBED|FORM)$/.test(one.tagName)) found.push(one.tagName);
        if (/javascript:/.test(one.href ?? '')) found.push(`link ${one.href}`);
    }
    for (const name of Object.getOwnPropertyNames(window)) if (/^pwned/.test(name)) found.push(name);
    return found;
"""


def states() -> Iterator[tuple[dict[str, Any], str | None]]:
    """Yield states in which every trait but the names has one hostile value, and bytes for its value, if any."""
    for cls in sorted(registered(), key=lambda one: one.__name__):
        names = own_names()[cls.class_traits()["_model_name"].default_value]
        traits = [name for name in cls.class_traits(sync=True) if name not in NAMES and name != "layout"]
        if "_dom_classes" not in traits:
            continue
        for value in VALUES:
            yield names | dict.fromkeys(traits, value), None
    label = own_names()["LabelModel"]
    for view in VIEWS:
        yield label | {"_view_name": view, "value": RUN, "format": "url"}, None
        yield label | {"_view_name": view, "format": "url"}, f"{EVIL}/view"
    for name in ("ImageModel", "VideoModel", "AudioModel"):
        yield own_names()[name] | {"format": "url"}, f"{EVIL}/bytes"
    yield own_names()["HTMLModel"], RUN


def seen(lab: Lab, evil: Evil, kernel: str) -> tuple[list[str], set[str], int]:
    """Return what is wrong in the page, what another origin was asked for, and how many widgets were drawn."""
    text = json.dumps(list(states())).replace(EVIL, f"{EVIL}:{evil.tcp}")
    encoded = base64.b64encode(text.encode()).decode()
    cells: list[Any] = []
    for start in range(0, len(list(states())), 49):
        cell = CELL if not cells else CELL[CELL.index("    for one in shown") :]
        cells.append("\n".join(line[4:] for line in cell.splitlines()).replace("STATES", encoded))
        cells[-1] = cells[-1].replace("START", str(start)).replace("VIEW", PLACE)
    lab.open(kernel, *cells)
    lab.run_all()
    settled(lambda: len(evil.requests) + lab.js("return document.querySelectorAll('.jp-OutputArea *').length"))
    drawn = lab.js("return document.querySelectorAll('.jp-OutputArea .jupyter-widgets').length")
    return lab.js(FOUND), evil.paths(), drawn


def test_hostile_values_in_every_trait_of_every_widget_do_nothing(shared_lab: Lab) -> None:
    with listening() as evil:
        found, asked, drawn = seen(shared_lab, evil, "sandbox-python")
    assert (found, asked) == ([], set())
    assert drawn > 300


@pytest.mark.long
def test_the_same_widgets_fire_when_they_are_trusted(spoiled_lab: Lab) -> None:
    """The control."""
    with listening() as evil:
        found, asked, _ = seen(spoiled_lab, evil, "sandbox-trusted")
    assert "pwned" in found
    assert any("jp-Dialog" in one for one in found)
    assert {"view", "bytes"} <= asked
