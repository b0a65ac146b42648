"""Pure decisions about what leaves the container and how much of it: no I/O here, and no clock."""

from __future__ import annotations

from .budget import CellBudget, SessionBudget
from .outputs import OutputPolicy
from .replies import cut
from .verdict import Verdict

__all__ = ["CellBudget", "OutputPolicy", "SessionBudget", "Verdict", "cut"]
