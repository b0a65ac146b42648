"""How a kernel's process becomes ipykernel: its start is not searched for garbage, and its lines are run as Python.

An interrupt meets the code of a cell, and never ipykernel itself: that would end the kernel, or lose a reply. ipykernel
lets SIGINT raise `KeyboardInterrupt` from before a request is handled until after its reply is sent. Here it does so
only where the code of a user runs and IPython catches what that raises. Elsewhere in a request, the interrupt is
remembered for the next code that the request runs; between two requests it is ignored, as by ipykernel. However many
come, each of them does one of these three. One that comes while a cell awaits is heard at once: Python's handler alone
does not wake the loop, and a cell that waits for what never comes would wait on.
Runs inside the container, as the program of a kernel: standard library only, and Python 3.9 and later.
"""

from __future__ import annotations

import gc
import importlib.util
import marshal
import os
import site
import struct
import sys
import threading
from contextlib import suppress
from functools import partial
from importlib.machinery import SourceFileLoader
from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    import signal
    from collections.abc import Callable, Generator
    from typing import Any
else:
    import _signal as signal  # each call is one step, and an interrupt has no place within

REGISTER_SECONDS = 10.0
"""How long a thread of the kernel waits for its main thread at most; it takes a millisecond."""
WATCH = "_watch_pipe_fd"
"""What reads one of ipykernel's streams, in a thread of its own."""
PIPE_BYTES = 1 << 16
"""What a pipe holds, so that one read empties it."""
TAKE_SECONDS = 1.0
"""How long the end of a request waits at most for the thread that reads the same pipe."""


BYTECODE = "/opt/sandbox/home/.cache/kernel-bytecode"


class PreparedBytecode:
    """Finds the modules of a start in the one file that an image has of their bytecode (`images/warm.py`).

    Looking for 350 modules in folders takes a tenth of a kernel's start. Nothing is found here once something else may
    be before it: another path, or packages of the user's. As in Python's own cache, what is older than its source does
    not count.
    """

    def __init__(self) -> None:
        self.modules: dict[str, tuple[str, bool, bytes, int, int]] = {}
        self.file = -1
        try:
            self.file = os.open(BYTECODE, os.O_RDONLY | os.O_CLOEXEC)
            self.begin = 8 + int.from_bytes(os.read(self.file, 8), "little")
            head = os.read(self.file, self.begin - 8)
            python, paths, modules = marshal.loads(head)  # noqa: S302 (the image's)
            users = site.getusersitepackages()
            own = [path for path in sys.path if path != users]
            same = (python, paths) == (importlib.util.MAGIC_NUMBER, own)
            if same and not (os.path.isdir(users) and os.listdir(users)):
                self.modules = modules
                sys.meta_path.insert(0, self)
        except (OSError, ValueError, EOFError, TypeError, OverflowError):
            self.modules = {}  # no image of ours, or another Python's

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name not in self.modules:
            return None
        origin, is_package = self.modules[name][:2]
        places = [os.path.dirname(origin)] if is_package else None
        loader = PreparedLoader(self, name, origin)
        return importlib.util.spec_from_file_location(name, origin, loader=loader, submodule_search_locations=places)

    def code(self, name: str, size: int, seconds: float) -> Any:
        """Return the bytecode of a module whose source is of this size and time, None for another."""
        _, _, stamp, begin, length = self.modules.get(name, ("", False, b"", 0, 0))
        if stamp != struct.pack("<II", int(seconds) & 0xFFFFFFFF, size & 0xFFFFFFFF):
            return None
        return marshal.loads(os.pread(self.file, length, self.begin + begin))  # noqa: S302

    def close(self) -> None:
        """Find nothing more: cells import as usual."""
        self.modules = {}
        if self in sys.meta_path:
            sys.meta_path.remove(self)
        if self.file >= 0:
            os.close(self.file)
            self.file = -1


class PreparedLoader(SourceFileLoader):
    """Loads a module whose bytecode is prepared; what is asked of it later is answered by its source."""

    def __init__(self, prepared: PreparedBytecode, name: str, origin: str) -> None:
        super().__init__(name, origin)
        self.prepared = prepared

    def get_code(self, fullname: str) -> Any:
        found = self.path_stats(self.path)
        return self.prepared.code(fullname, found["size"], found["mtime"]) or super().get_code(fullname)


def main(
    lines: list[str],
    before: list[str],
    compiled: Callable[[str, str, str], Any] = compile,
    forget: Callable[[], object] = int,
) -> None:
    """Run a kernel as `python -m ipykernel_launcher` does, and `lines` when it is made.

    `before` runs when ipykernel is imported, and before anything of it is made (`shipping.Extension`). `compiled` is
    what the lines compile with, and `forget` lets go of what it has prepared.
    """
    if not getattr(sys.flags, "safe_path", False):
        del sys.path[0]  # this program's folder, of which nothing is loaded; the kernel puts the current one there
    launcher = importlib.util.find_spec("ipykernel_launcher")
    if launcher is not None and launcher.origin is not None:
        sys.argv[0] = launcher.origin  # by which programs see where they run
    gc.disable()  # all that is loaded stays, so looking through it finds nothing
    prepared = PreparedBytecode()
    complete = defer_clients()
    from ipykernel import kernelapp

    application: Any = kernelapp.IPKernelApp
    with suppress(ImportError, AttributeError):  # another version of ipykernel has it otherwise
        load_debugpy_when_asked()
    read_last: Callable[[Any], object] = id
    with suppress(ImportError, AttributeError):
        read_last = read_raw_outputs()
    for line in before:
        exec(line, {"__name__": "before"})  # noqa: S102 (the host's)

    def run_lines(shell: Any) -> None:
        read_last(shell.kernel)
        run(lines, shell, compiled)
        complete()
        forget()

    application.initialize = starting(application.initialize, prepared, run_lines)
    kernelapp.launch_new_instance()


def starting(
    initialize: Callable[..., None], prepared: PreparedBytecode, then: Callable[[Any], None]
) -> Callable[..., None]:
    """Return a method that does the same and what is left of the start, and has garbage collected from then on."""

    def initialized(self: Any, *arguments: Any, **named: Any) -> None:
        type(self).initialize = initialize
        initialize(self, *arguments, **named)
        prepared.close()
        install_interrupts(self.kernel, self.shell)
        register_alone(self.kernel)
        keep_folder(self.kernel)
        then(self.shell)
        with suppress(ImportError, AttributeError):  # of another libc
            import ctypes

            ctypes.CDLL(None).malloc_trim(0)  # of what loading took, nearly 1 MB is free
        vars(self.shell)["_sys_modules_keys"] = set(sys.modules)  # what %reset leaves: what was there before a cell
        gc.enable()

    return initialized


CLIENTS = "jupyter_client"


def defer_clients() -> Callable[[], object]:
    """Have ipykernel load of jupyter_client what a kernel needs; return what has to be called once that is done.

    The clients and managers of kernels take a twentieth of a start, and more than 1 MB. The package's own module, which
    imports them, runs when a cell asks for one of its names.
    """
    spec = importlib.util.find_spec(CLIENTS)
    if spec is None or spec.loader is None:
        return int
    loader, lock, running = spec.loader, threading.RLock(), [False]

    class Deferred(ModuleType):
        def __getattr__(self, name: str) -> Any:
            if name.startswith("__") and name != "__version__":
                raise AttributeError(name)  # Python looks for some of these in each module
            with suppress(ModuleNotFoundError):  # one module of the package needs another one
                return importlib.import_module(CLIENTS + "." + name)
            with lock:
                if type(self) is Deferred and not running[0]:
                    running[0] = True
                    try:
                        loader.exec_module(self)
                        self.__class__ = ModuleType  # type: ignore[assignment]
                    finally:
                        running[0] = False
                return object.__getattribute__(self, name)

    package = importlib.util.module_from_spec(spec)
    package.__class__ = Deferred
    sys.modules[CLIENTS] = package
    names = vars(package)
    try:
        connect: Any = importlib.import_module(CLIENTS + ".connect")
        names.update((name, getattr(connect, name)) for name in connect.__all__)
    except Exception:  # another version has it otherwise: it is loaded as a whole
        del sys.modules[CLIENTS]
        return int
    names["BlockingKernelClient"] = type("BlockingKernelClient", (), {"__new__": new_client})

    def complete() -> None:
        if package.__class__ is Deferred:
            del names["BlockingKernelClient"]

    return complete


def new_client(_: type, *arguments: Any, **named: Any) -> Any:
    """Make the client for which a class stands that ipykernel looks up at its start, and makes nothing of."""
    return importlib.import_module(CLIENTS + ".blocking").BlockingKernelClient(*arguments, **named)


def load_debugpy_when_asked() -> None:
    """Have the first request of a debugger load debugpy: it takes a sixth of a start, and 8 MB of each kernel.

    Front ends ask each kernel of theirs for `debugInfo`, which needs nothing of it.
    """
    if importlib.util.find_spec("debugpy") is None:
        return
    sys.modules["debugpy"] = None  # type: ignore[assignment]  # whose import fails
    try:
        from ipykernel import debugger
    finally:
        del sys.modules["debugpy"]
    module: Any = debugger
    process, explorer = module.Debugger.process_request, module.VariableExplorer
    initialize = explorer.__init__

    async def processes(self: Any, message: dict[str, Any]) -> Any:
        if explorer.__init__ is initialize or message["command"] == "debugInfo":
            return await process(self, message)
        try:
            importlib.import_module("debugpy.server.api")  # makes the next ones found
            frames = importlib.import_module("_pydevd_bundle.pydevd_suspended_frames")
            found = {name: getattr(frames, name) for name in ("SuspendedFramesManager", "_FramesTracker")}
            found["pydevd_frame_utils"] = importlib.import_module("_pydevd_bundle.pydevd_frame_utils")
        except Exception as error:
            said = {"type": "response", "command": message["command"], "request_seq": message.get("seq", 0)}
            return dict(said, success=False, message="debugpy cannot be loaded: %r" % error)
        vars(module).update(found)
        explorer.__init__ = initialize
        explorer.__init__(self.variable_explorer)
        return await process(self, message)

    module.Debugger.process_request = processes
    vars(module)["_is_debugpy_available"] = True
    explorer.__init__ = lambda self: None  # of the one that a kernel's debugger makes at once


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


def keep_folder(kernel: Any) -> None:
    """Have a cell that no notebook shows stay in its folder if it changes into one that is not here.

    VS Code and Quarto begin with such a cell, and name the folder that the notebook has on the host.
    """
    execute = kernel.do_execute

    async def executes(code: str, silent: bool, store_history: bool = True, *others: Any, **named: Any) -> Any:
        if store_history and not silent:
            return await execute(code, silent, store_history, *others, **named)
        change = os.chdir

        def change_if_there(path: Any) -> None:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):
                change(path)

        os.chdir = change_if_there
        try:
            return await execute(code, silent, store_history, *others, **named)
        finally:
            if os.chdir is change_if_there:
                os.chdir = change

    kernel.do_execute = executes


def read_raw_outputs() -> Callable[[Any], None]:
    """Have what programs write to descriptors 1 and 2 be among the outputs of the cell that ran them.

    ipykernel has a thread for each of the two read them, which a busy machine may let run only after the cell's end.
    Return what has a kernel read them itself at the end of each request. It takes no more than was there: a program may
    go on writing.
    """
    from select import select

    from ipykernel.iostream import OutStream

    turn = threading.Lock()

    def take(self: Any) -> bool:
        if self.closed or not turn.acquire(timeout=TAKE_SECONDS):
            return False
        try:
            if not select([self._fid], [], [], 0)[0]:
                return False
            data = os.read(self._fid, PIPE_BYTES)
            if not data:  # a cell has closed both of its ends that are written to
                self._should_watch = False
            self.write(data.decode(errors="replace"))
            os.write(self._original_stdstream_copy, data)  # where ipykernel writes it, too
            return True
        finally:
            turn.release()

    def watch(self: Any) -> None:
        try:
            while select([self._fid], [], []) and self._should_watch:
                take(self)
        except Exception:
            self._exc = sys.exc_info()

    def read_last(kernel: Any) -> None:
        streams: list[Any] = [one for one in (sys.stdout, sys.stderr) if getattr(one, "_fid", None) is not None]
        end = getattr(kernel, "post_handler_hook", int)

        def ends() -> None:
            try:
                end()
            finally:
                for one in streams:
                    if take(one):
                        one.flush()  # a cell may have put another stream in its place

        kernel.post_handler_hook = ends

    getattr(OutStream, WATCH)  # another version has it otherwise
    setattr(OutStream, WATCH, watch)
    return read_last


def run(lines: list[str], shell: Any, compiled: Callable[[str, str, str], Any] = compile) -> None:
    """Run the lines of a start as Python: as cells, which ipykernel makes of them, they take three times as long."""
    for line in lines:
        try:
            with shell.builtin_trap:
                names = {"__name__": "start", "get_ipython": lambda: shell, "compile": compiled}
                exec(line, names)  # noqa: S102 (the host's)
        except Exception:
            shell.showtraceback()
    sys.stdout.flush()  # nothing of it is the first cell's
    sys.stderr.flush()


class Interrupts:
    """Of one kernel: what SIGINT does at a moment."""

    def __init__(self) -> None:
        self.handler: Any = signal.default_int_handler
        """Of the code of the request that is handled: it may set one of its own."""
        self.is_due = False
        self.wakes: Any = None

    def begin(self) -> None:
        """A request is about to be handled."""
        if self.wakes is None:
            import asyncio  # what takes long to load is found in the one file

            self.wakes = asyncio.get_running_loop()
            wake(self.wakes)
        self.handler, self.is_due = signal.default_int_handler, False
        signal.signal(signal.SIGINT, self.remember)

    def end(self) -> None:
        """It was handled, and its reply is sent."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def remember(self, *_: object) -> None:
        self.is_due = True

    def due(self, code: Any) -> Any:
        """Return what a cell runs before `code` for an interrupt that came too early, as if it met its first line."""
        is_due, self.is_due = self.is_due, False
        line = "\n" * (code.co_firstlineno - 1) + "__import__('_signal').raise_signal(%d)" % signal.SIGINT
        return compile(line, code.co_filename, "exec") if is_due else None

    def runs(self, call: Callable[[], Any]) -> Any:
        """Run code of the user, which an interrupt may end at any point from here to the return."""
        if threading.current_thread() is not threading.main_thread():
            return call()  # no signal comes here
        change, number = signal.signal, signal.SIGINT
        outside = signal.getsignal(number)
        # Python hears of a signal between two calls, and within `change` before it changes something. What comes in
        # that moment is raised instead of the change, which the next level makes. Two levels are met by two interrupts:
        # a process on a busy machine gets next to nothing done from one to the next.
        try:
            try:
                try:
                    change(number, self.handler)
                    return call()
                finally:
                    self.leave(change(number, outside), outside)
            finally:
                self.leave(change(number, outside), outside)
        finally:
            self.leave(change(number, outside), outside)

    def leave(self, handler: Any, outside: Any) -> None:
        if handler is not outside:
            self.handler = signal.default_int_handler if handler is None else handler


class CellSteps:
    """What awaits `coroutine`, each step of which runs code of the user.

    While it waits, the loop runs in the same thread, and an interrupt is for the caller of the loop: ipykernel.
    """

    def __init__(self, interrupts: Interrupts, coroutine: Any) -> None:
        self.interrupts = interrupts
        self.coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Any]:
        iterator = self.coroutine.__await__()
        step: Any = iterator.send
        value: Any = None
        while True:
            try:
                waits_for = self.interrupts.runs(partial(step, value))
            except StopIteration as end:
                return end.value
            try:
                step, value = iterator.send, (yield waits_for)
            except BaseException as error:
                step, value = iterator.throw, error


def run_by_others(interrupts: Interrupts, shell: Any) -> None:
    """Have another library's loop, trio's or curio's, meet the handler that it looks for: then it takes interrupts.

    It runs within the call of a cell, in the place of the kernel's own loop, which has to wait for it.
    """
    usual = shell.loop_runner

    def changed(change: Any) -> None:
        runner = change["new"]
        if runner is not usual and getattr(runner, "__name__", "") not in ("_pseudo_sync_runner", "runs"):

            def runs(coroutine: Any) -> Any:
                if threading.current_thread() is not threading.main_thread():
                    return runner(coroutine)
                wakes = signal.set_wakeup_fd(-1)  # it has one of its own
                try:
                    return interrupts.runs(partial(runner, coroutine))
                finally:
                    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)

            shell.loop_runner = runs

    shell.observe(changed, "loop_runner")


def wake(loop: asyncio.AbstractEventLoop) -> None:
    """Have each signal wake the loop: a handler that asks it for something runs within its wait, which goes on."""
    read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    loop.add_reader(read, os.read, read, 1 << 12)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)


OF_KERNEL = ("pre_handler_hook", "post_handler_hook", "do_complete", "do_inspect", "do_is_complete", "shell_handlers")
OF_SHELL = ("run_code", "user_expressions", "events", "loop_runner", "observe")
"""What is taken of ipykernel and of IPython."""


def install_interrupts(kernel: Any, shell: Any) -> None:
    """Have SIGINT do what the module says; in another version of ipykernel, leave it as it is."""
    if not all(hasattr(one, name) for one, names in ((kernel, OF_KERNEL), (shell, OF_SHELL)) for name in names):
        return
    from inspect import iscoroutinefunction

    if not iscoroutinefunction(shell.run_code):
        return
    interrupts = Interrupts()
    run_code = shell.run_code

    async def runs_code(code: Any, *arguments: Any, **named: Any) -> Any:
        due = interrupts.due(code)
        if due is not None and await CellSteps(interrupts, run_code(due, *arguments)):
            return True
        return await CellSteps(interrupts, run_code(code, *arguments, **named))  # IPython catches what comes of it

    def guarded(call: Callable[..., Any], interrupted: Callable[[], Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            try:
                return interrupts.runs(partial(call, *arguments, **named))
            except KeyboardInterrupt:
                return interrupted()

        return run

    def say() -> dict[str, Any]:
        return {"status": "error", "ename": "KeyboardInterrupt", "evalue": "", "traceback": []}

    kernel.pre_handler_hook, kernel.post_handler_hook = interrupts.begin, interrupts.end
    shell.run_code = runs_code
    run_by_others(interrupts, shell)
    shell.events.trigger = guarded(shell.events.trigger, shell.showtraceback)
    shell.user_expressions = guarded(shell.user_expressions, dict)
    for name in ("do_complete", "do_inspect", "do_is_complete"):  # and not the reply that is sent then
        setattr(kernel, name, guarded(getattr(kernel, name), say))
    for name in {"comm_open", "comm_msg", "comm_close"} & set(kernel.shell_handlers):
        kernel.shell_handlers[name] = guarded(kernel.shell_handlers[name], str)
