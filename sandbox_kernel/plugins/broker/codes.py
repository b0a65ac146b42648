"""The codes of brokers: why one gives no sandbox."""

from __future__ import annotations

from enum import unique

from ...core.codes import Code

_START = "Start one where the message says, or change engine."
_ENGINE = "Run `sandbox-kernel doctor`."
_ALLOWED = "Ask for what its operator allows."


@unique
class BrokerCode(Code):
    """Why a broker gives no sandbox, or cannot be asked for one (docs/broker.md)."""

    BROKER_CANNOT_SNAPSHOT = (
        "failure",
        "snapshots and forks are not available through a broker",
        "Start the sandbox without a broker: engine = qemu.",
    )
    BROKER_UNAVAILABLE = "failure", "no broker answers", _START
    BROKER_STRANGER = "violation", "another user listens at the broker's address", "Name another broker."
    BROKER_IMPROPER = "failure", "a message between a broker and its caller is malformed", _ENGINE
    BROKER_OTHER_VERSION = (
        "failure",
        "the broker is of another version of sandbox_kernel",
        "End that broker, and start one of this version.",
    )
    BROKER_BUSY = "limit", "too many requests are waiting for the broker", "Try again in a moment."
    BROKER_DENIED = "limit", "the broker makes no such sandbox for this user", _ALLOWED
    BROKER_NO_PATHS = (
        "limit",
        "a dataset of an operator's broker is asked for by its name, and not by a folder",
        "Leave out the folder: datasets = sales. Its operator lists the names.",
    )
    BROKER_NO_ACCOUNT = (
        "violation",
        "the caller's user id is no account of this machine",
        "Ask as a user of the machine; in a container, as its root.",
    )
    LIFETIME_TOO_LONG = "limit", "a detached sandbox may not last as long", _ALLOWED
    OF_THE_CALLER = (
        "failure",
        "a detached sandbox cannot have what its caller's process does for cells",
        "Leave out what is named, or make the sandbox without detached=True.",
    )
    DETACHED_NOT_PREPARED = (
        "failure",
        "the detached sandbox was made without what would serve that",
        "Connect without what is named, or make another sandbox with it.",
    )
    DETACHED_HAS_DATA = (
        "violation",
        "the detached sandbox has datasets or volumes of the user who made it",
        "Have that user copy what you need into a sandbox without them.",
    )
    DETACHED_OWNED = (
        "failure",
        "the detached sandbox has an owner",
        "Wait until its owner leaves it, or connect with take=True.",
    )
