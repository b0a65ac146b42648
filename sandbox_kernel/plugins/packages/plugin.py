"""What this plugin adds: packages into sandboxes that run, by `install` and, with the setting `packages`, by cells."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.model import Settings
from ..api import Plugin, Preparation, SandboxHandle
from .codes import PackageCode


def prepare(settings: Settings, given: object, state: Mapping[str, Any], environment: Mapping[str, str]) -> Preparation:
    """Return what lets cells install packages."""
    from .installation import PackagesOfCells

    return PackagesOfCells(settings)


def sdk(sandbox: SandboxHandle) -> Any:
    """Return what installs packages into one sandbox for its caller."""
    from .installation import Packages

    return Packages(sandbox)


PLUGIN = Plugin(
    name="packages",
    page="docs/sdk.md",
    codes={"Packages": PackageCode},
    prepare=prepare,
    sdk=sdk,
    no_snapshot=lambda settings: "its cells may install packages",
    python_alone=True,
)
