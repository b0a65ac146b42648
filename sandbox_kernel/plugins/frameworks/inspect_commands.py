"""Commands and files for inspect_ai, as the kernel in the container serves them: one short cell a request.

A kernel runs one cell at a time, but commands run side by side: a cell starts one and waits for it a little, and later
cells ask again. So each command has a clock of its own, and none holds up the others.

Its source is sent into the container as a cell: it must import nothing but the standard library, and run on Python 3.9.
"""

from __future__ import annotations

import base64
import errno
import json
import os
import selectors
import shutil
import signal
import stat
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

SCRATCH = Path("/mnt/data")
CHUNK_BYTES = 1 << 16
STEP_SECONDS = 0.05
"""How soon the end of a command is seen whose children keep its streams open."""
_OF_THE_KERNEL = frozenset(
    ("CLICOLOR", "CLICOLOR_FORCE", "FORCE_COLOR", "GIT_PAGER", "MPLBACKEND", "PAGER", "PYDEVD_USE_FRAME_EVAL", "TERM")
)
"""What ipykernel sets for its cells; commands would print colours into pipes."""

Operation = Callable[..., "dict[str, Any]"]
COMMANDS: dict[str, InspectCommand] = {}


def answer(request: str) -> None:
    """Print the answer to one request of the host, both in JSON; an error is part of the answer.

    start  id cmd cwd env stdin seconds limit wait   as wait, or not_started: exit code and reason, as a shell has them
    wait   id wait                                   running; or returncode, timed_out, stdout and stderr; or gone
    end    id                                        what runs of the command is killed
    store  path staged                               the staged file becomes the content of path
    fetch  path staged limit                         the content of path is in the staged file, of size bytes

    `stdin` and `staged` are names of files in scratch, where the host writes and reads. Nothing waits over `wait`
    seconds, and of stdout and stderr the last `limit` bytes are kept.
    """
    fields = json.loads(request)
    op = _OPERATIONS[fields.pop("op")]
    try:
        reply = op(**fields)
    except OSError as error:
        reply = {"errno": errno.errorcode.get(error.errno or 0, ""), "reason": error.strerror or str(error)}
    except ValueError as error:  # a name with a null byte, for one
        reply = {"errno": "EINVAL", "reason": str(error)}
    except (RuntimeError, MemoryError) as error:
        reply = {"errno": "ENOMEM", "reason": str(error) or "no memory is left"}
    print(json.dumps(reply))  # noqa: T201 (a cell's way to answer)


class _Tail:
    """The last bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._chunks: deque[bytes] = deque()
        self._size, self._limit = 0, limit

    def add(self, data: bytes) -> None:
        self._chunks.append(data)
        self._size += len(data)
        while self._size - len(self._chunks[0]) >= self._limit:
            self._size -= len(self._chunks.popleft())

    def text(self) -> str:
        return base64.b64encode(b"".join(self._chunks)[-self._limit :]).decode()


class InspectCommand:
    """A process, its clock, and the ends of its streams."""

    def __init__(
        self,
        cmd: list[str],
        cwd: str,
        env: dict[str, str],
        *,
        stdin: BinaryIO | None,
        seconds: float,
        limit: int,
    ) -> None:
        self._end = time.monotonic() + seconds
        self._tails = {1: _Tail(limit), 2: _Tail(limit)}
        self.timed_out = False
        self.ended = threading.Event()
        environment = {key: value for key, value in os.environ.items() if key not in _OF_THE_KERNEL}
        self._process = subprocess.Popen(
            cmd,
            cwd=cwd,
            env={**environment, **env},
            stdin=stdin if stdin is not None else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        try:
            with suppress(OSError):  # where memory runs out, the command ends and not the kernel
                Path(f"/proc/{self._process.pid}/oom_score_adj").write_text("1000", encoding="ascii")
            threading.Thread(target=self._watch, daemon=True).start()
        except BaseException:
            self.kill()
            raise

    def kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def result(self) -> dict[str, Any]:
        code = self._process.returncode
        return {
            "returncode": 128 - code if code < 0 else code,
            "timed_out": self.timed_out,
            "stdout": self._tails[1].text(),
            "stderr": self._tails[2].text(),
        }

    def _watch(self) -> None:
        streams = ((1, self._process.stdout), (2, self._process.stderr))
        with selectors.DefaultSelector() as selector:
            for number, stream in streams:
                selector.register(stream, selectors.EVENT_READ, number)  # type: ignore[arg-type]
            while True:
                if not self.timed_out and time.monotonic() > self._end:
                    self.timed_out = True
                    self.kill()
                events = selector.select(STEP_SECONDS) if selector.get_map() else []
                for key, _ in events:
                    data = os.read(key.fd, CHUNK_BYTES)
                    if data:
                        self._tails[key.data].add(data)
                    else:
                        selector.unregister(key.fileobj)
                if not selector.get_map():
                    with suppress(subprocess.TimeoutExpired):
                        self._process.wait(STEP_SECONDS)
                        break
                elif not events and self._process.poll() is not None:
                    break  # what it left running has its streams, and says nothing
        for _, stream in streams:
            stream.close()  # type: ignore[union-attr]
        self.ended.set()


# --- commands --------------------------------------------------------------------------------------------------------


def _start(*, wait: float, **fields: Any) -> dict[str, Any]:
    cmd, folder, stdin = fields["cmd"], str(SCRATCH / fields["cwd"]), fields["stdin"]
    source = _take(stdin) if stdin else None
    try:
        COMMANDS[fields["id"]] = InspectCommand(
            cmd, folder, fields["env"], stdin=source, seconds=fields["seconds"], limit=fields["limit"]
        )
    except FileNotFoundError as error:
        what = f"{folder}: no such folder" if error.filename == folder else f"{cmd[0]}: command not found"
        return {"not_started": 127, "reason": what}
    except PermissionError:
        raise
    except (OSError, ValueError, RuntimeError, MemoryError) as error:  # too many processes, too long a command, ...
        return {"not_started": 126, "reason": f"{cmd[0]}: {getattr(error, 'strerror', None) or error}"}
    finally:
        if source is not None:
            source.close()
    return _wait(id=fields["id"], wait=wait)


def _wait(*, id: str, wait: float) -> dict[str, Any]:  # noqa: A002 (a field of the request)
    command = COMMANDS.get(id)
    if command is None:
        return {"gone": True}
    if not command.ended.wait(wait):
        return {"running": True}
    del COMMANDS[id]
    return command.result()


def _end(*, id: str) -> dict[str, Any]:  # noqa: A002
    command = COMMANDS.pop(id, None)
    if command is not None:
        command.kill()
    return {}


# --- files -----------------------------------------------------------------------------------------------------------


def _take(staged: str) -> BinaryIO:
    """Open a staged file, which is gone from scratch then."""
    path = SCRATCH / staged
    file = path.open("rb")
    path.unlink()
    return file


def _store(*, path: str, staged: str) -> dict[str, Any]:
    target, source = SCRATCH / path, SCRATCH / staged
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if not os.path.lexists(target) and target.parent.stat().st_dev == source.stat().st_dev:
            source.rename(target)
            return {}
        with target.open("wb") as file, _take(staged) as content:
            shutil.copyfileobj(content, file)
    finally:
        with suppress(OSError):
            source.unlink()
    return {}


def _fetch(*, path: str, staged: str, limit: int) -> dict[str, Any]:
    target = SCRATCH / staged
    descriptor = os.open(SCRATCH / path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise IsADirectoryError(errno.EISDIR, "it is a directory")
        if not stat.S_ISREG(status.st_mode):
            raise PermissionError(errno.EACCES, "it is no regular file")
        size = status.st_size
        if size > limit:
            return {"size": size}
        with target.open("xb") as copy:  # not a link: the file may grow while the host reads it
            size = 0
            while size <= limit and (data := os.read(descriptor, CHUNK_BYTES)):
                size += copy.write(data)
    except BaseException:
        with suppress(OSError):
            target.unlink()
        raise
    finally:
        os.close(descriptor)
    return {"size": size}


_OPERATIONS: dict[str, Operation] = {"start": _start, "wait": _wait, "end": _end, "store": _store, "fetch": _fetch}
