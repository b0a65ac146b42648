"""The parts of a sandbox for its callers: what cells print and draw, files and watched folders."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sandbox_kernel import (
    AsyncSandbox,
    ConfigurationError,
    FileNotThere,
    FileType,
    OutputMessage,
    Sandbox,
    SandboxClosed,
)
from tests.support.patience import within


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="1G", cell_timeout=60, envs={"FOO": "bar"}) as one:
        yield one


# --- code ------------------------------------------------------------------------------------------------------------


def test_what_is_printed_is_a_message_and_text(sandbox: Sandbox) -> None:
    said: list[OutputMessage] = []
    sandbox.run_code(
        "import sys; print('a'); print('b', file=sys.stderr)", on_stdout=said.append, on_stderr=said.append
    )
    assert sorted((message.line, message, message.error) for message in said) == [
        ("a\n", "a\n", False),
        ("b\n", "b\n", True),
    ]
    assert all(abs(message.timestamp / 1e9 - datetime.now(UTC).timestamp()) < 600 for message in said)
    assert type(said[0].line) is str


def test_json_is_text_and_has_keys(sandbox: Sandbox) -> None:
    execution = sandbox.run_code("print('a'); 6 * 7")
    assert json.loads(execution.to_json()) == execution.to_dict()
    assert execution.to_json()["text"] == execution.results[0]["text"] == "42"
    assert json.loads(execution.logs.to_json())["stdout"] == ["a\n"]
    error = sandbox.run_code("1 / 0").error
    assert error is not None
    assert json.loads(error.to_json())["name"] == "ZeroDivisionError"


def test_variables_of_a_sandbox_and_of_a_call(sandbox: Sandbox) -> None:
    ask = "import os; os.getenv('FOO'), os.getenv('NEW')"
    assert sandbox.run_code(ask).text == "('bar', None)"
    assert sandbox.run_code(ask, envs={"FOO": "baz", "NEW": "1"}).text == "('baz', '1')"
    assert sandbox.run_code(ask).text == "('bar', None)"
    failed = sandbox.run_code("1 / 0", envs={"FOO": "baz"}, stop_on_error=True)
    assert failed.error is not None
    assert sandbox.run_code(ask).text == "('bar', None)"
    assert sandbox.run_code("[name for name in dir() if 'sandbox' in name]").text == "[]"


# --- files -----------------------------------------------------------------------------------------------------------


def test_files_are_written_and_read(sandbox: Sandbox) -> None:
    info = sandbox.files.write("w/a.txt", "ü")
    assert (info.name, info.path, info.type) == ("a.txt", "w/a.txt", FileType.FILE)
    assert sandbox.files.read("w/a.txt") == "ü"
    assert sandbox.files.read("/mnt/data/w/a.txt", format="bytes") == "ü".encode()
    assert b"".join(sandbox.files.read("w/a.txt", format="stream")) == "ü".encode()
    several: list[dict[str, Any]] = [
        {"path": "w/b", "data": b"\xff"},
        {"path": "w/c", "data": io.BytesIO(b"c")},
        {"path": "w/d", "data": io.StringIO("d")},
    ]
    assert [info.path for info in sandbox.files.write_files(several)] == ["w/b", "w/c", "w/d"]
    assert sandbox.files.read("w/d") == "d"
    with pytest.raises(FileNotThere):
        sandbox.files.read("w/none")


def test_folders_are_listed_made_moved_and_removed(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.make_dir("f/g") is True
    assert files.make_dir("f/g") is False
    files.write("f/g/h/file", "12345")
    sandbox.run_code("import os; os.symlink('/etc/passwd', 'f/link'); os.chmod('f/g/h/file', 0o640)")
    assert [(entry.path, entry.type) for entry in files.list("f", depth=1)] == [("f/g", FileType.DIR), ("f/link", None)]
    assert [entry.name for entry in files.list("f", 3)] == ["g", "h", "file", "link"]
    assert [info.path for info in files.list("f")] == ["f/g/h/file"]
    entry = files.get_info("f/g/h/file")
    assert (entry.name, entry.size, entry.mode, entry.permissions) == ("file", 5, 0o640, "-rw-r-----")
    assert (entry.owner, entry.group, entry.symlink_target) == ("sandbox", "sandbox", None)
    assert abs(entry.modified_time - datetime.now(UTC)) < timedelta(minutes=10)
    assert files.get_info("f/link").symlink_target == "/etc/passwd"
    assert files.rename("f/g/h/file", "f/new/name").path == "f/new/name"
    assert not files.exists("f/g/h/file")
    with pytest.raises(FileNotThere):
        files.get_info("f/g/h/file")
    sandbox.run_code("for i in range(3000): open(f'f/g/{i}', 'w').close()")
    files.remove("f", recursive=True)
    assert not files.exists("f")
    assert sandbox.run_code("os.path.exists('/etc/passwd')").text == "True"  # no link was followed
    with pytest.raises(FileNotThere):
        files.remove("f", recursive=True)
    with pytest.raises(ConfigurationError):
        files.list("", depth=0)


def test_a_folder_is_watched(sandbox: Sandbox) -> None:
    sandbox.run_code("import os\nos.makedirs('v/in', exist_ok=True)\nfor n in 'abc': open(f'v/{n}', 'w').write(n)")
    handle = sandbox.files.watch_dir("v", recursive=True, include_entry=True)
    assert handle.get_new_events() == []
    sandbox.run_code("os.rename('v/a', 'v/z'); os.remove('v/b'); open('v/c', 'a').write('more'); open('v/in/d', 'w')")
    seen = [(event.name, event.type.value, event.entry is not None) for event in handle.get_new_events()]
    assert seen == [
        ("a", "rename", False),
        ("b", "remove", False),
        ("in/d", "create", True),
        ("z", "create", True),
        ("c", "write", True),
    ]
    handle.stop()
    with pytest.raises(SandboxClosed):
        handle.get_new_events()


# --- the same, awaited -----------------------------------------------------------------------------------------------


async def test_awaited(image: str) -> None:
    async with AsyncSandbox(image=image, memory="1G", envs={"FOO": "bar"}) as sandbox:
        assert [info.id for info in await AsyncSandbox.list() if info.id == sandbox.id] == [sandbox.id]
        await _awaited(sandbox)


async def _awaited(sandbox: AsyncSandbox) -> None:
    made, ended = asyncio.Event(), asyncio.Event()
    watch = await sandbox.files.watch_dir("", lambda event: made.set(), lambda _: ended.set(), timeout=0)
    assert await sandbox.files.make_dir("made") is True
    async with within(60):
        await made.wait()
    await watch.stop()
    assert (await sandbox.files.rename("made", "moved")).type is FileType.DIR
