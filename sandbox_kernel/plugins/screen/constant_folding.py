"""What is known of an expression: a dotted name or a constant; and constant texts that are composed or decoded.

Pure and bounded. Constants are texts, numbers, and flat lists of those; nothing of a cell is run.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import operator
import posixpath
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple


def words(text: str) -> tuple[str, ...]:
    """Return what stands in a text, split at spaces."""
    return tuple(text.split())


class _Missing:
    __slots__ = ()

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final[Any] = _Missing()
UNKNOWN_PART = "{}"
"""Stands in a text for a part that is not known."""
MAX_TEXT = 1 << 16
"""Characters or bytes of a constant that is composed or decoded here."""
MAX_ITEMS = 1 << 12
"""Items of a list that is kept as a constant."""
_WIDE = re.compile(r"\d{4,}|__|\*")
"""In a template: a width that makes a huge text, or a way into objects."""


class Value(NamedTuple):
    """What is known of an expression; all of it may be nothing."""

    ref: str | None = None
    """The dotted name of what it is, with `()` behind what was called: `socket.socket()`."""
    const: Any = MISSING
    text: str | None = None
    """A text of which parts are not known, each of them `{}`."""
    built: bool = False
    """Whether the constant was composed or decoded, and does not stand in the code as it is."""

    @property
    def known(self) -> bool:
        return self.const is not MISSING

    @property
    def shown(self) -> str | None:
        """The text that it is, as far as that is known."""
        if isinstance(self.const, str):
            return self.const
        if isinstance(self.const, bytes):
            return self.const.decode("latin-1")
        return self.text


UNKNOWN = Value()


def size(value: Any) -> int:
    """Return the characters and items of a constant."""
    if isinstance(value, str | bytes):
        return len(value)
    return sum(map(size, value)) + len(value) if isinstance(value, list) else 1


def fits(value: Any) -> bool:
    """Return whether a constant is of a kind and a size that is kept."""
    if isinstance(value, list):
        return (
            len(value) <= MAX_ITEMS
            and all(isinstance(one, str | bytes | int | None) and size(one) <= MAX_TEXT for one in value)
            and size(value) <= MAX_TEXT
        )
    return value is None or (isinstance(value, str | bytes | int | float) and size(value) <= MAX_TEXT)


def composed(parts: Iterable[str], between: str = "") -> str:
    """Return texts one after another, cut at `MAX_TEXT`."""
    kept, length = list[str](), 0
    for part in parts:
        kept.append(part[: MAX_TEXT - length])
        length += len(kept[-1]) + len(between)
        if length >= MAX_TEXT:
            break
    return between.join(kept)[:MAX_TEXT]


def joined_path(parts: Sequence[str | None]) -> str:
    """Return a path of parts of which some are not known, from the last one on that begins at the root."""
    start = max((at for at, one in enumerate(parts) if one is not None and one.startswith("/")), default=0)
    return composed(((one or UNKNOWN_PART).rstrip("/") or "/" for one in parts[start:]), "/").replace("//", "/")


# --- what is computed ------------------------------------------------------------------------------------------------


def _bytes(data: Any) -> bytes:
    return data.encode("latin-1") if isinstance(data, str) else bytes(data)


def _decoded(data: Any, coding: Any = "utf-8", *_: Any) -> Any:
    match str(coding).lower().replace("-", "_"):
        case "rot13" | "rot_13":
            return codecs.decode(data, "rot13")
        case "hex" | "hex_codec":
            return binascii.unhexlify(_bytes(data))
        case "base64" | "base64_codec":
            return base64.b64decode(_bytes(data))
        case "unicode_escape" | "utf_8" | "utf8" | "ascii" | "latin_1" | "utf_16" as name:
            return _bytes(data).decode(name)
    return MISSING


def _listed(*args: Any) -> Any:
    return MISSING if isinstance(args[0], int) else bytes(*args)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "builtins.chr": chr,
    "builtins.ord": ord,
    "builtins.str": lambda *args: str(*args),  # noqa: PLW0108 (mypy: a class is not such a function)
    "builtins.bytes": _listed,
    "builtins.bytearray": _listed,
    "builtins.list": lambda items: list(items),  # noqa: PLW0108
    "builtins.tuple": lambda items: list(items),  # noqa: PLW0108
    "builtins.reversed": lambda items: list(reversed(items)),
    "os.path.join": lambda *parts: posixpath.join(*parts),  # noqa: PLW0108
    "codecs.decode": _decoded,
    "zlib.decompress": lambda data: zlib.decompressobj().decompress(_bytes(data), MAX_TEXT),
    "base64.b64decode": lambda data, *_: base64.b64decode(_bytes(data)),
    "base64.urlsafe_b64decode": lambda data: base64.urlsafe_b64decode(_bytes(data)),
    "base64.b32decode": lambda data: base64.b32decode(_bytes(data)),
    "base64.b16decode": lambda data: base64.b16decode(_bytes(data), casefold=True),
    "base64.b85decode": lambda data: base64.b85decode(_bytes(data)),
    **dict.fromkeys(("base64.standard_b64decode", "base64.decodebytes", "binascii.a2b_base64"), base64.b64decode),
    **dict.fromkeys(("binascii.unhexlify", "binascii.a2b_hex"), lambda data: binascii.unhexlify(_bytes(data))),
    **dict.fromkeys(("builtins.bytes.fromhex", "builtins.bytearray.fromhex"), bytes.fromhex),
}
_METHODS = frozenset(
    words(
        "join format replace lower upper strip lstrip rstrip split encode decode swapcase removeprefix removesuffix hex"
    )
)


def function(name: str, args: Sequence[Any]) -> Any:
    """Return the result of a function of the library, `MISSING` if it is not computed here."""
    return _guarded(_FUNCTIONS[name], *args) if name in _FUNCTIONS and _total(args) <= MAX_TEXT else MISSING


def method(receiver: Any, name: str, args: Sequence[Any]) -> Any:
    """Return the result of a method of a text, `MISSING` if it is not computed here."""
    if not isinstance(receiver, str | bytes) or name not in _METHODS:
        return MISSING
    if name == "decode":
        return _guarded(_decoded, receiver, *args) if isinstance(receiver, bytes) else MISSING
    times = {"replace": size(receiver) + 1, "join": size(args[0]) if args else 0}.get(name, 0)
    if name == "format":
        if _WIDE.search(str(receiver)):
            return MISSING
        times = str(receiver).count("{")
    whole = size(receiver) + (times * _total(args[1:] if name == "replace" else args))
    if name == "join":
        whole = _total(args) + size(receiver) * (len(args[0]) if args and isinstance(args[0], list | str) else 0)
    return _guarded(getattr(receiver, name), *args) if whole <= MAX_TEXT else MISSING


def operation(name: str, left: Any, right: Any) -> Any:
    """Return what `+`, `*` or `%` makes of two constants, `MISSING` if it is not computed here."""
    texts = isinstance(left, str | bytes | list)
    if name == "Add" and texts:
        return _guarded(operator.add, left, right)
    if name == "Mult" and texts and isinstance(right, int) and size(left) * right <= MAX_TEXT:
        return _guarded(operator.mul, left, right)
    if name == "Mod" and isinstance(left, str) and not _WIDE.search(left):
        given = tuple(right) if isinstance(right, list) else right
        short = size(left) + left.count("%") * size(right) <= MAX_TEXT
        return _guarded(operator.mod, left, given) if short else MISSING
    return MISSING


def item(owner: Any, index: Any) -> Any:
    """Return what an index or a slice gives, `MISSING` if that is not known."""
    known = isinstance(owner, str | bytes | list) and isinstance(index, int | slice)
    return _guarded(operator.getitem, owner, index) if known else MISSING


def _total(values: Iterable[Any]) -> int:
    return sum(map(size, values))


def _guarded(compute: Callable[..., Any], *args: Any) -> Any:
    try:
        found = compute(*args)
    except Exception:  # whatever Python says of it, the cell will hear
        return MISSING
    return found if found is not MISSING and fits(found) else MISSING
