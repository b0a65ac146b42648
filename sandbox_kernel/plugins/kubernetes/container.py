"""One running pod: its pipe, why it ended, and whether the cluster made what it was asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ...core.codes import EndCode, Survived
from ...core.errors import EngineError
from ...core.model import SIGKILLED, ExitReason, SandboxSpec
from ...core.tasks import Tasks
from ...engines.attestation import checks, demand
from ...engines.base import AttestationCheck, Handover, Inspection
from ...engines.pipe import OverPipe
from .pod_endings import ending, is_going, is_over, lost
from .pod_pipe import PodPipe
from .pod_witness import filter_line, process_line, witness

if TYPE_CHECKING:
    from .cluster_namespace import Cluster

KILL_SECONDS = 4.0
CONCLUDE_SECONDS = 3.0
"""How long the cluster may take to say why a pod ended whose pipe is at its end: its node looks each second."""
LOOK_SECONDS = 1.0
"""How long a last look may take, where the cluster said nothing by itself. A session waits 5 s for the reason."""
GOING_SECONDS = 3.0
"""How long a pod that somebody deletes may still say something. A node that is there takes two."""
LAST_WORDS_SECONDS = 0.5


def not_adopted() -> EngineError:
    return EngineError(
        EndCode.CONTAINER_NOT_ADOPTED, "no pod can be adopted: its pipe ends with the process that has it"
    )


class PodContainer(OverPipe):
    """A running pod. Made by `KubernetesEngine.start` only."""

    def __init__(self, cluster: Cluster, asked: Mapping[str, Any], wire: PodPipe) -> None:
        self.id = str(asked["metadata"]["name"])
        self.image_id: str | None = None
        self.held = True
        self._cluster, self._asked, self._wire = cluster, asked, wire
        self._pipe = wire.pipe
        self._pod: Mapping[str, Any] | None = None
        self._changed = asyncio.Event()
        self._deleted = self._settled = False
        self._deleting: asyncio.Task[None] | None = None
        self._losing: asyncio.TimerHandle | None = None
        self._ended: asyncio.Future[ExitReason] = asyncio.get_running_loop().create_future()
        self._tasks = Tasks()
        cluster.watch.hear(self.id, self._hear)
        self._concluding = self._tasks.start(self._conclude(), f"conclude {self.id}", failed=self._blind)

    async def wait(self) -> ExitReason:
        """Return why the pod ended; `detail` holds the end of its stderr."""
        reason = await asyncio.shield(self._ended)
        if reason.kind != "exited":
            return reason
        with contextlib.suppress(TimeoutError):  # the receiver is about to read the last output
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                await self._pipe.ended.wait()
        return replace(reason, detail=self._pipe.stderr)

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        return (*checks(spec, report, await self.look(spec)), process_line(spec, report), filter_line(report))

    async def look(self, spec: SandboxSpec) -> Inspection:
        """Return what the cluster says of it, compared with `spec`."""
        found = None if self._deleting is not None else await self._cluster.pod(self.id)
        if found is None or is_over(found):
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        statuses = (found.get("status") or {}).get("containerStatuses") or [{}]
        self.image_id = str(statuses[0].get("imageID", ""))[:100] or None
        return witness(spec, self._asked, found)

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))

    async def kill(self) -> None:
        """End and delete the pod, within 4 s. Raises `EngineError` when that is not done by then.

        Its own end does not wait for that: the pipe is closed, and the cluster deletes what has ended.
        """
        self._end(ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended by its owner"))
        await self._wire.close()
        await asyncio.shield(self._delete())

    def abandon(self) -> None:
        self._wire.abandon()

    def detach(self) -> Handover:
        """Raise `EngineError`: the pipe is moved by this process, and ends with it."""
        raise not_adopted()

    # --- why it ended -----------------------------------------------------------------------------------------------

    def _hear(self, pod: Mapping[str, Any] | None, gone: bool) -> None:
        self._pod, self._deleted = pod or self._pod, gone
        self._changed.set()
        if gone:
            self._lose()
        elif pod is not None and is_going(pod) and self._losing is None:
            # A node that is gone says nothing, and the connection through it may stay.
            self._losing = asyncio.get_running_loop().call_later(GOING_SECONDS, self._lose)

    def _lose(self) -> None:
        self._settled = True
        self._wire.pipe.finish()  # its node ends it; nothing that comes counts any more
        self._wire.broken.set()

    async def _conclude(self) -> None:
        """Tell from what the cluster says why the pod ended."""
        await self._wire.broken.wait()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CONCLUDE_SECONDS):
                while not (self._ended.done() or self._is_settled()):
                    self._changed.clear()
                    await self._changed.wait()
        if self._ended.done():
            return  # its owner ends it, and deletes it
        try:
            if not self._is_settled():
                async with asyncio.timeout(LOOK_SECONDS):
                    found = await self._cluster.pod(self.id)
                self._pod, self._deleted = found or self._pod, found is None
            self._end(ending(self._pod, self._wire.why, deleted=self._deleted))
        except (EngineError, TimeoutError):
            self._end(lost(self._wire.why))
        with contextlib.suppress(EngineError):  # what is left ends by itself, and is deleted as a dead owner's is
            await asyncio.shield(self._delete())

    def _is_settled(self) -> bool:
        return self._settled or (self._pod is not None and is_over(self._pod))

    def _delete(self) -> asyncio.Task[None]:
        """Delete the pod and let go of the cluster, once for all who want that."""
        if self._deleting is None:
            self._deleting = self._tasks.hold(self._delete_and_leave(), f"delete {self.id}")
            self._deleting.add_done_callback(lambda done: None if done.cancelled() else done.exception())
        return self._deleting

    async def _delete_and_leave(self) -> None:
        if self._losing is not None:
            self._losing.cancel()
        try:
            async with asyncio.timeout(KILL_SECONDS):
                await self._remove()
        except TimeoutError as error:
            raise EngineError(
                EndCode.CONTAINER_NOT_REMOVED, "the cluster did not delete the pod", limit=f"{KILL_SECONDS:.0f} s"
            ) from error
        finally:
            self._cluster.watch.forget(self.id)
            await self._cluster.leave()

    async def _remove(self) -> None:
        await self._cluster.remove(self.id)

    def _blind(self, error: BaseException) -> None:
        """Give the pod up, whose end would not be noticed."""
        self._pipe.close()
        self._delete()
        self._end(ExitReason(kind="engine_lost", detail=f"sandbox_kernel failed at what the cluster said: {error!r}"))

    def _end(self, reason: ExitReason) -> None:
        if not self._ended.done():
            self._ended.set_result(reason)
            self._changed.set()
