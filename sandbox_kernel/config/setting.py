"""One setting: its name everywhere, and how it is written. `table` has them all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from ..core.model import Limits, Settings, format_bytes
from .values import Form

Scope = Literal["sandbox", "session", "process"]
"""What keeps the value of a setting.

sandbox: what a sandbox is made with, also as a snapshot; nobody can change it later. session: what the host does with
the cells of one user's sandbox. process: where a process of the host writes and what it starts; a process that takes a
sandbox over has its own. The default grants least: another user's value of a session's setting counts for nothing.
"""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing a user can choose: its name everywhere, how it is written, and what it means."""

    name: str
    """Also of its field: of `Limits` if that has such a field, else of `Settings`."""
    form: Form[Any]
    help: str
    default_text: str | None = None
    singular: str | None = None
    """What its flag is called, if a flag gives one of several."""
    scope: Scope = "session"

    @property
    def field(self) -> str:
        """The name of its field. One alone has another: `Settings.limits` is all limits, and not how they are kept."""
        return "limits_kept" if self.name == "limits" else self.name

    @property
    def flag(self) -> str:
        return "--" + (self.singular or self.name).replace("_", "-")

    @property
    def metavar(self) -> str:
        """What stands for a value in the help of a command."""
        return self.form.metavar

    @property
    def default(self) -> Any:
        return getattr(Limits() if self.is_limit else Settings(), self.field)

    @property
    def default_for_people(self) -> str:
        if self.default_text is not None:
            return self.default_text
        is_size, is_time = self.metavar == "SIZE", self.metavar == "TIME"
        return format_bytes(self.default) if is_size else f"{self.default:g} s" if is_time else str(self.default)

    @property
    def is_limit(self) -> bool:
        return self.field in Limits.__dataclass_fields__
