"""The codes of brokers: why one gives no sandbox."""

from __future__ import annotations

from enum import unique

from ...core.code import Code

_ENGINE = "Run `sandbox-kernel doctor`."


@unique
class BrokerCode(Code):
    """Why a broker gives no sandbox, or cannot be asked for one (docs/broker.md)."""

    BROKER_CANNOT_SNAPSHOT = (
        "failure",
        "a snapshot of a sandbox does not go through a broker, nor does a fork, nor what begins from one",
        'Start the sandbox without a broker: engine="qemu", in the process of the caller.',
    )
    BROKER_UNAVAILABLE = "failure", "no broker answers", "Start `sandbox-kernel broker`, or change engine."
    BROKER_STRANGER = "violation", "whoever listens in the broker's place is another user", "Name another broker."
    BROKER_IMPROPER = "failure", "what a broker and its caller said is not proper", _ENGINE
    BROKER_OTHER_VERSION = (
        "failure",
        "the broker is of another version of sandbox_kernel",
        "Start the broker again after an update, or change engine.",
    )
    BROKER_BUSY = "limit", "as many wait for the broker as may", "Try again in a moment."
    BROKER_DENIED = "limit", "the broker makes no such sandbox for this user", "Ask for what its operator allows."
    BROKER_NO_ACCOUNT = (
        "violation",
        "the user id of who asks the broker is no account of this machine",
        "Ask as a user that the machine knows: from a container, as the user who is root in it.",
    )
    LIFETIME_TOO_LONG = "limit", "a detached sandbox may not last as long", "Ask for less, or make a new one in time."
    DETACHED_OWNED = (
        "failure",
        "the detached sandbox has an owner",
        "Wait until it is left, or connect with take=True.",
    )
