"""What this plugin adds: hosts that cells may reach, and secrets for them that cells never see."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...core.model import Settings
from ..api import Diagnosis, Plugin, Preparation
from .codes import NetworkCode, SecretCode


def prepare(settings: Settings, given: object, state: Mapping[str, Any], environment: Mapping[str, str]) -> Preparation:
    """Return the network of a session; a caller gives what hears of each connection that was denied.

    Raises `ConfigurationError` if a secret cannot be read.
    """
    from .preparation import Network

    return Network(settings, state, heard=given if callable(given) else None, environment=environment)


def diagnose(settings: Settings, environment: Mapping[str, str]) -> Diagnosis:
    """Return what the settings name that is not here."""
    from . import diagnosis

    return diagnosis.diagnose(settings, environment)


PLUGIN = Plugin(
    name="network",
    page="docs/network.md",
    extra="secrets",
    codes={"Network": NetworkCode, "Secrets": SecretCode},
    prepare=prepare,
    diagnose=diagnose,
    no_snapshot=lambda settings: "its cells have connections to hosts or secrets",
)
