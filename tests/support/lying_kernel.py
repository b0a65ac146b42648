"""A kernel without a sandbox that says it is ours, and lies in every message that our extension asks for.

    python tests/support/lying_kernel.py LOG -f CONNECTION_FILE

notes the type of each such message in a file. It imports ipykernel and nothing of ours.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelapp import IPKernelApp

MARKUP = "<img src=x onerror='window.pwned=1'>"
TURNED = "evil\u202egpj.exe"
ROWS: list[Any] = [
    {"path": MARKUP, "size": 5, "modified": 1e300},
    {"path": TURNED, "size": 5, "modified": -1},
    {"path": "too long", "size": 5},
    {"path": "endless", "size": 1 << 40},
    {"path": "../../out", "size": 1},
    {"path": "/etc/passwd", "size": 1},
    {"path": "a\nb", "size": 1},
    {"path": "negative", "size": -1},
    {"path": ["list"], "size": 1},
    {"path": "text", "size": MARKUP},
    "text",
    None,
]
READS = {TURNED: (5, b"hello"), "too long": (5, b"0123456789"), "endless": (1 << 40, b"0")}
LIMITS = {"memory": MARKUP, "scratch_size": -5, "cpus": [MARKUP], "cell_timeout": 1e300, "file_limit": 1 << 60}
INFO = {
    "file_messages": {"version": 1, "chunk_bytes": 1 << 60, "waiting": "many"},
    "state_message": {"version": 1},
    "limits": LIMITS,
    "network": [MARKUP] * 1000,
    "secrets": {"a": MARKUP},
    "outputs": MARKUP,
}
ROW = {"code": MARKUP, "score": "80", "count": -1, "first_cell": 1e9, "reason": MARKUP * 1000}
BEHAVIOUR = {"risk_score": 1e9, "is_safe": MARKUP, "rows": [ROW, None, MARKUP] * 1000}
STATE = {"state": "idle", "problem": MARKUP * 1000, "idle_seconds": -1, "memory_bytes": MARKUP, "processes": 1.5}
STATE["behaviour"] = BEHAVIOUR


class LyingKernel(IPythonKernel):
    """Whatever is asked of ours has an answer."""

    control_msg_types = [  # noqa: RUF012 (so it is in ipykernel)
        *IPythonKernel.control_msg_types,
        *(f"sandbox_{what}_request" for what in ("state", "file_list", "file_read", "file_write", "file_remove")),
    ]
    noted = Path()
    pages = 0

    @property
    def kernel_info(self) -> dict[str, Any]:
        return super().kernel_info | {"implementation": "sandbox_kernel", "sandbox": INFO}

    def _say(self, stream: Any, ident: Any, parent: Any, buffers: Any = None, **content: Any) -> None:
        kind = parent["header"]["msg_type"]
        with self.noted.open("a") as log:
            log.write(f"{kind}\n")
        assert self.session is not None
        reply = kind.replace("_request", "_reply")
        self.session.send(stream, reply, {"status": "ok", **content}, parent, ident, buffers=buffers)

    async def sandbox_state_request(self, stream: Any, ident: Any, parent: Any) -> None:
        self._say(stream, ident, parent, **STATE)

    async def sandbox_file_list_request(self, stream: Any, ident: Any, parent: Any) -> None:
        """There is always one page more."""
        self.pages += 1
        more = [{"path": f"page {self.pages:09} {number}", "size": 1} for number in range(5000)]
        self._say(stream, ident, parent, files=[*ROWS, *more], more=True, complete=True)

    async def sandbox_file_read_request(self, stream: Any, ident: Any, parent: Any) -> None:
        size, data = READS[parent["content"]["path"]]
        self._say(stream, ident, parent, [data], size=size, offset="0", final="no", etag=[MARKUP])

    async def sandbox_file_write_request(self, stream: Any, ident: Any, parent: Any) -> None:
        self._say(stream, ident, parent, upload=[MARKUP], offset=-1)

    async def sandbox_file_remove_request(self, stream: Any, ident: Any, parent: Any) -> None:
        self._say(stream, ident, parent, status="error", evalue=MARKUP * 1000)


if __name__ == "__main__":
    LyingKernel.noted = Path(sys.argv[1])
    place = sys.argv.index("-f")
    IPKernelApp.launch_instance(sys.argv[place : place + 2], kernel_class=LyingKernel)
