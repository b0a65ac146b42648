"""What a cell sends that is no proper JSON or UTF-8: a front end gets what it would get of a stock kernel.

The author of each message is a real ipykernel, the same one twice: on this machine, and in a sandbox.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
from jupyter_client.manager import KernelManager

from tests.support.cases import each
from tests.support.kernels import Kernel, Result

LATE = 4.0
"""Seconds; a reply that is waited for in vain takes 10."""


@pytest.fixture(scope="module")
def stock() -> Iterator[Kernel]:
    """A kernel of this machine, without a sandbox: its cells are those of this file."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    shared = Kernel(manager)
    yield shared
    shared.close()


def shown(result: Result) -> list[Any]:
    """Return what a result shows, the outputs of one kind in order, without what differs between two Pythons."""
    found: list[Any] = [result.text("stdout"), result.text("stderr")]
    for message in result.messages:
        content = message["content"]
        if message["msg_type"] == "error":
            found.append((content["ename"], content["evalue"], bool(content["traceback"])))
        elif message["msg_type"] in ("display_data", "execute_result", "update_display_data"):
            found.append((message["msg_type"], content["data"], content["metadata"] or {}))
    reply = result.reply
    return [
        *found,
        reply["status"],
        reply.get("ename"),
        reply.get("evalue"),
        reply.get("payload"),
    ]


CELLS = {
    "stdout": "print('a', T, 'b')",
    "stderr": "import sys; print(T, file=sys.stderr)",
    "an error": "raise ValueError(T)",
    "a name of a file in a traceback": "exec(compile('1/0', T, 'exec'))",
    "an exit": "import sys; sys.exit(T)",
    "a result": "type('R', (), {'__repr__': lambda self: T})()",
    "a display": "display({'text/plain': T, 'text/html': '<b>x</b>'}, raw=True)",
    "data": "display({'text/plain': 'x', 'application/json': {'k': [T]}}, raw=True)",
    "an update": "h = display({'text/plain': 'x'}, raw=True, display_id='d'); h.update({'text/plain': T}, raw=True)",
    "a pager": "get_ipython().payload_manager.write_payload({'source': 'page', 'data': {'text/plain': T}, 'start': 0})",
    "a thread": "import threading; t = threading.Thread(target=print, args=(T,)); t.start(); t.join()",
    "no metadata": "k = get_ipython().kernel; _ = k.session.send(k.iopub_socket, 'display_data', "
    "{'data': {'text/plain': T}, 'metadata': None}, parent=k.get_parent())",
    "a number": "display({'text/plain': 'x', 'application/json': {'n': [10**30, -2**63 - 1]}}, raw=True)",
    "no magic": "%nosuchmagic",
    "no cell magic": "%%nosuchmagic\nx",
}


def text(seed: str) -> str:
    """Return text as archives, logs and tables of other codings have it, read with `surrogateescape`."""
    chance = random.Random(seed)
    words = [
        "测试.csv".encode("gbk"),
        "été".encode("latin-1"),
        "テスト".encode("shift-jis"),
        b"\xff\xfe",
        "ж€😀".encode(),
    ]
    raw = b" ".join(chance.choice([*words, bytes(chance.randrange(32, 256) for _ in range(6))]) for _ in range(5))
    return raw.decode("utf-8", "surrogateescape").replace("\x7f", "")


@each("name", CELLS)
def test_a_cell_shows_what_a_stock_kernel_shows(kernel: Kernel, stock: Kernel, name: str) -> None:
    for seed in range(2):
        code = f"import json; T = json.loads({json.dumps(text(f'{name} {seed}'))!a})"
        for one in (kernel, stock):
            assert one.run(code).reply["status"] == "ok"
        ours, theirs = kernel.run(CELLS[name]), stock.run(CELLS[name])
        # A sandbox shows text without the control characters that act on a terminal, and IPython warns of an exit.
        assert cleaned(shown(ours)) == cleaned(shown(theirs))
        assert ours.seconds < LATE


def cleaned(value: Any) -> Any:
    if isinstance(value, str):
        kept = "".join(one for one in value if one.isprintable() or one in "\n\t")
        return kept if "UserWarning" not in kept else "a warning"
    if isinstance(value, (list, tuple)):
        return [cleaned(one) for one in value]
    if isinstance(value, dict):
        return {key: cleaned(one) for key, one in value.items()}
    return value


def test_a_list_of_files_with_names_that_are_not_utf8(kernel: Kernel) -> None:
    """An archive packed in China, unpacked without a word of its coding."""
    kernel.run(r'import os; kept = 1; os.mkdir("upload"); open(b"upload/\xb2\xe2\xca\xd4.csv", "w").close()')
    listed = kernel.run('for name in os.listdir("upload"):\n    print("name", name)')
    assert listed.text() == "name \ufffd\ufffd\ufffd\ufffd.csv\n"
    failed = kernel.run('for name in os.listdir("upload"):\n    raise ValueError(f"cannot parse {name}")')
    assert (failed.ename, failed.reply["evalue"]) == ("ValueError", "cannot parse \ufffd\ufffd\ufffd\ufffd.csv")
    assert failed.seconds < LATE
    assert kernel.run("print(kept)").text() == "1\n"


def test_what_is_left_out_is_said_in_its_cell(kernel: Kernel) -> None:
    send = "k = get_ipython().kernel; _ = k.session.send(k.iopub_socket, {}, parent=k.get_parent())"
    odd = kernel.run(send.format("'stream', {'name': 'stdout', 'text': {}}"))
    assert odd.text("stderr") == "[sandbox_kernel] left out stream: stream has no proper 'text'\n"
    deep = kernel.run("v = []\nfor i in range(1200): v = [v]\ndisplay({'application/json': v}, raw=True)")
    assert deep.text("stderr").startswith("[sandbox_kernel] left out display_data: not JSON: depth limit exceeded")
    many = kernel.run(send.format("'display_data', {'data': {}, 'metadata': {}}, buffers=[b'x'] * 6000"))
    assert many.ename == "OutputLimit"
    assert "too many buffers" in many.reply["evalue"]
    assert kernel.run("1 + 1").value == "2"


@pytest.mark.long
def test_a_reply_that_the_kernel_cannot_pack_is_missed_and_said(kernel: Kernel) -> None:
    """IPython itself fails at half a character in a payload: a front end of the stock kernel waits for ever."""
    page = r"get_ipython().payload_manager.write_payload({'source': 'page', 'data': {'text/plain': '\ud800'}})"
    lost = kernel.run(f"kept = 7; {page}")
    assert lost.ename == "ReplyLost"
    assert "Kept: variables and files." in lost.reply["evalue"]
    assert kernel.run("kept").value == "7"
