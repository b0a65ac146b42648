"""The executed notebook: what the cells sent, as outputs of a notebook, and how much of each type it is.

nbclient does what a front end does with messages (displays and their updates, clear_output, widget states); only its
connection to a kernel is left out. Imports nbclient and nbformat, so it is imported when a run begins.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import nbformat
from nbclient import NotebookClient

from ..model import Message

MAX_WIDGET_ECHOES = 10_000
"""Updates that this front end sends to Output widgets of one run."""

Send = Callable[[dict[str, Any]], None]


class Outputs:
    """Writes what cells send into a notebook; one cell at a time."""

    def __init__(self, notebook: Any, send: Send = lambda content: None) -> None:
        """`send` takes the content of a comm message for the kernel: an Output widget is told what it shows."""
        self.notebook = notebook
        self._client = NotebookClient(notebook, store_widget_state=True, record_timing=False)
        self._client.kc = _kernel_client(send)
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

    def take(self, message: Message) -> str | None:
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
        if self._index >= 0:
            self.notebook.cells[self._index].execution_count = self._count
        return self._count

    def text(self) -> str:
        """Return the notebook as it is now, as a file's content."""
        self._flush()
        self._client.set_widgets_metadata()
        return str(nbformat.v4.writes(self.notebook)) + "\n"

    def _flush(self) -> None:
        (name, message), pieces = self._stream, self._pieces
        self._stream, self._pieces = ("", {}), []
        if pieces:
            message["content"] = {"name": name, "text": "".join(pieces)}
            self._process(message)

    def _process(self, message: dict[str, Any]) -> str | None:
        if self._index < 0:
            return None
        try:
            self._client.process_message(message, self.notebook.cells[self._index], self._index)
        except Exception as error:  # its parts are of the cell's choosing, and this is no place to fail
            return f"an output that a notebook cannot hold: {type(error).__name__}"
        return None


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


def _kernel_client(send: Send) -> Any:
    """Return the little of a kernel client that nbclient's Output widget needs: a way to send its updates."""
    left = [MAX_WIDGET_ECHOES]

    def deliver(message: dict[str, Any]) -> None:
        left[0] -= 1
        if left[0] >= 0:
            send(message["content"])

    def make(kind: str, content: dict[str, Any], **_: Any) -> dict[str, Any]:
        return {"msg_type": kind, "content": content}

    return SimpleNamespace(session=SimpleNamespace(msg=make), shell_channel=SimpleNamespace(send=deliver))
