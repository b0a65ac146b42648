"""What it means to read, write, delete or search a path: scratch, the system, a home folder. Nothing is looked up."""

from __future__ import annotations

import re

from .codes import ScreenCode

_SYSTEM = re.compile(
    r"(/(etc|usr|bin|sbin|lib|lib32|lib64|boot|dev|root|var|sys|proc|opt|run|System|Library)(/|$)|[A-Za-z]:[\\/]+(Windows|Program))"
)
_HARMLESS = re.compile(
    r"/(dev/(null|stdout|stderr|stdin|shm|fd|tty|u?random|zero)|var/tmp|tmp|proc/cpuinfo|opt/(ml|conda|app|data))(/|$)"
)
_OURS = re.compile(
    r"/(mnt|tmp|content|kaggle|workspace|workspaces|data|datasets?|home/jovyan|home/\w+/(work|data)|notebooks?|input|output|dbfs|"
    r"Users/\w+/(Documents|Downloads|Desktop)|databricks|path|app|dev/shm)(/|$)"
)
_WHOLE = re.compile(
    r"(/|/\*+|~|~/|~/\*|/home/?|/mnt/?|[A-Za-z]:[\\/]*|\.|\./|\.\.|\.\./?|\*|\./\*|/mnt/data/?\*?|\{\}/\*)"
)
_MACHINE = re.compile(r"/(home|\*{1,2})?|C:[\\/]|~.*", re.DOTALL)
_STARTS = (".pth", "sitecustomize.py", "usercustomize.py")


def judge(verb: str, path: str) -> ScreenCode | None:
    """Return what it means to do something with a path; None for nothing.

    `verb` is read, write, delete, tree (delete with all below), move (away from there), search or archive.
    """
    system = _SYSTEM.match(path) is not None and _HARMLESS.match(path) is None
    match verb:
        case "write" if system or re.match(r"~/\.(?!cache|local/share/jupyter|keras|kaggle)", path):
            return ScreenCode.FILE_WRITE_SYSTEM
        case "write" if path.endswith(_STARTS):
            return ScreenCode.PERSIST_STARTUP
        case "write" if path.startswith("/") and not _OURS.match(path) and not _HARMLESS.match(path):
            return ScreenCode.FILE_WRITE_OUTSIDE
        case "read" if system and not path.startswith("/usr/share"):
            return ScreenCode.FILE_READ_SYSTEM
        case "move" | "delete" | "tree" if system:
            return ScreenCode.FILE_DELETE_SYSTEM
        case "tree" if path.rstrip("/") in ("", "~", "/home", "/mnt") or path == "/*":
            return ScreenCode.FILE_DELETE_SYSTEM
        case "tree" if _WHOLE.fullmatch(path) or path.startswith(("~", "/home")):
            return ScreenCode.FILE_DELETE_MANY
        case "delete" | "tree":
            return ScreenCode.FILE_DELETE
        case "search" | "archive" if system or _MACHINE.fullmatch(path):
            return ScreenCode.FILE_SEARCH if verb == "search" else ScreenCode.FILE_ARCHIVE
    return None
