"""Comms: what the policy asks of those that it lets through, and how it refuses them where there are none.

Whose comms may pass is a plugin's to say, which is loaded with the first one that is opened: a start takes in none.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from ..core.codes import OutputCode
from .json_check import is_id
from .verdict import Notes, RefusedError, named

TARGET, CONTROL = "jupyter.widget", "jupyter.widget.control"
VIEW = "application/vnd.jupyter.widget-view+json"


class Sent(NamedTuple):
    """The content of a comm's message and the buffers that go with it."""

    content: Mapping[str, Any]
    buffers: tuple[Any, ...] = ()


class Comms(Protocol):
    """The open comms of a kernel."""

    @property
    def strangers(self) -> Mapping[str, str]:
        """Models that were not let through, and the package that each is of."""

    @property
    def took_over(self) -> bool:
        """Whether one ever took over what a cell shows: it tells the kernel all of that."""

    def model_shown(self, model_id: str) -> bool: ...

    def displayed(self, model_id: str, parent: str, *, new: bool, again: bool) -> bool:
        """Return whether a display of `parent` may show a widget, and note where it comes to lie.

        `new` says that it is a display and not an update of one, `again` that it has an id.
        """

    def takes_over(self, parent: str, work: int, *, new: bool) -> int | None:
        """Return what it costs in all its places that a cell displays something; None if that is too much."""

    def work(self, model_id: str) -> int:
        """Return the elements of a page that a widget with all in it counts as."""

    def cleared(self, parent: str) -> None:
        """Note that a cell clears its output."""

    def front_opens(self, comm_id: str, target: str, data: Any) -> None:
        """Note that the front end opens a comm."""

    def closed(self, comm_id: str) -> None:
        """Note that a comm is closed, by whom ever."""

    def open(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        """Return an opening by the kernel as it may pass. Raises `RefusedError`, as the next two do."""

    def message(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent: ...
    def close(self, content: Mapping[str, Any]) -> Sent: ...


class NoComms:
    """A kernel without an open comm."""

    strangers: Mapping[str, str] = {}
    took_over = False

    def model_shown(self, model_id: str) -> bool:
        return False

    def displayed(self, model_id: str, parent: str, *, new: bool, again: bool) -> bool:
        return False

    def takes_over(self, parent: str, work: int, *, new: bool) -> int | None:
        return work

    def work(self, model_id: str) -> int:
        return 0

    def cleared(self, parent: str) -> None:
        pass

    def front_opens(self, comm_id: str, target: str, data: Any) -> None:
        pass

    def closed(self, comm_id: str) -> None:
        pass

    def open(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        comm_id = content.get("comm_id")
        if not isinstance(comm_id, str) or not is_id(comm_id):
            raise RefusedError(OutputCode.COMM_WITHOUT_ID)
        raise RefusedError(OutputCode.COMM_TARGET, target=named(content.get("target_name")))

    def message(self, content: Mapping[str, Any], buffers: Sequence[Any], parent: str, notes: Notes) -> Sent:
        raise RefusedError(OutputCode.COMM_NOT_OPEN)

    def close(self, content: Mapping[str, Any]) -> Sent:
        raise RefusedError(OutputCode.COMM_END_NOT_OPEN)
