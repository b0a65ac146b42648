"""The file of an audit: one chain, which several processes write at once, over files that are rotated by size.

Who writes holds a lock on the file, finds the last line there, and appends to it. So the order of all lines is one, and
a line of one process vouches for those of the others. What was broken off by a kill is closed by a line that says so.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ...files.host_paths import Folder, open_folder, open_log_in
from . import hash_chain
from .hash_chain import Gap, Head, Sealed
from .keys import RecordKey
from .locks import release, take
from .remembered_head import RememberedHead

ANCHOR_LINES = 1000
"""The last of so many lines is an anchor."""
WINDOW = 4 * hash_chain.MAX_LINE
"""Bytes at the end of a file in which its last line is looked for."""
MAX_TURNS = 10
"""How often a file may be rotated under the hands of one who waits for it."""
MAX_DIGITS = 7
MAX_SEGMENTS = 10 ** (MAX_DIGITS - 1)

_FOR_SHELLS = str.maketrans({char: f"\\u{ord(char):04x}" for char in "$`!;&|<>"})
"""What is left of a line is one quoted word to a shell. None of them is JSON's own, so they stand within texts only."""


def to_json(value: Any) -> str:
    """Return JSON on one line, of printable ASCII, that no shell acts on."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).translate(_FOR_SHELLS)


def moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


class Busy(Exception):
    """Another process holds the file."""


class _State(NamedTuple):
    """What is known of a file: which one it is, how long, and its last line."""

    inode: tuple[int, int]
    size: int
    head: Head


class AuditFile:
    """One writer's hand on the file. Not for two threads at once."""

    def __init__(
        self, path: str, key: RecordKey, *, session: str, limit_bytes: int, clock: Callable[[], float]
    ) -> None:
        """Open it. Raises OSError, ValueError and `FileRefused`."""
        parent, self._name = os.path.split(path)
        self._key = key
        self._session = session
        self._limit = limit_bytes
        self._clock = clock
        self._state: _State | None = None
        self._folder: Folder = open_folder(parent or ".")
        self._fd = -1
        self.last = hash_chain.NOTHING
        """The last line that this writer wrote."""
        try:
            self._remembered = RememberedHead(key.path, self._folder.path / self._name)
        except BaseException:
            self._folder.close()
            raise
        try:
            self._fd = open_log_in(self._folder, self._name, hash_chain.FIRST_BYTES)
        except BaseException:
            self.close()
            raise

    def append(self, bodies: Sequence[bytes], seconds: float) -> int:
        """Append lines; return how many are in the file now. Waits for others for `seconds`.

        Raises `Busy`, and OSError if none of them could be written: the file then is as it was.
        """
        with self._turn(seconds):
            state, done = self._known(), 0
            if state.size > self._limit:
                state = self._put(state, hash_chain.ANCHOR, {"rotated": True})
                self._rotate()
                state = self._begin(state.head)
            while done < len(bodies):
                if (room := ANCHOR_LINES - 1 - state.head.n % ANCHOR_LINES) == 0:
                    state = self._put(state, hash_chain.ANCHOR, {})
                    continue
                try:
                    now = self._write(state, bodies[done : done + room])
                except OSError:
                    if done:
                        break
                    raise
                done += now
                state = self._known()
            return done

    def anchor(self, event: str, fields: dict[str, Any], seconds: float) -> None:
        """Append a line with a signature over all lines before it. Raises as `append` does."""
        with self._turn(seconds):
            self._put(self._known(), event, fields)

    def close(self) -> None:
        """Let go of the file without a word in it. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)  # nothing is unlocked by hand: in a forked child the lock is still the parent's
        self._remembered.close()
        self._folder.close()

    # --- whose turn it is, and which file it is ---

    @contextmanager
    def _turn(self, seconds: float) -> Iterator[None]:
        """Hold the audit, whatever its file is called meanwhile, and have the file open that has its name now."""
        if not take(self._remembered.fd, seconds):
            raise Busy
        try:
            for _ in range(MAX_TURNS):
                if not take(self._fd, seconds):  # one with another key
                    raise Busy
                if self._is_named():
                    break
                self._reopen()
            else:
                raise Busy
            yield
        finally:
            release(self._fd)
            release(self._remembered.fd)

    def _reopen(self) -> None:
        new = open_log_in(self._folder, self._name, hash_chain.FIRST_BYTES)
        os.close(self._fd)
        self._fd, self._state = new, None

    def _is_named(self) -> bool:
        mine = os.fstat(self._fd)
        try:
            named = os.stat(self._name, dir_fd=self._folder.handle, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (mine.st_dev, mine.st_ino) == (named.st_dev, named.st_ino)

    def _rotate(self, ending: str = "") -> str:
        """Give the file a name behind its own, begin an empty one, and return the name."""
        begin = f"{self._name}.{ending}"
        there = os.listdir(self._folder.handle)  # noqa: PTH208 (of the folder that is open, whatever its path is now)
        ends = (name.removeprefix(begin) for name in there if name.startswith(begin))
        taken = {int(end) for end in ends if end.isascii() and end.isdigit() and len(end) < MAX_DIGITS}
        number = max(taken, default=0) + 1
        if number == MAX_SEGMENTS:  # somebody has put it there
            number = next((each for each in range(1, MAX_SEGMENTS) if each not in taken), number)
        name = f"{begin}{number}"
        os.rename(self._name, name, src_dir_fd=self._folder.handle, dst_dir_fd=self._folder.handle)
        self._reopen()
        if not take(self._fd, 0):
            raise Busy
        return name

    # --- the last line ---

    def _known(self) -> _State:
        """Return the state of the file, made ready for the next line."""
        inode, size = self._file()
        if self._state is not None and (self._state.inode, self._state.size) == (inode, size):
            return self._state
        remembered = self._remembered.read() or hash_chain.NOTHING
        return self._resume(inode, size, remembered) if size else self._begin(remembered)

    def _file(self) -> tuple[tuple[int, int], int]:
        status = os.fstat(self._fd)
        return (status.st_dev, status.st_ino), status.st_size

    def _begin(self, before: Head, gap: dict[str, Any] | None = None) -> _State:
        """Write the first line of a file, which names the last one of the file before it."""
        inode, size = self._file()
        previous = str(before) if before.n else None
        fields = {"version": hash_chain.VERSION, "key": self._key.id, "previous": previous}
        state = self._put(_State(inode, size, before), hash_chain.HEADER, fields)
        return self._put(state, hash_chain.GAP, gap) if gap else state

    def _resume(self, inode: tuple[int, int], size: int, remembered: Head) -> _State:
        """Find the last line of a file, and write down what is not in order there."""
        header = hash_chain.parse(os.pread(self._fd, hash_chain.MAX_LINE, 0).partition(b"\n")[0])
        tail = os.pread(self._fd, WINDOW, max(0, size - WINDOW))
        whole, newline, torn = tail.rpartition(b"\n")
        if (unended := hash_chain.parse(torn)) is not None and unended.is_by(self._key.mac):
            os.write(self._fd, b"\n")  # a line that was broken off behind its last sign is whole
            return self._resume(inode, self._file()[1], remembered)
        found = _last_sealed(whole.split(b"\n")) if newline else None
        if found is None or len(torn) >= hash_chain.MAX_LINE:
            kind = Gap.SET_ASIDE if header is None else Gap.ALTERED
            name = self._rotate("old-" if header is None else "")
            return self._begin(remembered, {"kind": kind, "name": name[-80:], "bytes": size})
        sealed, is_last = found
        of_another_key = header is None or header.fields().get("key") != self._key.id
        is_ours = sealed.is_by(self._key.mac)
        head = sealed.head if is_ours or of_another_key else remembered
        gap: dict[str, Any] = {}
        if torn and not of_another_key:
            gap["kind"] = Gap.TORN
            gap["torn"] = {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()}
        if not is_last or not (is_ours or of_another_key):
            gap["kind"] = Gap.ALTERED
        if is_ours and head != remembered and remembered.n <= head.n and not self._holds(remembered, header):
            gap["kind"] = Gap.ALTERED  # with another audit of the same key
        if remembered.n > head.n:
            gap |= {"kind": Gap.CUT, "first": head.n + 1, "last": remembered.n}
            head = remembered
        if of_another_key:
            self._rotate()
            return self._begin(head, gap)
        state = _State(inode, size, head)
        return self._put(state, hash_chain.GAP, gap, before=b"\n" if torn else b"") if gap else state

    def _holds(self, head: Head, header: Sealed | None) -> bool:
        """Return whether a line is in the file, or is the one before it.

        It is the last one, or the last but what a process wrote that was killed before it could remember that.
        """
        if not head.n or (header is not None and Head.parse(str(header.fields().get("previous"))) == head):
            return True
        said = b',"n":%d,"chain":"%b"' % (head.n, head.chain.hex().encode())
        with os.fdopen(os.dup(self._fd), "rb") as file:
            file.seek(0)
            while line := file.readline(hash_chain.MAX_LINE):
                if said in line and (found := hash_chain.parse(line[:-1])) is not None and found.head == head:
                    return found.is_by(self._key.mac)
        return False

    # --- writing ---

    def _put(self, state: _State, event: str, fields: dict[str, Any], before: bytes = b"") -> _State:
        """Write a line of the record's own."""
        line = {"time": moment(self._clock()), "session": self._session, "event": event, **fields}
        if event in {hash_chain.ANCHOR, hash_chain.END}:
            signature = self._key.sign(hash_chain.anchored(state.head))
            line |= {"public": self._key.public, "signature": None if signature is None else signature.hex()}
        self._write(state, [to_json(line).encode("ascii")], before)
        return self._known()

    def _write(self, state: _State, bodies: Sequence[bytes], before: bytes = b"") -> int:
        """Write lines behind the last one with one call, and remember the new last one; return how many went in."""
        lines, heads, head = [], [], state.head
        for body in bodies:
            line, head = hash_chain.seal(head, body, self._key.mac)
            lines.append(line)
            heads.append(head)
        data = before + b"".join(lines)
        self._state = None
        written = os.write(self._fd, data)
        done, size = len(lines), state.size + written
        if written != len(data):
            done, size = self._take_back(state.size, written - len(before), lines)
            if not done:
                raise OSError(errno.ENOSPC, "it took only a part of a line")
        self.last = heads[done - 1]
        self._state = _State(state.inode, size, self.last)
        self._remembered.write(self.last)
        return done

    def _take_back(self, size: int, written: int, lines: list[bytes]) -> tuple[int, int]:
        """Take a part of a line out again, that a full disk let in; return how many whole ones stay, and the size."""
        whole = done = 0
        for line in lines:
            if whole + len(line) > written:
                break
            whole, done = whole + len(line), done + 1
        with suppress(OSError):  # else the next writer finds it, and says so
            os.ftruncate(self._fd, size + whole)
        return done, size + whole


def _last_sealed(lines: list[bytes]) -> tuple[Sealed, bool] | None:
    """Return the last line with a seal, and whether nothing stands behind it."""
    for number, line in enumerate(reversed(lines)):
        if (sealed := hash_chain.parse(line)) is not None:
            return sealed, number == 0
    return None
