"""What this plugin adds: images and roots with packages of a user's own."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from ..api import Plugin
from .codes import RequirementCode

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from ...wheels.image_wheels import Wheels


def requirements(path: Path) -> tuple[str, Callable[..., Wheels]]:
    """Read a file of requirements."""
    from .own_wheels import resolved
    from .requirements import read

    wanted = read(path)
    return wanted.identity, partial(resolved, wanted=wanted)


PLUGIN = Plugin(
    name="requirements", page="docs/images.md", codes={"Requirements": RequirementCode}, requirements=requirements
)
