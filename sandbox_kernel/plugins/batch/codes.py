"""The codes of this plugin: what a batch run refuses, and how it ends."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_FORGED = "No real kernel sends this: look at what the code does."


@unique
class BatchCode(Code):
    """What a batch run refuses, and how it ends."""

    INPUT_REFUSED = "failure", "an input cannot be copied in", "Give other inputs."
    PARAMETERS_WRONG = "failure", "the parameters cannot be used", "Give a mapping of names to values."
    RUN_TIMEOUT = "limit", "the run took longer than its time limit", "Raise --total-timeout."
    CLOCK_NOT_SHIFTED = (
        "failure",
        "the image has no libfaketime that shifts its clock",
        "Build the image anew, or install Debian's package libfaketime in your own.",
    )
    NOT_IN_NOTEBOOK = "violation", "left out an output that a notebook cannot hold: {why}", _FORGED
    MORE_DROPPED = "violation", "more messages were dropped than are listed", _FORGED
