"""A notebook of filtered outputs, exported by nbconvert and opened in a browser: nothing runs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest

from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.chromium import listening, show
from tests.support.policy.messages import message

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII="
DISPLAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"text/html": "<b id='T_a' title='document.title=`taken`'>x</b>"}, {}),
    ({"image/png": PNG}, {"image/png": {"width": "1 onload=", "height": "eval(T_a.title)"}}),
    ({"image/jpeg": "/9j/AAAA"}, {"image/jpeg": {"width": "1 onerror=", "height": "eval(T_a.title)"}}),
    (
        {"image/png": PNG},
        {"image/png": {"alt": "' onload='eval(T_a.title)"}, "filenames": {"image/png": "x' onerror='y"}},
    ),
    ({"text/latex": "$x$<img src=x onerror=eval(T_a.title)>"}, {}),
    ({"text/markdown": '[x](https://a.test/$" onfocus="eval(T_a.title)" autofocus z="$)'}, {}),
]


def exported(outputs: list[Any], template: str) -> str:
    nbconvert = pytest.importorskip("nbconvert")
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell("x", outputs=outputs)]
    body, _ = nbconvert.HTMLExporter(template_name=template).from_notebook_node(notebook)
    return re.sub(r"<script[^>]* src=[^>]*>\\s*</script>", "", body)  # what would load from a network is not there


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("template", ["lab", pytest.param("classic", marks=pytest.mark.long)])
def test_a_size_runs_nothing_in_an_export(template: str, tmp_path: Path) -> None:
    """The control: the same notebook, unfiltered, takes the page's title."""
    policy = OutputPolicy("safe")
    titles = {}
    for name in ("filtered", "unfiltered"):
        outputs = []
        for data, metadata in DISPLAYS:
            sent = message("display_data", {"data": data, "metadata": metadata, "transient": {}})
            shown = policy.apply(sent).message if name == "filtered" else sent
            assert shown is not None
            outputs.append(
                nbformat.v4.new_output("display_data", shown.content["data"], metadata=shown.content["metadata"])
            )
        page = exported(outputs, template)
        body = page.partition("<body")[2].partition(">")[2].partition("</body>")[0]
        with listening() as evil:
            asked = show([body], evil, tmp_path / name)
        titles[name] = next(path for path in asked if path.startswith("/done")).partition("?")[2]
    assert titles == {"filtered": "clean", "unfiltered": "taken"}
