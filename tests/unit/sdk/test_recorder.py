"""What the SDK makes of a cell's messages has its form, whatever a kernel says, also with `outputs = trusted`."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.model import Message
from sandbox_kernel.policy.json_check import MAX_WRITTEN
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.protocol import dumps
from sandbox_kernel.sdk.execution import Execution, ExecutionRecorder
from tests.support.policy.messages import display, message

ODD: list[Any] = [None, True, -1, 1.5, 1 << 40, "a", [1], [None], {}, {"a": 1}]


def recorded(*sent: Message) -> Execution:
    recorder, policy = ExecutionRecorder(""), OutputPolicy("trusted")
    for one in sent:
        if (passed := policy.apply(one).message) is not None:
            list(recorder.take(passed, None))
    return recorder.execution


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_a_display_of_an_odd_name_has_none(odd: Any) -> None:
    update = message("update_display_data", {"data": {}, "metadata": {}, "transient": {"display_id": "x"}})
    done = recorded(display({"text/plain": "1"}, transient={"display_id": odd}), update)
    assert done.results[0].display_id == (odd if isinstance(odd, str) else None)
    assert done.results[0].text == "1"


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_an_odd_reply_is_read_as_far_as_it_has_its_form(odd: Any) -> None:
    content = {"status": "error", "ename": "E", "evalue": "v", "traceback": odd, "execution_count": odd}
    done = recorded(message("execute_reply", content, channel="shell"))
    assert done.execution_count is None
    assert done.error is not None
    assert (done.error.name, done.error.value) == ("E", "v")
    assert done.error.traceback == ("\n".join(map(str, odd)) if isinstance(odd, list) else "")


def nested(levels: int) -> Any:
    value: Any = 1
    for level in range(levels):
        value = [value] if level % 2 else {"a": value}
    return value


def test_json_that_is_too_deep_to_be_written_again_does_not_pass_in_any_mode() -> None:
    """Whoever reads it once more would recurse: the recorder, a notebook, a front end."""
    deepest = display({"application/json": nested(MAX_WRITTEN - 2)})
    assert dumps(OutputPolicy("trusted").apply(deepest).message.content)  # type: ignore[union-attr]
    assert recorded(deepest).to_json()
    for mode in ("safe", "strict", "trusted"):
        for sent in (
            message("comm_msg", {"comm_id": "c", "data": {"state": nested(900)}}),
            display({}, metadata=nested(MAX_WRITTEN)),
        ):
            verdict = OutputPolicy(mode).apply(sent)
            assert verdict.message is None or mode != "trusted"
            assert verdict.message is None or dumps(verdict.message.content)
