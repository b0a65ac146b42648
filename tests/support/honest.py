"""Two hundred cells of honest work: forty kinds, five of each with other figures, in the order of a day's work.

They are what the monitor has to leave alone. All run in the image for data, in one kernel, each without the others.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROWS = b"north,pear,3\nsouth,plum,5\n" + b"north,fig,4\n" * 500
TABLES = {f"table{number}.csv": b"region,product,units\n" + ROWS for number in range(3)}
"""What is put into the sandbox first."""
SOURCE = Path(__file__).with_suffix(".txt")
TURNS = 5
BEGUN = "begun"


class Cell(NamedTuple):
    """One cell, and what a person does with it."""

    kind: str
    code: str
    fails: str | None = None
    """The exception that it ends with."""
    interrupt: bool = False
    """Whether somebody presses the button when it says that it has begun."""


KINDS = {
    kind: code.strip()
    for kind, _, code in (part.partition("\n") for part in re.split("^# %% ", SOURCE.read_text(), flags=re.M)[1:])
}
"""Code by what it does; `NUMBER` is a figure from 1 to 5."""
FAILS = {"a mistake": "KeyError", "a file that is not there": "FileNotFoundError"}


def cells() -> Iterator[Cell]:
    for turn in range(1, TURNS + 1):
        for kind, code in KINDS.items():
            stopped = BEGUN in code
            fails = "KeyboardInterrupt" if stopped else FAILS.get(kind)
            yield Cell(kind, code.replace("NUMBER", str(turn)), fails, stopped)
