"""What this plugin adds: hosts that cells may reach, and secrets for them that cells never see."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from ...core.errors import SandboxError
from ...core.model import Settings
from ...core.remedies import install_words
from ..api import Diagnosis, Plugin, Preparation, Problem
from .codes import NetworkCode, SecretCode

if TYPE_CHECKING:
    from .settings import NetworkSettings


def prepare(settings: Settings, given: object, state: Mapping[str, Any], environment: Mapping[str, str]) -> Preparation:
    """Return the network of a session; a caller gives what hears of each connection that was denied.

    Raises `ConfigurationError` if a secret cannot be read.
    """
    from .session_network import Network

    return Network(settings, state, heard=given if callable(given) else None, environment=environment)


def diagnose(settings: Settings, environment: Mapping[str, str]) -> Diagnosis:
    """Return what a session of these settings would miss that had these variables.

    Reads the values of secrets, as a kernel would at its start, and keeps none.
    """
    from .settings import NetworkSettings

    network = settings.of(NetworkSettings)
    there = f"rules: {len(network.network)}, secrets: {len(network.secrets)}; what they name is there"
    return Diagnosis(there, tuple(_problems(settings, network, environment)))


def _problems(settings: Settings, network: NetworkSettings, environment: Mapping[str, str]) -> Iterator[Problem]:
    """Yield what a session of these settings would miss that had these variables."""
    if network.secrets and find_spec("cryptography") is None:
        yield Problem("secrets need the library cryptography, which is not here", install_words("secrets"))
        return
    readable = True
    for source in network.secrets:
        from .secret_value import read

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
        from .session_network import Network

        Network(settings if readable else settings.having(replace(network, secrets=())), environment=environment)
    except SandboxError as error:
        yield Problem(str(error), f"repair what the setting {getattr(error, 'setting', None) or 'network'} names")


PLUGIN = Plugin(
    name="network",
    page="docs/network.md",
    extra="secrets",
    codes={"Network": NetworkCode, "Secrets": SecretCode},
    prepare=prepare,
    diagnose=diagnose,
    no_snapshot=lambda settings: "its cells have connections to hosts or secrets",
)
