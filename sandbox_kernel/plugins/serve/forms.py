"""Forms of several parts: files that come, and fields beside them, both bounded.

All files of a form are one file of this machine, so a form has one descriptor and one buffer, however many they are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import IO, TYPE_CHECKING, cast

from python_multipart import MultipartParser
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import parse_options_header
from starlette.requests import Request

from .codes import ServeCode
from .requests import Refusal, pieces_of, spool

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

MAX_FORM = 1 << 20
"""Bytes of a form besides its files."""
MAX_FILES = 1000
"""Of one form."""
MAX_FIELD = 4096
"""Bytes of one field."""
MAX_MEMORY = 1 << 20
"""Bytes of a form's files, before they are written to disk."""


class FormFile:
    """A file of a form: a part of the form's content, which is read as a file that is open."""

    def __init__(self, content: IO[bytes], filename: str) -> None:
        self.filename = filename
        self.size = 0
        self._content = content
        self._at = self._begin = content.tell()

    def write(self, data: bytes) -> None:
        """Add to it: its form has come so far, and no further."""
        self.size += self._content.write(data)

    def read(self, size: int = -1) -> bytes:
        left = self._begin + self.size - self._at
        self._content.seek(self._at)
        piece = self._content.read(left if size < 0 else min(size, left))
        self._at += len(piece)
        return piece

    @property
    def file(self) -> IO[bytes]:
        return cast("IO[bytes]", self)


class _FormReader:
    """What a parser finds, part by part. Methods raise `Refusal`."""

    def __init__(self, content: IO[bytes], fields: int, file: bytes) -> None:
        self.files: list[FormFile] = []
        self._content = content
        self._fields = fields
        self._named = file
        self._file: FormFile | None = None
        self._size = 0
        self._name = self._value = self._disposition = b""

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self.on_part_begin,
            "on_header_begin": self.on_header_begin,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_headers_finished": self.on_headers_finished,
            "on_part_data": self.on_part_data,
        }

    def on_part_begin(self) -> None:
        self._file, self._size, self._disposition = None, 0, b""

    def on_header_begin(self) -> None:
        self._name = self._value = b""

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._name += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._value += data[start:end]

    def on_header_end(self) -> None:
        if self._name.lower() == b"content-disposition":
            self._disposition = self._value

    def on_headers_finished(self) -> None:
        _, said = parse_options_header(self._disposition)
        if b"name" not in said:
            raise _improper("a part has no name")
        if b"filename" not in said and said[b"name"] != self._named:
            self._fields -= 1
            if self._fields < 0:
                raise _improper("it has too many fields")
            return
        if len(self.files) >= MAX_FILES:
            raise _improper(f"it may have {MAX_FILES:,} files")
        self._file = FormFile(self._content, _text(said.get(b"filename", b"")))
        self.files.append(self._file)

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        if self._file is not None:
            self._file.write(data[start:end])
            return
        self._size += end - start
        if self._size > MAX_FIELD:
            raise _improper(f"a field may have {MAX_FIELD:,} bytes")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _improper(why: object) -> Refusal:
    return Refusal(400, ServeCode.REQUEST_IMPROPER, f"The form is not proper: {why}")


@asynccontextmanager
async def form_of(request: Request, limit: int, fields: int = 0, file: str = "") -> AsyncIterator[list[FormFile]]:
    """Read a form whose files have up to `limit` bytes together, and up to so many fields; give its files.

    A part with the name `file` is one without a file's name, too, as a browser sends text: the address has its path.
    They are on disk, without names, until this ends. Raises `Refusal`, also for a form without a file.
    """
    kind, said = parse_options_header(request.headers.get("content-type", ""))
    if kind.lower() != b"multipart/form-data":
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The body of this request is a form (multipart/form-data)")
    with spool(MAX_MEMORY) as content:
        reader = _FormReader(content, fields, file.encode())
        try:
            parser = MultipartParser(said.get(b"boundary", b""), reader.callbacks())
            async for piece in pieces_of(request, limit + MAX_FORM):
                parser.write(piece)
            parser.finalize()
        except FormParserError as error:
            raise _improper(error) from None
        if not reader.files:
            raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The form has no file")
        yield reader.files
