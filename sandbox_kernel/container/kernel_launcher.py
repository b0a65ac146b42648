"""How a kernel's process becomes ipykernel: its start is not searched for garbage, and its lines are run as Python.

Runs inside the container, as the program of a kernel: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import gc
import importlib.util
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from .interrupts import install_interrupts

LINE = "--IPKernelApp.exec_lines="
BEFORE = "--before="
"""A line that runs when ipykernel is imported, and before anything of it is made (`shipping.Extension`)."""
REGISTER_SECONDS = 10.0
"""How long a thread of the kernel waits for its main thread at most; it takes a millisecond."""


def main() -> None:
    """Run a kernel as `python -m ipykernel_launcher` does."""
    if sys.path[0] == "":
        del sys.path[0]  # nothing is loaded from the current folder; the kernel puts it back
    launcher = importlib.util.find_spec("ipykernel_launcher")
    if launcher is not None and launcher.origin is not None:
        sys.argv[0] = launcher.origin  # by which programs see where they run
    lines, before = ([each[len(word) :] for each in sys.argv if each.startswith(word)] for word in (LINE, BEFORE))
    sys.argv = [each for each in sys.argv if not each.startswith((LINE, BEFORE))]
    gc.disable()  # all that is loaded stays, so looking through it finds nothing
    from ipykernel import kernelapp

    application: Any = kernelapp.IPKernelApp
    for line in before:
        exec(line, {"__name__": "before"})  # noqa: S102 (the host's)
    application.initialize = starting(application.initialize, lambda shell: run(lines, shell))
    kernelapp.launch_new_instance()


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
