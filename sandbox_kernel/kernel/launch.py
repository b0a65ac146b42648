"""What a front end starts where a broker of the user's own is: a process of few milliseconds, and of few megabytes.

It has a process that is ready run the kernel (`prepared.py`), and stays as the process that the front end knows: what
is sent to it is sent on, its end is the kernel's, and the kernel's end is its own. Where none is ready, or one that is
another than this one would become, it turns into the kernel itself. Every wait is bounded.

Runs as a script (`python -I -S launch.py sandbox_kernel -f CONNECTION_FILE ...`); others import it for what both ends
must say alike. So it imports next to nothing: `json` alone would take as long as the rest of it.
"""

import posix
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence

OPERATORS = "/run/sandbox-kernel/broker.sock"
OWN = "broker-{}.sock"
STAMP_DIGITS = 8
PACKAGE = "sandbox_kernel"
PLACE = "sandbox-kernel-"
"""How the name of a place begins where a kernel process leaves something."""
SUFFIX = ".kernels"
"""After the address of a broker, where kernels are to be had."""
NEXT = ".next"
"""After the place where a kernel process leaves what is its successor's (`keeper.py`): where that is to be had."""
FLAG = "--engine="
ASKED = "--Launcher.asked="
"""An argument of a kernel that asked for a process that is ready in vain, and why; no setting, as it is of another
class. Whoever lists processes sees it, and the kernel writes it to its log."""
NOBODY, SILENT, NOT_YET = "nobody listens there", "no answer in time", "none is prepared yet"
"""Who has none hangs up; one that is prepared, and is not to be this kernel, says why."""
OUTDATED = "other files are on the disk than were loaded"
MOST_REASON = 200
CHANNELS = ("shell", "iopub", "stdin", "control", "hb")
MAGIC = b"sandbox-kernel launch 1"
ANSWER_SECONDS = 1.0
"""For a process that is ready to say so; on a machine so busy, an ordinary start takes longer."""
LAST_WORDS_SECONDS = 1.0
"""For the code of a kernel that has ended."""
ETOOMANYREFS = 109  # as Linux has it; `errno` is one more module to load
GO = b"g"
BACKLOG = 100
MOST_BYTES = 4 << 20
"""Of arguments and variables; the system takes no more either."""


def place_of(argv: "Sequence[str]") -> "str | None":
    """Return where kernels of the user's own broker are to be had; None without such a broker in the arguments."""
    found = [word[len(FLAG) :] for word in argv if word.startswith(FLAG)]
    if not found:
        return None
    name, named, path = found[-1].partition("://")
    if name != "broker":
        return None
    if not named:
        try:
            posix.stat(OPERATORS)
        except OSError:
            path = own_broker()
        else:
            return None  # which serves others, too, and prepares nothing
    return path + SUFFIX if path.startswith("/") else None


def own_broker() -> str:
    """Return where this user's own broker listens, as `engines/broker/places.py` has it; a test holds them together."""
    uid = posix.geteuid()
    runtime = f"/run/user/{uid}"
    try:
        _require_closed(runtime, {uid})
    except OSError:
        folder = f"{_home(uid)}/.local/state/sandbox-kernel"
    else:
        folder = f"{runtime}/sandbox-kernel"
    package = __file__.rpartition("/")[0].rpartition("/")[0]
    sys.path.insert(0, f"{package}/core")
    try:
        import stamp  # type: ignore[import-not-found]  # `core/stamp.py`, without the packages around it
    finally:
        del sys.path[0]
    return f"{folder}/{OWN.format(stamp.stamp(package)[:STAMP_DIGITS])}"


def place_after(argv: "Sequence[str]") -> "str | None":
    """Return where a copy of the kernel process before waits for these arguments; None where none does.

    The places are those of `keeper.py`; a test holds them together.
    """
    try:
        file = argv[argv.index("-f") + 1]
        with open(file, encoding="ascii") as opened:  # noqa: PTH123 (pathlib is slow to import)
            key = _after(opened.read(1 << 16), "key")
    except (OSError, ValueError, LookupError):
        return None
    if not file.startswith("/") or "//" in file or "/." in file or "\\" in key:  # the name would be another
        return None
    try:
        from _sha2 import sha256  # type: ignore[import-not-found]  # `hashlib` would load all of OpenSSL
    except ImportError:
        try:
            from _sha256 import sha256  # type: ignore[import-not-found]
        except ImportError:
            from hashlib import sha256
    name = PLACE + sha256(f"{file}\0{key}".encode()).hexdigest()[:32] + NEXT
    me = posix.geteuid()
    for folder in (file.rpartition("/")[0], f"/run/user/{me}", _home(me)):
        path = f"{folder}/{name}"
        try:
            _require_closed(folder or "/", {me})
            posix.stat(path)
        except OSError:
            continue
        return path
    return None


def _home(user: int) -> str:
    import pwd

    try:
        return pwd.getpwuid(user).pw_dir
    except KeyError:  # a user that no table names
        return "/nonexistent"


def stamp() -> bytes:
    """Return what tells one Python, with its way to this package, from another."""
    flags = sys.flags
    python = sys.executable.rpartition("/")[0]  # an environment has several names for its own
    status = posix.stat(__file__)
    own = f"{status.st_dev} {status.st_ino}"
    parts = (python, sys.version, own, sys.getfilesystemencoding(), sys.getfilesystemencodeerrors())
    return "\n".join((*parts, f"{flags.isolated} {flags.utf8_mode} {flags.dev_mode} {flags.optimize}")).encode(
        errors="surrogateescape"
    )


def _require_closed(folder: str, owners: "set[int]") -> None:
    status = posix.stat(folder)
    if status.st_uid not in owners or status.st_mode & 0o022 or status.st_mode & 0o170000 != 0o040000:
        raise OSError(f"others may write in {folder}")


def knock(path: str) -> "socket":
    """Return a connection to where this user's own broker has kernels; asks for one to be prepared. Raises OSError."""
    import _socket

    me = posix.geteuid()
    _require_closed(path[: path.rindex("/")] or "/", {0, me})
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        sock.settimeout(ANSWER_SECONDS)
        sock.connect(path)
        peer = sock.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        if int.from_bytes(peer[4:8], sys.byteorder) != me:
            raise OSError("another user listens there")
    except OSError:
        sock.close()
        raise
    return sock


def doors_of(argv: "Sequence[str]") -> "tuple[list[str], list[socket]]":
    """Listen where the connection file says, before clients come: one that finds a port closed waits for 0.1 s or more.

    The kernel looks whether these are its addresses; here the file is searched, not read.
    """
    import _socket

    names, doors = [], []
    try:
        with open(argv[argv.index("-f") + 1], encoding="ascii") as file:  # noqa: PTH123 (pathlib is slow to import)
            text = file.read(1 << 16)
        if _after(text, "transport") not in ("tcp", ""):
            return [], []
        ip = _after(text, "ip")
        if not ip.replace(".", "").isdigit():
            return [], []
        for name in CHANNELS:
            port = int(_after(text, f"{name}_port"))
            door = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            door.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
            try:
                door.bind((ip, port))
                door.listen(BACKLOG)
            except OSError:
                door.close()
                raise
            names.append(name)
            doors.append(door)
    except (OSError, ValueError, LookupError):
        pass  # a restart has them open already; and the kernel opens what is not
    return names, doors


def _after(text: str, name: str) -> str:
    """Return the plain value of a name in a JSON object, an empty one if it is not plain."""
    rest = text.partition(f'"{name}"')[2].partition(":")[2]
    return rest.partition(",")[0].partition("}")[0].strip().strip('"')


class InVain(Exception):
    """No process that is ready runs the kernel, and why, in words for people."""


def hand_over(argv: "Sequence[str]", path: str) -> "tuple[socket, int] | None":
    """Have a process that is ready run the kernel; return the connection to it and its pidfd, None if there is none."""
    try:
        return handed_over(argv, path)
    except InVain:
        return None


def handed_over(argv: "Sequence[str]", path: str) -> "tuple[socket, int]":
    """Have a process that is ready run the kernel; return the connection to it and its pidfd. Raises `InVain`."""
    import _socket

    try:
        sock = knock(path)
    except (FileNotFoundError, ConnectionRefusedError):
        raise InVain(NOBODY) from None
    except OSError as error:
        raise InVain(str(error)) from None
    folder = -1
    try:
        names, doors = doors_of(argv)
        folder = posix.open(".", posix.O_PATH | posix.O_DIRECTORY | posix.O_CLOEXEC)
        files = [0, 1, 2, folder, *(door.fileno() for door in doors)]
        sections = (
            MAGIC,
            stamp(),
            "\n".join(names).encode(),
            b"\0".join(word.encode(sys.getfilesystemencoding(), "surrogateescape") for word in argv),
            b"\0".join(name + b"=" + value for name, value in posix.environ.items()),
        )
        data = b"".join(len(one).to_bytes(4, "big") + one for one in sections)
        if len(data) > MOST_BYTES:
            raise InVain("its arguments and variables are too long")
        rights = b"".join(one.to_bytes(4, sys.byteorder) for one in files)
        try:
            sent = _sent(sock, data, (_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights))
            sock.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError):
            pass  # it hung up: what it said is still to be read
        answer, ancillary, _, _ = sock.recvmsg(MOST_REASON, _socket.CMSG_SPACE(4), _socket.MSG_CMSG_CLOEXEC)
        if answer != b"ready" or len(ancillary) != 1:
            raise InVain("".join(c if c.isprintable() else "?" for c in answer.decode("utf-8", "replace")) or NOT_YET)
        pidfd = int.from_bytes(ancillary[0][2][:4], sys.byteorder)
        _forward(pidfd)
        sock.sendall(GO)  # whoever does not hear that does nothing
    except TimeoutError:
        raise InVain(SILENT) from None
    except ConnectionResetError:
        raise InVain(NOT_YET) from None
    except OSError as error:
        raise InVain(str(error)) from None
    finally:
        if folder >= 0:
            posix.close(folder)
    for door in doors:
        door.close()
    return sock, pidfd


def _sent(sock: "socket", data: bytes, rights: "tuple[int, int, bytes]") -> int:
    """Send descriptors, as `core.descriptors` does: a cell of the same user may have too many of its own on their way.

    Return how many bytes were sent. Raises OSError.
    """
    try:
        return sock.sendmsg([data], [rights])
    except OSError as error:
        if error.errno != ETOOMANYREFS:
            raise
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        return sock.sendmsg([data], [rights])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _forward(pidfd: int) -> None:
    """Send on what is sent to this process."""
    import _signal  # type: ignore[import-not-found]  # `signal` would load three times as much

    def forward(number: int, frame: object) -> None:
        try:
            _signal.pidfd_send_signal(pidfd, stop if number == _signal.SIGTSTP else number)
        except OSError:
            return  # it is gone, which is noticed in a moment
        if number == _signal.SIGTSTP:
            posix.kill(posix.getpid(), stop)

    stop = int(_signal.SIGSTOP)
    for name in ("HUP", "INT", "QUIT", "TERM", "USR1", "USR2", "ALRM", "CONT", "TSTP"):
        number = int(getattr(_signal, f"SIG{name}"))
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, forward)


def end_with(sock: "socket", pidfd: int) -> "int":
    """Wait for the kernel's end; return its exit code, or the negative number of the signal that ended it."""
    import resource
    import select

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # its variables may hold a secret
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    poll.poll()
    sock.settimeout(LAST_WORDS_SECONDS)
    try:
        return int(sock.recv(16))
    except (OSError, ValueError):  # nobody is left who could say how it ended
        return -9


def main(argv: "list[str]") -> None:
    """Run `argv`: the name of the package, and the arguments of a kernel."""
    path = place_of(argv[1:])
    is_kernel = path is not None and argv[1:2] == ["-f"]
    try:
        if path is not None and is_kernel:
            stand_for(*handed_over(argv[1:], path))
    except InVain as why:
        argv = [*argv, ASKED + str(why)[:MOST_REASON]]
    isolation = ("-I",) if sys.flags.isolated else ("-E", "-P")
    posix.execv(sys.executable, [sys.executable, *isolation, "-m", *argv])


def follow(argv: "Sequence[str]") -> None:
    """Have a copy of the kernel process before be the kernel, and end as it does; return if there is none."""
    path = place_after(argv)
    given = hand_over(argv, path) if path is not None else None
    if given is not None:
        stand_for(*given)


def stand_for(sock: "socket", pidfd: int) -> None:
    """Live as long as a kernel, and end as it does; does not return."""
    code = end_with(sock, pidfd)
    if code < 0:
        import _signal

        if -code != _signal.SIGKILL:
            _signal.signal(-code, _signal.SIG_DFL)
        posix.kill(posix.getpid(), -code)
    posix._exit(code & 0xFF)  # noqa: SLF001 (public in `os`)


if __name__ == "__main__":
    main(sys.argv[1:])
