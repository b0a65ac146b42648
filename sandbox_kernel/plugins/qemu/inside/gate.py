"""The gate at which the kernel of a saved machine waits: it has imported its modules, and drawn no random numbers yet.

A copy of the machine is claimed, and its kernel goes on from the gate. `wait` runs in the first kernel before it makes
anything of ipykernel; `extended` is the agent's side. Shipped with what states are taken of, and with nothing else.
"""

from __future__ import annotations

import importlib
import os
import select
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any

PIPES = ("imported", "go")
"""Beside the connection file: the kernel writes one byte to the first, and the agent one to the other."""
SEEDED = ("random", "numpy.random")
"""What draws when it is imported and can be made to draw again, by its function `seed`."""
DEBUGGER = "ipykernel.debugger"
AT_THE_GATE = (
    *("sqlite3", "readline", "rlcompleter", "IPython.core.debugger", "IPython.core.completerlib"),
    *("IPython.core.oinspect", "IPython.extensions.storemagic", "tornado.platform.asyncio", "pydoc", "xmlrpc.server"),
    *("pexpect", "IPython.core.magics.execution", "IPython.core.magics.namespace"),
)
"""What ipykernel loads after its own import: while it starts, and with the first shell command, `%time` and `?`."""


def pipes_in(folder: str) -> list[str]:
    """Return the paths of both pipes. The kernel and the agent come in any order: the first of them makes them."""
    paths = [os.path.join(folder, name) for name in PIPES]
    for path in paths:
        with suppress(FileExistsError):
            os.mkfifo(path, 0o600)
    return paths


# --- in the kernel ----------------------------------------------------------------------------------------------------


def wait(modules: Sequence[str]) -> None:
    """Import what kernels import, and wait: each copy of this process goes on from here when it is told to.

    Nothing of it may have drawn random numbers by then, for each copy would go on from the same ones. What does so when
    it is imported, and can be told to draw again, is imported first. The machine sees what draws after that, and by the
    marks for which import (`guest.Draws`).
    """
    load(SEEDED if modules else SEEDED[:1])
    load([DEBUGGER])  # it runs a program, which draws for itself
    for names in (AT_THE_GATE, *((name,) for name in modules)):
        os.getrandom(1, os.GRND_RANDOM)  # the mark: nothing else asks in this way
        load(names)
    paths = pipes_in(os.path.dirname(sys.argv[sys.argv.index("-f") + 1]))
    say, hear = os.open(paths[0], os.O_WRONLY | os.O_CLOEXEC), os.open(paths[1], os.O_RDONLY | os.O_CLOEXEC)
    for path in paths:
        os.unlink(path)  # the agent has opened both; no cell finds them
    os.write(say, b"\n")
    os.read(hear, 1)
    os.close(say)
    os.close(hear)
    for name in SEEDED:
        if name in sys.modules:
            sys.modules[name].seed()


def load(names: Iterable[str]) -> None:
    """Import the modules that exist. A cell that imports one that fails meets the error itself."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112
            continue


# --- in the agent -----------------------------------------------------------------------------------------------------


def extended(kind: Any) -> Any:
    """Return a kind of agent whose first kernel waits at the gate; `kind` is one that is claimed."""

    class Gatekeeper(kind):  # type: ignore[misc]
        """Says when its kernel is at the gate. Claimed, it opens the gate and looks at itself."""

        def begin(self, *rest: Any) -> None:
            # Both ends: so the kernel finds somebody at the other one whenever it opens its own.
            self.ends = [
                os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC) for path in pipes_in(self.kernel.folder)
            ]
            self.poller.register(self.ends[0], select.POLLIN)
            super().begin(*rest)

        def hear(self, kernel: Any, ready: dict[int, int]) -> None:
            if self.ends and self.ends[0] in ready:
                self.poller.unregister(self.ends[0])
                self.event("kernel_imported", number=kernel.number)
            super().hear(kernel, ready)

        def claim(self, nonce: str) -> Any:
            os.write(self.ends[1], b"\n")
            for fd in self.ends:
                os.close(fd)
            self.ends = []
            return super().claim(nonce)

    return Gatekeeper
