"""No container and no thread outlives its owner: real processes that crash, fork, close their loop or are killed."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

from sandbox_kernel import AsyncSandbox, CallbackFailed, Sandbox, SandboxClosed
from tests.support.kernels import WAIT, containers_of, eventually

GONE = 1.0
"""Seconds after which no container may be left, plus what asking for them takes."""
ASKING = 1.0

OPEN = """
from sandbox_kernel import Sandbox
sandboxes = [Sandbox(image=IMAGE) for _ in range(2)]
for sandbox in sandboxes:
    sandbox.run_code("1")
"""
RUNNING = """
import asyncio
from sandbox_kernel import AsyncSandbox
async def main():
    sandboxes = [await AsyncSandbox.create(image=IMAGE) for _ in range(2)]
    cells = [sandbox.run_code("while True: pass") for sandbox in sandboxes[:1]]
    tasks = [asyncio.create_task(cell) for cell in cells]
    await asyncio.sleep(0.1)
    END
"""


class Caller:
    """A process of its own that uses the SDK."""

    def __init__(self, image: str, code: str) -> None:
        code = f"IMAGE = {image!r}\n{textwrap.dedent(code)}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def says(self) -> str:
        """Return its next line."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, self.process.stderr.read() if self.process.stderr else ""
        return line.strip()

    def goes_on(self) -> None:
        """Give it the line that it waits for."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def containers(self) -> int:
        return len(containers_of(self.process.pid))

    def end(self, expected: int = 0) -> str:
        """Wait for its end and return its stderr; its containers must be gone within a second of it."""
        _, stderr = self.process.communicate(timeout=WAIT)
        eventually(lambda: not self.containers(), GONE + ASKING, "its containers are gone")
        assert self.process.returncode == expected, stderr
        return stderr


@pytest.fixture
def caller(image: str) -> Iterator[type[Caller]]:
    callers: list[Caller] = []

    def start(code: str) -> Caller:
        callers.append(Caller(image, code))
        return callers[-1]

    yield start  # type: ignore[misc]
    for one in callers:
        with contextlib.suppress(OSError):
            one.process.kill()
        one.process.communicate(timeout=WAIT)
        eventually(lambda one=one: not one.containers(), 10, "its containers are gone")  # type: ignore[misc]


def here() -> int:
    return len(containers_of(os.getpid()))


# --- the end of a process --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        OPEN + "print('ready', flush=True); input()",
        RUNNING.replace("END", "print('ready', flush=True); input()") + "asyncio.run(main())",
    ],
    ids=["idle", "running"],
)
def test_kill_9_of_the_caller_takes_every_container_along(caller, code: str) -> None:
    one = caller(code)
    assert one.says() == "ready"
    assert one.containers() == 2
    one.process.kill()
    one.end(-signal.SIGKILL)


def test_kill_9_in_the_middle_of_starts_leaves_no_container_that_runs(caller) -> None:
    one = caller(
        """
        import asyncio
        from sandbox_kernel import AsyncSandbox
        async def main():
            starts = [asyncio.create_task(AsyncSandbox(image=IMAGE).start()) for _ in range(4)]
            print("starting", flush=True)
            await asyncio.gather(*starts)
        asyncio.run(main())
        """
    )
    assert one.says() == "starting"
    eventually(lambda: one.containers() >= 2, WAIT, "starts are under way")
    one.process.kill()
    one.process.wait(WAIT)
    eventually(
        lambda: not [row for row in containers_of(one.process.pid) if row.state == "running"],
        GONE + ASKING,
        "nothing runs any more",
    )
    # One that was created and not started holds nothing but a name; another process would reap it in half a minute.
    for row in containers_of(one.process.pid):
        command = ["docker", "rm", "-f", row.container]
        subprocess.run(command, check=False, capture_output=True, timeout=30)  # it may be gone just now
    eventually(lambda: not one.containers(), 10, "what was created only is removed")


def test_an_exit_without_closing_leaves_nothing_and_says_nothing(caller) -> None:
    assert caller(OPEN).end() == ""


def test_a_crash_of_the_caller_leaves_nothing(caller) -> None:
    assert "RuntimeError: on purpose" in caller(OPEN + "raise RuntimeError('on purpose')").end(1)
    code = RUNNING.replace("END", "raise RuntimeError('on purpose')") + "asyncio.run(main())"
    assert "RuntimeError: on purpose" in caller(code).end(1)
    caller(OPEN + "import os; os._exit(7)").end(7)


def test_ctrl_c_interrupts_the_cell_and_the_sandbox_goes_on(caller) -> None:
    one = caller(
        """
        import threading
        from sandbox_kernel import Sandbox
        with Sandbox(image=IMAGE) as sandbox:
            code = "try:\\n print('running', flush=True)\\n while True: pass\\nexcept KeyboardInterrupt: how = 'so'"
            try:
                sandbox.run_code(code, on_stdout=lambda text: print(text, end="", flush=True))
            except KeyboardInterrupt:
                print(sandbox.run_code("how").text, flush=True)
        print([thread.name for thread in threading.enumerate()], flush=True)
        """
    )
    assert one.says() == "running"
    one.process.send_signal(signal.SIGINT)
    assert one.says() == "'so'"
    assert one.says() == "['MainThread']"
    one.end()


def test_ctrl_c_during_the_start_leaves_nothing(caller) -> None:
    one = caller("from sandbox_kernel import Sandbox\nprint('go', flush=True)\nwith Sandbox(image=IMAGE): input()")
    assert one.says() == "go"
    eventually(one.containers, WAIT, "the start is under way")
    one.process.send_signal(signal.SIGINT)
    assert "KeyboardInterrupt" in one.end(-signal.SIGINT)


# --- owners that end before their process does -----------------------------------------------------------------------


THREADS = """
import threading
from sandbox_kernel import Sandbox
def threads():
    return sum(thread.name == "sandbox_kernel" for thread in threading.enumerate())
"""
"""For a process of its own: in that of the tests, sandboxes of others may be open."""


def test_a_with_block_leaves_neither_container_nor_thread(caller) -> None:
    one = caller(
        THREADS
        + """
with Sandbox(image=IMAGE) as one, Sandbox(image=IMAGE) as other:
    print(one.run_code("1").text, other.run_code("2").text, threads(), flush=True)
print(threads(), flush=True)
input()
try:
    with Sandbox(image=IMAGE):
        raise ZeroDivisionError
except ZeroDivisionError:
    print(threads(), flush=True)
input()
"""
    )
    assert one.says() == "1 2 1"
    for _ in range(2):
        assert one.says() == "0"
        assert one.containers() == 0
        one.goes_on()
    one.end()


def test_a_sandbox_that_nobody_holds_ends(caller) -> None:
    one = caller(
        THREADS
        + """
import gc, time
sandbox = Sandbox(image=IMAGE)
print(sandbox.run_code("1").text, threads(), flush=True)
input()
del sandbox
gc.collect()
print("let go", flush=True)
while threads():
    time.sleep(0.01)
print("no thread", flush=True)
input()
"""
    )
    assert one.says() == "1 1"
    assert one.containers() == 1
    one.goes_on()
    assert one.says() == "let go"
    eventually(lambda: not one.containers(), GONE + ASKING, "its container is gone")
    assert one.says() == "no thread"
    one.goes_on()
    one.end()


async def test_an_async_sandbox_that_nobody_holds_ends(image: str) -> None:
    sandbox = await AsyncSandbox.create(image=image)
    assert await asyncio.to_thread(here) == 1
    files = sandbox.files
    del sandbox
    gc.collect()
    await asyncio.to_thread(eventually, lambda: not here(), GONE + ASKING, "its container is gone")
    with pytest.raises(SandboxClosed, match="nothing refers to it"):
        await files.list()


def test_the_end_of_asyncio_run_ends_what_is_open(image: str) -> None:
    async def forgetful() -> AsyncSandbox:
        sandbox = await AsyncSandbox.create(image=image)
        await sandbox.run_code("1")
        return sandbox

    sandbox = asyncio.run(forgetful())
    eventually(lambda: not here(), GONE + ASKING, "its container is gone")
    with pytest.raises(SandboxClosed, match="event loop, which was closed"):
        asyncio.run(sandbox.run_code("1"))
    asyncio.run(sandbox.kill())


def test_a_loop_that_is_closed_ends_what_is_open_on_it(caller) -> None:
    """In a process of its own: asyncio has a lot to say about tasks that lost their loop."""
    one = caller(
        """
        import asyncio
        from sandbox_kernel import AsyncSandbox
        loop = asyncio.new_event_loop()
        sandbox = loop.run_until_complete(AsyncSandbox.create(image=IMAGE))
        print("open", flush=True)
        input()
        loop.close()
        print("closed", flush=True)
        input()
        asyncio.run(sandbox.kill())
        print("killed", flush=True)
        """
    )
    assert one.says() == "open"
    assert one.containers() == 1
    one.goes_on()
    assert one.says() == "closed"
    eventually(lambda: not one.containers(), GONE + ASKING, "its container is gone")
    one.goes_on()
    assert one.says() == "killed"
    one.end()


def test_another_loop_may_end_a_sandbox_but_not_use_it(image: str) -> None:
    with Sandbox(image=image) as sandbox:
        inner = sandbox._inner
        sandbox.run_code("1")
        with pytest.raises(SandboxClosed, match="another event loop"):
            asyncio.run(inner.run_code("1"))
        asyncio.run(inner.kill())
        assert here() == 0


def test_a_forked_child_neither_uses_nor_keeps_its_parent_s_sandbox(caller) -> None:
    one = caller(
        """
        import os, signal
        from sandbox_kernel import Sandbox, SandboxClosed
        def say(*words):  # in one piece: two processes speak
            os.write(1, (" ".join(map(str, words)) + "\\n").encode())
        sandbox = Sandbox(image=IMAGE)
        sandbox.run_code("kept = 1")
        child = os.fork()
        if child == 0:
            try:
                sandbox.run_code("1")
            except SandboxClosed as error:
                say("refused", "fork" in str(error))
            sandbox.kill()
            with Sandbox(image=IMAGE) as own:
                say(own.run_code("2").text)
            input()
            os._exit(0)
        say(child)
        signal.pause()
        """
    )
    said = {one.says(), one.says(), one.says()}
    child = next(int(line) for line in said if re.fullmatch(r"\d{2,}", line))
    assert said - {str(child)} == {"refused True", "2"}
    assert one.containers() == 1, "the child's kill did not reach the parent's"
    one.process.kill()
    try:
        one.process.wait(WAIT)
        # The child lives on; what it inherited keeps nothing alive.
        eventually(lambda: not one.containers(), GONE + ASKING, "the parent's container is gone")
        os.kill(child, 0)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_callback_that_is_interrupted_interrupts_the_cell(image: str) -> None:
    """KeyboardInterrupt is no failure of the callback's: it goes through."""

    def stop(text: str) -> None:
        raise KeyboardInterrupt

    with Sandbox(image=image) as sandbox:
        with pytest.raises(KeyboardInterrupt):
            sandbox.run_code("print(1, flush=True)\nwhile True: pass", on_stdout=stop)
        assert sandbox.run_code("1").text == "1"
        with pytest.raises(CallbackFailed):
            sandbox.run_code("print(1)", on_stdout=lambda text: 1 / 0)
