"""What this plugin adds: an extension of Jupyter Server, which `setup` switches on and `doctor` looks for."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

from ...core.model import Settings
from ..api import Diagnosis, Plugin


def switch_on(options: argparse.Namespace, folder: Path) -> int:
    """Switch it on in the place of the kernelspec, if this environment has a Jupyter Server."""
    from . import server_configuration

    if server_configuration.is_needed():
        print(f"browser     {server_configuration.switch_on(user=options.user, prefix=options.prefix)}")
    return 0


def inventory(settings: Settings) -> Mapping[str, Diagnosis]:
    from .server_configuration import look

    return {"browser": look()}


PLUGIN = Plugin(name="browser_policy", page="docs/jupyterlab.md", after_setup=switch_on, inventory=inventory)
