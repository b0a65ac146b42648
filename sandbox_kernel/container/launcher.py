"""How a kernel's process becomes ipykernel: its start is not searched for garbage, and its lines are run as Python.

Runs inside the container, as the program of a kernel: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from .interrupts import install_interrupts

LINE = "--IPKernelApp.exec_lines="
GATE = "--gate="
"""Where a kernel waits for its state to be saved: its connection file, a colon, and modules to import before."""
IMPORTED, GO = "imported", "go"
"""Pipes beside the connection file: the kernel writes one byte to the first, and the agent one to the other."""
REPEATED = ("random", "numpy.random")
"""What draws when it is imported and can be made to draw again, by its function `seed`."""
REGISTER_SECONDS = 10.0
"""How long a thread of the kernel waits for its main thread at most; it takes a millisecond."""
DEBUGGER = "ipykernel.debugger"
AT_THE_GATE = (
    *("sqlite3", "readline", "rlcompleter", "IPython.core.debugger", "IPython.core.completerlib"),
    *("IPython.core.oinspect", "IPython.extensions.storemagic", "tornado.platform.asyncio", "pydoc", "xmlrpc.server"),
    *("pexpect", "IPython.core.magics.execution", "IPython.core.magics.namespace"),
)
"""What ipykernel loads after its own import: while it starts, and with the first shell command, `%time` and `?`."""


def main() -> None:
    """Run a kernel as `python -m ipykernel_launcher` does."""
    if sys.path[0] == "":
        del sys.path[0]  # nothing is loaded from the current folder; the kernel puts it back
    launcher = importlib.util.find_spec("ipykernel_launcher")
    if launcher is not None and launcher.origin is not None:
        sys.argv[0] = launcher.origin  # by which programs see where they run
    lines = [each[len(LINE) :] for each in sys.argv if each.startswith(LINE)]
    gate = [each[len(GATE) :] for each in sys.argv if each.startswith(GATE)]
    sys.argv = [each for each in sys.argv if not each.startswith((LINE, GATE))]
    gc.disable()  # all that is loaded stays, so looking through it finds nothing
    from ipykernel import kernelapp

    application: Any = kernelapp.IPKernelApp
    if gate:
        wait_at_gate(gate[0])
    application.initialize = starting(application.initialize, lambda shell: run(lines, shell))
    kernelapp.launch_new_instance()


def wait_at_gate(gate: str) -> None:
    """Import what kernels import, and wait: each copy of this process goes on from here when it is told to.

    Nothing of it may have drawn random numbers by then, for each copy would go on from the same ones. What does so when
    it is imported, and can be told to draw again, is imported first. The machine sees what draws after that, and by the
    marks for which import (`guest.Draws`).
    """
    connection, _, modules = gate.rpartition(":")
    folder = os.path.dirname(connection)
    ways = [os.path.join(folder, name) for name in (IMPORTED, GO)]
    if not os.path.exists(ways[0]):
        return  # a later kernel of the same sandbox
    named = [name for name in modules.split(",") if name]
    load(REPEATED if named else REPEATED[:1])
    load([DEBUGGER])  # it runs a program, which draws for itself
    for names in (AT_THE_GATE, *((name,) for name in named)):
        os.getrandom(1, os.GRND_RANDOM)  # the mark: nothing else asks in this way
        load(names)
    say, hear = os.open(ways[0], os.O_WRONLY | os.O_CLOEXEC), os.open(ways[1], os.O_RDONLY | os.O_CLOEXEC)
    for path in ways:
        os.unlink(path)  # no cell finds them
    os.write(say, b"\n")
    os.read(hear, 1)
    os.close(say)
    os.close(hear)
    for name in REPEATED:
        if name in sys.modules:
            sys.modules[name].seed()


def load(names: Iterable[str]) -> None:
    """Import the modules that exist. A cell that imports one that fails meets the error itself."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112
            continue


def starting(initialize: Callable[..., None], then: Callable[[Any], None]) -> Callable[..., None]:
    """Return a method that does the same and what is left of the start, and has garbage collected from then on."""

    def initialized(self: Any, *arguments: Any, **named: Any) -> None:
        type(self).initialize = initialize
        initialize(self, *arguments, **named)
        install_interrupts(self.kernel, self.shell)
        register_alone(self.kernel)
        then(self.shell)
        vars(self.shell)["_sys_modules_keys"] = set(sys.modules)  # what %reset leaves: what was there before a cell
        gc.enable()

    return initialized


def register_alone(kernel: Any) -> None:
    """Have the kernel's own threads wait while `start` of the main thread registers who reads their sockets.

    ipykernel starts the threads first. A socket of ZeroMQ is for one thread at a time: with a request in that moment,
    both threads used one, and in one of some thousand starts no reply left the kernel from then on.
    """
    start = kernel.start

    def started() -> None:
        registered = threading.Event()
        threads = [getattr(kernel, name, None) for name in ("control_thread", "shell_channel_thread")]
        for thread in threads:
            if thread is not None and thread.is_alive():
                waits = threading.Event()
                thread.io_loop.add_callback(lambda waits=waits: (waits.set(), registered.wait(REGISTER_SECONDS)))
                waits.wait(REGISTER_SECONDS)
        try:
            start()
        finally:
            registered.set()

    kernel.start = started


def run(lines: list[str], shell: Any) -> None:
    """Run the lines of a start as Python: as cells, which ipykernel makes of them, they take three times as long."""
    for line in lines:
        try:
            with shell.builtin_trap:
                exec(line, {"__name__": "start", "get_ipython": lambda: shell})  # noqa: S102 (the host's)
        except Exception:
            shell.showtraceback()
    sys.stdout.flush()  # nothing of it is the first cell's
    sys.stderr.flush()
