"""The SDK as a chat back end uses it: cells and what they bring, callbacks, limits, cancelling, many calls at once."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import sandbox_kernel
from sandbox_kernel import AsyncSandbox, CallbackFailed, ConfigurationError, Execution, Result, Sandbox, SandboxClosed
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.model import Message
from sandbox_kernel.engines.inspectable import Listed
from sandbox_kernel.plugins import index
from sandbox_kernel.sdk.execution import ExecutionRecorder
from tests.support.kernels import containers_of

SOON = 20.0
"""Seconds for what takes one on a quiet machine."""
SHARED: set[str] = set()
"""Ids of sandboxes that outlive a test."""


@pytest.fixture(scope="module")
def shared(image: str) -> Iterator[Sandbox]:
    """A blocking sandbox that the tests of this module share: they leave it usable."""
    with Sandbox(image=image, memory="512M", cell_timeout=60) as sandbox:
        SHARED.add(sandbox.id)
        yield sandbox
    SHARED.clear()
    assert not containers_here()  # that the thread ends is asked of a process of its own, in test_client_lifetimes.py


def containers_here() -> list[Listed]:
    """Return the containers of this process, but for the one that the tests of this module share."""
    return [row for row in containers_of(os.getpid()) if row.session not in SHARED]


# --- what a cell brings ----------------------------------------------------------------------------------------------


def test_the_last_expression_is_the_text(shared: Sandbox) -> None:
    execution = shared.run_code("print('hello'); print('oh', file=__import__('sys').stderr); 6 * 7")
    assert execution.ok
    assert execution.text == "42"
    assert [result.is_main_result for result in execution.results] == [True]
    assert "".join(execution.logs.stdout) == "hello\n"
    assert "".join(execution.logs.stderr) == "oh\n"
    assert execution.error is None
    assert 0 < execution.seconds < SOON
    assert execution.execution_count is not None


def test_variables_stay_between_calls(shared: Sandbox) -> None:
    shared.run_code("kept = [1, 2]")
    assert shared.run_code("kept.append(3); kept").text == "[1, 2, 3]"


def test_a_chart_and_a_table_come_back_by_their_names(shared: Sandbox) -> None:
    execution = shared.run_code(
        "import pandas as pd, matplotlib.pyplot as plt\n"
        "plt.plot([1, 2, 3]); plt.show()\n"
        "from IPython.display import JSON, Markdown, display\n"
        "display(JSON({'a': [1]})); display(Markdown('**bold**'))\n"
        "pd.DataFrame({'x': [1, 2]})"
    )
    assert execution.error is None
    chart, data, words, table = execution.results
    assert base64.b64decode(chart.png or "").startswith(b"\x89PNG")
    assert data.json == {"a": [1]}
    assert (words.text, words.markdown, words.html) == ("**bold**", "**bold**", None)
    assert "<table" in (table.html or "")
    assert table.is_main_result
    assert table.formats() == ["text", "html"]
    assert execution.text == table.text
    assert json.loads(execution.to_json())["results"][1]["data"]["application/json"] == {"a": [1]}


def test_javascript_is_not_among_the_results(shared: Sandbox) -> None:
    execution = shared.run_code("from IPython.display import Javascript; Javascript('alert(1)')")
    assert all(result.javascript is None for result in execution.results)
    assert "removed application/javascript" in str(execution.results)


def test_an_exception_is_an_error_with_its_parts(shared: Sandbox) -> None:
    execution = shared.run_code("print('before')\n1 / 0")
    error = execution.error
    assert error is not None
    assert (error.name, error.value, error.fault) == ("ZeroDivisionError", "division by zero", "user code")
    assert "----> 2 1 / 0" in error.traceback
    assert "\x1b" not in error.traceback
    assert not error.from_sandbox
    assert execution.logs.stdout == ["before\n"]


def test_a_cell_cannot_pass_its_exception_off_as_the_sandbox_s(shared: Sandbox) -> None:
    error = shared.run_code("class CellTimeout(Exception): pass\nraise CellTimeout('Limit: 1 s.')").error
    assert error is not None
    assert error.name == "CellTimeout"
    assert not error.from_sandbox
    assert error.limit is None


def test_an_update_changes_the_display_and_clearing_clears(shared: Sandbox) -> None:
    shown = shared.run_code(
        "from IPython.display import display\nhandle = display('one', display_id=True)\nhandle.update('two')"
    )
    assert [result.text for result in shown.results] == ["'two'"]
    cleared = shared.run_code(
        "from IPython.display import clear_output\n"
        "for i in range(3):\n    clear_output(wait=True)\n    print(i)\n    display(i)"
    )
    assert (cleared.logs.stdout, [result.text for result in cleared.results]) == (["2\n"], ["2"])


def shown(kind: str, text: str, display_id: str) -> Message:
    content = {"data": {"text/plain": text}, "metadata": {}, "transient": {"display_id": display_id}}
    return Message(channel="iopub", header={"msg_type": kind}, content=content)


def test_an_update_is_for_the_displays_before_it() -> None:
    recorder = ExecutionRecorder("")
    for kind, text in (("display_data", "one"), ("update_display_data", "two"), ("display_data", "three")):
        list(recorder.take(shown(kind, text, "a"), None))
    list(recorder.take(shown("update_display_data", "other", "b"), None))
    assert [result.text for result in recorder.execution.results] == ["two", "three"]


@pytest.mark.parametrize("ids", [1, 10_000])
def test_many_updates_of_many_displays_do_not_hold_up_the_process(ids: int) -> None:
    recorder, began = ExecutionRecorder(""), time.thread_time()
    for kind in ("display_data", "update_display_data"):
        for number in range(10_000):
            list(recorder.take(shown(kind, kind, str(number % ids)), None))
    assert {result.text for result in recorder.execution.results} == {"update_display_data"}
    assert time.thread_time() - began < 2.5  # each with each takes many times that


def test_what_was_used_is_told(shared: Sandbox) -> None:
    execution = shared.run_code("x = bytearray(100_000_000)\nfor _ in range(3_000_000): pass")
    assert execution.usage.cpu_seconds is not None
    assert 0.01 < execution.usage.cpu_seconds < SOON
    assert execution.usage.memory_peak_bytes is not None
    assert 100_000_000 < execution.usage.memory_peak_bytes <= 512 << 20
    now = shared.usage()
    assert now.memory_bytes is not None
    assert now.memory_bytes > 100_000_000
    shared.run_code("del x")


def test_a_sandbox_says_what_it_is(shared: Sandbox, image: str) -> None:
    info = shared.info
    assert (info.image, info.outputs, info.network, info.id) == (image, "safe", "none", shared.id)
    assert info.limits.memory == 512 << 20
    assert (info.python or "").startswith("3.")
    assert shared.is_alive
    assert "512.0 MiB" in repr(shared)
    assert repr(shared).startswith("<Sandbox ")


def test_values_show_themselves_in_a_notebook(shared: Sandbox) -> None:
    execution = shared.run_code("print('<b>')\nimport pandas as pd\npd.DataFrame({'x': [1]})")
    shown = execution._repr_mimebundle_()
    assert "&lt;b&gt;" in shown["text/html"]
    assert "<table" in shown["text/html"]
    assert shown["text/plain"] == repr(execution)
    assert execution.results[0]._repr_mimebundle_()[0]["text/html"] == execution.results[0].html
    failed = shared.run_code("raise ValueError('<i>')")
    assert "ValueError: &lt;i&gt;" in failed._repr_mimebundle_()["text/html"]
    assert "ValueError: <i>" in repr(failed)
    assert repr(Execution(code="x")) == "Execution(0.00 s)"


def test_blocking_callbacks_run_in_the_caller_s_thread_and_may_use_the_sandbox(shared: Sandbox) -> None:
    threads = []

    async def later(result: Result) -> None:
        await asyncio.sleep(0)
        threads.append(result.text)

    def interrupt(text: str) -> None:
        threads.append(threading.current_thread())  # type: ignore[arg-type]
        shared.files.write("from a callback", text)
        shared.interrupt()

    execution = shared.run_code(
        "import time\ndisplay(7)\nprint('now', flush=True)\ntime.sleep(50)", on_stdout=interrupt, on_result=later
    )
    assert threads == ["7", threading.current_thread()]
    assert execution.error is not None
    assert execution.error.name == "KeyboardInterrupt"
    assert shared.files.read("from a callback", "text") == "now\n"
    with pytest.raises(CallbackFailed, match="a string"):
        shared.run_code("print(1)", on_stdout=lambda _: (_ for _ in ()).throw(ValueError("a string")))


def test_a_blocking_call_on_the_loop_s_own_thread_is_refused(shared: Sandbox) -> None:
    async def wrong(_: object) -> None:
        shared.run_code("1")

    with pytest.raises(CallbackFailed, match="use AsyncSandbox"):
        shared.run_code("print(1)", on_stdout=wrong)
    assert shared.run_code("1").text == "1"


# --- input -----------------------------------------------------------------------------------------------------------


def test_input_is_answered_or_refused_clearly(shared: Sandbox) -> None:
    refused = shared.run_code("input('name? ')").error
    assert refused is not None
    assert refused.name == "StdinNotImplementedError"
    prompts = []

    def answer(prompt: sandbox_kernel.Prompt) -> str:
        prompts.append((str(prompt), prompt.password))
        return "Ada"

    code = "import getpass\ninput('name? ') + getpass.getpass('word? ')"
    assert shared.run_code(code, on_input=answer).text == "'AdaAda'"
    assert prompts == [("name? ", False), ("word? ", True)]


def test_a_killed_blocking_sandbox_says_so(image: str) -> None:
    sandbox = Sandbox(image=image)
    sandbox.kill()
    sandbox.kill()
    with pytest.raises(SandboxClosed, match="killed"):
        sandbox.run_code("1")
    with pytest.raises(SandboxClosed, match="killed"):
        sandbox.files.list()


def test_settings_are_checked_at_once_and_come_in_two_ways() -> None:
    with pytest.raises(ConfigurationError, match="did you mean"):
        AsyncSandbox(memroy="1G")  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="memory"):
        Sandbox(memory="much")
    settings = from_keywords(memory="1G")
    assert AsyncSandbox(settings).settings is settings
    with pytest.raises(ConfigurationError, match="either"):
        AsyncSandbox(settings, memory="2G")


def test_a_sandbox_that_was_never_started_leaves_no_file_open(tmp_path: Path) -> None:
    audit = tmp_path / "audit.jsonl"

    def is_open() -> bool:
        return any(os.path.realpath(link) == str(audit) for link in Path("/proc/self/fd").iterdir())

    sandbox = Sandbox(audit=str(audit))
    assert is_open()
    sandbox.kill()
    sandbox.kill()
    assert not is_open()


def test_several_threads_may_share_a_sandbox(shared: Sandbox) -> None:
    texts: list[str | None] = []
    threads = [threading.Thread(target=lambda i=i: texts.append(shared.run_code(str(i)).text)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert sorted(map(str, texts)) == [str(i) for i in range(6)]


# --- the package -----------------------------------------------------------------------------------------------------


def test_every_public_name_is_there_and_documented() -> None:
    for name in sandbox_kernel.__all__:
        assert getattr(sandbox_kernel, name) is not None
        assert name in dir(sandbox_kernel)
    with pytest.raises(AttributeError, match="Sandboxx"):
        sandbox_kernel.Sandboxx  # noqa: B018


def test_the_types_help_a_caller(tmp_path: Any) -> None:
    """A type checker accepts a right use, and finds the mistakes in a wrong one."""
    right = tmp_path / "right.py"
    right.write_text(
        "from sandbox_kernel import AsyncSandbox, Sandbox\n"
        "async def main() -> str | None:\n"
        "    async with AsyncSandbox(memory='1G', cell_timeout=30) as sandbox:\n"
        "        execution = await sandbox.run_code('1', on_stdout=print)\n"
        "        data: bytes = await sandbox.files.read('x', 'bytes')\n"
        "        return execution.results[0].png\n"
        "with Sandbox() as sandbox:\n"
        "    text: str = sandbox.files.read('x')\n"
    )
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "from sandbox_kernel import Sandbox\nSandbox(memroy='1G')\nsandbox = Sandbox()\n"
        "sandbox.run_code(1)\nsandbox.files.read('x') + b''\n"
    )
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", str(tmp_path / "cache")]
    done = subprocess.run([*command, str(right)], capture_output=True, text=True, timeout=170, check=False)
    assert (done.stdout, done.returncode) == ("", 0)
    done = subprocess.run([*command, str(wrong)], capture_output=True, text=True, timeout=170, check=False)
    assert {line.partition(":")[2].partition(":")[0] for line in done.stdout.splitlines()} == {"2", "4", "5"}


def test_a_session_in_the_caller_s_process_imports_no_client_of_jupyter() -> None:
    code = "import sys; from sandbox_kernel import AsyncSandbox, Sandbox; Sandbox(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert not {"zmq", "jupyter_client", "docker", "traitlets", "nh3"} & set(done.stdout.split())


def test_what_is_off_is_not_imported(image: str) -> None:
    """So it costs nothing: no plugin but for its table of settings. The control is one that is on."""
    code = (
        "import sys; from sandbox_kernel import Sandbox\n"
        "with Sandbox(engine='docker', image=sys.argv[1], **eval(sys.argv[2])) as sandbox:\n"
        "    assert sandbox.run_code('6 * 7').text == '42'\n"
        "names = [name.split('.')[2:] for name in sys.modules if name.startswith('sandbox_kernel.plugins.')]\n"
        "print(*{name[0] for name in names if name[1:] not in ([], ['settings'])})"
    )
    on = {"screen": {"screen": "warn"}, "monitor": {"monitor": "alert"}}
    for plugins, given in {"": {}, **{name: given for name, given in on.items() if index.is_here(name)}}.items():
        words = [sys.executable, "-c", code, image, repr(given)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
        assert done.stdout.strip() == plugins
