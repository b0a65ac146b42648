"""The Jupyter protocol beyond plain cells: input, completion, comms, subshells, debugger, several clients."""

from __future__ import annotations

import base64
import importlib
import io
import json
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from packaging.version import Version

from sandbox_kernel import __version__
from tests.support.kernels import WAIT, Kernel, connect_another, control, replied

Start = Callable[..., Kernel]


def published(client: BlockingKernelClient, message_id: str, *kinds: str) -> dict[str, Any]:
    """Return the next published message of these types that belongs to a request."""
    end = time.monotonic() + WAIT
    while True:
        message = client.get_iopub_msg(timeout=max(0.1, end - time.monotonic()))
        if message["parent_header"].get("msg_id") == message_id and message["msg_type"] in kinds:
            return dict(message)


def test_kernel_info_is_honest(kernel: Kernel) -> None:
    """It says who answers, what runs inside, and the limits, on both channels."""
    message_id = kernel.client.kernel_info()
    while (message := kernel.client.get_shell_msg(timeout=WAIT))["parent_header"]["msg_id"] != message_id:
        pass
    reply = message["content"]
    assert reply["implementation"] == "sandbox_kernel"
    assert Version(reply["implementation_version"]) >= Version("9")  # IPython's, with which clients compare it
    assert reply["sandbox"]["version"] == __version__
    assert reply["language_info"]["name"] == "python"
    assert reply["language_info"]["version"].startswith("3.13")
    assert reply["sandbox"]["network"] == "none"
    assert reply["sandbox"]["limits"]["memory"] == 2 << 30
    assert "2.0 GiB" in reply["banner"]
    assert control(kernel.client, "kernel_info_request") == reply


def test_kernel_info_on_shell_follows_the_cell_before_it(kernel: Kernel) -> None:
    """A client that reads replies in the order of its requests gets them so; another client does not wait."""
    wait = "import time; print('runs', flush=True); time.sleep(0.4); raise ValueError"
    cell, _ = kernel.start(wait, until="stream")
    asked = {cell, kernel.client.kernel_info(), kernel.client.comm_info()}
    replies: list[dict[str, Any]] = []
    while len(replies) < 3:
        reply = kernel.client.get_shell_msg(timeout=WAIT)
        replies += [reply] if reply["parent_header"].get("msg_id") in asked else []
    assert [one["msg_type"] for one in replies] == ["execute_reply", "kernel_info_reply", "comm_info_reply"]
    assert [one["content"]["status"] for one in replies] == ["error", "ok", "ok"]
    kernel.start("time.sleep(60)")
    begin = time.monotonic()
    kernel.client.kernel_info()
    assert kernel.client.get_shell_msg(timeout=WAIT)["msg_type"] == "kernel_info_reply"
    assert 0.5 < time.monotonic() - begin < 10
    assert control(kernel.client, "interrupt_request")["status"] == "ok"
    assert kernel.client.get_shell_msg(timeout=WAIT)["content"]["ename"] == "KeyboardInterrupt"


def packed(*modules: str) -> str:
    """Return pure Python of this machine as a zip archive in Base64, which a sandbox can import from."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in modules:
            [folder] = importlib.import_module(name).__path__
            for path in Path(folder).rglob("*.py"):
                if "_tests" not in path.parts:
                    archive.write(path, path.relative_to(Path(folder).parent))
    return base64.b64encode(file.getvalue()).decode()


def test_an_interrupt_meets_a_loop_of_another_library(kernel: Kernel) -> None:
    """Trio takes interrupts only where it finds Python's own handler when it begins."""
    archive = packed("trio", "attr", "attrs", "outcome", "sniffio", "sortedcontainers", "idna")
    kernel.run(
        f"import base64, sys; open('trio.zip', 'wb').write(base64.b64decode('{archive}')); "
        "sys.path.insert(0, '/mnt/data/trio.zip')"
    )
    assert kernel.run("import trio\n%autoawait trio").reply["status"] == "ok"
    try:
        message_id, begin = kernel.start("print('begins'); await trio.sleep(60)", until="stream")
        assert control(kernel.client, "interrupt_request")["status"] == "ok"
        ended = kernel.collect(message_id, begin)
        assert (ended.ename, ended.text("stderr")) == ("KeyboardInterrupt", "")
        assert kernel.run("await trio.sleep(0); print(1)").text() == "1\n"
    finally:
        assert kernel.run("%autoawait asyncio").reply["status"] == "ok"
    message_id, begin = kernel.start("import asyncio; print('begins'); await asyncio.sleep(60)", until="stream")
    assert control(kernel.client, "interrupt_request")["status"] == "ok"
    assert kernel.collect(message_id, begin).ename in {"CancelledError", "KeyboardInterrupt"}


def test_control_answers_while_a_cell_runs(kernel: Kernel) -> None:
    message_id, begin = kernel.start("import time; print('runs', flush=True); time.sleep(60)", until="stream")
    assert control(kernel.client, "kernel_info_request")["status"] == "ok"
    assert control(kernel.client, "usage_request")["status"] == "ok"
    assert control(kernel.client, "interrupt_request")["status"] == "ok"
    assert kernel.collect(message_id, begin).ename == "KeyboardInterrupt"


def test_connect_request_tells_the_front_ports(kernel: Kernel) -> None:
    reply = control(kernel.client, "connect_request")
    assert reply["shell_port"] == kernel.manager.shell_port
    assert reply["hb_port"] == kernel.manager.hb_port


def test_usage_shows_the_limits_of_the_sandbox(kernel: Kernel) -> None:
    reply = control(kernel.client, "usage_request")
    memory = reply["host_virtual_memory"]
    assert memory["total"] == 2 << 30
    assert 20_000_000 < reply["kernel_memory"] < memory["total"]
    assert memory["used"] + memory["available"] == memory["total"]
    assert reply["cpu_count"] == 2


def test_the_state_says_what_is_used_and_how_long_it_may_go_on(kernel: Kernel) -> None:
    """Between cells and while one runs; the figures of the sandbox's own word are within its limits."""
    kernel.run("open('some.bin', 'wb').write(bytes(5_000_000)); data = bytearray(30_000_000)")
    reply = control(kernel.client, "sandbox_state_request")
    assert (reply["status"], reply["version"], reply["state"], reply["problem"]) == ("ok", 1, "idle", "")
    assert 5_000_000 <= reply["scratch_bytes"] <= 512 << 20
    assert 30_000_000 < reply["memory_bytes"] <= 2 << 30
    assert 0 < reply["processes"] <= 256
    assert reply["cell_seconds"] is None
    assert 0 < reply["idle_seconds"] <= 3600
    again = control(kernel.client, "sandbox_state_request")
    assert again["idle_seconds"] <= reply["idle_seconds"]  # asking is no use
    message_id, begin = kernel.start("import time; print('runs', flush=True); time.sleep(60)", until="stream")
    reply = control(kernel.client, "sandbox_state_request")
    assert (reply["state"], reply["idle_seconds"]) == ("busy", None)
    assert 0 < reply["cell_seconds"] <= 300
    assert control(kernel.client, "interrupt_request")["status"] == "ok"
    assert kernel.collect(message_id, begin).ename == "KeyboardInterrupt"


def test_heartbeat_answers_while_a_cell_runs(kernel: Kernel) -> None:
    message_id, begin = kernel.start("import time; time.sleep(60)")
    kernel.client.hb_channel.unpause()
    end = time.monotonic() + 3
    while time.monotonic() < end:
        assert kernel.client.hb_channel.is_beating()
        assert not replied(kernel.client, message_id, 0.1), "the cell runs"
    kernel.manager.interrupt_kernel()
    kernel.collect(message_id, begin)


def test_input_and_password(kernel: Kernel) -> None:
    client = kernel.client
    begin = time.monotonic()
    for function, password in (("input", False), ("__import__('getpass').getpass", True)):
        message_id = client.execute(f"print('got', {function}('who? '))", allow_stdin=True)
        request = client.get_stdin_msg(timeout=WAIT)
        assert request["content"] == {"prompt": "who? ", "password": password}
        assert request["parent_header"]["msg_id"] == message_id
        client.input("me")
        assert kernel.collect(message_id, begin).text() == "got me\n"


def test_input_that_was_not_allowed_is_an_error(kernel: Kernel) -> None:
    assert kernel.run("input('who?')", allow_stdin=False).ename == "StdinNotImplementedError"


def test_input_stops_the_clock(start_kernel: Start) -> None:
    kernel = start_kernel("--cell-timeout", "2")
    begin = time.monotonic()
    message_id = kernel.client.execute("print('got', input('who? '))", allow_stdin=True)
    kernel.client.get_stdin_msg(timeout=WAIT)
    assert not replied(kernel.client, message_id, 3.5)
    kernel.client.input("me")
    assert kernel.collect(message_id, begin).text() == "got me\n"


def test_input_goes_to_the_client_that_asked(kernel: Kernel) -> None:
    other = connect_another(kernel.manager)
    try:
        begin = time.monotonic()
        message_id = other.execute("print('got', input('who? '))", allow_stdin=True)
        other.get_stdin_msg(timeout=WAIT)
        assert not kernel.client.stdin_channel.msg_ready()
        kernel.client.input("the wrong one")
        other.input("me")
        assert kernel.collect(message_id, begin, client=other).text() == "got me\n"
    finally:
        other.stop_channels()


def test_two_clients_get_their_own_replies_and_all_outputs(kernel: Kernel) -> None:
    other = connect_another(kernel.manager)
    try:
        begin = time.monotonic()
        first, second = kernel.client.execute("print('one')"), other.execute("print('two')")
        assert kernel.collect(first, begin).text() == "one\n"
        assert kernel.collect(second, begin, client=other).text() == "two\n"
        third = kernel.client.execute("print('three')")
        assert published(other, third, "stream")["content"]["text"] == "three\n"
    finally:
        other.stop_channels()


def test_completion_inspection_and_history(kernel: Kernel) -> None:
    client = kernel.client
    kernel.run("a_long_name = 1")
    assert "a_long_name" in client.complete("a_long_n", reply=True, timeout=WAIT)["content"]["matches"]
    inspected = client.inspect("a_long_name", reply=True, timeout=WAIT)["content"]
    assert inspected["found"]
    assert "int" in inspected["data"]["text/plain"]
    tail = client.history(hist_access_type="tail", n=1, reply=True, timeout=WAIT)["content"]["history"]
    assert tail[0][2] == "a_long_name = 1"
    message_id = client.is_complete("for x in y:")
    while (reply := client.get_shell_msg(timeout=WAIT))["parent_header"]["msg_id"] != message_id:
        pass
    assert reply["content"]["status"] == "incomplete"


LYING = """
def lie(code, cursor_pos):
    typed = [{{"start": 0, "end": 5, "text": "{text}", "type": "function"}}]
    return {{"status": "ok", "matches": ["df.head"], "cursor_start": {start}, "cursor_end": cursor_pos,
            "metadata": {{"_jupyter_types_experimental": typed}}}}
get_ipython().kernel.do_complete = lie
"""


def test_a_kernel_that_lies_about_completions_inserts_nothing_else(kernel: Kernel) -> None:
    """Its control is in it: the kernel does answer so, and what is in order of its answer comes."""
    code = "x = 1\ndf.he"
    for start, text, matches in ((6, "evil()", ["df.head"]), (0, "df.head", []), (6, "df.head", ["df.head"])):
        kernel.run(LYING.format(start=start, text=text))
        content = kernel.client.complete(code, reply=True, timeout=WAIT)["content"]
        kernel.run("del get_ipython().kernel.do_complete")
        assert content["matches"] == matches
        assert {one["text"] for one in content["metadata"].get("_jupyter_types_experimental", [])} == {*matches}


@pytest.mark.parametrize(
    "code", ["al|", "x = al|\ny", "d['my col|", "d[|", "open('my di|", "%%ti|", "%run my|", "al.re|"]
)
def test_control_what_ipython_completes_passes(kernel: Kernel, code: str) -> None:
    kernel.run(
        "import pathlib; pathlib.Path('my dir').mkdir(exist_ok=True); pathlib.Path('my dir/file.py').touch()\n"
        "pathlib.Path('my.py').touch(); d = {'my column': 1}; al = 1"
    )
    content = kernel.client.complete(code.replace("|", ""), code.index("|"), reply=True, timeout=WAIT)["content"]
    assert content["matches"]
    assert len(content["metadata"]["_jupyter_types_experimental"]) == len(content["matches"])
    assert "type" in content["metadata"]["_jupyter_types_experimental"][0]


def test_flags_of_execute(kernel: Kernel) -> None:
    silent = kernel.run("print('x'); 5", silent=True)
    assert silent.reply["status"] == "ok"
    assert not [m for m in silent.messages if m["msg_type"] in {"execute_input", "execute_result"}]
    count = kernel.run("1").reply["execution_count"]
    assert kernel.run("2", store_history=False).reply["execution_count"] == count
    expressions = kernel.run("y = 3", user_expressions={"twice": "y * 2"}).reply["user_expressions"]
    assert expressions["twice"]["data"]["text/plain"] == "6"


def test_display_updates(kernel: Kernel) -> None:
    result = kernel.run("h = display('before', display_id='mine'); h.update('after')")
    updates = [m for m in result.messages if m["msg_type"] == "update_display_data"]
    assert updates[0]["content"]["data"]["text/plain"] == "'after'"
    assert updates[0]["content"]["transient"]["display_id"] == "mine"


def test_a_thread_that_prints_late_still_finds_its_cell(kernel: Kernel) -> None:
    code = "import threading, time\nthreading.Thread(target=lambda: (time.sleep(0.5), print('late'))).start()"
    message_id = kernel.client.execute(code)
    assert published(kernel.client, message_id, "stream")["content"]["text"].startswith("late")


def test_what_a_program_writes_is_the_cell_s_that_ran_it(kernel: Kernel) -> None:
    """The end of a cell reads it: here ipykernel's own threads for that have ended at the first line."""
    kernel.run("import os, sys\nfor each in (sys.stdout, sys.stderr): each._should_watch = False")
    kernel.run("os.system('echo last words; echo and these >&2')")
    for number in range(3):
        result = kernel.run(f"os.system('echo {number}; echo {number} >&2')")
        assert (result.text("stdout"), result.text("stderr")) == (f"{number}\n", f"{number}\n")


def test_widgets_answer_through_comms(kernel: Kernel) -> None:
    """A slider opens its comms; a move made in the front end reaches the callback, whose output comes back."""
    code = (
        "import ipywidgets as w\ns = w.IntSlider()\nout = []\n"
        "s.observe(lambda change: (out.append(change.new), print('moved', change.new)), 'value')\ndisplay(s)"
    )
    result = kernel.run(code)
    opened = [m["content"] for m in result.messages if m["msg_type"] == "comm_open"]
    model = next(c for c in opened if c["data"]["state"].get("_model_name") == "IntSliderModel")
    content = {"comm_id": model["comm_id"], "data": {"method": "update", "state": {"value": 7}, "buffer_paths": []}}
    message = kernel.client.session.msg("comm_msg", content)
    kernel.client.shell_channel.send(message)
    moved = published(kernel.client, message["header"]["msg_id"], "stream")
    assert moved["content"]["text"].startswith("moved 7")
    assert kernel.run("out").value == "[7]"


def test_binary_buffers_arrive(kernel: Kernel) -> None:
    code = "import ipywidgets as w\nimage = w.Image(value=b'\\x89PNG\\r\\n\\x1a\\n' + bytes(1000), format='png')"
    result = kernel.run(code)
    buffers = [m["buffers"] for m in result.messages if m["msg_type"] == "comm_open" and m["buffers"]]
    assert bytes(buffers[0][0]).startswith(b"\x89PNG")
    assert len(buffers[0][0]) == 1008


def test_subshells_run_beside_a_busy_kernel(kernel: Kernel) -> None:
    assert "kernel subshells" in kernel_info(kernel)["supported_features"]
    subshell = control(kernel.client, "create_subshell_request")["subshell_id"]
    assert control(kernel.client, "list_subshell_request")["subshell_id"] == [subshell]
    busy, begin = kernel.start("import time; time.sleep(60)")
    message = kernel.client.session.msg("execute_request", {"code": "print('beside')", "silent": False})
    message["header"]["subshell_id"] = subshell
    kernel.client.shell_channel.send(message)
    assert published(kernel.client, message["header"]["msg_id"], "stream")["content"]["text"] == "beside\n"
    kernel.manager.interrupt_kernel()
    kernel.collect(busy, begin)
    assert control(kernel.client, "delete_subshell_request", {"subshell_id": subshell})["status"] == "ok"


def kernel_info(kernel: Kernel) -> dict[str, Any]:
    return control(kernel.client, "kernel_info_request")


def test_debugger_stops_at_a_breakpoint_and_the_clock_with_it(start_kernel: Start) -> None:
    """The requests that JupyterLab's debugger sends: attach, breakpoint, stopped, variables, continue."""
    kernel = start_kernel("--cell-timeout", "2")
    client = kernel.client

    def debug(command: str, **arguments: Any) -> dict[str, Any]:
        reply = debugged(kernel, command, **arguments)
        assert reply["success"], reply
        return dict(reply.get("body", {}))

    assert "debugger" in kernel_info(kernel)["supported_features"]
    debug("debugInfo")
    debug("initialize", clientID="test", adapterID="", pathFormat="path", linesStartAt1=True, columnsStartAt1=True)
    debug("attach")
    code = "a = 1\nb = a + 1\nprint(b)"
    path = debug("dumpCell", code=code)["sourcePath"]
    debug("setBreakpoints", source={"path": path}, breakpoints=[{"line": 2}], sourceModified=False)
    debug("configurationDone")
    begin = time.monotonic()
    message_id = client.execute(code)
    stopped = event(client, "stopped")
    thread = stopped["body"]["threadId"]
    frames = debug("stackTrace", threadId=thread)["stackFrames"]
    assert frames[0]["line"] == 2
    assert [one["name"] for one in frames] == ["<module>"], "the cell, and nothing of what started the kernel"
    assert not replied(client, message_id, 3)  # longer than the cell's limit
    debug("continue", threadId=thread)
    result = kernel.collect(message_id, begin)
    assert result.reply["status"] == "ok"
    assert result.text() == "2\n"
    debug("disconnect", restart=False, terminateDebuggee=True)


def debugged(kernel: Kernel, command: str, **arguments: Any) -> dict[str, Any]:
    return control(
        kernel.client, "debug_request", {"type": "request", "seq": 1, "command": command, "arguments": arguments}
    )


LOADED = "import sys\nprint('debugpy' in sys.modules, any(name.startswith('_pydevd') for name in sys.modules))"


def test_a_kernel_loads_debugpy_with_the_first_request_that_needs_it(start_kernel: Start) -> None:
    kernel = start_kernel()
    assert debugged(kernel, "debugInfo")["body"]["isStarted"] is False
    assert kernel.run(LOADED).text() == "False False\n"
    assert kernel.run("value = 'seen'").reply["status"] == "ok"
    variables = debugged(kernel, "inspectVariables")["body"]["variables"]  # of JupyterLab's panel
    assert next(each["value"] for each in variables if each["name"] == "value") == "'seen'"
    assert kernel.run(LOADED).text() == "True True\n"


def test_a_debugger_that_cannot_be_loaded_says_so(start_kernel: Start) -> None:
    kernel = start_kernel()
    kernel.run("import sys\nsys.modules['debugpy'] = None")
    reply = debugged(kernel, "initialize")
    assert (reply["success"], "debugpy cannot be loaded" in reply["message"]) == (False, True)
    assert kernel.run("print(1 + 1)").text() == "2\n"


def event(client: BlockingKernelClient, name: str) -> dict[str, Any]:
    while True:
        message = client.get_iopub_msg(timeout=WAIT)
        if message["msg_type"] == "debug_event" and message["content"]["event"] == name:
            return dict(message["content"])


@pytest.mark.long
def test_unknown_requests_hurt_nothing(kernel: Kernel) -> None:
    message = kernel.client.session.msg("custom_request", {"any": "thing"})
    kernel.client.shell_channel.send(message)
    while (reply := kernel.client.get_shell_msg(timeout=WAIT))["parent_header"]["msg_id"] != message["header"][
        "msg_id"
    ]:
        pass
    assert reply["content"]["status"] == "error"
    assert kernel.run("1 + 1").value == "2"


def test_an_unsigned_request_is_ignored(kernel: Kernel) -> None:
    session = kernel.client.session.clone()
    session.key = b"another key"
    session.send(kernel.client.shell_channel.socket, "execute_request", {"code": "forged = 1"})
    assert kernel.run("'forged' in globals()").value == "False"


def test_honest_output_is_complete_and_in_order(start_kernel: Callable[..., Kernel]) -> None:
    kernel = start_kernel("--display-lines", "1000000", "--display-size", "1G")
    result = kernel.run("for n in range(100_000): print(n, 'x' * 90)")
    lines = result.text().splitlines()
    assert len(lines) == 100_000
    assert [int(line.split()[0]) for line in lines] == list(range(100_000))


NAMES = "print(sorted(name for name in globals() if name[:1] != '_' or name[1:2].isupper()))"
START = """
import gc, json, sys
print(json.dumps([sys.argv[0].endswith("ipykernel_launcher.py"), gc.isenabled(), gc.get_freeze_count()]))
"""


def test_a_kernel_starts_as_with_ipykernel_s_own_launcher_and_has_the_names_of_ipython_only(
    start_kernel: Callable[..., Kernel],
) -> None:
    """What prepares plots stays out of the cells' names: one of them could be overwritten, or taken for an import."""
    kernel = start_kernel()
    assert kernel.run(NAMES).text() == "['In', 'Out', 'exit', 'get_ipython', 'open', 'quit']\n"
    assert json.loads(kernel.run(START).text()) == [True, True, 0]


HIDDEN = """
import io
for name in ("code", "cmd"):
    with open(name + ".py", "w") as file:
        file.write("raise RuntimeError('a file of the cells')")
import pdb
out = io.StringIO()
pdb.Pdb(stdin=io.StringIO("p 6 * 7\\nc\\n"), stdout=out).runcall(lambda: 1)
print("ipdb> 42" in out.getvalue())
"""


FIRST = {
    "pdb": HIDDEN,
    "IPython's": "from IPython.core.debugger import Pdb; print(True)",
    "magic": "print(True)\n%debug",
}


@pytest.mark.parametrize("first", FIRST)
def test_whichever_debugger_is_wanted_first_is_ipython_s(start_kernel: Callable[..., Kernel], first: str) -> None:
    """And no file of the cells is in the place of a module of it."""
    kernel = start_kernel()
    assert kernel.run(FIRST[first]).text().startswith("True\n")
    assert kernel.run("import pdb\npdb.Pdb.__name__, pdb.set_trace.__module__").value == (
        "('InterruptiblePdb', 'IPython.core.debugger')"
    )


CACHES = """
import json, os, jedi
found = {}
for folder, _, names in os.walk(os.path.expanduser("~/.cache/jedi")):
    for name in names:
        path = os.path.join(folder, name)
        found.setdefault(os.path.islink(path), []).append(os.path.getsize(path))
completed = [each.name for each in jedi.Interpreter("impor", [{}]).complete()]
print(json.dumps([min(found[True]), max(found[False]), completed]))
"""


def test_large_caches_are_the_image_s_own_and_serve(start_kernel: Callable[..., Kernel]) -> None:
    """A copy would lie in the memory of each session."""
    smallest_link, largest_copy, completed = json.loads(start_kernel().run(CACHES).text())
    assert largest_copy < 1 << 16 <= smallest_link
    assert "import" in completed
