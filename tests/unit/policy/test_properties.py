"""Whatever a container sends, the policy answers: it never raises, and filtering twice is filtering once."""

# ruff: noqa: E501 (tables of words)

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.model import Limits, Message
from sandbox_kernel.policy import replies, terminal
from sandbox_kernel.policy.budget import CellBudget
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support.examples import examples
from tests.support.policy.check import faults
from tests.support.policy.hostile import HTML, MARKDOWN
from tests.support.policy.messages import display, model, update

pytestmark = pytest.mark.slow

KINDS = [
    *OutputPolicy("safe").types,
    *replies.REPLIES,
    "unknown",
]
KEYS = [
    "data", "metadata", "transient", "display_id", "text/html", "text/plain", "text/markdown", "text/latex", "image/png",
    "image/svg+xml", "application/json", "application/vnd.jupyter.widget-view+json", "model_id", "name", "text", "comm_id",
    "target_name", "state", "_model_name", "_model_module", "_view_module", "buffer_paths", "method", "update", "states",
    "content", "payload", "source", "user_expressions", "status", "matches", "_jupyter_types_experimental", "help_links", "url",
    "ename", "traceback", "outputs", "output_type", "prompt", "echo", "body", "value", "format", "target", "msg_id",
    "_dom_classes", "__proto__", "history", "indent", "wait", "execution_count",
]  # fmt: skip
WORDS = [*KEYS, "stdout", "jupyter.widget", "@jupyter-widgets/base", "HTMLModel", "LinkModel", "OutputModel", "display_data", "page", "error", "ok", "c"]  # fmt: skip
TEXT = st.one_of(
    st.sampled_from(WORDS),
    st.sampled_from([*HTML.values(), *MARKDOWN.values()]),
    st.text(st.characters(), max_size=30),
    st.text(st.sampled_from("<>/='\"&;:#!-\x1b[]\\$`_*{}()abAm0\n \x00\ud800"), max_size=40),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXT), inner, max_size=5),
    ),
    max_leaves=20,
)
OBJECTS = st.dictionaries(st.one_of(st.sampled_from(KEYS), TEXT), JSON, max_size=6)


@examples(400)
@given(
    st.sampled_from(KINDS),
    st.sampled_from(["iopub", "shell", "control", "stdin"]),
    OBJECTS,
    OBJECTS,
    st.sampled_from(["safe", "strict"]),
)
def test_the_policy_answers_anything(kind: str, channel: Any, content: Any, metadata: Any, mode: Any) -> None:
    policy = OutputPolicy(mode)
    policy.apply(model("c", "HTMLModel"))
    sent = Message(
        channel=channel,
        header={"msg_type": kind, "msg_id": "1"},
        parent={"msg_id": "p"},
        metadata=metadata,
        content=content,
    )
    verdict = policy.apply(sent)
    policy.observe(sent)
    assert all(isinstance(note, str) and len(note) <= 160 for note in verdict.reasons)
    assert verdict.message is not None or verdict.reasons


@examples(300)
@given(st.dictionaries(st.sampled_from([key for key in KEYS if "/" in key]), TEXT, min_size=1, max_size=3))
def test_a_display_is_inert_and_stays_as_it_is(data: dict[str, str]) -> None:
    policy = OutputPolicy("safe")
    once = policy.apply(display(data)).message
    assert once is not None
    assert faults(once.content["data"].get("text/html", "")) == []
    again = policy.apply(once).message
    assert again is not None
    assert again.content == once.content


@examples(200)
@given(st.lists(TEXT, min_size=2, max_size=4).map("".join))
def test_markup_of_any_kind_is_inert(source: str) -> None:
    policy = OutputPolicy("safe")
    policy.apply(model("c", "HTMLModel"))
    for sent in (display({"text/html": source}), display({"text/markdown": source}), update("c", value=source)):
        message = policy.apply(sent).message
        assert message is not None
        found = message.content["data"].get("text/html") or message.content["data"].get("state", {}).get("value", "")
        assert faults(found) == []


@examples()
@given(st.lists(st.text(st.sampled_from("\x1b[]0;31mKAJ\x07\\\x9bP_ab\n\r"), max_size=12), max_size=6))
def test_no_cut_of_a_text_lets_another_sequence_through(texts: list[str]) -> None:
    screen = terminal.Screen()
    shown = "".join(screen.feed("stdout", "c", text) for text in texts)
    rest = shown
    for allowed in (r"\x1b\[[0-9;:]*m", r"\x1b\[[0-2]?K", r"\x1b\[[0-9]*A"):
        rest = re.sub(allowed, "", rest)
    assert "\x1b" not in rest
    assert "\x9b" not in rest


@examples()
@given(st.lists(st.integers(0, 3000), max_size=50), st.integers(1, 10_000), st.integers(1, 20), st.integers(1, 2000))
def test_a_budget_is_never_passed_and_never_opens_again(
    sizes: list[int], max_bytes: int, max_messages: int, max_message: int
) -> None:
    budget = CellBudget(Limits(output_limit=max_bytes, output_messages=max_messages, message_limit=max_message))
    allowed = [budget.charge(size) for size in sizes]
    passed = [size for size, good in zip(sizes, allowed, strict=True) if good]
    assert sum(passed) <= max_bytes
    assert len(passed) <= max_messages
    assert all(size <= max_message for size in passed)
    assert allowed == sorted(allowed, reverse=True)
