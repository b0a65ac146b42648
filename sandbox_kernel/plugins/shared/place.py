"""Which sandbox is meant by a name: where its owner listens, and what it is made of."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict
from typing import Any

from ...core.errors import ConfigurationError
from ...core.model import Settings
from ...core.package_files import installation
from ...engines import broker_sockets
from .codes import SharedCode

DEFAULT = "notebooks"
"""The name of the sandbox that is meant by "shared" alone."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")
DATA = ("datasets", "volumes")
"""Settings of a plugin that are of the sandbox."""


def name_of(address: str) -> str:
    """Return the name in an address, "shared" or "shared:///NAME"."""
    return address.partition(":///")[2] or DEFAULT


def socket_of(address: str) -> str:
    """Return where the owner of a sandbox listens. Raises `ConfigurationError` for what is no name."""
    if not NAME.fullmatch(name := name_of(address)):
        code = SharedCode.SHARED_NOT_STARTED.note(name=name[:40], why="that is no name")
        raise ConfigurationError(code, value=name[:100], setting="engine")
    # Another version of this package would have another agent.
    return f"{broker_sockets.own_folder()}/shared/{name}-{installation()[:8]}.sock"


def described(settings: Settings, engine: str) -> dict[str, Any]:
    """Return what a shared sandbox is made of, as plain JSON: of a kernel's settings all that is of the sandbox."""
    return {
        "engine": engine,
        "runtime": settings.runtime,
        "image": settings.image,
        "limits": asdict(settings.limits),
        "limits_kept": settings.limits_kept,
        "time_zone": settings.time_zone,
        "data": {name: list(settings.get(name, ())) for name in DATA if settings.get(name, ())},
    }


def digest(said: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()
