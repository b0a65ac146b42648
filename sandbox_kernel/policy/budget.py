"""How much a cell and a session may send, decided message by message. Does no I/O."""

from __future__ import annotations

from ..core.codes import EndCode, Survived
from ..core.errors import OutputLimit
from ..core.model import Limits, format_bytes

SESSION_CELLS = 100
"""A session may send as much as this many cells that each reach their limit: it bounds the front end's document."""
MAX_COMMS = 1000
"""Comms open at once. A notebook with a hundred sliders has three hundred: control, layout and style of each."""
MAX_DISPLAYS = 10_000
"""Displays whose ids are remembered, so that they can be updated; older ones keep what they show."""

MAX_REPLY = 12 << 20
"""Bytes that a reply may cost in memory as it is kept, all others that wait for their idle included.

A whole session's history and the largest help text that a pager is asked for need a tenth of it.
"""

FILTER_SECONDS, LAST_SECONDS = 30.0, 2.0
"""Of the processor, that the policy may take for one cell; and for what is still to come once its end was asked for.

The largest honest outputs need a tenth of it. Behind a message that is looked at, all others of the sandbox wait.
"""


class _Budget:
    """Bytes and messages used, each against its limit; once a limit is passed, nothing more is allowed."""

    def __init__(self, scope: str, max_bytes: int, max_messages: int, max_message: int) -> None:
        self.bytes = 0
        self.messages = 0
        self.exceeded: OutputLimit | None = None
        """What to end the cell with, once a charge was refused."""
        self._scope = scope
        self._max_bytes, self._max_messages, self._max_message = max_bytes, max_messages, max_message

    def charge(self, nbytes: int, messages: int = 1) -> bool:
        """Count one message of `nbytes`, buffers included, and return whether it may pass.

        `messages` is 0 for what a kernel owes, statuses and replies: it counts by its size alone.
        """
        if self.exceeded is None:
            self.bytes += nbytes
            self.messages += messages
            within = self.bytes <= self._max_bytes and self.messages <= self._max_messages
            if within and nbytes <= self._max_message:
                return True
            self.exceeded = self._limit(nbytes)
        return False

    def _limit(self, nbytes: int) -> OutputLimit:
        """Return the limit that a message of so many bytes has passed, alone or with those before it."""
        if nbytes > self._max_message:
            return OutputLimit(
                EndCode.MESSAGE_TOO_LARGE,
                limit=format_bytes(self._max_message),
                value=format_bytes(nbytes),
                setting="message_limit",
                kept=Survived.VARIABLES_AND_FILES,
            )
        if self.bytes > self._max_bytes:
            return OutputLimit(
                EndCode.OUTPUT_TOO_LARGE.note(who=self._scope),
                limit=format_bytes(self._max_bytes),
                value=format_bytes(self.bytes),
                setting="output_limit",
                kept=Survived.VARIABLES_AND_FILES,
            )
        return OutputLimit(
            EndCode.TOO_MANY_MESSAGES.note(who=self._scope),
            limit=f"{self._max_messages} messages",
            value=f"{self.messages} messages",
            setting="output_messages",
            kept=Survived.VARIABLES_AND_FILES,
        )


class CellBudget(_Budget):
    """The output of one cell."""

    def __init__(self, limits: Limits) -> None:
        super().__init__("cell", limits.output_limit, limits.output_messages, limits.message_limit)
        self._seconds = FILTER_SECONDS

    def hurry(self) -> None:
        """Allow what is still to come the little time that an honest cell's last words need."""
        self._seconds = min(self._seconds, LAST_SECONDS)

    def spend(self, seconds: float) -> None:
        """Count the processor's time that a look at a message took; nothing is allowed once there is none left."""
        self._seconds -= seconds
        if self._seconds < 0 and self.exceeded is None:
            self.exceeded = OutputLimit(
                EndCode.OUTPUT_TOO_SLOW,
                limit=f"{FILTER_SECONDS:g} s of this machine's processor, {LAST_SECONDS:g} s after an interrupt",
                kept=Survived.VARIABLES_AND_FILES,
            )


class SessionBudget(_Budget):
    """The output of a whole session, that of threads between cells included."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(
            "session",
            SESSION_CELLS * limits.output_limit,
            SESSION_CELLS * limits.output_messages,
            limits.message_limit,
        )
