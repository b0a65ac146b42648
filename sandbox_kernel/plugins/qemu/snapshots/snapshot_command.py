"""`sandbox-kernel snapshots`, and what `doctor` and `reap` do about snapshots."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from ....config.sources import from_files_for_all, resolve
from ....core.codes import UsageCode
from ....core.errors import ConfigurationError, FileNotThere, FileRefused
from ....core.model import Settings, format_bytes
from ....policy.safe_text import columns, ours
from ....sdk.values import Snapshot
from ... import api
from ..codes import SnapshotCode
from ..settings import QemuSettings
from .store import Store


def add_options(one: argparse.ArgumentParser) -> None:
    one.add_argument("action", nargs="?", choices=("list", "delete"), default="list", help="default: %(default)s")
    one.add_argument("names", nargs="*", metavar="NAME", help="of those to delete")
    one.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Do what the action says; `plugin.list_snapshots` has the words for people."""
    store = Store.of(resolve(from_files_for_all() | options.values))
    if (options.action == "delete") != bool(options.names):
        words = "snapshots delete needs a NAME" if options.action == "delete" else "snapshots list takes no NAME"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, words)
    if options.action == "delete":
        for name in options.names:
            if not store.delete(name):
                raise FileNotThere(SnapshotCode.SNAPSHOT_MISSING.note(name=name))
            _say(f"removed {name}")
        return 0
    found = store.list()
    if options.json:
        rows = [{"name": one.name, "made": one.made, "bytes": one.bytes, **_spec(one.about)} for one in found]
        _say(json.dumps(rows, indent=2))
    elif not found:
        _say("there is no snapshot")
    else:
        _say(columns([_row(one, _spec(one.about)) for one in found]))
        _say(ours(f"{format_bytes(sum(one.bytes for one in found))} in {store.path}"))
    return 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def _spec(about: Any) -> dict[str, str]:
    """Return the fields of its sandbox's spec that are text."""
    spec = about.get("spec") if isinstance(about, dict) else None
    given = spec if isinstance(spec, dict) else {}
    return {name: str(given[name])[:200] for name in ("engine", "image") if isinstance(given.get(name), str)}


def _row(one: Snapshot, spec: dict[str, str]) -> dict[str, str]:
    return {
        "name": one.name,
        "taken": time.strftime("%Y-%m-%d %H:%M", time.localtime(one.made)),
        "size": format_bytes(one.bytes),
        "engine": spec.get("engine", "?"),
        "image": spec.get("image", "?"),
    }


def inventory(settings: Settings) -> Mapping[str, api.Diagnosis]:
    """Return what is to be said of this user's snapshots; nothing where there is none."""
    try:
        found = Store.of(settings).list()
    except FileRefused as error:
        return {"snapshots": api.Diagnosis("", (api.Problem(str(error), error.code.remedy),))}
    size, most = sum(one.bytes for one in found), settings.of(QemuSettings).snapshots_size
    said = f"{len(found)}, {format_bytes(size)} of {format_bytes(most)}"
    return {"snapshots": api.Diagnosis(said)} if found else {}


def tidy(settings: Settings) -> str:
    """Remove what is too old, or was never finished; return how many snapshots that were."""
    count = Store.of(settings).tidy()
    return f"{count} {'snapshot' if count == 1 else 'snapshots'}" if count else ""
