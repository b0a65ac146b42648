"""The executed notebook: what the cells sent, as outputs of a notebook, and how much of each type it is.

nbclient does what a front end does with messages (outputs, clear_output, widget states). Its connection to a kernel is
left out, and two of its parts that take the square of what a cell sends are replaced: updates, and Output widgets.
Imports nbclient and nbformat, so it is imported when a run begins.
"""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from types import SimpleNamespace
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.output_widget import OutputWidget
from nbformat.v4 import output_from_msg

from ...core.codes import Note
from ...core.model import Message
from ...policy.line_ends import settled
from .codes import BatchCode

Nodes = list[nbformat.NotebookNode]


class Displays:
    """The displays that have an identity, and the newest update of each.

    Updates are written at the end of a cell, once for each display: a cell may send as many of them as displays, and
    they may all have one identity.
    """

    def __init__(self) -> None:
        self._before: dict[str, Nodes] = {}
        """Those of cells that have ended."""
        self._here: dict[str, Nodes] = {}
        self._updates: dict[str, tuple[Nodes, int, dict[str, Any]]] = {}
        """The newest update of each: this cell's displays then, how many there were, and the message."""

    def show(self, identity: str, node: nbformat.NotebookNode) -> None:
        self._here.setdefault(identity, []).append(node)

    def update(self, identity: str, jupyter: dict[str, Any]) -> None:
        """Note that all displays of this identity, as there are now, show something else."""
        here = self._here.get(identity, [])
        if here or identity in self._before:
            self._updates[identity] = here, len(here), jupyter

    def clear(self) -> None:
        """Forget the displays of this cell, which are not shown any more."""
        self._here = {}

    def settle(self) -> None:
        """Write the updates into the displays."""
        updates, self._updates = self._updates, {}
        for identity, (here, count, jupyter) in updates.items():
            try:
                newest = output_from_msg(jupyter | {"header": {"msg_type": "display_data"}})
            except Exception:  # noqa: S112 (a notebook cannot hold it, and it is of the cell's choosing)
                continue
            for node in (*self._before.get(identity, ()), *here[:count]):
                node["data"], node["metadata"] = newest["data"], newest["metadata"]

    def end(self) -> None:
        """Finish the cell."""
        self.settle()
        for identity, nodes in self._here.items():
            self._before.setdefault(identity, []).extend(nodes)
        self._here = {}


class Captured(OutputWidget):
    """An Output widget, which is sent nothing back: it would be all that it holds, for each piece that it takes in."""

    def sync_state(self) -> None:
        pass

    def output(self, outs: Nodes, msg: dict[str, Any], display_id: str | None, cell_index: int) -> None:
        if self.clear_before_next_output:
            self.outputs, self.clear_before_next_output = [], False
        self.outputs.append(output_from_msg(msg))
        self.executor.widget_state[self.comm_id]["outputs"] = self.outputs

    def set_state(self, state: dict[str, Any]) -> None:
        if isinstance(state.get("outputs"), list):
            self.outputs = state["outputs"]
        super().set_state(state)

    def join(self) -> None:
        """Make the pieces of a stream that follow each other one output."""
        if not isinstance(self.outputs, list):
            return  # it was born with something else
        self.executor.widget_state[self.comm_id]["outputs"] = _joined(self.outputs)


class Outputs:
    """Writes what cells send into a notebook; one cell at a time."""

    def __init__(self, notebook: Any) -> None:
        self.notebook = notebook
        self._client = NotebookClient(notebook, store_widget_state=True, record_timing=False)
        self._client.widget_registry = {"@jupyter-widgets/output": {"OutputModel": Captured}}
        nobody: Any = SimpleNamespace()
        self._client.kc = nobody  # nbclient wants one while cells run
        self._displays = Displays()
        self._index = -1
        self._count: int | None = None
        self._stream: tuple[str, dict[str, Any]] = ("", {})
        self._pieces: list[str] = []

    def begin(self, index: int) -> None:
        """Take what follows for the cell at `index`."""
        self.end()
        self._index, self._count = index, None
        self._client.clear_before_next_output = False
        self.notebook.cells[index].outputs = []

    def take(self, message: Message) -> Note | None:
        """Take in one message that has passed the policy; return why it cannot be kept, if so."""
        if message.type == "stream":
            # Joined when the next other thing comes: one by one would copy a long text for each of its pieces.
            name = str(message.content.get("name"))
            if name != self._stream[0]:
                self._flush()
                self._stream = (name, _as_jupyter(message))
            self._pieces.append(str(message.content.get("text", "")))
            return None
        if message.channel != "iopub" or message.type == "status":
            return None
        self._flush()
        jupyter = _as_jupyter(message)
        if message.type == "execute_input":
            self._count = message.content["execution_count"]
        elif message.type == "execute_result":
            jupyter["content"]["execution_count"] = self._count  # the host's word, and not the cell's
        return self._process(jupyter)

    def end(self) -> int | None:
        """Finish the cell, and return the number of its prompt."""
        self._flush()
        self._displays.end()
        if self._index >= 0:
            self.notebook.cells[self._index].execution_count = self._count
        return self._count

    def text(self) -> str:
        """Return the notebook as it is now, as a file's content."""
        self._flush()
        self._displays.settle()
        for widget in self._client.comm_objects.values():
            widget.join()
        self._client.set_widgets_metadata()
        live = [(cell, cell.outputs) for cell in self.notebook.cells if cell.cell_type == "code"]
        try:
            for cell, outputs in live:
                cell.outputs = _joined(outputs)
            return str(nbformat.v4.writes(self.notebook)) + "\n"
        finally:
            for cell, outputs in live:
                cell.outputs = outputs  # a line may yet be drawn over

    def _flush(self) -> None:
        (name, message), pieces = self._stream, self._pieces
        self._stream, self._pieces = ("", {}), []
        if pieces:
            message["content"] = {"name": name, "text": "".join(pieces)}
            self._process(message)

    def _process(self, message: dict[str, Any]) -> Note | None:
        if self._index < 0:
            return None
        try:
            self._write(message, self.notebook.cells[self._index])
        except Exception as error:  # its parts are of the cell's choosing, and this is no place to fail
            return BatchCode.NOT_IN_NOTEBOOK.note(why=type(error).__name__)
        return None

    def _write(self, message: dict[str, Any], cell: Any) -> None:
        content = message["content"]
        # nbclient would look through all displays for each update, so it is not told that they have an identity.
        identity = (content.pop("transient", None) or {}).get("display_id")
        if not isinstance(identity, str):
            identity = None
        if identity is not None:
            self._displays.update(identity, message)
        waiting = self._client.clear_before_next_output
        node = self._client.process_message(message, cell, self._index)
        at_once = message["msg_type"] == "clear_output" and not cell.outputs
        if at_once or (waiting and not self._client.clear_before_next_output):
            self._displays.clear()
        if identity is not None and node is not None:
            self._displays.show(identity, node)


def sizes(outputs: Any) -> dict[str, tuple[int, int]]:
    """Return count and bytes of outputs by type: stdout, stderr, error, or a MIME type."""
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()

    def add(name: str, value: Any) -> None:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        counts[name] += 1
        totals[name] += len(text.encode(errors="replace"))

    for output in outputs:
        if output.output_type == "stream":
            add(output.name, output.text)
        elif output.output_type == "error":
            add("error", "\n".join(map(str, (output.ename, output.evalue, *output.traceback))))
        else:
            for name, value in output.data.items():
                add(name, value)
    return {name: (counts[name], totals[name]) for name in counts}


def _as_jupyter(message: Message) -> dict[str, Any]:
    return {
        "msg_type": message.type,
        "header": dict(message.header),
        "parent_header": dict(message.parent),
        "metadata": dict(message.metadata),
        "content": dict(message.content),
        "buffers": list(message.buffers),
    }


def _joined(outputs: Nodes) -> Nodes:
    """Return outputs in which the pieces of a stream that follow each other are one, as it stands when all is drawn."""
    joined: Nodes = []
    for (kind, name), group in groupby(outputs, _kind):
        if kind == "stream":
            text = settled("".join(str(one.get("text", "")) for one in group))
            joined.append(nbformat.NotebookNode(output_type=kind, name=name, text=text))
        else:
            joined.extend(group)
    return joined


def _kind(output: Any) -> tuple[Any, Any]:
    """Return type and name of an output; a widget may be born with any JSON in their place."""
    return (output.get("output_type"), output.get("name")) if isinstance(output, dict) else (None, None)
