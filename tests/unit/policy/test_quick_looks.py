"""What is looked at all at once, as it is nearly always in order, comes out as it does one by one."""

from __future__ import annotations

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.core.model import OutputMode
from sandbox_kernel.policy import html, mime, protocol, terminal
from sandbox_kernel.policy.json_check import MAX_DEPTH, NotPlainError, plain
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.slow_text import MAX_WORD, EndlessWords
from sandbox_kernel.policy.verdict import Notes
from tests.support.examples import examples
from tests.support.policy.messages import message as message_of

PIECES = ["a", "\n", "\x1b", "[", "3", "1", "m", "\x1b[31m", "\x85", "é", "ж", "ก", "\u0301", "\ud800", "\x07"]
TEXT = st.lists(st.sampled_from(PIECES)).map("".join)


def nested(depth: int) -> Any:
    value: Any = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_json_that_is_plain_is_the_very_same() -> None:
    value: dict[str, Any] = {"a": [1, 2.5, None, True, "x", {"b": []}], "c": {}}
    assert plain(value) is value
    assert mime._texts(value) is value  # noqa: SLF001 (the filter itself)


@pytest.mark.parametrize("key", ["__proto__", "constructor", "prototype"])
def test_a_poisonous_key_is_found_at_each_depth(key: str) -> None:
    assert plain([{"a": [{key: 1, "b": 2}]}]) == [{"a": [{"b": 2}]}]


def test_a_tree_may_be_so_deep_and_no_deeper() -> None:
    assert plain(nested(MAX_DEPTH)) == nested(MAX_DEPTH)
    with pytest.raises(NotPlainError):
        plain(nested(MAX_DEPTH + 1))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), b"x", {1: 2}, {"a": {2: 3}}, [object()]])
def test_what_json_has_not_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        plain([[1, value]])


@examples(200)
@given(st.recursive(TEXT, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3)))
def test_texts_of_json_are_cleaned_each_by_itself(value: Any) -> None:
    def each(one: Any) -> Any:
        if isinstance(one, str):
            return terminal.clean(one)
        if isinstance(one, dict):
            return {terminal.clean(key): each(item) for key, item in one.items()}
        return [each(item) for item in one]

    assert mime._texts(value) == each(value)  # noqa: SLF001


@examples(200)
@given(TEXT)
def test_no_control_is_taken_for_plain_whatever_is_around_it(text: str) -> None:
    controls = [one for one in text if one != "\n" and (ord(one) < 0x20 or one in "\x85\ud800")]
    assert terminal.is_plain(text) == (not controls)


@pytest.mark.parametrize(("between", "parts"), [("é b", False), ("é\u200b", False), ("é", True), ("éa", True)])
def test_only_a_space_ends_an_endless_word(between: str, parts: bool) -> None:
    words = EndlessWords()
    shown = words.feed("ก" * (MAX_WORD - 1)) + words.feed(between) + words.feed("ก" * 2)
    assert (shown != "ก" * (MAX_WORD - 1) + between + "ก" * 2) == parts


def data_frame(rows: list[list[str]], names: list[str], shape: str = "") -> str:
    """Return a table as `DataFrame._repr_html_` of pandas writes it; each row begins with its label."""
    sheet = """<style scoped>
    .dataframe tbody tr th:only-of-type {
        vertical-align: middle;
    }

    .dataframe tbody tr th {
        vertical-align: top;
    }

    .dataframe thead th {
        text-align: right;
    }
</style>
"""

    def cells(kind: str, texts: list[str]) -> str:
        return "".join(f"      <{kind}>{text}</{kind}>\n" for text in texts)

    head = f'    <tr style="text-align: right;">\n{cells("th", ["", *names])}    </tr>\n'
    body = "".join(f"    <tr>\n{cells('th', row[:1])}{cells('td', row[1:])}    </tr>\n" for row in rows)
    table = (
        f'<table border="1" class="dataframe">\n  <thead>\n{head}  </thead>\n  <tbody>\n{body}  </tbody>\n</table>\n'
    )
    return f"<div>\n{sheet}{table}{shape}</div>"


HOSTILE = [
    *(
        "<script>",
        "<td onclick=x>",
        "</table>",
        "<img src=x>",
        "<!--",
        "</tr>",
        "<th>",
        ' id="a"',
        "<",
        ">",
        "&",
        "&lt;",
    ),
    *(
        "&#8232;",
        "&nbsp;",
        "$x$",
        "\\(",
        "\n\n",
        "\r",
        "\x0b",
        "\x00",
        "\ud800",
        "\u2028",
        "é",
        "א",
        "ก" * 80,
        "style",
        "  ",
    ),
]
FRAME = data_frame([["0", "1.5", "a &lt;b&gt; &amp; 'c'"], ["1", "", 'x="y" {z}']], ["n", "text"])


def shown(source: str, monkeypatch: pytest.MonkeyPatch, *, quick: bool) -> tuple[str, Notes]:
    notes = Notes()
    with monkeypatch.context() as patch:
        if not quick:
            patch.setattr(html, "_is_plain_frame", lambda source, notes: False)
        return html.render(source, notes, frames=True), notes


@pytest.mark.parametrize("shape", ["", "<p>2 rows \xd7 2 columns</p>\n"])
def test_a_table_of_pandas_is_known_and_counted_as_the_sanitiser_would(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = data_frame([[str(row), *map(str, range(30))] for row in range(40)], [f"c{n}" for n in range(30)], shape)
    assert html._is_plain_frame(source, Notes())  # noqa: SLF001 (that the quick look is tried at all)
    (quick, notes), (slow, others) = (shown(source, monkeypatch, quick=quick) for quick in (True, False))
    assert quick == slow == source
    assert abs(notes.work - others.work) < 10


@pytest.mark.parametrize(
    "rows",
    [[["1"] * 11] * 5_000, [["1"] * 51_000], [["1"]] * 51_000, [["1"] * 500, *[["1"]] * 5_000], [["0", "x" * 600_000]]],
    ids=["many cells", "a long row", "many rows", "places without cells", "letters"],
)
def test_a_table_of_pandas_that_a_page_does_not_bear_is_left_to_the_sanitiser(rows: list[list[str]]) -> None:
    assert not html._is_plain_frame(data_frame(rows, ["a"]), Notes())  # noqa: SLF001
    assert html._is_plain_frame(data_frame(rows[-10:-1], ["a"]), Notes())  # noqa: SLF001


@examples(400)
@given(st.integers(0, len(FRAME)), st.integers(0, 30), st.lists(st.sampled_from(HOSTILE), max_size=3).map("".join))
def test_a_table_that_somebody_changed_is_shown_as_the_sanitiser_shows_it(start: int, taken: int, added: str) -> None:
    source = FRAME[:start] + added + FRAME[start + taken :]
    with pytest.MonkeyPatch.context() as patch:
        (quick, notes), (slow, others) = (shown(source, patch, quick=quick) for quick in (True, False))
    assert quick == slow
    assert list(notes) == list(others)


IN_ORDER: dict[str, dict[str, Any]] = {
    "execute_result": {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}, "execution_count": 1},
    "display_data": {"data": {"text/plain": "x"}, "metadata": {}, "transient": {}},
    "execute_input": {"code": "x", "execution_count": 1},
    "execute_reply": {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": []},
}
"""What passes at a look, by its type."""
ODD = st.sampled_from([None, True, False, 0, -1, 1.5, 1 << 40, "", "<b>", [], [1], {}, {"__proto__": 1}, {"a": "\x1b"}])


@pytest.mark.parametrize("kind", IN_ORDER)
@pytest.mark.parametrize("mode", ["safe", "strict"])
@examples(200)
@given(data=st.data())
def test_a_message_that_passes_at_a_look_is_what_the_filter_makes_of_it(
    kind: str, mode: OutputMode, data: st.DataObject
) -> None:
    content = copy.deepcopy(IN_ORDER[kind])
    names = st.lists(st.sampled_from([*content, "other", "text/plain"]), max_size=2)
    for name in data.draw(names):
        inside = content.get("data") if name == "text/plain" else content
        if isinstance(inside, dict):
            inside[name] = copy.deepcopy(data.draw(ODD))
    header = {"msg_id": "m1", "msg_type": kind}
    parts = [json.dumps(part).encode() for part in (header, {"msg_id": "c1"}, {}, content)]
    try:
        message = protocol.decode(wire.SHELL if kind == "execute_reply" else wire.IOPUB, parts)
    except ProtocolError:
        return  # it does not come so far
    at_a_look = OutputPolicy(mode).apply(message).message
    filtered = OutputPolicy(mode).apply(dataclasses.replace(message, plain=False)).message
    assert repr(at_a_look) == repr(filtered).replace("plain=False", f"plain={message.plain}")


@pytest.mark.parametrize("kind", IN_ORDER)
def test_what_passes_at_a_look_is_not_even_copied(kind: str) -> None:
    sent = dataclasses.replace(message_of(kind, IN_ORDER[kind]), plain=True)
    assert OutputPolicy("safe").apply(sent).message is sent
