"""The host's side of calls of tools.

Whatever a cell sends, a tool gets what its signature says or is not called, and each call is answered with JSON, or its
connection ends.

An input is what comes on one connection behind its first bytes; the first of it says how the rest is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
from collections.abc import Iterator
from typing import Any, Literal, TypedDict, cast

from sandbox_kernel.core.events import SessionEvent, ToolCalled, ToolRefused
from sandbox_kernel.plugins.api import Cell, Stream
from sandbox_kernel.plugins.tools.codes import ToolCode
from sandbox_kernel.plugins.tools.tool_calls import ToolCalls
from sandbox_kernel.plugins.tools.tools import MODULE, Tools, preamble
from sandbox_kernel.session.plugin_parts import Switch
from tests.support.gateway import Pieces

from ..judge import require

CODES = {one.code for one in ToolCode}
CELL = Cell("cell-1")
LIMIT = 256

_loop: asyncio.AbstractEventLoop
_tools: Tools
_wrong: list[object] = []


def _wanted(holds: bool, what: object) -> None:
    """Remember what a tool should not have got; raised in it, it would be an answer."""
    if not holds:
        _wrong.append(what)


class Row(TypedDict):
    name: str
    rank: int


async def search(query: str, limit: int = 5, kind: Literal["all", "new"] = "all") -> list[Row]:
    """Search."""
    _wanted(type(query) is str and type(limit) is int and kind in {"all", "new"}, (query, limit, kind))
    return [{"name": query, "rank": limit}]


async def store(rows: list[Row], share: float | None = None) -> dict[str, Any]:
    """Store rows."""
    _wanted(type(rows) is list and (share is None or type(share) is float), (rows, share))
    for row in rows:
        _wanted(row.keys() == {"name", "rank"} and type(row["name"]) is str and type(row["rank"]) is int, row)
    return {"rows": rows, "share": share}


class Silent:
    """A `SessionHandle` of which only the number of its lines counts."""

    id = "session"

    def __init__(self) -> None:
        self.bounded = 0

    def hold_clock(self, cell: str, *, held: bool) -> None: ...

    def emit(self, event: SessionEvent) -> None:
        assert isinstance(event, ToolCalled)  # noqa: S101 (for the type: it tells of nothing else)
        require(event.tool in (None, "search", "store"), event)
        require(len(event.reason) < 4000, event.reason)
        self.bounded += not isinstance(event, ToolRefused)

    def tell(self, text: str) -> None:
        require(len(text) < 4000, text)


@contextlib.contextmanager
def prepared() -> Iterator[None]:
    """Have one loop for all inputs."""
    global _loop, _tools
    _loop, _tools = asyncio.new_event_loop(), Tools([search, store], calls=3, limit_bytes=LIMIT)
    try:
        yield
    finally:
        _loop.close()


def run(data: bytes) -> None:
    """The first byte says how the rest is cut."""
    step, raw = (data[0] if data else 0) or 1 << 16, preamble(MODULE) + data[1:]
    pieces = Pieces(*(raw[at : at + step] for at in range(0, len(raw), step)))
    _loop.run_until_complete(_serve(pieces))


async def _serve(pieces: Pieces) -> None:
    told = Silent()
    calls = ToolCalls(_tools, told)
    calls.cell_sent(CELL)
    await Switch({calls.preamble: calls}, None, 60.0).serve(cast(Stream, pieces), CELL)
    await calls.close()
    wrong = list(_wrong)
    _wrong.clear()
    require(not wrong, wrong)
    require(told.bounded <= 3, told.bounded)
    answers = pieces.got
    while answers:
        (size,) = struct.unpack("!I", answers[:4])
        answer, answers = json.loads(answers[4 : 4 + size]), answers[4 + size :]
        require(size <= 4 * LIMIT + 4000, size)
        require(answer.keys() == {"result"} or answer["error"]["code"] in CODES, answer)


def _call(tool: object, arguments: object) -> bytes:
    data = json.dumps({"tool": tool, "arguments": arguments}).encode()
    return struct.pack("!I", len(data)) + data


def seeds() -> Iterator[bytes]:
    good = _call("search", {"query": "a", "limit": 2, "kind": "new"})
    rows = _call("store", {"rows": [{"name": "a", "rank": 1}], "share": 0.5})
    for raw in (
        good,
        good + rows,
        good * 5,
        _call("search", {"query": 1}),
        _call("search", {"query": "a", "limit": True}),
        _call("search", {"query": "a", "kind": "old"}),
        _call("search", {"query": "x" * LIMIT}),
        _call("store", {"rows": [{"name": "a"}]}),
        _call("store", {"rows": [{"name": "a", "rank": 1, "__class__": "x"}]}),
        _call("store", {"rows": {}, "share": 1}),
        _call("store", {"rows": [], "share": None}),
        _call("__class__", {}),
        _call(["search"], {"query": "a"}),
        struct.pack("!I", 1 << 30) + b"x" * 50,
        struct.pack("!I", 40) + b"{",
        struct.pack("!I", 2) + b"{}" + good,
    ):
        yield b"\0" + raw
        yield b"\x05" + raw
