"""What each wall enforces, row by row: the one table of it, of which `doctor --walls` and docs/walls.md are made.

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
EMULATED, OWN = Cell("yes", "Linux, on a machine that QEMU emulates"), Cell("yes", "in its own kernel")
COUNTED = Cell("no", "they count as memory")


def row(code: str, name: str, *cells: Cell, qemu: Cell | None = None) -> Row:
    """Return a row of which bubblewrap's second wall is like its first, or all are alike, unless it is said."""
    return Row(code, name, (*cells, *cells[-1:] * (4 - len(cells)), qemu or Cell("yes")))


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
            "if root starts it, or a user with subordinate ids; otherwise it is the user who starts it, with another "
            "id inside: the machine's kernel counts pipes, watches of epoll and descriptors in flight of all of its "
            "sandboxes together",
        ),
        qemu=Cell("partly", "QEMU, if root starts it; otherwise it is the user who starts it"),
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
            "with bubblewrap 0.11 and Linux 5.11, except for device nodes and the read-only paths of /proc, on which "
            "locks are seen; what shows who opens a file is filtered in any case",
        ),
        qemu=OWN,
    ),
    row(
        "sys",
        "No /sys",
        Cell("no", "read-only, and facts about the machine are masked"),
        Cell("no", "gVisor's own"),
        Cell("yes", "except for its own cgroup"),
        YES,
        qemu=Cell("yes", "except for its own cgroup"),
    ),
    row("kernel", "Its own kernel between its system calls and the machine's kernel", NO, YES, NO, qemu=EMULATED),
    row(
        "calls",
        "Our list of system calls, enforced by the engine",
        YES,
        Cell("no", "gVisor has its own list, for itself"),
        YES,
        qemu=OWN,
    ),
    row(
        "calls-agent",
        "The same list, enforced by the agent on all that it starts",
        YES,
        Cell("yes", "in gVisor's kernel"),
        YES,
        qemu=OWN,
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
        qemu=Cell("yes", "by its reaper"),
    ),
)


def of(column: int) -> dict[str, Cell]:
    """Return what one wall enforces, by the codes of the rows."""
    return {each.code: each.cells[column] for each in ROWS}


def as_markdown(names: tuple[str, ...]) -> str:
    """Return the second table of docs/walls.md, under the names of the walls."""
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
