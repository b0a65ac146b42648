"""`sandbox-kernel run`, the real command on the real engine: what it leaves and says however a run ends."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
import yaml

from sandbox_kernel.cli import main
from sandbox_kernel.plugins.record import verification
from tests.support import ROOT
from tests.support.batch import NO_ENGINE, VALIDATOR, Done, Started, command, run, write
from tests.support.command_line import SCRIPT
from tests.support.kernels import containers_of, eventually

DATA = ROOT / "notebooks"
SMALL = ("--memory", "256M", "--scratch-size", "32M")
STYLED = "import pandas as pd\npd.DataFrame({'a': [1, 2]}).style.background_gradient()"
PLOT = "import plotly.express as px\npx.line(x=[1, 2], y=[3, 4]).show()"
CHART = "import altair as alt\nalt.Chart(pd.DataFrame({'a': [1], 'b': [2]})).mark_point().encode(x='a', y='b')"
SLIDER = "import ipywidgets\nipywidgets.IntSlider(value=7)"


@pytest.fixture
def start(tmp_path: Path, image: str) -> Callable[..., Done]:
    """Run cells as a notebook of their own."""

    def started(*cells: str, arguments: tuple[str, ...] = ()) -> Done:
        return run(tmp_path, write(tmp_path, *cells), "--image", image, *arguments)

    return started


ENDS: dict[str, tuple[tuple[str, ...], tuple[str, ...], int, str, list[str]]] = {
    "failing": (("x = 1", "1 / 0", "print('never')"), (), 1, "ZeroDivisionError", ["ok", "failed", "not run"]),
    "timing out": (
        ("x = 1", "import time; time.sleep(60)", "x"),
        ("--timeout", "1"),
        4,
        "Limit: 1 s",
        ["ok", "limit", "not run"],
    ),
    "too long as a whole": (
        ("x = 1", "import time; time.sleep(60)", "x"),
        ("--total-timeout", "5"),
        4,
        "--total-timeout",
        ["ok", "limit", "not run"],
    ),
    "exceeding memory": (("x = 1", "b = bytearray(1 << 30)", "x"), SMALL, 4, "OutOfMemory", ["ok", "limit", "not run"]),
    "exceeding output": (
        ("while True: print('x' * 1000)", "1"),
        ("--output-limit", "100K"),
        4,
        "OutputLimit",
        ["limit", "not run"],
    ),
    "ending itself": (("print(1)", "import sys; sys.exit(0)", "print('never')"), (), 0, "", ["ok", "ok", "not run"]),
    "ending itself without success": (("import sys; sys.exit(3)", "1"), (), 1, "SystemExit: 3", ["failed", "not run"]),
    "breaking the policy": (
        (
            "from IPython.display import HTML",
            "HTML('<img src=http://192.0.2.1/leak onerror=alert(1)>')",
            "print('goes on')",
        ),
        (),
        5,
        "removed onerror=",
        ["ok", "ok", "ok"],
    ),
    "planting a link": (("import os; os.symlink('/etc/passwd', 'x.txt')",), (), 5, "it is a link", ["ok"]),
    "without an engine": (("x = 1",), ("--engine", NO_ENGINE), 3, "EngineUnavailable", ["not run"]),
    "without its image": (("x = 1",), ("--image", "no-such:image"), 3, "ImageMissing", ["not run"]),
}


@pytest.mark.parametrize("name", ENDS)
def test_an_exit_code_tells_how_a_run_ended(start: Callable[..., Done], name: str) -> None:
    """Each time there are a valid report and an executed notebook, with what ran."""
    cells, arguments, code, reason, statuses = ENDS[name]
    done = start(*cells, arguments=arguments)
    assert done.code == code, done.stderr
    assert reason in done.report["exit"]["reason"]
    assert done.statuses == statuses
    assert len(done.notebook.cells) == len(cells)
    for cell, record in zip(done.notebook.cells, done.report["cells"], strict=True):
        assert (cell.execution_count is not None or bool(cell.outputs)) == (record["status"] != "not run")


def test_a_run_leaves_an_audit_and_a_receipt_that_hold(start: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a")
    audit, key, receipt = tmp_path / "audit.jsonl", tmp_path / "audit.key", tmp_path / "receipt.json"
    record = ("--audit", str(audit), "--audit-key", str(key), "--receipt", str(receipt), "--audit-source", "text")
    cells = (
        # The meter runs from when the host has heard that the cell began, which takes a moment on a busy machine.
        "import time; end = time.process_time() + 0.6\nwhile time.process_time() < end: pass",
        "open('o', 'w').write('b')",
    )
    done = start(*cells, arguments=(*record, "--input", str(tmp_path / "in.csv")))
    assert done.code == 0, done.stderr
    rows = [row for row in verification.rows(audit) if row is not None]
    busy, last = (row for row in rows if row["event"] == "cell")
    assert busy["source_sha256"] == hashlib.sha256(cells[0].encode()).hexdigest()
    assert (last["status"], last["codes"], last["connections"], last["tool_calls"]) == ("ok", {}, 0, 0)
    assert busy["cpu_seconds"] > 0.1
    assert busy["memory_peak_bytes"] > 1 << 20
    assert busy["files_in"] == [{"path": "in.csv", "bytes": 1, "sha256": hashlib.sha256(b"a").hexdigest()}]
    assert last["files_out"] == [{"path": "o", "bytes": 1, "sha256": hashlib.sha256(b"b").hexdigest()}]
    assert [row["text"] for row in rows if row["event"] == "source"] == list(cells)
    words = ["receipt", "verify", str(receipt), "--key", str(key), "--audit-file", str(audit)]
    assert main([*words, "--output", str(tmp_path / "out")]) == 0
    said = json.loads(base64.b64decode(json.loads(receipt.read_text())["payload"]))["predicate"]
    assert said["attested"]["image_id"].startswith("sha256:")
    assert said["sandbox"]["limits"] == done.report["sandbox"]["limits"]
    (tmp_path / "out" / "files" / "o").write_text("c")
    assert main([*words, "--output", str(tmp_path / "out")]) == 1


@pytest.mark.parametrize(("screen", "code"), [("warn", 0), ("block", 5)])
def test_a_receipt_states_what_the_screen_found(
    start: Callable[..., Done], tmp_path: Path, screen: str, code: int
) -> None:
    """Signed with the rest, for a cell that was blocked as for one that ran; what a comment allows has its reason."""
    key, receipt = tmp_path / "audit.key", tmp_path / "receipt.json"
    cells = (
        "import os\nos.path.exists('/etc/passwd')",
        "import os\nos.path.exists('/etc/group')  # sandbox: allow file-read-system — looks only",
        "x = 1\nimport os\nos.system('rm -rf /etc/nothing')",
    )
    done = start(*cells, arguments=("--screen", screen, "--receipt", str(receipt), "--audit-key", str(key)))
    assert done.code == code, done.stderr
    assert main(["receipt", "verify", str(receipt), "--key", str(key), "--output", str(tmp_path / "out")]) == 0
    said = json.loads(base64.b64decode(json.loads(receipt.read_text())["payload"]))["predicate"]
    slight, allowed, grave = (cell["findings"] for cell in said["cells"])
    assert [(one["code"], one["line"], one["weight"]) for one in slight] == [("file-read-system", 2, 40)]
    assert [(one["code"], one["allowed"]) for one in allowed] == [("file-read-system", "looks only")]
    assert ("file-delete-system", 3) in [(one["code"], one["line"]) for one in grave]
    assert said["cells"][2]["status"] == ("ok" if screen == "warn" else "failed")
    assert [cell["findings"] for cell in done.report["cells"]] == [slight, allowed, grave]
    receipt.write_text(receipt.read_text().replace('"payload": "', '"payload": "A', 1))
    assert main(["receipt", "verify", str(receipt), "--key", str(key)]) != 0


def test_a_cell_fakes_no_limit_and_the_lines_of_a_log_are_plain(start: Callable[..., Done]) -> None:
    """An exception is the code's own, whatever its class is called.

    A line for each cell; nothing that a cell or its source holds acts on a terminal.
    """
    done = start(
        "x = '\x1b[2J\x1b]0;title\x07'\nclass OutOfMemory(Exception): pass", "raise OutOfMemory('\\x1b[2J\\x1b[31mred')"
    )
    assert done.code == 1
    assert done.report["cells"][1]["error"]["by_host"] is False
    assert "\x1b" not in done.stderr
    assert "[1/2]" in done.stderr
    assert "[2/2]" in done.stderr
    assert done.stderr.rstrip().endswith("exit code 1")


def test_an_input_that_no_cell_touches_breaks_no_policy_whatever_its_name(
    start: Callable[..., Done], tmp_path: Path
) -> None:
    """A checkout has a Makefile. The control is a cell that changes it: programs act upon files of that name."""
    (tmp_path / "in").mkdir()
    for name in ("Makefile", "-x.txt", "a.txt"):
        (tmp_path / "in" / name).write_text("all:\n")
    given = ("--input", str(tmp_path / "in"))
    done = start("sorted(__import__('os').listdir('in'))", arguments=given)
    assert done.code == 0, done.stderr
    assert "Makefile" in str(done.notebook.cells[0].outputs)
    assert done.report["cells"][0]["policy_events"] == []
    done = start("open('in/Makefile', 'a').write('x')", arguments=given)
    assert done.code == 5
    assert "in/Makefile" in done.stderr


def test_a_report_tells_what_each_cell_did_and_used(start: Callable[..., Done], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.csv").write_text("a\n1\n")
    (tmp_path / "data" / ".secret").write_text("x")
    busy = "import time; end = time.process_time() + 0.5\nwhile time.process_time() < end: pass"
    done = start(
        "print(open('data/in.csv').read(), end='')",
        busy,
        # Held for some samples: the highest figure of the system may be that of files which the start read.
        "import sys, time\nx = bytearray(100 << 20); time.sleep(0.5)\nprint('err', file=sys.stderr)\n41 + 1",
        "import os; os.mkdir('plots'); _ = open('plots/out.bin', 'wb').write(b'x' * 1000)",
        "",
        arguments=("--input", str(tmp_path / "data")),
    )
    assert done.code == 0, done.stderr
    report = done.report
    assert "every cell ran" in report["exit"]["reason"]
    assert done.statuses == ["ok", "ok", "ok", "ok", "skipped"]
    ran = [cell.execution_count is not None or bool(cell.outputs) for cell in done.notebook.cells]
    assert ran == [True, True, True, True, False]
    cells = report["cells"]
    assert done.text(1) == "a\n1\n"
    assert cells[0]["source_sha256"] == hashlib.sha256(b"print(open('data/in.csv').read(), end='')").hexdigest()
    assert cells[0]["outputs"] == [{"type": "stdout", "count": 1, "bytes": 4}]
    assert 0.4 < cells[1]["cpu_seconds"] < 5
    assert cells[1]["seconds"] >= cells[1]["cpu_seconds"] / 2.5
    assert cells[3]["cpu_seconds"] < 0.4  # of this cell, not of all up to it
    assert cells[2]["memory_peak_bytes"] > cells[1]["memory_peak_bytes"] + (80 << 20)
    assert [row["type"] for row in cells[2]["outputs"]] == ["stderr", "text/plain"]
    assert cells[4]["status"] == "skipped"
    out = hashlib.sha256(b"x" * 1000).hexdigest()
    assert report["output"]["files"] == [{"path": "plots/out.bin", "bytes": 1000, "sha256": out}]
    assert (tmp_path / "out" / "files" / "plots" / "out.bin").read_bytes() == b"x" * 1000
    given = hashlib.sha256(b"a\n1\n").hexdigest()
    assert report["inputs"]["files"] == [{"path": "data/in.csv", "bytes": 4, "sha256": given}]
    assert [row["path"] for row in report["inputs"]["refused"]] == ["data/.secret"]
    assert report["versions"]["sandbox_python"].startswith("3.")
    assert report["sandbox"]["limits"]["cell_timeout"] == 300


def test_honest_outputs_break_no_policy(start: Callable[..., Done]) -> None:
    """Programs that are framed, styles that are confined and widgets that are kept are no events."""
    done = start(STYLED, PLOT, CHART, SLIDER, "print('done')")
    assert done.code == 0, done.stderr
    assert [cell["policy_events"] for cell in done.report["cells"]] == [[]] * 5
    kinds = {row["type"] for cell in done.report["cells"] for row in cell["outputs"]}
    assert {"text/html", "application/vnd.jupyter.widget-view+json", "stdout"} <= kinds
    states = done.notebook.metadata.widgets["application/vnd.jupyter.widget-state+json"]["state"]
    assert any(state["state"].get("value") == 7 for state in states.values())


def test_outputs_are_those_of_a_front_end(start: Callable[..., Done]) -> None:
    """Displays are updated, also in earlier cells; cleared output is gone; pieces of text are one output."""
    done = start(
        "from IPython.display import display, clear_output\nh = display('old', display_id=True)",
        "h.update('new')\nfor i in range(50): print(i, end=' ', flush=True)",
        "print('gone'); clear_output(); print('kept')",
        "import ipywidgets; out = ipywidgets.Output(); display(out)\nwith out: print('inside')",
    )
    assert done.code == 0, done.stderr
    cells = done.notebook.cells
    assert cells[0].outputs[0].data["text/plain"] == "'new'"
    assert len(cells[1].outputs) == 1
    assert done.text(2) == "".join(f"{i} " for i in range(50))
    assert done.text(3) == "kept\n"
    assert "inside" not in done.text(4)
    assert "inside" in json.dumps(done.notebook.metadata.widgets)


def test_policy_events_need_not_fail_a_run(start: Callable[..., Done]) -> None:
    done = start("%%javascript\nalert(1)", arguments=("--fail-on-policy", "never"))
    assert done.code == 0, done.stderr
    (event,) = done.report["cells"][0]["policy_events"]
    assert event["severity"] == "violation"
    (row,) = done.report["behaviour"]["rows"]
    assert (row["kind"], row["code"], row["first_cell"]) == ("output", event["code"], 1)
    assert done.report["cells"][0]["behaviour"]["rows"] == [row]
    assert (done.report["behaviour"]["risk_score"], done.report["behaviour"]["is_safe"]) == (60, False)


def test_files_that_no_input_brings_are_said_before_the_run_and_how_to_bring_them(
    start: Callable[..., Done], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "bikes.csv").write_text("a,b\n")
    (tmp_path / "mine.py").write_text("")
    code = "len(open('./data/bikes.csv').read()), open('absent.csv')\nimport json, mine"
    done = start(code)
    assert f"mine.py: add --input {tmp_path}/mine.py" in done.stderr
    assert "json: " not in done.stderr
    way = f"data/bikes.csv: add --input {tmp_path}/data"
    assert way in done.stderr
    assert "absent.csv: --input FILE brings it; it is not beside the notebook either" in done.stderr
    assert done.stderr.index(way) < done.stderr.index("sandbox ready")
    assert "--input FILE, or --input FOLDER/." in (tmp_path / "out" / "work.ipynb").read_text()
    done = start("len(open('./data/bikes.csv').read())", arguments=("--input", f"{tmp_path}/data"))
    assert done.code == 0
    assert "no --input brings" not in done.stderr


def test_honest_code_breaks_no_policy_at_all(start: Callable[..., Done]) -> None:
    """What each kernel says by itself is no event; the control is the link of the table above."""
    done = start("import pandas as pd\npd.DataFrame({'a': [1]})", arguments=("--fail-on-policy", "any"))
    assert done.code == 0, done.stderr


def test_a_run_can_go_on_after_errors_and_tells_of_them(start: Callable[..., Done], tmp_path: Path) -> None:
    """An error that is expected by its tag is none; with --allow-errors, others still decide the exit code."""
    source = write(tmp_path, "1 / 0", "import os; os._exit(1)", "print('goes on')")
    document = nbformat.read(source, as_version=4)
    document.cells[0].metadata["tags"] = ["raises-exception"]
    nbformat.write(document, source)
    done = run(tmp_path, source, "--allow-errors")
    assert done.code == 1
    assert done.report["exit"]["cell"] == 2
    assert done.statuses == ["failed", "failed", "ok"]
    assert "KernelDied" in done.report["exit"]["reason"]


def test_parameters_are_put_where_papermill_puts_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from papermill.cli import papermill  # a second, and for this test alone

    source = write(tmp_path, "print('first')", "n = 1\nname = ''", "print(n, name, more)")
    document = nbformat.read(source, as_version=4)
    document.cells[1].metadata["tags"] = ["parameters"]
    nbformat.write(document, source)
    (tmp_path / "more.yaml").write_text("more: {a: [1, 2.5, true]}\nn: 5\n")
    given = ["-f", "more.yaml", "-p", "n", "7", "-r", "name", "7"]
    monkeypatch.chdir(tmp_path)
    papermill(["work.ipynb", "theirs.ipynb", "--prepare-only", *given], standalone_mode=False)
    done = run(tmp_path, source, *given)
    assert done.code == 0, done.stderr
    theirs = nbformat.read(tmp_path / "theirs.ipynb", as_version=4)
    assert [cell.source for cell in done.notebook.cells] == [cell.source for cell in theirs.cells]
    assert done.text(4) == "7 7 {'a': [1, 2.5, True]}\n"
    assert [cell["injected_parameters"] for cell in done.report["cells"]] == [False, False, True, False]
    assert done.report["source"]["parameters"] == {"more": {"a": [1, 2.5, True]}, "n": 7, "name": "7"}


PERCENT = '''"""A script."""
# %% [markdown]
# # Title
# %% numbers tags=["parameters"]
n = 1
# %%
import sys
print(n, sys.argv, __file__, __name__)
sys.exit(0)
# %%
print("never")
'''


def test_a_script_prints_as_scripts_do_and_becomes_a_notebook(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(PERCENT)
    done = run(tmp_path, "job.py", "-p", "n", "2")
    assert done.code == 0, done.stderr
    assert done.stdout == "2 ['job.py'] /mnt/data/job.py __main__\n"
    assert [cell.cell_type for cell in done.notebook.cells] == ["code", "markdown", "code", "code", "code", "code"]
    assert done.statuses == ["ok", "ok", "ok", "ok", "not run"]
    assert done.notebook.metadata.kernelspec.name == "sandbox-python"


def test_what_stdout_cannot_say_is_escaped_and_nothing_behind_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script from elsewhere may have any name; none acts on a terminal."""
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    (tmp_path / "a\x1b[2J.py").write_text("print('caf\u00e9', flush=True)\nprint('end')", encoding="utf-8")
    done = run(tmp_path, "a\x1b[2J.py")
    assert done.code == 0, done.stderr
    assert done.stdout == "caf\\xe9\nend\n"
    assert "notebook  " in done.stderr
    assert "\x1b" not in done.stderr


def test_stdin_is_a_script_or_a_notebook_by_its_content(tmp_path: Path) -> None:
    script = run(tmp_path, "-", stdin=b"print(6 * 7)\nraise SystemExit(3)\n")
    assert script.code == 1
    assert script.stdout == "42\n"
    assert script.report["source"]["kind"] == "script"
    notebook = run(tmp_path, "-", stdin=write(tmp_path, "print(6 * 7)").read_bytes())
    assert notebook.code == 0, notebook.stderr
    assert notebook.report["source"]["kind"] == "notebook"
    assert (notebook.stdout, notebook.text(1)) == ("", "42\n")


def test_a_cell_cannot_make_its_notebook_or_report_invalid(start: Callable[..., Done]) -> None:
    """Numbers, names and texts of its choosing, sent as outputs by its own hand."""
    forge = "send = get_ipython().kernel.send_response; socket = get_ipython().kernel.iopub_socket\n"
    result = "send(socket, 'execute_result', {'data': {'text/plain': 'x'}, 'metadata': {}, 'execution_count': %s})"
    done = start(
        forge
        + "stream = {'name': 'stdout', 'text': 'x'}\n"
        + "get_ipython().kernel.session.send(socket, 'stream', stream, parent={'msg_id': 'y'})\n"
        + "\n".join(result % count for count in ("-5", "True", "None", "10**18")),
        "send(socket, 'error', {'ename': 'CellTimeout', 'evalue': 'x' * 50_000, 'traceback': []})",
        "raise type('E' * 20_000, (Exception,), {})('\\ud800\\x00')",
        arguments=("--allow-errors",),
    )
    assert done.code == 5, done.stderr  # a message for a request that nobody made is no accident
    assert done.statuses == ["ok", "failed", "failed"]
    assert [cell.execution_count for cell in done.notebook.cells] == [1, 2, 3]
    assert {output.execution_count for output in done.notebook.cells[0].outputs} == {1}


def test_a_thread_breaks_the_policy_after_its_cell(start: Callable[..., Done]) -> None:
    """What is refused between two cells, or for an earlier one, counts as well."""
    done = start(
        "import threading, time\nfrom IPython.display import HTML, display\n"
        "def late():\n    time.sleep(0.5); display(HTML('<p onclick=alert(1)>'))\n"
        "threading.Thread(target=late).start()",
        "time.sleep(1.5)",
    )
    assert done.code == 5, done.stderr


def test_a_reader_of_a_scripts_output_may_go(tmp_path: Path) -> None:
    (tmp_path / "many.py").write_text("for i in range(50): print('x' * 100_000, flush=True)\nopen('made', 'w').close()")
    started = Started(tmp_path, "many.py")
    started.wait_for_output("x")
    done = started.hang_up()
    assert done.code == 0, done.stderr
    assert len(done.text(1)) == 50 * 100_001


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_reader_who_pauses_stops_no_clock_and_no_ctrl_c(tmp_path: Path, goes_on: bool) -> None:
    """As a pager does, or a terminal after Ctrl-S: a cell ends at its limit although nobody reads what it said."""
    (tmp_path / "many.py").write_text(
        "print('begin')\nfor _ in range(50): print('x' * 10_000)\nimport time; time.sleep(60)"
    )
    audit = tmp_path / "audit.jsonl"
    started = Started(
        tmp_path, "many.py", "--timeout", "2", "--audit", str(audit), "--audit-key", str(tmp_path / "audit.key")
    )
    started.wait_for_output("begin")
    eventually(lambda: '"CellTimeout"' in audit.read_text(), 30, "its cell has ended")
    assert started.process.poll() is None  # it waits for its reader
    if not goes_on:
        started.signal(signal.SIGINT)
        assert started.process.wait(30) == 130
    done = started.ended()
    assert done.code == (4 if goes_on else 130), done.stderr
    assert len(done.text(1).splitlines()) == 51 or not goes_on
    assert done.stdout.count("x") > 490_000 or not goes_on  # the first line was read with what lay behind it


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["Ctrl-C", "SIGTERM"])
def test_a_stopped_run_leaves_a_notebook_with_what_ran_and_no_container(tmp_path: Path, number: int, code: int) -> None:
    source = (
        "# %%\nprint('first')\n# %%\nprint('half', flush=True)\nimport time; time.sleep(100)\n# %%\nprint('third')\n"
    )
    (tmp_path / "long.py").write_text(source)
    started = Started(tmp_path, "long.py")
    started.wait_for_output("half")
    assert containers_of(started.process.pid)
    started.signal(number)
    done = started.ended()
    assert done.code == code, done.stderr
    assert not containers_of(started.process.pid)
    assert done.statuses == ["ok", "stopped", "not run"]
    assert (done.text(1), done.text(2), done.text(3)) == ("first\n", "half\n", "")
    assert done.report["exit"]["cell"] == 2


def test_a_second_ctrl_c_ends_a_run_at_once(tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", "import time; time.sleep(100)")
    started = Started(tmp_path, source)
    started.wait_for("[1/2]")
    started.signal(signal.SIGINT)
    started.signal(signal.SIGINT)
    done = started.ended()
    assert done.code == 130, done.stderr
    assert done.text(1) == "first\n"
    eventually(lambda: not containers_of(started.process.pid), 5, "the container is gone")


def test_ctrl_c_before_the_first_cell_still_leaves_a_report(tmp_path: Path) -> None:
    """A run that waits for its source on stdin."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(command(tmp_path, "-"), stdin=pipe, stdout=pipe, stderr=pipe, cwd=tmp_path)
    eventually((tmp_path / "report.json").exists, 20, "the first report is written")
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)
    done = Done(process.returncode, stdout.decode(), stderr.decode(), tmp_path)
    assert done.code == 130, done.stderr
    assert done.report["exit"]["kind"] == "stopped"


def test_a_killed_run_leaves_no_container_and_the_notebook_of_its_last_cell(tmp_path: Path) -> None:
    source = write(tmp_path, "print('first')", "import time; time.sleep(100)")
    started = Started(tmp_path, source)
    started.wait_for("[1/2]")
    pid = started.process.pid
    eventually(lambda: "first" in (tmp_path / "out" / "work.ipynb").read_text(), 10, "the notebook is saved")
    started.signal(signal.SIGKILL)
    started.ended()
    eventually(lambda: not containers_of(pid), 5, "the container is gone")
    found = json.loads((tmp_path / "report.json").read_text())
    ended = {"code": 3, "kind": "platform failed", "reason": "the run has not ended", "cell": None, "why": None}
    assert found["exit"] == ended


WRONG: dict[str, tuple[list[Any], str]] = {
    "a notebook that is not there": (["none.ipynb"], "cannot be read"),
    "a notebook that is none": (["bad.ipynb"], "not a proper notebook"),
    "a notebook in another language": (["r.ipynb"], "cells here are Python"),
    "a script that is binary": (["bad.py"], "NUL bytes"),
    "an input that is not there": (["work.ipynb", "--input", "none.csv"], "none.csv"),
    "two inputs of one name": (["work.ipynb", "--input", "bad.py", "--input", "sub/bad.py"], "the same name"),
    "a wrong setting": (["work.ipynb", "--memory", "lots"], "not a size"),
    "a wrong time": (["work.ipynb", "--total-timeout", "soon"], "not a time"),
    "two time limits": (["work.ipynb", "--timeout", "1", "--cell-timeout", "2"], "give one"),
    "a download folder": (["work.ipynb", "--downloads", "."], "output folder"),
    "a parameter without a name": (["work.ipynb", "-p", "a-b", "1"], "Python variable"),
    "parameters that are no YAML": (["work.ipynb", "-y", "{"], "not YAML"),
    "an output folder that holds the source": (["work.ipynb", "--output", "."], "would replace"),
    "an output folder that is a file": (["work.ipynb", "--output", "bad.py"], "cannot be made"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_said_before_anything_starts(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The report is valid for these too. In this process: they are many, and a process has nothing to add."""
    write(tmp_path, "1")
    write(tmp_path, "1", name="r.ipynb")
    document = json.loads((tmp_path / "r.ipynb").read_text())
    document["metadata"]["kernelspec"]["language"] = "R"
    (tmp_path / "r.ipynb").write_text(json.dumps(document))
    (tmp_path / "bad.ipynb").write_text('{"cells": 7, "nbformat": 4, "nbformat_minor": 5, "metadata": {}}')
    (tmp_path / "bad.py").write_bytes(b"x = 1\0")
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "bad.py").write_text("x = 1")
    arguments, words = WRONG[name]
    monkeypatch.chdir(tmp_path)
    code = main(["run", "--output", "out", "--report", "report.json", *arguments])
    said = capsys.readouterr()
    done = Done(code, said.out, said.err, tmp_path)
    assert code == 2
    assert words in " ".join(said.err.split())
    assert words in done.report["exit"]["reason"]
    assert done.statuses == []


@pytest.mark.parametrize("arguments", [["work.ipynb"], ["other.py", "--input", "work.ipynb"]])
def test_a_report_does_not_replace_what_is_to_be_read(
    tmp_path: Path, arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = write(tmp_path, "1").read_bytes()
    (tmp_path / "other.py").write_text("1")
    (tmp_path / "link").symlink_to("work.ipynb")
    monkeypatch.chdir(tmp_path)
    for report in ("work.ipynb", "./link"):
        assert main(["run", *arguments, "--report", report]) == 2
        assert "would replace" in capsys.readouterr().err
    assert (tmp_path / "work.ipynb").read_bytes() == before


def removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()


def test_a_notebook_that_can_be_written_no_more_is_the_machines_fault(tmp_path: Path) -> None:
    (tmp_path / "long.py").write_text("# %%\nprint('first')\n# %%\nprint(input)\nimport time; time.sleep(2)\n1 / 0\n")
    started = Started(tmp_path, "long.py", "--output", "gone")
    started.wait_for_output("first")
    eventually(lambda: removed(tmp_path / "gone"), 5, "nothing is written into the folder while it goes")
    done = started.ended()
    assert done.code == 3, done.stderr
    assert "cannot be written" in done.report["exit"]["reason"]
    assert done.statuses == ["ok", "failed"]


@pytest.mark.long  # test_quickstart.py runs the same notebook, and tests above have its kinds of outputs
def test_the_demo_runs_as_a_batch(tmp_path: Path) -> None:
    """Real data, real packages: no event, and the three files that the notebook promises."""
    done = run(tmp_path, DATA / "quickstart.ipynb", "--input", f"{DATA}/data/.")
    assert done.code == 0, done.stderr
    names = [row["path"] for row in done.report["output"]["files"]]
    assert names == ["carrier_summary.csv", "delays.png", "weather_summary.csv"]
    assert all(not cell["policy_events"] for cell in done.report["cells"])


def test_the_example_of_a_gate_tells_good_notebooks_from_bad(tmp_path: Path) -> None:
    """Its own script, in a repository with a branch: what was there before is not run, nor is a name read as code."""
    workflow = yaml.safe_load((DATA.parent / "docs" / "examples" / "pull-request-gate.yml").read_text())
    steps = workflow["jobs"]["notebooks"]["steps"]
    names = [step.get("name") or step["uses"].partition("@")[0] for step in steps]
    assert names.index("Set up the sandbox") < names.index("actions/checkout") < names.index("Run the notebooks")
    assert workflow["permissions"] == {"contents": "read"}
    assert "pull_request_target" not in str(workflow)

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=x", "-c", "user.email=x", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "--quiet", "--initial-branch=main")
    write(tmp_path, "raise SystemError('not a part of this')", name="old.ipynb")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "a.csv").write_text("a\n")
    git("add", "--all")
    git("commit", "--quiet", "--message=base")
    base = git("rev-parse", "HEAD")
    write(tmp_path, "print(open('data/a.csv').read())", name="good.ipynb")
    write(tmp_path, "%%javascript\nalert(1)", name="bad $(touch pwned)\n.ipynb")
    git("add", "--all")
    git("commit", "--quiet", "--message=change")
    script = steps[names.index("Run the notebooks")]["run"]
    environment = {**os.environ, "BASE": base, "PATH": f"{SCRIPT.parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1, done.stderr
    lines = [line for line in done.stdout.splitlines() if line.startswith("results/")]
    assert len(lines) == 2
    assert "results/1.json: $'bad $(touch pwned)\\n.ipynb': it broke the output policy" in lines[0]
    assert lines[1] == "results/2.json: good.ipynb: passed"
    assert not (tmp_path / "pwned").exists()
    for number in ("1", "2"):
        VALIDATOR.validate(json.loads((tmp_path / "results" / f"{number}.json").read_text()))


def test_figures_of_a_run_share_their_library(start: Callable[..., Done]) -> None:
    library = "function draw(what) { document.body.append(what) } // much\n" * 3000
    code = "from IPython.display import HTML\nHTML('<script>' + {!r} * 3000 + '</script><script>draw({})</script>')"
    done = start(*(code.format(library[: len(library) // 3000], number) for number in range(3)))
    sizes = [len(json.dumps(cell.outputs)) for cell in done.notebook.cells]
    assert max(sizes[1:]) < sizes[0] < len(library) / 5
    assert "data-packed" in json.dumps(done.notebook.cells[2].outputs)


# --- notebooks of other languages ------------------------------------------------------------------------------------


def of_bash(folder: Path, *cells: str) -> Path:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    notebook.metadata["kernelspec"] = {"name": "bash", "display_name": "Bash", "language": "bash"}
    path = folder / "notebook.ipynb"
    nbformat.write(notebook, path)
    return path


def test_a_notebook_of_another_language_is_run_by_its_kernel(tmp_path: Path, image: str) -> None:
    path = of_bash(tmp_path, "word=six", "echo $word > out.txt; cat out.txt", "false")
    done = run(tmp_path, path, "--image", image, "--kernel", "bash")
    executed = nbformat.read(tmp_path / "out" / "notebook.ipynb", 4)
    assert executed.cells[1].outputs[0].text == "six\n"
    assert executed.cells[2].outputs[0].ename == "ExitCode"
    assert executed.metadata.kernelspec == {
        "name": "sandbox-bash",
        "display_name": "bash (sandbox)",
        "language": "bash",
    }
    assert (tmp_path / "out" / "files" / "out.txt").read_text() == "six\n"
    assert done.code == 1


def test_a_notebook_of_another_language_than_the_kernel_s_is_refused(tmp_path: Path, image: str) -> None:
    refused = run(tmp_path, of_bash(tmp_path, "echo 1"), "--image", image)
    assert refused.code == 2
    assert "notebook in bash" in refused.stderr
    refused = run(tmp_path, write(tmp_path, "x = 1"), "--image", image, "--kernel", "bash")
    assert refused.code == 2
    assert "the kernel is bash" in refused.stderr
