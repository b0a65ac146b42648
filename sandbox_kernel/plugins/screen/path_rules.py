"""Which calls take paths, and what it means to read, write, delete or search one. Nothing is looked up on a disk."""

from __future__ import annotations

import re

from .codes import ScreenCode
from .known_names import words

JOINS = {"os.path.join": None, "os.path.expanduser": None, "pathlib.Path": "pathlib.Path()"}
"""Calls that make a path of their arguments, and the name of what they make."""
SELF = -1
VERBS: dict[str, tuple[tuple[int, str], ...]] = {
    "shutil.rmtree": ((0, "tree"),),
    "shutil.make_archive": ((2, "archive"),),
    "pathlib.Path().write_text": ((SELF, "write"),),
    "pathlib.Path().write_bytes": ((SELF, "write"),),
    "pathlib.Path().read_text": ((SELF, "read"),),
    "pathlib.Path().read_bytes": ((SELF, "read"),),
    **dict.fromkeys(words("pathlib.Path().rename pathlib.Path().replace"), ((SELF, "move"), (0, "write"))),
    **dict.fromkeys(words("os.rename os.replace os.renames shutil.move"), ((0, "move"), (1, "write"))),
    **dict.fromkeys(words("os.symlink os.link"), ((0, "read"), (1, "write"))),
    **dict.fromkeys(words("shutil.copy shutil.copy2 shutil.copyfile shutil.copytree"), ((0, "read"), (1, "write"))),
    **dict.fromkeys(words("os.remove os.unlink os.rmdir os.removedirs send2trash.send2trash"), ((0, "delete"),)),
    **dict.fromkeys(words("pathlib.Path().unlink pathlib.Path().rmdir"), ((SELF, "delete"),)),
    **dict.fromkeys(words("os.walk os.listdir os.scandir os.fwalk glob.glob glob.iglob"), ((0, "search"),)),
    **dict.fromkeys(words("pathlib.Path().rglob pathlib.Path().glob pathlib.Path().iterdir"), ((SELF, "search"),)),
    **dict.fromkeys(words(".to_csv .to_parquet .to_excel .to_json .to_pickle .savefig .extractall"), ((0, "write"),)),
}
"""Which arguments of a call are paths, and what is done with them; `.name` is a method of anything."""
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
