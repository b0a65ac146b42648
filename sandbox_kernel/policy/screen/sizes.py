"""How large and how often: what asks for more memory, disk or time than a session has. Constants only are counted."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Protocol

from ...core.screen_codes import ScreenCode
from .desk import Desk
from .fold import TooMuchError
from .value import MISSING, Value

HUGE_BYTES = 2e9
LARGE_BYTES = 8e8
HUGE_BITS = 3e6
HUGE_TIMES = 1e9
LONG_TEXT = 1_000_000
LONG_SECONDS = 3600.0
MANY_STARTS, MANY_REQUESTS = 200, 1000
_FILLED = re.compile(
    r"numpy\.(zeros|ones|empty|full|random\.(rand|randn|random|random_sample|randint|uniform|normal|standard_normal)|eye|identity)"
)
_TORCH = re.compile(r"(torch|jax\.numpy|cupy|tensorflow)\.(zeros|ones|empty|rand|randn|full|eye)")
_STARTS = re.compile(
    r"(threading\.Thread|_thread\.start_new_thread|multiprocessing\.Process|os\.fork|subprocess\.Popen|multiprocessing\.Pool|"
    r"threading\.Thread\(\)\.start|multiprocessing\.Process\(\)\.start|asyncio\.create_task|os\.system|subprocess\.run|os\.forkpty)"
)
_REQUESTS = re.compile(
    r"(requests\.|urllib\.request\.urlopen|socket\.socket\(\)\.(send|sendto|connect)|httpx\.|scapy\.all\.send)"
)
GROWS = frozenset({"append", "extend", "add", "update", "insert", "appendleft"})


def huge(desk: Desk, error: TooMuchError, left: object, right: object, line: int) -> None:
    """Note a product or a power that is too large to be computed here."""
    if error.what == "bits":
        if error.size >= HUGE_BITS:
            desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"{left!r}, {right!r}"[:80])
        return
    one = 1.0 if isinstance(left, str | bytes) or isinstance(right, str | bytes) else 8.0
    sized(desk, error.size, one, line)
    if one == 1.0 and error.size >= LONG_TEXT:
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"a text of {error.size:.0f} characters")


def sized(desk: Desk, items: float, each: float, line: int) -> None:
    """Note `items` of `each` bytes, if that is too much."""
    if items * each >= HUGE_BYTES:
        desk.notes.add(ScreenCode.EXHAUST_MEMORY, line, f"{items:.3g} items")
    elif items * each >= LARGE_BYTES:
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"{items:.3g} items")


def is_huge(value: Value) -> bool:
    """Return whether something is a number of items that no session has room for."""
    return isinstance(value.const, int | float) and value.const >= HUGE_BYTES


def count_of(items: Value) -> float:
    """Return how many items something has to loop over, 1 if that is not known."""
    if items.known and isinstance(items.const, list | tuple | str | bytes | dict):
        return float(max(len(items.const), 1))
    if items.ref is not None and items.ref.startswith("range:"):
        return float(items.ref[6:])
    return math.inf if items.ref in ("itertools.count()", "itertools.cycle()", "endless") else 1.0


def ranged(args: Sequence[Value]) -> float | None:
    """Return how many numbers a range has, None if it is not known."""
    known = [arg.const for arg in args]
    if not known or any(not isinstance(one, int | float) or one is MISSING for one in known):
        return None
    low, high, step = (0, known[0], 1) if len(known) == 1 else (known[0], known[1], known[2] if len(known) > 2 else 1)
    return max(0.0, (float(high) - float(low)) / float(step or 1)) if abs(float(high)) < 1e300 else math.inf


def _shape(args: Sequence[Value], keywords: dict[str, Value], name: str) -> float | None:
    shape = keywords.get("size") or keywords.get("shape")
    if shape is None and args:
        spread = name.endswith((".rand", ".randn")) or name.startswith(("torch", "jax"))
        if name.endswith(("randint", "uniform", "normal")):
            shape = args[2] if len(args) > 2 else None
        else:
            shape = Value(const=[arg.const for arg in args if arg.known]) if spread else args[0]
    if shape is None or not shape.known:
        return None
    sides = shape.const if isinstance(shape.const, list | tuple) else [shape.const]
    if len(sides) == 1 and isinstance(sides[0], list | tuple):
        sides = sides[0]
    if name.endswith((".eye", ".identity")) and len(sides) == 1:
        sides = [*sides, *sides]
    found = 1.0
    for side in sides:
        if not isinstance(side, int | float):
            return None
        found *= float(side)
    return found


class Given(Protocol):
    """A call, as far as it matters here."""

    @property
    def method(self) -> str | None: ...
    @property
    def args(self) -> list[Value]: ...
    @property
    def keywords(self) -> dict[str, Value]: ...
    @property
    def line(self) -> int: ...


def look(desk: Desk, name: str, call: Given) -> None:
    """Note a call that uses too much, by what it is given and by how often it runs."""
    method, args, keywords, line = call.method, call.args, call.keywords, call.line
    first = args[0].const if args and args[0].known else None
    number = float(first) if isinstance(first, int | float) and not isinstance(first, bool) else None
    times = desk.times
    if (_FILLED.fullmatch(name) or _TORCH.fullmatch(name)) and (items := _shape(args, keywords, name)) is not None:
        sized(desk, items, 8.0, line)
    elif name in ("numpy.arange", "numpy.linspace") and number is not None:
        sized(desk, number if name.endswith("arange") else 0.0, 8.0, line)
    elif (
        name
        in (
            "builtins.bytearray",
            "builtins.bytes",
            "os.urandom",
            "secrets.token_bytes",
            "ctypes.create_string_buffer",
            "random.randbytes",
            "mmap.mmap",
        )
        and number is not None
    ):
        sized(
            desk,
            abs(number)
            if name != "mmap.mmap"
            else float(args[1].const or 0)
            if len(args) > 1 and isinstance(args[1].const, int)
            else 0,
            1.0,
            line,
        )
    elif (
        name in ("builtins.list", "builtins.set", "builtins.tuple", "builtins.sum", "builtins.sorted", "builtins.max")
        and args
    ):
        _collected(desk, name, count_of(args[0]), line)
    elif name == "math.factorial" and number is not None and number >= 100_000:
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"factorial({number:g})")
    elif name in ("itertools.product", "itertools.permutations", "itertools.combinations"):
        _combined(desk, name, args, keywords, line)
    elif name in ("time.sleep", "asyncio.sleep") and number is not None and number * min(times, 1e6) >= LONG_SECONDS:
        desk.notes.add(ScreenCode.EXHAUST_WAIT, line, f"{number:g} s, {times:g} times")
    elif (
        name == "builtins.pow"
        and len(args) == 2
        and all(isinstance(arg.const, int) for arg in args)
        and float(args[0].const.bit_length()) * args[1].const >= HUGE_BITS
    ):
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, "a huge power")
    elif name == "sys.setrecursionlimit" and number is not None and number > 50_000:
        desk.notes.add(ScreenCode.EXHAUST_LIMITS, line, f"{number:g}")
    if name.endswith("()") is False and times >= MANY_STARTS and _STARTS.fullmatch(name):
        desk.notes.add(ScreenCode.EXHAUST_FORK, line, f"{name}, {times:g} times")
    if times >= MANY_REQUESTS and _REQUESTS.match(name):
        desk.notes.add(ScreenCode.NETWORK_FLOOD, line, f"{name}, {times:g} times")
    if method is not None:
        _grown(desk, name, call, number, times)


def _collected(desk: Desk, name: str, items: float, line: int) -> None:
    if name in ("builtins.list", "builtins.set", "builtins.tuple", "builtins.sorted"):
        sized(desk, items, 16.0, line)
    elif items >= HUGE_TIMES:
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"{items:g} items")


def _combined(desk: Desk, name: str, args: Sequence[Value], keywords: dict[str, Value], line: int) -> None:
    sides = [count_of(arg) for arg in args]
    repeat = keywords["repeat"].const if "repeat" in keywords else 1
    if name.endswith("product"):
        items = math.prod(sides) ** min(repeat if isinstance(repeat, int) else 1, 60) if sides else 1.0
    elif name.endswith("permutations"):
        items = math.prod(range(1, int(min(sides[0], 30)) + 1)) if sides and len(args) == 1 else 1.0
    else:
        items = 1.0
    if items >= HUGE_TIMES:
        desk.notes.add(ScreenCode.EXHAUST_PROCESSOR, line, f"{items:.3g} combinations")


def _grown(desk: Desk, name: str, call: Given, number: float | None, times: float) -> None:
    method, args, line = call.method, call.args, call.line
    shown = args[0].shown if args else None
    if method == "write" and args:
        size = float(len(shown)) if shown is not None else 1.0
        if args[0].ref is not None and args[0].ref.startswith("sized:"):
            size = float(args[0].ref[6:])
        if size * times >= HUGE_BYTES / 2:
            desk.notes.add(ScreenCode.EXHAUST_DISK, line, f"{size * times:.3g} bytes")
    elif method in GROWS and times >= 1e9 / 8:
        desk.notes.add(ScreenCode.EXHAUST_MEMORY, line, f"{times:g} times")
    elif method in ("seek", "truncate") and number is not None and number >= HUGE_BYTES:
        desk.notes.add(ScreenCode.EXHAUST_DISK, line, f"{number:.3g} bytes")
    elif method == "start" and times >= MANY_STARTS:
        desk.notes.add(ScreenCode.EXHAUST_FORK, line, f"{name or '.start()'}, {times:g} times")
