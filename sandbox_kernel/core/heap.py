"""Memory that large messages took: kept for the next one, given back when none comes.

Sets malloc up for the whole process, so only a process that is ours alone uses it.
"""

from __future__ import annotations

import asyncio
import ctypes

KEPT_SECONDS = 1.0
LONGEST_SECONDS = 5.0
"""What cells that never pause can have this process hold on to is given back all the same."""

_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8
_KEEP = {_M_MMAP_MAX: 0, _M_TRIM_THRESHOLD: (1 << 31) - 1}
_REST = {_M_MMAP_MAX: 65536, _M_TRIM_THRESHOLD: 64 << 20}
"""What malloc starts with, but for the threshold: that is where its own adjustment would end, see mallopt(3)."""


def share_arena() -> None:
    """Have all threads take their memory from one place, from which it can be given back; call before there are any.

    Large messages are parsed in a thread, and malloc keeps the end of a thread's own arena for ever.
    """
    libc = ctypes.CDLL(None)
    if hasattr(libc, "mallopt"):
        libc.mallopt(_M_ARENA_MAX, 1)


class _Heap:
    """What malloc of this process does with freed memory; elsewhere than with glibc, nothing is changed."""

    def __init__(self) -> None:
        libc = ctypes.CDLL(None)
        self._libc = libc if hasattr(libc, "mallopt") and hasattr(libc, "malloc_trim") else None
        self._timer: asyncio.TimerHandle | None = None
        self._since = 0.0

    def keep(self) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is None:
            self._set(_KEEP)
            self._since = loop.time()
        else:
            self._timer.cancel()
        self._timer = loop.call_at(min(loop.time() + KEPT_SECONDS, self._since + LONGEST_SECONDS), self._give_back)

    def _give_back(self) -> None:
        self._timer = None
        self._set(_REST)
        if self._libc is not None:
            self._libc.malloc_trim(0)

    def _set(self, options: dict[int, int]) -> None:
        if self._libc is not None:
            for option, value in options.items():
                self._libc.mallopt(option, value)


_heap = _Heap()


def keep_freed() -> None:
    """Keep what is freed until a second has passed without another call, or five in all. Call from a loop.

    A display of 50 MB is in memory three times on its way, in new pages each time, and the system's work for these is
    a fifth of what the display costs; several times that in a virtual machine whose host takes free pages away.
    """
    _heap.keep()
