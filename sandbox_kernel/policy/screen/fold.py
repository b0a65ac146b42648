"""Constants that are composed or decoded, computed here: joins, formats, slices, character codes, base64, hex, rot13.

Pure, and bounded: what would be large, or run code, is not computed. Nothing of a cell is run.
"""

from __future__ import annotations

import base64
import binascii
import bz2
import codecs
import html
import lzma
import operator
import posixpath
import re
import urllib.parse
import zlib
from collections.abc import Callable, Sequence
from typing import Any

from .rules.rule import words
from .value import MISSING, MOST_TEXT, weight

MOST_ITEMS = 1 << 12
"""Items of a list that is computed here."""
MOST_BITS = 4096
"""Of a number."""
_WIDE = re.compile(r"\d{4,}|__|\*")
"""In a template: what could make a huge text, or reach into objects."""


class TooMuchError(Exception):
    """A constant would be larger than is computed here; it has its size, in items or bits."""

    def __init__(self, what: str, size: float) -> None:
        super().__init__(what)
        self.what = what
        self.size = size


def fits(value: Any) -> bool:
    """Return whether a constant is small enough to be kept."""
    if isinstance(value, str | bytes | bytearray):
        return len(value) <= MOST_TEXT
    if isinstance(value, list | tuple | set | frozenset | dict):
        return len(value) <= MOST_ITEMS and weight(value) <= MOST_TEXT
    return not isinstance(value, int) or value.bit_length() <= MOST_BITS


def _multiplied(left: Any, right: Any) -> Any:
    if isinstance(left, int | float) and isinstance(right, int | float):
        return left * right
    if isinstance(left, int):
        left, right = right, left
    if not isinstance(right, int) or not isinstance(left, str | bytes | list | tuple):
        return MISSING
    if len(left) * max(right, 0) > MOST_ITEMS:
        raise TooMuchError("items", float(len(left)) * right)
    return left * right if weight(left) * max(right, 0) <= MOST_TEXT else MISSING


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int) and right > 0:
        bits = float(left.bit_length()) * float(min(right, 1 << 60))
        if bits > MOST_BITS:
            raise TooMuchError("bits", bits)
    elif isinstance(left, int | float) and isinstance(right, int | float) and abs(right) > 1000:
        return MISSING
    return left**right


def _shifted(left: Any, right: Any) -> Any:
    if isinstance(right, int) and right > MOST_BITS:
        raise TooMuchError("bits", float(right))
    return left << right


def _remainder(left: Any, right: Any) -> Any:
    if isinstance(left, str | bytes):
        template = left if isinstance(left, str) else left.decode("latin-1")
        if _WIDE.search(template) or not _is_short(template.count("%"), template, right):
            return MISSING
    return left % right


def _is_short(fields: int, template: Any, given: Any) -> bool:
    """Return whether a template is short even if each of its fields has all that is given."""
    return len(template) + fields * weight(given) <= MOST_TEXT


_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mult": _multiplied,
    "Div": operator.truediv,
    "FloorDiv": operator.floordiv,
    "Mod": _remainder,
    "Pow": _power,
    "LShift": _shifted,
    "RShift": operator.rshift,
    "BitXor": operator.xor,
    "BitAnd": operator.and_,
    "BitOr": operator.or_,
}


def binary(name: str, left: Any, right: Any) -> Any:
    """Return `left op right` for the operator of that name of the syntax tree, MISSING if it is not computed.

    Raises `TooMuchError` for what would be huge.
    """
    try:
        found = _OPERATORS[name](left, right)
    except TooMuchError:
        raise
    except Exception:  # whatever Python says of it, the cell will hear
        return MISSING
    return found if found is not MISSING and fits(found) else MISSING


# --- functions -----------------------------------------------------------------------------------------------------


def _raw(data: Any) -> bytes:
    return data.encode("latin-1") if isinstance(data, str) else bytes(data)


def _unpacked(kind: Any) -> Callable[[Any], Any]:
    def unpack(data: Any) -> Any:
        return kind().decompress(_raw(data), MOST_TEXT)

    return unpack


def _coded(data: Any, coding: Any = "utf-8", *_: Any) -> Any:
    name = str(coding).lower().replace("-", "_")
    if name in {"rot13", "rot_13"}:
        return codecs.decode(data, "rot13")
    if name in {"hex", "hex_codec"}:
        return binascii.unhexlify(_raw(data))
    if name in {"base64", "base64_codec"}:
        return base64.b64decode(_raw(data))
    if name in {"zlib", "zip", "zlib_codec"}:
        return _unpacked(zlib.decompressobj)(data)
    if name in {"unicode_escape", "utf_8", "utf8", "ascii", "latin_1", "utf_16", "utf_32"}:
        return _raw(data).decode(name)
    return MISSING


def _limited(*args: Any) -> Any:
    found = range(*args)
    return list(found) if len(found) <= MOST_ITEMS else MISSING


def _of_bytes(*args: Any) -> Any:
    if args and isinstance(args[0], int):
        return MISSING
    return bytes(*args)


def _text(*args: Any) -> Any:
    return str(*args)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"builtins.{one.__name__}": one for one in (chr, ord, hex, bin, oct, len, int, float, abs, ascii, min, max)},
    "builtins.str": _text,
    "builtins.sum": lambda items: sum(items),  # noqa: PLW0108 (with a list to begin with, it copies all of it each time)
    "builtins.bytes": _of_bytes,
    "builtins.bytearray": _of_bytes,
    "builtins.list": list,
    "builtins.tuple": tuple,
    "builtins.reversed": lambda items: list(reversed(items)),
    "builtins.sorted": sorted,
    "builtins.range": _limited,
    "builtins.bytes.fromhex": bytes.fromhex,
    "builtins.bytearray.fromhex": bytes.fromhex,
    "builtins.chr.__call__": chr,
    "base64.b64decode": lambda data, *_: base64.b64decode(_raw(data)),
    "base64.standard_b64decode": lambda data: base64.b64decode(_raw(data)),
    "base64.urlsafe_b64decode": lambda data: base64.urlsafe_b64decode(_raw(data)),
    "base64.decodebytes": lambda data: base64.b64decode(_raw(data)),
    "base64.b32decode": lambda data: base64.b32decode(_raw(data)),
    "base64.b16decode": lambda data, *_: base64.b16decode(_raw(data), casefold=True),
    "base64.a85decode": lambda data: base64.a85decode(_raw(data)),
    "base64.b85decode": lambda data: base64.b85decode(_raw(data)),
    "binascii.unhexlify": lambda data: binascii.unhexlify(_raw(data)),
    "binascii.a2b_hex": lambda data: binascii.unhexlify(_raw(data)),
    "binascii.a2b_base64": lambda data: binascii.a2b_base64(_raw(data)),
    "codecs.decode": _coded,
    "zlib.decompress": _unpacked(zlib.decompressobj),
    "gzip.decompress": _unpacked(lambda: zlib.decompressobj(31)),
    "bz2.decompress": _unpacked(bz2.BZ2Decompressor),
    "lzma.decompress": _unpacked(lzma.LZMADecompressor),
    "urllib.parse.unquote": urllib.parse.unquote,
    "html.unescape": html.unescape,
    "os.path.join": lambda *parts: posixpath.join(*parts) if weight(parts) <= MOST_TEXT else MISSING,
}
"""What is computed when all arguments are known, by dotted name."""

DECODERS = frozenset(name for name in FUNCTIONS if name.split(".")[0] in {"base64", "binascii", "codecs", "zlib"}) | {
    *("gzip.decompress", "bz2.decompress", "lzma.decompress", "builtins.bytes.fromhex", "builtins.bytearray.fromhex"),
    *("marshal.loads", "urllib.parse.unquote", "codecs.decode", "base64.decodestring", "quopri.decodestring"),
    *("cryptography.fernet.Fernet().decrypt", "pickle.loads", "uu.decode"),
}
"""What turns a text that nobody can read into one that may be code."""

_OF_TEXT = frozenset(
    words(
        "join format replace lower upper strip lstrip rstrip split rsplit encode decode title swapcase "
        "capitalize translate removeprefix removesuffix partition rpartition splitlines hex casefold index "
        "count startswith endswith find"
    )
)


def method(receiver: Any, name: str, args: Sequence[Any]) -> Any:
    """Return what a method of a constant gives, MISSING if it is not computed."""
    if isinstance(receiver, str | bytes):
        if name not in _OF_TEXT or not _is_small(receiver, name, args):
            return MISSING
        if name == "decode":
            return _guarded(_coded, receiver, *args) if isinstance(receiver, bytes) else MISSING
    elif not (
        isinstance(receiver, list | tuple | dict) and name in {"index", "count", "get", "keys", "values", "items"}
    ):
        return MISSING
    found = _guarded(getattr(receiver, name), *args)
    return list(found) if type(found).__name__.startswith("dict_") else found


def call(name: str, args: Sequence[Any]) -> Any:
    """Return what a function of `FUNCTIONS` gives, MISSING if it is not computed."""
    return _guarded(FUNCTIONS[name], *args)


def _guarded(function: Callable[..., Any], *args: Any) -> Any:
    try:
        found = function(*args)
    except Exception:  # whatever Python says of it, the cell will hear
        return MISSING
    if isinstance(found, bytearray):
        found = bytes(found)
    return found if found is MISSING or fits(found) else MISSING


def _is_small(receiver: Any, name: str, args: Sequence[Any]) -> bool:
    if name == "format":
        return not _WIDE.search(str(receiver)) and _is_short(receiver.count("{"), receiver, args)
    if name == "translate":
        return _is_short(len(receiver), receiver, args[0]) if len(args) == 1 and len(receiver) < 1024 else False
    if name == "replace":
        new = args[1] if len(args) > 1 else ""
        return isinstance(new, str | bytes) and (len(receiver) + 1) * (len(new) + 1) <= MOST_TEXT * 16
    if name == "join":
        items = args[0] if args else ()
        whole = isinstance(items, list | tuple | str) and all(isinstance(item, str | bytes) for item in items)
        return whole and sum(map(len, items)) + len(receiver) * len(items) <= MOST_TEXT
    return True
