"""The process in which one function of the operator's judges cells. A line of JSON comes in, and one goes out.

It ends with its stdin, whatever the function is doing. What the function prints goes nowhere.
"""

from __future__ import annotations

import importlib
import json
import os
import queue
import sys
import threading
from collections.abc import Callable
from runpy import run_path
from typing import Any

Judge = Callable[[str, list[dict[str, Any]]], tuple[float, str]]
"""Takes the code and the findings of the rules, and returns points from 0 to 100 and a reason."""


def loaded(name: str) -> Judge:
    """Return the function that `module:function` or `/PATH.py:function` names."""
    where, _, function = name.rpartition(":")
    found = run_path(where)[function] if where.startswith("/") else getattr(importlib.import_module(where), function)
    judge: Judge = found
    return judge


def main() -> None:
    """Serve until stdin ends."""
    lines: queue.Queue[bytes] = queue.Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    out = os.dup(1)
    os.dup2(2, 1)  # its stderr leads nowhere

    def say(**words: Any) -> None:
        data = json.dumps(words).encode() + b"\n"
        while data:
            data = data[os.write(out, data) :]

    try:
        judge = loaded(sys.argv[1])
    except BaseException as error:
        say(error=f"it cannot be loaded: {error!r}")
        raise
    say()
    while True:
        question = json.loads(lines.get())
        try:
            score, reason = judge(question["code"], question["findings"])
            say(score=float(score), reason=str(reason))
        except Exception as error:  # whatever it is: nothing was said of this cell, and the next may go well
            say(error=f"it failed: {error!r}")


if __name__ == "__main__":
    main()
