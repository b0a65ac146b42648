"""Which folders a cell may fill: ones of their own, where no program runs, loads or obeys what it finds.

The system's folders, hidden ones, and those that programs load from are refused wherever they lie, by name, by what
they hold, and by identity, so that another name of the same folder helps nobody. What is left is a plain folder of
data.

Public: plugins may import it.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..core.home_folder import home_folder
from ..core.package_files import PACKAGE
from .host_paths import Folder


def _words(text: str) -> list[str]:
    return text.split()


_SYSTEM = frozenset(
    _words(
        "bin boot dev etc lib lib32 lib64 libx32 lost+found nix opt proc run sbin snap sys usr var "
        "applications library system private cores"
    )
)
"""Top folders of a system (and of macOS); all else at the top is a site's own, such as /data, /mnt or /builds."""
_OPEN = [Path("/", *name.split()) for name in ("var tmp", "var folders", "private tmp", "private var")]
"""Folders of the system in which users have their own."""
_SHARED = [Path(name) for name in _words("/ /home /Users /tmp /var/tmp /private/tmp /srv /media")]
"""Folders that nobody has for himself."""
_NAMES = frozenset(
    _words(
        "__pycache__ site-packages dist-packages node_modules bin sbin autostart launchagents launchdaemons systemd "
        "init.d profile.d cron.d cron.hourly cron.daily cron.weekly cron.monthly crontabs appdata"
    )
) | {"start menu"}
"""Folders from which programs load or start what they find, wherever they lie, in lower case."""
_OF_A_TREE = (
    (("HEAD", "objects", "refs"), "a Git repository's own data"),
    (("pyvenv.cfg",), "a Python environment"),
    (("conda-meta",), "a Python environment"),
)
"""What shows that a folder, with all beneath it, belongs to a program."""
_OF_A_PROJECT = _words(
    ".git .hg .svn .bzr .jj .vscode .idea .devcontainer .envrc .ssh .bashrc .profile .bash_profile .zshrc .config "
    "pyproject.toml setup.py setup.cfg conftest.py tox.ini Makefile makefile GNUmakefile package.json Cargo.toml "
    "CMakeLists.txt"
)
"""What shows that programs run, or obey, files of just this folder."""


def why_not(folder: Folder) -> str | None:
    """Return why a cell must not fill a folder, to be read after its name ("lies within ..."); None if it may."""
    path = folder.path
    return _by_name(path) or _by_place(folder) or _by_content(folder)


def config_path() -> list[str]:
    """Return the folders of config files, the strongest first: Jupyter's own, without those of its variables.

    That is `~/.jupyter`, then `etc/jupyter` of the Python environment, then the system's. As in Jupyter, a virtual
    environment comes before the home folder if it belongs to the user.
    """
    home = home_folder()
    user = [f"{home}/.jupyter"] if home else []
    system = ["/usr/local/etc/jupyter", "/etc/jupyter"]
    environment = [place] if (place := f"{sys.prefix}/etc/jupyter") not in system else []
    own = sys.prefix != sys.base_prefix and Path(sys.prefix).stat().st_uid == os.geteuid()
    return [*environment, *user, *system] if own else [*user, *environment, *system]


def _by_name(path: Path) -> str | None:
    parts = path.parts[1:]
    for part in parts:
        if part.startswith("."):
            return f"lies within a hidden folder ({part}), where programs keep what they run"
        if part.lower() in _NAMES or part.lower().endswith((".app", ".dist-info", ".egg-info")):
            return f"lies within a folder ({part}) from which programs load or start what they find"
    home = _own_home()
    if path == home:
        return "holds a home folder, which a cell could then write to"
    if path in _SHARED:
        return "holds what belongs to others, too"
    if home and path.is_relative_to(home):
        inside = path.relative_to(home).parts
        return "lies within the library of a home folder" if inside[:1] == ("Library",) else None
    if parts and parts[0].lower() in _SYSTEM and not any(path != one and path.is_relative_to(one) for one in _OPEN):
        return f"lies within a folder of the system (/{parts[0]})"
    return None


def _own_home() -> Path | None:
    """Return the home folder, if it is one that a person or a service has for itself."""
    home = Path(home_folder() or "/").resolve()
    own = len(home.parts) > 2 and home.parts[1] not in _SYSTEM - {"var", "opt", "usr", "private"}
    return home if own or home == Path("/root") else None


def _by_place(folder: Folder) -> str | None:
    """Compare with the places of this machine and this process, by name and by device and inode."""
    path, above = folder.path, [(status.st_dev, status.st_ino) for status in map(os.fstat, _upward(folder))]
    for place, what, whole in _places():
        found = place.resolve()
        if found.is_relative_to(path) or _identity(found) == above[0]:
            return f"holds {what}, which a cell could then write to"
        if whole and (path.is_relative_to(found) or _identity(found) in above):
            return f"lies within {what}, which a cell could then write to"
    return None


def _places() -> Iterator[tuple[Path, str, bool]]:
    """Yield what a cell must not write to: the place, its name, and whether that goes for all beneath it too."""
    if home := home_folder():
        yield Path(home), "a home folder", False
    yield Path(sys.prefix), "this kernel's Python environment", True
    yield Path(sys.base_prefix, "lib"), "Python's library", True
    yield PACKAGE, "this kernel's own code", True
    yield from ((Path(place), "configuration of Jupyter", True) for place in config_path())
    packages = [*site.getsitepackages(), site.getusersitepackages(), *sysconfig.get_paths().values()]
    yield from ((Path(place), "packages of Python", True) for place in dict.fromkeys(packages) if len(place) > 1)
    for name in ("etc", "boot", "usr", "bin", "sbin", "lib"):
        yield Path("/", name), "the system's own folder", True
    for place in sys.path:
        # A checkout is on it, too, and has folders for results: what lies beneath is no module by itself.
        if place.startswith("/") and place not in {"/"}:
            yield Path(place), "a folder from which Python imports", False
    for place in os.environ.get("PATH", "").split(os.pathsep):
        if place.startswith("/") and place not in {"/"}:
            yield Path(place), "a folder from which commands are run", False


def _identity(path: Path) -> tuple[int, int] | None:
    with suppress(OSError):
        status = path.stat()
        return status.st_dev, status.st_ino
    return None


def _upward(folder: Folder) -> Iterator[int]:
    """Yield a handle of the folder and of each one above it, open until the next."""
    handle = folder.opened()
    with suppress(OSError):
        while True:
            yield handle
            up = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | getattr(os, "O_PATH", 0), dir_fd=handle)
            is_top = os.path.samestat(os.fstat(up), os.fstat(handle))
            os.close(handle)
            handle = up
            if is_top:
                break
    os.close(handle)


def _by_content(folder: Folder) -> str | None:
    for name in _OF_A_PROJECT:
        if _has(folder.handle, name):
            return f"holds {name}: programs run or obey the files of such a folder"
    found = None
    for handle in _upward(folder):
        for names, what in _OF_A_TREE:
            if all(_has(handle, name) for name in names):
                found = f"lies within {what}"
    return found


def _has(handle: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=handle, follow_symlinks=False)
    except OSError:
        return False
    return True
