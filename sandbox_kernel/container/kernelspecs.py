"""The kernels that an image has besides its Python: its kernelspecs, and how one of them is started.

Runs inside the container, where the host ships its source if a sandbox has such a kernel: standard library only, and
Python 3.9 and later. It reads files of the image, which no cell can write to.
"""

from __future__ import annotations

import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FOLDERS = ("/usr/local/share/jupyter/kernels", "/usr/share/jupyter/kernels")
"""Where an image has its kernelspecs, besides the folder of its Python."""
FILE = "kernel.json"
MAX_BYTES = 1 << 16
MAX_NAMES = 50
PYTHONS = ("python", "python%d" % sys.version_info[0], "python%d.%d" % sys.version_info[:2])
"""Words that mean the Python which a kernelspec belongs to."""


def folders() -> list[str]:
    """Return the folders in which kernelspecs are looked for, the first of a name counts."""
    return list(dict.fromkeys((os.path.join(sys.prefix, "share/jupyter/kernels"), *FOLDERS)))


def names() -> list[str]:
    """Return the names of the kernelspecs that there are, without those of Python itself."""
    found: set[str] = set()
    for folder in folders():
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        found.update(name for name in entries if os.path.isfile(os.path.join(folder, name, FILE)))
    return sorted(found - {"python3", "python"})[:MAX_NAMES]


def read(name: str) -> dict[str, Any]:
    """Return how a kernel is started. Raises OSError and ValueError, if it cannot be.

    What a kernel does otherwise than most is in its metadata, `{"sandbox_kernel": {…}}`: "transport" is "tcp" for one
    that knows no ipc, and is connected by the sandbox's loopback; "idle_early" is true for one that may publish outputs
    of a cell after the cell's idle.
    """
    for folder in folders():
        home = os.path.join(folder, name)
        if os.path.isfile(os.path.join(home, FILE)):
            break
    else:
        raise FileNotFoundError(name)
    with open(os.path.join(home, FILE), encoding="utf-8") as file:
        said = json.loads(file.read(MAX_BYTES))
    try:
        own = said.get("metadata", {}).get("sandbox_kernel", {})
        argv = [str(word).replace("{resource_dir}", home).replace("{prefix}", sys.prefix) for word in said["argv"]]
        env = {str(key): str(value) for key, value in said.get("env", {}).items()}
        spec = {
            "argv": [program(argv[0]), *argv[1:]],
            "env": env,
            "interrupt_mode": said.get("interrupt_mode", "signal"),
            "transport": own.get("transport", "ipc"),
            "idle_early": own.get("idle_early") is True,
            "language": str(said["language"]),
            "display_name": str(said["display_name"]),
        }
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        raise ValueError("it is no kernelspec: %r" % error) from None
    if spec["interrupt_mode"] not in ("signal", "message") or spec["transport"] not in ("ipc", "tcp"):
        raise ValueError("its interrupt_mode or transport is of no known kind")
    return spec


def program(word: str) -> str:
    """Return the path of a program. Raises ValueError if there is none."""
    if word in PYTHONS:
        return sys.executable
    path = os.environ.get("PATH") or "/usr/local/bin:/usr/bin:/bin"
    for folder in [""] if "/" in word else path.split(":"):
        if os.access(found := os.path.join(folder, word), os.X_OK):
            return found
    raise ValueError("its program %s is not there" % word)


def choose(config: dict[str, Any]) -> None:
    """Have `config` start the kernelspec that it names; if that cannot be, it says what is missing."""
    name = config["kernelspec"]
    try:
        config["program"] = read(name)
    except FileNotFoundError:
        config["missing"] = {"names": names()}
    except (OSError, ValueError) as error:
        config["missing"] = {"names": names(), "why": str(error)}


def described() -> list[dict[str, str]]:
    """Return what front ends show of the kernelspecs; those that cannot be started are left out."""
    found = []
    for name in names():
        try:
            spec = read(name)
        except (OSError, ValueError):
            continue
        found.append({"name": name, "display_name": spec["display_name"], "language": spec["language"]})
    return found
