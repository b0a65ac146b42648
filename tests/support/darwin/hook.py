"""Part of `encodings` on a simulated macOS: each interpreter imports that first, whatever its switches are.

What typeshed says macOS lacks is taken out of the modules that are written in C, so that those of Python, which are
made of them, lack it as well. What is there and acts otherwise is below `ADDED`.
"""

import posix
import sys

GONE: dict[str, list[str]] = {}  # the machine writes the names here

LINUX_CONFIG = f"_sysconfigdata_{sys.abiflags}_{sys.platform}_{vars(sys.implementation)['_multiarch']}"
LOCAL_PEERCRED = 1
ADDED = {"_socket": {"LOCAL_PEERCRED": LOCAL_PEERCRED, "TCP_KEEPALIVE": 16}}
LONGEST_ADDRESS = 103
"""Bytes of a socket's path: `sun_path` has 104."""


def changed(module):
    """Make a module what it is on macOS."""
    for name in GONE.get(module.__name__, ()):
        module.__dict__.pop(name, None)
    module.__dict__.update(ADDED.get(module.__name__, {}))
    if module.__name__ == "socket":
        change_sockets(module)
    if module.__name__ == "resource":
        change_limits(module)


def change_sockets(module):
    """Have sockets with a path do what those of macOS do."""
    import errno
    import os
    import struct

    class Socket(module.socket):  # type: ignore[name-defined]
        def __init__(self, family=-1, *more, **named):
            super().__init__(family, *more, **named)
            if self.family == module.AF_UNIX and self.type == module.SOCK_SEQPACKET:
                self.close()
                raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))

        def getsockopt(self, level, option, *size):
            if option == 30 and level == module.SOL_SOCKET:  # SO_ACCEPTCONN, which macOS does not tell
                raise OSError(errno.ENOPROTOOPT, os.strerror(errno.ENOPROTOOPT))
            if self.family != module.AF_UNIX or (level, option) != (0, LOCAL_PEERCRED):
                return super().getsockopt(level, option, *size)
            _, uid, gid = struct.unpack("3i", super().getsockopt(module.SOL_SOCKET, 17, 12))  # SO_PEERCRED
            return struct.pack("=IIhxx16I", 0, uid, 1, gid, *[0] * 15)[: size[0]]  # struct xucred

        def bind(self, address):
            super().bind(self.checked(address))

        def connect(self, address):
            super().connect(self.checked(address))

        def checked(self, address):
            if self.family == module.AF_UNIX:
                path = os.fsencode(address)
                if len(path) > LONGEST_ADDRESS:
                    raise OSError("AF_UNIX path too long")
                if path[:1] == b"\0":  # a name without a file
                    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            return address

    Socket.__name__ = Socket.__qualname__ = "socket"
    module.socket = module.SocketType = Socket


def change_limits(module, most=10_240):
    """Have as many open files as there, without a limit that could be named as the highest."""
    getrlimit, setrlimit = module.getrlimit, module.setrlimit

    def get(which):
        soft, hard = getrlimit(which)
        return (soft, module.RLIM_INFINITY) if which == module.RLIMIT_NOFILE else (soft, hard)

    def set_(which, limits):
        if which == module.RLIMIT_NOFILE:
            if limits[0] > most or limits[0] < 0:
                raise ValueError("current limit exceeds maximum limit")
            limits = limits[0], getrlimit(which)[1]
        setrlimit(which, limits)

    module.getrlimit, module.setrlimit = get, set_


def fchmod(fd, mode, _fchmod=posix.fchmod):
    """Change the mode of a file: macOS does not of a socket."""
    if posix.fstat(fd).st_mode & 0o170000 == 0o140000:
        raise OSError(22, "Invalid argument")
    _fchmod(fd, mode)


def uname(_uname=posix.uname):
    """Say that it is macOS, on this processor."""
    real = _uname()
    return posix.uname_result(("Darwin", real.nodename, "24.0.0", "Darwin Kernel Version 24.0.0", real.machine))


class Finder:
    """Finds what others find, and changes it once it is loaded."""

    def find_spec(self, name, path=None, target=None):
        if name not in {*GONE, *ADDED, "socket", "resource"}:
            return None
        specs = (one.find_spec(name, path, target) for one in sys.meta_path if one is not self)
        spec = next((one for one in specs if one is not None), None)
        if spec is not None:
            spec.loader = Loader(spec.loader)  # type: ignore[assignment]
        return spec


class Loader:
    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        changed(module)


if GONE:
    sys.platform = "darwin"
    sys.modules["_scproxy"] = type(sys)("_scproxy")
    vars(sys.modules["_scproxy"]).update(_get_proxy_settings=lambda: {"exclude_simple": False}, _get_proxies=dict)
    posix.environ.setdefault(b"_PYTHON_SYSCONFIGDATA_NAME", LINUX_CONFIG.encode())
    posix.fchmod, posix.uname = fchmod, uname
    for known in [*sys.modules.values()]:
        changed(known)
    sys.meta_path.insert(0, Finder())
