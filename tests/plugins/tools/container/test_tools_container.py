"""Tools of the caller from real cells: as functions, from threads and async code, with the clock, at their ends."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import AsyncSandbox, ConfigurationError, Sandbox, Tool, Tools
from tests.plugins.tools.unit.test_tools import waiting
from tests.support.patience import Patience, Stopwatch, within

HOLDER: list[Sandbox] = []


def search(query: str, limit: int = 5) -> list[dict[str, str]]:
    """Search the index, newest first."""
    return [{"title": f"{query} {number}"} for number in range(limit)]


async def lookup(key: str) -> dict[str, int] | None:
    """Look a key up."""
    await asyncio.sleep(0)
    return {key: 1} if key else None


def again(code: str) -> str:
    """Run a cell in the very sandbox whose cell waits."""
    try:
        return str(HOLDER[0].run_code(code).text)
    except ConfigurationError as error:
        return error.code.code


def write(name: str) -> None:
    """Write a file into the sandbox: files do not wait for cells."""
    HOLDER[0].files.write(name, "of a tool")


def slow() -> str:
    """Take longer than a cell may."""
    time.sleep(2.5)
    return "done"


@pytest.fixture(scope="module")
def sandbox(image: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    tools = Tools([search, lookup, again, write, Tool.of(slow, stops_clock=True)], calls=400)
    audit = tmp_path_factory.mktemp("audit") / "audit.jsonl"
    with Sandbox(image=image, memory="512M", tools=tools, cell_timeout=20, audit=str(audit)) as one:
        HOLDER[:] = [one]
        one.run_code("from sandbox_tools import *")
        yield one
    HOLDER.clear()


def printed(sandbox: Sandbox, code: str) -> str:
    execution = sandbox.run_code(code)
    assert execution.error is None, execution.error
    return "".join(execution.logs.stdout)


def test_a_cell_calls_them_as_functions(sandbox: Sandbox) -> None:
    said = printed(sandbox, "print(search('a', limit=2)); print(await lookup('k')); print(await lookup(''))")
    assert said == "[{'title': 'a 0'}, {'title': 'a 1'}]\n{'k': 1}\nNone\n"
    assert sandbox.info.tools == ("search", "lookup", "again", "write", "slow")


def test_help_and_completion_show_what_the_host_has(sandbox: Sandbox) -> None:
    said = printed(
        sandbox,
        "from IPython.core.completer import provisionalcompleter\n"
        "shell = get_ipython()\n"
        "print(shell.object_inspect_text('search'))\n"
        "with provisionalcompleter():\n"
        "    for code in 'from sandbox_tools import l', 'sear', 'search(lim':\n"
        "        print([one.text for one in shell.Completer.completions(code, len(code))])",
    )
    said = re.sub(r"\x1b\[\d*m", "", said)
    assert "search(query: str, limit: int = 5) -> list[dict[str, str]]" in said
    assert "Search the index, newest first." in said
    assert said.endswith("['lookup']\n['search']\n['limit=']\n")


def test_threads_and_tasks_call_many_at_once(sandbox: Sandbox) -> None:
    said = printed(
        sandbox,
        "import asyncio, concurrent.futures\n"
        "with concurrent.futures.ThreadPoolExecutor(24) as pool:\n"
        "    print(sorted(len(rows) for rows in pool.map(lambda n: search('a', n), range(40))) == list(range(40)))\n"
        "print(len(await asyncio.gather(*(lookup(str(n)) for n in range(40)))))",
    )
    assert said == "True\n40\n"


def test_a_failure_is_an_exception_of_the_cell(sandbox: Sandbox) -> None:
    error = sandbox.run_code("search(3)").error
    assert error is not None
    assert (error.name, error.value) == (
        "ToolError",
        "the arguments of the tool search do not fit: query is 3, and must be text",
    )


def test_a_tool_cannot_run_a_cell_where_one_waits_but_may_write_files(sandbox: Sandbox) -> None:
    assert printed(sandbox, "print(again('1'))") == "sandbox-in-tool\n"
    assert printed(sandbox, "write('t.txt'); print(open('/mnt/data/t.txt').read())") == "of a tool\n"


def test_the_clock_of_a_cell_stops_if_the_caller_says_so(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("print(slow())", timeout=2)
    assert execution.error is None
    assert execution.seconds > 2


def test_control_the_clock_runs_on_in_other_tools(image: str) -> None:
    with Sandbox(image=image, memory="512M", tools=[slow]) as sandbox:
        error = sandbox.run_code("import sandbox_tools; sandbox_tools.slow()", timeout=1).error
        assert error is not None
        assert error.name == "CellTimeout"


def test_a_cell_that_calls_a_million_times_meets_its_number(sandbox: Sandbox) -> None:
    execution = sandbox.run_code(
        "codes = []\n"
        "for _ in range(10**6):\n"
        "    try: search('a', 0)\n"
        "    except ToolError as error:\n"
        "        codes.append(error.code)\n"
        "        if len(codes) > 50: break\n"
        "print(set(codes), len(codes))"
    )
    assert "".join(execution.logs.stdout) == "{'tool-calls'} 51\n"
    assert "".join(execution.logs.stderr).count("a cell calls tools 400 times at most") == 1
    assert printed(sandbox, "print(search('a', 0))") == "[]\n"


def test_a_cell_that_forges_calls_reaches_no_tool(sandbox: Sandbox) -> None:
    said = printed(
        sandbox,
        "import socket, struct\n"
        "def say(data):\n"
        "    with socket.create_connection(('127.0.0.1', 3128)) as s:\n"
        "        try:\n"
        "            s.sendall(data); s.shutdown(1)\n"
        "            return s.recv(1 << 16)[4:78]\n"
        "        except OSError as error: return type(error).__name__\n"
        "begin = b'\\0sandbox_tools\\n'\n"
        "print(say(begin + struct.pack('!I', 1 << 30) + b'x' * 200_000))\n"
        'name = b\'{"tool": "os.system", "arguments": {}}\'\n'
        "print(say(begin + struct.pack('!I', len(name)) + name))\n"
        "print(say(b'CONNECT api.example.org:443 HTTP/1.1\\r\\n\\r\\n') in (b'', 'ConnectionResetError'))",
    )
    assert said.splitlines()[1:] == [
        'b\'{"error": {"code": "tool-unknown", "said": "there is no tool of that name"\'',
        "True",
    ]
    assert "tool-arguments-large" in said.splitlines()[0] or "Error" in said.splitlines()[0]


def test_a_thread_that_outlives_its_cell_calls_nothing(sandbox: Sandbox) -> None:
    sandbox.run_code(
        "import threading\n"
        "late, ended = [], threading.Event()\n"
        "def work():\n"
        "    while not late:\n"
        "        try: search('late', 0)\n"
        # One that is under way at the end of its cell is stopped with it; what is asked for is the next one.
        "        except ToolError as error: late.extend({error.code} - {'tool-stopped'})\n"
        "threading.Thread(target=work).start()"
    )
    patience = Patience()
    while (found := printed(sandbox, "print(late)")) == "[]\n":
        assert patience.count() < 30
    assert found in {"['tool-without-cell']\n", "['tool-calls']\n"}


def test_a_new_kernel_has_them_too_and_the_audit_each_call_by_name(sandbox: Sandbox) -> None:
    sandbox.restart()
    sandbox.run_code("from sandbox_tools import *")
    assert printed(sandbox, "print(search('named', 1))") == "[{'title': 'named 0'}]\n"
    lines = [json.loads(line) for line in Path(str(sandbox.settings.get("audit", None))).read_text().splitlines()]
    last = [line for line in lines if line["event"] == "tool"][-1]
    assert (last["tool"], last["code"]) == ("search", "tool-called")
    assert {"cell", "seconds", "bytes_in", "bytes_out"} <= last.keys()


async def test_an_interrupt_gives_a_call_up(image: str) -> None:
    waits, begun, stopped = waiting()
    async with AsyncSandbox(image=image, memory="512M", tools=[waits]) as sandbox:
        cell = asyncio.create_task(sandbox.run_code("from sandbox_tools import waits\nawait waits()"))
        async with within(60):
            await begun.wait()
            with Stopwatch() as watch:
                await sandbox.interrupt()
                await cell
            await stopped.wait()
        assert watch.seconds < 5


def test_a_call_adds_little(sandbox: Sandbox) -> None:
    """Two milliseconds on a quiet machine; the bound is for one that is not."""
    said = printed(
        sandbox,
        "import time\ntimes = []\n"
        "for _ in range(200):\n"
        "    began = time.perf_counter(); search('a', 1); times.append(time.perf_counter() - began)\n"
        "print(sorted(times)[100])",
    )
    assert float(said) < 0.05
