"""nbconvert's HTML exports of many documents at once: one notebook, one cell for each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import nbformat
from nbconvert import HTMLExporter

MATHJAX = "/mathjax/MathJax.js?config=TeX-AMS_CHTML-full,Safe"
"""What the template names, from our own server."""
HASTE = "<script>window.MathJax = {CommonHTML: {EqnChunk: 9999, EqnChunkDelay: 0}, positionToHash: false}</script>"
"""MathJax pauses between formulas for the sake of readers; there are none."""


@cache
def _exporter(template: str) -> HTMLExporter:
    exporter = HTMLExporter(template_name=template, exclude_input=True)
    exporter.mathjax_url = MATHJAX
    exporter.require_js_url = exporter.jquery_url = exporter.mermaid_js_url = "/empty.js"
    return exporter


def export(documents: Sequence[dict[str, Any]], template: str) -> str:
    """Return the page of these documents, as nbconvert makes it of a saved notebook."""
    notebook = nbformat.v4.new_notebook()
    for document in documents:
        cell = nbformat.v4.new_code_cell("", id=str(document["number"]))
        cell.outputs = [_output(output) for output in document["outputs"]]
        notebook.cells.append(cell)
    body, _ = _exporter(template).from_notebook_node(notebook)
    return str(body).replace("<!-- Load mathjax -->", HASTE, 1)


def _output(output: dict[str, Any]) -> Any:
    kind, value = output["type"], output["value"]
    if kind in ("stdout", "stderr"):
        return nbformat.v4.new_output("stream", name=kind, text=value)
    if kind == "error":
        return nbformat.v4.new_output("error", ename="x", evalue="x", traceback=value.split("\n"))
    return nbformat.v4.new_output("display_data", data={kind: value}, metadata=output["metadata"])
