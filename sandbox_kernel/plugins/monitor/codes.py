"""The codes of behaviour: what the monitor notices in a sandbox while it runs. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.code import Code

_LOOK = "Look at what the code does, and at the audit around that time."
_RULE = "Add a rule to network if the code is meant to reach it; else look at what it does."
_WORK = "See whether the code is meant to compute for so long; if it is, raise the rule's seconds."


@unique
class MonitorCode(Code):
    """What the monitor notices while code runs, if it is on (docs/monitor.md)."""

    MANY_DENIALS = "notice", "one connection after another was refused", _RULE
    METADATA_SOUGHT = "violation", "the metadata service of a cloud was looked for, which hands out credentials", _LOOK
    REMOVED_OUTPUTS = "violation", "outputs had to be freed of what may act, load or leak", _LOOK
    FORGED_MESSAGES = "violation", "messages came that no honest kernel sends", _LOOK
    UNFIT_FILES = "violation", "files were made that may not leave the sandbox", _LOOK
    WIRE_GARBAGE = "violation", "bytes came that no agent sends", _LOOK
    PROCESSES_REFUSED = (
        "violation",
        "one process after another was refused, for all that there may be were there",
        "Raise pids if the code needs more of them; else look at what it does, as a fork bomb does this.",
    )
    MANY_LIMITS = "limit", "one limit after another was met", "Give the code what it needs, or look at what it does."
    KERNELS_DIE_YOUNG = "notice", "kernels died soon one after another", _LOOK
    MANY_KERNELS = "notice", "kernels had to be replaced again and again", _LOOK
    BUSY_IN_SILENCE = "notice", "the processors were busy for long, and a cell showed nothing for it", _WORK
    BUSY_WITHOUT_CELL = "violation", "the processors were busy while no cell ran", _WORK
    SCRAMBLED_INPUTS = (
        "violation",
        "files that were given to the sandbox are gone, with noise in their place",
        "Keep the originals, and look at what the code does: ransomware leaves files so.",
    )
    DROPPED_PROGRAM = (
        "violation",
        "a program runs that lies where cells write",
        "Look at what the code starts; a program that belongs there is in the image.",
    )
    NOT_WATCHED = (
        "notice",
        "the host cannot see the processes of this sandbox, so no rule looks at its programs",
        "Use Docker on this machine as root, or bubblewrap, or switch the rule off.",
    )
