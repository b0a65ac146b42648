"""What of this machine a root can be made from: a Python that there is a lock for, and the libraries that it loads.

A Python of /usr comes first: it is the distribution's, every user can read it, and nothing of a home is bound. Else it
is the one that runs this program. Imports errors and wheels; runs that Python, and no code of a package.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....core.codes import EndCode
from ....core.errors import EngineError
from ....wheels.image_wheels import LOCKED_FOR
from ....wheels.pip_process import PYTHON_VERSION, WheelTarget

HOME = "/opt/sandbox/home"
ELSEWHERE = "/opt/sandbox/python"
ENVIRONMENT = "/usr/local"
SYSTEM = "/usr"

PROGRAMS = tuple(
    """
    [ arch awk b2sum base32 base64 basename basenc bash cat chgrp chmod chown cksum clear cmp comm cp csplit curl
    cut dash date dd df diff diff3 dir dircolors dirname du echo egrep env expand expr factor false fgrep find flock
    fmt fold getconf getent getopt git grep groups gunzip gzip head hostid hostname iconv id infocmp install join jq
    link ln locale logname ls lscpu mawk md5sum mkdir mkfifo mktemp more mv nice nl nohup nproc numfmt od paste
    pathchk pidof pinky pr printenv printf ptx pwd readlink realpath rev rgrep rm rmdir sdiff sed seq setsid sh
    sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat stty sum sync tac tail tar
    taskset tee test timeout touch tput tr true truncate tsort tty uname unexpand uniq unlink unzip users vdir wc
    whereis which who whoami xargs yes zcat zcmp zdiff zgrep zip zmore znew
    """.split()  # noqa: SIM905 (one line a command says no more)
)
"""What the image has in /usr/bin, and a cell may call: no more than that is copied, where the machine has it."""


PROBE_SECONDS = 60.0
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
"""Where packages of the machine's own Python lie, within its standard library."""
DATA = ("/usr/lib/git-core", "/usr/share/git-core", "/usr/share/zoneinfo")
"""What programs look for below /usr, besides libraries."""
PARTS = ("/lib", "/lib64", "/usr/lib64", *DATA)
"""What a layout asks for by name."""
_PROBE = """
import importlib, json, os, sys, sysconfig
for name in ("bz2", "ctypes", "decimal", "hashlib", "lzma", "sqlite3", "ssl", "zlib"):
    importlib.import_module(name)
for name in ("curses", "readline", "uuid"):
    try:
        importlib.import_module(name)
    except ImportError:
        pass
with open("/proc/self/maps") as maps:
    mapped = sorted({line.split(None, 5)[5].strip() for line in maps if "/" in line})
paths = {os.path.realpath(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib")}
print(json.dumps({
    "executable": os.path.realpath(sys.executable), "prefix": os.path.realpath(sys.base_prefix),
    "version": sys.version.split()[0], "minor": "%d.%d" % sys.version_info[:2], "tag": sys.implementation.cache_tag,
    "gil": sysconfig.get_config_var("Py_GIL_DISABLED") != 1,
    "standard_library": sorted(paths), "mapped": mapped,
}))
"""
"""A Python without one of the first modules is none that people would call complete: pandas and ipykernel need them."""


@dataclass(frozen=True, slots=True)
class Layout:
    """What a root is made of, in the words of root.json; relative sources lie in the folder of the generation."""

    binds: tuple[tuple[str, str], ...]
    links: tuple[tuple[str, str], ...]
    environment: tuple[tuple[str, str], ...]
    python: str
    """Where the interpreter lies inside."""


def lay_out(python: Python, machine: LayoutFound) -> Layout:
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
    binds += [(path, path) for path in DATA if path in machine.folders]
    binds += [("env", ENVIRONMENT), ("home", HOME)]
    links = [("usr/bin", "/bin")]
    links += [(f"usr/{name}", f"/{name}") for name in ("lib", "lib64") if f"/{name}" not in machine.folders]
    environment = [("LANG", "C.UTF-8"), ("PATH", "/usr/local/bin:/usr/bin:/bin")]
    if any(Path(path).name.startswith("libpython") for path in own):  # it may name its library by a path of the machine
        environment.append(("LD_LIBRARY_PATH", f"{ELSEWHERE}/lib"))
    return Layout(tuple(binds), tuple(links), tuple(environment), executable)


def _library_folders(python: Python, machine: LayoutFound) -> list[str]:
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


def _through_link(path: str, machine: LayoutFound) -> bool:
    """Say whether a path leads through /lib where that is a link to /usr/lib."""
    return path.startswith("/lib/") and "/lib" not in machine.folders


def _within(path: str, folders: Iterable[str]) -> bool:
    return any(Path(path).is_relative_to(folder) for folder in folders)


@dataclass(frozen=True, slots=True, kw_only=True)
class Python:
    """A Python of this machine; its paths have no links on their way."""

    executable: str
    prefix: str
    """What its own paths begin with: /usr, /opt/python3.13."""
    version: str
    """Like 3.11.2."""
    minor: str
    """Like 3.11."""
    tag: str
    """Of its bytecode, like cpython-311."""
    standard_library: tuple[str, ...]
    """The folders of its modules: one, or two where compiled modules lie apart."""
    mapped: tuple[str, ...]
    """The files that it and its modules have the loader map: itself, libc, libssl, ..."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFound:
    """What there is on this machine of what a layout asks for."""

    folders: frozenset[str]
    """Folders of their own, and no links to one."""
    loaders: tuple[str, ...]
    """Where programs look for the loader of shared libraries, besides /lib64."""
    names: Mapping[str, tuple[str, ...]]
    """By which names, of links beside it, a library is looked for."""


def look(python: Python) -> LayoutFound:
    """See what of a root's possible parts this machine has."""
    parts = [os.path.join(path, name) for path in python.standard_library for name in PACKAGE_FOLDERS]  # noqa: PTH118
    folders = frozenset(path for path in (*PARTS, *parts) if Path(path).is_dir() and not Path(path).is_symlink())
    loaders = sorted(str(path) for folder in ("/usr/lib", "/lib") for path in Path(folder).glob("ld-linux*.so.*"))
    return LayoutFound(
        folders=folders, loaders=tuple(loaders), names={path: _names(Path(path)) for path in python.mapped}
    )


def _names(library: Path) -> tuple[str, ...]:
    beside = library.parent.glob(f"{library.name.partition('.so')[0]}.so*")
    return tuple(sorted(path.name for path in beside if path.resolve() == library))


def find_python() -> Python:
    """Return the Python that an environment is made for. Raises `EngineError` where there is none."""
    why = "it is none of " + ", ".join(LOCKED_FOR)
    for executable in candidates():
        try:
            found = probe(executable)
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            why = str(error)
            continue
        if found is not None:
            return found
    raise EngineError(
        EndCode.ENGINE_NOT_SET_UP,
        f"no Python of this machine will do for a sandbox without images: {why}. "
        "Install the distribution's python3, or run this program with one of these versions",
    )


def candidates() -> list[str]:
    """Return where a Python may be, best first: this version of /usr, others of /usr, and what runs this program."""
    this = "{}.{}".format(*sys.version_info[:2])
    versions = dict.fromkeys([this, PYTHON_VERSION, *reversed(LOCKED_FOR)])
    system = [f"/usr/bin/python{version}" for version in versions]
    own = os.path.join(sys.base_exec_prefix, "bin", f"python{this}")  # noqa: PTH118 -- beside the others, a text
    return [path for path in (*system, own) if os.access(path, os.X_OK)]


def probe(executable: str) -> Python | None:
    """Ask a Python what it is; None if there is no lock for it. Raises OSError, ValueError and SubprocessError."""
    command = [executable, "-I", "-S", "-c", _PROBE]
    said = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        cwd="/",
        env={"PATH": os.defpath},
        check=False,
    )
    if said.returncode != 0:
        raise ValueError(f"{executable} does not work: {(said.stderr.strip() or 'it says nothing')[-200:]}")
    values = json.loads(said.stdout)
    if not values.pop("gil") or values["minor"] not in LOCKED_FOR:
        return None
    for name in ("standard_library", "mapped"):
        values[name] = tuple(values[name])
    return Python(**values)


def target(python: Python) -> WheelTarget:
    """Return what wheels are for, on this machine. Raises `EngineError` for a C library that is not glibc."""
    try:
        name, _, version = (os.confstr("CS_GNU_LIBC_VERSION") or "").partition(" ")
        major, minor = map(int, version.split(".")[:2])
    except (OSError, ValueError):
        name, major, minor = "", 0, 0
    if (name, major) != ("glibc", 2):
        raise EngineError(
            EndCode.ENGINE_NOT_SET_UP, "a sandbox without images needs glibc, and this system has another C library"
        )
    return WheelTarget(platform.machine(), python.minor, minor)
