"""An agent in a machine that began from a snapshot: its kernel begins anew before the agent answers its claim.

Runs inside the container, where the host ships its source: standard library only, and Python 3.9 and later. It ships
with what snapshots are taken of, and with nothing else.
"""

from __future__ import annotations

import json
import os
from typing import Any

from . import messages, wire
from .agent import Agent
from .kernel import Kernel


def renewing(kind: type[Agent]) -> type[Agent]:
    """Return such an agent; `kind` is one that waits for a claim."""

    class Renewing(kind):  # type: ignore[valid-type, misc]
        """Has its kernel run a line of the host's, and keeps to itself what that says."""

        claim: Any = None
        line_id = ""
        awaited: frozenset[int] = frozenset()

        def command(self, op: str, request: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
            if op != "claim" or self.claimed or self.claim is not None or self.kernel is None:
                answer: tuple[dict[str, Any], bytes] = super().command(op, request, data)
                return answer
            self.claim, self.line_id = request, os.urandom(16).hex()
            self.awaited = frozenset((wire.SHELL, wire.IOPUB))
            header = {"msg_id": self.line_id, "msg_type": "execute_request", "session": "anew", "username": "agent"}
            header.update(version="5.3", date="2000-01-01T00:00:00Z")
            content = {"code": self.config["renew"], "silent": True, "store_history": False, "user_expressions": {}}
            content.update(allow_stdin=False, stop_on_error=False)
            parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
            self.kernel.sockets[wire.SHELL].send_multipart([messages.DELIMITER, b"", *parts], self.zmq.NOBLOCK)
            return {"ok": True}, b""

        def forward(self, kernel: Kernel, kind: int) -> bool:
            if self.claim is None:
                passed: bool = super().forward(kernel, kind)
                return passed
            socket = kernel.sockets.get(kind)
            if socket is None:
                return False
            try:
                parts = messages.receive(socket, self.zmq.NOBLOCK)
            except self.zmq.Again:
                return False
            if parts is not None and len(parts) >= 4 and self.line_id.encode() in bytes(parts[1]):
                ends = b'"idle"' in bytes(parts[3]) if kind == wire.IOPUB else b'"ok"' in bytes(parts[3])
                self.awaited -= {kind} if ends else set()
            if not self.awaited:
                request, self.claim = self.claim, None
                super().command("claim", request, b"")
            return True

    return Renewing
