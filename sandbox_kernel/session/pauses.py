"""The pauses of a session: its container is frozen with all that runs in it, and resumes later where it was.

No cell is refused for it. One that runs is frozen with its clock, and what waits goes on to wait. What bounds a pause
is what bounds an unused sandbox, whose time begins with it; nothing that ends a session waits for the end of a pause.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from ..core.codes import EndCode
from ..core.errors import SandboxError, SandboxPaused
from ..core.events import Emit, MemoryGivenBack, MemoryKept, SandboxFrozen, SandboxThawed
from ..core.model import Settings
from ..core.tasks import Tasks
from ..engines.abilities import Ability, Pausable, Restful, Savable, demand
from ..engines.base import Engine
from ..plugins.api import NotStill, NotWhole
from .agent_link import Link
from .requests.driver import Requests
from .requests.queue import PendingRequest
from .requests.request_states import RequestState

CALM_SECONDS = 15.0
"""How long a cell that is being ended is waited for, or one of the host's own."""
MAX_TRIES = 3
"""A sandbox is written down again if it was met in the middle of a message: no copy could go on from it."""
TURNS = 20


class Pauses:
    """See the module; one for a session's whole life."""

    def __init__(
        self,
        settings: Settings,
        engine: Engine,
        requests: Requests,
        emit: Emit,
        *,
        link: Callable[[], Link],
        ready: Callable[[], bool],
        touch: Callable[[], None],
        beside: Callable[[], Sequence[tuple[Requests, Link]]],
    ) -> None:
        """`settings` are for a container that gives its memory back.

        `link` is the way to the container, and raises `SandboxDied` without one.
        `beside` returns the requests of other kernels in the same container, each with the way to its agent.
        `ready` is whether cells may go in, and `touch` notes a use: the time of an unused sandbox begins again.
        """
        self._engine = engine
        self._requests = requests
        self._emit = emit
        self._settings = settings
        self._link = link
        self._ready = ready
        self._touch = touch
        self._beside = beside
        self._resting: asyncio.Task[object] | None = None
        self._paused: list[tuple[Requests, Link]] = []
        """What stands still: requests, each with the way to their agent. Some may have ended meanwhile."""
        self._turn = asyncio.Lock()
        self.is_saving = False
        """Whether it stands still for a moment alone, to be written down."""
        self._tasks = Tasks()

    def demand(self, ability: Ability) -> None:
        """Raise `AbilityMissing` if the engine does not have it; whether its container does is seen later."""
        demand(ability, self._engine)

    async def begin(self) -> bool:
        """Pause the container; return whether it was not paused yet. A caller that gives up does not undo it.

        Raises `AbilityMissing`, `SandboxDied` without a container, `SandboxPaused` while that cannot be, `EngineError`.
        """
        self.demand(Ability.PAUSE)
        return await asyncio.shield(self._tasks.hold(self._begin(), "pausing a sandbox"))

    async def end(self) -> bool:
        """Resume it; return whether it was paused. Raises as `begin`; it is still paused then."""
        return await asyncio.shield(self._tasks.hold(self._end(), "resuming a sandbox"))

    async def save(self, fd: int) -> dict[str, Any]:
        """Write the container down to `fd` while no cell runs in it, and no message is cut in two.

        Nothing else pauses or resumes it meanwhile; a caller that gives up waits for that. It goes on afterwards,
        whatever comes of it. Returns what its engine needs to know beside the file.

        Raises `NotStill`, `AbilityMissing`, `SandboxDied` without a container, `SandboxPaused` and `EngineError`.
        """
        working = self._tasks.hold(self._save(fd), "taking a snapshot")
        try:
            return await asyncio.shield(working)
        except asyncio.CancelledError:
            await asyncio.wait({working})
            raise

    async def _save(self, fd: int) -> dict[str, Any]:
        async with self._turn:
            link = self._link()
            if link.is_held:
                raise SandboxPaused(EndCode.SANDBOX_PAUSED)
            demand(Ability.SNAPSHOT, link.container)
            container = cast("Savable", link.container)
            if self._beside():
                raise NotWhole("it has contexts besides its own kernel")
            for _ in range(MAX_TRIES):
                await self._at_rest()
                async with self._moment(link, container):
                    facts = await container.save(fd, link.ask_held)
                    for _ in range(TURNS):
                        await asyncio.sleep(0)  # what came until now is read
                    whole = not link.pending
                if whole:
                    return facts
                os.ftruncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
            raise NotStill("a thread in it does not stop to speak")

    async def ask_at_rest(self, op: str, **fields: Any) -> dict[str, Any]:
        """Ask the agent while no cell runs. Raises `NotStill` while one does, and `SandboxDied`."""
        async with self._turn:
            await self._at_rest()
            return (await self._link().ask(op, **fields))[0]

    async def _at_rest(self) -> None:
        """Wait while nothing but cells of this host's own runs: they are short, and no caller knows of them.

        Raises `NotStill` while another cell runs, and while the kernel is on its way.
        """
        queue, closed = self._requests.queue, asyncio.Event()

        def changed(request: PendingRequest, _: RequestState) -> None:
            if request.state is RequestState.CLOSED:
                closed.set()

        queue.listeners.append(changed)
        try:
            async with asyncio.timeout(CALM_SECONDS):
                while queue.active and queue.has_own_alone and self._ready():
                    closed.clear()
                    await closed.wait()
        except TimeoutError:
            pass  # it is refused then, as for any other cell
        finally:
            queue.listeners.remove(changed)
        if queue.active or not self._ready():
            raise NotStill("a cell runs, or its kernel is on its way")

    @asynccontextmanager
    async def _moment(self, link: Link, container: Savable) -> AsyncIterator[None]:
        """Have nothing go into the container, which is paused within; it goes on afterwards, as do those that wait.

        Raises `EngineError` for one that does not go on, which is paused then.
        """
        self._touch()
        self.is_saving = True
        link.hold()
        try:
            await link.quiet()
            yield
        finally:
            try:
                await container.resume()
            finally:
                self.is_saving = False
            link.let_go_on()
            self._requests.thaw()

    async def _begin(self) -> bool:
        async with self._turn:
            link = self._link()
            demand(Ability.PAUSE, link.container)
            if link.is_held:
                return False
            try:
                self._paused = [(self._requests, link), *self._beside()]
                async with asyncio.timeout(CALM_SECONDS):
                    for requests, _ in self._paused:
                        await requests.freeze()
                if not self._ready():
                    raise SandboxPaused(EndCode.NOT_PAUSED.note(why="its kernel is on its way"))
                self._touch()
                for _, one in self._paused:
                    one.hold()
                if isinstance(link.container, Pausable):
                    await link.container.pause()
            except TimeoutError:
                self._go_on()
                raise SandboxPaused(EndCode.NOT_PAUSED.note(why="a cell is being ended")) from None
            except BaseException:
                self._go_on()
                raise
            self._emit(SandboxFrozen())
            if isinstance(link.container, Restful):
                self._resting = self._tasks.start(self._rest(link.container), "a long pause")
            return True

    async def _end(self) -> bool:
        async with self._turn:
            link = self._link()
            if not link.is_held:
                return False
            await self._stay_awake()
            if isinstance(link.container, Pausable):
                await link.container.resume()
            self._touch()
            self._go_on()
            self._emit(SandboxThawed())
            return True

    def _go_on(self) -> None:
        paused, self._paused = self._paused, []
        for requests, link in paused:
            link.let_go_on()
            requests.thaw()

    async def _rest(self, container: Restful) -> None:
        """Have a container that stays paused give its memory back, if it can."""
        try:
            given = await container.last(self._settings)
        except (SandboxError, OSError) as error:
            self._emit(MemoryKept(reason=str(error)))
        else:
            if given:
                self._emit(MemoryGivenBack())

    async def _stay_awake(self) -> None:
        """End what may be under way of that: it leaves the container paused, with its memory or without."""
        resting, self._resting = self._resting, None
        if resting is not None:
            resting.cancel()
            await asyncio.wait({resting})

    async def close(self) -> None:
        await self._tasks.close()
