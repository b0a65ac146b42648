"""What the settings `network` and `secrets` need of this machine: packages, files, variables, and a network of its own.

Reads the values of secrets, as a kernel would at its start, and keeps none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec

from ...core.errors import SandboxError
from ...core.model import Settings
from ...core.pip_extras import install_words
from ..api import Diagnosis, Problem
from .settings import NetworkSettings

EXTRA = install_words("secrets")


def diagnose(settings: Settings, environment: Mapping[str, str]) -> Diagnosis:
    """Return what a session of these settings would miss that had these variables."""
    network = settings.of(NetworkSettings)
    there = f"rules: {len(network.network)}, secrets: {len(network.secrets)}; what they name is there"
    return Diagnosis(there, tuple(_problems(settings, environment)))


def _problems(settings: Settings, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what a session of these settings would miss that had these variables."""
    network = settings.of(NetworkSettings)
    if network.secrets and find_spec("cryptography") is None:
        yield Problem("secrets need the library cryptography, which is not here", EXTRA)
        return
    readable = True
    for source in network.secrets:
        from .value import read

        try:
            read(source, environment)
        except SandboxError as error:
            readable = False
            if source.kind == "env" and source.place not in environment:
                remedy = f"set {source.place} where Jupyter is started, or keep the value in a file"
                yield Problem(str(error), remedy, certain=False)
            else:
                yield Problem(str(error), f"{source.kind} {source.place}: docs/secrets.md says what it may be")
    try:
        from .preparation import Network

        Network(settings if readable else settings.having(replace(network, secrets=())), environment=environment)
    except SandboxError as error:
        yield Problem(str(error), f"repair what the setting {getattr(error, 'setting', None) or 'network'} names")
