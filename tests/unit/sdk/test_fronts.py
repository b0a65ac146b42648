"""Who hears what of a session that a call and others use together."""

from __future__ import annotations

from typing import Any, cast

from sandbox_kernel.core.model import Message
from sandbox_kernel.sdk.cell_request import CellFront


class Taking:
    """A call under way."""

    client = b"cell"

    def __init__(self) -> None:
        self.took: list[str] = []

    def take(self, message: Message) -> None:
        self.took.append(message.type)


def told(kind: str) -> Message:
    return Message(channel="shell", header={"msg_type": kind}, parent={"msg_id": "cell"})


def test_a_reply_to_another_client_that_took_the_id_of_a_call_is_none_of_that_call_s() -> None:
    """It is refused for that id, and the call would have ended with the refusal."""
    cells = {"cell": Taking()}
    front = CellFront(cast("dict[str, Any]", cells))
    front.deliver(told("execute_reply"), b"another")
    front.deliver(told("stream"), None)
    front.deliver(told("execute_reply"), Taking.client)
    assert cells["cell"].took == ["stream", "execute_reply"]
