"""`sandbox-kernel lsp`: a language server over the screen, on stdio: files, and the cells of notebooks in their order.

A place where something is found is one diagnostic. A quick fix writes the comment that allows it; it allows nothing
before a person has added the reason. What a person selects is run in a sandbox of its own, if they ask for that, and
what it did is shown over it. Nothing else of a document is run.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from lsprotocol import types
from pygls.lsp.server import LanguageServer

from ... import __version__
from ...core.errors import ConfigurationError, SandboxError
from ...core.model import printable
from ...core.screen_findings import MAX_PASTED, MAX_SAID, WEIGHTS, Finding, Place, Screened
from .file_parts import screened
from .screen import CellScreen

if TYPE_CHECKING:
    from ...sdk.execution import Execution

NAME = "sandbox-kernel-screen"
_NOTEBOOKS = types.NotebookDocumentSyncOptions(
    notebook_selector=[types.NotebookDocumentFilterWithCells(cells=[types.NotebookCellLanguage(language="python")])]
)
RUN = "sandbox-kernel.run"
"""The command that runs a selection: the name of a document, and a range."""
RUN_SECONDS = 30.0
MAX_SHOWN, MAX_RUNS = 2000, 100
"""Characters of what it printed, and runs of one document that are remembered."""
_SHELLS = ("shellscript", "sh", "bash")
"""What editors call the language of such a script."""
_SEVERITIES = (
    (WEIGHTS["high"], types.DiagnosticSeverity.Error),
    (WEIGHTS["medium"], types.DiagnosticSeverity.Warning),
    (0, types.DiagnosticSeverity.Information),
)


class Tried(NamedTuple):
    """A selection that was run."""

    place: types.Range
    code: str
    said: str


class ScreenServer(LanguageServer):
    """Publishes what the screen finds in open documents."""

    def __init__(self, make_screen: Callable[[], CellScreen]) -> None:
        super().__init__(
            NAME,
            __version__,
            notebook_document_sync=_NOTEBOOKS,
            text_document_sync_kind=types.TextDocumentSyncKind.Incremental,
        )
        self._make_screen = make_screen
        self.shown: dict[str, list[types.Diagnostic]] = {}
        """What was published last of each open document."""
        self.tried: dict[str, list[Tried]] = {}

    def look_at_file(self, uri: str) -> None:
        """Screen a file that is no cell."""
        document = self.workspace.get_text_document(uri)
        # JupyterLab gives all cells of a notebook as one document of Python, under the notebook's own name.
        name = uri if document.language_id not in {"python", *_SHELLS} else _name(document.language_id)
        try:
            parts = screened(name, document.source, screen=self._make_screen())
        except ConfigurationError:
            parts = []  # while a person edits it, a notebook that is shown as JSON may be none
        self._publish(uri, ((part.line, seen) for _, part, seen in parts))

    def reasons(self, text: str, language: str) -> list[str]:
        """Return what speaks against a text that is in no document yet: a sentence for each warning and error."""
        parts = screened(_name(language), text[:MAX_PASTED], screen=self._make_screen())
        said = list(dict.fromkeys(reason for part in parts for reason in part.screened.reasons()))
        if len(text) > MAX_PASTED:
            said.append(f"Only the first {MAX_PASTED:,} characters were read")
        return said[:MAX_SAID]

    def look_at_notebook(self, uri: str) -> None:
        """Screen all cells: what one leaves is known in the next."""
        notebook = self.workspace.get_notebook_document(notebook_uri=uri)
        screen = self._make_screen()
        for cell in notebook.cells if notebook is not None else ():
            if cell.kind == types.NotebookCellKind.Code:
                source = self.workspace.get_text_document(cell.document).source
                self._publish(cell.document, [(int, screen.look(source))])

    def _publish(self, uri: str, seen: Iterable[tuple[Callable[[int], int], Screened]]) -> None:
        rows = (
            (Place(line(place.line), place.column, line(place.end_line), place.end_column), found)
            for line, one in seen
            for place, found in Screened(one.counted).by_place()
        )
        self.show(uri, [self._diagnostic(uri, place, found) for place, found in rows])

    def show(self, uri: str, found: list[types.Diagnostic]) -> None:
        """Publish the diagnostics of a document."""
        self.shown[uri] = found
        self.text_document_publish_diagnostics(types.PublishDiagnosticsParams(uri=uri, diagnostics=found))

    def _diagnostic(self, uri: str, place: Place, found: list[Finding]) -> types.Diagnostic:
        document = self.workspace.get_text_document(uri)
        start, end = (
            types.Position(place.line - 1, place.column - 1),
            types.Position(place.end_line - 1, place.end_column - 1),
        )
        lines = [f"{one.reason}{one.in_brackets()} [{one.code}]{one.failed_override()}. {one.remedy}" for one in found]
        return types.Diagnostic(
            range=document.position_codec.range_to_client_units(document.lines, types.Range(start, end)),
            severity=next(severity for weight, severity in _SEVERITIES if found[0].weight >= weight),
            code=found[0].code,
            source="sandbox-kernel screen",
            message="\n".join(lines),
            data=[one.code for one in found],
        )

    def fixes(self, uri: str, asked: types.Range) -> list[types.CodeAction]:
        """Return a fix for each line on which a diagnostic that was asked for ends."""
        lines: dict[int, list[types.Diagnostic]] = {}
        for one in self.shown.get(uri, ()):
            if one.range.start.line <= asked.end.line and one.range.end.line >= asked.start.line:
                lines.setdefault(one.range.end.line, []).append(one)
        return [self._fix(uri, line, found) for line, found in lines.items()]

    def selected(self, uri: str, asked: types.Range) -> str:
        """Return the text of a range."""
        document = self.workspace.get_text_document(uri)
        place = document.position_codec.range_from_client_units(document.lines, asked)
        chosen = [*document.lines[place.start.line : place.end.line + 1], ""]
        if place.end.line < len(document.lines):
            chosen[place.end.line - place.start.line] = document.lines[place.end.line][: place.end.character]
        return "".join(chosen)[place.start.character :]

    def run(self, uri: str, asked: types.Range) -> str:
        """Run a selection in a sandbox that ends with it; return what it did. Blocks for a minute at most."""
        from ...sdk.blocking import Sandbox

        code = textwrap.dedent(self.selected(uri, asked))
        try:
            with Sandbox(screen="warn", monitor="alert", cell_timeout=RUN_SECONDS) as sandbox:
                said = _summary(sandbox.run_code(code))
        except SandboxError as error:
            said = f"It was not run: {error}"
        self.tried[uri] = [*self.tried.get(uri, ())[1 - MAX_RUNS :], Tried(asked, code, said)]
        return said

    def over(self, uri: str, place: types.Position) -> types.Hover | None:
        """Return what a selection did that has this place in it, and was not changed since."""
        for one in reversed(self.tried.get(uri, ())):
            start, end = one.place.start, one.place.end
            if (start.line, start.character) <= (place.line, place.character) <= (end.line, end.character) and (
                textwrap.dedent(self.selected(uri, one.place)) == one.code
            ):
                # Plain: what it printed may be anything, and must be no link and no command of the editor.
                return types.Hover(types.MarkupContent(types.MarkupKind.PlainText, one.said), one.place)
        return None

    def _fix(self, uri: str, line: int, found: list[types.Diagnostic]) -> types.CodeAction:
        document = self.workspace.get_text_document(uri)
        text = document.lines[line].rstrip("\r\n") if line < len(document.lines) else ""
        end = document.position_codec.position_to_client_units(document.lines, types.Position(line, len(text)))
        codes = ", ".join(dict.fromkeys(code for one in found for code in one.data or ()))
        edit = types.TextEdit(types.Range(end, end), f"  # sandbox: allow {codes} -- ")
        return types.CodeAction(
            title=f"Allow {codes} (add the reason)",
            kind=types.CodeActionKind.QuickFix,
            diagnostics=found,
            edit=types.WorkspaceEdit(changes={uri: [edit]}),
        )


def _summary(ran: Execution) -> str:
    """Return what a selection did: its behaviour first, and then what it printed."""
    behaviour = ran.behaviour
    printed = "".join((*ran.logs.stdout, ran.text or "", *ran.logs.stderr))
    ended = [] if ran.error is None else [f"{ran.error.name}: {ran.error.value}"]
    verdict = "safe" if behaviour.is_safe else "not safe"
    lines = [
        f"Run in a sandbox of its own: {behaviour.risk_score} of 100 points, {verdict}",
        *behaviour.reasons[:MAX_SAID],
        *ended,
        *(printable(line) for line in printed[:MAX_SHOWN].splitlines()),
    ]
    return "\n".join(line for line in lines if line)


def _name(language: str) -> str:
    """Return a name by which a text is read as its language."""
    return "commands.sh" if language in _SHELLS else "a document"


def server(make_screen: Callable[[], CellScreen]) -> ScreenServer:
    """Return the server with what it answers."""
    made = ScreenServer(make_screen)

    @made.feature(types.TEXT_DOCUMENT_DID_OPEN)
    @made.feature(types.TEXT_DOCUMENT_DID_CHANGE)
    def look(ls: ScreenServer, params: Any) -> None:
        ls.look_at_file(params.text_document.uri)

    @made.feature(types.TEXT_DOCUMENT_DID_CLOSE)
    def close(ls: ScreenServer, params: types.DidCloseTextDocumentParams) -> None:
        ls.show(params.text_document.uri, [])
        del ls.shown[params.text_document.uri]
        ls.tried.pop(params.text_document.uri, None)

    @made.feature(types.NOTEBOOK_DOCUMENT_DID_OPEN)
    @made.feature(types.NOTEBOOK_DOCUMENT_DID_CHANGE)
    def look_at_notebook(ls: ScreenServer, params: Any) -> None:
        ls.look_at_notebook(params.notebook_document.uri)

    @made.feature(types.NOTEBOOK_DOCUMENT_DID_CLOSE)
    def close_notebook(ls: ScreenServer, params: types.DidCloseNotebookDocumentParams) -> None:
        for cell in params.cell_text_documents:
            ls.shown.pop(cell.uri, None)
            ls.tried.pop(cell.uri, None)

    @made.feature("sandbox-kernel/screen")
    def reasons(ls: ScreenServer, params: Any) -> list[str]:
        return ls.reasons(str(params.text), str(params.language))

    @made.feature(
        types.TEXT_DOCUMENT_CODE_ACTION,
        types.CodeActionOptions(code_action_kinds=[types.CodeActionKind.QuickFix, types.CodeActionKind.Empty]),
    )
    def actions(ls: ScreenServer, params: types.CodeActionParams) -> list[types.CodeAction]:
        uri, asked = params.text_document.uri, params.range
        found = ls.fixes(uri, asked)
        if asked.start != asked.end and ls.workspace.get_text_document(uri).language_id == "python":
            title = "Run this selection in a sandbox"
            found.append(
                types.CodeAction(title=title, command=types.Command(title=title, command=RUN, arguments=[uri, asked]))
            )
        return found

    @made.thread()
    @made.command(RUN)
    def run(ls: ScreenServer, uri: str, asked: types.Range) -> str:
        said = ls.run(uri, asked)
        ls.window_show_message(types.ShowMessageParams(types.MessageType.Info, said.partition("\n")[0]))
        return said

    @made.feature(types.TEXT_DOCUMENT_HOVER)
    def over(ls: ScreenServer, params: types.HoverParams) -> types.Hover | None:
        return ls.over(params.text_document.uri, params.position)

    return made
