"""An agent that was started before anybody wanted it, and is claimed once: it then shows again what it is.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later. Nothing is
copied from one sandbox to another, so there is nothing to reseed: each has processes of its own, which drew their
own beginnings from the system. It ships with sandboxes of a pool alone.
"""

from __future__ import annotations

from . import report
from .agent import Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def waiting(kind: type[Agent]) -> type[Agent]:
    """Return such an agent, which is otherwise of this kind."""

    class Waiting(kind):  # type: ignore[valid-type, misc]
        """Answers a claim as another agent begins: with a report of itself, and that its kernel is ready."""

        claimed = False

        def begin(self, wake_read: int, status: str, filters: dict[str, int | None]) -> None:
            self.before = report.own_status(status), filters
            super().begin(wake_read, status, filters)

        def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
            if op != "claim" or self.claimed:
                answer: tuple[dict[str, Any], bytes] = super().command(op, request, data)
                return answer
            self.claimed = True
            seen = dict(self.look(), nonce=str(request["nonce"]))
            self.event("hello", report=seen, number=self.kernels)
            if self.kernel is not None and self.kernel.ready:
                self.event("kernel_ready", number=self.kernels)
            return {"ok": True}, b""

        def look(self) -> dict[str, object]:
            return report.collect(*self.before)

    return Waiting
