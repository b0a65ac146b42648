"""How a kernel's process becomes ipykernel, without what no cell has asked for yet.

ipykernel loads all of the debugger at its start, with jupyter_client all that a client is made of, and with other
packages what they hardly need: a third of its time and of its memory. Here it comes when something of it is wanted.
Where an image's versions are others than this is made for, it is loaded as it would be.
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
    from types import ModuleType
    from typing import Any

    from .interrupts import install_interrupts
    from .later import finders, load_later, settle, waiting
    from .prepared import PREPARED, Prepared, given_by

LINE = "--IPKernelApp.exec_lines="
GATE = "--gate="
"""Where a kernel waits of which a state is taken: its connection file, a colon, and modules to import before."""
IMPORTED, GO = "imported", "go"
"""Pipes beside the connection file: the kernel writes one byte to the first, and the agent one to the other."""
REPEATED = ("random", "numpy.random")
"""What draws when it is imported and can be made to draw again, by its function `seed`."""
REGISTER_SECONDS = 10.0
"""How long a thread of the kernel waits for its main thread at most; it takes a millisecond."""
LOADED_LATER = ("pexpect", "IPython.core.magics.execution", "IPython.core.magics.namespace")
"""What IPython loads with the first command of a shell, `%time` and `?`."""
DEBUGGER = "ipykernel.debugger"
PROMISED = {
    "debugpy": (),
    "debugpy.server": ("api",),
    "_pydevd_bundle": ("pydevd_frame_utils",),
    "_pydevd_bundle.pydevd_suspended_frames": ("SuspendedFramesManager", "_FramesTracker"),
}
"""What ipykernel's debugger takes from debugpy as it is imported, by module."""


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
    made = getattr(sys.modules["__main__"], "made", str)
    gc.disable()  # all that is loaded stays, so looking through it finds nothing
    prepared = given_by(PREPARED)
    if prepared is not None:
        prepared.begin()
        finders.insert(0, prepared)
    load_the_rest_later()
    load_debugger()
    from ipykernel import kernelapp

    application: Any = kernelapp.IPKernelApp
    load_pdb_later(application)
    application.init_gui_pylab = settled(getattr(application, "init_gui_pylab", None))
    if gate:
        wait_at_gate(gate[0], prepared)
    application.initialize = starting(application.initialize, lambda shell: run(lines, shell, made), prepared)
    kernelapp.launch_new_instance()


def wait_at_gate(gate: str, prepared: Prepared | None) -> None:
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
    settle()
    named = [name for name in modules.split(",") if name]
    load(REPEATED if named else REPEATED[:1])
    for names in ([*(prepared.index if prepared is not None else ()), *LOADED_LATER], *([name] for name in named)):
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
    """Import modules, as far as they are there: one that fails is the cell's own to meet."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception:  # noqa: S112
            continue


def starting(
    initialize: Callable[..., None], then: Callable[[Any], None], prepared: Prepared | None
) -> Callable[..., None]:
    """Return a method that does the same and what is left of the start, and has garbage collected from then on."""

    def initialized(self: Any, *arguments: Any, **named: Any) -> None:
        type(self).initialize = initialize
        initialize(self, *arguments, **named)
        settle()
        install_interrupts(self.kernel, self.shell)
        register_alone(self.kernel)
        then(self.shell)
        vars(self.shell)["_sys_modules_keys"] = set(sys.modules)  # what %reset leaves: what was there before a cell
        if prepared is not None:
            prepared.end()
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


def settled(method: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a method that does the same when nothing that is promised is left.

    It is the first that may load files of the image's owner, and what looks closer than ipykernel's own: pandas.
    """

    def call(self: Any, *arguments: Any, **named: Any) -> Any:
        settle()
        return method(self, *arguments, **named) if method is not None else None

    return call


def run(lines: list[str], shell: Any, made: Callable[[str], Any]) -> None:
    """Run the lines of a start as Python: as cells, which ipykernel makes of them, they take three times as long."""
    for line in lines:
        try:
            with shell.builtin_trap:
                exec(line, {"__name__": "start", "get_ipython": lambda: shell, "made": made})  # noqa: S102 (the host's)
        except Exception:
            shell.showtraceback()
    sys.stdout.flush()  # nothing of it is the first cell's
    sys.stderr.flush()


def load_the_rest_later() -> None:
    """Have modules wait that a kernel's start imports, and makes no use of.

    What they import comes with them, and would be looked for in the folder of the cells first: what somebody may call a
    file of theirs waits, too, and has its place already.
    """
    load_later("ssl", needs=["_ssl"])
    load_later("asyncio.sslproto")
    load_later("curses", needs=["_curses"])
    load_later("ctypes", needs=["_ctypes"])
    for name in ("ipaddress", "platformdirs", "bdb", "cmd", "code", "decimal", "base64", "six"):
        load_later(name)
    load_later("packaging.version", promised={"Version": lambda: deferred("packaging.version", "Version")})
    load_later("dateutil.parser", promised={"isoparse": lambda: isoparse})
    load_later("dateutil.tz", promised={"tzlocal": lambda: deferred("dateutil.tz", "tzlocal")})
    connect = ("find_connection_file", "write_connection_file")
    has = {name: (lambda name=name: of("jupyter_client.connect", name)) for name in connect}
    load_later("jupyter_client", has, promised={"BlockingKernelClient": lambda: BlockingKernelClient})


def load_pdb_later(application: Any) -> None:
    """Have ipykernel put IPython's debugger in the place of Python's when either is loaded."""
    init_pdb = getattr(application, "init_pdb", None)
    if init_pdb is None:
        return

    def both() -> None:
        if "IPython.core.debugger" in waiting:
            waiting["IPython.core.debugger"].load()  # which takes Python's own first

    load_later("pdb", then=both)
    load_later("IPython.core.debugger", then=lambda: init_pdb(None))
    application.init_pdb = lambda self: None


def of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


def deferred(module: str, name: str) -> Callable[..., Any]:
    """Return what calls a module's function, or makes one of its class."""

    def call(*arguments: Any, **named: Any) -> Any:
        return of(module, name)(*arguments, **named)

    return call


def isoparse(text: str) -> Any:
    """Read the time of a message, as dateutil does, which takes longer to load than twenty other modules."""
    from datetime import datetime

    try:
        return datetime.fromisoformat(text)
    except ValueError:  # before Python 3.11 it knows fewer forms
        return of("dateutil.parser", "isoparse")(text)


class BlockingKernelClient:
    """Makes a client of the kernel's own class for it, if somebody ever asks for one."""

    def __new__(cls, *arguments: Any, **named: Any) -> Any:
        return of("jupyter_client.blocking", "BlockingKernelClient")(*arguments, **named)


class Explorer:
    """The debugger's view of variables, which is made when somebody looks."""

    def __init__(self) -> None:
        self._real: Any = None

    def __getattr__(self, name: str) -> Any:
        if self._real is None:
            self._real = complete(sys.modules[DEBUGGER]).VariableExplorer()
        return getattr(self._real, name)


def load_debugger() -> None:
    """Import ipykernel's debugger, with stand-ins for what it takes from debugpy."""
    if importlib.util.find_spec("debugpy") is None or not PROMISED.keys().isdisjoint(sys.modules):
        return
    try:
        for name, attributes in PROMISED.items():
            stand_in = type(sys)(name)
            stand_in.__dict__.update(dict.fromkeys(attributes), __path__=[])
            sys.modules[name] = stand_in
        try:
            module: Any = importlib.import_module(DEBUGGER)
        finally:
            for name in PROMISED:
                del sys.modules[name]
        if module.__dict__["_is_debugpy_available"]:
            module.__dict__.update(_explorer=module.VariableExplorer, VariableExplorer=Explorer)
        else:
            del sys.modules[DEBUGGER]
    except Exception:
        sys.modules.pop(DEBUGGER, None)  # another version's: it is imported with all that it takes


def complete(module: ModuleType) -> Any:
    """Give ipykernel's debugger what it takes from debugpy, and return it."""
    for name, attributes in PROMISED.items():
        taken: Any = __import__(name, fromlist=attributes or ("",))
        module.__dict__.update({each: getattr(taken, each) for each in attributes})
    module.__dict__["VariableExplorer"] = module.__dict__["_explorer"]
    return module
