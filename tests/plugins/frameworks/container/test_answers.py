"""Answers that come out of a sandbox: values that are what they seem, and tricks that get nowhere."""

from __future__ import annotations

import base64
import datetime
import io
import json
import pickle
from decimal import Decimal
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from sandbox_kernel.core.answer_allowance import AnswerAllowance
from sandbox_kernel.core.errors import AnswerError
from sandbox_kernel.core.model import Limits
from sandbox_kernel.plugins.frameworks import answers
from tests.support.trap import Trap


def read(text: str) -> Any:
    return answers.read(text, AnswerAllowance(Limits()))


def image(data: str) -> Any:
    return answers.image(data, AnswerAllowance(Limits()))


def tagged(kind: str, **fields: Any) -> str:
    return "safe:" + json.dumps({"__type__": kind, **fields})


@pytest.mark.parametrize(
    "value",
    [
        None,
        "text",
        1.5,
        [1, [2, {"a": None}]],
        (1, (2, 3)),
        {1, 2},
        frozenset({"a"}),
        {1: "a", (2, 3): "b"},
        b"\x00\xff",
        1 + 2j,
        datetime.datetime(2024, 2, 29, 12, 30),  # noqa: DTZ001
        datetime.date(2024, 2, 29),
        datetime.time(12, 30),
        datetime.timedelta(seconds=90),
        Decimal("1.10"),
    ],
    ids=repr,
)
def test_what_the_framework_writes_is_read_as_it_was(value: object) -> None:
    from smolagents.serialization import SafeSerializer

    found = read(SafeSerializer.dumps(value))
    assert found == value
    assert type(found) is type(value)


def test_arrays_and_images_are_read() -> None:
    import numpy
    import PIL.Image
    from smolagents.serialization import SafeSerializer

    array = read(SafeSerializer.dumps(numpy.arange(6, dtype="int16").reshape(2, 3)))
    assert array.dtype == "int16"
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    picture = read(SafeSerializer.dumps(PIL.Image.new("RGB", (3, 2), "red")))
    assert (picture.size, picture.getpixel((0, 0))) == ((3, 2), (255, 0, 0))


def test_a_path_opens_nothing_on_this_machine() -> None:
    found = read(tagged("Path", data="/etc/passwd"))
    assert found == PurePosixPath("/etc/passwd")
    assert not isinstance(found, Path)


def test_an_array_cannot_be_larger_than_what_was_sent() -> None:
    """Numpy would make 8 TB of this type; without one that is known to be small, the plain list comes back."""
    for dtype in ("(1000000,1000000)f8", "<U1000000000", "object", "V1000000000", "float64\n", "int9", ["f8"]):
        assert read(tagged("ndarray", data=[1], dtype=dtype)) == [1]


def bomb() -> str:
    """Return a PNG of some bytes that says it has 10^10 pixels."""
    import PIL.Image

    file = io.BytesIO()
    PIL.Image.new("1", (8, 8)).save(file, "PNG")
    raw = bytearray(file.getvalue())
    raw[16:24] = (100_000).to_bytes(4, "big") * 2
    import zlib

    raw[29:33] = zlib.crc32(raw[12:29]).to_bytes(4, "big")
    return base64.b64encode(raw).decode()


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    trap = base64.b64encode(pickle.dumps(Trap(tmp_path / "sprung"))).decode()
    for text in ("pickle:" + trap, trap):
        with pytest.raises(AnswerError, match="not JSON with types"):
            read(text)
    assert read(tagged("pickle", data=trap)) == {"__type__": "pickle", "data": trap}
    assert not list(tmp_path.iterdir())
    pickle.loads(base64.b64decode(trap))  # noqa: S301 (the control: the trap works)
    assert [path.name for path in tmp_path.iterdir()] == ["sprung"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "safe:",
        "safe:{",
        'safe:{"__type__": "set"}',
        tagged("set", data=[[1]]),
        tagged("tuple", data=5),
        tagged("bytes", data="é"),
        tagged("complex", real="1", imag=[]),
        tagged("date", data="yesterday"),
        tagged("timedelta", total_seconds=1e300),
        tagged("Decimal", data="one"),
        tagged("ndarray", data=[[1], [2, 3]], dtype="int64"),
        tagged("dict_with_complex_keys", data=[[1]]),
        tagged("PIL.Image", data="AAAA"),
        "safe:" + "[" * 200 + "]" * 200,
        "safe:" + "[" * 100_000,
    ],
    ids=lambda text: text[:40],
)
def test_an_answer_that_is_none_is_an_error_of_one_kind(text: str) -> None:
    with pytest.raises(AnswerError):
        read(text)


def test_an_image_that_would_fill_the_memory_is_refused() -> None:
    with pytest.raises(AnswerError, match=r"512\.0 MiB of memory|DecompressionBomb"):
        image(bomb())


def test_an_image_is_a_png_or_a_jpeg() -> None:
    import PIL.Image

    for kind, fine in (("PNG", True), ("JPEG", True), ("GIF", False), ("TIFF", False), ("EPS", False)):
        file = io.BytesIO()
        PIL.Image.new("RGB", (4, 4)).save(file, kind)
        data = base64.b64encode(file.getvalue()).decode()
        if fine:
            assert image(data).size == (4, 4)
        else:
            with pytest.raises(AnswerError):
                image(data)
