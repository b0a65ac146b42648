"""The images and roots that this project builds, by their names, and the command that makes one which is missing."""

from __future__ import annotations

import shlex
from typing import Literal, get_args

Kind = Literal["base", "data", "r", "deno", "all"]

BY_NAME: dict[str, Kind] = {f"sandbox-kernel:{kind}": kind for kind in get_args(Kind)}
"""The kinds by the names of their images and roots."""
DEFAULT: Kind = "data"


def build_command(name: str, engine: str = "docker") -> str | None:
    """Return the command that makes an image or a root of this name, for an engine; None for what others make."""
    kind = BY_NAME.get(name)
    of_engine = "" if engine == "docker" else f" --engine {engine}"
    if kind is None and ((engine == "docker" and not name.startswith("sandbox-kernel:")) or name.startswith("/")):
        return None
    more = f" --requirements FILE --tag {shlex.quote(name)}" if kind is None else f" --kind {kind}"
    return f"sandbox-kernel build{of_engine}{'' if kind == DEFAULT else more}"
