"""What a caller opens a sandbox with: the settings, and what is of the sandbox itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..config.sources import from_keywords
from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import Settings
from . import environment_variables
from .ownership import Ownership, keeper, own
from .values import AttachedSandbox, seconds


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """See the module."""

    settings: Settings
    seconds: float | None
    """How long the sandbox may last; None is as long as it is used."""
    metadata: dict[str, str]
    given: Mapping[str, object] = field(default_factory=dict)
    """What its caller gives to plugins, by their names."""
    detached: bool | AttachedSandbox = False
    notebook_cell: str | None = None
    """The cell of a notebook that is run next, whose figures share a library; None where each result stands alone."""

    def ownership(self) -> Ownership:
        """Return whose the sandbox is. Raises `ConfigurationError` for one that cannot outlive this process."""
        if self.detached is False:
            return own(self.settings, self.seconds)
        return keeper().ownership(self.settings, self.seconds, self.metadata, self.detached)

    @classmethod
    def of(cls, given: Settings | str | None, keywords: Mapping[str, Any]) -> SandboxOptions:
        """Check what a caller gives. Raises `ConfigurationError`."""
        rest = dict(keywords)
        life, metadata, envs = rest.pop("timeout", None), rest.pop("metadata", None), rest.pop("envs", None)
        given_tools = rest.pop("tools", None)
        detached, lifetime = rest.pop("detached", None) or False, rest.pop("lifetime", None)
        if isinstance(given, str):
            rest.setdefault("image", given)
            given = None
        if given is None:
            settings = replace(from_keywords(**rest), charts=True)
        elif rest:
            name = next(iter(rest))
            raise ConfigurationError(UsageCode.NOT_TOGETHER, "give either settings or keywords", setting=name)
        else:
            settings = given
        if envs:
            settings = replace(settings, environment=environment_variables.of_sandbox(envs))
        life = _life(life, lifetime, detached=detached is not False)
        to_plugins = {} if given_tools is None else {"tools": given_tools}
        return cls(settings, None if life is None else seconds(life), _texts(metadata), to_plugins, detached)


def _life(life: object, lifetime: object, *, detached: bool) -> object:
    """Return how long it may last. Raises `ConfigurationError` for what does not go together."""
    if not detached:
        if lifetime is not None:
            raise ConfigurationError(UsageCode.NOT_DETACHED, setting="lifetime")
        return life
    if life is not None and lifetime is not None:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "timeout and lifetime are the same", setting="lifetime")
    return life if lifetime is None else lifetime


def _texts(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(part, str) for item in metadata.items() for part in item
    ):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "metadata is a mapping of text to text", setting="metadata")
    return dict(metadata)
