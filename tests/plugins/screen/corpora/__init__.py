"""The corpora of the screen: snippets that look like attacks, by family, and honest cells, all written for it.

The reviewed ones were written by somebody who had not read the rules, and are not in the figures of the corpora.

A file has snippets between lines of three equals signs; a word behind them begins a family. A third of the attacks is
held out: rules were written without looking at what the screen says of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent


def read(*names: str) -> Iterator[tuple[str, str]]:
    """Yield each snippet of the files with its family."""
    for name in names:
        family, lines = "", list[str]()
        for line in [*(HERE / name).read_text(encoding="utf-8").split("\n"), "==="]:
            if line.startswith("==="):
                if "".join(lines).strip():
                    yield family, "\n".join(lines).strip("\n")
                family, lines = line[3:].strip() or family, []
            else:
                lines.append(line)


@cache
def attacks() -> tuple[tuple[str, str], ...]:
    """Return all attacks, each with its family."""
    return tuple(read("attacks_1.txt", "attacks_2.txt"))


def is_held_out(snippet: str) -> bool:
    """Return whether a snippet was not looked at while the rules were written."""
    return hashlib.sha256(snippet.encode()).digest()[0] % 3 == 0


@cache
def honest() -> tuple[tuple[str, str], ...]:
    """Return honest cells, each with what it is about."""
    return tuple(read("honest.txt"))


@cache
def reviewed(kind: str) -> tuple[str, ...]:
    """Return what a reviewer wrote: `risky` snippets, or `honest` cells."""
    return tuple(snippet for _, snippet in read(f"review_{kind}.txt"))
