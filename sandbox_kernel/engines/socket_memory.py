"""What TCP and UDP hold in the cgroup of a sandbox: limited besides memory, where the machine counts it apart.

Reads and writes in the folder of a cgroup that it is given.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..core.model import format_bytes
from .base import AttestationCheck
from .limit_watch import CgroupPlace

SOCKETS = "memory.kmem.tcp.limit_in_bytes"
"""Version 1 counts what TCP and UDP hold beside memory: all of a machine together, if no limit is set here first."""
SOCKET_SHARE = 16
"""What sockets may hold besides is memory through this; version 2 counts it as memory."""
UNLIMITED = "not limited: this cgroup of version 1 is for root to write; a broker of root's does"


def limit_sockets(place: CgroupPlace) -> None:
    """Limit what TCP and UDP hold; counts for sockets that are made later. Does nothing where it may not."""
    with contextlib.suppress(OSError, ValueError):
        if place.version == 1:
            memory = int(Path(place.folder, "memory.limit_in_bytes").read_text(encoding="ascii"))
            own = Path(place.folder, SOCKETS)
            if own.exists():
                own.write_text(f"{memory // SOCKET_SHARE}\n", encoding="ascii")


def sockets_line(place: CgroupPlace | None) -> AttestationCheck:
    """Say whether what TCP and UDP hold is limited. It is no difference where this process may not do it."""
    name, wanted = "engine: memory of sockets", f"a part of memory, or at most 1/{SOCKET_SHARE} of it besides"
    if place is None:
        return AttestationCheck(name, wanted, "the engine's cgroups are not seen from here", ok=True)
    if place.version == 2:
        return AttestationCheck(name, wanted, "a part of memory", ok=True)
    own = Path(place.folder, SOCKETS)
    try:
        memory = int(own.with_name("memory.limit_in_bytes").read_text(encoding="ascii"))
        found = int(own.read_text(encoding="ascii"))
        limited = found <= memory // SOCKET_SHARE
        said = f"at most {format_bytes(found)} besides" if limited else UNLIMITED
        return AttestationCheck(name, wanted, said, limited or not os.access(own, os.W_OK))
    except FileNotFoundError:
        return AttestationCheck(name, wanted, UNLIMITED, ok=True)
    except (OSError, ValueError) as error:
        return AttestationCheck(name, wanted, f"not to be read: {error}", ok=False)
