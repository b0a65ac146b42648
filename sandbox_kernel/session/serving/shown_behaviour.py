"""What the cells of a kernel did that matters, for whoever shows how its sandbox stands: one report of them all."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...core.events import KernelReplaced, SessionEvent
from ..requests.queue import PendingRequest
from ..requests.request_states import RequestState
from ..session import Session

if TYPE_CHECKING:
    from ...core.behaviour import Observations


class ShownBehaviour:
    """Hears a session from its beginning on, and begins anew with a restart that somebody asks for."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._seen: Observations | None = None
        session.listen(self)
        session.on_change(self._changed)

    def _observations(self) -> Observations:
        if self._seen is None:
            from ...core.behaviour import Observations  # slow to import, and a start waits for this module

            self._seen = Observations()
        return self._seen

    def hear(self, event: SessionEvent) -> None:
        """Note an event for the first cell that runs; from any thread."""
        from ...core.behaviour import observed

        if isinstance(event, KernelReplaced):
            self._seen = None
        elif (seen := observed(event)) is not None:
            running = (one.execution_count for one in self._session.running_cells() if one.sent)
            self._observations().add(seen, next(running, None) or None)

    def _changed(self, request: PendingRequest) -> None:
        if request.state is RequestState.ENDED and (request.findings or request.verdict):
            self._observations().end(request.findings, request.verdict, request.execution_count or None)

    def to_json(self) -> dict[str, Any]:
        """Return the report, by the schema of docs/behaviour.md. What cells used is not in it."""
        from ...core.behaviour import THRESHOLD, Behaviour

        threshold = self._session.settings.get("screen_threshold", THRESHOLD)
        return Behaviour(rows=self._observations().rows(), threshold=threshold).to_json()
