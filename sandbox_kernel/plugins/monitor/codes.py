"""The codes of behaviour: what the monitor notices in a sandbox while it runs. Imports code only."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_RULE = "Add a rule to network if the code is meant to reach it; else look at what it does."
_LOOK = "Look at what the code does, and at the audit around that time."


@unique
class MonitorCode(Code):
    """What the monitor notices while code runs, if it is on (docs/monitor.md)."""

    MANY_DENIALS = "notice", "many connections were refused", _RULE
    METADATA_SOUGHT = (
        "violation",
        "a connection to a cloud's metadata service, which hands out credentials, was tried",
        _LOOK,
    )
    REMOVED_OUTPUTS = "violation", "outputs that could act, load or leak were removed", _LOOK
    FORGED_MESSAGES = "violation", "messages came that no honest kernel sends", _LOOK
    UNFIT_FILES = "violation", "files were made that may not leave the sandbox", _LOOK
    WIRE_GARBAGE = "violation", "bytes came that no agent sends", _LOOK
    PROCESSES_REFUSED = (
        "violation",
        "the limit of processes was hit again and again",
        "Raise pids if the code needs it; else look at what it does: a fork bomb does this.",
    )
    MANY_LIMITS = "limit", "many limits were hit", "Give the code what it needs, or look at what it does."
    KERNELS_DIE_YOUNG = "notice", "several kernels died soon after their start", _LOOK
    MANY_KERNELS = "notice", "kernels had to be replaced again and again", _LOOK
    BUSY_IN_SILENCE = (
        "notice",
        "the processors were busy for long without output",
        "If the code is meant to compute for so long, raise the rule's seconds.",
    )
    BUSY_WITHOUT_CELL = "violation", "the processors were busy while no cell ran", _LOOK
    SCRAMBLED_INPUTS = (
        "violation",
        "input files are gone, with noise in their place",
        "Keep the originals, and look at what the code does: ransomware does this.",
    )
    DROPPED_PROGRAM = (
        "violation",
        "a program runs that lies where cells write",
        "Look at what the code starts. Put programs that belong there into the image.",
    )
    SECRET_SOUGHT = (
        "violation",
        "code looked for secrets that lie in well-known places, or tried to change files of the system",
        "Look at what the code does. Nothing of it is in a sandbox: what is found there is the image's own.",
    )
    PORT_SCAN = "violation", "connections were tried to many different addresses or ports", _LOOK
    ESCAPE_TRIED = (
        "violation",
        "a system call was tried by which code gets out of a container",
        "Look at what the code does. Debuggers and tracers do this, too: switch the rule off for those.",
    )
    NOT_WATCHED = (
        "notice",
        "the host cannot see all that this sandbox does",
        "Use Docker as root on this machine, or bubblewrap, or switch the rule off.",
    )
