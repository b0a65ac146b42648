"""Values that code in the sandbox hands over as an answer: smolagents' tagged JSON, read without trusting it.

The framework's own reader lets the JSON choose the type and size of arrays, and opens any kind of image. Here nothing
is unpickled, everything is built within one allowance, and a path is one that opens nothing on this host.

numpy and Pillow are imported only for answers that are arrays and images.
"""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import PurePosixPath
from typing import Any

from ...core.answer_allowance import MAX_DIGITS, AnswerAllowance, at_most, digits, improper
from ...core.codes import EndCode
from ...core.errors import AnswerError

PREFIX = "safe:"
PIXEL_BYTES = 8
"""Of a decoded image: four, and what decoders hold beside them."""
LINE_PIXELS = 16
"""What each line of an image costs beside its pixels."""
SCANS = 16
"""Of a progressive JPEG, that cost as much as one; a few bytes are another look at each pixel."""
MAX_PATH = 4096
_NUMBERS = re.compile(r"bool|u?int(8|16|32|64)|float(16|32|64)")


def read(text: str, allowance: AnswerAllowance) -> Any:
    """Return the value of an answer. Raises `AnswerError`."""
    if not text.startswith(PREFIX):
        raise AnswerError(EndCode.ANSWER_UNREADABLE, "the answer is not JSON with types")
    with improper(TypeError, KeyError, AttributeError, ArithmeticError, RecursionError):
        return _value(allowance.json(text[len(PREFIX) :], copies=2), allowance)


def image(data: str, allowance: AnswerAllowance) -> Any:
    """Return a PNG or JPEG in base64 as an image of Pillow, decoded. Raises `AnswerError`."""
    import PIL.Image
    from PIL.PngImagePlugin import MAX_TEXT_CHUNK, MAX_TEXT_MEMORY

    raw = allowance.base64(data)
    # Compressed texts and profiles of a PNG, which Pillow unpacks when it opens one.
    allowance.take(raw.count(b"iCCP") * MAX_TEXT_CHUNK + (b"zTXt" in raw or b"iTXt" in raw) * MAX_TEXT_MEMORY)
    with improper(Exception):  # a decoder of images raises whatever it likes
        found = PIL.Image.open(io.BytesIO(raw), formats=("PNG", "JPEG"))
        looks = 1 + raw.count(b"\xff\xda") // SCANS * (found.format != "PNG")
        allowance.take(PIXEL_BYTES * (found.width + LINE_PIXELS) * found.height * looks)
        found.load()
    return found


def _value(value: Any, allowance: AnswerAllowance) -> Any:
    if isinstance(value, list):
        return [_value(item, allowance) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("__type__")
    build = _TYPES.get(kind) if isinstance(kind, str) else None
    if build is None:
        return {key: _value(item, allowance) for key, item in value.items()}
    return build(value, lambda item: _value(item, allowance), allowance)


def _array(value: dict[str, Any]) -> Any:
    if not isinstance(value["dtype"], str) or not _NUMBERS.fullmatch(value["dtype"]):
        return value["data"]
    try:
        import numpy
    except ImportError:
        return value["data"]
    return numpy.array(value["data"], dtype=value["dtype"])


def _decimal(text: str) -> Decimal:
    number = Decimal(digits(text))
    at_most(abs(number.adjusted()), MAX_DIGITS, "digits")  # as many as an int of it would have
    return number


def _path(text: str) -> PurePosixPath:
    at_most(len(text), MAX_PATH, "characters of a path")
    return PurePosixPath(text)


_Item = Callable[[Any], Any]
_TYPES: dict[str, Callable[[dict[str, Any], _Item, AnswerAllowance], Any]] = {
    "tuple": lambda value, item, _: tuple(map(item, value["data"])),
    "set": lambda value, item, left: set(left.distinct(map(item, value["data"]))),
    "frozenset": lambda value, item, left: frozenset(left.distinct(map(item, value["data"]))),
    "dict_with_complex_keys": lambda value, item, left: dict(
        zip(left.distinct(item(key) for key, _ in value["data"]), [item(one) for _, one in value["data"]], strict=True)
    ),
    "bytes": lambda value, item, left: left.base64(value["data"]),
    "complex": lambda value, item, _: complex(value["real"], value["imag"]),
    "datetime": lambda value, item, _: datetime.datetime.fromisoformat(value["data"]),
    "date": lambda value, item, _: datetime.date.fromisoformat(value["data"]),
    "time": lambda value, item, _: datetime.time.fromisoformat(value["data"]),
    "timedelta": lambda value, item, _: datetime.timedelta(seconds=value["total_seconds"]),
    "Decimal": lambda value, item, _: _decimal(value["data"]),
    "Path": lambda value, item, _: _path(value["data"]),
    "ndarray": lambda value, item, _: _array(value),
    "PIL.Image": lambda value, item, left: image(value["data"], left),
    "dataclass": lambda value, item, _: {key: item(inner) for key, inner in value["data"].items()},
}
