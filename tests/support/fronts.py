"""A front end in the test's own process, on a session without sockets; and what a cell writes into the agent's pipe."""

from __future__ import annotations

import asyncio
from typing import Any

from sandbox_kernel.core.model import Message
from sandbox_kernel.session.session import Session
from tests.support.patience import within

WRITE = """
import json, os, struct
pipe = os.open('/proc/1/fd/1', os.O_WRONLY)
def write(data):
    while data: data = data[os.write(pipe, data):]
def frame(kind, *parts):
    parts = [part if isinstance(part, bytes) else json.dumps(part, default=str).encode() for part in parts]
    head = struct.pack(f'!BH{len(parts)}I', kind, len(parts), *map(len, parts))
    body = head + b''.join(parts)
    return struct.pack('!I', len(body)) + body
here = get_ipython().kernel.get_parent()['header']
def header(kind): return {'msg_id': 'forged', 'msg_type': kind}
"""


class Front:
    """A front end in the test's own process."""

    def __init__(self) -> None:
        self.delivered: list[Message] = []
        self.news = asyncio.Event()
        self.session: Session
        self.count = 0

    def deliver(self, message: Message, client: bytes | None) -> None:
        self.delivered.append(message)
        self.news.set()

    def drain(self) -> None:
        """Nothing waits to be read."""

    async def run(self, code: str, seconds: float = 30.0) -> dict[str, Any]:
        """Run a cell and return its reply, once it has that and idle, each once."""
        self.count += 1
        header = {"msg_id": f"cell-{self.count}", "msg_type": "execute_request", "session": "front", "version": "5.4"}
        header |= {"username": "", "date": "2000-01-01T00:00:00Z"}
        content = {"code": code, "allow_stdin": False, "silent": False}
        self.session.submit(Message(channel="shell", header=header, content=content), b"client")
        async with within(seconds):
            while len(self.of(header["msg_id"], "execute_reply")) + len(self.idles(header["msg_id"])) < 2:
                self.news.clear()
                await self.news.wait()
        (reply,) = self.of(header["msg_id"], "execute_reply")
        assert len(self.idles(header["msg_id"])) == 1
        return dict(reply.content)

    def of(self, identity: str, kind: str) -> list[Message]:
        return [m for m in self.delivered if m.parent.get("msg_id") == identity and m.type == kind]

    def idles(self, identity: str) -> list[Message]:
        return [m for m in self.of(identity, "status") if m.content["execution_state"] == "idle"]

    def text(self) -> str:
        return "".join(m.content["text"] for m in self.delivered if m.type == "stream")
