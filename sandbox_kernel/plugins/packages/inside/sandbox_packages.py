"""Packages that came for a session: what the sandbox has, and the unpacking of wheels behind what it has.

Runs in the kernel, from source that the host ships: standard library only, and Python 3.9 and later. The folder is the
last one that modules are looked for in, so nothing that comes replaces what the image has.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sys
import zipfile
from typing import Any

PLACE = "/mnt/data/.packages"
_LIBRARIES = ("purelib", "platlib")


def facts() -> dict[str, Any]:
    """Return what the host has to know to choose."""
    versions = {}
    for one in importlib.metadata.distributions():
        name = one.metadata["Name"]
        if name and name not in versions:
            versions[name] = one.version
    glibc = platform.libc_ver()[1].split(".")[1:2]
    return {
        "python": "%d.%d" % sys.version_info[:2],
        "architecture": platform.machine(),
        "glibc": int(glibc[0]) if glibc else 0,
        "versions": versions,
    }


def unpack(names: list[str]) -> None:
    """Unpack wheels that lie in the folder, and remove them."""
    os.makedirs(PLACE, exist_ok=True)
    for name in names:
        path = os.path.join(PLACE, os.path.basename(name))
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                target = place_of(entry.filename)
                if target is not None and not entry.is_dir():
                    os.makedirs(os.path.dirname(target), exist_ok=True)
                    with archive.open(entry) as read, open(target, "wb") as write:
                        while piece := read.read(1 << 20):
                            write.write(piece)
        os.remove(path)
    if PLACE not in sys.path:
        sys.path.append(PLACE)
    importlib.invalidate_caches()


def place_of(name: str) -> str | None:
    """Return where a file of a wheel goes; None for what no import needs, and for a name that leads elsewhere."""
    parts = name.split("/")
    if parts[0].endswith(".data"):
        if len(parts) < 3 or parts[1] not in _LIBRARIES:
            return None
        parts = parts[2:]
    if any(part in ("", ".", "..") for part in parts):
        return None
    return os.path.join(PLACE, *parts)


def answer(asked: str) -> None:
    """Do what the host asks, and print what comes of it."""
    wanted = json.loads(asked)
    if "unpack" in wanted:
        unpack(wanted["unpack"])
        sys.stdout.write(json.dumps({"ok": True}))
    else:
        sys.stdout.write(json.dumps(facts()))


def pip(line: str) -> None:
    """Install packages that the host allows: `%pip install NAME`."""
    words = line.split()
    names = [word for word in words[1:] if word not in ("-q", "--quiet", "-U", "--upgrade")]
    if words[:1] != ["install"] or not names or any(name.startswith("-") for name in names):
        sys.stderr.write("only `%pip install NAME...` is there: the host resolves and fetches for this sandbox\n")
        return
    tools: Any = importlib.import_module("_sandbox_pip")
    sys.stdout.write("Resolving %s on the host\n" % ", ".join(names))
    sys.stdout.flush()
    try:
        wheels = tools.call_and_wait("pip_install", {"requirements": names, "has": facts()})
    except tools.ToolError as error:
        sys.stderr.write("%s\n" % (error.text or error))
        return
    unpack(wheels)
    sys.stdout.write("Installed %s\n" % " ".join(wheels) if wheels else "All of that is there already\n")


def as_magic(lines: list[str]) -> list[str]:
    """Have `!pip install` mean `%pip install`, which is the only one that there is."""
    return ["%" + line.lstrip()[1:] if line.lstrip().startswith("!pip install ") else line for line in lines]


def install_magic() -> None:
    """Do it in the kernel that this runs in."""
    from IPython import get_ipython

    shell: Any = get_ipython()
    shell.register_magic_function(pip, "line", "pip")
    shell.input_transformers_cleanup.append(as_magic)
