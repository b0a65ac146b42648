"""What every entry point does with text at its last step, also with `outputs = trusted`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.model import Message
from sandbox_kernel.plugins.batch.output_stream import SERVICES, OutputStream, is_log
from sandbox_kernel.plugins.frameworks import failure, printed, told
from sandbox_kernel.plugins.mcp.answer_writer import AnswerLimits, Writer
from sandbox_kernel.plugins.mcp.output_store import OutputStore
from sandbox_kernel.policy.safe_text import LogLines, PrintedStream, ours, plain, tree
from sandbox_kernel.sdk.execution import Execution, ExecutionRecorder
from tests.support.command_line import SCRIPT, run

TITLE = "\x1b]0;taken\x07"
LINK = "\x1b]8;;https://evil.test/\x1b\\here\x1b]8;;\x1b\\"
CLIPBOARD = "\x9d52;c;Zg==\x9c"
BAD = f"a{TITLE}b{LINK}c{CLIPBOARD}d\x1b[2Je\x1b[31mf\x1bPq#\x1b\\\x85\x9b5n"
TYPES = (
    "text/plain", "text/html", "text/markdown", "text/latex", "image/svg+xml", "application/javascript",
    "application/x-anything",
)  # fmt: skip

COMMANDS = (
    "::add-mask::x", "::stop-commands::pause", "  ::set-env name=PATH::/evil", "\u00a0\u3000::error::x",
    "\ufeff::warning file=a::x", "##vso[task.setvariable variable=a]b", "text ##vso[task.complete]",
    "##[command]x", "a ##[add-mask]b", "##teamcity[message text='x']", "##octopus[x]",
    "section_start:1:a\r\x1b[0K::add-mask::b", "travis_fold:start:a", "travis_time:end:a", "x\r::add-mask::y",
)  # fmt: skip
HONEST = (
    "std::vector<int>", "a :: b", "## A title", "# [link](x)", "#[derive]", "10:30::ok", "print(x[::2])", "C:\\a\\b",
    "100%|####| 5/5", "section_starts", "https://a.test/x##frag", "--- a/file", "+++ b/file", "ratio: 1:2", ": a", "##",
)  # fmt: skip


def acts(text: str) -> bool:
    """Return whether some line is a command to one of the services, read as loosely as any of them reads."""
    for line in text.replace("\r", "\n").split("\n"):
        bare = line.strip().strip("\ufeff\u200b\u2060").strip()
        if bare.startswith("::") or "##[" in line or "section_start:" in line or "section_end:" in line:
            return True
        if any(mark in line for mark in ("##vso[", "##teamcity[", "##octopus[", "travis_fold:", "travis_time:")):
            return True
    return False


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_for_the_log_is_none_however_it_is_cut(command: str) -> None:
    assert acts(f"{command}\n")  # the control
    for cut in range(len(command) + 1):
        for before in ("", "text\n", "text\r", "\n  "):
            lines = LogLines()
            shown = lines.feed(before + command[:cut]) + lines.feed(command[cut:] + "\n")
            assert not acts(shown), shown
            assert shown.replace(" ", "") == f"{before}{command}\n".replace(" ", "")


@given(st.lists(st.text(alphabet=" :#[]avstrioncef_\r\n\u00a0", max_size=30), max_size=8))
def test_no_pieces_come_to_a_command(pieces: list[str]) -> None:
    lines = LogLines()
    assert not acts("".join(map(lines.feed, [*pieces, "\n"])))


@pytest.mark.parametrize("text", HONEST)
def test_honest_lines_stay_as_they_are(text: str) -> None:
    lines = LogLines()
    assert "".join(map(lines.feed, [*text, "\n", text, "\n"])) == f"{text}\n{text}\n"


def test_a_long_line_costs_little_memory_and_its_end_is_no_beginning() -> None:
    lines = LogLines()
    for _ in range(1000):
        assert lines.feed("x" * 1000) == "x" * 1000
    assert lines.feed("::add-mask::y") == "::add-mask::y"  # in the middle of a line it is text
    assert len(lines._line) < 1000
    spaces = LogLines()
    spaces.feed(" " * 5000)
    assert not acts(" " * 5000 + spaces.feed("::add-mask::y"))


def test_buildkite_s_headings_are_text_where_buildkite_reads() -> None:
    lines = LogLines(buildkite=True)
    assert lines.feed("--- a\n+++ b\n~~~ c\n^^^ +++\n----\n") == "---: a\n+++: b\n~~~: c\n^^^: +++\n----\n"


def message(kind: str, **content: Any) -> Message:
    return Message(channel="iopub", header={"msg_type": kind, "msg_id": "1"}, content=content)


def unfiltered() -> Execution:
    """Return what a cell brought whose messages no policy has cleaned."""
    recorder = ExecutionRecorder("code")
    bundle = dict.fromkeys(TYPES, BAD) | {"application/json": {BAD: [BAD, {"a": BAD}]}}
    sent = [
        message("stream", name="stdout", text=BAD),
        message("stream", name="stderr", text="\x1b]0;cut"),
        message("stream", name="stderr", text=f" in two\x07{BAD}"),
        message("display_data", data=bundle, metadata={BAD: BAD}, transient={"display_id": "d"}),
        *(message("display_data", data={kind: BAD}, metadata={}, transient={}) for kind in TYPES),
        message("display_data", data={"application/json": {"x": BAD}}, metadata={}, transient={}),
        message("update_display_data", data={"text/markdown": BAD}, metadata={}, transient={"display_id": "d"}),
        message("error", ename=BAD, evalue=BAD, traceback=[BAD]),
    ]
    for one in sent:
        list(recorder.take(one, None))
    return recorder.execution


def obeyed(text: str) -> bool:
    return any(mark in text for mark in ("\x1b]", "\x1bP", "\x9d", "\x9b", "\x85", "\x07", "\x1b[2J", "taken"))


def test_no_text_of_an_execution_holds_what_a_terminal_obeys() -> None:
    execution = unfiltered()
    assert obeyed(BAD)
    assert len(execution.results) == len(TYPES) + 2
    whole = execution.to_dict()
    assert not any(map(obeyed, _texts(whole)))
    assert "\x1b[31m" in execution.results[1].text  # type: ignore[operator] # colours are honest


def _texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [text for pair in value.items() for part in pair for text in _texts(part)]
    if isinstance(value, (list, tuple)):
        return [text for part in value for text in _texts(part)]
    return [value] if isinstance(value, str) else []


def test_what_a_model_reads_has_no_control_at_all() -> None:
    execution = unfiltered()
    blocks = Writer(OutputStore("main"), AnswerLimits()).execution(execution)
    said = [block.text for block in blocks if block.type == "text"]
    said += [printed(execution), failure(execution) or "", *map(told, execution.results)]
    assert len(said) > 15
    for text in said:
        assert not obeyed(text)
        assert all(char.isprintable() or char in "\n\t" for char in text.replace("\\", "")), text


def test_a_line_of_ours_reads_as_it_is() -> None:
    assert ours("a\u202eb\rc\u2028d") == "a\\u202eb\\rc\\u2028d"
    assert ours(BAD) == plain(BAD) == "abherec52;c;Zg==def5n"
    assert tree({"a\x07": (BAD, 1, None)}) == {"a": ["abherec52;c;Zg==de\x1b[31mf5n", 1, None]}


def test_nested_progress_bars_still_go_up_over_their_own_lines_alone() -> None:
    stream = PrintedStream()
    assert stream.feed("stderr", "a\nb\x1b[A\rc") == "a\nb\x1b[A\rc"
    assert stream.feed("stderr", "\x1b[99A") == ""


def test_what_is_a_log_and_what_is_not(tmp_path: Path) -> None:
    assert is_log(io.StringIO(), {})
    with (tmp_path / "a").open("w") as file:
        assert not is_log(file, {})  # data of somebody's own
        for name in SERVICES:
            assert is_log(file, {name: "true"})
    outlet = OutputStream(stream := io.StringIO(), {})
    outlet.say(f"{BAD}\n::add-mask::x ##[error]y\n")
    assert stream.getvalue() == "abherec52;c;Zg==def5n\n: :add-mask::x ## [error]y\n"


SCRIPT_OF_COMMANDS = f"""
import sys
for text in {COMMANDS!r}:
    print(text)
    print(text, file=sys.stderr)
print(":", end="", flush=True)
print(":add-mask::z")
print({BAD!r})
"""


@pytest.mark.parametrize(
    ("outputs", "service"), [("safe", {}), ("trusted", {"GITHUB_ACTIONS": "true"})], ids=["a pipe", "a service"]
)
def test_a_real_run_prints_no_command(outputs: str, service: dict[str, str], tmp_path: Path, image: str) -> None:
    """Neither what a script prints nor a line of ours that quotes a cell, a file or an error."""
    (tmp_path / "work.py").write_text(SCRIPT_OF_COMMANDS)
    done = go(tmp_path, "work.py", "--image", image, "--outputs", outputs, **service)
    assert done.stdout.count("add-mask::") >= 3
    assert not acts(done.stdout), done.stdout
    assert not acts(done.stderr), done.stderr
    assert not obeyed(done.stdout + done.stderr)


def test_a_real_run_s_own_lines_hold_no_command(tmp_path: Path, image: str) -> None:
    cells = ["'''\n::add-mask::x'''", "##[error]a", "raise ValueError('a' * 100 + ' ::add-mask::x ##vso[a]b')"]
    document = {
        "cells": [{"cell_type": "code", "source": one, "metadata": {}, "outputs": [], "execution_count": None}
                  for one in cells],
        "metadata": {}, "nbformat": 4, "nbformat_minor": 4,
    }  # fmt: skip
    (tmp_path / "##[x] ::y::.ipynb").write_text(json.dumps(document))
    done = go(tmp_path, "##[x] ::y::.ipynb", "--image", image, "--allow-errors")
    assert done.returncode == 1
    assert "add-mask" in done.stderr
    assert not acts(done.stdout + done.stderr), done.stderr
    wrong = go(tmp_path, "::add-mask::x\n::stop-commands::y")
    assert wrong.returncode == 2
    assert not acts(wrong.stderr), wrong.stderr
    error = run("doctor", "--memory", "x\n::add-mask::y ##[a]")
    assert error.returncode == 2
    assert not acts(error.stderr), error.stderr


def test_a_file_of_somebody_s_own_gets_what_was_printed(tmp_path: Path, image: str) -> None:
    (tmp_path / "work.py").write_text("print('::a::b')")
    with (tmp_path / "out.txt").open("wb") as out:
        go(tmp_path, "work.py", "--image", image, stdout=out)
    assert (tmp_path / "out.txt").read_text() == "::a::b\n"


def go(
    folder: Path, *arguments: str, stdout: Any = subprocess.PIPE, **service: str
) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in SERVICES} | service
    return subprocess.run(
        [str(SCRIPT), "run", *arguments],
        cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, timeout=120,
        check=False, encoding="utf-8",
    )  # fmt: skip


@pytest.mark.parametrize("spaces", [" " * 319, " " * 1000, "\t" * 700, "\ufeff" + " " * 400, "\u200b" * 330])
@pytest.mark.parametrize("cut", range(4))
def test_a_line_begins_after_any_number_of_spaces(spaces: str, cut: int) -> None:
    """A log's reader takes all space off before it looks for a command; so much is not remembered."""
    lines = LogLines()
    pieces = [*spaces, "::a"[:cut], "::a"[cut:] + "dd-mask::x\n"]
    written = "".join(map(lines.feed, pieces))
    assert not written.lstrip(" \t\ufeff\u200b").startswith("::")
    assert written.replace(" ", "").endswith("::add-mask::x\n")
    lines = LogLines()
    assert "".join(map(lines.feed, ("word", spaces, "::add-mask::x\n"))).endswith("::add-mask::x\n")


@pytest.mark.parametrize("many", ["\n", "\r", " \n", "\n\t", ":\n", "#", "##", "section_"])
def test_lines_without_number_are_looked_at_once(many: str) -> None:
    """With a square of the work, a million empty lines would take hours."""
    lines = LogLines(buildkite=True)
    before = time.process_time()
    written = lines.feed(many * (1_000_000 // len(many)) + "a::\n::b")
    assert time.process_time() - before < 20
    assert written.endswith("\n: :b")
