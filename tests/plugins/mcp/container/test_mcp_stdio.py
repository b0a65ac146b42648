"""The MCP server over stdio, under the official client: every tool, and the end of everything with the connection."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import random
import signal
import subprocess
import textwrap
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp_types import ImageContent, TextResourceContents

from sandbox_kernel.core.codes import FileCode, UsageCode, find
from sandbox_kernel.plugins.mcp.codes import McpCode
from tests.support.kernels import containers_of, eventually
from tests.support.mcp_hosts import (
    COMMAND,
    blob_of,
    code_in,
    images_of,
    links_of,
    over_stdio,
    pid_of,
    run,
    soon,
    text_of,
)
from tests.support.patience import Stopwatch, until, within

SMALL = ("--memory", "512M")
PNG = b"\x89PNG\r\n\x1a\n"


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_every_tool_in_both_protocols(mode: str) -> None:
    """`legacy` begins with the handshake; `auto` finds the newest protocol, which has none."""
    async with over_stdio(*SMALL, mode=mode) as client:
        assert (client.protocol_version == "2026-07-28") == (mode == "auto")
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert set(tools) == {
            "run_code", "upload_file", "download_file", "list_files", "list_sessions", "interrupt", "reset",
            "end_session",
        }  # fmt: skip
        assert "512.0 MiB of memory" in (tools["run_code"].description or "")

        first = await run(client, "x = 41\nprint('printed')\nx + 1")
        assert "is new" in text_of(first)
        assert text_of(first).splitlines()[:-1] == ["printed", "", "42"]

        written = await client.call_tool("upload_file", {"path": "in/a.csv", "text": "a,b\n1,é\n"})
        assert written.structured_content == {"session": "main", "path": "in/a.csv", "size": 9, "complete": True}
        assert text_of(await run(client, "open('in/a.csv').read()")) == repr("a,b\n1,é\n")

        await run(client, "open('out.bin', 'wb').write(bytes(range(256))); open('in/b.txt', 'w').write('hello')")
        files = (await client.call_tool("list_files")).structured_content
        assert [(file["path"], file["size"]) for file in files["files"]] == [
            ("in/a.csv", 9), ("in/b.txt", 5), ("out.bin", 256),
        ]  # fmt: skip
        assert len((await client.call_tool("list_files", {"folder": "in"})).structured_content["files"]) == 2
        assert text_of(await client.call_tool("download_file", {"path": "in/b.txt"})).endswith("\nhello")
        assert blob_of(await client.call_tool("download_file", {"path": "/mnt/data/out.bin"})) == bytes(range(256))
        part = await client.call_tool("download_file", {"path": "in/b.txt", "offset": 1, "length": 3})
        assert text_of(part).splitlines() == ["[in/b.txt: bytes 1 to 4 of 5]", "ell"]

        assert "x" in text_of(await run(client, "print([n for n in dir() if n == 'x'])"))
        assert "variables are gone" in text_of(await client.call_tool("reset"))
        after = await run(client, "import os; print('x' in dir(), os.path.exists('in/a.csv'))")
        assert text_of(after) == "False True\n"

        assert "Nothing runs" in text_of(await client.call_tool("interrupt"))
        listed = (await client.call_tool("list_sessions")).structured_content["sessions"]
        assert [(row["session"], row["calls_running"]) for row in listed] == [("main", 0)]
        await client.call_tool("end_session")
        assert (await client.call_tool("list_sessions")).structured_content == {"sessions": []}
        gone = await client.call_tool("list_files")
        assert gone.is_error
        assert "no session 'main'" in text_of(gone)


async def test_a_figure_is_an_image_and_a_file_of_one_as_well() -> None:
    async with over_stdio() as client:
        shown = await run(
            client, "import matplotlib.pyplot as plt\nplt.plot([1, 3, 2])\nplt.savefig('p.png')\nplt.show()"
        )
        (image,) = images_of(shown)
        assert image.startswith(PNG)
        assert "Figure" not in text_of(shown)
        (file,) = images_of(await client.call_tool("download_file", {"path": "p.png"}))
        assert file.startswith(PNG)
        table = await run(client, "import pandas as pd\npd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})")
        assert text_of(table) == "   a  b\n0  1  x\n1  2  y"
        chart = await run(client, "import plotly.express as px\npx.line(x=[1, 2], y=[3, 4])")
        (page,) = links_of(chart)
        (content,) = (await client.read_resource(page)).contents
        assert isinstance(content, TextResourceContents)
        assert content.text.startswith("<iframe sandbox=")


async def test_what_names_a_cell_chooses_neither_fools_nor_floods_the_host() -> None:
    """An image of another type than it is said to be makes an interface refuse the whole conversation."""
    async with over_stdio(*SMALL) as client:
        code = """
            import base64, os
            png = base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII=')
            os.makedirs('data:image')
            for name, content in (('no.png', b'no image'), ('other.jpg', png), ('data:image/png,x', b'text')):
                open(name, 'wb').write(content)
            os.makedirs('/mnt/data/' + '/'.join(['x' * 200] * 4))
            for number in range(300):
                open('/'.join(['x' * 200] * 4) + f'/{number}' + 'y' * 50, 'w').close()
            raise type('E' * 2_000_000, (Exception,), {})
        """  # noqa: E501
        failed = await run(client, textwrap.dedent(code))
        assert len(failed.model_dump_json()) < 100_000
        no = await client.call_tool("download_file", {"path": "no.png"})
        assert images_of(no) == []
        assert text_of(no).endswith("no image")
        (image,) = (
            block
            for block in (await client.call_tool("download_file", {"path": "other.jpg"})).content
            if isinstance(block, ImageContent)
        )
        assert image.mime_type == "image/png"
        named = await client.read_resource("sandbox://main/files/data%3Aimage/png%2Cx")
        assert named.contents[0].mime_type == "application/octet-stream"
        listed = await client.call_tool("list_files")
        assert len(text_of(listed)) < 100_000
        assert "more files]" in text_of(listed)
        assert not listed.structured_content["complete"]


async def test_progress_tells_the_time_and_what_was_printed() -> None:
    heard: list[tuple[float, float | None, str]] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message or ""))

    async with over_stdio(*SMALL, "--cell-timeout", "60") as client:
        code = "import time\nfor i in range(5):\n    print('step', i)\n    time.sleep(0.7)"
        await client.call_tool("run_code", {"code": code}, progress_callback=hear)
    assert len(heard) >= 2
    assert [progress for progress, _, _ in heard] == sorted({progress for progress, _, _ in heard})
    assert {total for _, total, _ in heard} == {60.0}
    assert "step 0" in heard[0][2]
    assert "step 0" not in heard[-1][2]
    assert any("step 2" in message for _, _, message in heard)


async def test_a_cancelled_call_interrupts_the_cell_and_the_session_goes_on() -> None:
    async with over_stdio(*SMALL) as client:
        await run(client, "kept = 7")
        code = "import time\nopen('began', 'w').close()\ntry:\n    time.sleep(60)\nfinally:\n    ended = 'interrupted'"
        call = asyncio.create_task(run(client, code))
        await running(client, "began")
        call.cancel()
        await asyncio.wait({call})
        with Stopwatch() as watch:
            assert text_of(await run(client, "kept, ended")) == "(7, 'interrupted')"
        assert watch.seconds < 10


async def test_interrupt_stops_the_cell_of_another_call() -> None:
    async with over_stdio(*SMALL) as client:
        call = asyncio.create_task(run(client, "import time\nopen('began', 'w').close()\ntime.sleep(60)"))
        await running(client, "began")
        assert "was interrupted" in text_of(await client.call_tool("interrupt"))
        async with within(30):
            result = await call
        assert text_of(result).splitlines()[0].startswith("Error: KeyboardInterrupt")


async def running(client: Client, file: str) -> None:
    """Wait until the cell that runs has made a file."""

    async def made() -> bool:
        found = await client.call_tool("list_files")
        return not found.is_error and file in text_of(found)

    await until(made)


async def test_an_error_of_the_code_is_an_answer_and_a_wrong_argument_is_an_error_of_the_protocol() -> None:
    async with over_stdio(*SMALL) as client:
        failed = await run(client, "print('before')\n1 / 0")
        assert not failed.is_error
        assert "before" in text_of(failed)
        assert "Error: ZeroDivisionError: division by zero" in text_of(failed)
        assert "\x1b" not in text_of(failed)
        assert failed.meta is not None
        assert failed.meta["sandbox-kernel/execution"]["error"]["fault"] == "user code"
        wrong: list[tuple[str, dict[str, Any]]] = [
            ("run_code", {}),
            ("run_code", {"code": 1}),
            ("run_code", {"code": "1", "sesion": "a"}),
            ("run_code", {"code": "1", "session": "../main"}),
            ("run_code", {"code": "1", "timeout": 0}),
            ("run_code", {"code": "1", "timeout": 10**6}),
            ("upload_file", {"path": "a"}),
            ("upload_file", {"path": "a", "text": "", "base64": ""}),
            ("download_file", {"path": "a", "length": 10**9}),
        ]
        for name, arguments in wrong:
            refused = await client.call_tool(name, arguments)
            assert refused.is_error, (name, arguments)
            assert find(code_in(refused)) is UsageCode.WRONG_ARGUMENT, (name, arguments)
            assert text_of(refused).startswith(f"{name}: "), (name, arguments)
        with pytest.raises(MCPError) as raised:
            await client.call_tool("no_such_tool", {})
        assert raised.value.code == -32602
        assert raised.value.error.data["code"] == McpCode.NO_SUCH_TOOL.code
        assert (await client.call_tool("upload_file", {"path": "/etc/passwd", "text": "x"})).is_error
        assert not (await client.call_tool("download_file", {"path": "/etc/passwd"})).is_error  # the sandbox's own
        hostile = ["../../etc/passwd", "a/../../x", "/mnt/data/../x"]
        for path in hostile:
            for name, content in (("download_file", {}), ("upload_file", {"text": "x"})):
                refused = await client.call_tool(name, {"path": path, **content})
                assert refused.is_error, (name, path)
                assert "FileRefused" in text_of(refused)
                assert type(find(code_in(refused))) is FileCode
        for path in ("a\x00b", "~/x\n"):  # taken under a name that stands for it, and nowhere else
            kept = await client.call_tool("upload_file", {"path": path, "text": "x"})
            assert (kept.is_error, path in text_of(kept)) == (False, False), text_of(kept)
            assert (await client.call_tool("download_file", {"path": path})).is_error is False
        await run(client, "import os\nos.symlink('/etc/passwd', 'link')\nos.mkfifo('fifo')")
        for path in ("link", "fifo", "missing"):
            assert (await client.call_tool("download_file", {"path": path})).is_error
        bad = await client.call_tool("upload_file", {"path": "a", "base64": "not base64!"})
        assert bad.is_error
        assert "cannot be decoded" in text_of(bad)


@pytest.mark.long
async def test_a_file_of_20_mb_goes_in_and_out_at_once_and_in_parts() -> None:
    content = random.Random(4).randbytes(20_000_000)
    async with over_stdio(*SMALL) as client:
        written = await client.call_tool("upload_file", {"path": "a.bin", "base64": base64.b64encode(content).decode()})
        assert written.structured_content["size"] == len(content)
        parts, step = content[-9_000_000:], 4_000_000
        for offset in range(0, len(parts), step):
            part = parts[offset : offset + step]
            final = offset + step >= len(parts)
            arguments = {"path": "b.bin", "base64": base64.b64encode(part).decode(), "offset": offset, "final": final}
            written = await client.call_tool("upload_file", arguments)
            assert written.structured_content["complete"] is final
        same = "import hashlib\nprint([hashlib.sha256(open(n, 'rb').read()).hexdigest() for n in ('a.bin', 'b.bin')])"
        assert (
            text_of(await run(client, same)) == f"{[hashlib.sha256(each).hexdigest() for each in (content, parts)]}\n"
        )

        whole = await client.call_tool("download_file", {"path": "a.bin"})
        (uri,) = links_of(whole)
        (resource,) = (await client.read_resource(uri)).contents
        assert base64.b64decode(resource.blob) == content  # type: ignore[union-attr]
        got = b""
        while len(got) < len(parts):
            arguments = {"path": "b.bin", "offset": len(got), "length": 4 << 20, "encoding": "base64"}
            got += blob_of(await client.call_tool("download_file", arguments))
        assert got == parts
        (slice_,) = (await client.read_resource(f"{uri}?offset=100&length=50")).contents
        assert base64.b64decode(slice_.blob) == content[100:150]  # type: ignore[union-attr]


async def test_parts_that_do_not_follow_each_other_are_refused_and_leave_no_file() -> None:
    async with over_stdio(*SMALL) as client:
        bad = await client.call_tool("upload_file", {"path": "../a", "text": "123", "final": False})
        assert bad.is_error
        assert "'..'" in text_of(bad)
        await client.call_tool("upload_file", {"path": "a", "text": "123", "final": False})
        for offset in (2, 4):
            wrong = await client.call_tool("upload_file", {"path": "a", "text": "4", "offset": offset})
            assert (wrong.is_error, code_in(wrong)) == (True, "part-misplaced")
        assert text_of(await client.call_tool("list_files")) == "There are no files."
        last = await client.call_tool("upload_file", {"path": "a", "text": "4", "offset": 3})
        assert last.structured_content["size"] == 4
        assert text_of(await run(client, "open('a').read()")) == "'1234'"


async def test_long_text_is_cut_and_all_of_it_is_a_resource() -> None:
    async with over_stdio(*SMALL, "--text-limit", "5000") as client:
        result = await run(client, "for i in range(20000): print(i)")
        shown = text_of(result)
        assert len(shown) < 6000
        assert shown.splitlines()[0] == "0"
        assert "19999\n" in shown
        assert "characters are left out" in shown
        (uri,) = links_of(result)
        (content,) = (await client.read_resource(uri)).contents
        assert isinstance(content, TextResourceContents)
        assert content.text == "".join(f"{i}\n" for i in range(20000))
        assert uri in {resource.uri for resource in (await client.list_resources()).resources}
        wanted = {"sandbox://other/outputs/1-stdout.txt": "no-such-session", "file:///etc/passwd": "no-such-resource"}
        for address, code in wanted.items():
            with pytest.raises(MCPError) as raised:
                await client.read_resource(address)
            assert raised.value.error.data == {"code": code, "uri": address}


async def test_what_a_limit_took_is_said_and_the_next_call_tells_the_truth() -> None:
    async with over_stdio(*SMALL, "--idle-timeout", "3") as client:
        await run(client, "x = 1; open('f', 'w').close()")
        late = await run(client, "while True: pass", timeout=1)
        assert "CellTimeout" in text_of(late)
        assert "variables and files" in text_of(late)
        assert text_of(await run(client, "x")) == "1"
        large = text_of(await run(client, "b = bytearray(1 << 30)"))
        assert "OutOfMemory" in large
        assert "All variables and imports are gone; the files in /mnt/data are still there." in large
        assert text_of(await run(client, "import os; 'x' in dir(), os.path.exists('f')")) == "(False, True)"
        pids = [row["session"] for row in (await client.call_tool("list_sessions")).structured_content["sessions"]]
        assert pids == ["main"]

        async def ended() -> bool:
            return not (await client.call_tool("list_sessions")).structured_content["sessions"]

        await until(ended)
        told = text_of(await run(client, "import os; os.path.exists('f')"))
        assert "is new: the one before it ended because" in told
        assert told.startswith("False")


async def test_sessions_are_separate_and_their_number_is_limited() -> None:
    async with over_stdio(*SMALL, "--sessions-per-client", "2") as client:
        await run(client, "x = 'a'", session="a")
        assert "NameError" in text_of(await run(client, "x", session="b"))
        third = await run(client, "1", session="c")
        assert (third.is_error, code_in(third)) == (True, "too-many-sessions")
        assert "a, b" in text_of(third)
        await client.call_tool("end_session", {"session": "b"})
        assert text_of(await run(client, "2", session="c")).startswith("2")
        assert text_of(await run(client, "x", session="a")) == "'a'"


@pytest.mark.parametrize(
    ("setting", "name"),
    [(("--engine", "unix:///nonexistent.sock"), "EngineUnavailable"), (("--image", "no-such-image:1"), "ImageMissing")],
)
async def test_where_no_sandbox_can_start_the_tools_say_why(setting: tuple[str, str], name: str) -> None:
    async with over_stdio(*setting) as client:
        for _ in range(2):  # and it is no session that counts
            answer = await run(client, "1")
            assert answer.is_error
            assert text_of(answer).startswith(f"{name}: ")
        assert (await client.call_tool("list_sessions")).structured_content == {"sessions": []}


@pytest.mark.parametrize("how", ["close", pytest.param("SIGTERM", marks=pytest.mark.long), "SIGKILL"])
async def test_its_end_is_the_end_of_its_containers(how: str) -> None:
    mark = f"mark {random.random()}"
    try:
        async with over_stdio(*SMALL, "--display-name", mark) as client:
            await run(client, "1")
            await run(client, "2", session="other")
            pid = pid_of(mark)
            assert len(await asyncio.to_thread(containers_of, pid)) == 2
            if how != "close":
                os.kill(pid, getattr(signal, how))
                assert await soon(lambda: not containers_of(pid), 10, "its containers are gone") < (
                    2.0 if how == "SIGKILL" else 10
                )
    except* (MCPError, OSError):
        assert how != "close"  # the connection ended before the client closed it
    assert not await asyncio.to_thread(containers_of, pid)


def test_a_closed_stdin_ends_the_server_also_with_a_cell_that_runs() -> None:
    server = subprocess.Popen([*COMMAND, *SMALL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert server.stdin is not None
    assert server.stdout is not None
    with server:

        def say(**message: Any) -> None:
            assert server.stdin is not None
            server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()

        info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        say(id=1, method="initialize", params=info)
        assert json.loads(server.stdout.readline())["result"]["serverInfo"]["name"] == "sandbox-kernel"
        say(method="notifications/initialized")
        call = {"name": "run_code", "arguments": {"code": "import time\ntime.sleep(60)"}}
        say(id=2, method="tools/call", params=call | {"_meta": {"progressToken": 1}})
        assert json.loads(server.stdout.readline())["method"] == "notifications/progress"
        assert len(containers_of(server.pid)) == 1
        server.stdin.close()
        assert server.wait(20) == 0
    eventually(lambda: not containers_of(server.pid), 5, "its container is gone")


def test_only_the_protocol_is_on_stdout() -> None:
    done = subprocess.run([*COMMAND, *SMALL], check=False, input="", capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stdout) == (0, "")
