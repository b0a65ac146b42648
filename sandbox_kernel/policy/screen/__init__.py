"""Code that is about to run, read before it does: what it looks like it would do, by rules that are data.

It is triage and not the wall: whatever it does not find runs in the sandbox all the same. No I/O, no clock, and
nothing of a cell is run.

- `value`: What is known of a value without running anything.
- `fold`: Constants that are composed or decoded, computed here.
- `cell`: A cell as IPython would run it: prompts, magics, `!` and `?` turned into Python, line for line.
- `finding`: What the screen says of a cell: its findings, which of them were allowed, and a score.
- `book`: All rules together, ready to be asked.
- `own`: An operator's file of rules: TOML that adds rules, weighs them, switches them off.
- `notes`: What is being found while a cell is read.
- `shell`: Commands of a shell: split into simple ones, unwrapped, and asked after by the rules.
- `paths`: What a path means to whoever reads, writes or deletes it.
- `places`: Paths that functions put together: parts that are joined, a home folder, what a loop finds in a folder.
- `desk`: What the parts of the reader share while they read one cell, and what is carried to the next.
- `source`: The text of a cell before it is a tree.
- `sizes`: How large and how often: what asks for more memory, disk or time than a session has.
- `sinks`: Where something goes that came from elsewhere.
- `call`: One call as values, and the usual names of what has several.
- `meanings`: Calls with a meaning of their own: what imports, executes, opens, deletes, or asks a shell.
- `calls`: What is known of the result of a call.
- `operators`: Operators between two values.
- `binding`: What binds names: assignments, and the loops within expressions.
- `expressions`: Expressions, evaluated as far as nothing has to be run for it.
- `magics`: Magics of IPython: which of them run Python, which a shell, which another language.
- `loops`: Loops and functions that have no end, by their shape.
- `reader`: Reads one cell from its first to its last statement.
- `sarif`: Findings of files in SARIF 2.1.0, the form that code hosts show beside a change.
- `screen`: The screen of one session: cells in their order, and what was read before.
"""

from __future__ import annotations

from .book import Book, Changes
from .finding import Finding, Screened
from .screen import Screen

__all__ = ["Book", "Changes", "Finding", "Screen", "Screened"]
