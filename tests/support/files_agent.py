"""Stand-ins for a session's `ask`: the real agent code in this process, and one that lies."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from sandbox_kernel.container import file_requests
from sandbox_kernel.files import scratch_files
from sandbox_kernel.files.file_rules import FileLimits

Answer = tuple[dict[str, Any], bytes]


async def real(op: str, data: bytes = b"", **fields: Any) -> Answer:
    """The agent's own code on `file_requests.ROOT`; requests and replies pass through JSON as on the wire."""
    reply, content = file_requests.handle(op, json.loads(json.dumps(fields)), data)
    return json.loads(json.dumps(reply)), content


async def read(ask: scratch_files.Ask, path: str, limit: int = FileLimits().file_bytes) -> bytes:
    """Return the content of a file of the sandbox, of at most `limit` bytes."""
    return b"".join([data async for data in scratch_files.stream(ask, path, limit)])


class Liar:
    """Answers some operations with a script, everything else as the real agent would; counts the questions."""

    def __init__(self, **script: Callable[..., Any]) -> None:
        self.script = script
        self.asked: list[str] = []

    async def __call__(self, op: str, data: bytes = b"", **fields: Any) -> Any:
        self.asked.append(op)
        if len(self.asked) > 10_000:
            raise AssertionError("the host asks for ever")
        answer = self.script.get(op.removeprefix("file."))
        return await real(op, data, **fields) if answer is None else answer(data=data, **fields)
