"""What happens in a session, each as a value: what was refused, removed, ended, copied or connected.

`Services.emit` tells all who listen; where an audit is kept, each is a line of it. Here are those of the nucleus, and
those of plugins that other plugins match on; a plugin has its own beside its code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

from .codes import Code

ABSENT: Any = type("_Absent", (), {"__repr__": lambda self: "ABSENT"})()
"""The value of a field that a line does not have; None is a value that it has."""


@dataclass_transform(kw_only_default=True, frozen_default=True, eq_default=False)
class SessionEvent:
    """Something that happened. A subclass's annotations are the fields of the line, in their order.

    To type checkers each is a frozen dataclass; made as one, all of them together would cost a start 20 ms.
    """

    name: ClassVar[str]
    """What the line says that it is."""
    _names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        cls._names += tuple(cls.__dict__.get("__annotations__", ()))  # noqa: RUF063 (inspect takes 10 ms)

    def __init__(self, **given: Any) -> None:
        names = self._names
        if not given.keys() <= set(names) or not all(name in given or hasattr(type(self), name) for name in names):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(names)}")
        self.__dict__.update(given)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.line()})"

    def having(self, **changes: Any) -> Self:
        """Return the same event with other values."""
        return type(self)(**self.__dict__ | changes)

    def line(self) -> dict[str, Any]:
        """Return the fields of its line: codes by their names, and without what is absent. Texts may be hostile."""
        values = ((name, getattr(self, name)) for name in self._names)
        return {name: value.code if isinstance(value, Code) else value for name, value in values if value is not ABSENT}

    @property
    def room(self) -> str:
        """What bounds how many of it are written down, together with others of the same."""
        return self.name

    @property
    def first(self) -> tuple[str, str] | None:
        """What it is about, for events of which a cell has a first line whatever else there is.

        A word of ours, and a name that a cell may have invented: its first line takes no room from the word's.
        """
        return None


# --- a sandbox, its kernel, and the processes that have them ---


class SandboxAttested(SessionEvent):
    """A sandbox was found to have the protections that it should have."""

    name = "attested"
    container: str
    """As its engine names it: an operator's list begins with that, whoever started the sandbox."""
    image: str
    image_id: str | None
    runtime: str


class SandboxEnded(SessionEvent):
    """A sandbox was lost, or ended."""

    name = "sandbox_ended"
    error: str
    code: Code
    reason: str


class ContainerLeft(SessionEvent):
    """A container could not be removed."""

    name = "left"
    container: str
    reason: str


class ContainersReaped(SessionEvent):
    """What earlier processes had left was removed."""

    name = "reaped"
    containers: int


class ReapFailed(SessionEvent):
    """What earlier processes had left could not be looked for."""

    name = "reap_failed"
    reason: str


class SandboxNotKept(SessionEvent):
    """A sandbox could not be kept for the next kernel process."""

    name = "not_kept"
    reason: str


class KernelReplaced(SessionEvent):
    """Somebody asked for another kernel in the sandbox."""

    name = "restart"


class KernelEnded(SessionEvent):
    """A kernel died, or was killed."""

    name = "kernel_died"
    error: str
    code: Code
    reason: str
    tail: str
    """What it wrote last, as a person would read it in a terminal."""


class SandboxFrozen(SessionEvent):
    """A sandbox was paused."""

    name = "paused"


class SandboxThawed(SessionEvent):
    """A sandbox that was paused goes on."""

    name = "resumed"


class CheckpointUsed(SessionEvent):
    """The variables of a sandbox were kept in it, or are again what they were then. What a cell does is its code."""

    name = "checkpoint"
    op: str
    """`checkpoint` or `restore`."""
    checkpoint: str


class MemoryGivenBack(SessionEvent):
    """The memory of a paused sandbox went back to the machine."""

    name = "memory given back"


class MemoryKept(SessionEvent):
    """The memory of a paused sandbox did not go back to the machine."""

    name = "memory kept"
    reason: str


class DefectMet(SessionEvent):
    """Our own code failed."""

    name = "defect"
    type: str
    reason: str


# --- requests and messages ---


class OutputRemoved(SessionEvent):
    """A message passed without something, or not at all, for what it would have shown."""

    name = "policy"
    type: str
    """Of the message."""
    code: Code
    reason: str


class MessageDropped(SessionEvent):
    """A message did not pass, for what it is."""

    name = "dropped"
    code: Code
    reason: str
    type: str
    last: str = ABSENT
    """Says that no more of this is written in this session."""


class RequestRefused(SessionEvent):
    """A front end asked for what is not served."""

    name = "refused"
    reason: str
    code: Code = ABSENT
    last: str = ABSENT
    """Says that no more of this is written by this process."""


class MessageLost(SessionEvent):
    """A front end that reads too slowly, or not at all, was not sent a message."""

    name = "lost"
    reason: str
    last: str = ABSENT


class RequestCompleted(SessionEvent):
    """A request had half of its end, and was given the other."""

    name = "completed"
    reason: str


class RequestCondemned(SessionEvent):
    """A request is being ended by the host."""

    name = "condemned"
    request: str
    error: str
    code: Code
    reason: str


class EscalationFailed(SessionEvent):
    """A step that should have ended a request could not be taken; the next one follows."""

    name = "escalation"
    reason: str


class KernelFlooded(SessionEvent):
    """A kernel sent more than a session may have, outside of a cell."""

    name = "flood"
    code: Code | None
    reason: str
    type: str


# --- files ---


class FileTransferred(SessionEvent):
    """A file went in or came out, or was changed by the caller."""

    name = "file"
    op: str
    path: str
    bytes: int = ABSENT
    sha256: str | None = ABSENT


class FileNotTransferred(SessionEvent):
    """A file did not go in or come out."""

    name = "file_refused"
    op: str = ABSENT
    """upload or download, for the folders of a person."""
    type: str = ABSENT
    """Of the message that asked for it."""
    path: str
    code: Code
    reason: str


class UploadDropped(SessionEvent):
    """The end of an upload in parts never came."""

    name = "file_dropped"
    path: str
    bytes: int


# --- of plugins, for others to match on ---


class CellRecorded(SessionEvent):
    """A cell has ended, and its figures are known: the plugin `record`."""

    name = "cell"
    about: dict[str, Any]

    def line(self) -> dict[str, Any]:
        return self.about


class ConnectionEnded(SessionEvent):
    """A connection of a cell, or one request of it, reached a host or was refused: the plugin `network`."""

    name = "network"
    code: Code
    reason: str
    cell: str
    host: str = ABSENT
    port: int = ABSENT
    method: str = ABSENT
    status: int = ABSENT
    address: str = ABSENT
    """Of the host, if it was reached."""
    rule: str = ABSENT
    """The setting's, by which it might be reached."""
    bytes_in: int = ABSENT
    bytes_out: int = ABSENT
    seconds: float = ABSENT

    @property
    def is_connected(self) -> bool:
        """Whether it reached a host."""
        return self.code.code == "connected"

    @property
    def room(self) -> str:
        """What reached a host has its own: a cell cannot fill it with what is denied, and connect afterwards."""
        if self.is_connected:
            return "network, connected"
        return "network" if self.address is ABSENT else "network, broken off"

    @property
    def first(self) -> tuple[str, str]:
        """A rule, or else a code, and a host: a cell cannot fill the room with one host, and turn to another one."""
        about = self.code.code if self.room == "network" or self.rule is ABSENT else self.rule
        return str(about), f"{None if self.host is ABSENT else self.host} {self.code.code}"


class CallsWatched(SessionEvent):
    """A sandbox says whether it sees which calls are tried in it."""

    name = "calls_watched"
    watching: bool


class CallTried(SessionEvent):
    """Something was tried in a sandbox, most of which honest code does not do. Its own word, which may be untrue."""

    name = "call_tried"
    call: str
    """A system call's name; `connect` was made, all others were refused. `secret` and `program` are no calls: code
    looked for one, or starts one."""
    target: str = ABSENT
    """The address and port of a connection ("?" if they could not be read), what secret it is, or a program's name."""
    program: str
    thread: int
    """The first that tried, as the sandbox numbers it."""
    count: int


class RuleMet(SessionEvent):
    """What cells do met a rule: the plugin `monitor`."""

    name = "monitor"
    code: Code
    level: str
    reason: str
    count: float
    seconds: float
    quiet: bool = ABSENT
    """True for a further cell of which nobody is alerted, since the rule was met shortly before."""


class ToolCalled(SessionEvent):
    """A cell called a tool of the host's: the plugin `tools`."""

    name = "tool"
    code: Code
    reason: str
    tool: str | None
    cell: str | None
    seconds: float
    bytes_in: int
    bytes_out: int


class ToolRefused(ToolCalled):
    """A tool was not called at all."""

    name = "tool_refused"


Emit = Callable[[SessionEvent], None]
"""Tells all who listen of an event. Never raises."""
