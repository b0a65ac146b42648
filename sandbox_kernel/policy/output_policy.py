"""What may leave the container: every message of the kernel goes through one filter of this table.

Does no I/O. Front ends trust the live output of a kernel, so this is where the
sandbox ends. Modes: `safe` keeps programs, in a frame without origin or network, and the widgets of ipywidgets;
`strict` keeps no active content at all; `trusted` changes nothing, and passes all that can be written again.
"""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable, Mapping
from typing import Any

from ..core.codes import OutputCode
from ..core.json_memory import is_deep
from ..core.model import Message, OutputMode
from ..plugins import index
from . import line_ends, replies, terminal
from .budget import MAX_DISPLAYS
from .cell_errors import error
from .comms import CONTROL, TARGET, VIEW, Comms, NoComms, Sent
from .frame_libraries import CellRun, Libraries, Packer
from .json_check import MAX_COUNT, MAX_WRITTEN, NotPlainError, count, plain
from .mime import Bundles
from .verdict import Notes, RefusedError, Verdict, named, noted

MAX_ID = 256
"""Characters of a display id."""
MAX_PROMPT = 10_000
"""Characters of a prompt."""
MAX_PROMPT_LINES = 200
"""Lines of a prompt; its last ones are kept, since the answer is written behind them."""
_DIRECTIONS = re.compile("[\u202a-\u202e\u2066-\u2069]")
"""What turns text until it is ended: a prompt that does not end it would turn what the person writes, too."""

MARKUP = ("text/html", "text/markdown", "text/latex", "image/svg+xml")
"""Languages: to parse one and write it again needs up to seven times the memory of the source."""

_METADATA = frozenset(("version", "started", "dependencies_met", "engine", "status"))
"""What ipykernel and ipywidgets put into the metadata of a message."""

_Content = Mapping[str, Any]


class OutputPolicy:
    """The output policy of one session, with the little state it needs: displays, comms, the cursor's row."""

    def __init__(self, mode: OutputMode, message_bytes: int = 96 << 20, *, before: OutputPolicy | None = None) -> None:
        """`message_bytes` is the largest message. All markup in one may be a third of it.

        `before` is that of the session's last kernel, whose widgets a notebook may still hold.
        """
        self.mode = mode
        self.message_bytes = message_bytes
        self._screen = terminal.Screen()
        self._displays: dict[str, None] = {}
        active = mode == "safe"
        self._shown: Message | None = None
        """The display that is filtered just now."""
        self._place: CellRun | None = None
        """Where in a notebook it will be, if that is known."""
        self._asked: _Content = {}
        """What was asked, if the message is a reply."""
        self._libraries = Libraries()
        self._notebook = ""
        """The one that these are of."""
        self.packer: Packer = Packer() if before is None else before.packer
        """Knows the libraries that came last."""
        self._bundles = Bundles(
            frames=active,
            model_shown=self._model_shown,
            package=lambda model_id: self._comms.strangers.get(model_id),  # noqa: PLW0108 (others come with the first)
            leaves_out=self._leaves_out,
            packer=self.packer,
        )
        self._still = Bundles(frames=False)
        """For replies: a tooltip is no place for a program."""
        self._past_widgets: dict[int, str] = {} if before is None else before._past_widgets  # noqa: SLF001 (of its own kind)
        self._overheard = before is not None and before.overheard
        self._comms: Comms = NoComms()
        self._first_comm = threading.Lock()
        self._filters: dict[str, Callable[[Message, Notes], _Content]] = {
            "stream": self._stream,
            "error": lambda message, notes: error(message.content),
            "display_data": self._display,
            "execute_result": self._display,
            "update_display_data": self._display,
            "clear_output": self._clear,
            "execute_input": lambda message, notes: replies.texts(plain(message.content)),
            "status": lambda message, notes: replies.texts(plain(message.content)),
            "debug_event": lambda message, notes: replies.debugged(message.content, notes),
            "input_request": self._input,
            "shutdown_reply": lambda message, notes: replies.texts(plain(message.content)),
        }

    def apply(self, sent: Message, place: CellRun | None = None, asked: _Content | None = None) -> Verdict:
        """Decide on one message out of the container, whose type and headers were checked before.

        With the place in a notebook that a display will have, it may do without a library that other cells brought.
        `asked` is the content of the request that a reply answers: completions replace nothing but the word in it.
        """
        self._place, self._asked = place, asked or {}
        if self.mode == "trusted":
            if is_deep(sent.content, MAX_WRITTEN):
                why = f"nested deeper than {MAX_WRITTEN} levels"
                return Verdict(None, (noted(OutputCode.NOT_PLAIN, type=named(sent.type), why=why),))
            return Verdict(sent)
        metadata = sent.metadata
        try:
            if metadata:
                ended = line_ends.tree(metadata)
                metadata = {key: value for key, value in ended.items() if key in _METADATA and _scalar(value)}
            if sent.plain and _has_nothing_to_remove(sent):
                return Verdict(sent if metadata == sent.metadata else dataclasses.replace(sent, metadata=metadata))
            message, notes = _ended(sent), Notes()
            content, buffers = self._comm(message, notes) or (self._content(message, notes), ())
        except NotPlainError as error:
            return Verdict(None, (noted(OutputCode.NOT_PLAIN, type=named(sent.type), why=error.why),))
        except RefusedError as error:
            return Verdict(None, (error.note,))
        if content == sent.content and metadata == sent.metadata and buffers == sent.buffers:
            return Verdict(sent, tuple(notes), notes.work)
        return Verdict(
            dataclasses.replace(sent, content=content, metadata=metadata, buffers=buffers),
            tuple(notes),
            notes.work,
        )

    def observe(self, message: Message) -> None:
        """Note what a front end sends: comms that it opens or closes itself."""
        comm_id, target = message.content.get("comm_id"), message.content.get("target_name")
        if message.type == "comm_open" and isinstance(comm_id, str) and isinstance(target, str):
            if target in (TARGET, CONTROL):
                self._opening().front_opens(comm_id, target, message.content.get("data"))
        elif message.type == "comm_close" and isinstance(comm_id, str):
            self._comms.closed(comm_id)

    @property
    def overheard(self) -> bool:
        """Whether code of a cell may get to read what the host says in a cell: by an Output widget, or a script."""
        return self.mode == "trusted" or self._overheard or self._comms.took_over

    @property
    def types(self) -> tuple[str, ...]:
        """The types of messages that have a rule, but for replies."""
        return tuple(self._filters)

    def renewed(self) -> OutputPolicy:
        """Return the policy for the next kernel, which forgets the displays and comms of the one that is gone.

        Another one, and not this one emptied: another thread may still be at the last message of that kernel.
        """
        return OutputPolicy(self.mode, self.message_bytes, before=self)

    def _opening(self) -> Comms:
        """Return the comms for one that is opened: the first loads what they are.

        A front end's is opened in one thread, and the kernel's perhaps in another one.
        """
        with self._first_comm:
            if isinstance(self._comms, NoComms) and (made := index.comms()) is not None:
                self._comms = made(self._bundles, allowed=self.mode == "safe", past=self._past_widgets)
            return self._comms

    def _model_shown(self, model_id: str) -> bool:
        shown = self._shown
        if shown is None:
            return self._comms.model_shown(model_id)
        new = shown.type != "update_display_data"
        return self._comms.displayed(model_id, _parent(shown), new=new, again=bool(shown.content.get("transient")))

    def _leaves_out(self, name: str) -> bool:
        """Return whether the display that is filtered just now may do without a library.

        One with an id may be replaced at any time, and what an Output widget takes over is in no cell.
        """
        shown, place = self._shown, self._place
        if shown is None or place is None or shown.type == "update_display_data" or self._comms.took_over:
            return False
        transient = shown.content.get("transient")
        if isinstance(transient, dict) and transient.get("display_id") is not None:
            return False
        if place.notebook != self._notebook:
            self._notebook, self._libraries = place.notebook, Libraries()
        return self._libraries.leaves_out(name, place)

    def _comm(self, message: Message, notes: Notes) -> Sent | None:
        """Filter a comm's message, whose buffers go with its content; None for any other message."""
        if message.type == "comm_open":
            return self._opening().open(message.content, message.buffers, _parent(message), notes)
        if message.type == "comm_msg":
            return self._comms.message(message.content, message.buffers, _parent(message), notes)
        return self._comms.close(message.content) if message.type == "comm_close" else None

    def _clear(self, message: Message, notes: Notes) -> _Content:
        self._comms.cleared(_parent(message))
        if self._place is not None:
            self._libraries.forget(self._place.cell)
        return {"wait": message.content.get("wait") is True}

    def _content(self, message: Message, notes: Notes) -> _Content:
        if found := self._filters.get(message.type):
            return found(message, notes)
        if reply := replies.REPLIES.get(message.type):
            return reply(message.content, self._still, notes, self._asked)
        if message.channel == "iopub":
            raise RefusedError(OutputCode.MESSAGE_NOT_SHOWN, type=named(message.type))
        return replies.other(message.content, self._still, notes, self._asked)

    def _stream(self, message: Message, notes: Notes) -> _Content:
        name, text = message.content.get("name"), message.content.get("text")
        if name not in ("stdout", "stderr") or not isinstance(text, str):
            raise RefusedError(OutputCode.NO_STREAM)
        return {"name": name, "text": self._screen.feed(name, _parent(message), text)}

    def _display(self, message: Message, notes: Notes) -> _Content:
        content = message.content
        transient = content.get("transient")
        display_id = transient.get("display_id") if isinstance(transient, dict) else None
        # It is handed to programs, which may print it.
        proper = isinstance(display_id, str) and 0 < len(display_id) <= MAX_ID and display_id.isprintable()
        if display_id is not None and not proper:
            notes.add(OutputCode.IMPROPER_DISPLAY_ID)
            display_id = None
        if message.type == "update_display_data" and display_id not in self._displays:
            raise RefusedError(OutputCode.DISPLAY_NOT_OPEN)
        self._shown = message
        try:
            bundle = self._small(content.get("data"), notes)
            data, metadata = self._bundles.apply(bundle, content.get("metadata"), notes)
        finally:
            self._shown = None
        work = self._comms.takes_over(_parent(message), notes.work, new=message.type != "update_display_data")
        if work is None:
            notes.add(OutputCode.WIDGETS_IN_WIDGET)
            data, metadata = {"text/plain": notes.line()}, {}
        notes.work = work or 0
        if VIEW in data:
            notes.work += self._comms.work(data[VIEW]["model_id"])
        if display_id is not None:
            self._displays[display_id] = None
            if len(self._displays) > MAX_DISPLAYS:
                del self._displays[next(iter(self._displays))]
        result: dict[str, Any] = {"data": data, "metadata": metadata}
        if "transient" in content:
            result["transient"] = {} if display_id is None else {"display_id": display_id}
        if message.type == "execute_result":
            result["execution_count"] = count(content.get("execution_count"))
        return result

    def _small(self, data: Any, notes: Notes) -> Any:
        """Return a bundle without the markup that would need too much memory."""
        if not isinstance(data, dict):
            return data
        size, kept = 0, dict(data)
        for name in MARKUP:
            value = data.get(name)
            size += sum(map(_length, value)) if isinstance(value, list) else _length(value)
            if name in data and size > self.message_bytes // 3:
                note = noted(OutputCode.MARKUP_TOO_LARGE, type=name)
                notes.take(note)
                del kept[name]
                kept.setdefault("text/plain", f"[sandbox_kernel: {note}; setting: message_limit]")
        return kept if len(kept) < len(data) or kept.keys() != data.keys() else data

    def _input(self, message: Message, notes: Notes) -> _Content:
        prompt = message.content.get("prompt")
        text = terminal.clean(_DIRECTIONS.sub("", prompt[:MAX_PROMPT])) if isinstance(prompt, str) else ""
        text = "\n".join(text.split("\n")[-MAX_PROMPT_LINES:])
        return {"prompt": text, "password": message.content.get("password") is True}


def _ended(message: Message) -> Message:
    """Return a message whose texts end their lines in one way; a stream keeps what draws a line over."""
    content = line_ends.tree(message.content, returns=message.type == "stream")
    return message if content is message.content else dataclasses.replace(message, content=content)


def _parent(message: Message) -> str:
    parent = message.parent.get("msg_id")
    return parent if isinstance(parent, str) else ""


def _has_nothing_to_remove(message: Message) -> bool:
    """Return whether a message that is plain is a usual one: a text, the code of a cell, or that it went well."""
    content, kind = message.content, message.type
    if message.buffers:
        return False
    number = content.get("execution_count")
    counts = type(number) is int and 0 <= number <= MAX_COUNT
    if kind == "execute_reply":
        return (
            content.keys() == {"status", "execution_count", "user_expressions", "payload"}
            and content["status"] == "ok"
            and content["user_expressions"] == {}
            and content["payload"] == []
            and counts
        )
    if kind == "execute_input":
        return content.keys() == {"code", "execution_count"} and isinstance(content["code"], str)
    data = content.get("data")
    return (
        kind in ("display_data", "execute_result")
        and isinstance(data, dict)
        and data.keys() == {"text/plain"}
        and isinstance(data["text/plain"], str)
        and content.keys() <= {"data", "metadata", "transient", "execution_count"}
        and content.get("metadata") == {}
        and content.get("transient", {}) == {}
        and not message.metadata
        and (number is None or (counts and kind == "execute_result"))
    )


def _length(value: Any) -> int:
    return len(value) if isinstance(value, str) else 0


def _scalar(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int)) or (isinstance(value, str) and len(value) < 200)
