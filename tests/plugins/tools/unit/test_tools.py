"""Tools of the caller: what can be offered, what a cell sees of it, and how each call ends, also a hostile one.

The client is the one that runs in kernels, over the loopback in place of the pipe.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import socket
import struct
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal, TypedDict, cast

import pydantic
import pytest

from sandbox_kernel import ConfigurationError, Tool, Tools
from sandbox_kernel.plugins.api import Cell, ConnectionService, SessionHandle, Stream
from sandbox_kernel.plugins.network.egress import Egress
from sandbox_kernel.plugins.tools import tool_calls
from sandbox_kernel.plugins.tools import tool_calls as tool_reading
from sandbox_kernel.plugins.tools.inside import sandbox_tools as inside
from sandbox_kernel.plugins.tools.tool_calls import ToolCalls
from sandbox_kernel.plugins.tools.tool_types import MismatchError, UnfitTypeError, checker
from sandbox_kernel.plugins.tools.tools import MODULE, preamble
from sandbox_kernel.session.plugin_parts import Switch
from tests.support.cases import each
from tests.support.gateway import CELL, Heard, proxy
from tests.support.patience import within


class Row(TypedDict):
    title: str
    rank: int


@dataclass
class Query:
    text: str
    limit: int = 3


class Model(pydantic.BaseModel):
    text: str


# --- types -----------------------------------------------------------------------------------------------------------


@each(
    "wanted, value, found",
    [
        (str, "a", "a"),
        (int, 3, 3),
        (float, 3, 3.0),
        (bool, True, True),
        (None, None, None),
        (Any, {"a": [1]}, {"a": [1]}),
        (list, [1, "a"], [1, "a"]),
        (list[int], [1], [1]),
        (dict[str, list[int]], {"a": [1]}, {"a": [1]}),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple[int, ...], [1, 2], (1, 2)),
        (str | None, None, None),
        (int | str, "a", "a"),
        (Literal["a", 1], 1, 1),
        (Row, {"title": "a", "rank": 1}, {"title": "a", "rank": 1}),
        (Query, {"text": "a"}, Query("a")),
        (list[Query], [{"text": "a", "limit": 1}], [Query("a", 1)]),
        (Model, {"text": "a"}, Model(text="a")),
    ],
)
def test_a_value_of_its_type_is_taken(wanted: Any, value: Any, found: Any) -> None:
    assert checker(wanted)(value, "it") == found


@each(
    "wanted, value",
    [
        (str, 1),
        (int, True),
        (int, 1.0),
        (float, "1"),
        (float, 10**400),
        (bool, 1),
        (None, 0),
        (list[int], ["a"]),
        (list[int], {"a": 1}),
        (dict[str, int], {"a": "b"}),
        (tuple[int, str], [1]),
        (str | None, 1),
        (Literal[1], True),
        (Literal["a"], "b"),
        (Row, {"title": "a"}),
        (Row, {"title": "a", "rank": 1, "more": 1}),
        (Query, {"limit": 1}),
        (Query, {"text": "a", "__class__": 1}),
        (Model, {"text": 1}),
    ],
)
def test_a_value_of_another_type_is_told_with_its_place(wanted: Any, value: Any) -> None:
    with pytest.raises(MismatchError, match="it"):
        checker(wanted)(value, "it")


@each("wanted", [bytes, set, object(), dict[int, str], list[bytes], complex, Callable[[], int]])
def test_a_type_that_json_does_not_have_is_unfit(wanted: Any) -> None:
    with pytest.raises(UnfitTypeError):
        checker(wanted)


# --- what can be offered ---------------------------------------------------------------------------------------------


def search(query: str, limit: int = 5, *, kind: Literal["all", "new"] = "all") -> list[Row]:
    """Search the index.

    Newest first.
    """
    return [{"title": f"{query} {number}", "rank": number} for number in range(limit)]


async def lookup(key: str) -> dict[str, int] | None:
    """Look a key up."""
    await asyncio.sleep(0)
    return {key: 1} if key else None


def any_number(*rows: int) -> None: ...
def of_bytes(data: bytes) -> None: ...
def unknown(data: Nowhere) -> None: ...  # type: ignore[name-defined] # noqa: F821
def _hidden() -> None: ...


@each(
    "given",
    [
        "search",
        {"search": search},
        [1],
        [any_number],
        [of_bytes],
        [unknown],
        [_hidden],
        [lambda: None],
        [search, search],
        [Tool.of(search, name=f"t{number}") for number in range(300)],
    ],
    ids=str,
)
def test_what_cannot_be_offered_is_refused_before_there_is_a_sandbox(given: Any) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Tools.given(given)
    assert refused.value.code.code == "tool-unfit"
    assert refused.value.setting == "tools"


def test_documentation_has_a_bound() -> None:
    def long() -> None: ...

    long.__doc__ = "x" * 10_000
    with pytest.raises(ConfigurationError, match="documentation"):
        Tools([long])
    with pytest.raises(ConfigurationError, match="at_once"):
        Tools([search], at_once=0)


def test_a_cell_sees_the_signature_and_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sandbox_tools", cast(Any, None))
    space: dict[str, Any] = {}
    exec(Tools([search, lookup]).line, space)  # noqa: S102 (as a kernel does)
    assert space.keys() == {"__builtins__"}
    module: Any = sys.modules["sandbox_tools"]
    assert str(inspect.signature(module.search)) == (
        "(query: str, limit: int = 5, *, kind: Literal['all', 'new'] = 'all') -> list[Row]"
    )
    assert module.search.__doc__ == inspect.getdoc(search)
    assert inspect.iscoroutinefunction(module.lookup)
    assert not inspect.iscoroutinefunction(module.search)
    assert module.__all__ == ["search", "lookup", "ToolError"]
    with pytest.raises(TypeError, match=r"search.. missing a required argument: 'query'"):
        module.search()
    with pytest.raises(TypeError, match="JSON"):
        module.search({1})


def test_a_schema_of_another_framework_becomes_a_signature() -> None:
    schema = {
        "properties": {"limit": {"type": "integer", "default": 3}, "text": {"anyOf": [{"type": "string"}]}},
        "required": ["text"],
    }
    tool = Tool.described("find", "Find.", schema, dict)
    assert [(one.name, one.type, one.optional) for one in tool.parameters] == [
        ("text", "str", False),
        ("limit", "int", True),
    ]
    with pytest.raises(MismatchError, match="text must be given"):
        tool.arguments({})
    with pytest.raises(MismatchError, match="no parameter"):
        tool.arguments({"text": "a", "more": 1})
    with pytest.raises(ConfigurationError, match="no name of Python"):
        Tool.described("find", "", {"properties": {"a b": {}}}, dict)


# --- calls -----------------------------------------------------------------------------------------------------------


PREAMBLE = preamble(MODULE)


class Host:
    """The host's side, and a client of a kernel's."""

    def __init__(self, service: ToolCalls, told: Heard, port: int, limit: int) -> None:
        self.service, self.told, self.port = service, told, port
        self.client = inside.Client(MODULE, port, limit, 4)

    async def call(self, name: str, **arguments: Any) -> Any:
        return await asyncio.to_thread(self.client.call, name, arguments)

    async def refused(self, name: str, **arguments: Any) -> str:
        with pytest.raises(inside.ToolError) as found:
            await self.call(name, **arguments)
        return str(found.value.code)

    async def said(self, data: bytes, *, preamble: bytes = PREAMBLE) -> bytes:
        """Return what comes of bytes that no client of ours sends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        with contextlib.suppress(ConnectionError):
            writer.write(preamble + data)
            writer.write_eof()
        try:
            async with within(20):
                return await reader.read()
        except ConnectionError:
            return b"reset"
        finally:
            writer.transport.abort()


@contextlib.asynccontextmanager
async def host(
    *tools: Any, others: ConnectionService | None = None, cell: bool = True, **limits: Any
) -> AsyncIterator[Host]:
    told, offered = Heard(), Tools(tools, **limits)
    service = ToolCalls(offered, cast(SessionHandle, told))
    if cell:
        service.cell_sent(CELL)
    switch = Switch({service.preamble: service}, others, 20.0)
    async with proxy(cast(Egress, switch)) as port:
        one = Host(service, told, port, offered.limit_bytes)
        try:
            yield one
        finally:
            for connection in one.client.idle:
                connection.close()
            await service.close()


def framed(value: object) -> bytes:
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return struct.pack("!I", len(data)) + data


async def test_functions_with_and_without_await_are_called_and_written_down() -> None:
    async with host(search, lookup) as one:
        assert await one.call("search", query="a", limit=1) == [{"title": "a 0", "rank": 0}]
        assert await one.call("lookup", key="k") == {"k": 1}
        assert await one.call("lookup", key="") is None
    assert [code for code, _, _ in one.told.calls] == ["tool-called"] * 3
    _, bounded, fields = one.told.calls[0]
    assert bounded
    assert fields["tool"] == "search"
    assert fields["cell"] == CELL.id
    assert len(one.client.idle) == 1  # one connection for all


async def test_many_calls_at_once() -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(3)

    def work(number: int) -> int:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        together.wait(20)
        with lock:
            at_once -= 1
        return number

    async with host(work, at_once=3) as one:
        assert await asyncio.gather(*(one.call("work", number=n) for n in range(12))) == list(range(12))
    assert most == 3


def raises() -> None:
    raise ValueError("no such \N{SNOWMAN}")


def no_json() -> Any:
    return {1, 2}


def not_a_number() -> Any:
    return float("nan")


def another_type() -> int:
    return cast(int, "three")


def deep() -> Any:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def large() -> str:
    return "x" * 5000


def leaves() -> None:
    raise SystemExit(3)


async def interrupted() -> None:
    raise KeyboardInterrupt


async def cancelled() -> None:
    raise asyncio.CancelledError


async def hangs() -> None:
    await asyncio.Event().wait()


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


def odd() -> None:
    raise OddError


@each(
    "name, arguments, code",
    [
        ("raises", {}, "tool-failed"),
        ("leaves", {}, "tool-failed"),
        ("odd", {}, "tool-failed"),
        ("interrupted", {}, "tool-failed"),
        ("cancelled", {}, "tool-failed"),
        ("no_json", {}, "tool-result-wrong"),
        ("not_a_number", {}, "tool-result-wrong"),
        ("another_type", {}, "tool-result-wrong"),
        ("deep", {}, "tool-result-wrong"),
        ("large", {}, "tool-result-large"),
        ("hangs", {}, "tool-timeout"),
        ("search", {"query": 1}, "tool-arguments-wrong"),
        ("search", {"query": "a", "more": 1}, "tool-arguments-wrong"),
        ("search", {}, "tool-arguments-wrong"),
        ("search", {"query": "x" * 5000}, "tool-arguments-large"),
        ("search\0", {}, "tool-unknown"),
        ("__init__", {}, "tool-unknown"),
    ],
)
async def test_each_way_in_which_a_call_fails_has_its_code(name: str, arguments: dict[str, Any], code: str) -> None:
    offered = [search, raises, leaves, odd, interrupted, cancelled, no_json, not_a_number, another_type, deep, large]
    async with host(*offered, Tool.of(hangs, seconds=0.05), limit_bytes=4096) as one:
        assert await one.refused(name, **arguments) == code
        assert await one.call("search", query="a", limit=0) == []


async def test_an_exception_crosses_as_a_name_and_a_text() -> None:
    async with host(raises) as one:
        with pytest.raises(inside.ToolError, match="the tool raises raised ValueError: no such") as found:
            await one.call("raises")
    assert (found.value.name, found.value.text) == ("ValueError", "no such \N{SNOWMAN}")


async def test_the_clock_stops_while_the_host_works_if_the_caller_says_so() -> None:
    async with host(Tool.of(lookup, stops_clock=True), search) as one:
        await one.call("search", query="a")
        assert one.told.held == []
        await one.call("lookup", key="a")
    assert one.told.held == [(CELL.id, True), (CELL.id, False)]


# --- hostile calls ---------------------------------------------------------------------------------------------------


@each(
    "data",
    [
        b"",
        b"\0\0",
        framed(b""),
        framed(b"{"),
        framed(b"\xff\xfe"),
        framed(b"[" * 4000),
        framed([]),
        framed({"tool": "search"}),
        framed({"tool": ["search"], "arguments": {}}),
        framed({"tool": "search", "arguments": []}),
        framed({"tool": "search", "arguments": {"query": "a"}, "cell": "other"}),
        framed(b'{"tool": "search", "arguments": {"query": NaN}}'),
        framed(b'{"tool": "search", "arguments": {"query": "\\ud800"}}'),
        framed({"tool": "sea" * 1000, "arguments": {}}),
        struct.pack("!I", 1 << 30) + b"x" * 100_000,
        struct.pack("!I", 0xFFFFFFFF),
        struct.pack("!I", 100) + b"x",
    ],
    ids=repr,
)
async def test_what_is_no_call_reaches_no_tool_and_ends_with_a_reason(data: bytes) -> None:
    called: list[str] = []

    def search(query: str) -> None:
        called.append(query)

    async with host(search, limit_bytes=4096) as one:
        answer = await one.said(data)
        assert called == []
        if len(data) >= 4:
            (size,) = struct.unpack("!I", answer[:4])
            assert json.loads(answer[4 : 4 + size])["error"]["code"] in [code for code, _, _ in one.told.calls]
        assert await one.call("search", query="a") is None


async def test_an_argument_of_a_gibibyte_is_refused_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_reading.CallReader, "body", None)
    async with host(search) as one:
        answer = await one.said(struct.pack("!I", 1 << 30))
        assert b"tool-arguments-large" in answer


async def test_control_a_call_within_the_limit_is_read() -> None:
    async with host(search, limit_bytes=1 << 20) as one:
        assert len(await one.call("search", query="x" * 100_000, limit=1)) == 1


async def test_a_cell_has_a_number_of_calls_and_the_next_one_too() -> None:
    async with host(search, calls=3) as one:
        outcomes = [one.call("search", query="a", limit=0) for _ in range(3)]
        assert await asyncio.gather(*outcomes) == [[], [], []]
        assert {await one.refused("search", query="a") for _ in range(5)} == {"tool-calls"}
        one.service.cell_ended(CELL)
        one.service.cell_sent(Cell("cell-2"))
        assert await one.call("search", query="a", limit=0) == []
    assert [bounded for code, bounded, _ in one.told.calls if code == "tool-calls"] == [False] * 5
    assert len(one.told.told) == 1


async def test_without_a_cell_nothing_is_called() -> None:
    async with host(search, cell=False) as one:
        assert await one.refused("search", query="a") == "tool-without-cell"
        one.service.cell_sent(CELL)
        assert await one.call("search", query="a", limit=0) == []
        one.service.cell_ended(CELL)
        assert await one.refused("search", query="a") == "tool-without-cell"


def waiting() -> tuple[Callable[[], Awaitable[None]], asyncio.Event, asyncio.Event]:
    """Return a tool that never answers, and what tells that it has begun and that it was stopped."""
    begun, stopped = asyncio.Event(), asyncio.Event()

    async def waits() -> None:
        """Wait."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    return waits, begun, stopped


async def test_a_call_ends_with_its_cell() -> None:
    waits, begun, stopped = waiting()
    async with host(waits) as one:
        call = asyncio.create_task(one.refused("waits"))
        async with within(20):
            await begun.wait()
            one.service.cell_ended(CELL)
            assert await call == "tool-stopped"
            await stopped.wait()


async def test_a_call_ends_with_its_connection() -> None:
    waits, begun, stopped = waiting()
    async with host(waits) as one:
        with socket.create_connection(("127.0.0.1", one.port)) as connection:
            connection.sendall(PREAMBLE + framed({"tool": "waits", "arguments": {}}))
            async with within(20):
                await begun.wait()
        async with within(20):
            await stopped.wait()


async def test_a_tool_that_hangs_holds_its_turn_and_others_are_told() -> None:
    release = threading.Event()

    def hangs() -> None:
        release.wait(60)

    async with host(hangs, search, at_once=1, seconds=0.1) as one:
        assert await one.refused("hangs") == "tool-timeout"
        assert await one.refused("search", query="a") == "tools-busy"
        release.set()
        async with within(20):
            assert await one.call("search", query="a", limit=0) == []


@pytest.mark.slow
async def test_who_sends_a_call_slowly_or_reads_no_answer_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_reading, "READ_SECONDS", 0.05)
    monkeypatch.setattr(tool_calls, "READ_SECONDS", 0.05)

    def much() -> str:
        return "x" * (60 << 20)

    async with host(search, much, limit_bytes=64 << 20, at_once=1) as one:
        with socket.create_connection(("127.0.0.1", one.port)) as slow:
            slow.sendall(PREAMBLE + struct.pack("!I", 50))
            slow.settimeout(20)
            assert b"tool-call-improper" in await asyncio.to_thread(slow.recv, 10_000)
        with socket.create_connection(("127.0.0.1", one.port)) as deaf:
            deaf.sendall(PREAMBLE + framed({"tool": "much", "arguments": {}}))
            assert await one.call("search", query="a", limit=0) == []


async def test_bytes_that_are_for_the_network_get_there_whole() -> None:
    got: list[bytes] = []

    class Others:
        async def serve(self, stream: Stream, cell: Cell) -> None:
            while data := await stream.receive():
                got.append(data)
            await stream.send(b"HTTP/1.1 403 No\r\n\r\n")
            await stream.finish()

    async with host(search, others=Others()) as one:
        assert (await one.said(b"CONNECT a:443", preamble=b"")).startswith(b"HTTP/1.1 403")
        assert (await one.said(b"\0sandbox-toolz", preamble=b"")).startswith(b"HTTP/1.1 403")
        assert await one.call("search", query="a", limit=0) == []
    assert got == [b"CONNECT a:443", b"\0sandbox-toolz"]
    async with host(search) as one:
        assert await one.said(b"CONNECT a:443", preamble=b"") in (b"", b"reset")


def test_the_two_ends_begin_with_the_same_bytes() -> None:
    calls = ToolCalls(Tools([]), cast(SessionHandle, Heard()))
    assert inside.Client(MODULE, 1, 1, 1).preamble == calls.preamble == PREAMBLE
