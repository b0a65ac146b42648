"""Open Terminal's wire: files of a user's sandbox, read, written, moved, looked for and packed."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import posixpath
import re
import secrets
import shlex
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from starlette.responses import Response

from ....core.codes import UsageCode
from ....core.errors import CommandExitException, FileNotThere, SandboxError
from ....core.package_files import PACKAGE
from ....files.file_rules import FileLimits
from ....sdk.folder_entries import EntryInfo, FileType
from ..codes import ServeCode
from ..forms import form_of
from ..home import HOME
from ..requests import Refusal, answer, object_of
from ..streams import Download, begun, sent
from .bodies import (
    ArchiveBody,
    AtPath,
    BestMatches,
    Chunk,
    FolderQuery,
    Glob,
    Grep,
    MoveBody,
    PathBody,
    Read,
    Replace,
    Search,
    Upload,
    Write,
)
from .user import UserRequest, missing

MAX_TEXT = 2 << 20
"""Bytes of a file that is read as text, or changed: everybody waits for each call that goes through all of it."""
MAX_IMAGE = 16 << 20
"""Bytes of an image, which is sent as it is."""
MAX_SEARCH = 64 << 10
"""Characters of a search: it is an argument of a command."""
MAX_REPLACED = 64 << 20
"""Characters that all replacements of one request look through: everybody waits for them."""
SEARCH_SECONDS = 60.0
_LINE_END = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029](?:(?<=\r)\n)?")
"""What ends a line for `str.splitlines`."""
_SEARCH = Path("plugins", "serve", "inside", "file_search.py")


async def where(asked: UserRequest) -> Response:
    """Say in which folder a chat is."""
    return answer({"cwd": asked.box.folder(asked.chat), "home": HOME, "root": {"path": HOME, "label": "Home"}})


async def go(asked: UserRequest, body: PathBody) -> Response:
    """Have a chat be in a folder from now on."""
    path = asked.path(body.path)
    if not await asked.is_folder(path):
        raise missing("Directory")
    asked.box.go(asked.chat, path)
    return answer({"cwd": path})


async def every(asked: UserRequest, given: FolderQuery) -> Response:
    """List a folder."""
    path = asked.path(given.directory)
    if not await asked.is_folder(path):
        raise missing("Directory")
    found = await asked.sandbox.files.list(path, 1)
    entries = [_row(entry) for entry in found]
    return answer({"dir": path, "writable": True, "entries": entries, "complete": found.complete})


def _row(entry: EntryInfo) -> dict[str, Any]:
    return {
        "name": entry.name,
        "type": "directory" if entry.type is FileType.DIR else "file",
        "size": entry.size,
        "modified": entry.modified_time.timestamp(),
        "writable": True,
    }


async def read(asked: UserRequest, given: Read) -> Response:
    """Read a text file, or look at an image. Use display_file to show a file to the user."""
    path = asked.path(given.path)
    kind = _kind(path)
    content = await _content(asked, path, MAX_IMAGE if kind.startswith("image/") else MAX_TEXT)
    try:
        text = content.decode()
    except UnicodeDecodeError:
        if not kind.startswith("image/"):
            words = f"Unsupported binary file type: {kind} ({len(content)} bytes)"
            raise Refusal(415, ServeCode.NOT_OFFERED, words) from None
        return Response(content, headers=_headers(), media_type=kind)
    if len(content) > MAX_TEXT:
        raise _too_large(MAX_TEXT)
    first, last, total = await asyncio.to_thread(lines, text, given.start_line, given.end_line)
    return answer({"path": path, "total_lines": total, "content": text[first:last]})


async def _content(asked: UserRequest, path: str, limit: int) -> bytes:
    if not await asked.is_file(path):
        raise missing("File")
    content, size = await asked.sandbox.files.read_part(path, 0, limit)
    if size > limit:
        raise _too_large(limit)
    return bytes(content)


def _too_large(limit: int) -> Refusal:
    words = f"A file that is read or changed here may have {limit:,} bytes. Read or change it with a command"
    return Refusal(413, ServeCode.BODY_TOO_LARGE, words)


def lines(text: str, begin: int | None, end: int | None) -> tuple[int, int, int]:
    """Return where lines from one to another begin and end in a text, and how many it has.

    They are those of `str.splitlines`, one after the other: all of them at once would cost 60 bytes each.
    """
    first, last = 0 if begin in {None, 1} else len(text), len(text)
    count = done = 0
    for found in _LINE_END.finditer(text):
        count, done = count + 1, found.end()
        if count + 1 == begin:
            first = done
        if count == end:
            last = done
    return first, max(first, last), count + (done < len(text))


async def display(asked: UserRequest, given: AtPath) -> Response:
    """Show a file to the user. It is not returned."""
    path = asked.path(given.path)
    return answer({"path": path, "exists": await asked.is_file(path)})


async def view(asked: UserRequest, given: AtPath) -> Response:
    """Send a file as it is."""
    return await _sent(asked, asked.path(given.path))


async def serve(asked: UserRequest) -> Response:
    """Send a file by a path of its own, to which its links are relative."""
    return await _sent(asked, asked.path(f"/{asked.request.path_params['path']}"))


async def _sent(asked: UserRequest, path: str) -> Response:
    try:
        file = await asked.sandbox.files.opened(path)
    except FileNotThere:
        raise missing("File") from None
    return await sent(asked.request, file, _headers(), _kind(path))


def _kind(path: str) -> str:
    return mimetypes.guess_type(path)[0] or "application/octet-stream"


def _headers() -> dict[str, str]:
    """A page of the sandbox's is a page of nobody's: it reaches nothing of whoever shows it."""
    return {
        "Content-Security-Policy": "sandbox allow-scripts",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


async def write(asked: UserRequest, body: Write) -> Response:
    """Write a text file, with the folders above it. A file there is replaced."""
    path = asked.path(body.path)
    written = await asked.sandbox.files.write(path, body.content.encode(errors="replace"))
    return answer({"path": path, "size": written.size})


async def make(asked: UserRequest, body: PathBody) -> Response:
    """Make a folder and those above it."""
    path = asked.path(body.path)
    await asked.sandbox.files.make_folder(path)
    return answer({"path": path})


async def remove(asked: UserRequest, given: AtPath) -> Response:
    """Remove a file, or a folder with all that is in it."""
    path = asked.path(given.path)
    entry = await asked.entry(path)
    if entry is None:
        raise missing("Path")
    await asked.sandbox.files.remove(path, recursive=True)
    return answer({"path": path, "type": "directory" if entry.type is FileType.DIR else "file"})


async def move(asked: UserRequest, body: MoveBody) -> Response:
    """Move a file or a folder to where nothing is."""
    source, destination = asked.path(body.source), asked.path(body.destination)
    if await asked.entry(source) is None:
        raise missing("Source path")
    if not await asked.is_folder(posixpath.dirname(destination)):
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "Destination parent directory not found")
    if await asked.entry(destination) is not None:
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, "Destination already exists")
    await asked.sandbox.files.rename(source, destination)
    return answer({"source": source, "destination": destination})


async def replace(asked: UserRequest, body: Replace) -> Response:
    """Replace exact texts in a file."""
    path = asked.path(body.path)
    try:
        text = (await _content(asked, path, MAX_TEXT)).decode()
    except UnicodeDecodeError:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "The file is no text") from None
    seen = 0
    for chunk in body.replacements:
        seen += len(text)
        if seen > MAX_REPLACED:
            words = f"All replacements of one request may look through {MAX_REPLACED:,} characters. Send fewer at once"
            raise Refusal(413, ServeCode.BODY_TOO_LARGE, words)
        text = await asyncio.to_thread(replaced, text, chunk)
        if len(text) > MAX_TEXT:
            raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"The file would have more than {MAX_TEXT:,} characters")
    written = await asked.sandbox.files.write(path, text.encode(errors="replace"))
    return answer({"path": path, "size": written.size})


def replaced(text: str, chunk: Chunk) -> str:
    """Return a text with one replacement. Raises `Refusal` if what is to be replaced is not there, or unclear."""
    target, replacement, begin, end = chunk.target, chunk.replacement, chunk.start_line, chunk.end_line
    first, last = (0, len(text)) if begin is None and end is None else lines(text, begin, end)[:2]
    found = text[first:last].count(target)
    if found == 0:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, f"Target string not found: {target[:100]!r}")
    if found > 1 and not chunk.allow_multiple:
        words = f"Found {found} occurrences of target string but allow_multiple is false"
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, words)
    if len(text) + found * len(replacement) > MAX_TEXT:
        raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"The file would have more than {MAX_TEXT:,} characters")
    return text[:first] + text[first:last].replace(target, replacement) + text[last:]


async def upload(asked: UserRequest, given: Upload) -> Response:
    """Write the file of a form."""
    limit = FileLimits.of(asked.sandbox.settings.limits).file_bytes
    folder = asked.path(given.directory)
    async with asked.box.lease.tenant.uploads, form_of(asked.request, limit) as files:
        path = asked.path(posixpath.join(folder, posixpath.basename(files[0].filename or "upload")))
        written = await asked.sandbox.files.write(path, files[0].file)
    return answer({"path": posixpath.join(posixpath.dirname(path), written.name), "size": written.size})


# --- looked for in the sandbox ---


async def _searched(asked: UserRequest, op: str, **given: Any) -> Any:
    """Return what the sandbox finds. Patterns are tried there, where they may take for ever."""
    source = (PACKAGE / _SEARCH).read_text(encoding="utf-8")
    words = json.dumps({"op": op, **given})
    if len(words) > MAX_SEARCH:
        raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"A search may have {MAX_SEARCH:,} characters")
    try:
        longest = min(SEARCH_SECONDS, asked.sandbox.settings.limits.cell_timeout)
        command = shlex.join(["python3", "-c", source, words])
        ended = await asked.sandbox.commands.run(command, timeout=longest)
        found = object_of(ended.stdout.encode())
    except (CommandExitException, Refusal):
        found = None
    if found is None:
        raise Refusal(500, ServeCode.NOT_THERE, "The sandbox did not answer")
    if "wrong" in found:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, str(found["wrong"])[:500])
    return found


async def grep(asked: UserRequest, given: Grep) -> Response:
    """Look for lines in the text files of a folder, or of one file."""
    path = asked.path(given.path)
    if not await asked.is_folder(path) and not await asked.is_file(path):
        raise missing("Search path")
    found = await _searched(asked, "grep", **{**given.model_dump(), "path": path})
    return answer({"query": given.query, "path": path, **found})


async def _in_folder(asked: UserRequest, op: str, given: Glob | Search | BestMatches) -> tuple[str, Any]:
    """Return a folder, and what is found in it."""
    path = asked.path(given.path)
    if not await asked.is_folder(path):
        raise missing("Search directory")
    return path, await _searched(asked, op, **{**given.model_dump(), "path": path})


async def glob(asked: UserRequest, given: Glob) -> Response:
    """Look for files and folders whose names or paths fit a pattern."""
    path, found = await _in_folder(asked, "glob", given)
    return answer({"pattern": given.pattern, "path": path, **found})


async def search(asked: UserRequest, given: Search) -> Response:
    """Look for files and folders by a part of their names, the best first."""
    return answer((await _in_folder(asked, "search", given))[1])


async def matches(asked: UserRequest, given: BestMatches) -> Response:
    """Look for a text in names and contents of files, the best first."""
    return answer((await _in_folder(asked, "matches", given))[1])


async def archive(asked: UserRequest, body: ArchiveBody) -> Response:
    """Send files and folders, packed."""
    paths = [asked.path(one) for one in body.paths]
    for path in paths:
        if not await asked.is_folder(path) and not await asked.is_file(path):
            raise missing(f"Path {path[:200]!r}")
    into = f"{HOME}/.archive-{secrets.token_hex(8)}.zip"

    async def clear() -> None:
        with suppress(SandboxError):
            await asked.sandbox.files.remove(into)

    async def cleared() -> None:
        """It is removed also where the client goes meanwhile."""
        await asyncio.shield(asked.tenants.tasks.hold(clear(), "the end of an archive"))

    try:
        await _searched(asked, "pack", paths=paths, into=into)
        pieces = await begun(await asked.sandbox.files.read(into, "stream"))
    except BaseException:
        await cleared()
        raise

    async def whole() -> AsyncIterator[bytes]:
        try:
            async for piece in pieces:
                yield piece
        finally:
            await cleared()

    headers = {**_headers(), "Content-Disposition": "attachment"}
    return Download(whole(), headers=headers, media_type="application/zip")


ROUTES = (
    ("GET", "/files/cwd", where),
    ("POST", "/files/cwd", go),
    ("GET", "/files/list", every),
    ("GET", "/files/read", read),
    ("GET", "/files/display", display),
    ("GET", "/files/view", view),
    ("GET", "/files/serve/{path:path}", serve),
    ("POST", "/files/write", write),
    ("POST", "/files/mkdir", make),
    ("DELETE", "/files/delete", remove),
    ("POST", "/files/move", move),
    ("POST", "/files/replace", replace),
    ("GET", "/files/grep", grep),
    ("GET", "/files/glob", glob),
    ("GET", "/files/search", search),
    ("GET", "/files/matches", matches),
    ("POST", "/files/upload", upload),
    ("POST", "/files/archive", archive),
)
