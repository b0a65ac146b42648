"""Files over the control channel: a Jupyter client and a real kernel, and every fault that a request can have."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest
import zmq
from hypothesis import given
from hypothesis import strategies as st
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.session import Session as SigningSession

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.container import file_requests
from sandbox_kernel.core.errors import SandboxDied
from sandbox_kernel.core.model import GIB, MIB, Message, SandboxSpec
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.select import make_engine
from sandbox_kernel.files.file_rules import CHUNK_BYTES, safe_name
from sandbox_kernel.plugins.file_messages.bounds import MAX_WAITING
from sandbox_kernel.plugins.file_messages.file_messages import MAX_UPLOADS, FileMessages
from sandbox_kernel.session.session import Session
from tests.support.examples import examples
from tests.support.files_agent import real
from tests.support.kernels import WAIT, Kernel, connect_another, eventually
from tests.support.patience import within

Start = Callable[..., Kernel]


class Files:
    """A client of the file messages, as a front end would have one."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client

    def send(self, op: str, content: dict[str, Any], *buffers: bytes) -> str:
        message = self.client.session.msg(f"sandbox_file_{op}_request", content)
        message["buffers"] = list(buffers)
        self.client.control_channel.send(message)
        return str(message["header"]["msg_id"])

    def reply(self, message_id: str) -> dict[str, Any]:
        end = time.monotonic() + WAIT
        while True:
            reply = self.client.get_control_msg(timeout=end - time.monotonic())
            if reply["parent_header"].get("msg_id") == message_id:
                return dict(reply)

    def ask(self, op: str, content: dict[str, Any], *buffers: bytes) -> dict[str, Any]:
        reply = self.reply(self.send(op, content, *buffers))
        assert reply["msg_type"] == f"sandbox_file_{op}_reply"
        return {**reply["content"], "buffers": [bytes(part) for part in reply["buffers"]]}

    def write(self, path: str, data: bytes) -> None:
        token, offset = None, 0
        while True:
            chunk = data[offset : offset + CHUNK_BYTES]
            final = offset + len(chunk) == len(data)
            content = {"path": path, "offset": offset, "size": len(data), "final": final}
            reply = self.ask("write", content | ({"upload": token} if token else {}), chunk)
            assert reply["status"] == "ok", reply
            offset += len(chunk)
            assert reply["offset"] == offset
            if final:
                return
            token = reply["upload"]

    def read(self, path: str) -> bytes:
        data, etag = b"", None
        while True:
            reply = self.ask("read", {"path": path, "offset": len(data), "etag": etag})
            assert reply["status"] == "ok", reply
            data += reply["buffers"][0]
            if reply["final"]:
                assert len(data) == reply["size"]
                return data
            etag = reply["etag"]

    def paths(self, folder: str = "") -> list[str]:
        reply = self.ask("list", {"folder": folder})
        assert (reply["status"], reply["more"], reply["complete"]) == ("ok", False, True)
        return [file["path"] for file in reply["files"]]


@pytest.fixture
def files(kernel: Kernel) -> Iterator[Files]:
    """The shared kernel's files; every test leaves an empty folder and no part of a file behind."""
    yield Files(kernel.client)
    cleared = kernel.run(
        "import os, shutil, stat\n"
        "for entry in list(os.scandir('.')):\n"
        "    assert not entry.name.startswith('.upload-'), entry.name\n"
        "    (shutil.rmtree if entry.is_dir(follow_symlinks=False) else os.unlink)(entry.path)"
    )
    assert cleared.reply["status"] == "ok", cleared


# --- what it is for --------------------------------------------------------------------------------------------------


def test_twenty_megabytes_go_in_and_come_back(kernel: Kernel, files: Files) -> None:
    data = os.urandom(20_000_000)
    files.write("deep/er/data.bin", data)
    seen = kernel.run("import hashlib; print(hashlib.sha256(open('deep/er/data.bin', 'rb').read()).hexdigest())")
    assert seen.text().strip() == hashlib.sha256(data).hexdigest()
    assert files.read("deep/er/data.bin") == data
    listed = files.ask("list", {})["files"]
    assert [(file["path"], file["size"]) for file in listed] == [("deep/er/data.bin", 20_000_000)]
    assert abs(listed[0]["modified"] - time.time()) < 600


def test_chunks_may_be_sent_ahead_of_their_replies(files: Files) -> None:
    data = os.urandom(5 * CHUNK_BYTES + 1)
    first = files.ask("write", {"path": "ahead", "final": False}, data[:CHUNK_BYTES])
    sent = [
        files.send(
            "write",
            {"path": "ahead", "upload": first["upload"], "offset": offset, "final": offset + CHUNK_BYTES >= len(data)},
            data[offset : offset + CHUNK_BYTES],
        )
        for offset in range(CHUNK_BYTES, len(data), CHUNK_BYTES)
    ]
    assert files.reply(sent[-1])["content"]["final"] is True
    assert files.read("ahead") == data


def test_base64_serves_who_cannot_send_buffers(files: Files) -> None:
    data = bytes(range(256))
    written = files.ask("write", {"path": "b", "data": base64.b64encode(data).decode()})
    assert (written["status"], written["final"], written["offset"]) == ("ok", True, 256)
    read = files.ask("read", {"path": "b", "encoding": "base64"})
    assert base64.b64decode(read["data"]) == data
    assert read["buffers"] == []


def test_an_empty_file_and_an_absolute_path_in_scratch(files: Files) -> None:
    assert files.ask("write", {"path": "/mnt/data/empty"})["status"] == "ok"
    assert files.paths() == ["empty"]
    assert files.read("empty") == b""


def test_a_part_of_a_file_can_be_read(files: Files) -> None:
    files.write("ten", b"0123456789")
    reply = files.ask("read", {"path": "ten", "offset": 3, "size": 4})
    assert (reply["buffers"], reply["final"], reply["size"]) == ([b"3456"], False, 10)
    reply = files.ask("read", {"path": "ten", "offset": 100})
    assert (reply["buffers"], reply["final"]) == ([b""], True)


def test_folders_are_made_listed_and_removed(kernel: Kernel, files: Files) -> None:
    assert files.ask("mkdir", {"path": "a/empty"})["status"] == "ok"
    for path in ("a/1", "a/2", "ab/3", "z"):
        files.write(path, b"x")
    assert files.paths() == ["a/1", "a/2", "ab/3", "z"]
    assert files.paths("a") == files.paths("/mnt/data/a/") == ["a/1", "a/2"]
    page = files.ask("list", {"limit": 3})
    assert ([file["path"] for file in page["files"]], page["more"]) == (["a/1", "a/2", "ab/3"], True)
    page = files.ask("list", {"limit": 3, "after": "ab/3"})
    assert ([file["path"] for file in page["files"]], page["more"]) == (["z"], False)
    assert "not empty" in files.ask("remove", {"path": "a"})["evalue"]
    for path in ("a/1", "a/2", "a/empty", "a"):
        assert files.ask("remove", {"path": path})["status"] == "ok"
    assert kernel.run("import os; print(sorted(os.listdir('.')))").text() == "['ab', 'z']\n"


def test_they_are_announced(kernel: Kernel) -> None:
    reply = kernel.client.kernel_info(reply=True, timeout=WAIT)
    assert reply["content"]["sandbox"]["file_messages"] == {
        "version": 1,
        "chunk_bytes": CHUNK_BYTES,
        "waiting": MAX_WAITING,
    }


# --- at any time -----------------------------------------------------------------------------------------------------


def test_a_running_cell_goes_on_and_sees_the_file(kernel: Kernel, files: Files) -> None:
    """The kernel is blocked in the cell, so the answer cannot be its own; who keeps its state hears that it is busy."""
    cell, begin = kernel.start(
        "import os, time\nend = time.monotonic() + 60\nopen('from-cell', 'w').write('made')\n"
        "print('made', flush=True)\n"
        "while not os.path.exists('go') and time.monotonic() < end: time.sleep(0.01)\nprint(open('go').read())",
        until="stream",
    )
    assert files.read("from-cell") == b"made"
    asked = files.send("write", {"path": "go"}, b"went in")
    statuses: list[Any] = []
    while not statuses or statuses[-1] != (cell, "busy"):
        message = kernel.client.get_iopub_msg(timeout=WAIT)
        if message["msg_type"] == "status":
            statuses.append((message["parent_header"]["msg_id"], message["content"]["execution_state"]))
    while (asked, "idle") not in statuses:
        message = kernel.client.get_iopub_msg(timeout=WAIT)
        if message["msg_type"] == "status":
            statuses.append((message["parent_header"]["msg_id"], message["content"]["execution_state"]))
    assert statuses.index((asked, "busy")) < statuses.index((asked, "idle"))
    assert files.reply(asked)["content"]["status"] == "ok"
    assert kernel.collect(cell, begin).text() == "went in\n"


def test_before_the_first_cell_and_while_the_sandbox_starts(start_kernel: Start) -> None:
    kernel = start_kernel()
    Files(kernel.client).write("early.csv", b"a,b\n1,2\n")
    assert kernel.run("print(open('early.csv').read())").text() == "a,b\n1,2\n\n"


def test_after_out_of_memory_the_files_are_there(start_kernel: Start) -> None:
    kernel = start_kernel("--memory", "256M")
    files = Files(kernel.client)
    files.write("kept", b"kept")
    assert kernel.run("x = bytearray(1 << 30)").ename == "OutOfMemory"
    assert files.read("kept") == b"kept"
    files.write("new", b"new")
    assert kernel.run("print(open('new').read())").text() == "new\n"


def test_after_the_sandbox_died_a_new_one_takes_files(start_kernel: Start) -> None:
    kernel = start_kernel()
    files = Files(kernel.client)
    files.write("lost", b"lost")
    begun = files.ask("write", {"path": "half", "final": False}, b"first half")
    (old,) = kernel.containers()
    subprocess.run(["docker", "kill", old.container], check=True, capture_output=True, timeout=60)
    # The last answer of the old one may be that it ended.
    eventually(lambda: files.ask("write", {"path": "new"}, b"new")["status"] == "ok", 30, "a new one takes files")
    assert files.paths() == ["new"]
    reply = files.ask("write", {"path": "half", "upload": begun["upload"], "offset": 10}, b"second half")
    assert (reply["ename"], reply["fault"]) == ("SandboxDied", "platform")
    assert files.paths() == ["new"]
    assert kernel.run("print(open('new').read())").text() == "new\n"


class Nobody:
    """A front end that is not there."""

    def deliver(self, message: Message, client: bytes | None) -> None: ...
    def drain(self) -> None: ...


def test_an_idle_sandbox_on_its_way_out_is_waited_for(image: str) -> None:
    async def scenario() -> tuple[str, str]:
        chosen = from_keywords(image=image)
        session = Session(chosen, make_engine(chosen), Nobody())
        try:
            first = await session.started()
            session._life.retire()
            return first, await session.started()
        finally:
            await session.close()

    first, second = asyncio.run(scenario())
    assert first != second


def test_a_sandbox_that_lacks_a_protection_gets_no_file(image: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def weak(spec: SandboxSpec, opened: Mapping[str, str]) -> dict[str, Any]:
        body = container_arguments(spec, opened)
        body["HostConfig"]["ReadonlyRootfs"] = False
        return body

    async def scenario() -> dict[str, Any]:
        chosen = from_keywords(image=image)
        session = Session(chosen, make_engine(chosen), Nobody())

        async def ask(op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
            asked.append(op)
            return await session.ask(op, data, **fields)

        try:
            messages = FileMessages(session.started, ask, session.emit, limit=100)
            content, _ = await messages.answer(_request("write", {"path": "a"}, b"secret"))
            return content
        finally:
            await session.close()

    assert asyncio.run(scenario())["status"] == "ok"  # the control: as it should be, it gets the file
    assert asked.pop() == "file.write"
    monkeypatch.setattr("sandbox_kernel.engines.docker.ahead.container_arguments", weak)
    reply = asyncio.run(scenario())
    assert reply["ename"] == "AttestationFailed", reply
    assert "file.write" not in asked


def test_without_an_engine_the_reason_is_the_reply(start_kernel: Start, tmp_path: Path) -> None:
    files = Files(start_kernel("--engine", f"unix://{tmp_path}/none.sock").client)
    reply = files.ask("write", {"path": "x"}, b"x")
    assert (reply["ename"], reply["fault"]) == ("EngineUnavailable", "platform")


# --- several at once -------------------------------------------------------------------------------------------------


def test_two_clients_write_and_read_at_once(kernel: Kernel, files: Files) -> None:
    other = Files(connect_another(kernel.manager))
    try:
        data = {files: os.urandom(3 * CHUNK_BYTES), other: os.urandom(3 * CHUNK_BYTES)}
        tokens = {one: one.ask("write", {"path": "same", "final": False}, data[one][:CHUNK_BYTES]) for one in data}
        for number in (1, 2):
            for one, whole in data.items():
                offset = number * CHUNK_BYTES
                content = {"path": "same", "upload": tokens[one]["upload"], "offset": offset, "final": number == 2}
                reply = one.ask("write", content, whole[offset : offset + CHUNK_BYTES])
                assert reply["status"] == "ok"
                if number == 2:  # as a whole, never in parts of both
                    assert files.read("same") == other.read("same") == whole
    finally:
        other.client.stop_channels()


def test_a_flood_costs_bounded_memory_and_is_answered(kernel: Kernel, files: Files) -> None:
    files.write("mib", os.urandom(CHUNK_BYTES))
    process = psutil.Process(kernel.pid)
    before = process.memory_info().rss
    sent = [files.send("read", {"path": "mib"}) for _ in range(400)]
    sent += [files.send("write", {"path": f"f{n}", "final": False}, bytes(CHUNK_BYTES)) for n in range(100)]
    replies: dict[str, dict[str, Any]] = {}
    peak = before
    while len(replies) < len(sent):
        reply = kernel.client.get_control_msg(timeout=WAIT)
        replies[reply["parent_header"]["msg_id"]] = reply["content"]
        peak = max(peak, process.memory_info().rss)
    reasons = [replies[one].get("evalue", "ok") for one in sent]
    assert reasons.count("ok") >= MAX_WAITING
    assert any("too many file requests" in reason for reason in reasons)
    assert peak - before < 250 * MIB
    begun = [content["upload"] for content in replies.values() if "upload" in content]
    assert len(begun) <= MAX_UPLOADS
    for number, one in enumerate(sent[400:]):
        if token := replies[one].get("upload"):
            assert files.ask("write", {"path": f"f{number}", "upload": token, "abort": True})["status"] == "ok"


def test_a_client_that_reads_nothing_costs_bounded_memory(kernel: Kernel, files: Files) -> None:
    files.write("mib", os.urandom(CHUNK_BYTES))
    process = psutil.Process(kernel.pid)
    before = process.memory_info().rss
    with zmq.Context() as context, context.socket(zmq.DEALER) as deaf:
        deaf.setsockopt(zmq.RCVHWM, 1)
        deaf.setsockopt(zmq.LINGER, 0)
        deaf.connect(f"tcp://127.0.0.1:{kernel.manager.control_port}")
        session = SigningSession(key=kernel.manager.session.key)
        for _ in range(40):
            for _ in range(15):
                session.send(deaf, "sandbox_file_read_request", {"path": "mib"})
            last = files.ask("read", {"path": "mib", "size": 1})  # requests are served in order
        assert "replies are not read" in last["evalue"]
        assert process.memory_info().rss - before < 250 * MIB  # of the 600 that were asked for
    eventually(lambda: files.ask("read", {"path": "mib"})["status"] == "ok", 30, "who reads is served again")


# --- what is refused -------------------------------------------------------------------------------------------------

MALFORMED: dict[str, tuple[str, dict[str, Any], tuple[bytes, ...], str]] = {
    "no path": ("write", {}, (b"x",), "has no path"),
    "a path that is a number": ("write", {"path": 7}, (b"x",), "path is not text"),
    "a path that is a list": ("read", {"path": ["a"]}, (), "path is not text"),
    "a path that is nothing": ("remove", {"path": None}, (), "part of its path, is empty"),
    "an empty path": ("read", {"path": ""}, (), "is empty"),
    "a path upward": ("write", {"path": "../x"}, (b"x",), r"contains '\.\.'"),
    "a path upward, in scratch": ("read", {"path": "/mnt/data/../../etc/passwd"}, (), r"contains '\.\.'"),
    "an absolute path": ("read", {"path": "/etc/passwd"}, (), "absolute"),
    "a path of two lines": ("write", {"path": "a\nb"}, (b"x",), "control character"),
    "a path with a null byte": ("mkdir", {"path": "a\0b"}, (), "control character"),
    "a path that runs backwards": ("write", {"path": "a\u202eb"}, (b"x",), "text direction"),
    "a path with a backslash": ("write", {"path": "a\\b"}, (b"x",), "backslash"),
    "a path of two thousand bytes": ("write", {"path": "a/" * 1000 + "a"}, (b"x",), "too long"),
    "a path of a hundred folders": ("mkdir", {"path": "/".join("a" * 100)}, (), "too deep"),
    "a negative offset": ("read", {"path": "a", "offset": -1}, (), "0 or more"),
    "an offset beyond all files": ("read", {"path": "a", "offset": 1 << 80}, (), "not JSON|0 or more|whole number"),
    "an offset that is text": ("read", {"path": "a", "offset": "0"}, (), "offset is not a whole number"),
    "an offset that is true": ("read", {"path": "a", "offset": True}, (), "offset is not a whole number"),
    "an offset with a fraction": ("write", {"path": "a", "offset": 0.5}, (b"x",), "offset is not a whole number"),
    "a final that is one": ("write", {"path": "a", "final": 1}, (b"x",), "final is not true or false"),
    "a read of nothing": ("read", {"path": "a", "size": 0}, (), "one chunk"),
    "a read of more than a chunk": ("read", {"path": "a", "size": CHUNK_BYTES + 1}, (), "one chunk"),
    "an encoding of another kind": ("read", {"path": "a", "encoding": "utf-7"}, (), "'buffer' or 'base64'"),
    "a chunk that is too large": ("write", {"path": "a"}, (bytes(CHUNK_BYTES + 1),), "chunk is too large"),
    "base64 that is too large": ("write", {"path": "a", "data": "A" * (2 * CHUNK_BYTES)}, (), "chunk is too large"),
    "base64 that is none": ("write", {"path": "a", "data": "äöü"}, (), "not base64"),
    "base64 with a stray sign": ("write", {"path": "a", "data": "AA$A"}, (), "not base64"),
    "data twice": ("write", {"path": "a", "data": "AAAA"}, (b"x",), "one buffer, or base64"),
    "two buffers": ("write", {"path": "a"}, (b"x", b"y"), "one buffer, or base64"),
    "data that is an object": ("write", {"path": "a", "data": {"a": 1}}, (), "data is not text"),
    "a buffer nobody wants": ("read", {"path": "a"}, (b"x",), "no use for a buffer"),
    "a field nobody knows": ("write", {"path": "a", "ofset": 1}, (b"x",), "no field 'ofset'"),
    "a chunk of nothing begun": ("write", {"path": "a", "upload": "0" * 16}, (b"x",), "no such upload"),
    "a first chunk that is a second": ("write", {"path": "a", "offset": 5}, (b"x",), "does not follow"),
    "a file longer than said": ("write", {"path": "a", "size": 1}, (b"xy",), "not have its announced length"),
    "a file shorter than said": ("write", {"path": "a", "size": 9}, (b"xy",), "not have its announced length"),
    "a file that is too large": ("write", {"path": "a", "size": GIB, "final": False}, (b"x",), "too large"),
    "more than scratch holds": (
        "write",
        {"path": "a", "size": 250 * MIB, "final": False},
        (b"x",),
        "too large.*scratch_size",
    ),
    "a list without end": ("list", {"limit": 10**6}, (), "number of files"),
    "a list of a folder upward": ("list", {"folder": "../.."}, (), r"contains '\.\.'"),
    "a list of a folder elsewhere": ("list", {"folder": "/mnt/database"}, (), "absolute"),
    "an unknown version": ("list", {"version": 2}, (), "version of the file messages"),
    "a version that is text": ("list", {"version": "1"}, (), "version is not a whole number"),
    "a file that is not there": ("read", {"path": "none"}, (), "no such file"),
    "removing what is not there": ("remove", {"path": "none"}, (), "no such file"),
}


REFUSED = {
    "a chunk of nothing begun",
    "a file that is not there",
    "a file that is too large",
    "a list of a folder elsewhere",
    "a list of a folder upward",
    "a path of a hundred folders",
    "a path of two lines",
    "a path of two thousand bytes",
    "a path that is nothing",
    "a path that runs backwards",
    "a path upward",
    "a path upward, in scratch",
    "a path with a backslash",
    "a path with a null byte",
    "an absolute path",
    "an empty path",
    "more than scratch holds",
    "removing what is not there",
}
"""Those that are requests, and ask for what is not given."""
NOT_THERE = {"a file that is not there", "removing what is not there"}
"""Of these, what has an error of its own, which is a `FileRefused` where there are classes."""


@pytest.mark.parametrize("case", MALFORMED)
def test_a_malformed_request_is_an_error_with_its_reason(small: Files, case: str) -> None:
    op, content, buffers, reason = MALFORMED[case]
    reply = small.ask(op, content, *buffers)
    assert reply["status"] == "error"
    name = "FileNotThere" if case in NOT_THERE else "FileRefused" if case in REFUSED else "ProtocolError"
    assert reply["ename"] == name
    assert re.search(reason, reply["evalue"]), reply["evalue"]
    assert small.paths() == []


@pytest.fixture(scope="module")
def small(launch_kernel: Start) -> Iterator[Files]:
    kernel = launch_kernel("--memory", "400M")
    yield Files(kernel.client)
    left = kernel.run("import os; print(os.listdir('.'))").text()
    kernel.close()
    assert left == "[]\n"


def test_links_devices_and_odd_names_are_not_followed_or_listed(kernel: Kernel, files: Files) -> None:
    made = kernel.run(
        "import os\nos.symlink('/etc/passwd', 'link'); os.symlink('/etc', 'folder'); os.mkfifo('fifo')\n"
        "os.mkdir('real'); os.symlink('/mnt/data/real', 'inner')\nopen('two\\nlines', 'w').write('x')\n"
        "open(b'\\xff', 'w').write('x'); open('turned\u202e', 'w').write('x'); open('plain', 'w').write('x')"
    )
    assert made.reply["status"] == "ok"
    names = files.paths()
    assert [name for name in names if "~" not in name] == ["plain"]
    assert len(names) == 4  # names that no front end can show have others, of printed letters
    assert all(name.isascii() and name.isprintable() for name in names)
    for path in ("link", "folder/passwd", "inner/x", "fifo"):
        assert "it is a link" in files.ask("read", {"path": path})["evalue"]
    for path in ("folder/x", "inner/x"):
        assert files.ask("write", {"path": path}, b"x")["status"] == "error"
    assert "part of its path is a file" in files.ask("write", {"path": "plain/x"}, b"x")["evalue"]
    assert "folder of that name" in files.ask("read", {"path": "real"})["evalue"]
    files.write("link", b"mine")  # takes the name of the link, and does not go through it
    seen = kernel.run("print(os.path.islink('link'), open('link').read(), 'mine' in open('/etc/passwd').read())")
    assert seen.text() == "False mine False\n"
    assert files.ask("remove", {"path": "folder"})["status"] == "ok"
    assert kernel.run("print(len(os.listdir('/etc')) > 3, os.listdir('real'))").text() == "True []\n"


def test_a_file_that_changes_while_it_is_read_is_told(kernel: Kernel, files: Files) -> None:
    files.write("log", b"1" * 10)
    first = files.ask("read", {"path": "log", "size": 5})
    kernel.run("open('log', 'a').write('2')")
    assert "changed" in files.ask("read", {"path": "log", "offset": 5, "etag": first["etag"]})["evalue"]


def test_a_sparse_file_over_the_limit_is_not_read(kernel: Kernel, files: Files) -> None:
    kernel.run("open('huge', 'wb').truncate(10 << 30)")
    reply = files.ask("read", {"path": "huge"})
    assert "too large" in reply["evalue"]
    assert reply["fault"] == "policy"


def test_the_limit_of_one_file_is_a_setting(start_kernel: Start) -> None:
    kernel = start_kernel("--file-limit", "100K")
    files = Files(kernel.client)
    kernel.run("open('large', 'wb').write(bytes(200_000))")
    for reply in (files.ask("write", {"path": "x"}, bytes(200_000)), files.ask("read", {"path": "large"})):
        assert (reply["limit"], reply["setting"]) == ("100.0 KiB", "file_limit or scratch_size")
        assert "195.3 KiB" in reply["evalue"]


def test_a_chunk_that_fails_ends_its_file(kernel: Kernel, files: Files) -> None:
    begun = files.ask("write", {"path": "x", "final": False}, b"0123")
    gap = {"path": "x", "upload": begun["upload"], "offset": 9}
    assert "does not follow" in files.ask("write", gap, b"x")["evalue"]
    assert "no such upload" in files.ask("write", gap | {"offset": 4}, b"x")["evalue"]
    assert kernel.run("import os; print(os.listdir('.'))").text() == "[]\n"


def test_a_file_given_up_leaves_nothing(kernel: Kernel, files: Files) -> None:
    begun = files.ask("write", {"path": "x", "final": False}, b"0123")
    assert "'.upload-" in kernel.run("import os; print(os.listdir('.'))").text()
    assert files.ask("write", {"path": "x", "upload": begun["upload"], "abort": True})["status"] == "ok"
    assert kernel.run("print(os.listdir('.'))").text() == "[]\n"


def test_a_restart_keeps_files_and_nothing_half_written(start_kernel: Start) -> None:
    kernel = start_kernel()
    files = Files(kernel.client)
    files.write("whole", b"whole")
    files.ask("write", {"path": "half", "final": False}, b"half")
    kernel.manager.restart_kernel(now=False)
    kernel.client.wait_for_ready(timeout=WAIT)
    assert kernel.run("import os; print(os.listdir('.'))").text() == "['whole']\n"
    assert files.read("whole") == b"whole"


def test_what_was_done_and_refused_stands_in_the_audit(start_kernel: Start, tmp_path: Path) -> None:
    files = Files(start_kernel("--audit", str(tmp_path / "audit")).client)
    files.write("a", b"abc")
    files.read("a")
    files.ask("mkdir", {"path": "b"})
    files.ask("remove", {"path": "a"})
    files.ask("read", {"path": "../\x1b[2J"})
    lines = [json.loads(line) for line in (tmp_path / "audit").read_text().splitlines()]
    done = [(line["op"], line["path"], line.get("bytes")) for line in lines if line["event"] == "file"]
    assert done == [("write", "a", 3), ("read", "a", 3), ("mkdir", "b", None), ("remove", "a", None)]
    ((path, reason),) = [(line["path"], line["reason"]) for line in lines if line["event"] == "file_refused"]
    assert path == "../\\x1b[2J"
    assert "control character" in reason


def test_an_uploaded_file_is_no_download(start_kernel: Start, tmp_path: Path) -> None:
    kernel = start_kernel("--downloads", str(tmp_path))
    Files(kernel.client).write("in", b"in")
    kernel.run("open('out', 'w').write('out')")
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    kernel.run("open('in', 'a').write('changed')")
    assert (tmp_path / "in").read_bytes() == b"inchanged"


# --- with the agent's own code in this process -----------------------------------------------------------------------


async def _started() -> str:
    return "one"


def _request(kind: str, content: dict[str, Any], *buffers: bytes) -> Message:
    header = {"msg_id": "1", "msg_type": f"sandbox_file_{kind}_request"}
    return Message(channel="control", header=header, content=content, buffers=buffers)


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def test_a_client_that_went_away_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dropped = asyncio.Event()
    monkeypatch.setattr(file_requests, "ROOT", str(tmp_path))

    async def ask(op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        try:
            return await real(op, data, **fields)
        finally:
            if op == "file.discard":
                dropped.set()

    messages = FileMessages(_started, ask, lambda event, **fields: None, limit=100, quiet_seconds=0.05)
    content, _ = await messages.answer(_request("write", {"path": "a", "final": False}, b"x"))
    assert left(tmp_path) == [f".upload-{content['upload']}"]
    async with within(30):
        await dropped.wait()
    assert left(tmp_path) == []
    content, _ = await messages.answer(_request("write", {"path": "a", "upload": content["upload"], "offset": 1}))
    assert "no such upload" in content["evalue"]
    await messages.close()


async def test_closed_it_answers_with_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_requests, "ROOT", str(tmp_path))
    messages = FileMessages(_started, real, lambda event, **fields: None, limit=100)
    await messages.answer(_request("write", {"path": "a", "final": False}, b"x"))
    await messages.close()
    assert left(tmp_path) == []
    content, _ = await messages.answer(_request("write", {"path": "a"}, b"x"))
    assert content["ename"] == SandboxDied.__name__


async def test_a_path_that_is_no_text_is_refused_however_deep_it_is() -> None:
    messages = FileMessages(_started, real, lambda event, **fields: None, limit=100)
    deep = orjson.loads("[" * 1000 + "]" * 1000)
    for content in ({"path": deep}, {"path": "a", "folder": deep}):
        reply, _ = await messages.answer(_request("read", content))
        assert reply["ename"] == "ProtocolError"
    await messages.close()


async def test_an_agent_that_lies_about_a_file_is_not_believed() -> None:
    async def liar(op: str, data: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        return answers[op]

    messages = FileMessages(_started, liar, lambda event, **fields: None, limit=100)
    answers: dict[str, Any] = {
        "file.read": ({"ok": True, "stamp": [5, 1, 1, 1]}, b"more than five"),
        "file.list": (
            {"ok": True, "files": [["/etc/x", 1, 1, 1, 1], ["a\x1b[2J", 1, 1, 1, 1], ["b", "1"], 7, ["c"]]},
            b"",
        ),
        "file.write": ({"ok": True, "stamp": "none"}, b""),
        "file.discard": ({"ok": True}, b""),
    }
    assert (await messages.answer(_request("read", {"path": "a"})))[0]["status"] == "error"
    assert (await messages.answer(_request("write", {"path": "a"}, b"x")))[0]["status"] == "error"
    listed = (await messages.answer(_request("list", {})))[0]
    assert ([one["path"] for one in listed["files"]], listed["complete"]) == ([safe_name("a\x1b[2J")], False)
    await messages.close()


FIELDS = [
    "version",
    "path",
    "upload",
    "offset",
    "size",
    "final",
    "abort",
    "data",
    "encoding",
    "etag",
    "folder",
    "limit",
]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.sampled_from(["a", "a/b", "AAAA", "base64", 1]),
    st.lists(st.integers(), max_size=2),
)  # fmt: skip


@examples(300)
@given(
    kind=st.sampled_from(["write", "read", "list", "mkdir", "remove"]),
    content=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5),
    buffers=st.lists(st.binary(max_size=20), max_size=2),
)
def test_any_request_has_a_reply_that_json_can_say(
    kind: str, content: dict[str, Any], buffers: list[bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def scenario() -> None:
        messages = FileMessages(_started, real, lambda event, **fields: None, limit=1000)
        reply, parts = await messages.answer(_request(kind, content, *buffers))
        assert reply["status"] in {"ok", "error"}
        if reply["status"] == "error":
            assert reply["evalue"]
        json.dumps(reply, allow_nan=False).encode()
        assert len(parts) <= 1
        await messages.close()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_requests, "ROOT", str(tmp_path_factory.getbasetemp()))
        asyncio.run(scenario())
