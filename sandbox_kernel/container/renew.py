"""An agent in a machine whose state is saved: its kernel has imported its modules, and waits at a gate.

A copy of the machine is claimed, and its kernel goes on from the gate (`launcher`), where it has drawn nothing yet.
Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later. It ships
with what states are taken of, and with nothing else.
"""

from __future__ import annotations

import os
import select

from .agent import Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def renewing(kind: type[Agent]) -> type[Agent]:
    """Return such an agent; `kind` is one that waits for a claim."""

    class Renewing(kind):  # type: ignore[valid-type, misc]
        """Says when its kernel is at the gate. Claimed, it opens the gate and looks at itself."""

        def begin(self, *rest: Any) -> None:
            paths = [os.path.join(self.kernel.folder, name) for name in self.config["gate"]]
            # Both ends: so the kernel finds somebody at the other one whenever it opens its own.
            self.ways = [os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for path in paths]
            self.poller.register(self.ways[0], select.POLLIN)
            super().begin(*rest)

        def hear(self, kernel: Any, ready: dict[int, int]) -> None:
            if self.ways and self.ways[0] in ready:
                self.poller.unregister(self.ways[0])
                self.event("kernel_imported", number=kernel.number)
            super().hear(kernel, ready)

        def look(self) -> dict[str, object]:
            os.write(self.ways[1], b"\n")
            for fd in self.ways:
                os.close(fd)
            self.ways = []
            seen: dict[str, object] = super().look()
            return seen

    return Renewing
