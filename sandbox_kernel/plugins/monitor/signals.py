"""What an event of the audit means for the rules: a table of events, by their codes. Pure; looks into no sentence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...core.codes import Code, EndCode, MessageCode
from .. import index
from .codes import MonitorCode
from .rules import Signal

_GARBAGE = frozenset(
    (EndCode.NOT_FRAMES, EndCode.INTRODUCED_TWICE, EndCode.PARKED_AND_SPOKE, EndCode.NOT_ATTESTED, EndCode.NOT_READING)
)
_ASKED_FOR = frozenset((EndCode.KERNEL_RESTARTED, EndCode.BEHAVIOUR_BLOCKED))
"""Ends of kernels that somebody wanted; the monitor's own are not counted against the code again."""
METADATA_SERVICE = "metadata-service"
"""The code of a connection to one; it is another plugin's."""
MAX_SHOWN = 60


def heard(event: str, fields: Mapping[str, Any]) -> Iterator[Signal]:
    """Yield what an event of the audit counts for. What is of no account yields nothing."""
    code = _code(fields)
    what = code.code if code is not None else ""
    if event == "network" and code is not None:
        yield from _network(code, fields)
    elif event == "policy" and code is not None and code.severity == "violation":
        yield Signal(MonitorCode.REMOVED_OUTPUTS, 1, what)
    elif event == "dropped" and code is not None and code.severity == "violation":
        # What a kernel that is on its way out still says is no forgery.
        if code is not MessageCode.NO_KERNEL_READY:
            yield Signal(MonitorCode.FORGED_MESSAGES, 1, what)
    elif event == "file_refused" and fields.get("op") == "download" and code is not None:
        if code.severity == "violation":
            yield Signal(MonitorCode.UNFIT_FILES, 1, what)
    elif event in {"condemned", "flood"} and code is not None and code.severity == "limit":
        yield Signal(MonitorCode.MANY_LIMITS, 1, what)
    elif event == "kernel_died":
        yield from _death(code, what)
    elif event == "restart":
        yield Signal(MonitorCode.MANY_KERNELS, 1, "restart")
    elif event == "sandbox_ended":
        if code in _GARBAGE:
            yield Signal(MonitorCode.WIRE_GARBAGE, 1, what)
        elif code is EndCode.NO_KERNEL_STARTS:
            yield Signal(MonitorCode.KERNELS_DIE_YOUNG, 1, what)
        elif code is EndCode.OUT_OF_MEMORY:
            yield Signal(MonitorCode.MANY_LIMITS, 1, what)


def _network(code: Code, fields: Mapping[str, Any]) -> Iterator[Signal]:
    if code.severity != "violation":
        return
    what = ascii(str(fields.get("host") or code.code)[:MAX_SHOWN]).strip("'\"")
    yield Signal(MonitorCode.MANY_DENIALS, 1, what)
    if code.code == METADATA_SERVICE:
        yield Signal(MonitorCode.METADATA_SOUGHT, 1, what)


def _death(code: Code | None, what: str) -> Iterator[Signal]:
    if code in _ASKED_FOR:
        return
    yield Signal(MonitorCode.MANY_KERNELS, 1, what)
    if code is EndCode.OUT_OF_MEMORY:
        yield Signal(MonitorCode.MANY_LIMITS, 1, what)
    else:
        yield Signal(MonitorCode.KERNELS_DIE_YOUNG, 1, what)


def _code(fields: Mapping[str, Any]) -> Code | None:
    """Return the code that an event has, None for one without."""
    try:
        return index.code(str(fields["code"]))
    except KeyError:
        return None
