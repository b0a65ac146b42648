"""Outlives the process that owns containers, and ends those that do not end with it.

A container ends by itself when its pipe closes. This small process is for one that does not notice, and for one
that the engine is still creating: it is told of each container by its name before the engine is asked for it, waits for
the end of its own stdin, which comes with the owner's however that ends, and then removes what is left through the
engine. One for each process and engine. It runs as a script (`python -I -S container_reaper.py`), so it imports the
standard library only. Before there is something to end, `container_reaper.sh` waits in its place.
"""

from __future__ import annotations

import os
import sys
from itertools import chain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

WATCH, FORGET, HANDED_OVER, REMOVE = "+", "-", "=", "!"
GRACE_SECONDS = 0.3
"""For a container to end by itself."""
HANDED_OVER_SECONDS = 40.0
"""What a pipe holder and its successor need to be there; the successor then has a guard of its own."""
GIVE_UP_SECONDS = 1800.0
SILENT_SECONDS = 20.0
"""An engine that is gone for this long has ended its containers, or lost their pipes."""
REQUEST_SECONDS = 15.0
"""The engine tries for 10 s to kill what it removes."""
FIRST_PAUSE, LONGEST_PAUSE = 0.05, 2.0
APPEAR_SECONDS = 60.0
"""How long an engine may take to create what it was asked for; the owner gives up after half of that."""
APPEAR_PAUSE = 0.5
REPLY_BYTES = 1 << 20
API_VERSION, OWNER_PROCESS = "docker/api_version", "owner_process"
WAITS = __file__.removesuffix(".py") + ".sh"
IDENTITY_LENGTH = 64
"""Of an identity that the engine gave; a container that is known by its name may not be there yet."""


class ContainerGuard:
    """This process's end: tells a guard about containers, and starts one when there is something to tell."""

    def __init__(self, engine_path: str) -> None:
        import threading

        self._path = engine_path
        self._known: dict[str, str] = {}
        self._stdin: int | None = None
        self._lock = threading.RLock()  # a finalizer may run in the midst of another call
        _guards.append(self)

    def expect(self, name: str) -> None:
        """The engine is about to be asked for a container of this name, which nothing else has or will have."""
        self._tell((WATCH, name))

    def created(self, name: str, identity: str) -> None:
        """The container that was expected is there."""
        self._tell((WATCH, identity), (FORGET, name))

    def watch(self, identity: str) -> None:
        """This process owns the container from now on."""
        self._tell((WATCH, identity))

    def forget(self, identity: str) -> None:
        """The container is gone, or one that was expected will not come."""
        if identity in self._known:
            self._tell((FORGET, identity))

    def handed_over(self, identity: str) -> None:
        """The container is another process's in a moment; its name then says whose."""
        self._tell((HANDED_OVER, identity))

    def remove(self, identity: str) -> None:
        """The container is to be gone, as soon as that can be done, in the background.

        One that is named in place of its identity may appear only later.
        """
        self._tell((REMOVE, identity))

    def abandoned(self, identity: str) -> None:
        """The container's pipe was closed without a word to the engine, if it is this process's."""
        if identity in self._known:
            self._tell((REMOVE, identity))

    def drop(self) -> None:
        """Close a copy of the pipe in a forked child, whose containers these are not."""
        import threading

        self._known.clear()
        self._lock = threading.RLock()
        self._close()

    def _tell(self, *said: tuple[str, str]) -> None:
        with self._lock:
            for word, identity in said:
                if word == FORGET:
                    self._known.pop(identity, None)
                else:
                    self._known[identity] = word
            told = self._stdin is not None and self._write("".join(f"{word}{identity}\n" for word, identity in said))
            if not told and self._known and self._start():
                # There was none yet, or somebody ended it: a new one is told everything.
                self._write("".join(f"{what}{each}\n" for each, what in self._known.items()))
            for word, identity in said:
                if word == REMOVE:
                    self._known.pop(identity, None)

    def _start(self) -> bool:
        from ..core.helper_processes import start_helper

        self._close()
        try:
            process = start_helper(__file__, self._path, waits=WAITS)
        except OSError:
            return False  # no process to be had; the container's own end is left, and `reap`
        if process.stdin is not None:
            self._stdin = os.dup(process.stdin.fileno())
            process.stdin.close()
            os.set_blocking(self._stdin, False)
        return True

    def _write(self, text: str) -> bool:
        try:
            os.write(self._stdin if self._stdin is not None else -1, text.encode())
        except OSError:
            return False
        return True

    def _close(self) -> None:
        if self._stdin is not None:
            os.close(self._stdin)
        self._stdin = None


_guards: list[ContainerGuard] = []
_by_path: dict[str, ContainerGuard] = {}


def of(engine_path: str) -> ContainerGuard:
    """Return this process's guard for an engine."""
    return _by_path.get(engine_path) or _by_path.setdefault(engine_path, ContainerGuard(engine_path))


def _after_fork() -> None:
    for guard in _guards:
        guard.drop()


os.register_at_fork(after_in_child=_after_fork)


# --- the process ------------------------------------------------------------------------------------------------------


class WatchedContainer:
    """One container that the guard looks after."""

    def __init__(self, engine_path: str, identity: str) -> None:
        self._path = engine_path
        self._id = identity

    def end_with_its_owner(self, *, handed_over: bool) -> None:
        """Remove the container once its owner is gone; return when it is gone, or another process's."""
        import time

        if not self._appears():
            return
        begin = changed = time.monotonic()
        first = last = None
        # Each restart has a pipe holder, which is gone before the next process has put its own name: also the second
        # one's.
        patience = HANDED_OVER_SECONDS if handed_over else GRACE_SECONDS
        for found in self._while_there():
            owner = _beside(OWNER_PROCESS).OwnerProcess.parse(str(found.get("Name")))
            now = time.monotonic()
            first = first or owner
            if owner != last:
                last, changed = owner, now
            if owner is not None and owner.alive():
                if owner != first and now - begin > HANDED_OVER_SECONDS:
                    return
            elif now - changed > patience:
                break
        self.remove()

    def remove(self) -> None:
        """Remove the container, again and again, by all means there are."""
        if not self._appears():
            return
        for count, found in enumerate(self._while_there()):
            state = found.get("State")
            if isinstance(state, dict) and state.get("Paused"):  # not every runtime kills one that is
                self._ask("POST", f"/containers/{self._id}/unpause")
            self._ask("DELETE", f"/containers/{self._id}?force=1&v=1")
            if count:
                kill_processes(self._id)

    def _appears(self) -> bool:
        """Return whether the container is there, or was: one that is known by its name is waited for, for a while."""
        import time

        if len(self._id) == IDENTITY_LENGTH:
            return True
        begin = heard = now = time.monotonic()
        pause = FIRST_PAUSE
        while now < min(begin + APPEAR_SECONDS, heard + SILENT_SECONDS):
            status, body = self._ask("GET", f"/containers/{self._id}/json")
            now = time.monotonic()
            if status:
                heard = now
            if status == 200 and (found := _document(body)):
                self._id = str(found["Id"])
                return True
            time.sleep(pause)
            pause = min(pause * 1.5, APPEAR_PAUSE)
        return False

    def _while_there(self) -> Iterator[dict[str, Any]]:
        """Yield what the engine says of the container, with longer and longer pauses, while it is there."""
        import time

        begin = heard = time.monotonic()
        pause = FIRST_PAUSE
        while time.monotonic() < min(begin + GIVE_UP_SECONDS, heard + SILENT_SECONDS):
            status, body = self._ask("GET", f"/containers/{self._id}/json")
            if status == 404:
                return
            if status == 200 and (found := _document(body)):
                heard = time.monotonic()
                yield found
            time.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)

    def _ask(self, method: str, target: str) -> tuple[int, bytes]:
        """Return the engine's status and body; 0 if it does not answer."""
        import socket

        data = b""
        try:
            version = _beside(API_VERSION).ask(self._path, REQUEST_SECONDS)
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as engine:
                engine.settimeout(REQUEST_SECONDS)
                engine.connect(self._path)
                engine.sendall(f"{method} {version}{target} HTTP/1.0\r\nHost: engine\r\n\r\n".encode())
                while len(data) < REPLY_BYTES and (piece := engine.recv(1 << 16)):
                    data += piece
        except OSError:
            pass
        head, _, body = data.partition(b"\r\n\r\n")
        fields = head.split(b" ", 2)
        return (int(fields[1]) if len(fields) > 2 and fields[1].isdigit() else 0), body


def _document(body: bytes) -> dict[str, Any]:
    """Return what the engine says of a container; nothing if that is no document."""
    import json

    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def kill_processes(container: str) -> None:
    """Kill the processes of a container one by one, where this process may: one that starves the others goes as well.

    The engine kills the first process and waits; but a process needs a turn of the processor in order to die.
    """
    if len(container) < IDENTITY_LENGTH:
        return  # a name, or a part of an identity, might stand in another's path
    if sys.platform != "linux":
        return  # they are another machine's, in which the engine is
    for name in os.listdir("/proc"):  # noqa: PTH208 (pathlib is slow to import)
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cgroup", encoding="utf-8", errors="replace") as file:  # noqa: PTH123 (as above)
                    if container in file.read():
                        os.kill(int(name), 9)
            except OSError:
                pass


def _beside(name: str) -> Any:
    """Return a module that lies beside this file, such as owner_process.py; run as a script, this is no package."""
    import importlib.util

    if name not in sys.modules:
        folder = os.path.dirname(__file__)  # noqa: PTH120 (pathlib is slow to import)
        spec = importlib.util.spec_from_file_location(name, f"{folder}/{name}.py")
        if spec is None or spec.loader is None:
            raise ImportError(name)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


def _load() -> None:
    """Load both modules, before there are threads that would load them twice."""
    _beside(API_VERSION)
    _beside(OWNER_PROCESS)


def main(argv: list[str]) -> int:
    """Run as the guard of the engine whose socket is the first argument, until all containers it was told of are gone.

    What it was told so far are the others.
    """
    path, *told = argv
    charges: dict[str, str] = {}
    removals = []
    for line in chain(told, sys.stdin):
        word, identity = line[:1], line[1:].strip()
        if word not in {FORGET, REMOVE}:
            charges[identity] = word
            continue
        charges.pop(identity, None)
        if word == REMOVE:
            import threading

            _load()
            removals.append(threading.Thread(target=WatchedContainer(path, identity).remove))
            removals[-1].start()
    return end(path, charges, removals)


def end(path: str, charges: dict[str, str], threads: list[Any]) -> int:
    """Look after what the owner left, each container in a thread of its own, until all is gone."""
    import threading

    _load()
    for identity, word in charges.items():
        ending = WatchedContainer(path, identity).end_with_its_owner
        threads.append(threading.Thread(target=ending, kwargs={"handed_over": word == HANDED_OVER}))
        threads[-1].start()
    for thread in threads:
        thread.join()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
