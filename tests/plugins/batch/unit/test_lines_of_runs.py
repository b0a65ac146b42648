"""The lines of the executed notebook."""

from __future__ import annotations

import nbformat

from sandbox_kernel.plugins.batch.executed_notebook import Outputs
from tests.support.policy.messages import message


def test_run_writes_what_stands_into_its_notebook() -> None:
    """Also into an Output widget; what is still being drawn goes on after a save."""
    found = Outputs(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1")]))
    found.begin(0)
    for piece in ("\r 10%", "\r 20%"):
        found.take(message("stream", {"name": "stderr", "text": piece}))
    assert nbformat.reads(found.text(), 4).cells[0].outputs[0].text == " 20%"
    found.take(message("stream", {"name": "stderr", "text": "\r.. include:: x\ndone\r"}))
    found.end()
    written = nbformat.reads(found.text(), 4).cells[0].outputs[0].text
    assert written == ".. include:: x\ndone"
    assert written.splitlines() == written.split("\n")
