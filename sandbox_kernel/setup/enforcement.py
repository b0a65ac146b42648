"""What each wall enforces, row by row: the one table of it, of which `doctor --walls` and docs/walls.md are made.

Data; each cell is held against real sandboxes by the tests. The columns are those of `walls`, in its order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..engines.wall import Cell, Wall


class Row(NamedTuple):
    """One thing that may be enforced."""

    code: str
    name: str
    cells: tuple[Cell, ...]


WALLS = ("Docker with runc", "Docker with gVisor", "bubblewrap", "bubblewrap, limits as far as they go")
"""The columns."""
YES, NO = Cell("yes"), Cell("no")
COUNTED = Cell("no", "they count as memory")


def row(code: str, name: str, *cells: Cell) -> Row:
    """Return a row of which bubblewrap's second wall is like its first, or all are alike, unless it is said."""
    return Row(code, name, (*cells, *cells[-1:] * (len(WALLS) - len(cells))))


ROWS = (
    row("network", "No network, and no access to services of the machine", YES),
    row("processes", "Its own process namespace", YES),
    row("ipc", "Its own shared memory and message queues", YES),
    row("names", "Its own host name", YES),
    row("within", "No new namespaces inside", YES, Cell("no", "they are gVisor's own"), YES),
    row(
        "user",
        "A user id that nothing else on the machine has",
        YES,
        Cell("no", "one inside; outside it is nobody, as for all of gVisor"),
        Cell(
            "partly",
            "if root starts it, or a user with subordinate ids; otherwise the user's own, with another id inside: "
            "sandboxes share counts of pipes, watches of epoll and descriptors in flight",
        ),
    ),
    row("files", "No files of the machine, except those of its environment", YES),
    row("root", "A read-only root", YES),
    row(
        "inodes",
        "Files that no other sandbox has, so that none sees its locks or who opens them",
        YES,
        YES,
        Cell(
            "partly",
            "with bubblewrap 0.11 and Linux 5.11, except for locks on device nodes and read-only paths of /proc; what "
            "shows who opens a file is filtered in any case",
        ),
    ),
    row(
        "sys",
        "No /sys",
        Cell("no", "read-only, and facts about the machine are masked"),
        Cell("no", "gVisor's own"),
        Cell("yes", "except for its own cgroup"),
        YES,
    ),
    row("kernel", "Its own kernel between its system calls and the machine's kernel", NO, YES, NO),
    row(
        "calls",
        "Our list of system calls, enforced by the engine",
        YES,
        Cell("no", "gVisor has its own list, for itself"),
        YES,
    ),
    row(
        "calls-agent",
        "The same list, enforced by the agent on all that it starts",
        YES,
        Cell("yes", "in gVisor's kernel"),
        YES,
    ),
    row("folders", "Folders in memory with a fixed size", YES),
    row("files-number", "A limit on the number of files in them", YES, COUNTED, COUNTED, NO),
    row(
        "memory",
        "A limit on memory, including swap",
        YES,
        YES,
        YES,
        Cell(
            "no", "checked twenty times a second; fast growth is noticed late, sockets and files without a name never"
        ),
    ),
    row(
        "threads",
        "A limit on processes and threads",
        YES,
        COUNTED,
        YES,
        Cell("partly", "on Linux 5.14 or newer, if a limit can be set; otherwise checked like memory"),
    ),
    row("processors", "A limit on processors", YES, YES, YES, NO),
    row("open-files", "A limit on open files", YES),
    row(
        "ends",
        "Ended from outside if it has no owner",
        Cell("yes", "by the reaper"),
        Cell("yes", "by the reaper"),
        Cell("yes", "by its reaper"),
    ),
)


def of(wall: Wall) -> dict[str, Cell]:
    """Return what one wall enforces, by the codes of the rows."""
    if wall.name not in WALLS:
        return {each.code: wall.enforces.get(each.code, YES) for each in ROWS}
    column = WALLS.index(wall.name)
    return {each.code: each.cells[column] for each in ROWS}


def as_markdown(walls: Sequence[Wall]) -> str:
    """Return the second table of docs/walls.md."""
    lines = ["| | " + " | ".join(wall.name for wall in walls) + " |", "|---" * (len(walls) + 1) + "|"]
    lines += [f"| {each.name} | " + " | ".join(_texts([of(wall)[each.code] for wall in walls])) + " |" for each in ROWS]
    return "\n".join(lines)


def _texts(cells: list[Cell]) -> list[str]:
    """Return the cells of a row; one with the words of its left neighbour only says so."""
    pairs = zip([None, *cells], cells, strict=False)
    return ["the same" if cell.words and cell == left else str(cell) for left, cell in pairs]


def sentences(wall: Wall) -> tuple[str, str]:
    """Return for people what one wall enforces, and what it does not."""
    held: list[str] = []
    not_held: list[str] = []
    cells = of(wall)
    for each in ROWS:
        cell = cells[each.code]
        more = f"partly: {cell.words}" if cell.holds == "partly" else cell.words
        said = f"{each.name[0].lower()}{each.name[1:]}" + (f" ({more})" if more else "")
        (held if cell.holds == "yes" else not_held).append(said)
    return "; ".join(held), "; ".join(not_held) or "nothing"
