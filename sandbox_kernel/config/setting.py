"""One setting: its name everywhere, and how it is written. `table` has them all.

A plugin's settings are the fields of a frozen dataclass of its own: `setting` gives each its row.

Public: plugins may import it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeVar

from ..core.model import Limits, Settings, format_bytes
from .forms import Form

T = TypeVar("T")
Scope = Literal["sandbox", "session", "caller", "process"]
"""What keeps the value of a setting.

sandbox: what a sandbox is made with, also as a snapshot; it cannot be changed later. session: what the host does with
the cells of one user's sandbox. caller: what a process of the host does for cells; a sandbox that outlives it cannot
have it. process: where a process of the host writes, what it starts and how it is reached; a process that takes a
sandbox over has its own. The default grants least: another user's value of a session's setting counts for nothing.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing a user can choose: its name everywhere, how it is written, and what it means."""

    name: str
    """Also of its field: of `Limits` if that has such a field, else of `owner`."""
    form: Form[Any]
    help: str
    default_text: str | None = None
    singular: str | None = None
    """What its flag is called, if a flag gives one of several."""
    scope: Scope = "session"
    owner: type[Any] = Settings
    """The class that has its value."""

    @property
    def field(self) -> str:
        """The name of its field. One alone has another: `Settings.limits` is all limits, and not how they are kept."""
        return "limits_kept" if self.name == "limits" else self.name

    @property
    def flag(self) -> str:
        return "--" + (self.singular or self.name).replace("_", "-")

    @property
    def default(self) -> Any:
        return self.value(Settings())

    @property
    def default_for_people(self) -> str:
        if self.default_text is not None:
            return self.default_text
        if self.default is None or isinstance(self.default, tuple):
            return ", ".join(self.default or ()) or "none"
        is_size, is_time = self.form.metavar == "SIZE", self.form.metavar == "TIME"
        return format_bytes(self.default) if is_size else f"{self.default:g} s" if is_time else str(self.default)

    @property
    def is_limit(self) -> bool:
        return self.field in Limits.__dataclass_fields__

    def value(self, settings: Settings) -> Any:
        """Return what was chosen."""
        of_settings = settings if self.owner is Settings else settings.of(self.owner)
        return getattr(settings.limits if self.is_limit else of_settings, self.field)


def setting(
    default: T,
    form: Form[Any],
    words: str,
    default_text: str | None = None,
    *,
    singular: str | None = None,
    scope: Scope = "session",
) -> T:
    """Return a field of a plugin's class of settings, as `Setting` describes it."""
    row = {"form": form, "help": words, "default_text": default_text, "singular": singular, "scope": scope}
    return field(default=default, metadata=row)


def rows(owner: type[Any]) -> tuple[Setting, ...]:
    """Return the settings that are the fields of a plugin's class."""
    return tuple(Setting(one.name, **one.metadata, owner=owner) for one in fields(owner))
