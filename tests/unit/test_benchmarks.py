"""What the benchmarks take for an option of theirs, and what for a part of a session."""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from benchmarks import measures, memory, report
from benchmarks.__main__ import parsed
from benchmarks.kernels import MARK, REPLY_SECONDS, STOCK, Kernel, write_stock
from tests.support import ROOT
from tests.support.cases import each


@each("words", [["--engine", "docker"], ["--engin=docker"], ["--on", "start"], ["--j", "file"], ["--qu"]])
def test_what_is_no_option_of_theirs_is_a_setting(words: list[str]) -> None:
    """`--engine docker` was read as `--engines`, and compared all engines with each other."""
    options, settings = parsed(words)
    assert settings == words
    assert (options.engines, options.quick, options.only, options.json) == (False, False, None, None)


def test_their_own_options_are_read() -> None:
    """The control."""
    options, settings = parsed(["--engines", "--quick", "--only", "start", "--engine", "docker"])
    assert (options.engines, options.quick, options.only) == (True, True, ["start"])
    assert settings == ["--engine", "docker"]


def test_the_page_of_figures_is_what_the_last_figures_make() -> None:
    assert report.page(report.read()) == (ROOT / "docs/figures.md").read_text(encoding="utf-8")


def test_a_run_replaces_its_own_figures_and_no_other() -> None:
    before = report.read()
    result = {"name": "start", "against": STOCK, "medians": {STOCK: 0.50123, "sandbox": 0.612}, "ratio": 1.22099}
    after = report.updated(before, [result, result | {"name": "cgroup", "ratio": None}], "2030-01-02")
    assert "| start to first result | stock | 0.501 s | 0.612 s | 1.22 |  | ≤ 1.35x |" in report.page(after)
    assert after["measured on"] == "2030-01-02"
    assert after["measured"] | {"start": {}} == before["measured"] | {"start": {}}
    assert report.updated(before, [], "2030-01-02") == before
    busy = report.updated(before, [result | {"before": 1.345}], "2030-01-02", "busy")
    assert "| start to first result | stock | 0.501 s | 0.612 s | 1.22 | 1.34 | ≤ 1.35x |" in report.page(busy)
    assert busy["measured"] == before["measured"]


def test_a_figure_of_a_start_stands_on_the_page_of_figures_alone() -> None:
    """Else one page says what another has not said for long."""
    starts = [*report.page(report.read()).split("\n## ")[1:5]]
    figures = set(re.findall(r"\b\d+\.\d\d s\b", " ".join(starts)))
    assert len(figures) > 3
    pages = [path for path in (*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")) if path.name != "figures.md"]
    rules = "docs/monitor.md"  # how soon its rules are met
    found = {(path.name, one) for path in pages for one in figures if f" {one}" in path.read_text(encoding="utf-8")}
    assert {one for one in found if f"docs/{one[0]}" != rules} == set()


def test_a_broker_that_a_session_started_is_no_part_of_it() -> None:
    """Whatever it inherited. The control is a process with other arguments."""
    mark = "f" * 32
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    kernel = cast("Any", SimpleNamespace(name="", mark=mark, manager=SimpleNamespace(connection_file="/none.json")))
    started = [
        psutil.Popen(["python3", "-c", program, word], env={**os.environ, MARK: mark}, stdin=-1, stdout=-1, text=True)
        for word in ("broker", "a-kernel")
    ]
    try:
        assert [one.stdout.readline() for one in started] == ["up\n"] * 2
        assert memory.host_processes(kernel) == {psutil.Process(started[1].pid)}
    finally:
        for one in started:
            one.communicate("")


def test_the_row_of_memory_says_what_it_counts() -> None:
    [row] = [item for item in measures.MEASURES if item.name == "memory"]
    assert row.counted
    assert "not counted: a broker" in " ".join(row.counted.split())


@pytest.mark.slow
def test_what_a_kernel_said_before_is_no_answer_to_what_is_asked_after_a_restart(tmp_path: Path) -> None:
    """It was taken for one: the first cell then ran before the client was subscribed, and its end never came."""
    kernel = Kernel(STOCK, write_stock(tmp_path), lingers=False)
    try:
        earlier = kernel.client.execute("1")
        end = time.perf_counter() + REPLY_SECONDS
        while kernel.next("iopub", earlier, end)["msg_type"] != "execute_result":
            pass
        kernel.client.execute("2")
        kernel.next("shell", kernel.client.execute("3"), end)  # and what both of them publish is not read
        kernel.wait_until_answering()
        while kernel.client.iopub_channel.msg_ready():
            assert kernel.client.get_iopub_msg()["parent_header"]["msg_type"] == "kernel_info_request"
        kernel.manager.restart_kernel()
        kernel.wait_until_answering()
        assert kernel.run("1 + 1").display == 1
    finally:
        kernel.stop()
