"""Forms of several parts: files that come, and fields beside them, both bounded."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from python_multipart.exceptions import MultipartParseError
from starlette.datastructures import FormData, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from .codes import ServeCode
from .requests import Refusal, pieces_of

MAX_FORM = 1 << 20
"""Bytes of a form besides its files."""
MAX_FILES = 1000
"""Of one form."""
MAX_FIELD = 4096
"""Bytes of one field."""


@asynccontextmanager
async def form_of(request: Request, limit: int, fields: int = 0) -> AsyncIterator[FormData]:
    """Read a form whose files have up to `limit` bytes together, and up to so many fields. Raises `Refusal`.

    Its files are on disk, without names, until this ends.
    """
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "multipart/form-data":
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The body of this request is a form (multipart/form-data)")
    parser = MultiPartParser(
        request.headers,
        pieces_of(request, limit + MAX_FORM),
        max_files=MAX_FILES,
        max_fields=fields,
        max_part_size=MAX_FIELD if fields else 0,
    )
    try:
        form = await parser.parse()
    except (MultiPartException, MultipartParseError, KeyError) as error:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, f"The form is not proper: {error}") from None
    try:
        yield form
    finally:
        await form.close()


def files_of(form: FormData) -> list[UploadFile]:
    """Return the files of a form. Raises `Refusal` for none."""
    found = [one for _, one in form.multi_items() if isinstance(one, UploadFile)]
    if not found:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The form has no file")
    return found
