"""What a caller opens a sandbox with: the settings, and what is of the sandbox itself or of hosted ones.

Imports config.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..config.sources import from_keywords
from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import Settings
from . import environment_variables
from .ownership import Ownership
from .values import Attached, seconds

HOSTED_TEMPLATES = frozenset(("base", "code-interpreter-v1"))
"""Templates that hosted interpreters have by default: what code means by them is a Python with the usual packages."""
OF_A_SERVICE = frozenset((
    "access_token", "api_headers", "api_key", "api_url", "debug", "domain", "headers", "http_version",
    "idempotency_key", "logger", "proxy", "request_timeout", "retries", "sandbox_url", "secure", "validate_api_key",
))  # fmt: skip
"""How a hosted service is reached: accepted, so that code which is moved over runs, and of no effect here."""


@dataclass(frozen=True, slots=True)
class SandboxOptions:
    """See the module."""

    settings: Settings
    seconds: float | None
    """How long the sandbox may last; None is as long as it is used."""
    metadata: dict[str, str]
    given: Mapping[str, object] = field(default_factory=dict)
    """What its caller gives to plugins, by their names."""
    detached: bool | Attached = False
    notebook_cell: str | None = None
    """The cell of a notebook that is run next, whose figures share a library; None where each result stands alone."""

    def ownership(self) -> Ownership:
        """Return whose the sandbox is. Raises `ConfigurationError` for one that cannot outlive this process."""
        if self.detached is False:
            return Ownership(self.settings, self.seconds)
        from .ownership import keeper

        return keeper().ownership(self.settings, self.seconds, self.metadata, self.detached)

    @classmethod
    def of(cls, given: Settings | str | None, keywords: Mapping[str, Any]) -> SandboxOptions:
        """Check what a caller gives. Raises `ConfigurationError`."""
        rest = {name: value for name, value in keywords.items() if name not in OF_A_SERVICE}
        life, metadata, envs = rest.pop("timeout", None), rest.pop("metadata", None), rest.pop("envs", None)
        given_tools = rest.pop("tools", None)
        detached, lifetime = rest.pop("detached", None) or False, rest.pop("lifetime", None)
        template, internet = rest.pop("template", None), rest.pop("allow_internet_access", None)
        if internet:
            raise ConfigurationError(
                UsageCode.WRONG_ARGUMENT,
                "a sandbox has no way to the internet as a whole; name the hosts that its cells may reach",
                setting="network",
            )
        if isinstance(given, str):
            given, template = None, given
        if given is None:
            if template is not None and template not in HOSTED_TEMPLATES:
                rest.setdefault("image", template)
            if isinstance(rest.get("network"), Mapping):
                rest["network"] = _allowed(rest["network"])
            settings = replace(from_keywords(**rest), charts=True)
        elif rest or template is not None:
            name = next(iter(rest), "template")
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


_AS_IT_IS = (("allow_public_traffic", False), ("allow_public_traffic", None), ("mask_request_host", None))
"""What hosted interpreters are asked for, and no sandbox here is otherwise."""


def _allowed(network: Mapping[str, Any]) -> list[str]:
    """Return the rules in the form of hosted interpreters: `{"allow_out": [...]}`.

    What asks for no more than is so in any case (`"allow_public_traffic": False`) is accepted; all else is refused.
    """
    asked = {name: value for name, value in network.items() if name != "deny_out" and (name, value) not in _AS_IT_IS}
    hosts = asked.pop("allow_out", [])
    if asked or not isinstance(hosts, (list, tuple)):
        name, value = next(iter(asked.items()), ("allow_out", hosts))
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            f"a sandbox has no {name}={value!r}"[:200]
            + ': network is a list of hosts that cells may reach, or {"allow_out": '
            "[...]}; all else is denied, and nothing reaches a sandbox from outside",
            setting="network",
        )
    return list(hosts)


def _texts(metadata: object) -> dict[str, str]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(
        isinstance(part, str) for item in metadata.items() for part in item
    ):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "metadata is a mapping of text to text", setting="metadata")
    return dict(metadata)
