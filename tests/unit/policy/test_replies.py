"""Replies carry answers; none makes a front end act."""

# ruff: noqa: E501 (a message reads best on one line)

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.model import Message
from sandbox_kernel.policy.output_policy import OutputPolicy
from sandbox_kernel.policy.replies import MAX_LISTED
from tests.support.cases import each
from tests.support.policy.check import faults
from tests.support.policy.messages import message


def replied(kind: str, asked: dict[str, Any] | None = None, **content: Any) -> dict[str, Any]:
    verdict = OutputPolicy("safe").apply(message(kind, {"status": "ok", **content}, channel="shell"), asked=asked)
    assert verdict.message is not None
    return dict(verdict.message.content)


HONEST: list[tuple[str, dict[str, Any]]] = [
    ("execute_reply", {"execution_count": 3, "payload": [], "user_expressions": {}}),
    ("execute_reply", {"execution_count": 3, "payload": [{"source": "page", "data": {"text/plain": "x"}, "start": 0}], "user_expressions": {}}),
    ("inspect_reply", {"found": True, "data": {"text/plain": "\x1b[31mx\x1b[0m"}, "metadata": {}}),
    ("is_complete_reply", {"status": "incomplete", "indent": "    "}),
    ("complete_reply", {
        "matches": ["df.head", "%%time"], "cursor_start": 0, "cursor_end": 4,
        "metadata": {"_jupyter_types_experimental": [{"start": 0, "end": 4, "text": "df.head", "type": "function", "signature": "(n)"}]},
    }),
    ("history_reply", {"history": [[1, 2, "x = 1"], [1, 3, ["y", None]]]}),
    ("kernel_info_reply", {"protocol_version": "5.4", "banner": "Python\nIPython", "language_info": {"name": "python", "codemirror_mode": {"name": "ipython", "version": 3}}, "help_links": [{"text": "Python", "url": "https://docs.python.org/3"}], "debugger": True}),
    ("comm_info_reply", {"comms": {"a": {"target_name": "jupyter.widget"}}}),
    ("usage_reply", {"hostname": "x", "pid": 3, "kernel_cpu": 0.5, "kernel_memory": 100, "host_virtual_memory": {"total": 1}}),
    ("debug_reply", {"type": "response", "request_seq": 1, "success": True, "command": "variables", "body": {"variables": [{"name": "x", "value": "1", "variablesReference": 0}]}}),
    ("shutdown_reply", {"restart": False}),
    ("interrupt_reply", {}),
    ("create_subshell_reply", {"subshell_id": "a"}),
]  # fmt: skip


@each(("kind", "content"), HONEST)
def test_an_honest_reply_is_the_same_message(kind: str, content: dict[str, Any]) -> None:
    sent = message(kind, {"status": "ok", **content}, channel="shell")
    verdict = OutputPolicy("safe").apply(sent, asked={"code": "df.h", "cursor_pos": 4})
    assert verdict.message is sent
    assert verdict.reasons == ()


@each(
    "payload",
    [
        {"source": "set_next_input", "text": "import os; os.system('x')", "replace": True},
        {"source": "set_next_input", "text": "x", "replace": False},
        {"source": "ask_exit", "keepkernel": False},
        {"source": "ask_exit"},
        {"source": "edit_magic", "filename": "/etc/passwd", "line_number": 1},
        {"source": "edit", "filename": "x"},
        {"source": "page", "data": {"text/html": "<script>x</script>"}},
        {"source": "load_next"},
        {},
        "page",
        None,
        ["page"],
    ],
)
def test_a_payload_that_acts_is_dropped(payload: Any) -> None:
    assert replied("execute_reply", execution_count=1, payload=[payload], user_expressions={})["payload"] == []


def test_the_pager_shows_text_only() -> None:
    page = {"source": "page", "data": {"text/plain": "x\x1b]0;t\x07", "text/html": "<script>x</script>"}, "start": 0}
    reply = replied("execute_reply", execution_count=1, payload=[page], user_expressions={})
    assert reply["payload"] == [{"source": "page", "data": {"text/plain": "x"}, "start": 0}]


@pytest.mark.parametrize("mode", ["safe", "strict"])
def test_bundles_in_replies_are_filtered_and_hold_no_frame(mode: Any) -> None:
    bundle = {"data": {"text/plain": "x", "text/html": "<script>x</script><b onclick=x>y</b>"}, "metadata": {}}
    policy = OutputPolicy(mode)
    expressions = {"user_expressions": {"a": {"status": "ok", **bundle}}, "execution_count": 1, "payload": []}
    execute = policy.apply(message("execute_reply", {"status": "ok", **expressions}, channel="shell")).message
    inspect = policy.apply(message("inspect_reply", {"status": "ok", "found": True, **bundle}, channel="shell")).message
    debug = policy.apply(message("debug_reply", {"success": True, "body": bundle}, channel="control")).message
    assert execute
    assert inspect
    assert debug
    for data in (
        execute.content["user_expressions"]["a"]["data"],
        inspect.content["data"],
        debug.content["body"]["data"],
    ):
        assert data["text/html"] == "<b>y</b>"
        assert faults(data["text/html"], frames=False) == []


@pytest.mark.parametrize(
    "match", ["a\nimport os", "a\x00", "a\u202eb", "a\x1b[31m", "a" * 5000, 1, None, {"text": "a"}]
)
def test_a_completion_inserts_what_it_shows(match: Any) -> None:
    types = {"_jupyter_types_experimental": [{"text": "ok", "type": "<img src=x>", "icon": "x"}, {"text": match}]}
    asked = {"code": "o", "cursor_pos": 1}
    reply = replied("complete_reply", asked, matches=["ok", match], cursor_start=0, cursor_end=1, metadata=types)
    assert reply["matches"] == ["ok"]
    assert reply["metadata"] == {"_jupyter_types_experimental": [{"text": "ok"}]}


BAD = "__import__('os').system('x')"


@pytest.mark.parametrize(
    "types",
    [
        [{"text": BAD, "start": 0, "end": 1, "type": "function", "signature": "(n)"}],
        [{"text": BAD}, {"text": "df.head"}],
        [{"text": "df.tail"}, {"text": BAD}, {"text": BAD}],
        [{"text": None}, {"text": [BAD]}],
        [None, BAD, {}],
        {"0": {"text": BAD}},
    ],
)
@pytest.mark.parametrize("matches", [["df.head", "df.tail"], ["df.head", "a\nb", "df.tail"], ["a\nb", "df.head"]])
def test_the_text_of_a_completions_type_is_what_is_shown(matches: list[str], types: Any) -> None:
    """JupyterLab inserts the text of the type with the index of the line that a person chose."""
    asked = {"code": "df.", "cursor_pos": 3}
    metadata = {"_jupyter_types_experimental": types}
    reply = replied("complete_reply", asked, matches=matches, cursor_start=0, cursor_end=3, metadata=metadata)
    kept = reply["metadata"].get("_jupyter_types_experimental", [])
    assert reply["matches"]
    assert [one["text"] for one in kept] == reply["matches"][: len(kept)]
    assert all((one.get("start", 0), one.get("end", 3)) == (0, 3) for one in kept)


@pytest.mark.parametrize(
    ("code", "start", "end"),
    [
        ("import os\nx = df.he|", 0, 20),
        ("import os\nx = df.he|", 9, 20),
        ("import os\nx = df.he|", 13, 20),
        ("import os\rdf.he|", 9, 15),
        ("df.he|\nprint(1)", 0, 6),
        ("df.he| + 1", 0, 6),
        ("df.he|.name", 0, 6),
        ("df.he|", 0, 4),
        ("df.he|", 6, 5),
        ("df.he|", -1, 5),
        ("df.he|", "0", 5),
        ("df.he|", None, None),
        ("df.he|", True, 5),
        ("x = 'a b'; df.he|", 4, 16),
    ],
)
def test_a_completion_replaces_the_word_at_the_cursor_only(code: str, start: Any, end: Any) -> None:
    asked = {"code": code.replace("|", ""), "cursor_pos": code.index("|")}
    reply = replied("complete_reply", asked, matches=["df.head"], cursor_start=start, cursor_end=end, metadata={})
    assert reply["matches"] == []
    assert reply["cursor_start"] == reply["cursor_end"] == asked["cursor_pos"]


@pytest.mark.parametrize(
    ("code", "start", "end"),
    [
        ("import os\nx = df.he|", 14, 19),
        ("import os\nx = df.he|", 17, 19),
        ("df.he|ad + 1", 3, 7),
        ("df['my colu|", 4, 11),
        ("df['my colu|", 3, 11),
        ("open('my dir/fi|", 5, 15),
        ("cat `my dir/fi|", 4, 14),
        ("%%ti|", 0, 4),
        ("%run a/b.p|", 5, 10),
        ("\\alph|", 0, 5),
        ("größe.na|", 6, 8),
        ("|", 0, 0),
    ],
)
def test_control_the_range_of_an_honest_completion_stays(code: str, start: int, end: int) -> None:
    asked = {"code": code.replace("|", ""), "cursor_pos": code.index("|")}
    reply = replied("complete_reply", asked, matches=["x"], cursor_start=start, cursor_end=end, metadata={})
    assert reply == {"status": "ok", "matches": ["x"], "cursor_start": start, "cursor_end": end, "metadata": {}}


def test_no_completion_replaces_anything_if_the_question_is_not_known() -> None:
    assert replied("complete_reply", matches=["x"], cursor_start=0, cursor_end=1, metadata={})["matches"] == []


def test_the_cursor_of_a_request_without_one_is_at_the_end() -> None:
    reply = replied("complete_reply", {"code": "df.he"}, matches=["x"], cursor_start=3, cursor_end=5, metadata={})
    assert reply["matches"] == ["x"]


@pytest.mark.parametrize("code", ["a\x00b", "x = 1 \u202e# y", "a\x1b[8mb", ["x", "y", "z"], 3, None, {"a": 1}])
def test_an_input_of_the_history_reads_as_it_is(code: Any) -> None:
    """A console puts it at the prompt, where a person runs it."""
    entries = [[0, 1, "x = 1\n\ty"], [0, 2, code], [0, 3, [code, None]], "x", [0, 4]]
    assert replied("history_reply", history=entries)["history"] == [[0, 1, "x = 1\n\ty"]]


@pytest.mark.parametrize(
    "url", ["javascript:x", "JAVASCRIPT:x", " https://a.test", "data:text/html,x", "/lab", "file:///etc", 1]
)
def test_help_links_lead_to_web_pages_only(url: Any) -> None:
    reply = replied(
        "kernel_info_reply", help_links=[{"text": "x", "url": url}, {"text": "y", "url": "https://a.test/y"}]
    )
    assert reply["help_links"] == [{"text": "y", "url": "https://a.test/y"}]


def test_an_unknown_type_passes_as_a_reply_and_not_as_an_output() -> None:
    sent = message("new_reply", {"a": [1, "x"]}, channel="shell")
    assert OutputPolicy("safe").apply(sent).message is sent
    verdict = OutputPolicy("safe").apply(message("new_output", {"data": {"text/html": "x"}}))
    assert verdict.message is None
    assert verdict.reasons == ("dropped new_output: not a type that is shown",)


@pytest.mark.parametrize(
    "kind", ["status", "execute_input", "debug_event", "history_reply", "new_reply", "kernel_info_reply"]
)
def test_a_bottomless_message_is_dropped(kind: str) -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = [deep]
    verdict = OutputPolicy("safe").apply(message(kind, {"a": deep}, channel="shell"))
    assert verdict.message is None
    assert "nested deeper" in verdict.reasons[0]


def test_metadata_and_buffers_that_have_no_use_go() -> None:
    sent = message("status", {"execution_state": "idle"}, metadata={"status": "ok", "x": {"y": 1}}, buffers=(b"x",))
    verdict = OutputPolicy("safe").apply(sent)
    assert isinstance(verdict.message, Message)
    assert verdict.message.metadata == {"status": "ok"}
    assert verdict.message.buffers == ()


@pytest.mark.parametrize("count", [True, -1, 1 << 31, 1 << 63])
def test_the_number_of_a_cell_is_one(count: int) -> None:
    """With any other a notebook is not valid."""
    reply = OutputPolicy("safe").apply(
        message("execute_reply", {"status": "ok", "execution_count": count}, channel="shell")
    )
    result = OutputPolicy("safe").apply(
        message("execute_result", {"data": {"text/html": "<b>x</b>"}, "metadata": {}, "execution_count": count})
    )
    assert result.message is not None
    assert reply.message is not None
    assert reply.message.content["execution_count"] is None
    assert result.message.content["execution_count"] is None


def test_control_a_number_of_a_cell_stays() -> None:
    sent = message("execute_reply", {"status": "ok", "execution_count": 7}, channel="shell")
    assert OutputPolicy("safe").apply(sent).message.content["execution_count"] == 7  # type: ignore[union-attr]


@pytest.mark.parametrize(("display_id", "kept"), [("a b", True), ("\x1b]0;x\x07", False), ("a\nb", False), ("", False)])
def test_the_id_of_a_display_can_be_printed(display_id: str, kept: bool) -> None:
    content = {"data": {"text/html": "<b>x</b>"}, "metadata": {}, "transient": {"display_id": display_id}}
    result = OutputPolicy("safe").apply(message("display_data", content)).message
    assert result is not None
    assert (result.content["transient"] == {"display_id": display_id}) is kept


# --- the debugger's panel, which draws each item of a list ---------------------------------------------------------------


@pytest.mark.slow
@each(
    "body",
    [
        {"variables": [{"name": f"x{number}", "value": "1"} for number in range(100_000)]},
        {"stackFrames": [{"id": number, "name": "f", "line": 1, "column": 1} for number in range(100_000)]},
        {"breakpoints": [{"source": "a", "breakpoints": [{"line": 1}] * 500}] * 500},
        {"stoppedThreads": list(range(100_000)), "breakpoints": []},
    ],
)
@each("kind", ["debug_reply", "debug_event"])
def test_a_debugger_s_answer_has_no_more_items_than_its_panel_draws(kind: str, body: dict[str, Any]) -> None:
    """The class: every list of every answer and event, in whatever depth, from one count; not the lists known by name."""
    said = {"type": "response", "request_seq": 1, "success": True, "command": "variables", "body": body}
    event = {"type": "event", "seq": 1, "event": "stopped", "body": body}
    sent = message(
        kind, said if kind == "debug_reply" else event, channel="shell" if kind == "debug_reply" else "iopub"
    )
    verdict = OutputPolicy("safe").apply(sent)
    assert verdict.message is not None
    assert 0 < items(verdict.message.content) <= MAX_LISTED
    assert [note.code.code for note in verdict.notes] == ["debugger-items"]
    assert items(sent.content) > 20 * MAX_LISTED


def test_control_a_debugger_s_answer_that_fits_is_the_same_message() -> None:
    body = {"variables": [{"name": f"x{n}", "value": "1", "variablesReference": 0} for n in range(MAX_LISTED)]}
    sent = message("debug_reply", {"type": "response", "success": True, "body": body}, channel="shell")
    verdict = OutputPolicy("safe").apply(sent)
    assert verdict.message is sent
    assert verdict.reasons == ()


def items(value: Any) -> int:
    """Return how many items all lists in a tree have."""
    if isinstance(value, dict):
        return sum(map(items, value.values()))
    if isinstance(value, (list, tuple)):
        return len(value) + sum(map(items, value))
    return 0
