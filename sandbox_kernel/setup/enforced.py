"""What each wall enforces, row by row: the one table of it, of which `doctor --walls` and SECURITY.md are made.

Data; each cell is held against real sandboxes by the tests. The columns are those of `walls`, in its order.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Holds = Literal["yes", "no", "partly"]


class Cell(NamedTuple):
    """Whether one wall enforces one thing, and what there is to say of it."""

    holds: Holds
    words: str = ""

    def __str__(self) -> str:
        return f"{self.holds}, {self.words}" if self.words else self.holds


class Row(NamedTuple):
    """One thing that may be enforced."""

    code: str
    name: str
    cells: tuple[Cell, ...]


YES, NO = Cell("yes"), Cell("no")
COUNTED = Cell("no", "memory counts them")


def row(code: str, name: str, *cells: Cell) -> Row:
    """Return a row of which the last wall is like the one before it, or all are alike, unless it is said."""
    return Row(code, name, (*cells, *cells[-1:] * (4 - len(cells))))


ROWS = (
    row("network", "No network, and no service of the machine's within reach", YES),
    row("processes", "Processes of its own", YES),
    row("ipc", "Shared memory and queues of its own", YES),
    row("names", "A host name of its own", YES),
    row("within", "No further namespaces within it", YES, Cell("no", "they are gVisor's own"), YES),
    row(
        "user",
        "A user whom nothing else of the machine has",
        YES,
        Cell("no", "one inside, and outside nobody's, as all of gVisor's are"),
        Cell("partly", "if root starts it; else it is the user who does, under another number inside"),
    ),
    row("files", "None of the machine's files, but what it is made of", YES),
    row("root", "A root that cannot be written to", YES),
    row(
        "sys",
        "Nothing of /sys",
        Cell("no", "read-only, and what tells of the machine is covered"),
        Cell("no", "gVisor's own"),
        Cell("yes", "but for its own cgroup"),
        YES,
    ),
    row("kernel", "A kernel of its own between its calls and the machine's", NO, YES, NO),
    row("calls", "Our list of system calls, by the engine", YES, Cell("no", "gVisor has its own, for itself"), YES),
    row(
        "calls-agent",
        "The same list, by the agent around all that it starts",
        YES,
        Cell("yes", "in gVisor's kernel"),
        YES,
    ),
    row("folders", "Folders in memory with a size", YES),
    row("files-number", "A number of files in them", YES, COUNTED, COUNTED, NO),
    row(
        "memory",
        "Memory, swap included",
        YES,
        YES,
        YES,
        Cell(
            "no", "looked at twenty times a second: what is quick is seen late, sockets and files without a name never"
        ),
    ),
    row(
        "threads",
        "A number of processes and threads",
        YES,
        COUNTED,
        YES,
        Cell("partly", "on Linux 5.14 or newer, where a limit may be set for it; else looked at like memory"),
    ),
    row("processors", "A share of the processors", YES, YES, YES, NO),
    row("open-files", "A number of open files", YES),
    row(
        "ends",
        "Ended from outside when nobody has it",
        Cell("yes", "by the guard"),
        Cell("yes", "by the guard"),
        Cell("yes", "by the warden"),
    ),
)


def of(column: int) -> dict[str, Cell]:
    """Return what one wall enforces, by the codes of the rows."""
    return {each.code: each.cells[column] for each in ROWS}


def as_markdown(names: tuple[str, ...]) -> str:
    """Return the table of SECURITY.md, under the names of the walls."""
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    lines += [f"| {each.name} | " + " | ".join(map(str, each.cells)) + " |" for each in ROWS]
    return "\n".join(lines)


def sentences(column: int) -> tuple[str, str]:
    """Return for people what one wall enforces, and what it does not."""
    held: list[str] = []
    not_held: list[str] = []
    for each in ROWS:
        cell = each.cells[column]
        more = f"partly: {cell.words}" if cell.holds == "partly" else cell.words
        said = f"{each.name[0].lower()}{each.name[1:]}" + (f" ({more})" if more else "")
        (held if cell.holds == "yes" else not_held).append(said)
    return "; ".join(held), "; ".join(not_held) or "nothing"
