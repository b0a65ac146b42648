"""Notes what Python asks the system for: programs, connections, files outside of the usual, files removed.

It is a hook of Python's own audit, in the kernel alone: it sees neither native code nor other programs, and a hostile
cell can get rid of it. It helps to compare one run with another, and guards nothing.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

MAX_SEEN = 500
MAX_TEXT = 200
USUAL = (
    "/usr/",
    "/lib",
    "/opt/",
    "/tmp/",  # noqa: S108 (the sandbox's own)
    "/dev/",
    "/sys/",
    "/etc/ld.so",
    "/etc/localtime",
    "/var/tmp/",  # noqa: S108
    "/proc/self/",
)
"""Where Python itself, its libraries and temporary files are."""
SCRATCH = ("/mnt/data/", "/home/user/")


class Witness:
    def __init__(self) -> None:
        self.seen: dict[str, None] = {}
        self.at_work = False

    def heard(self, event: str, args: tuple[Any, ...]) -> None:
        """Take an event of the audit; it never raises, as that would end what the cell does."""
        about = ABOUT.get(event)
        if about is None or self.at_work or len(self.seen) >= MAX_SEEN:
            return
        self.at_work = True
        try:
            said = about(*args)
            if said:
                self.seen[said[:MAX_TEXT]] = None
        except Exception:  # noqa: S110 (what the hook cannot read is not noted, and the cell goes on)
            pass
        finally:
            self.at_work = False

    def told(self) -> list[str]:
        """Return what was noted since it was asked last."""
        found, self.seen = list(self.seen), {}
        return found


def _path(name: Any) -> str:
    if isinstance(name, int) or name is None:
        return ""
    path = os.path.abspath(os.fsdecode(name))
    return re.sub(r"^/proc/%d/" % os.getpid(), "/proc/self/", path)


def _opened(name: Any, _mode: Any, flags: Any = 0) -> str:
    path = _path(name)
    writes = bool(flags & (os.O_WRONLY | os.O_RDWR)) if isinstance(flags, int) else False
    if path.startswith(SCRATCH):
        return "overwrites " + path if writes and flags & os.O_TRUNC and os.path.exists(path) else ""
    if not path or path.startswith(USUAL) or path in sys.path:
        return ""
    return ("writes " if writes else "reads ") + path


def _removed(name: Any, *_: Any) -> str:
    path = _path(name)
    return "" if path.startswith(USUAL) else "removes " + path


def _moved(old: Any, new: Any, *_: Any) -> str:
    return "" if _path(old).startswith(USUAL) else "moves %s to %s" % (_path(old), _path(new))


def _started(program: Any, args: Any = None, *_: Any) -> str:
    name = os.fsdecode(program or (args if isinstance(args, (str, bytes)) else args[0]))
    words = [] if args is None or isinstance(args, (str, bytes)) else [os.fsdecode(one) for one in args[1:]]
    return "starts " + " ".join([name, *words])


def _connected(_socket: Any, address: Any) -> str:
    if isinstance(address, tuple) and address[0] in ("127.0.0.1", "::1"):
        return ""  # the kernel's own
    return "connects to %s" % (address[:2] if isinstance(address, tuple) else address,)


ABOUT: dict[str, Any] = {
    "open": _opened,
    "os.remove": _removed,
    "os.rmdir": _removed,
    "shutil.rmtree": _removed,
    "os.rename": _moved,
    "subprocess.Popen": _started,
    "os.exec": _started,
    "os.posix_spawn": _started,
    "os.system": lambda command: "starts " + os.fsdecode(command),
    "socket.connect": _connected,
    "socket.getaddrinfo": lambda host, *_: "looks up %s" % (host,),
    "ctypes.dlopen": lambda name: "loads %s" % (name,) if name else "",
}
