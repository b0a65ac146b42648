"""What one answer of a sandbox may make a program build: many small parts are counted together, before they are built.

No sibling is left, because there is one way, an `AnswerAllowance`: text becomes values by its `json`, base64 by its
`base64`, a set by its `distinct`, an image after its `take`; `test_nothing_else_reads_what_a_sandbox_says` finds a
reader that goes past it. Each attack has a control: the same answer with an allowance that never ends.
"""

from __future__ import annotations

import ast
import base64
import ctypes
import gc
import io
import json
import math
import struct
import sys
import time
import tracemalloc
import zlib
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import PIL.Image
import pytest

import sandbox_kernel
from sandbox_kernel.core import answer_allowance as allowances
from sandbox_kernel.core.answer_allowance import MEMORY_FACTOR, AnswerAllowance
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import AnswerError
from sandbox_kernel.core.model import Limits
from sandbox_kernel.plugins.frameworks.answers import image, read
from tests.support.cases import paired, some
from tests.support.sources import nodes_of

MIB = 1 << 20
PRIME = (1 << 61) - 1
"""What numbers of Python hash by: all that differ by a multiple of it hash alike."""
LIMITS = Limits(output_limit=2 * MIB)
BOUND = MEMORY_FACTOR * LIMITS.output_limit
ENDLESS = Limits(output_limit=1 << 40)


def tagged(kind: str, data: Any) -> dict[str, Any]:
    return {"__type__": kind, "data": data}


def answer(value: Any) -> str:
    return "safe:" + json.dumps(value)


def picture(width: int, height: int, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    PIL.Image.new("L", (width, height)).save(file, kind, **options)
    return file.getvalue()


def chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def with_chunks(raw: bytes, *chunks: bytes) -> bytes:
    """Return a PNG with more chunks behind its header."""
    return raw[:33] + b"".join(chunks) + raw[33:]


def as_image(raw: bytes) -> dict[str, Any]:
    return tagged("PIL.Image", base64.b64encode(raw).decode())


def peak(call: Callable[[], Any], enough: float = math.inf) -> int:
    """Return how far a call raises the memory of this process at its highest, in bytes.

    What the process grows by lacks what takes the place of what earlier tests freed, and what Python counts lacks what
    libraries allocate by themselves: the larger one counts. Python's count is slow, and left out when the process has
    grown by more than `enough`.
    """

    def status(name: str) -> int:
        lines = Path("/proc/self/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1]) << 10

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # the highest so far is the present again
    before = status("VmRSS")
    kept = call()
    grown = status("VmHWM") - before
    del kept
    if grown > enough:
        return grown
    tracemalloc.start()
    try:
        call()
        return max(grown, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


def seconds(call: Callable[[], Any]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def least(call: Callable[[], Any]) -> float:
    """Return the seconds of the quickest of three: one may meet a collection of garbage, or another process."""
    return min(seconds(call) for _ in range(3))


def refused(text: str, limits: Limits = LIMITS) -> AnswerError:
    with pytest.raises(AnswerError) as caught:
        read(text, AnswerAllowance(limits))
    return caught.value


# --- memory: parts that are small, and many ---


def texts(kind: bytes, head: bytes) -> dict[str, Any]:
    """Return a small image with twenty texts of 900 kB."""
    packed = zlib.compress(b"x" * 900_000)
    return as_image(with_chunks(picture(8, 8), *[chunk(kind, b"k%d" % number + head + packed) for number in range(20)]))


TEXTS: dict[str, Callable[[], str]] = {
    "images": lambda: answer([as_image(picture(1000, 1000))] * 60),
    "images of one column": lambda: answer([as_image(picture(1, 30_000))] * 100),
    "compressed texts": lambda: answer([texts(b"zTXt", b"\0\0")] * 2),
    "international texts": lambda: answer([texts(b"iTXt", b"\0\1\0\0\0")] * 2),
    "empty lists": lambda: "safe:[" + "[]," * 400_000 + "[]]",
    "empty objects": lambda: "safe:[" + "{}," * 400_000 + "{}]",
    "objects": lambda: "safe:[" + '{"":0},' * 250_000 + "{}]",
    "short texts": lambda: answer([f"{number:05}" for number in range(300_000)]),
    "floats": lambda: "safe:[" + "1.5," * 900_000 + "1]",
    "sets": lambda: answer([tagged("set", [number]) for number in range(60_000)]),
    "tuples": lambda: answer([tagged("tuple", [[]]) for number in range(90_000)]),
    "one wide letter": lambda: 'safe:["' + "x" * (3 * MIB) + '\U0001f600"]',
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(TEXTS, of=3))
def test_an_answer_of_many_small_parts_is_refused_before_they_are_there(name: str) -> None:
    text = TEXTS[name]()
    error = refused(text)
    assert error.code == EndCode.ANSWER_TOO_LARGE
    assert (error.limit, error.setting) == ("8.0 MiB of memory, 4 times output_limit", "output_limit")
    assert error.value is not None
    assert error.value in str(error)
    needed = peak(lambda: refused(text))
    assert needed < BOUND + 2 * sys.getsizeof(text), "the text without its mark, and as it is weighed"
    unbounded = peak(lambda: read(text, AnswerAllowance(ENDLESS)), enough=max(BOUND, needed))
    assert unbounded > BOUND, "the control: it would have been more"
    assert unbounded > needed


def test_the_allowance_is_for_all_of_an_answer_and_not_for_each_part() -> None:
    left, part = AnswerAllowance(LIMITS), answer([0] * 20_000)
    for _ in range(3):
        read(part, left)
    with pytest.raises(AnswerError, match="output_limit"):
        read(part, left)
    assert len(read(part, AnswerAllowance(LIMITS))) == 20_000


# --- time: what takes long and little memory ---

MANY = 6_000
COLLIDING: dict[str, Callable[[int], Any]] = {
    "numbers": lambda k: k * PRIME,
    "tuples": lambda k: tagged("tuple", [k * PRIME, k * PRIME]),
    "frozen sets": lambda k: tagged("frozenset", [k * PRIME, -5]),
    "decimals": lambda k: tagged("Decimal", str(k * PRIME)),
    "tuples of decimals": lambda k: tagged("tuple", [tagged("Decimal", f"{k * PRIME}.0")]),
}
HOLDERS: dict[str, Callable[[list[Any]], Any]] = {
    "set": lambda keys: tagged("set", keys),
    "frozenset": lambda keys: tagged("frozenset", keys),
    "keys": lambda keys: tagged("dict_with_complex_keys", [[key, 0] for key in keys]),
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "holder"), paired(COLLIDING, HOLDERS))
def test_values_that_hash_alike_are_not_looked_up(monkeypatch: pytest.MonkeyPatch, kind: str, holder: str) -> None:
    text = answer(HOLDERS[holder]([COLLIDING[kind](k) for k in range(MANY)]))
    limits = Limits()
    taken = least(lambda: refused(text, limits))
    error = refused(text, limits)
    assert error.code == EndCode.ANSWER_TOO_LARGE
    assert (error.limit, error.value) == ("16 values with one hash", f"{MANY:,} values with one hash")
    monkeypatch.setattr(allowances, "MAX_EQUAL_HASHES", MANY)
    assert seconds(lambda: read(text, AnswerAllowance(limits))) > 1.5 * taken, "the control: each against all before"


def colliding_sets(depth: int, place: int) -> Any:
    """Return one of some sets that hash alike, and are equal but for the last of their parts, each of them again."""
    if depth == 0:
        return place * PRIME
    return tagged("frozenset", [colliding_sets(depth - 1, one) for one in (*range(1, 15), 15 + place)])


@pytest.mark.slow
def test_sets_within_sets_do_not_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    text = answer(tagged("frozenset", [colliding_sets(3, place) for place in range(8)]))
    assert refused(text, Limits()).limit == "2 sets within sets"
    taken = least(lambda: refused(text, Limits()))
    assert read(answer(tagged("set", [tagged("frozenset", [1, 2])])), AnswerAllowance(LIMITS)) == {frozenset({1, 2})}
    monkeypatch.setattr(allowances, "MAX_KEYED", 9)
    assert seconds(lambda: read(text, AnswerAllowance(Limits()))) > 3 * taken, "the control: each level compares again"


def test_honest_sets_pass_whatever_hashes_alike_in_them() -> None:
    places = range(-30, 30)
    points = [tagged("tuple", [x, y]) for x in places for y in places]
    points += [tagged("tuple", [x, y, z]) for x in places[::10] for y in (-1, -2) for z in (-1, -2)]
    found = read(answer(tagged("set", points)), AnswerAllowance(Limits()))
    assert len(found) == len(points)
    assert read(answer(tagged("set", list(range(100_000)))), AnswerAllowance(Limits())) == set(range(100_000))


LONG = {
    "number": "safe:" + "7" * 4301,
    "number in a list": "safe:[" + "-" + "7" * 100_000 + "]",
    "decimal": answer(tagged("Decimal", "7" * 4301)),
    "power of ten": answer(tagged("Decimal", "1e999999")),
    "small power": answer(tagged("Decimal", "1e-999999")),
}


@pytest.mark.parametrize("name", LONG)
def test_a_number_of_many_digits_is_refused_unread(name: str) -> None:
    error = refused(LONG[name], Limits())
    assert error.code == EndCode.ANSWER_TOO_LARGE
    assert error.limit == "4,300 digits"


def test_a_number_is_bounded_whatever_the_program_says_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    before, text = sys.get_int_max_str_digits(), "7" * 300_000
    sys.set_int_max_str_digits(0)
    try:
        taken = least(lambda: refused("safe:" + text, Limits()))
        assert seconds(lambda: json.loads(text)) > 10 * taken, "the control"
    finally:
        sys.set_int_max_str_digits(before)


@pytest.mark.parametrize("depth", [102, 900, 50_000])
@pytest.mark.parametrize("inner", ["[%s]", '{"a":%s}', '{"__type__":"tuple","data":[%s]}'])
def test_an_answer_that_is_nested_too_deep_is_refused(depth: int, inner: str) -> None:
    before, after = inner.split("%s")
    with pytest.raises(AnswerError):
        read("safe:" + before * depth + after * depth, AnswerAllowance(Limits()))


@pytest.mark.slow
def test_profiles_of_an_image_are_not_unpacked_one_after_the_other() -> None:
    profile = chunk(b"iCCP", b"p\0\0" + zlib.compress(b"\0" * 1_000_000, 9))
    raw = base64.b64encode(with_chunks(picture(8, 8), *[profile] * 200)).decode()
    limits = Limits(output_limit=32 * MIB)
    taken = least(lambda: refused(answer(tagged("PIL.Image", raw)), limits))
    assert seconds(lambda: image(raw, AnswerAllowance(ENDLESS))) > 5 * taken, "the control"


@pytest.mark.slow
def test_scans_of_an_image_count_as_so_many_images() -> None:
    """A scan of a progressive JPEG takes some bytes, and the decoder looks at each pixel for it."""
    raw = picture(1600, 1600, "JPEG", progressive=True)
    last = raw.rindex(b"\xff\xda")
    many = base64.b64encode(raw[:-2] + raw[last:-2] * 400 + b"\xff\xd9").decode()
    limits = Limits(output_limit=32 * MIB)
    assert image(base64.b64encode(raw).decode(), AnswerAllowance(limits)).size == (1600, 1600)
    taken = least(lambda: refused(answer(tagged("PIL.Image", many)), limits))
    assert seconds(lambda: image(many, AnswerAllowance(ENDLESS))) > 5 * taken, "the control"


def test_a_path_is_no_list_of_a_million_names() -> None:
    text = answer(tagged("Path", "/".join(f"{number:x}" for number in range(300_000))))
    assert refused(text, Limits()).limit == "4,096 characters of a path"


# --- honest answers ---


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ([tagged("ndarray", [0.123456789012345] * 200_000) | {"dtype": "float64"}], 1),
        ([as_image(picture(4000, 3000))], 1),
        ([as_image(picture(1600, 1200, dpi=(100, 100)))] * 20, 20),
        ({"text": "x" * 20_000_000}, 1),
        ([tagged("Decimal", str(Decimal(2) ** 200))], 1),
    ],
    ids=["array", "photo", "plots", "text", "decimal"],
)
def test_what_agents_answer_passes(value: Any, count: int) -> None:
    assert len(read(answer(value), AnswerAllowance(Limits()))) == count


# --- that there is no other way ---

ENTRY_POINTS = ("plugins/frameworks", "sdk", "plugins/mcp", "plugins/batch")
OTHERS = ("plugins/broker/detached.py",)
READERS = {
    "json.loads", "orjson.loads", "literal_eval", "ast.literal_eval", "eval", "frombuffer", "numpy.frombuffer",
    "Image.open", "PIL.Image.open", "zlib.decompress", "gzip.decompress", "pickle.loads", "DataFrame", "read_json",
    "zlib.decompressobj", "bz2.decompress", "lzma.decompress", "yaml.load", "numpy.load", "np.load", "numpy.array",
}  # fmt: skip
KNOWN = {
    ("plugins/frameworks/answers.py", "PIL.Image.open"): "counted in the line before it is decoded",
    ("plugins/frameworks/answers.py", "numpy.array"): "of values that are there, of a type of at most eight bytes",
    ("plugins/frameworks/inspect_commands.py", "json.loads"): "runs in the sandbox",
    ("plugins/broker/detached.py", "json.loads"): "what this program stored at the broker, of bounded length",
    (
        "sdk/output_text.py",
        "json.loads",
    ): "of a text that the caller's own call has just written, of values that are there",
    ("plugins/batch/many.py", "json.loads"): "the report that a run of this package has written, with texts cut",
    ("plugins/batch/run.py", "json.loads"): "the notebook that a run of this package has written",
    ("plugins/batch/answers.py", "json.loads"): "the same, from the user's own folder",
    ("plugins/batch/background_command.py", "json.loads"): "files of this package in the user's own folder",
    ("plugins/batch/run_report.py", "json.loads"): "a file of this package",
    ("plugins/batch/source_notebook.py", "json.loads"): "the notebook that the user names",
    ("plugins/batch/source_notebook.py", "yaml.load"): "the parameters that the user gives",
}


def test_nothing_else_reads_what_a_sandbox_says() -> None:
    found = set()
    package = Path(sandbox_kernel.__file__).parent
    paths = [path for entry in ENTRY_POINTS for path in (package / entry).rglob("*.py")]
    for path in (*paths, *(package / one for one in OTHERS)):
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and (name := ast.unparse(node.func)) in READERS:
                found.add((str(path.relative_to(package)), name))
    assert found == KNOWN.keys()
