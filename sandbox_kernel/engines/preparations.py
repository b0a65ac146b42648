"""What plugins prepare for one session before it is there: what goes into its sandboxes, and what serves them then."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core.model import Inside, Settings
from ..plugins import index

if TYPE_CHECKING:
    from ..plugins.api import Preparation

NOTHING: Mapping[str, Any] = {}


class Preparations:
    """See the module. Nothing of a plugin is loaded that neither the settings nor the caller ask for."""

    def __init__(
        self,
        settings: Settings,
        given: Mapping[str, object] = NOTHING,
        *,
        state: Mapping[str, Any] | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """Have all plugins prepare their parts.

        Args:
            settings: Of the session.
            given: What its caller gives to plugins, by their names.
            state: The `state` of the process before, whose sandbox goes on.
            environment: Variables of this process.

        Raises:
            ConfigurationError: One of them cannot take part.
        """
        self.given = given
        self._made: dict[str, Preparation] = {}
        for plugin in index.services(settings, given):
            if plugin.prepare is not None:
                kept = (state or NOTHING).get(plugin.name, NOTHING)
                self._made[plugin.name] = plugin.prepare(settings, given.get(plugin.name), kept, environment)

    def of(self, name: str) -> Any:
        """Return the preparation of a plugin; None if it has none."""
        return self._made.get(name)

    @property
    def inside(self) -> Inside | None:
        """What all of them have in the sandboxes together; None if no plugin prepared anything."""
        found = [one.inside for one in self._made.values()]
        if not found:
            return None
        return Inside(
            environment={name: value for one in found for name, value in one.environment.items()},
            lines=tuple(line for one in found for line in one.lines),
        )

    def state(self) -> dict[str, Any]:
        """Return what the process has to know that takes over the sandbox, by plugin."""
        return {name: one.state() for name, one in self._made.items()}
