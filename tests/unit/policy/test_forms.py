"""Whatever a kernel sends, what a front end gets has the form that the protocol of Jupyter gives it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import ProtocolError
from sandbox_kernel.policy import protocol
from sandbox_kernel.policy.budget import MAX_COMMS
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.examples import examples
from tests.support.policy.messages import message

Check = Callable[[Any], bool]


def number(value: Any) -> bool:
    return type(value) is int and 0 <= value < 1 << 31


def flag(value: Any) -> bool:
    return isinstance(value, bool) or value == 0


def text(value: Any) -> bool:
    return isinstance(value, str)


def texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(text, value))


def bundle(value: Any) -> bool:
    return isinstance(value, dict) and all(map(text, value.values()))


def objects(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, dict) for one in value)


def mapping(value: Any) -> bool:
    return isinstance(value, dict)


def comms(value: Any) -> bool:
    return isinstance(value, dict) and all(one.keys() == {"target_name"} and bundle(one) for one in value.values())


def entries(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, list) and len(one) == 3 for one in value)


def pages(value: Any) -> bool:
    return objects(value) and all(number(one["start"]) or one["start"] == 0 for one in value)


FAILURE: dict[str, Check] = {"status": text, "ename": text, "evalue": text, "traceback": texts}
DISPLAY: dict[str, Check] = {"data": bundle, "metadata": mapping, "transient": bundle}
FORMS: dict[str, dict[str, Check]] = {
    "execute_result": {**DISPLAY, "execution_count": lambda value: value is None or number(value)},
    "display_data": DISPLAY,
    "stream": {"name": text, "text": text},
    "error": {"ename": text, "evalue": text, "traceback": texts},
    "clear_output": {"wait": flag},
    "input_request": {"prompt": text, "password": flag},
    "execute_reply": {
        **FAILURE,
        "execution_count": lambda value: value is None or number(value),
        "payload": pages,
        "user_expressions": mapping,
    },
    "complete_reply": {**FAILURE, "matches": texts, "cursor_start": number, "cursor_end": number, "metadata": mapping},
    "inspect_reply": {**FAILURE, "found": flag, "data": bundle, "metadata": mapping},
    "history_reply": {**FAILURE, "history": entries},
    "is_complete_reply": {"status": text, "indent": text},
    "comm_info_reply": {**FAILURE, "comms": comms},
    "create_subshell_reply": {**FAILURE, "subshell_id": text},
    "delete_subshell_reply": FAILURE,
    "list_subshell_reply": {**FAILURE, "subshell_id": texts},
}
IN_ORDER: dict[str, dict[str, Any]] = {
    "execute_result": {"data": {"text/plain": "x"}, "metadata": {}, "execution_count": 1, "transient": {}},
    "display_data": {
        "data": {"text/plain": "x", "text/html": "<b>x</b>"},
        "metadata": {"text/html": {}},
        "transient": {"display_id": "a"},
    },
    "stream": {"name": "stdout", "text": "a"},
    "error": {"ename": "a", "evalue": "b", "traceback": ["c"]},
    "clear_output": {"wait": True},
    "input_request": {"prompt": "a", "password": False},
    "execute_reply": {
        "status": "ok",
        "execution_count": 1,
        "payload": [{"source": "page", "data": {"text/plain": "x"}, "start": 0}],
        "user_expressions": {"a": {"status": "ok", "data": {"text/plain": "1"}, "metadata": {}}},
    },
    "complete_reply": {
        "status": "ok",
        "matches": ["a"],
        "cursor_start": 0,
        "cursor_end": 0,
        "metadata": {"_jupyter_types_experimental": [{"text": "a", "type": "b", "start": 0, "end": 0}]},
    },
    "inspect_reply": {"status": "ok", "found": True, "data": {"text/plain": "x"}, "metadata": {}},
    "history_reply": {"status": "ok", "history": [[0, 1, "a"]]},
    "is_complete_reply": {"status": "incomplete", "indent": " "},
    "comm_info_reply": {"status": "ok", "comms": {"a": {"target_name": "x"}}},
    "create_subshell_reply": {"status": "ok", "subshell_id": "a"},
    "delete_subshell_reply": {"status": "ok"},
    "list_subshell_reply": {"status": "ok", "subshell_id": ["a"]},
}
# fmt: off
ODD: list[Any] = [
    None, True, False, 0, -1, 1.5, 1 << 40, "", "<b>", "error", [], [1], [None], ["a", 1], [[1]], [{}], {}, {"a": 1},
    {"a": None}, {"a": {}}, {"a": []}, {"__proto__": 1},
]
# fmt: on


def places(value: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the way to each value within some JSON."""
    inside = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inside:
        yield (*place, key)
        yield from places(one, (*place, key))


@pytest.mark.parametrize("kind", FORMS)
@examples(200)
@given(data=st.data())
def test_what_leaves_has_the_form_of_its_type(kind: str, data: st.DataObject) -> None:
    content = copy.deepcopy(IN_ORDER[kind])
    for *way, last in data.draw(st.lists(st.sampled_from([*places(content)]), min_size=1, max_size=2, unique=True)):
        inside = content
        try:
            for key in way:
                inside = inside[key]
            inside[last] = copy.deepcopy(data.draw(st.sampled_from(ODD)))
        except (TypeError, KeyError, IndexError):
            continue  # the first change took the place of the second away
    channel = wire.SHELL if kind.endswith("_reply") else wire.STDIN if kind == "input_request" else wire.IOPUB
    parts = [json.dumps(part).encode() for part in ({"msg_id": "m", "msg_type": kind}, {"msg_id": "c"}, {}, content)]
    try:
        sent = protocol.decode(channel, parts)
    except ProtocolError:
        return
    passed = OutputPolicy("safe").apply(sent, asked={"code": "", "cursor_pos": 0}).message
    if passed is None:
        return
    improper = {name: value for name, value in passed.content.items() if not FORMS[kind][name](value)}
    assert not improper


def test_a_list_of_comms_is_no_longer_than_there_may_be_comms() -> None:
    """A widget manager asks the kernel about each at once."""
    listed = {f"c{number}": {"target_name": "jupyter.widget"} for number in range(2 * MAX_COMMS)}
    verdict = OutputPolicy("safe").apply(message("comm_info_reply", {"status": "ok", "comms": listed}, channel="shell"))
    assert verdict.message is not None
    assert len(verdict.message.content["comms"]) == MAX_COMMS
    assert [note.code.name for note in verdict.notes] == ["COMMS_LISTED"]


@pytest.mark.parametrize("start", [True, -1, 1 << 40, 1.5, "1", [1], None])
def test_a_pager_begins_at_a_line(start: Any) -> None:
    payload = {"source": "page", "data": {"text/plain": "x"}, "start": start}
    sent = message("execute_reply", {"status": "ok", "payload": [payload, {**payload, "start": 3}]}, channel="shell")
    passed = OutputPolicy("safe").apply(sent).message
    assert passed is not None
    assert [one["start"] for one in passed.content["payload"]] == [0, 3]
    assert type(passed.content["payload"][0]["start"]) is int
