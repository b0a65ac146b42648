"""This checkout and this machine's Python in pods: both mounted from the node, which is this machine."""

from __future__ import annotations

import sys
import sysconfig
from typing import Any

from tests.support import ROOT

FOLDERS = {"/python": sys.base_prefix, "/package": str(ROOT), "/site": sysconfig.get_path("purelib")}
"""Where pods have this machine's folders."""
ENVIRONMENT = {
    "PYTHONHOME": "/python",
    "PYTHONPATH": "/package:/site",
    "LD_LIBRARY_PATH": "/python/lib",
    "PYTHONDONTWRITEBYTECODE": "1",
    "HOME": "/tmp",
}
PYTHON = ("/python/bin/python3",)


def volumes() -> list[dict[str, Any]]:
    return [{"name": path[1:], "hostPath": {"path": folder}} for path, folder in FOLDERS.items()]


def mounts() -> list[dict[str, Any]]:
    return [{"name": path[1:], "mountPath": path, "readOnly": True} for path in FOLDERS]


def variables() -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]
