"""Values that code in the sandbox hands over as an answer: smolagents' tagged JSON, read without trusting it.

The framework's own reader lets the JSON choose the type and size of arrays, and opens any kind of image. Here nothing
is unpickled, nothing is built whose size the JSON does not pay for, and a path is one that opens nothing on this host.

Imports nothing of this package; numpy and Pillow only for answers that are arrays and images.
"""

from __future__ import annotations

import base64
import datetime
import io
import json
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

PREFIX = "safe:"
MAX_DEPTH = 100
MAX_PIXELS = 50_000_000
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")


class AnswerError(ValueError):
    """An answer is not what it should be."""


def read(text: str) -> Any:
    """Return the value of an answer. Raises `AnswerError`."""
    if not text.startswith(PREFIX):
        raise AnswerError("the answer is not JSON with types")
    try:
        return _value(json.loads(text[len(PREFIX) :]), 0)
    except AnswerError:
        raise
    except (ValueError, TypeError, KeyError, ArithmeticError, RecursionError) as error:
        raise AnswerError(f"the answer is not JSON with types: {type(error).__name__}") from error


def image(data: str) -> Any:
    """Return a PNG or JPEG in base64 as an image of Pillow, decoded. Raises `AnswerError`."""
    import PIL.Image

    try:
        found = PIL.Image.open(io.BytesIO(base64.b64decode(data)), formats=("PNG", "JPEG"))
        if found.width * found.height > MAX_PIXELS:
            raise AnswerError(f"the image has more than {MAX_PIXELS:,} pixels")
        found.load()
    except AnswerError:
        raise
    except Exception as error:  # a decoder of images raises whatever it likes
        raise AnswerError(f"the image cannot be read: {type(error).__name__}") from error
    return found


def _value(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise AnswerError(f"the answer is nested more than {MAX_DEPTH} deep")
    if isinstance(value, list):
        return [_value(item, depth + 1) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("__type__")
    build = _TYPES.get(kind) if isinstance(kind, str) else None
    if build is None:
        return {key: _value(item, depth + 1) for key, item in value.items()}
    return build(value, lambda item: _value(item, depth + 1))


def _array(value: dict[str, Any]) -> Any:
    if not isinstance(value["dtype"], str) or not _NUMBERS.fullmatch(value["dtype"]):
        return value["data"]
    try:
        import numpy
    except ImportError:
        return value["data"]
    return numpy.array(value["data"], dtype=value["dtype"])


_Item = Callable[[Any], Any]
_TYPES: dict[str, Callable[[dict[str, Any], _Item], Any]] = {
    "tuple": lambda value, item: tuple(map(item, value["data"])),
    "set": lambda value, item: set(map(item, value["data"])),
    "frozenset": lambda value, item: frozenset(map(item, value["data"])),
    "dict_with_complex_keys": lambda value, item: {item(key): item(inner) for key, inner in value["data"]},
    "bytes": lambda value, item: base64.b64decode(value["data"]),
    "complex": lambda value, item: complex(value["real"], value["imag"]),
    "datetime": lambda value, item: datetime.datetime.fromisoformat(value["data"]),
    "date": lambda value, item: datetime.date.fromisoformat(value["data"]),
    "time": lambda value, item: datetime.time.fromisoformat(value["data"]),
    "timedelta": lambda value, item: datetime.timedelta(seconds=value["total_seconds"]),
    "Decimal": lambda value, item: Decimal(value["data"]),
    "Path": lambda value, item: PurePosixPath(value["data"]),
    "ndarray": lambda value, item: _array(value),
    "PIL.Image": lambda value, item: image(value["data"]),
    "dataclass": lambda value, item: {key: item(inner) for key, inner in value["data"].items()},
}
