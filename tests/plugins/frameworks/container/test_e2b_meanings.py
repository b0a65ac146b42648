"""Code of E2B's SDK with another import and nothing else changed: what its calls mean there, they mean here."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox as OwnSandbox
from sandbox_kernel.plugins.frameworks.e2b import (
    AsyncSandbox,
    FileNotFoundException,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNotFoundException,
    SandboxNotRunningException,
    TimeoutException,
)

SLEEP = "import time; time.sleep(60)"


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox.create(image, timeout=600, envs={"FOO": "sandbox"}, memory="1G") as one:
        yield one


# --- code ------------------------------------------------------------------------------------------------------------


def test_a_string_is_a_text_without_quotes(sandbox: Sandbox, image: str) -> None:
    read = "import os; os.getenv('FOO')"
    assert sandbox.run_code(read).text == "sandbox"
    seen: list[str | None] = []
    execution = sandbox.run_code(
        read, "python", envs={"FOO": "call"}, on_result=lambda result: seen.append(result.text)
    )
    assert execution.text == execution.results[0].text == seen[0] == "call"
    assert sandbox.run_code('"it\'s"').text == "it's"
    assert [sandbox.run_code(code).text for code in ("''", "['a']", "1", "print(1)")] == ["", "['a']", "1", None]
    with OwnSandbox(image=image, envs={"FOO": "own"}) as own:  # the control
        assert own.run_code(read).text == "'own'"


def test_a_call_that_takes_too_long_raises_and_leaves_the_variables(sandbox: Sandbox) -> None:
    sandbox.run_code("kept = 5")
    with pytest.raises(TimeoutException) as caught:
        sandbox.run_code(SLEEP, timeout=1)
    assert (caught.value.limit, isinstance(caught.value, SandboxException)) == ("1 s", True)
    assert sandbox.run_code("kept", timeout=30).text == "5"
    assert sandbox.run_code("raise TimeoutError('own')").error is not None  # the code's own is no exception here


def test_a_sandbox_that_is_killed_meanwhile_raises(image: str) -> None:
    one = Sandbox.create(image)
    begun = threading.Event()

    def kill() -> None:
        begun.wait(60)
        Sandbox.kill(one.sandbox_id)

    killer = threading.Thread(target=kill)
    killer.start()
    with pytest.raises(TimeoutException, match="sandbox was killed while the request was in progress") as caught:
        one.run_code(f"print(1, flush=True)\n{SLEEP}", on_stdout=lambda message: begun.set())
    killer.join(60)
    assert isinstance(caught.value, SandboxNotRunningException)
    assert not one.is_running()


def test_what_is_not_here_is_refused_with_the_reason(sandbox: Sandbox) -> None:
    for wrong in ({"language": "cobol"}, {"context": object()}, {"language": "python", "context": sandbox.sandbox_id}):
        with pytest.raises(InvalidArgumentException, match=r"language|context"):
            sandbox.run_code("1", **wrong)
    for name, why in (
        ("get_host", "port"),
        ("upload_url", "files"),
        ("git", "git"),
    ):
        assert not hasattr(sandbox, name)
        with pytest.raises(AttributeError, match=why):
            getattr(sandbox, name)
    with pytest.raises(SandboxNotFoundException, match="'none'"):
        Sandbox.connect("none")
    with pytest.raises(AttributeError, match=r"has no nonsense$"):
        sandbox.nonsense  # noqa: B018


# --- files -----------------------------------------------------------------------------------------------------------


def test_paths_are_whole_and_lists_have_one_level(sandbox: Sandbox) -> None:
    files = sandbox.files
    assert files.make_dir("tree/in/deep") is True
    assert files.write("tree/a.txt", "Hello").path == "/home/user/tree/a.txt"
    assert [one.path for one in files.write([{"path": "tree/b.txt", "data": "b"}])] == ["/home/user/tree/b.txt"]
    assert files.write_files([]) == []
    entries = files.list("/home/user/tree")
    assert [(one.path, one.type) for one in entries] == [
        ("/home/user/tree/a.txt", FileType.FILE),
        ("/home/user/tree/b.txt", FileType.FILE),
        ("/home/user/tree/in", FileType.DIR),
    ]
    assert (entries[0].owner, entries[0].group) == ("user", "user")
    assert [one.name for one in files.list("tree", depth=2)] == ["a.txt", "b.txt", "in", "deep"]
    assert files.read(entries[0].path) == "Hello"
    assert files.get_info("tree/in").path == "/home/user/tree/in"
    assert files.rename("tree/a.txt", "tree/c.txt").path == "/home/user/tree/c.txt"
    assert files.rename("tree/c.txt", "/tmp/c.txt").path == "/tmp/c.txt"
    with pytest.raises(InvalidArgumentException, match="depth should be at least 1"):
        files.list("tree", depth=-1)
    with pytest.raises(InvalidArgumentException, match="a path and data"):
        files.write_files([{"path": "x"}])
    files.remove("tree")
    assert not files.exists("tree")
    files.remove("tree")


def test_a_stream_is_refused_at_once_and_can_be_closed(sandbox: Sandbox) -> None:
    content = "Streamed. " * 300_000
    sandbox.files.write("stream.txt", content)
    with sandbox.files.read("stream.txt", format="stream") as stream:
        assert b"".join(stream).decode() == content
    stream = sandbox.files.read("stream.txt", format="stream")
    assert next(iter(stream))
    stream.close()
    stream.close()
    assert list(stream) == []
    for form in ("text", "bytes", "stream"):
        with pytest.raises(FileNotFoundException) as caught:
            sandbox.files.read("none.txt", format=form)
        assert isinstance(caught.value, NotFoundException)


# --- with await ------------------------------------------------------------------------------------------------------


async def test_the_same_with_await(image: str) -> None:
    async with await AsyncSandbox.create(image, memory="1G") as one:
        seen: list[str | None] = []
        execution = await one.run_code("'text'", on_result=lambda result: seen.append(result.text))
        assert execution.text == seen[0] == "text"
        with pytest.raises(TimeoutException):
            await one.run_code(SLEEP, timeout=1)
        with pytest.raises(InvalidArgumentException, match="'r'"):
            await one.run_code("1", language="r")
        files = one.files
        assert (await files.write("d/a.txt", "a")).path == "/home/user/d/a.txt"
        assert [info.path for info in await files.write([{"path": "d/b.txt", "data": "b"}])] == ["/home/user/d/b.txt"]
        assert [info.name for info in await files.list("d")] == ["a.txt", "b.txt"]
        assert (await files.get_info("d")).owner == "user"
        assert (await files.rename("d/a.txt", "d/c.txt")).path == "/home/user/d/c.txt"
        async with await files.read("d/c.txt", "stream") as stream:
            assert [piece async for piece in stream] == [b"a"]
        assert await files.read("d/c.txt") == "a"
        with pytest.raises(FileNotFoundException):
            await files.read("none", "stream")
        await files.remove("d")
        await files.remove("d")
        assert (await AsyncSandbox.connect(one.sandbox_id)) is one
        with pytest.raises(SandboxNotFoundException):
            await AsyncSandbox.connect("none")
        call = asyncio.create_task(one.run_code(SLEEP, on_stdout=None))
        assert await AsyncSandbox.kill(one.sandbox_id)
        with pytest.raises((SandboxNotRunningException, SandboxException)):
            await call
