"""Large streams leave the agent in pieces, which say together what was printed; the host holds few of them at once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import ModuleType

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import kernel_messages
from tests.support.examples import examples
from tests.support.kernels import Kernel

PIECE = 8192
LONG = b"x" * 9 * PIECE


@pytest.fixture(scope="module")
def agent() -> Iterator[ModuleType]:
    """The agent's module with small pieces."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel_messages, "PIECE", PIECE)
        yield kernel_messages


def stream(text: str, form: str) -> memoryview:
    content = {"name": "stdout", "text": text}
    if form == "orjson":
        return memoryview(orjson.dumps(content))
    return memoryview(json.dumps(content, ensure_ascii=form == "ascii").encode())


@examples(150)
@given(
    st.lists(st.text(st.sampled_from('ab \n\\"\té漢😀\x00'), max_size=30), min_size=1, max_size=20),
    st.integers(1, 3000),
    st.sampled_from(["orjson", "ascii", "utf-8"]),
)
def test_the_pieces_of_a_text_are_the_text(agent: ModuleType, words: list[str], times: int, form: str) -> None:
    text = ("plain words of some length".join(words) * times)[:60_000]
    pieces = agent.cut([b"header", b"parent", b"metadata", stream(text, form)])
    contents = [orjson.loads(piece[3]) for piece in pieces]
    assert "".join(content["text"] for content in contents) == text
    assert {content["name"] for content in contents} == {"stdout"}
    assert all(piece[:3] == [b"header", b"parent", b"metadata"] for piece in pieces)


@pytest.mark.parametrize("form", ["orjson", "ascii", "utf-8"])
def test_no_piece_is_much_larger_than_it_should_be(agent: ModuleType, form: str) -> None:
    pieces = agent.cut([b"", b"", b"", stream("a line of a log, of some length\n" * 5000, form)])
    assert len(pieces) > 15
    assert max(len(piece[3]) for piece in pieces) < 2 * PIECE


@pytest.mark.parametrize(
    "content",
    [b'{"data":{"text/plain":"' + LONG + b'"}}', b'{"name":"stdout","text":"' + LONG, LONG],
    ids=["display", "cut off", "no JSON"],
)  # fmt: skip
def test_what_is_no_stream_stays_whole(agent: ModuleType, content: bytes) -> None:
    parts = [b"header", b"parent", b"metadata", content]
    assert list(agent.cut(parts)) == [parts]


def test_text_that_cannot_be_cut_stays_whole(agent: ModuleType) -> None:
    parts = [b"header", b"parent", b"metadata", stream("\n" * 9 * PIECE, "orjson")]
    assert len(agent.cut(parts)) == 1


def test_a_print_larger_than_one_message_arrives_complete(start_kernel) -> None:
    kernel: Kernel = start_kernel("--message-limit", "8M", "--display-size", "1G")
    result = kernel.run("print(' '.join(map(str, range(1_500_000))))", timeout=120)
    assert result.reply["status"] == "ok"
    assert result.text() == " ".join(map(str, range(1_500_000))) + "\n"
