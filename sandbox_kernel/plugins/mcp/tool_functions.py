"""The tools: what they take, what they do, and what they give back.

A cell that fails is no failure of a tool: the answer says what happened, as text. A tool that cannot do what it is
asked (no such file, wrong arguments, too many sessions, no engine) answers with `isError`, which models get to read.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import mimetypes
import time
from codecs import getincrementaldecoder
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from mcp_types import (
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
)
from pydantic import BaseModel, ConfigDict, Field, model_validator

from ...core.codes import UsageCode
from ...core.errors import FileRefused
from ...core.model import SCRATCH, format_bytes
from ...files.file_rules import stands_in
from ...policy import safe_text
from ...policy.raster import MAGIC, image_type
from .answer_writer import IMAGE_CHARACTERS, AnswerLimits, Writer, figures, plain, rows
from .clients import McpClient, RefusedCall
from .codes import McpCode
from .output_store import file_address
from .tool_descriptions import CALL_BYTES, INLINE_BYTES, PART_BYTES

PROGRESS_SECONDS = 1.0
SHOWN_IN_PROGRESS = 500
"""Characters of the newest output in one notification."""
MAX_LISTED = 1000

Session = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="Name of the session; sessions share nothing with each other.",
    ),
]
Path = Annotated[
    str, Field(min_length=1, max_length=1100, description="Path relative to /mnt/data, or a whole one: data/sales.csv")
]
_PACKAGE = r"^[A-Za-z0-9][A-Za-z0-9._-]*(\[[A-Za-z0-9._,-]+\])?([=<>~!]{1,3}[A-Za-z0-9.*+_-]+,?)*$"
Seconds = Annotated[float, Field(gt=0, description="Shorter time limit in seconds for this call.")]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """Where a call comes from, and whom it may tell how far it is."""

    client: McpClient
    limits: AnswerLimits
    report: Callable[[float, float | None, str], Awaitable[None]]
    """Elapsed seconds, seconds at most, a line of text."""


class Arguments(BaseModel):
    """What a tool takes; a name that it does not know is an error."""

    model_config = ConfigDict(extra="forbid")


class RunCode(Arguments):
    code: Annotated[str, Field(description="Python code.")]
    session: Session = "main"
    timeout: Seconds | None = None


class InstallPackages(Arguments):
    packages: Annotated[
        list[Annotated[str, Field(max_length=200, pattern=_PACKAGE)]],
        Field(min_length=1, max_length=20, description="Names, with versions and extras: polars, rich[jupyter]>=13"),
    ]
    session: Session = "main"


class UploadFile(Arguments):
    path: Path
    text: Annotated[str | None, Field(description="The content, as text.")] = None
    base64: Annotated[str | None, Field(description="The content, as base64; instead of `text`.")] = None
    session: Session = "main"
    offset: Annotated[int, Field(ge=0, description="Bytes that earlier parts of this file have brought.")] = 0
    final: Annotated[bool, Field(description="Whether this is the last part.")] = True

    @model_validator(mode="after")
    def _one_content(self) -> Self:
        if (self.text is None) == (self.base64 is None):
            raise ValueError("give either text or base64")
        return self


class DownloadFile(Arguments):
    path: Path
    session: Session = "main"
    offset: Annotated[int, Field(ge=0, description="The byte to start at.")] = 0
    length: Annotated[int | None, Field(gt=0, le=PART_BYTES, description="Bytes to return.")] = None
    encoding: Annotated[
        Literal["auto", "text", "base64"], Field(description="How to return it; auto looks at the content.")
    ] = "auto"


class ListFiles(Arguments):
    session: Session = "main"
    folder: Annotated[str, Field(max_length=1100, description="A folder, as a path; empty for all of /mnt/data.")] = ""


class OfSession(Arguments):
    session: Session = "main"


class Nothing(Arguments):
    pass


async def run_code(call: ToolCall, given: RunCode) -> CallToolResult:
    async with call.client.use(given.session) as (session, notes):
        limit = session.sandbox.settings.limits.cell_timeout
        if given.timeout is not None and given.timeout > limit:
            raise RefusedCall(
                UsageCode.WRONG_ARGUMENT,
                f"run_code: timeout: {given.timeout:g} s is more than a call may have. Limit: {limit:g} s.",
            )
        progress = _Progress(call, min(limit, given.timeout or limit))
        running = asyncio.ensure_future(
            session.sandbox.run_code(
                given.code,
                timeout=given.timeout,
                on_stdout=progress.printed,
                on_stderr=progress.printed,
            )
        )
        try:
            while not (await asyncio.wait({running}, timeout=PROGRESS_SECONDS))[0]:
                await progress.tell(waiting=session.busy > 1)
        finally:
            running.cancel()  # this call was cancelled; done, it is left alone
        execution = running.result()
        session.cells += 1
        blocks = Writer(session.outputs, call.limits).execution(execution, notes)
    return CallToolResult(content=blocks, _meta={"sandbox-kernel/execution": figures(execution, given.session)})


async def install_packages(call: ToolCall, given: InstallPackages) -> CallToolResult:
    # As a cell asks for them, not as the operator does: what cells may have is all that a client may.
    return await run_code(call, RunCode(code=f"%pip install {' '.join(given.packages)}", session=given.session))


async def upload_file(call: ToolCall, given: UploadFile) -> CallToolResult:
    if given.text is not None:
        data = given.text.encode(errors="replace")
    else:
        try:
            data = binascii.a2b_base64("".join((given.base64 or "").split()), strict_mode=True)
        except ValueError as error:
            raise RefusedCall(UsageCode.WRONG_ARGUMENT, f"`base64` cannot be decoded: {error}.") from None
    if len(data) > CALL_BYTES:
        most, got = format_bytes(CALL_BYTES), format_bytes(len(data))
        raise FileRefused(McpCode.CALL_BYTES, limit=most, value=got)
    async with call.client.use(given.session) as (session, notes):
        if given.final and given.offset == 0:
            info = await session.sandbox.files.write(given.path, data)
        else:
            file = await asyncio.to_thread(session.part, given.path, given.offset, data)
            if file is None:
                raise RefusedCall(
                    McpCode.PART_MISPLACED,
                    f"{given.path!r}: this part does not follow the ones that came; start again with offset 0.",
                )
            done = given.offset + len(data)
            if not given.final:
                return _structured(
                    f"{given.path}: {done:,} bytes so far; the next part starts at offset {done}.",
                    {"session": given.session, "path": given.path, "size": done, "complete": False},
                    notes,
                )
            try:
                file.seek(0)
                info = await session.sandbox.files.write(given.path, file)
            finally:
                session.forget_part(given.path)
    return _structured(
        f"{PurePosixPath(SCRATCH, info.path)}: {info.size:,} bytes written.",
        {"session": given.session, "path": info.path, "size": info.size, "complete": True},
        notes,
    )


async def download_file(call: ToolCall, given: DownloadFile) -> CallToolResult:
    async with call.client.use(given.session, make=False) as (session, _):
        length = INLINE_BYTES if given.length is None else given.length
        data, size = await session.sandbox.files.read_part(given.path, given.offset, length)
        path = given.path.removeprefix("/mnt/data/")
        mime = mime_of(path)
        whole = given.offset == 0 and given.length is None
        if whole and mime in MAGIC and given.encoding == "auto" and size * 4 / 3 < IMAGE_CHARACTERS:
            if len(data) < size and image_type(data):
                data, size = await session.sandbox.files.read_part(given.path, 0, size)
            # Not by its name: an interface that is given another type than it is told refuses the whole conversation.
            if (kind := image_type(data)) is not None and len(data) == size:
                image = ImageContent(data=base64.b64encode(data).decode(), mime_type=kind)
                return CallToolResult(content=[TextContent(text=f"[{path}: {size:,} bytes]"), image])
    uri = file_address(given.session, path)
    if given.length is None and given.offset + len(data) < size:
        link = ResourceLink(uri=uri, name=path, mime_type=mime, size=size, description=f"all of {path}")
        hint = (
            f"{path} has {size:,} bytes, more than the {format_bytes(INLINE_BYTES)} that are given back "
            f"unasked. Read the resource {uri}, or ask for parts with `offset` and `length` (at most "
            f"{PART_BYTES} bytes each)."
        )
        return CallToolResult(content=[TextContent(text=hint), link])
    text, head = _as_text(data, given), f"[{path}: bytes {given.offset} to {given.offset + len(data)} of {size}]"
    body: ContentBlock
    if text is not None:
        body = TextContent(text=(shown := safe_text.plain(text)))
        if left := len(text) - len(shown):
            head += f" [{left} characters of control sequences are left out: base64 has all]"
    else:
        blob = base64.b64encode(data).decode()
        body = EmbeddedResource(resource=BlobResourceContents(uri=uri, mime_type=mime, blob=blob))
    part = {"path": path, "offset": given.offset, "length": len(data), "size": size}
    return CallToolResult(content=[TextContent(text=head), body], _meta={"sandbox-kernel/part": part})


async def list_files(call: ToolCall, given: ListFiles) -> CallToolResult:
    async with call.client.use(given.session, make=False) as (session, _):
        found = await session.sandbox.files.list(given.folder)
    # Cells choose names, and how long they are.
    lengths = accumulate(len(file.path) for file in found[:MAX_LISTED])
    shown = found[: sum(length <= 4 * call.limits.text_characters for length in lengths)]
    text = (
        # The names come last, where a long one does not widen the lines of all others.
        rows(("BYTES", "FILE"), ((f"{file.size:,}", safe_text.ours(file.path)) for file in shown))
        if found
        else "There are no files."
    )
    if len(found) > len(shown):
        text += f"\n[{len(found) - len(shown)} more files]"
    if not found.complete:
        text += "\n[not all: there are more than a listing looks at, or some lie too deep]"
    if any(stands_in(file.path) for file in shown):
        text += "\n[a name with ~ and eight digits stands for one that is no text, or has characters that nobody sees]"
    files = [{"path": f.path, "size": f.size, "uri": file_address(given.session, f.path)} for f in shown]
    content = {"session": given.session, "files": files, "complete": found.complete and len(found) == len(shown)}
    return _structured(text, content)


async def list_sessions(call: ToolCall, given: Nothing) -> CallToolResult:
    now = time.monotonic()
    sessions: list[dict[str, Any]] = [
        {
            "session": session.name,
            "calls_running": session.busy,
            "cells_run": session.cells,
            "age_seconds": round(now - session.since, 1),
            "idle_seconds": 0.0 if session.busy else round(now - session.used, 1),
        }
        for session in call.client.alive()
    ]
    text = rows(tuple(sessions[0]), (tuple(row.values()) for row in sessions)) if sessions else "There is no session."
    return _structured(text, {"sessions": sessions})


async def interrupt(call: ToolCall, given: OfSession) -> CallToolResult:
    session = await call.client.find_started(given.session)
    if not await session.sandbox.interrupt():
        return _said(f"Nothing runs in session {given.session!r}.")
    return _said(f"Session {given.session!r} was interrupted: KeyboardInterrupt in its code, state is kept.")


async def reset(call: ToolCall, given: OfSession) -> CallToolResult:
    session = await call.client.find_started(given.session)
    await session.sandbox.restart()
    return _said(f"Python was started again in session {given.session!r}: variables are gone, files are kept.")


async def end_session(call: ToolCall, given: OfSession) -> CallToolResult:
    call.client.find(given.session)
    await call.client.end(given.session)
    return _said(f"Session {given.session!r} has ended; its variables and files are gone.")


class _Progress:
    """What a host hears of a cell that runs: the time that has passed, and what was printed since."""

    def __init__(self, call: ToolCall, most: float) -> None:
        self._report = call.report
        self._most = most
        self._begin = time.monotonic()
        self._new = ""

    def printed(self, text: str) -> None:
        # A cut escape sequence or an overwritten line at the edge does no harm here.
        self._new = (self._new + text)[-4 * SHOWN_IN_PROGRESS :]

    async def tell(self, *, waiting: bool) -> None:
        elapsed = time.monotonic() - self._begin
        news, self._new = plain(self._new).strip()[-SHOWN_IN_PROGRESS:], ""
        state = "running, or waiting for another call" if waiting else "running"
        await self._report(
            elapsed, max(self._most, elapsed), f"{state} for {elapsed:.0f} s{': ' if news else ''}{news}"
        )


def mime_of(path: str) -> str:
    # A name is no URL: that of a cell may begin with `data:` and then any type at all.
    return mimetypes.guess_type(f"/{path}", strict=False)[0] or "application/octet-stream"


def _as_text(data: bytes, given: DownloadFile) -> str | None:
    """Return a part as text, None if it is to be base64. A character that a part cuts becomes a replacement mark."""
    if given.encoding == "base64":
        return None
    if given.encoding == "text":
        return data.decode(errors="replace")
    begin = 0
    while given.offset and begin < min(3, len(data)) and data[begin] & 0xC0 == 0x80:
        begin += 1
    try:
        getincrementaldecoder("utf-8")().decode(data[begin:])  # what it has of a last character may wait
    except UnicodeDecodeError:
        return None
    return None if 0 in data else data.decode(errors="replace")


def _structured(text: str, content: dict[str, Any], notes: Sequence[str] = ()) -> CallToolResult:
    lines = [text, *(f"[{note}]" for note in notes)]
    return CallToolResult(content=[TextContent(text="\n".join(lines))], structured_content=content)


def _said(text: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=text)])
