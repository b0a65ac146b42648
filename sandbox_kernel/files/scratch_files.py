"""Single files of scratch: written, read, listed and removed by asking the agent for one chunk after another.

The agent is not believed: names are checked, a file is exactly as long as it was said to be, and of a listing only so
many entries are looked at. `Ask` is what a session offers: one request to the agent, in bounded time.

Public: plugins may import it.
"""

from __future__ import annotations

import asyncio
import io
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, suppress
from typing import Any, BinaryIO, NamedTuple, TypeVar

from ..core.codes import FileCode
from ..core.errors import FileNotThere, FileRefused, SandboxError
from .file_rules import CHUNK_BYTES, FileLimits, check_place, check_size, safe_name, safe_place

Ask = Callable[..., Awaitable[tuple[dict[str, Any], bytes]]]
"""`await ask(op, data=b"", **fields)` returns the agent's reply and its data. Raises `SandboxError`."""

AHEAD = 4
"""Chunks of one file that are on their way at a time: the pipe is never idle, and neither end holds more of it."""
MAX_LISTED = 20_000
"""Entries of scratch that one listing looks at."""
DISCARD_SECONDS = 2.0
_PARTIAL = ".upload-"
"""How the agent names a file that is still being written, before its token."""

_REASONS = {
    "link": FileCode.LINK_INSIDE,
    "is_folder": FileCode.IS_FOLDER,
    "not_folder": FileCode.NOT_FOLDER,
    "not_empty": FileCode.NOT_EMPTY,
    "denied": FileCode.DENIED,
    "bad_name": FileCode.NAME_NOT_HELD,
    "endless": FileCode.ENDLESS,
    "elsewhere": FileCode.OTHER_FILE_SYSTEM,
}


T = TypeVar("T")


class Stamp(NamedTuple):
    """What tells one state of a file in scratch from another, as far as the sandbox says."""

    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int

    @property
    def is_made_anew(self) -> bool:
        """Whether each read finds another state: it is a file of the system's that has no content of its own."""
        return self.inode == 0

    @classmethod
    def parse(cls, value: object) -> Stamp:
        """Check what came from the sandbox. Raises `FileRefused`."""
        if not isinstance(value, list) or len(value) != 4:
            raise FileRefused(FileCode.NO_DESCRIPTION)
        if not all(type(number) is int and 0 <= number < 1 << 64 for number in value):
            raise FileRefused(FileCode.NO_DESCRIPTION)
        return cls(*value)


class ScratchFile(NamedTuple):
    """A regular file of scratch."""

    path: str
    stamp: Stamp


async def write(ask: Ask, path: str, data: bytes | BinaryIO, limit: int = FileLimits().file_bytes) -> int:
    """Write a file of scratch as a whole and return its size. Raises `FileRefused`; then there is no part of it."""
    check_place(path)
    size = len(data) if isinstance(data, bytes) else None
    check_size(size or 0, limit)
    file = io.BytesIO(data) if isinstance(data, bytes) else data

    done = 0

    async def chunks() -> AsyncIterator[bytes]:
        nonlocal done
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            done += len(chunk)
            check_size(done, limit)
            yield chunk

    await send(ask, path, chunks(), size)
    return done


async def stream(
    ask: Ask, path: str, limit: int, stamp: Stamp | None = None, *, begin: int = 0, end: int | None = None
) -> AsyncGenerator[bytes, None]:
    """Yield a file of scratch in chunks, from the byte `begin` up to the byte `end` if they are given.

    Raises `FileRefused` if it is not, or does not stay, what `stamp` says.
    """
    first, data = await chunk(ask, path, begin, CHUNK_BYTES if end is None else min(end - begin, CHUNK_BYTES), limit)
    if stamp is None or first.is_made_anew:
        stamp = first
    if first != stamp:
        raise FileRefused(FileCode.CHANGED.note(done="copied"))
    last = stamp.size if end is None else min(end, stamp.size)
    yield data

    async def rest() -> AsyncIterator[Coroutine[Any, Any, tuple[Stamp, bytes]]]:
        for offset in range(begin + len(data), last, CHUNK_BYTES):
            yield chunk(ask, path, offset, min(CHUNK_BYTES, last - offset), limit)

    async with aclosing(in_turn(rest())) as chunks:
        async for seen, data in chunks:
            if seen != stamp:
                raise FileRefused(FileCode.CHANGED.note(done="copied"))
            yield data


async def in_turn(work: AsyncIterator[Coroutine[Any, Any, T]]) -> AsyncGenerator[T, None]:
    """Yield the results of `work` in its order, with `AHEAD` of them under way at a time.

    Raises what the first that fails does; those after it are cancelled, and have ended, before this is left.
    """
    under_way: deque[asyncio.Task[T]] = deque()
    try:
        async for one in work:
            task = asyncio.create_task(one)
            under_way.append(task)
            if len(under_way) == AHEAD:
                yield await under_way[0]
                under_way.popleft()
        while under_way:
            yield await under_way[0]
            under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


async def chunk(ask: Ask, path: str, offset: int, size: int, limit: int) -> tuple[Stamp, bytes]:
    """Return the state of a file and up to `size` bytes of it. Raises `FileRefused`, also if it is over `limit`."""
    check_place(path)
    reply, data = await call(ask, "file.read", path=path, offset=offset, size=size)
    length = len(data)
    if length > size:  # as above
        data = b""
    stamp = Stamp.parse(reply.get("stamp"))
    check_size(stamp.size, limit)
    # A short answer would be honest only for a file that changed, and could go on for ever.
    if length != max(0, min(size, stamp.size - offset)):
        raise FileRefused(FileCode.CHANGED.note(done="copied"))
    return stamp, data


async def scan(ask: Ask, limit: int = MAX_LISTED, elsewhere: str = "") -> tuple[list[ScratchFile], bool]:
    """Return the regular files of scratch, or of a folder elsewhere, in their paths' order, and whether these are all.

    A name with characters that are refused is its safe one.
    """
    fields: dict[str, Any] = {"path": elsewhere} if elsewhere else {}
    reply, _ = await call(ask, "file.list", limit=limit, **fields)
    files, proper = await asyncio.to_thread(
        _proper, reply, limit, elsewhere
    )  # a long listing is not for the loop's thread
    counts = reply.get("counts")
    hidden = isinstance(counts, dict) and not counts.keys().isdisjoint(("too deep", "unreadable"))
    return files, proper and not hidden and reply.get("complete") is True


def _proper(reply: dict[str, Any], limit: int, elsewhere: str) -> tuple[list[ScratchFile], bool]:
    files, complete = {}, True
    for path, value in entries(reply, limit):
        try:
            files[safe_place(path) if elsewhere else safe_name(path)] = Stamp.parse(value)
        except FileRefused:
            complete = False
    return sorted(ScratchFile(*item) for item in files.items()), complete


async def make_folder(ask: Ask, path: str) -> None:
    """Make a folder of scratch, with those above it. Raises `FileRefused`."""
    check_place(path)
    await call(ask, "file.mkdir", path=path)


async def remove(ask: Ask, path: str) -> None:
    """Remove a file, a link or an empty folder of scratch. Raises `FileRefused`."""
    check_place(path)
    await call(ask, "file.remove", path=path)


async def send(ask: Ask, path: str, chunks: AsyncIterator[bytes], size: int | None) -> Stamp:
    """Write a file under another name and give it its own with the last chunk; leave nothing of it otherwise."""
    stamp: Stamp | None = None
    async with aclosing(sending(ask, path, chunks, size)) as steps:
        async for _, last in steps:
            stamp = last
    assert stamp is not None  # noqa: S101 (the last step has it)
    return stamp


async def sending(
    ask: Ask, path: str, chunks: AsyncIterator[bytes], size: int | None, *, token: str = "", begin: int = 0
) -> AsyncGenerator[tuple[int, Stamp | None], None]:
    """Do what `send` does, and yield how many bytes the sandbox has taken; with the last ones, the file's state.

    The agent takes chunks in the order in which they were sent, and one that fails removes the file: none after it is
    taken, the last one least of all. A part of it that lies there by the name `token` goes on at `begin`.
    """
    token, offset = token or secrets.token_hex(8), begin
    sizes: deque[int] = deque()

    def put(data: bytes, *, final: bool) -> Coroutine[Any, Any, tuple[dict[str, Any], bytes]]:
        nonlocal offset
        start, offset = offset, offset + len(data)
        sizes.append(offset)
        return call(ask, "file.write", data, path=path, token=token, offset=start, size=size, final=final)

    async def writes() -> AsyncIterator[Coroutine[Any, Any, tuple[dict[str, Any], bytes]]]:
        held = b""
        async for following in chunks:
            if held:
                yield put(held, final=False)
            held = following
        yield put(held, final=True)

    reply: dict[str, Any] = {}
    try:
        async with aclosing(in_turn(writes())) as replies:
            async for answer, _ in replies:
                reply = answer
                yield sizes.popleft(), None
        yield offset, Stamp.parse(reply.get("stamp"))
    except BaseException:
        if offset:
            await discard(ask, path, token)
        raise


async def begun(ask: Ask, path: str, token: str) -> int:
    """Return how many bytes there are of a file that was being sent by that name; none if it was never begun."""
    folder = path.rpartition("/")[0] + "/" if path.startswith("/") else ""
    reply, _ = await ask("file.read", path=f"{folder}{_PARTIAL}{token}", offset=0, size=0)
    if not isinstance(reply, dict) or reply.get("ok") is not True:
        return 0
    return Stamp.parse(reply.get("stamp")).size


async def discard(ask: Ask, path: str, token: str) -> None:
    """Remove the part of a file that was being sent, if the sandbox can still be asked."""
    with suppress(SandboxError, TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            await ask("file.discard", path=path, token=token)


async def call(ask: Ask, op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
    """Ask, and turn a refusal into ours: the sandbox chooses among our sentences, it does not write them."""
    reply, content = await ask(op, data=data, **fields)
    proper = isinstance(reply, dict) and isinstance(content, bytes)
    if proper and reply.get("ok") is True:
        return reply, content
    del content  # an error may wait for its turn, and must not hold what the sandbox sent
    if not proper:
        raise FileRefused(FileCode.NO_ANSWER)
    error = reply.get("error")
    if error == "no_space":
        if fields.get("path", "").startswith("/"):
            raise FileRefused(FileCode.OTHER_FOLDER_FULL, setting="tmp_size or shm_size")
        raise FileRefused(FileCode.SCRATCH_FULL, setting="scratch_size")
    if error == "missing":
        raise FileNotThere(FileCode.MISSING)
    raise FileRefused(_REASONS.get(error, FileCode.NOT_DONE) if isinstance(error, str) else FileCode.NO_ANSWER)


def entries(reply: dict[str, Any], limit: int = MAX_LISTED) -> Iterator[tuple[str, object]]:
    """Yield path and the rest of each entry of a listing, of at most `limit` of them."""
    files = reply.get("files")
    for entry in files[:limit] if isinstance(files, list) else ():
        match entry:
            case [str(path), *stamp]:
                yield path, stamp
