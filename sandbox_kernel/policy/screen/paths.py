"""What a path means to whoever reads, writes or deletes it: scratch, the system, a home folder, an input."""

from __future__ import annotations

import re

from ...core.screen_codes import ScreenCode

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


def is_system(path: str) -> bool:
    return _SYSTEM.match(path) is not None and _HARMLESS.match(path) is None


def written(path: str) -> ScreenCode | None:
    """Return what it means to write to a path."""
    if is_system(path) or re.match(r"~/\.(?!cache|local/share/jupyter|keras|kaggle)", path):
        return ScreenCode.FILE_WRITE_SYSTEM
    if path.startswith("/") and not _OURS.match(path) and not _HARMLESS.match(path):
        return ScreenCode.FILE_WRITE_OUTSIDE
    return None


def read(path: str) -> ScreenCode | None:
    """Return what it means to read a path."""
    return ScreenCode.FILE_READ_SYSTEM if is_system(path) and not path.startswith("/usr/share") else None


def deleted(path: str, *, whole: bool) -> ScreenCode:
    """Return what it means to delete a path, with all below it if `whole`."""
    if is_system(path) or ((whole and path.rstrip("/") in ("", "~", "/home", "/mnt")) or path == "/*"):
        return ScreenCode.FILE_DELETE_SYSTEM
    if whole and (_WHOLE.fullmatch(path) or path.startswith(("~", "/home"))):
        return ScreenCode.FILE_DELETE_MANY
    return ScreenCode.FILE_DELETE


_DATA_FILES = re.compile(r"\*\.(csv|tsv|parquet|xlsx?|json|db|sqlite3?|pkl|h5|feather|ipynb|\*)|\*{1,2}")


def is_all(pattern: str | None) -> bool:
    """Return whether a pattern takes all files, or all data: also one that is not known."""
    return pattern is None or _DATA_FILES.fullmatch(pattern.rpartition("/")[2]) is not None


_MADE = re.compile(
    r"(\./)?(/tmp/.|/mnt/data/(outputs?|results?|tmp|cache)/|(outputs?|out|results?|tmp|temp|cache|\.cache|build|dist|figures?|figs|plots|frames|"
    r"checkpoints?|logs?|runs|scratch|__pycache__|\.ipynb_checkpoints)/)"
)


def is_made(path: str) -> bool:
    """Return whether a path is in a folder for what cells make themselves, by its name."""
    return _MADE.match(path) is not None


def searched(path: str) -> bool:
    """Return whether to walk through a path is to look through the machine."""
    return (
        path in ("/", "~", "/home", "/root", "/etc", "/var", "C:\\", "C:/", "/**", "/*")
        or is_system(path)
        or path.startswith("~")
    )
