"""Where everything lies in a root that is made of this machine's libraries and an environment of ours.

    /usr/bin            copies of some programs, as in the image, and this machine's Python
    /usr/lib/...        this machine's: the folders of libc and of the Python's modules, and no other
    /usr/local          the environment: the packages of a lock, beneath a `pyvenv.cfg`
    /opt/sandbox/home   what is copied into the home of each session
    /opt/sandbox/python the Python, where it is none of /usr

No package of the machine's own Python is seen: its folders are not bound, or an empty one lies over them. Nothing of
/usr/local, /usr/share (but for the time zones), /opt, /etc and the homes is. Pure: it is told what there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePosixPath as Path

from ..core.codes import EndCode
from ..core.errors import EngineError
from .host import PACKAGE_FOLDERS, Machine, Python

HOME = "/opt/sandbox/home"
ELSEWHERE = "/opt/sandbox/python"
ENVIRONMENT = "/usr/local"
SYSTEM = "/usr"

PROGRAMS = tuple(
    """
    [ arch awk b2sum base32 base64 basename basenc bash cat chgrp chmod chown cksum clear cmp comm cp csplit cut dash
    date dd df diff diff3 dir dircolors dirname du echo egrep env expand expr factor false fgrep find flock fmt
    fold getconf getent getopt grep groups gunzip gzip head hostid hostname iconv id infocmp install join link ln
    locale logname ls lscpu mawk md5sum mkdir mkfifo mktemp more mv nice nl nohup nproc numfmt od paste pathchk pidof
    pinky pr printenv printf ptx pwd readlink realpath rev rgrep rm rmdir sdiff sed seq setsid sh sha1sum sha224sum
    sha256sum sha384sum sha512sum shred shuf sleep sort split stat stty sum sync tac tail tar taskset tee test timeout
    touch tput tr true truncate tsort tty uname unexpand uniq unlink users vdir wc whereis which who whoami xargs yes
    zcat zcmp zdiff zgrep zmore znew
    """.split()  # noqa: SIM905 (one line a command says no more)
)
"""What the image has in /usr/bin, and a cell may call: no more than that is copied, where the machine has it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a root is made of, in the words of root.json; relative sources lie in the folder of the generation."""

    binds: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    python: str
    """Where the interpreter lies inside."""


def lay_out(python: Python, machine: Machine) -> Layout:
    """Return the layout for a Python. Raises `EngineError` for one whose parts lie apart."""
    prefix = SYSTEM if python.prefix == SYSTEM else ELSEWHERE
    executable = f"{prefix}/bin/{Path(python.executable).name}"
    binds = [("bin", "/usr/bin"), *((folder, folder) for folder in _library_folders(python, machine))]
    for loader in machine.loaders:
        if not _within(loader, [inside for _, inside in binds]) and not _through_link(loader, machine):
            binds.append((loader, loader))
    for folder in python.standard_library:
        if not _within(folder, [python.prefix]):
            what = f"{python.executable} and its modules in {folder} lie apart, which no root is made of"
            raise EngineError(EndCode.ENGINE_NOT_SET_UP, what)
        inside = f"{prefix}/{Path(folder).relative_to(python.prefix)}"
        if not _within(inside, [there for _, there in binds]):
            binds.append((folder, inside))
        packages = (f"{folder}/{name}" for name in PACKAGE_FOLDERS)
        binds += [("empty", f"{inside}/{Path(path).name}") for path in packages if path in machine.folders]
    binds.append((python.executable, executable))
    own = [path for path in python.mapped if _is_library(path) and _is_own(path, python)]
    binds += [(path, f"{ELSEWHERE}/lib/{name}") for path in own for name in machine.names[path]]
    locales = sorted({str(Path(path).parent) for path in python.mapped if path.startswith("/usr/lib/locale/C")})
    binds += [(folder, folder) for folder in locales if not _within(folder, [inside for _, inside in binds])]
    binds += [(path, path) for path in ("/usr/share/zoneinfo",) if path in machine.folders]
    binds += [("env", ENVIRONMENT), ("home", HOME)]
    links = [("usr/bin", "/bin")]
    links += [(f"usr/{name}", f"/{name}") for name in ("lib", "lib64") if f"/{name}" not in machine.folders]
    environment = [("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin")]
    if any(Path(path).name.startswith("libpython") for path in own):  # it may name its library by a path of the machine
        environment.append(("LD_LIBRARY_PATH", f"{ELSEWHERE}/lib"))
    return Layout(tuple(binds), tuple(links), tuple(environment), executable)


def _library_folders(python: Python, machine: Machine) -> list[str]:
    """Return the machine's folders of shared libraries, none within another."""
    found = {
        str(Path(path).parent)
        for path in python.mapped
        if _is_library(path) and not _is_own(path, python) and not _within(path, python.standard_library)
    }
    found |= {"/usr/lib64"} & machine.folders
    found |= {"/lib64"} & machine.folders
    return sorted(folder for folder in found if not _within(folder, found - {folder}))


def _is_library(path: str) -> bool:
    return ".so" in Path(path).name


def _is_own(path: str, python: Python) -> bool:
    """Say whether a library, none of Python's modules, is that Python's own and not the machine's."""
    if _within(path, python.standard_library):
        return False
    return not _within(path, ("/usr/lib", "/usr/lib64", "/usr/lib32", "/lib", "/lib64"))


def _through_link(path: str, machine: Machine) -> bool:
    """Say whether a path leads through /lib where that is a link to /usr/lib."""
    return path.startswith("/lib/") and "/lib" not in machine.folders


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)
