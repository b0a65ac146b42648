"""Programs of Jupyter, started as `python -m NAME` starts them, but for a second of processor.

jsonschema makes a parser of IRIs at its import, if it finds that library, and JupyterLab brings it; no test needs it.
"""

from __future__ import annotations

import sys

_START = """import runpy, sys
sys.modules["rfc3987_syntax"] = None
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)"""


def program(name: str, *switches: str) -> list[str]:
    """Return the command of a module, for its arguments to follow; `switches` are those of Python."""
    return [sys.executable, *switches, "-c", _START, name]
