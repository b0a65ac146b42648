"""An agent in a machine that began from a state: its kernel draws again while the agent looks at what it is now.

The kernel waits at two pipes (`anew`), from before the state was taken: a cell would take ten times as long, for where
code is emulated, what runs for the first time is what takes time.
Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later. It ships
with what states are taken of, and with nothing else.
"""

from __future__ import annotations

import os
import select
import sys

from .agent import Agent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

WAYS = ("anew", "begun")
"""Pipes beside the connection file: the agent writes one byte to the first, and the kernel one to the other."""
SECONDS = 60.0
"""How long the kernel may take; the host gives up earlier."""


def renewing(kind: type[Agent]) -> type[Agent]:
    """Return such an agent; `kind` is one that waits for a claim."""

    class Renewing(kind):  # type: ignore[valid-type, misc]
        """Claimed, it looks at itself while its kernel draws again, and answers when both are done."""

        def begin(self, *rest: Any) -> None:
            paths = [os.path.join(self.kernel.folder, name) for name in WAYS]
            for path in paths:
                os.mkfifo(path, 0o600)
            # Both ends: so the kernel finds somebody at the other one whenever it opens its own.
            self.ways = [os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for path in paths]
            super().begin(*rest)

        def look(self) -> dict[str, object]:
            to_kernel, from_kernel = self.ways
            os.write(to_kernel, b"\n")
            seen: dict[str, object] = super().look()
            if not select.select([from_kernel], [], [], SECONDS)[0]:
                sys.stderr.write("the kernel does not begin anew\n")
                os._exit(1)
            for fd in self.ways:
                os.close(fd)
            return seen

    return Renewing
