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

import orjson
from starlette.responses import Response

from ....core.codes import UsageCode
from ....core.errors import CommandExitException, FileNotThere, SandboxError
from ....core.package_files import PACKAGE
from ....files.file_rules import FileLimits
from ....sdk.folder_entries import EntryInfo, FileType
from ..codes import ServeCode
from ..forms import form_of
from ..home import HOME
from ..requests import Refusal, answer, improper
from ..streams import Download, begun, sent
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


async def go(asked: UserRequest) -> Response:
    """Have a chat be in a folder from now on."""
    path = asked.path((await asked.body()).fields.get("path"))
    if not await asked.is_folder(path):
        raise missing("Directory")
    asked.box.go(asked.chat, path)
    return answer({"cwd": path})


async def every(asked: UserRequest) -> Response:
    """List a folder."""
    path = asked.path(asked.text("directory", "."))
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


async def read(asked: UserRequest) -> Response:
    """Read text, or an image."""
    path = asked.path(asked.text("path"))
    begin, end = asked.number("start_line", None, 1, 10**9), asked.number("end_line", None, 1, 10**9)
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
    first, last, total = await asyncio.to_thread(lines, text, begin, end)
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


async def display(asked: UserRequest) -> Response:
    """Say whether there is a file that the client may show."""
    path = asked.path(asked.text("path"))
    return answer({"path": path, "exists": await asked.is_file(path)})


async def view(asked: UserRequest) -> Response:
    """Send a file as it is."""
    return await _sent(asked, asked.path(asked.text("path")))


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


async def write(asked: UserRequest) -> Response:
    """Write text."""
    body = await asked.body()
    content = body.fields.get("content")
    if not isinstance(content, str):
        raise improper("content", "is text")
    path = asked.path(body.fields.get("path"))
    written = await asked.sandbox.files.write(path, content.encode(errors="replace"))
    return answer({"path": path, "size": written.size})


async def make(asked: UserRequest) -> Response:
    """Make a folder and those above it."""
    path = asked.path((await asked.body()).fields.get("path"))
    await asked.sandbox.files.make_folder(path)
    return answer({"path": path})


async def remove(asked: UserRequest) -> Response:
    """Remove a file, or a folder with all that is in it."""
    path = asked.path(asked.text("path"))
    entry = await asked.entry(path)
    if entry is None:
        raise missing("Path")
    await asked.sandbox.files.remove(path, recursive=True)
    return answer({"path": path, "type": "directory" if entry.type is FileType.DIR else "file"})


async def move(asked: UserRequest) -> Response:
    """Move a file or a folder to where nothing is."""
    body = await asked.body()
    source, destination = asked.path(body.fields.get("source")), asked.path(body.fields.get("destination"))
    if await asked.entry(source) is None:
        raise missing("Source path")
    if not await asked.is_folder(posixpath.dirname(destination)):
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "Destination parent directory not found")
    if await asked.entry(destination) is not None:
        raise Refusal(409, UsageCode.WRONG_ARGUMENT, "Destination already exists")
    await asked.sandbox.files.rename(source, destination)
    return answer({"source": source, "destination": destination})


async def replace(asked: UserRequest) -> Response:
    """Replace texts in a file, one after another."""
    body = await asked.body()
    path, chunks = asked.path(body.fields.get("path")), body.fields.get("replacements")
    if not isinstance(chunks, list) or len(chunks) > 1000 or not all(isinstance(one, dict) for one in chunks):
        raise improper("replacements", "is a list of up to 1000 objects")
    try:
        text = (await _content(asked, path, MAX_TEXT)).decode()
    except UnicodeDecodeError:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, "The file is no text") from None
    seen = 0
    for chunk in chunks:
        seen += len(text)
        if seen > MAX_REPLACED:
            words = f"All replacements of one request may look through {MAX_REPLACED:,} characters. Send fewer at once"
            raise Refusal(413, ServeCode.BODY_TOO_LARGE, words)
        text = await asyncio.to_thread(replaced, text, chunk)
        if len(text) > MAX_TEXT:
            raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"The file would have more than {MAX_TEXT:,} characters")
    written = await asked.sandbox.files.write(path, text.encode(errors="replace"))
    return answer({"path": path, "size": written.size})


def replaced(text: str, chunk: dict[str, Any]) -> str:
    """Return a text with one replacement. Raises `Refusal` if what is to be replaced is not there, or unclear."""
    target, replacement = chunk.get("target"), chunk.get("replacement")
    begin, end = chunk.get("start_line"), chunk.get("end_line")
    if not isinstance(target, str) or not target or not isinstance(replacement, str):
        raise improper("replacements", "have a target and a replacement")
    if not all(one is None or (type(one) is int and one >= 1) for one in (begin, end)):
        raise improper("start_line and end_line", "are numbers from 1 on")
    first, last = (0, len(text)) if begin is None and end is None else lines(text, begin, end)[:2]
    found = text[first:last].count(target)
    if found == 0:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, f"Target string not found: {target[:100]!r}")
    if found > 1 and chunk.get("allow_multiple") is not True:
        words = f"Found {found} occurrences of target string but allow_multiple is false"
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, words)
    if len(text) + found * len(replacement) > MAX_TEXT:
        raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"The file would have more than {MAX_TEXT:,} characters")
    return text[:first] + text[first:last].replace(target, replacement) + text[last:]


async def upload(asked: UserRequest) -> Response:
    """Write the file of a form."""
    limit = FileLimits.of(asked.sandbox.settings.limits).file_bytes
    folder = asked.path(asked.text("directory"))
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
        found = orjson.loads(ended.stdout)  # which takes nothing that an answer could not say
    except (CommandExitException, ValueError):
        found = None
    if not isinstance(found, dict):
        raise Refusal(500, ServeCode.NOT_THERE, "The sandbox did not answer")
    if "wrong" in found:
        raise Refusal(400, UsageCode.WRONG_ARGUMENT, str(found["wrong"])[:500])
    return found


async def grep(asked: UserRequest) -> Response:
    """Look for lines."""
    path, query = asked.path(asked.text("path", ".")), asked.text("query")
    if not await asked.is_folder(path) and not await asked.is_file(path):
        raise missing("Search path")
    found = await _searched(
        asked,
        "grep",
        path=path,
        query=query,
        regex=asked.flag("regex", usual=True),
        case_insensitive=asked.flag("case_insensitive", usual=False),
        include=asked.texts("include"),
        match_per_line=asked.flag("match_per_line", usual=True),
        max_results=asked.number("max_results", 50, 1, 500),
    )
    return answer({"query": query, "path": path, **found})


async def _folder(asked: UserRequest) -> str:
    path = asked.path(asked.text("path", "."))
    if not await asked.is_folder(path):
        raise missing("Search directory")
    return path


def _type(asked: UserRequest) -> str:
    kind = asked.text("type", "any")
    if kind not in {"file", "directory", "any"}:
        raise improper("type", "is file, directory or any")
    return kind


async def glob(asked: UserRequest) -> Response:
    """Look for files and folders by a pattern of their names."""
    path, pattern = await _folder(asked), asked.text("pattern")
    limit = asked.number("max_results", 50, 1, 500)
    more = {"pattern": pattern, "exclude": asked.texts("exclude"), "type": _type(asked), "max_results": limit}
    return answer({"pattern": pattern, "path": path, **await _searched(asked, "glob", path=path, **more)})


async def search(asked: UserRequest) -> Response:
    """Look for files and folders by a part of their names."""
    more = {
        "query": asked.text("query", "").strip(),
        "limit": asked.number("limit", 20, 1, 100),
        "type": _type(asked),
        "show_hidden": asked.flag("show_hidden", usual=False),
    }
    return answer(await _searched(asked, "search", path=await _folder(asked), **more))


async def matches(asked: UserRequest) -> Response:
    """Look for files and folders by their names and contents."""
    query = asked.text("query").strip()
    if not query:
        raise improper("query", "is not blank")
    more = {
        "query": query,
        "offset": asked.number("offset", 0, 0, 10**6),
        "limit": asked.number("limit", 100, 1, 100),
        "show_hidden": asked.flag("show_hidden", usual=False),
    }
    return answer(await _searched(asked, "matches", path=await _folder(asked), **more))


async def archive(asked: UserRequest) -> Response:
    """Send files and folders, packed."""
    given = (await asked.body()).fields.get("paths")
    if not isinstance(given, list) or not 0 < len(given) <= 1000:
        raise improper("paths", "is a list of 1 to 1000 paths")
    paths = [asked.path(one) for one in given]
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
