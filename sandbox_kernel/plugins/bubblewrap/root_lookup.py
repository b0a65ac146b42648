"""What a sandbox without images has for its file system: a root, which is a folder under a name, and how it is read.

A root of the name N lies in the first of these folders that there is (`folders`), and a name that begins with "/" is
the folder itself; a "/" within a name is written "%2F":

    ~/.local/share/sandbox-kernel/roots/N/      (of the user's home in the system's table: no variable has a say)
    /usr/local/share/sandbox-kernel/roots/N/
    /usr/share/sandbox-kernel/roots/N/

In it lie `root.json`, and whatever that names:

    {
      "format": 1,
      "contents": "sha256:…",     a digest of what went into it: what the attestation and receipts call the image
      "made": "2026-01-31",
      "size_bytes": 123456789,    of what lies in the folder
      "tree": "root",             optional: a folder beside root.json whose entries are those of "/"
      "binds": [["/usr", "/usr"], ["env", "/usr/local"]],
      "links": [["usr/bin", "/bin"], ["usr/lib", "/lib"]],
      "environment": {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    }

- `tree` is a file system as an image has it (`docker export`). Its entries are bound one by one, so it needs no folder
  for what is put beside them; those of `OURS` are left out, for a sandbox has its own.
- `binds` are pairs of a source and a place inside, in this order, after the tree: a later one may lie within an earlier
  one, where that has such a folder. A relative source lies in the root's own folder and may not leave it; an absolute
  one is this machine's (/usr, a Python's prefix, /etc/ld.so.cache), and is refused if it is, or holds, private data
  (`PRIVATE`). All are read-only, and without setuid files and device nodes.
- `links` are symbolic links: what they point to, and where they lie.
- `environment` is what an image would bring: the variables of the agent's process; those in `VARIABLES` are allowed.

Wanted inside: `python3` on that PATH, with ipykernel and pyzmq; the home that is copied for each session, if there is
one, in /opt/sandbox/home; `sh` in /bin. All of it must be readable by every user where root starts sandboxes. /etc is
the tree's, or empty, and gets `passwd`, `group`, `hosts`, `hostname`, `nsswitch.conf` and `resolv.conf` of the
sandbox's own in any case: a tree's etc must have files of these names, no links, for nothing can be put beside its own
(`passwd` and `group` of our images are links, and files take their places).

Only this process's user, or root, may be able to write to the root's folder and to root.json.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from ...core.codes import EndCode
from ...core.errors import EngineError, ImageMissing
from ...core.home_folder import home_folder
from ...engines.image_names import build_command

FORMAT = 1
DESCRIPTION = "root.json"
LARGEST_BYTES = 1 << 20

OURS = frozenset({"dev", "proc", "sys", "run", "tmp", "mnt", "home", "root", "media", "srv", "boot", "lost+found"})
"""Of a tree's entries, what a sandbox has of its own or does without."""
ETC = ("passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf")
"""What every sandbox has of its own in /etc."""
_PRIVATE = "/etc /home /root /run /var /proc /sys /dev /tmp /boot /mnt /media /srv"
PRIVATE = tuple(_PRIVATE.split())
"""No source of this machine is one of these, or holds one of them."""
SYSTEM = ("/proc", "/sys", "/dev", "/run")
"""No source lies within one of these."""
TAKEN = ("/", "/dev", "/proc", "/sys", "/tmp", "/mnt", "/run", "/etc/passwd", "/etc/group")  # noqa: S108 (inside)
"""Places inside that are not a root's to fill, nor what lies in them."""
VARIABLES = frozenset({"PATH", "LANG", "LD_LIBRARY_PATH", "SSL_CERT_FILE", "MPLCONFIGDIR", "FONTCONFIG_FILE"})

Pair = tuple[str, str]


class Root(NamedTuple):
    """What a sandbox has for its file system, all checked."""

    name: str
    folder: str
    contents: str
    made: str
    size_bytes: int
    binds: tuple[Pair, ...]
    """Sources of this machine, absolute, and places inside."""
    links: tuple[Pair, ...]
    """What a symbolic link says, and where it lies."""
    environment: Mapping[str, str]
    etc: bool
    """Whether /etc is the root's, so that files in it take the places of others."""


def folders() -> list[str]:
    """Return where roots may lie, the user's own first."""
    home = home_folder()
    places = (*((f"{home}/.local/share",) if home else ()), "/usr/local/share", "/usr/share")
    return [f"{place}/sandbox-kernel/roots" for place in places]


def folder_of(name: str) -> str | None:
    """Return the folder of a root, None where there is none."""
    written = quote(name, safe=":@+ ")
    candidates = [name] if name.startswith("/") else [f"{place}/{written}" for place in folders()]
    return next((each for each in candidates if Path(each, DESCRIPTION).is_file()), None)


def names() -> list[str]:
    from urllib.parse import unquote

    every = {path.parent.name for place in folders() for path in Path(place).glob(f"*/{DESCRIPTION}")}
    return sorted(map(unquote, every))


def find(name: str) -> Root:
    """Return a root. Raises `ImageMissing` where there is none, `EngineError` for one that must not be used."""
    folder = folder_of(name)
    if folder is None:
        command = build_command(name, "bubblewrap")
        raise ImageMissing(
            EndCode.IMAGE_MISSING,
            f"there is no root {name!r} for sandboxes without images"
            + (f": build it with: `{command}`" if command else ""),
            setting="image",
        )
    try:
        _private(folder)
        path = Path(folder, DESCRIPTION)
        _private(str(path))
        with path.open("rb") as file:
            return read(name, folder, json.loads(file.read(LARGEST_BYTES)))
    except (OSError, LookupError, TypeError, ValueError) as error:
        why = str(error) or repr(error)
        raise EngineError(
            EndCode.IMAGE_NOT_BUILT, f"the root {name!r} in {folder} cannot be used: {why}", setting="image"
        ) from error


def read(name: str, folder: str, said: Any) -> Root:
    """Check what a description says. Raises OSError, LookupError, TypeError or ValueError."""
    if said["format"] != FORMAT:
        raise ValueError(f"its format is {said['format']!r}, not {FORMAT}")
    binds, links = [], []
    if "tree" in said:
        tree = _within(folder, _text(said["tree"]))
        for entry in sorted(os.scandir(tree), key=lambda entry: entry.name):
            if entry.name in OURS:
                continue
            if entry.is_symlink():
                links.append((str(Path(entry.path).readlink()), f"/{entry.name}"))
            elif entry.is_dir():
                binds.append((entry.path, f"/{entry.name}"))
    etc = any(target == "/etc" for _, target in binds)
    for source, target in (map(_text, pair) for pair in said.get("binds", [])):
        own = not source.startswith("/")
        found = _within(folder, source) if own else _of_the_machine(source)
        binds.append((found, _place(target)))
        etc = etc or (own and target == "/etc")
    links += [(_text(says), _place(target)) for says, target in said.get("links", [])]
    environment = {_text(key): _text(value) for key, value in said.get("environment", {}).items()}
    if strange := environment.keys() - VARIABLES:
        raise ValueError(f"it sets {', '.join(sorted(strange))}")
    if etc:
        where = next(source for source, target in reversed(binds) if target == "/etc")
        if missing := [each for each in ETC if not Path(where, each).is_file() or Path(where, each).is_symlink()]:
            raise ValueError(f"its /etc has no {', '.join(missing)}")
    return Root(
        name,
        folder,
        _text(said["contents"])[:100],
        str(said.get("made", ""))[:10],
        int(said.get("size_bytes", 0)),
        tuple(binds),
        tuple(links),
        environment,
        etc,
    )


def locate(root: Root, path: str) -> str | None:
    """Return the file of this machine that a path inside leads to, None where there is none."""
    for _ in range(40):  # as many links as the kernel follows
        path = os.path.normpath(path)
        target = _followed(root, path)
        if target is None:
            break
        path = target
    source = _source(root, path)
    return source if source is not None and Path(source).exists() else None


def program(root: Root, name: str) -> str | None:
    """Return where a program lies inside, as it is found on the root's PATH; None where it is not."""
    if "/" in name:
        return name if _runs(locate(root, name)) else None
    places = root.environment.get("PATH", "/usr/local/bin:/usr/bin:/bin").split(":")
    return next((f"{place}/{name}" for place in places if _runs(locate(root, f"{place}/{name}"))), None)


def _runs(path: str | None) -> bool:
    return path is not None and Path(path).is_file() and os.access(path, os.X_OK)


def _followed(root: Root, path: str) -> str | None:
    """Return the path after its first symbolic link was followed, None where it has none."""
    parts = path.strip("/").split("/")
    for count in range(1, len(parts) + 1):
        here, rest = "/" + "/".join(parts[:count]), parts[count:]
        says = next((says for says, target in root.links if target == here), None)
        source = _source(root, here)
        if says is None and source is not None and Path(source).is_symlink():
            bound = any(target == here for _, target in root.binds)
            says = None if bound else str(Path(source).readlink())
        if says is not None:
            return os.path.join(os.path.dirname(here), says, *rest)  # noqa: PTH118, PTH120 (a path inside)
    return None


def _source(root: Root, path: str) -> str | None:
    for source, target in reversed(root.binds):
        if path == target or path.startswith(f"{target}/"):
            return source + path[len(target) :]
    return None


def _private(path: str) -> None:
    """Raise PermissionError if somebody else may write there."""
    status = os.stat(path)  # noqa: PTH116 (one way for both)
    if status.st_uid not in {0, os.geteuid()} or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"others may write to {path}")


def _within(folder: str, path: str) -> str:
    own, found = os.path.realpath(folder), os.path.realpath(f"{folder}/{path}")
    if not found.startswith(f"{own}/"):
        raise ValueError(f"{path!r} leaves the root's folder")
    if not Path(found).exists():
        raise FileNotFoundError(f"{path!r} is not there")
    return found


def _of_the_machine(path: str) -> str:
    found = os.path.realpath(path)
    home = home_folder()
    homes = (os.path.realpath(home),) if home else ()
    held = [each for each in (*PRIVATE, *homes) if found == each or each.startswith(found.rstrip("/") + "/")]
    if held or any(found.startswith(f"{each}/") for each in SYSTEM):
        raise ValueError(f"{path!r} of this machine is nobody's business inside")
    if not Path(found).exists():
        raise FileNotFoundError(f"{path!r} is not there")
    return found


def _place(path: str) -> str:
    if not path.startswith("/") or os.path.normpath(path) != path:
        raise ValueError(f"{path!r} is no place inside")
    if path in TAKEN or any(path.startswith(f"{each}/") for each in TAKEN if each != "/"):
        raise ValueError(f"{path!r} is not a root's to fill")
    return path


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise TypeError(f"{value!r} is no text")
    return value
