"""`sandbox-kernel snapshots`: which there are, how large and how old; and one removed."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from ..config.sources import from_files_for_all
from ..core.codes import SnapshotCode, UsageCode
from ..core.errors import ConfigurationError, FileNotThere
from ..core.model import format_bytes
from ..files.snapshots import Store
from ..policy.safe_text import ours
from ..setup.install import check
from .commands import FINE
from .ps_command import columns

SHOWN = ("snapshots_size", "snapshots_age")
"""The settings that concern it."""


def add_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("action", nargs="?", choices=("list", "delete"), default="list", help="default: %(default)s")
    one.add_argument("names", nargs="*", metavar="NAME", help="of those to delete")
    one.add_argument("--json", action="store_true", help="print JSON")


def snapshots(options: argparse.Namespace) -> int:
    """List the snapshots of sandboxes that this user has, or delete some.

    What is older than `snapshots_age` is removed before. A snapshot has all that its sandbox had in memory.
    """
    store = Store.of(check(from_files_for_all() | options.values))
    if (options.action == "delete") != bool(options.names):
        words = "snapshots delete needs a NAME" if options.action == "delete" else "snapshots list takes no NAME"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, words)
    if options.action == "delete":
        for name in options.names:
            if not store.delete(name):
                raise FileNotThere(SnapshotCode.SNAPSHOT_MISSING.note(name=name))
            print(f"removed {name}")
        return FINE
    found = store.list()
    if options.json:
        rows: list[dict[str, Any]] = [
            {"name": one.name, "made": one.made, "bytes": one.bytes, **_spec(one.about)} for one in found
        ]
        print(json.dumps(rows, indent=2))
    elif not found:
        print("there is no snapshot")
    else:
        print(columns([_row(one.name, one.made, one.bytes, _spec(one.about)) for one in found]))
        print(ours(f"{format_bytes(sum(one.bytes for one in found))} in {store.path}"))
    return FINE


def _spec(about: Any) -> dict[str, str]:
    """Return what is said of its sandbox, as far as that is text."""
    spec = about.get("spec") if isinstance(about, dict) else None
    given = spec if isinstance(spec, dict) else {}
    return {name: str(given[name])[:200] for name in ("engine", "image") if isinstance(given.get(name), str)}


def _row(name: str, made: float, size: int, spec: dict[str, str]) -> dict[str, str]:
    day = time.strftime("%Y-%m-%d %H:%M", time.localtime(made))
    return {
        "name": name,
        "taken": day,
        "size": format_bytes(size),
        "engine": spec.get("engine", "?"),
        "image": spec.get("image", "?"),
    }
