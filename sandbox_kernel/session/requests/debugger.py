"""The debugger of a kernel, as far as clocks go: a cell that stands at a breakpoint waits for a person.

Only while a front end has attached one: a cell can forge the debugger's words.
"""

from __future__ import annotations

from .clocks import Clocks
from .queue import RequestQueue

GO_ON = frozenset({"continue", "next", "stepIn", "stepOut", "disconnect", "terminate"})
"""Commands after which a cell runs again."""


class Debugger:
    """What front ends asked the debugger, and what it says."""

    def __init__(self, requests: RequestQueue, clocks: Clocks) -> None:
        self._requests = requests
        self._clocks = clocks
        self.attached = False

    def asked(self, command: str) -> None:
        """Note a command of a front end."""
        if command == "attach":
            self.attached = True
        elif command in {"disconnect", "terminate"}:
            self.attached = False
        if command in GO_ON:
            for request in self._requests.running_cells():
                self._clocks.resume(request)

    def said(self, event: object) -> None:
        """Take in an event of the kernel's."""
        for request in self._requests.running_cells():
            if event == "stopped":
                self._clocks.pause(request)
            elif event == "continued":
                self._clocks.resume(request)

    def forget_kernel(self) -> None:
        self.attached = False
