"""What behaviour is worth a note, an alert or an end: rules as data, and pure counting; no I/O here, and no clock.

None of it is the wall. What it is told of may be incomplete.

- `rules`: The table of rules, and how a level or an operator's table changes it.
- `signals`: What an event of the audit means for the rules.
- `programs`: What runs in a sandbox, as samples of its processes say.
- `windows`: Counting: when a rule is met, and how often that is said.
- `pulse`: Processors that are busy for long.
- `scramble`: Files that were given to a sandbox, and noise in their place.
"""

from __future__ import annotations

from .programs import Programs
from .pulse import Pulse, look_every
from .rules import BadTable, Finding, Signal, of_level, of_table
from .scramble import Scramble
from .signals import heard
from .windows import Windows

__all__ = [
    "BadTable",
    "Finding",
    "Programs",
    "Pulse",
    "Scramble",
    "Signal",
    "Windows",
    "heard",
    "look_every",
    "of_level",
    "of_table",
]
