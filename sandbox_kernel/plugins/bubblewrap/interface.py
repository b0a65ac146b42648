"""What others may use of bubblewrap's: an engine whose program runs in such a sandbox.

No module outside of this folder imports another one of it, but for `roots`.
"""

from __future__ import annotations

from .ahead import group_for
from .arguments import ETC_MOUNTS, PROC, arguments, etc, mounts, variables
from .container import KILL_SECONDS, BubblewrapContainer, taken_over
from .discovery import bubblewrap_program, reachable
from .engine import BubblewrapEngine
from .engine_errors import missing, no_proc, unreachable
from .inspection import compared, look
from .launch import Guest, Launched, Way, await_end, drops, has_own_proc, launch, machine, way
from .process_labels import has_ended
from .reaper import kill, reaper
from .root_lookup import Root
from .root_lookup import find as find_root
from .root_lookup import program as program_in

__all__ = (
    "ETC_MOUNTS",
    "KILL_SECONDS",
    "PROC",
    "BubblewrapContainer",
    "BubblewrapEngine",
    "Guest",
    "Launched",
    "Root",
    "Way",
    "arguments",
    "await_end",
    "bubblewrap_program",
    "compared",
    "drops",
    "etc",
    "find_root",
    "group_for",
    "has_ended",
    "has_own_proc",
    "kill",
    "launch",
    "look",
    "machine",
    "missing",
    "mounts",
    "no_proc",
    "program_in",
    "reachable",
    "reaper",
    "taken_over",
    "unreachable",
    "variables",
    "way",
)
