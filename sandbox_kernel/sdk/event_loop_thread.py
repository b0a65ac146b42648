"""The loop of all blocking sandboxes of a process, in a thread that starts with the first and ends with the last."""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import contextlib
import os
import queue
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ClassVar, TypeVar

from ..core.codes import EndCode
from ..core.errors import SandboxClosed
from ..core.tasks import Tasks
from .callbacks import Callbacks
from .client import AsyncSandbox

T = TypeVar("T")
EXIT_SECONDS = 5.0
"""For the sandboxes that are open when the interpreter exits; what is left then ends with the process."""


class Background:
    """The event loop of all blocking sandboxes of this process, in a thread of its own."""

    _lock: ClassVar[threading.RLock] = threading.RLock()
    _current: ClassVar[Background | None] = None
    _pid: ClassVar[int] = os.getpid()

    def __init__(self) -> None:
        self.users: dict[str, AsyncSandbox] = {}
        self._tasks = Tasks()
        self._listening = threading.Event()
        self._stopping: asyncio.Event
        self.loop: asyncio.AbstractEventLoop
        # A daemon, so that the interpreter comes to `atexit`, where it is stopped properly.
        self.thread = threading.Thread(target=asyncio.run, args=[self._main()], name="sandbox_kernel", daemon=True)
        self.thread.start()
        self._listening.wait()

    async def _main(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._listening.set()
        await self._stopping.wait()

    @classmethod
    def join(cls, sandbox: AsyncSandbox) -> Background:
        """Return the running one, for one more sandbox."""
        with cls._lock:
            if cls._current is None:
                cls._current = cls()
            cls._current.users[sandbox.id] = sandbox
            return cls._current

    def leave(self, identity: str, *, wait: bool = True) -> None:
        """Note that a sandbox has ended; the last one ends the thread."""
        with self._lock:
            self.users.pop(identity, None)
            if self.users or not self.loop.is_running():
                return
            if Background._current is self:
                Background._current = None
        self.loop.call_soon_threadsafe(self._stopping.set)
        if wait and threading.current_thread() is not self.thread:
            self.thread.join(EXIT_SECONDS)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run on the loop and return the result; interrupted (Ctrl-C), `work` is cancelled."""
        try:
            self.check_thread()
        except SandboxClosed:
            work.close()
            raise
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call(self, method: Callable[..., Coroutine[Any, Any, T]], *args: Any, **keywords: Any) -> T:
        """Call a method and `run` that; arguments whose names begin with `on_` are called in this thread meanwhile."""
        callbacks = Callbacks(**{name: value for name, value in keywords.items() if name.startswith("on_")})
        self.check_thread()
        if not callbacks.wanted:
            return self.run(method(*args, **keywords))
        told: queue.SimpleQueue[tuple[str, Any, asyncio.Future[Any] | None] | None] = queue.SimpleQueue()

        def told_of(name: str) -> Callable[[Any], object]:
            def tell(value: Any) -> object:
                # Input is waited for. Nothing else has an answer, and the next event need not wait for its callback.
                answer = self.loop.create_future() if name == "input" else None
                told.put((name, value, answer))
                return answer

            return tell

        keywords |= {f"on_{name}": told_of(name) for name in callbacks.wanted}
        future = asyncio.run_coroutine_threadsafe(method(*args, **keywords), self.loop)
        future.add_done_callback(lambda _: told.put(None))
        try:
            while (event := told.get()) is not None:
                name, value, answer = event
                given = callbacks.call_here(name, value, lambda waiting: self.run(awaited(waiting)))
                if answer is not None:
                    self.loop.call_soon_threadsafe(_answer, answer, given)
            brought = future.result()
        except BaseException:
            future.cancel()
            raise
        callbacks.check(brought)
        return brought

    def check_thread(self) -> None:
        """Raise `SandboxClosed` in the loop's own thread."""
        if threading.current_thread() is self.thread:
            raise SandboxClosed(
                EndCode.WOULD_WAIT_FOR_ITSELF,
            )

    def drop(self, identity: str) -> None:
        """End a sandbox that nobody holds any more. Called by the garbage collector, in any thread."""
        if os.getpid() == self._pid and self.loop.is_running():
            self.loop.call_soon_threadsafe(self._drop, identity)

    def _drop(self, identity: str) -> None:
        sandbox = self.users.get(identity)
        if sandbox is not None:
            task = self._tasks.start(sandbox.release(), "the end of a sandbox that nobody holds")
            task.add_done_callback(lambda _: self.leave(identity, wait=False))

    @classmethod
    def close_all(cls) -> None:
        """End all sandboxes that are open when the interpreter exits."""
        background = cls._current
        if background is None or not background.thread.is_alive():
            return
        sandboxes = tuple(background.users.values())

        async def end() -> None:
            async with asyncio.timeout(EXIT_SECONDS):
                await asyncio.gather(*(sandbox.release() for sandbox in sandboxes), return_exceptions=True)

        # What is left then ends with the process, as its connections do.
        with contextlib.suppress(TimeoutError, concurrent.futures.CancelledError):
            background.run(end())
        for sandbox in sandboxes:
            background.leave(sandbox.id)

    @classmethod
    def forked(cls) -> None:
        """In a child there is no such thread; whoever held the lock is not there either."""
        cls._pid = os.getpid()
        cls._lock, cls._current = threading.RLock(), None


async def awaited(waiting: Awaitable[T]) -> T:
    return await waiting


def _answer(answer: asyncio.Future[Any], given: object) -> None:
    if not answer.done():
        answer.set_result(given)


os.register_at_fork(after_in_child=Background.forked)
atexit.register(Background.close_all)
