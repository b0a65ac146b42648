"""What a person's page does not bear: shown up to a limit; the rest is put into a file of scratch, and its end shown.

Stands between a session and its front ends; policy/display_budget.py decides. A cell never waits for it:
what cannot be written fast enough is left out of the file, which says so. Batch clients get everything: nbclient and
what is built on it say with each cell that they have no input.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.errors import SandboxError
from ...core.model import SCRATCH, Message, format_bytes
from ...core.tasks import Tasks, noted_in
from ...files import scratch_files
from ...files.file_rules import CHUNK_BYTES
from ...files.scratch_files import Ask
from ...policy import protocol
from ...policy.display_budget import ELEMENTS_OF_A_LINE, END_OF_ERROR, Page, is_long, plain_text, tail_of, weight
from ...policy.mime import JSON

if TYPE_CHECKING:
    from ..session import Session

FOLDER = "outputs"
"""In scratch: what was not shown. A link of that name is not followed; then there is no file, and the cell says so."""
FINISH_SECONDS = 10.0
"""How long the end of a cell may wait for its file."""
MAX_CELLS = 100
"""Cells whose threads are still counted after their end."""
SHARED_SECONDS = 60.0
"""How long one page is for all that belongs to no such cell: answers to widgets, and threads of cells long gone.

A widget that plays by itself, or keeps a log, has its front end send messages without an end, and none of the answers
may begin with an empty page.
"""
LARGE = 1 << 20
"""Characters of a text whose memory is given back to the system soon after."""
SHARE_OF_SCRATCH = 4
"""All files of this kind together take one of so many parts of scratch; older ones make room."""

Deliver = Callable[[Message], None]


class _GrowingFile:
    """One file of scratch that grows while its cell runs."""

    def __init__(self, path: str, room: int, waiting: int) -> None:
        """It may have `room` bytes, of which so many may be `waiting`: a file is slower than a pipe."""
        self.path = path
        self.bytes = self.left_out = 0
        self.problem: SandboxError | None = None
        self.task: asyncio.Task[object] | None = None
        self._room = room
        self._max_waiting = waiting
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._news = asyncio.Event()
        self._ended = False

    def write(self, text: str) -> None:
        data = text.encode(errors="replace")
        if self._ended or self.problem is not None or self.bytes + len(data) > self._room:
            self._room = 0  # from here on there is nothing, rather than pieces
            self.left_out += len(data)
        elif self._waiting_bytes + len(data) > self._max_waiting:
            self.left_out += len(data)
        else:
            self.bytes += len(data)
            self._waiting_bytes += len(data)
            self._waiting.append(data)
            self._news.set()

    def end(self) -> None:
        self._ended = True
        self._news.set()

    async def send(self, ask: Ask) -> None:
        try:
            await scratch_files.send(ask, self.path, self._chunks(), None)
        except SandboxError as error:
            self.problem = error
        self._waiting.clear()

    async def _chunks(self) -> AsyncIterator[bytes]:
        held = bytearray()
        while True:
            while self._waiting:
                piece = self._waiting.popleft()
                self._waiting_bytes -= len(piece)
                held += piece
                while len(held) >= CHUNK_BYTES:
                    yield bytes(held[:CHUNK_BYTES])
                    del held[:CHUNK_BYTES]
            if self._ended:
                yield bytes(held)
                return
            self._news.clear()
            await self._news.wait()


class _ShownCell:
    """What one cell has shown, and the rest."""

    def __init__(self, page: Page, number: int, *, shared: bool = False) -> None:
        self.page = page
        self.number = number
        """Of its request; 0 if that is forgotten."""
        self.shared = shared
        """Whether others have the same page."""
        self.count = 0
        self.file: _GrowingFile | None = None
        self.tail = ""
        self.displays = 0
        self.told = self.ended = False


class Overflow:
    """The page of each cell of one session, and the files of those that overflow."""

    def __init__(self, session: Session, deliver: Deliver) -> None:
        """`deliver` publishes a message to the front ends."""
        self._session = session
        self._settings = session.settings
        self._ask = session.ask
        self._deliver = deliver
        self._tasks = Tasks(noted_in(session.emit))
        self._cells: dict[str, _ShownCell] = {}
        self._shared: Page | None = None
        self._shared_since = 0.0
        self._batch: dict[str, None] = {}
        """Cells of clients that get everything."""
        self._kept: dict[str, int] = {}
        """The files in scratch, with their bytes, the oldest first."""

    def publish(self, message: Message) -> None:
        """Deliver a message, or what of it the page bears."""
        key = message.parent.get("msg_id")
        cell = self._cell(str(key)) if key else None
        if cell is None or message.channel != "iopub":
            self._deliver(message)
            return
        match message.type:
            case "stream":
                self._stream(cell, message)
            case "display_data" | "execute_result" | "update_display_data":
                self._display(cell, message)
            case "error":
                self._error(cell, message)
            case "comm_msg" if not cell.page.draw(message.work // ELEMENTS_OF_A_LINE):
                self._leave_out(cell, message, "[a widget's state]")
            case "status" if message.content.get("execution_state") == "idle":
                self._conclude(cell, message.parent)
                if cell.shared and cell.file is None:
                    self._cells.pop(str(key), None)  # what comes late has the shared page again
                self._deliver(message)
            case kind:
                if kind == "execute_input" and type(count := message.content.get("execution_count")) is int:
                    cell.count = min(count, 10**9)
                elif kind == "clear_output":
                    cell.page.clear()
                    cell.told = cell.page.full
                self._deliver(message)

    async def _after_cell(self) -> list[str]:
        """Complete the files of all cells but those that still run, before files are copied out."""
        running = self._session.requests.queue.running_cells()
        still = {request.id for request in running if not request.idle and request.reply is None}
        files = [cell.file for key, cell in self._cells.items() if key not in still and cell.file is not None]
        for file in files:
            file.end()
        tasks = [file.task for file in files if file.task is not None and not file.task.done()]
        if tasks:
            await asyncio.wait(tasks, timeout=FINISH_SECONDS)
        return []

    async def close(self) -> None:
        """Give up what is not written."""
        await self._tasks.close()

    # --- messages ---

    def _stream(self, cell: _ShownCell, message: Message) -> None:
        name, text = str(message.content.get("name")), message.content.get("text")
        if not isinstance(text, str):
            self._deliver(message)
            return
        shown, rest = cell.page.stream(name, text)
        if not rest:
            self._deliver(message)
            return
        if shown:
            self._deliver(replace(message, content={**message.content, "text": shown}))
        self._keep(cell, message.parent, rest)

    def _display(self, cell: _ShownCell, message: Message) -> None:
        text = plain_text(message.content)
        if not self._counted(cell, message):
            self._leave_out(cell, message, text or "[a display]")
            return
        data = message.content.get("data")
        if isinstance(data, dict) and JSON in data and is_long(data[JSON], self._settings.display_size):
            self._keep(cell, message.parent, f"{protocol.dumps(data[JSON]).decode()}\n", tell=False)
            rest = {name: value for name, value in data.items() if name != JSON}
            rest.setdefault("text/plain", "[JSON that is too long for this page]")
            message = replace(message, content={**message.content, "data": rest})
            self._say_where(cell, message.parent, "The whole JSON")
        if text is not None and (short := cell.page.shortened(text)) is not None:
            self._keep(cell, message.parent, f"{text}\n", tell=False)
            data = {**message.content["data"], "text/plain": short}
            message = replace(message, content={**message.content, "data": data})
            self._deliver(message)
            self._say_where(cell, message.parent, "The whole text")
            return
        self._deliver(message)

    def _counted(self, cell: _ShownCell, message: Message) -> bool:
        """Return whether the pages bear a display: all of its id, in whatever cells they are, look as it does then."""
        transient = message.content.get("transient")
        name = transient.get("display_id") if isinstance(transient, dict) else None
        if not isinstance(name, str):
            return cell.page.display(message.content, message.work)
        new = message.type != "update_display_data"
        every = dict.fromkeys((cell.page, *(one.page for one in self._cells.values())))
        if self._shared is not None:
            every[self._shared] = None
        pages = [page for page in every if page.copies(name) and not (new and page is cell.page)]
        lines, chars = weight(message.content, message.work)
        if not all(page.bears(name, lines, chars) for page in pages):
            return False
        copies = sum(page.copies(name) for page in pages)
        if (copies or not new) and not cell.page.draw(lines * max(1, copies)):
            return False
        if new and not cell.page.display(message.content, message.work, name):
            return False
        for page in pages:
            page.update(name, lines, chars)
        return True

    def _leave_out(self, cell: _ShownCell, message: Message, text: str) -> None:
        cell.displays += 1
        self._keep(cell, message.parent, f"{text}\n")

    def _error(self, cell: _ShownCell, message: Message) -> None:
        content = dict(message.content)
        lines, value = content.get("traceback"), content.get("evalue")
        if isinstance(value, str) and (less := cell.page.shortened(value)) is not None:
            content["evalue"] = less
        short = cell.page.traceback(lines) if isinstance(lines, list) else None
        shown = short or (lines if isinstance(lines, list) else [])
        if not cell.page.error("\n".join(map(str, [content.get("ename"), content.get("evalue"), *shown]))):
            self._end_of_error(cell, message)
            return
        if isinstance(lines, list) and short is not None:
            self._keep(cell, message.parent, "\n".join(map(str, lines)) + "\n", tell=False)
            content["traceback"] = short
        self._deliver(replace(message, content=content))
        if short is not None:
            self._say_where(cell, message.parent, "The whole traceback")

    def _end_of_error(self, cell: _ShownCell, message: Message) -> None:
        """Show no more of an error than its end, and keep the whole."""
        if cell.page.has_many_errors:
            return
        content = message.content
        lines = content["traceback"] if isinstance(content.get("traceback"), list) else []
        whole = "\n".join(map(str, lines))
        value, end = str(content.get("evalue"))[:END_OF_ERROR], tail_of(whole[-END_OF_ERROR:])
        self._keep(cell, message.parent, f"{whole}\n")
        self._deliver(replace(message, content={**content, "evalue": value, "traceback": end.split("\n")}))

    # --- the rest ---

    def _cell(self, key: str) -> _ShownCell | None:
        """Return the page of a cell, None for one whose front end says that nobody is there to be asked anything."""
        cell, request = self._cells.get(key), self._session.requests.queue.find(key)
        if cell is not None and request is not None and cell.number != request.order:
            del self._cells[key]  # an id that came again
            cell = None
        if cell is None and (request is not None or key not in self._batch):
            self._batch.pop(key, None)
            if request is not None and request.message.content.get("allow_stdin") is False:
                self._batch[key] = None  # what it asked is forgotten with its end, and a thread may print later
                if len(self._batch) > MAX_CELLS:
                    del self._batch[next(iter(self._batch))]
                return None
            number = request.order if request is not None else 0
            # One that ended before the kernel had it is told so on a page of its own.
            if request is not None and request.is_execute and not (request.finished and request.busy):
                cell = self._cells[key] = _ShownCell(self._new_page(), number)
            else:
                cell = _ShownCell(self._shared_page(), number, shared=True)
                cell.told = cell.page.left_out  # that was said where it was filled
                cell.ended = cell.page.left_out or request is None or request.finished
                if cell.ended:
                    return cell  # what has no file need not be remembered
                self._cells[key] = cell
            for old in [key for key, one in self._cells.items() if one.ended][: max(0, len(self._cells) - MAX_CELLS)]:
                del self._cells[old]
        return cell

    def _new_page(self) -> Page:
        return Page(self._settings.display_lines, self._settings.display_size)

    def _shared_page(self) -> Page:
        now = time.monotonic()
        if self._shared is None or now - self._shared_since >= SHARED_SECONDS:
            self._shared, self._shared_since = self._new_page(), now
        return self._shared

    def _keep(self, cell: _ShownCell, parent: Any, text: str, *, tell: bool = True) -> None:
        if cell.file is None and not cell.ended:
            limits, name = self._settings.limits, f"cell-{cell.count}.txt" if cell.count else "cell.txt"
            cell.file = _GrowingFile(
                f"{FOLDER}/{name}", limits.scratch_size // SHARE_OF_SCRATCH, limits.message_limit // 2
            )
            cell.file.task = self._tasks.start(self._write(cell.file), "a file of what was not shown")
            self._session.requests.call_after_cells(self._after_cell)
        if cell.file is not None:
            cell.file.write(text)
        if len(text) >= LARGE:
            from ...core.heap import keep_freed  # few cells show as much

            keep_freed()
        cell.tail = (cell.tail + text[-(64 << 10) :])[-(64 << 10) :]
        if tell and not cell.told:
            cell.told = True
            lines, size = self._settings.display_lines, format_bytes(self._settings.display_size)
            self._say(
                parent,
                f"This page takes {lines:,} lines or {size} of a cell (settings: display_lines, display_size). "
                + ("What follows is not shown." if cell.ended else "The rest goes into a file; its end is shown last."),
            )

    async def _write(self, file: _GrowingFile) -> None:
        await file.send(self._ask)
        if file.problem is not None:
            return
        self._kept.pop(file.path, None)
        self._kept[file.path] = file.bytes
        room = self._settings.limits.scratch_size // SHARE_OF_SCRATCH
        while sum(self._kept.values()) > room and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            del self._kept[oldest]
            try:
                await scratch_files.remove(self._ask, oldest)
            except SandboxError:
                continue  # a cell removed it, or put something else there

    def _conclude(self, cell: _ShownCell, parent: Any) -> None:
        """Show the end of what was not shown, and say where all of it is."""
        cell.ended = True
        if cell.file is None:
            return
        cell.file.end()
        if cell.told:
            tail, cell.tail = tail_of(cell.tail), ""
            self._say(parent, "... the end of the output:")
            content = {"name": "stdout", "text": tail if tail.endswith("\n") else tail + "\n"}
            self._deliver(Message(channel="iopub", header={"msg_type": "stream"}, parent=parent, content=content))
            if cell.displays:
                self._say(parent, f"{cell.displays:,} displays are not shown; the file has their text.")
            self._say_where(cell, parent, "What was not shown")

    def _say_where(self, cell: _ShownCell, parent: Any, what: str) -> None:
        file = cell.file
        if file is None:
            self._say(parent, f"{what} is kept nowhere: its cell has ended.")
        elif file.problem is not None:
            self._say(parent, f"{what} is kept nowhere; {SCRATCH}/{file.path}: {file.problem}")
        else:
            less = f", but for {format_bytes(file.left_out)} for which there was no room" if file.left_out else ""
            self._say(parent, f"{what} is in {SCRATCH}/{file.path} ({format_bytes(file.bytes)}{less}).")

    def _say(self, parent: Any, text: str) -> None:
        content = {"name": "stderr", "text": f"[sandbox_kernel] {text}\n"}
        self._deliver(Message(channel="iopub", header={"msg_type": "stream"}, parent=parent, content=content))
