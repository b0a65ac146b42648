"""A kernel that is a copy of one whose cells ran draws again what Python's own libraries and numpy drew before.

Run in the kernel, before the first cell, of a sandbox that began from a snapshot. The system's own random numbers are
seeded by then. What other libraries drew, and go on from, stays alike. Standard library only.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any


def reseed() -> None:
    """Seed what has a seed, and forget what was drawn."""
    import random

    random.seed()
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    ssl = sys.modules.get("_ssl")  # without it, nothing was drawn of OpenSSL yet, which then asks the system
    if ssl is not None:
        ssl.RAND_add(os.urandom(64), 64.0)
    rust = sys.modules.get("cryptography.hazmat.bindings._rust")
    if rust is not None:  # with an OpenSSL of its own
        try:
            rust._openssl.lib.RAND_add(os.urandom(64), 64, 64.0)  # noqa: SLF001 (its Python part does so, too)
        except (AttributeError, TypeError):
            pass  # another version's
    _seed_sqlite()
    _forget("uuid", _node=None, _last_timestamp=None)
    _forget("tempfile", _name_sequence=None)
    process = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.current_process().authkey = os.urandom(32)
    time.tzset()
    _own_session()


def _seed_sqlite() -> None:
    """Have SQLite ask the system again: it has one generator for a process, which IPython's history has begun."""
    sqlite = sys.modules.get("_sqlite3")
    if sqlite is not None:
        try:
            import ctypes

            ctypes.CDLL(sqlite.__file__).sqlite3_randomness(0, None)
        except (AttributeError, ImportError, OSError, TypeError):
            pass  # it is built in, where its functions have no names


def _forget(name: str, **values: object) -> None:
    module = sys.modules.get(name)
    if module is not None:
        for key, value in values.items():
            if hasattr(module, key):
                setattr(module, key, value)


def _own_session() -> None:
    """Give the kernel's messages another session's name."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    kernel = getattr(shell, "kernel", None)
    if kernel is not None:
        kernel.session.session = "%s-%s" % (os.urandom(4).hex(), os.urandom(16).hex())
