"""Which packages cells may ask for. Pure; names as packaging reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from .codes import PackageCode


@dataclass(frozen=True, slots=True)
class Allowed:
    """Which packages cells may ask for, by the setting: names, with the extras that they may have, or `*` for all."""

    rules: tuple[str, ...]

    def check(self, texts: Sequence[str]) -> None:
        """Raise `ConfigurationError` for what is not allowed."""
        extras: dict[str, set[str]] = {}
        for rule in self.rules:
            if rule != "*":
                parsed = Requirement(rule)
                extras.setdefault(canonicalize_name(parsed.name), set()).update(parsed.extras)
        for text in texts:
            try:
                wanted = Requirement(text)
            except InvalidRequirement:
                raise ConfigurationError(
                    UsageCode.PACKAGE_IMPROPER, f"{text[:100]!r} is no name of a package with versions"
                ) from None
            name = canonicalize_name(wanted.name)
            if "*" not in self.rules and not (name in extras and wanted.extras <= extras[name]):
                shown = f"{name}[{','.join(sorted(wanted.extras))}]" if wanted.extras else name
                raise ConfigurationError(
                    PackageCode.PACKAGE_NOT_ALLOWED, f"{shown} is no package that cells may install", setting="packages"
                )
