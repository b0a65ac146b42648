"""E2B's wire in a sandbox: files that come, as they are or in a form of several parts, and files that go.

A file that comes is on disk here, without a name, until its last byte is here: what fails leaves no part of it.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import PurePosixPath
from typing import IO, Any

from starlette.requests import Request
from starlette.responses import Response

from ....files.file_rules import CHUNK_BYTES, FileLimits, check_size
from ....sdk.folder_entries import FileInfo
from ....sdk.sandbox_paths import place
from ..codes import ServeCode
from ..forms import MAX_MEMORY, form_of
from ..home import HOME, check_user
from ..requests import Refusal, answer, improper, one_header, pieces_of, spool
from ..streams import sent
from ..tenants import Lease, Tenants
from . import metadata as e2b_metadata

PORT = "49983"
_GZIP = 16 + zlib.MAX_WBITS

Handler = Callable[[Request, Tenants, Lease], Awaitable[Any]]


async def health(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Say that the sandbox runs."""
    return Response(status_code=204)


async def download(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Send a file, or a part of it."""
    check_user(request.query_params.get("username"))
    file = await lease.sandbox.files.opened(_path(request))
    headers = {"X-Content-Type-Options": "nosniff", "Content-Disposition": "attachment", "Cache-Control": "no-store"}
    return await sent(request, file, headers, "application/octet-stream")


async def upload(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Take files: one as the body, or those of a form, whose names are their paths unless a path is given for one."""
    check_user(request.query_params.get("username"))
    async with lease.tenant.uploads:
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        limit = FileLimits.of(lease.sandbox.settings.limits).file_bytes
        noted = e2b_metadata.given(request)
        e2b_metadata.check_room(lease, noted)
        if kind == "application/octet-stream":
            path = _path(request)
            with spool(MAX_MEMORY) as file:
                async for piece in _unpacked(request, limit):
                    file.write(piece)
                file.seek(0)
                return answer([_written(lease, await _write(lease, path, file), noted)])
        if kind != "multipart/form-data":
            raise Refusal(400, ServeCode.REQUEST_IMPROPER, "A file comes as application/octet-stream or in a form")
        async with form_of(request, limit, file="file" if "path" in request.query_params else "") as files:
            paths = [part.filename for part in files]
            if len(files) == 1 and "path" in request.query_params:
                paths = [_path(request)]
            written = [await _write(lease, path, part.file) for path, part in zip(paths, files, strict=True)]
            return answer([_written(lease, info, noted) for info in written])


async def _write(lease: Lease, path: str, file: IO[bytes]) -> FileInfo:
    lease.sent.append(place(path))  # before a watcher sees it
    return await lease.sandbox.files.write(path, file)


# --- addresses that are signed --------------------------------------------------------------------------------------


def is_signed(request: Request) -> bool:
    """Return whether a request has a signature in its address, in place of the sandbox's token."""
    return "signature" in request.query_params and "X-Access-Token" not in request.headers


def signed_for(request: Request, tenants: Tenants) -> Lease:
    """Return the sandbox for whose file an address was signed. Raises `Refusal`, alike for all that is wrong with it.

    Its path names no sandbox: its signature is made with the token of one.
    """
    asked = request.query_params
    given = {name: asked.getlist(name) for name in ("path", "username", "signature", "signature_expiration")}
    path, user, signature, expiration = ("".join(values[:1]) for values in given.values())
    proper = all(len(values) <= 1 for values in given.values()) and request.method in {"GET", "POST"}
    if expiration:
        proper = proper and expiration.isascii() and expiration.isdigit() and len(expiration) <= 12
        proper = proper and int(expiration) >= time.time()
    operation = "read" if request.method == "GET" else "write"
    found = None
    identity = one_header(request, "E2b-Sandbox-Id")  # of the host that the address names, if it is a sandbox's
    for lease in tenants.running() if proper else ():
        if identity not in {None, lease.id}:
            continue
        signed = f"{path}:{operation}:{user}:{lease.access_token}{f':{expiration}' if expiration else ''}"
        digest = hashlib.sha256(signed.encode(errors="backslashreplace")).digest()
        right = "v1_" + base64.b64encode(digest).rstrip(b"=").decode()
        if hmac.compare_digest(right.encode(), signature.encode(errors="backslashreplace")):
            found = lease
    if found is None:
        raise Refusal(
            401,
            ServeCode.TOKEN_UNKNOWN,
            "The signature of the address is not right, or its time is over",
            elsewhere=True,
        )
    return found


async def _unpacked(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield a body as its file was before it was packed, no more of it than a file may have."""
    packing = request.headers.get("content-encoding", "identity").lower()
    pieces = pieces_of(request, limit)
    if packing == "identity":
        async for piece in pieces:
            yield piece
        return
    if packing != "gzip":
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "Content-Encoding is gzip, or it is not there")
    unpacking, done = zlib.decompressobj(_GZIP), 0
    try:
        async for piece in pieces:
            rest = piece
            while rest and not unpacking.eof:
                found = unpacking.decompress(rest, CHUNK_BYTES)
                done += len(found)
                check_size(done, limit)
                yield found
                await asyncio.sleep(0)  # a few bytes may be hundreds of pieces
                rest = unpacking.unconsumed_tail
    except zlib.error as error:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, f"The body is no gzip: {error}") from None
    if not unpacking.eof:
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "The body is no gzip to its end")


def _path(request: Request) -> str:
    paths = request.query_params.getlist("path")
    if len(paths) != 1:
        raise improper("path", "is given once, in the address")
    return paths[0]


def _written(lease: Lease, info: FileInfo, noted: dict[str, str]) -> dict[str, Any]:
    path = PurePosixPath(HOME, info.path)
    e2b_metadata.written(lease, info.path, noted)
    return {"name": path.name, "type": "file", "path": str(path), **e2b_metadata.of(lease, info.path)}


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/health", health),
    ("GET", "/files", download),
    ("POST", "/files", upload),
)
"""Each with what the access token of a sandbox opens, on the port of E2B's agent."""
