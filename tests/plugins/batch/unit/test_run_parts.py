"""The parts of a batch run by themselves: reading, rules, reports, outputs; no engine."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import nbformat
import pytest
from papermill.cli import _resolve_type

from sandbox_kernel.core.behaviour import Observation
from sandbox_kernel.core.codes import FileCode, MessageCode, Note, OutputCode
from sandbox_kernel.core.errors import (
    AttestationFailed,
    CellTimeout,
    ConfigurationError,
    EngineUnavailable,
    FileRefused,
    ImageMissing,
    KernelDied,
    SandboxClosed,
    SandboxDied,
    SandboxError,
)
from sandbox_kernel.core.events import FileNotTransferred, MessageDropped, OutputRemoved, RuleMet, SandboxAttested
from sandbox_kernel.core.model import Message
from sandbox_kernel.files.file_rules import FileLimits, check_downloaded_name
from sandbox_kernel.files.host_paths import fetch, open_folder
from sandbox_kernel.plugins.batch import input_files, policy_events, run_report, source_notebook
from sandbox_kernel.plugins.batch.command import Stopped, Stopper
from sandbox_kernel.plugins.batch.executed_notebook import Outputs, sizes
from sandbox_kernel.plugins.batch.exit_codes import End, decide, kind_of, of_error
from sandbox_kernel.plugins.batch.output_stream import MAX_KEPT, OutputStream
from sandbox_kernel.plugins.batch.policy_events import Events, classify
from sandbox_kernel.plugins.batch.progress import RunProgress
from sandbox_kernel.plugins.batch.run_report import CellRecord, OutputFile, RunFailure, RunReport
from sandbox_kernel.plugins.monitor.codes import MonitorCode
from sandbox_kernel.policy.output_policy import OutputPolicy
from tests.support import ROOT
from tests.support.batch import VALIDATOR
from tests.support.cases import each, some
from tests.support.events import an
from tests.support.patience import within
from tests.support.policy.hostile import HTML
from tests.support.policy.messages import filtered, message
from tests.unit.policy.test_honest import PIXEL

HONEST = json.loads((ROOT / "tests/support/policy/honest.json").read_text())

# --- exit codes ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (KernelDied("x"), 1),
        (ConfigurationError("x"), 2),
        (EngineUnavailable("x"), 3),
        (ImageMissing("x"), 3),
        (AttestationFailed(("x",)), 3),
        (SandboxDied("x"), 3),
        (SandboxClosed("x"), 3),
        (CellTimeout("x"), 4),
        (FileRefused(FileCode.HIDDEN), 5),
    ],
)
def test_each_error_has_its_exit_code(error: SandboxError, code: int) -> None:
    assert of_error(error).code == code


def test_what_stopped_a_run_from_outside_decides_and_then_the_gravest() -> None:
    code, limit = End(kind="code failed", reason="", cell=1), End(kind="limit reached", reason="", cell=2)
    policy, platform = End(kind="policy broken", reason="", cell=3), End(kind="platform failed", reason="")
    stopped = End(kind="stopped", reason="", signal=2)
    found: list[End] = []
    for end, expected in ((code, 1), (limit, 4), (policy, 5), (platform, 3), (stopped, 130)):
        found.append(end)
        assert decide(found).code == expected
    assert decide([]).code == 0
    assert decide([code, End(kind="code failed", reason="", cell=9)]).cell == 1


def test_a_fault_of_the_code_is_no_limit_by_its_name_alone() -> None:
    assert kind_of("ZeroDivisionError", "user code") == "code failed"
    assert kind_of("CellTimeout", "user code") == "limit reached"  # asked only of errors that the host gave


# --- events ----------------------------------------------------------------------------------------------------------


def judged(note: Note, kind: str = "display_data") -> Observation | None:
    """Classify a note of the policy as it stands in the audit."""
    return classify(OutputRemoved(type=kind, code=note.code, reason=note.text))


def test_exit_in_a_cell_is_honest_and_code_for_the_next_cell_is_not() -> None:
    for payload, severity in (("ask_exit", "notice"), ("set_next_input", "violation")):
        content = {"status": "ok", "execution_count": 1, "user_expressions": {}, "payload": [{"source": payload}]}
        (note,) = OutputPolicy("safe").apply(message("execute_reply", content, channel="shell")).notes
        event = judged(note, "execute_reply")
        assert event is not None
        assert event.severity == severity


@each("name", HTML)
def test_hostile_html_that_was_changed_is_a_violation(name: str) -> None:
    _, verdict = filtered({"text/html": HTML[name]})
    found = [judged(note) for note in verdict.notes]
    if found and name != "script from another origin":  # removed from a frame, as with maps
        assert any(event is not None and event.severity == "violation" for event in found)


@each("name", HONEST)
def test_honest_output_is_no_violation(name: str) -> None:
    policy = OutputPolicy("safe")
    for sample in HONEST[name]:
        buffers = tuple(PIXEL for _ in range(sample["buffers"]))
        verdict = policy.apply(message(sample["type"], sample["content"], metadata=sample["metadata"], buffers=buffers))
        for note in verdict.notes:
            event = judged(note, sample["type"])
            assert event is not None
            assert event.severity == "notice"


FILES = {
    FileCode.NOT_A_FILE: "violation",
    FileCode.NAME_UNREADABLE: "violation",
    FileCode.NAME_OF_ANOTHER: "violation",
    FileCode.ACTED_UPON: "violation",
    FileCode.HIDDEN: "notice",
    FileCode.CACHE: "notice",
    FileCode.CHANGED: "notice",
    FileCode.TOO_LARGE: "limit",
    FileCode.SESSION_FILES: "limit",
}


@pytest.mark.parametrize("code", FILES)
def test_a_refused_file_is_judged_by_its_code(code: FileCode) -> None:
    refused = FileNotTransferred(op="download", path="a\x1b[2J", code=code, reason="its name is Limit: 1")
    event = classify(refused)
    assert event is not None
    assert (event.severity, event.code) == (FILES[code], code)
    assert "\x1b" not in event.reason
    event = classify(refused.having(op="upload"))
    assert event is not None
    assert event.severity == "notice"


def test_what_the_monitor_notes_breaks_no_policy_and_what_it_alerts_of_may() -> None:
    """An alert counts as its code does; a note is a notice, whatever it is of."""
    for code, level, severity in (
        (MonitorCode.DROPPED_PROGRAM, "note", "notice"),
        (MonitorCode.DROPPED_PROGRAM, "alert", "violation"),
        (MonitorCode.MANY_LIMITS, "kill", "limit"),
        (MonitorCode.MANY_DENIALS, "alert", "notice"),
    ):
        event = classify(an(RuleMet, code=code, level=level, reason="said\x1b[2J so"))
        assert event is not None
        assert (event.severity, event.code, event.what) == (severity, code, "behaviour")
        assert event.reason.isprintable()


def test_a_violation_does_not_hide_behind_many_events() -> None:
    found = Events()
    for number in range(5000):
        event = judged(OutputCode.TYPE_NOT_SHOWN.note(type=f"a/x{number}"))
        assert event is not None
        found.add(event)
    forged = classify(an(MessageDropped, code=MessageCode.SECOND_REPLY))
    assert forged is not None
    found.add(forged)
    assert found.worst("violation") == forged
    assert found.worst("never") is None
    assert found.worst("any") is not None
    assert len(found.to_json()) <= policy_events.MAX_EVENTS + 2
    assert sum(row["count"] for row in found.to_json()) == 5001
    assert classify(an(SandboxAttested)) is None
    for code in (
        MessageCode.WELCOME,
        MessageCode.STATUS_OUT_OF_TURN,
    ):  # of each kernel: a run that fails on any event would always fail
        assert classify(an(MessageDropped, code=code)) is None


# --- sources ---------------------------------------------------------------------------------------------------------


@each("text", ["1", "-2", "2.5", "1e3", "True", "False", "None", "true", "", "7a", "nan", "0x10", "1_0"])
def test_a_parameter_is_read_as_papermill_reads_it(text: str) -> None:
    assert repr(source_notebook._typed(text)) == repr(_resolve_type(text))


def read(text: str, name: str = "-") -> source_notebook.SourceNotebook:
    return source_notebook.read(name, text.encode())


def test_what_a_notebook_brings_along_is_not_kept(tmp_path: Path) -> None:
    """Outputs and widget states of an unknown notebook would be shown as if they had passed the policy."""
    document = nbformat.v4.new_notebook(metadata={"widgets": {"a": {"state": {}, "version_major": 2}}})
    shown = nbformat.v4.new_output("display_data", {"text/html": "<script>alert(1)</script>"})
    document.cells = [nbformat.v4.new_code_cell("1", outputs=[shown], execution_count=7)]
    found = read(nbformat.writes(document))
    assert found.notebook.cells[0].outputs == []
    assert found.notebook.cells[0].execution_count is None
    assert "widgets" not in found.notebook.metadata
    assert found.notebook.metadata.kernelspec.name == "sandbox-python"


@pytest.mark.parametrize("version", [2, 3, 4])
def test_old_notebooks_are_read(version: int) -> None:
    document = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")])
    text = nbformat.writes(nbformat.convert(document, version)) if version > 2 else OLD
    found = source_notebook.read("-", text.encode())
    assert [cell.source for cell in found.notebook.cells] == ["6 * 7"]
    nbformat.validate(found.notebook)


OLD = json.dumps(
    {
        "metadata": {"name": "old"},
        "nbformat": 2,
        "worksheets": [{"cells": [{"cell_type": "code", "input": "6 * 7", "language": "python", "outputs": []}]}],
    }
)
BROKEN = {
    "nested without end": "{" * 100_000,
    "cells that are a number": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": 7}',
    "a cell without a type": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [{}]}',
    "a source that is a number": '{"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": '
    '[{"cell_type": "code", "source": 7, "metadata": {}, "outputs": [], "execution_count": null}]}',
    "metadata that is text": '{"nbformat": 4, "nbformat_minor": 5, "metadata": "x", "cells": []}',
    "a version to come": '{"nbformat": 9, "nbformat_minor": 0, "metadata": {}, "cells": []}',
    "no JSON": "print(1)",
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_notebook_is_refused_with_one_line(name: str, tmp_path: Path) -> None:
    path = tmp_path / "x.ipynb"
    path.write_text(BROKEN[name])
    with pytest.raises(ConfigurationError, match="not a proper notebook") as caught:
        source_notebook.read(str(path), fetch(str(path)))
    assert "\n" not in str(caught.value)


def test_a_script_without_markers_is_one_cell_as_it_is() -> None:
    text = "import os\n\n\ndef f():\n    return 1  # %% not a marker\n\n\n# %%% nor this\nf()\n"
    found = read(text)
    assert [cell.source for cell in found.notebook.cells] == [text.strip("\n")]


def test_tags_of_a_script_that_nest_too_deep_are_none() -> None:
    read = source_notebook.read("x.py", b"# %% tags=" + b"[" * 100_000 + b"]\nprint(1)\n")
    assert [(cell.source, dict(cell.metadata)) for cell in read.notebook.cells] == [("print(1)", {})]


@pytest.mark.parametrize(
    "value", ["!!int x", "!!float x", "!!bool x", "!!timestamp x", "!!binary x", "9" * 5000, "[" * 5000]
)
def test_a_value_that_is_none_of_its_kind_is_no_yaml(value: str) -> None:
    with pytest.raises(ConfigurationError, match="the parameters are not YAML"):
        source_notebook.read_parameters([], [], [f"a: {value}"], [])


def test_parameters_that_json_cannot_hold_are_still_reported() -> None:
    found = read("n = 1")
    source_notebook.parameterize(found, {"n": float("nan"), "deep": {"a": (1, {2})}})
    json.dumps(found.parameters, allow_nan=False)
    assert found.notebook.cells[0].source.splitlines()[0] == "# Parameters"


# --- inputs ----------------------------------------------------------------------------------------------------------


def test_inputs_are_named_as_cp_would_name_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "sub").mkdir(parents=True)
    (tmp_path / "data" / "sub" / "b.csv").write_text("b")
    (tmp_path / "data" / "link").symlink_to("/etc/passwd")
    (tmp_path / "a.csv").write_text("a")
    (tmp_path / ".env").write_text("asked for by name")
    found = input_files.plan(["a.csv", "data", ".env"], FileLimits())
    assert [file.path for file in found.files] == ["a.csv", "data/sub/b.csv", ".env"]
    assert found.refused == [{"path": "data/link", "reason": "it is a link."}]
    assert [file.path for file in input_files.plan(["data/."], FileLimits()).files] == ["sub/b.csv"]


def test_an_input_that_would_block_or_never_end_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero")):
        with pytest.raises(ConfigurationError, match=r"it is a (FIFO|device)"):
            input_files.plan([str(path)], FileLimits())


def test_no_link_that_was_put_in_the_place_of_a_file_is_hashed(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/etc/passwd")
    (tmp_path / "b").write_text("b")
    assert [row["path"] for row in input_files.produced(open_folder(tmp_path), ["a", "b", "gone", "../b"])] == ["b"]


# --- report ----------------------------------------------------------------------------------------------------------


def report(**more: Any) -> RunReport:
    about: dict[str, Any] = {
        "session": None,
        "engine": "docker",
        "image": "i",
        "runtime": None,
        "outputs": "safe",
        "limits": {},
    }
    versions = dict.fromkeys(("nbclient", "nbformat", "sandbox_python", "sandbox_ipython"))
    return RunReport(
        source={"name": "-", "kind": None, "sha256": None, "parameters": {}},
        sandbox={**about, "total_seconds": None, "fail_on_policy": "any"},
        versions={"sandbox_kernel": "0", "python": "3", **versions},
        **more,
    )


def test_a_report_is_valid_at_any_moment() -> None:
    found = report()
    VALIDATOR.validate(found.to_json())
    error = RunFailure("E" * 50_000, "\ud800", "user code", by_host=False)
    found.cells.append(CellRecord(index=0, number=1, source="\ud800", error=error, seconds=1.23456, status="failed"))
    found.end = End(kind="stopped", reason="x", signal=2)
    VALIDATOR.validate(found.to_json())
    assert found.to_json()["cells"][0]["seconds"] == 1.235


def test_the_schema_refuses_what_it_does_not_describe() -> None:
    """The control: a validator that takes anything would prove nothing."""
    for path, value in ((("exit", "code"), "0"), (("version",), 2), (("more",), 1), (("started",), "yesterday")):
        broken = report().to_json()
        place = broken
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = value
        assert not VALIDATOR.is_valid(broken)


def test_a_file_is_written_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    OutputFile(path).write('"\ud800"')
    assert json.loads(path.read_text()) == "\ud800"
    with pytest.raises(ConfigurationError, match="cannot be written"):
        OutputFile(tmp_path / "none" / "x")
    assert [found.name for found in tmp_path.iterdir()] == ["x.json"]


# --- outputs ---------------------------------------------------------------------------------------------------------


def outputs() -> Outputs:
    return Outputs(nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("1"), nbformat.v4.new_code_cell("2")]))


@pytest.mark.slow
def test_a_flood_of_small_pieces_is_one_output_in_linear_time() -> None:
    found, piece = outputs(), "x" * 600
    found.begin(0)
    begin = time.process_time()
    for _ in range(100_000):
        found.take(message("stream", {"name": "stdout", "text": piece}))
    found.end()
    assert time.process_time() - begin < 20
    assert sizes(found.notebook.cells[0].outputs) == {"stdout": (1, 60_000_000)}


def shown(identity: str | None, text: str, kind: str = "display_data") -> Message:
    transient = {} if identity is None else {"display_id": identity}
    return message(kind, {"data": {"text/plain": text}, "metadata": {}, "transient": transient})


def widget(**state: Any) -> Message:
    model = {"_model_module": "@jupyter-widgets/output", "_model_name": "OutputModel", "outputs": [], **state}
    data = {"state": model, "buffer_paths": []}
    return message("comm_open", {"comm_id": "w", "target_name": "jupyter.widget", "data": data})


def capture(identity: str) -> Message:
    return message("comm_msg", {"comm_id": "w", "data": {"method": "update", "state": {"msg_id": identity}}})


UPDATE = "update_display_data"
FLOODS = {
    "updates of many displays of one name": (
        lambda n: shown("a", "old"),
        lambda n: shown("a", "new", UPDATE),
    ),
    "many displays, each cleared": (
        lambda n: shown(str(n), "old"),
        lambda n: message("clear_output", {"wait": False}),
    ),
    "pieces in an Output widget": (
        lambda n: message("stream", {"name": "stdout", "text": "x" * 500}),
        lambda n: message("comm_msg", {"comm_id": "w", "data": {"method": "update", "state": {}}}),
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(FLOODS, of=3))
def test_floods_of_displays_take_linear_time(name: str) -> None:
    first, second = FLOODS[name]
    found = outputs()
    found.begin(0)
    found.take(widget())
    if "widget" in name:
        found.take(capture(message("stream", {}).parent["msg_id"]))
    begin = time.process_time()
    for number in range(10_000):
        assert found.take(first(number)) is None
        if "widget" in name:
            assert found.take(second(number)) is None
    for number in range(10_000):
        assert found.take(second(number)) is None
    found.end()
    text = found.text()
    assert time.process_time() - begin < 12
    if "widget" in name:
        assert text.count("x" * 500) == 10_000
        assert text.count('"output_type": "stream"') == 1
    else:
        assert text.count('"new"') == {"many displays, each cleared": 0}.get(name, 10_000)
        assert "old" not in text


def test_many_dropped_messages_are_a_violation() -> None:
    """Beyond some of them none is looked at, so what hides behind them must not be harmless."""
    status = an(MessageDropped, code=MessageCode.STATUS_OUT_OF_TURN)
    assert classify(status) is None
    event = classify(status.having(last="no more of this is written in this session"))
    assert event is not None
    assert event.severity == "violation"


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("a/__pycache__/b.pyc", FileCode.CACHE),
        ("Invoice__pycache__.desktop", FileCode.ACTED_UPON),
        (".hidden", FileCode.HIDDEN),
        ("\uff0ehidden", FileCode.HIDDEN_WHEN_READ),
    ],
)
def test_only_a_folder_of_caches_makes_a_name_harmless(path: str, code: FileCode) -> None:
    with pytest.raises(FileRefused) as refused:
        check_downloaded_name(path)
    assert refused.value.code is code


def texts(found: Outputs, cell: int) -> list[str]:
    return [output["data"]["text/plain"] for output in found.notebook.cells[cell].outputs]


def test_an_update_is_for_the_displays_that_are_there() -> None:
    found = outputs()
    found.begin(0)
    found.take(shown("a", "old"))
    found.take(shown(None, "other"))
    found.take(shown("b", "kept"))
    found.take(shown("unknown", "nothing", UPDATE))
    found.begin(1)
    found.take(shown("a", "new", UPDATE))
    found.take(shown("unknown", "born later"))
    assert "new" in found.text()  # a notebook that is saved in the middle
    found.take(shown("a", "newer"))  # as front ends have it, the others change with it
    found.take(shown("a", "newest", UPDATE))
    found.take(shown("a", "last"))
    found.end()
    assert texts(found, 0) == ["last", "other", "kept"]
    assert texts(found, 1) == ["born later", "last", "last"]


@pytest.mark.parametrize("wait", [False, True])
def test_an_update_is_not_for_what_was_cleared(wait: bool) -> None:
    found = outputs()
    found.begin(0)
    found.take(shown("a", "first cell"))
    found.begin(1)
    found.take(shown("a", "gone"))
    found.take(message("clear_output", {"wait": wait}))
    found.take(shown("b", "new"))
    found.take(shown("a", "updated", UPDATE))
    found.take(shown("b", "newer", UPDATE))
    found.end()
    assert texts(found, 0) == ["updated"]
    assert texts(found, 1) == ["newer"]


def test_an_output_widget_holds_what_was_captured_and_what_its_kernel_says() -> None:
    found = outputs()
    found.begin(0)
    found.take(widget())
    parent = message("stream", {}).parent["msg_id"]
    found.take(capture(parent))
    found.take(shown(None, "gone"))
    found.take(message("clear_output", {"wait": True}))
    for text in ("one ", "two"):
        found.take(message("stream", {"name": "stdout", "text": text}))
        found.take(message("comm_msg", {"comm_id": "w", "data": {"method": "custom"}}))
    found.take(capture(""))
    found.take(message("stream", {"name": "stdout", "text": "outside"}))
    found.end()
    (state,) = widget_states(found)
    assert state["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "one two"}]
    assert [output.text for output in found.notebook.cells[0].outputs] == ["outside"]
    said = [{"output_type": "stream", "name": "stderr", "text": "appended"}]
    found.take(message("comm_msg", {"comm_id": "w", "data": {"method": "update", "state": {"outputs": said}}}))
    found.take(capture(parent))
    found.take(shown(None, "more"))
    (state,) = widget_states(found)
    assert [one["output_type"] for one in state["outputs"]] == ["stream", "display_data"]


def widget_states(found: Outputs) -> list[dict[str, Any]]:
    states = json.loads(found.text())["metadata"]["widgets"]["application/vnd.jupyter.widget-state+json"]["state"]
    return [state["state"] for state in states.values()]


@pytest.mark.parametrize("outputs_at_birth", [3, "text", {"a": 1}, [3, None]])
def test_a_strange_output_widget_does_not_end_a_run(outputs_at_birth: Any) -> None:
    found = outputs()
    found.begin(0)
    found.take(widget(outputs=outputs_at_birth))
    found.take(capture(message("stream", {}).parent["msg_id"]))
    found.take(message("stream", {"name": "stdout", "text": "captured"}))
    found.take(capture(""))
    found.take(message("stream", {"name": "stdout", "text": "goes on"}))
    found.end()
    assert "goes on" in found.text()


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("comm_open", {"comm_id": "a", "target_name": "jupyter.widget", "data": {}}),
        ("comm_open", {"comm_id": "a", "target_name": "jupyter.widget", "data": {"state": {}}}),
        ("comm_msg", {"comm_id": "a", "data": {"state": {"msg_id": ""}}}),
        ("display_data", {"data": {"a": {"b": [None]}}, "metadata": {}, "transient": {"display_id": ["x"]}}),
        ("update_display_data", {"data": "none", "transient": {"display_id": "known"}}),
        ("error", {"ename": "E"}),
        ("debug_event", {}),
    ],
)
def test_a_strange_message_does_not_end_a_run(kind: str, content: dict[str, Any]) -> None:
    """With outputs as they come, a cell chooses all of this."""
    found = outputs()
    found.begin(0)
    found.take(shown("known", "text"))
    found.take(message(kind, content))
    found.take(message("stream", {"name": "stdout", "text": "goes on"}))
    found.end()
    assert "goes on" in found.text()


# --- progress and signals --------------------------------------------------------------------------------------------


def test_on_a_terminal_the_running_cell_has_a_line_that_goes_away() -> None:
    stream = io.StringIO()
    progress = RunProgress(OutputStream(stream), total=12, live=True)
    progress.begin(3, "# a comment\nx = '\x1b[2J'")
    progress.tick()
    progress.end("ok", 1.5)
    shown = stream.getvalue()
    assert "[ 3/12]     0:00  x = '\\x1b[2J' …" in shown
    assert "\x1b[2J" not in shown
    assert shown.split("\r\x1b[2K")[-1].startswith("[ 3/12]   1.50 s")


def test_a_reader_that_is_gone_does_not_end_a_run() -> None:
    stream = io.StringIO()
    progress = RunProgress(OutputStream(stream), total=1, live=False)
    stream.close()
    progress.say("nobody reads this")
    progress.begin(1, "x")
    progress.end("ok", 1.0, "note")


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as stream:
        yield read, stream
        with contextlib.suppress(OSError):
            os.close(read)


def test_nothing_is_waited_for_that_is_said_to_a_reader_who_pauses(pipe: tuple[int, TextIO]) -> None:
    read, stream = pipe
    output_stream = OutputStream(stream)
    for number in range(200):
        output_stream.say(f"{number}\n" + "x" * 10_000)
    output_stream.finish(0.05)  # he goes on pausing
    taken = b""
    while len(taken) < MAX_KEPT:
        taken += os.read(read, 1 << 16)
        output_stream.finish(0)
    assert taken.startswith(b"0\n")
    assert len(taken) < MAX_KEPT + (1 << 17)


async def test_writing_waits_for_a_reader_who_pauses_and_nothing_else_does(pipe: tuple[int, TextIO]) -> None:
    read, stream = pipe
    output_stream, text = OutputStream(stream), "\u00fc\ud800x" * 100_000
    writing = asyncio.create_task(output_stream.write(text))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(writing), 0.1)
    expected, taken = text.encode(errors="backslashreplace"), b""
    while len(taken) < len(expected):
        taken += await asyncio.to_thread(os.read, read, 1 << 16)
    async with within(30):
        await writing
    output_stream.say("end")
    assert taken + os.read(read, 1 << 16) == expected + b"end"


async def test_a_reader_who_goes_ends_the_wait_for_him(pipe: tuple[int, TextIO]) -> None:
    read, stream = pipe
    output_stream = OutputStream(stream)
    writing = asyncio.create_task(output_stream.write("x" * 1_000_000))
    await asyncio.sleep(0)
    assert not writing.done()
    os.close(read)
    async with within(30):
        await writing
    await output_stream.write("more")
    output_stream.finish(10)


class Never:
    """A run that is not to begin."""

    found: list[End] = []  # noqa: RUF012

    async def run(self) -> None:
        raise AssertionError

    def stop(self, number: int, name: str) -> None:
        raise AssertionError

    def finish(self) -> None:
        raise AssertionError


def test_a_signal_breaks_off_what_waits_and_nothing_else() -> None:
    stopper = Stopper(lambda end: end.code)
    with pytest.raises(Stopped), stopper.waiting():
        stopper.heard(15, None)
    stopper.heard(2, None)  # as in the middle of an import
    begun = False
    with pytest.raises(Stopped) as caught, stopper.waiting():
        begun = True
    assert caught.value.signal == 2
    assert not begun


async def test_a_signal_before_the_run_is_heard_when_it_begins() -> None:
    stopper = Stopper(lambda end: end.code)
    stopper.heard(15, None)
    with pytest.raises(Stopped):
        await stopper.until_stopped(Never())


def test_the_second_signal_is_heard_at_once_and_none_at_the_end() -> None:
    stopper = Stopper(lambda end: end.code)
    stopper.heard(2, None)
    with pytest.raises(Stopped):
        stopper.heard(2, None)
    stopper.closing = True
    stopper.heard(2, None)


async def test_a_run_that_does_not_stop_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever hangs, the report is written and the process ends: with it goes the sandbox's connection."""

    class Hanging:
        found: list[End] = []  # noqa: RUF012

        async def run(self) -> None:
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()

        def stop(self, number: int, name: str) -> None:
            self.found.append(End(kind="stopped", reason=name, signal=number))

        def finish(self) -> None:
            finished.append(True)

    finished: list[bool] = []
    codes: list[int] = []
    released = asyncio.Event()
    monkeypatch.setattr("sandbox_kernel.plugins.batch.command.STOP_SECONDS", 0.05)

    def leave(code: int) -> None:
        codes.append(code)
        released.set()

    monkeypatch.setattr("sandbox_kernel.plugins.batch.command.os._exit", leave)
    stopper = Stopper(lambda end: end.code)
    asyncio.get_running_loop().call_later(0.05, stopper.heard, 15, None)
    async with within(30):
        with pytest.raises(asyncio.InvalidStateError):  # the stand-in for the end of the process returns
            await stopper.until_stopped(Hanging())
    assert codes == [143]
    assert finished == [True]


def test_the_schema_of_behaviour_is_the_one_of_the_page() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", (ROOT / "docs/behaviour.md").read_text(encoding="utf-8"), re.DOTALL)
    assert run_report.schema()["$defs"]["behaviour"] == json.loads(shown)
