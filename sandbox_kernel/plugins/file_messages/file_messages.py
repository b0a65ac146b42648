"""Files of scratch for front ends that speak the Jupyter protocol: five requests on the control channel.

A request is answered by the host and the agent, never by the kernel, so it works while a cell runs, before the first
one, and after a kernel or a sandbox died. One chunk a request, one request at a time, in the order of their arrival.
docs/jupyter-server.md describes the messages. Imports neither sockets nor sessions: who answers is handed in.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from ...core.codes import FileCode, Survived
from ...core.errors import FileRefused, ProtocolError, SandboxDied, SandboxError
from ...core.events import Emit, FileNotTransferred, FileTransferred, UploadDropped
from ...core.model import SCRATCH, Message, format_bytes
from ...core.tasks import Tasks, noted_in
from ...files import scratch_files
from ...files.file_rules import CHUNK_BYTES, check_name, check_size, printable
from ...files.scratch_files import Ask, Stamp
from ..api import Answer
from .bounds import MAX_WAITING, VERSION
from .codes import FileMessageCode

D = TypeVar("D", int, None)


class Fields:
    """The content of a request, field by field; one that is not asked for is refused rather than overlooked."""

    def __init__(self, request: Message) -> None:
        self.given: dict[str, Any] = dict(request.content)
        self._left = dict(self.given)
        self._buffers = request.buffers

    def version(self) -> None:
        if self.number("version", VERSION) != VERSION:
            raise ProtocolError(
                FileMessageCode.FILE_VERSION_UNKNOWN,
                limit=f"version {VERSION}",
            )

    def text(self, name: str, default: str = "") -> str:
        return str(self._take(name, str, default, "text"))

    def path(self, name: str = "path") -> str:
        """A path relative to scratch, or an absolute one in it; its rules are those of `check_name`."""
        if name not in self._left:
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, f"the request has no {name}")
        return self.text(name).removeprefix(SCRATCH + "/")

    def number(self, name: str, default: D) -> int | D:
        value: int | D = self._take(name, int, default, "a whole number")
        if value is not None and not 0 <= value < 1 << 62:
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, f"{name} is not a whole number of 0 or more")
        return value

    def flag(self, name: str, default: bool) -> bool:
        return bool(self._take(name, bool, default, "true or false"))

    def data(self) -> bytes:
        """The one buffer, or the text in base64 of front ends that cannot send buffers; none is an empty chunk."""
        text, buffers, self._buffers = self.text("data"), self._buffers, ()
        if len(buffers) > 1 or (buffers and text):
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, "a chunk is one buffer, or base64 in data")
        size = len(buffers[0]) if buffers else len(text) * 3 // 4 - 2
        if size > CHUNK_BYTES:
            raise ProtocolError(
                FileMessageCode.CHUNK_TOO_LARGE,
                limit=format_bytes(CHUNK_BYTES),
                value=format_bytes(size),
            )
        try:
            return bytes(buffers[0]) if buffers else base64.b64decode(text, validate=True)
        except ValueError:
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, "data is not base64") from None

    def end(self) -> None:
        if self._left:
            raise ProtocolError(
                FileMessageCode.FILE_REQUEST_IMPROPER, f"this request has no field {printable(min(self._left))!r}"
            )
        if self._buffers:
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, "this request has no use for a buffer")

    def _take(self, name: str, kind: type, default: object, what: str) -> Any:
        value = self._left.pop(name, None)
        if value is None:  # as many front ends write what is not given
            return default
        if type(value) is not kind:
            raise ProtocolError(FileMessageCode.FILE_REQUEST_IMPROPER, f"{name} is not {what}")
        return value


MAX_UNSENT_BYTES = 64 << 20
"""Bytes of replies that clients have not taken yet: more than `MAX_WAITING` chunks of one that reads."""
MAX_UPLOADS = 16
"""Files that are being written."""
MAX_PAGE = 1000
"""Files in one reply to a list request."""
QUIET_SECONDS = 60.0
"""How long the next chunk of a file may take; its client is taken to have gone then, and its part is removed."""
CLOSE_SECONDS = 0.5


@dataclass(slots=True)
class _Upload:
    """A file that has begun to arrive, under another name."""

    path: str
    container: str
    offset: int = 0
    digest: Any = field(default_factory=hashlib.sha256)
    timer: asyncio.TimerHandle | None = None


class FileMessages:
    """The files of one session, for all of its clients."""

    def __init__(
        self,
        started: Callable[[], Awaitable[str]],
        ask: Ask,
        emit: Emit,
        *,
        limit: int,
        unsent_bytes: Callable[[], int] = lambda: 0,
        arrived: Callable[[str, Stamp], None] = lambda path, stamp: None,
        quiet_seconds: float = QUIET_SECONDS,
    ) -> None:
        """Serve files of up to `limit` bytes.

        `started` waits for a sandbox, starts one if need be, and returns its name; it raises `SandboxError`. `arrived`
        hears of each file that was written; `unsent_bytes` says what waits for clients that do not read.
        """
        self._started = started
        self._ask = ask
        self._emit = emit
        self._limit = limit
        self._unsent_bytes = unsent_bytes
        self._arrived = arrived
        self._quiet_seconds = quiet_seconds
        self._uploads: dict[str, _Upload] = {}
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._closed = False
        self._tasks = Tasks(noted_in(emit))
        self._operations: dict[str, Callable[[Fields], Awaitable[Answer]]] = {
            "sandbox_file_write_request": self._write,
            "sandbox_file_read_request": self._read,
            "sandbox_file_list_request": self._list,
            "sandbox_file_mkdir_request": partial(self._change, op="mkdir", change=scratch_files.make_folder),
            "sandbox_file_remove_request": partial(self._change, op="remove", change=scratch_files.remove),
        }

    async def answer(self, request: Message) -> Answer:
        """Return content and buffers of the reply, whatever is wrong with the request."""
        fields = Fields(request)
        if self._waiting >= MAX_WAITING:
            limit = f"{MAX_WAITING} requests without a reply"
            return self._refuse(
                request,
                fields,
                ProtocolError(FileMessageCode.FILE_REQUESTS_WAIT, limit=limit),
            )
        self._waiting += 1
        try:
            fields.version()
            async with self._turn:
                if self._closed:
                    raise SandboxDied(FileMessageCode.SHUTTING_DOWN)
                content, buffers = await self._operations[request.type](fields)
        except SandboxError as error:
            return self._refuse(request, fields, error)
        finally:
            self._waiting -= 1
        return {"status": "ok", "version": VERSION, **content}, buffers

    async def close(self) -> None:
        """Answer no more, and remove what has not arrived as a whole; bounded."""
        self._closed = True
        with suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS), self._turn:
                for token in list(self._uploads):
                    await self._discard(token)
        for upload in self._uploads.values():
            _stop(upload)
        await self._tasks.close()

    # --- the five requests ---

    async def _write(self, fields: Fields) -> Answer:
        path, token = fields.path(), fields.text("upload")
        offset, size = fields.number("offset", 0), fields.number("size", None)
        final, abort, data = fields.flag("final", True), fields.flag("abort", False), fields.data()
        fields.end()
        check_size(max(offset + len(data), size or 0), self._limit)
        upload = self._upload(token, path) if token else None
        if abort:
            await self._discard(token)
            return {"path": path}, []
        if upload is None:
            token, upload = await self._begin(path)
        try:
            stamp = await self._put(token, upload, data, offset, size=size, final=final)
        except BaseException:
            await self._discard(token)
            raise
        if stamp is None:
            upload.timer = asyncio.get_running_loop().call_later(self._quiet_seconds, self._went_quiet, token)
            return {"path": path, "upload": token, "offset": upload.offset, "final": False}, []
        del self._uploads[token]
        digest = upload.digest.hexdigest()
        self._emit(FileTransferred(op="write", path=printable(path), bytes=upload.offset, sha256=digest))
        self._arrived(path, stamp)
        return {"path": path, "offset": upload.offset, "final": True, "etag": _etag(stamp)}, []

    async def _begin(self, path: str) -> tuple[str, _Upload]:
        check_name(path)
        if len(self._uploads) >= MAX_UPLOADS:
            raise FileRefused(FileMessageCode.MANY_WRITES, limit=f"{MAX_UPLOADS} files")
        token = secrets.token_hex(8)
        self._uploads[token] = upload = _Upload(path, await self._started())
        return token, upload

    def _upload(self, token: str, path: str) -> _Upload:
        upload = self._uploads.get(token)
        if upload is None or upload.path != path:
            raise FileRefused(FileMessageCode.NO_WRITE)
        _stop(upload)
        return upload

    async def _put(
        self, token: str, upload: _Upload, data: bytes, offset: int, *, size: int | None, final: bool
    ) -> Stamp | None:
        """Send one chunk; return the file's stamp with the last one."""
        total = offset + len(data)
        if offset != upload.offset:
            raise ProtocolError(
                FileMessageCode.CHUNK_MISPLACED,
                value=f"{offset}, not {upload.offset}",
            )
        if size is not None and (total > size or (final and total != size)):
            raise ProtocolError(
                FileMessageCode.FILE_LENGTH_WRONG,
                value=f"{total} of {size} bytes",
            )
        if upload.container != await self._started():
            raise SandboxDied(FileMessageCode.WRITE_CUT_SHORT, kept=Survived.NOTHING)
        fields = {"path": upload.path, "token": token, "offset": offset, "size": size, "final": final}
        reply, _ = await scratch_files.call(self._ask, "file.write", data, **fields)
        upload.offset = total
        upload.digest.update(data)
        return Stamp.parse(reply.get("stamp")) if final else None

    async def _read(self, fields: Fields) -> Answer:
        path, offset, size = fields.path(), fields.number("offset", 0), fields.number("size", CHUNK_BYTES)
        etag, encoding = fields.text("etag"), fields.text("encoding") or "buffer"
        fields.end()
        if encoding not in ("buffer", "base64"):
            raise ProtocolError(
                FileMessageCode.FILE_REQUEST_IMPROPER,
                "encoding is 'buffer' or 'base64'",
                value=printable(repr(encoding)),
            )
        if not size or size > CHUNK_BYTES:
            raise ProtocolError(
                FileMessageCode.FILE_REQUEST_IMPROPER,
                "size is that of one chunk",
                limit=f"1 to {CHUNK_BYTES}",
                value=str(size),
            )
        check_name(path)
        if self._unsent_bytes() >= MAX_UNSENT_BYTES:
            raise ProtocolError(
                FileMessageCode.REPLIES_NOT_READ,
                limit=f"{format_bytes(MAX_UNSENT_BYTES)} on their way",
            )
        await self._started()
        stamp, data = await scratch_files.chunk(self._ask, path, offset, size, self._limit)
        if etag and etag != _etag(stamp):
            raise FileRefused(FileCode.CHANGED.note(done="read"))
        if not etag:  # the others go on with a read that stands in the audit
            self._emit(FileTransferred(op="read", path=printable(path), bytes=stamp.size))
        final = offset + len(data) >= stamp.size
        content: dict[str, Any] = {"path": path, "offset": offset, "size": stamp.size, "final": final}
        content["etag"] = _etag(stamp)
        if encoding == "buffer":
            return content, [data]
        return content | {"data": base64.b64encode(data).decode()}, []

    async def _list(self, fields: Fields) -> Answer:
        folder, after = fields.text("folder"), fields.text("after")
        limit = fields.number("limit", MAX_PAGE)
        fields.end()
        if not limit or limit > MAX_PAGE:
            raise ProtocolError(
                FileMessageCode.FILE_REQUEST_IMPROPER,
                "limit is a number of files",
                limit=f"1 to {MAX_PAGE}",
                value=str(limit),
            )
        folder = folder.rstrip("/") or folder
        folder = "" if folder == SCRATCH else folder.removeprefix(SCRATCH + "/")
        if folder:
            check_name(folder)
        await self._started()
        files, complete = await scratch_files.scan(self._ask)
        beneath = [file for file in files if not folder or file.path.startswith(folder + "/")]
        found = [file for file in beneath if file.path > after]
        page = [
            {"path": file.path, "size": file.stamp.size, "modified": file.stamp.mtime_ns / 1e9}
            for file in found[:limit]
        ]
        return {"files": page, "more": len(found) > limit, "complete": complete}, []

    async def _change(self, fields: Fields, op: str, change: Callable[[Ask, str], Awaitable[None]]) -> Answer:
        path = fields.path()
        fields.end()
        check_name(path)
        await self._started()
        await change(self._ask, path)
        self._emit(FileTransferred(op=op, path=printable(path)))
        return {"path": path}, []

    # --- what goes wrong ---

    def _refuse(self, request: Message, fields: Fields, error: SandboxError) -> Answer:
        path = fields.given.get("path")
        path = path if isinstance(path, str) else type(path).__name__  # JSON may nest deeper than Python writes it
        self._emit(FileNotTransferred(type=request.type, path=printable(path), code=error.code, reason=str(error)))
        content = {"status": "error", "ename": error.name, "evalue": str(error), "traceback": [], "version": VERSION}
        return content | {
            "code": error.code.code,
            "fault": error.fault,
            "limit": error.limit,
            "setting": error.setting,
        }, []

    def _went_quiet(self, token: str) -> None:
        """Remove the part of a file whose client is gone."""
        upload = self._uploads[token]
        self._emit(UploadDropped(path=printable(upload.path), bytes=upload.offset))
        self._tasks.start(self._discard(token), "removing a part of a file")

    async def _discard(self, token: str) -> None:
        upload = self._uploads.pop(token, None)
        if upload is None:
            return
        _stop(upload)
        with suppress(SandboxError, TimeoutError):
            async with asyncio.timeout(scratch_files.DISCARD_SECONDS):
                await self._ask("file.discard", token=token)


def _etag(stamp: Stamp) -> str:
    """Name one state of a file; opaque to the client."""
    return "-".join(f"{number:x}" for number in stamp)


def _stop(upload: _Upload) -> None:
    if upload.timer is not None:
        upload.timer.cancel()
        upload.timer = None
