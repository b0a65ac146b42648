"""Each engine and runtime: what it stops, needs, costs and enforces, and whether this machine has it.

The texts are data, of which `doctor --walls` and docs/isolation.md are made. Tests hold what each wall
enforces against real sandboxes. Whether a wall is here is asked of the machine; nothing is started.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace

from ...core.errors import SandboxError
from ...core.model import Settings
from ...engines.select import AUTO, DOCKER, is_service, make_engine, of_plugins, provider
from ...engines.wall import Wall, WallCell

ASKED_SECONDS = 20.0
"""How long a wall may take to say whether it is here."""


WALLS = (
    Wall(
        name="Docker with runc",
        settings="engine = docker",
        engine=DOCKER,
        for_whom="machines with Docker; code that a model wrote, without bad intent",
        kernel="the machine's kernel, behind a filter for system calls",
        stops="files, network, processes, rights; memory, processes, processors and files in memory have hard limits",
        leaves="unknown faults of the machine's kernel in the system calls that Python programs need",
        needs="Docker 20.10 or newer, with access for this user (equal to root); an image",
        costs="a start and a cell take slightly longer than without; memory doubles; computing costs nothing",
        enforces={
            "sys": WallCell("no", "read-only, and facts about the machine are masked"),
            "kernel": WallCell("no"),
            "ends": WallCell("yes", "by the reaper"),
        },
    ),
    Wall(
        name="Docker with gVisor",
        settings="engine = docker, runtime = runsc",
        engine=DOCKER,
        runtime="runsc",
        for_whom="code of strangers, or of people with bad intent",
        kernel="gVisor's own kernel, an unprivileged program; it makes few system calls to the machine's kernel",
        stops="the same as runc, and faults of the machine's kernel in system calls that gVisor handles itself",
        leaves="faults of gVisor; processes and files in memory count as memory, and too many end the sandbox",
        needs="the same as runc, and runsc as a runtime of Docker",
        costs="a start and a small cell take several times as long; computing costs little",
        enforces={
            "within": WallCell("no", "they are gVisor's own"),
            "user": WallCell("no", "one inside; outside it is nobody, as for all of gVisor"),
            "sys": WallCell("no", "gVisor's own"),
            "calls": WallCell("no", "gVisor has its own list, for itself"),
            "calls-agent": WallCell("yes", "in gVisor's kernel"),
            "files-number": WallCell("no", "they count as memory"),
            "threads": WallCell("no", "they count as memory"),
            "ends": WallCell("yes", "by the reaper"),
        },
    ),
)


ENFORCED = {
    "network": "No network, and no access to services of the machine",
    "processes": "Its own process namespace",
    "ipc": "Its own shared memory and message queues",
    "names": "Its own host name",
    "within": "No new namespaces inside",
    "user": "A user id that nothing else on the machine has",
    "files": "No files of the machine, except those of its environment",
    "root": "A read-only root",
    "inodes": "Files that no other sandbox has, so that none sees its locks or who opens them",
    "sys": "No /sys",
    "kernel": "Its own kernel between its system calls and the machine's kernel",
    "calls": "Our list of system calls, enforced by the engine",
    "calls-agent": "The same list, enforced by the agent on all that it starts",
    "folders": "Folders in memory with a fixed size",
    "files-number": "A limit on the number of files in them",
    "memory": "A limit on memory, including swap",
    "threads": "A limit on processes and threads",
    "processors": "A limit on processors",
    "open-files": "A limit on open files",
    "ends": "Ended from outside if it has no owner",
}
"""What a wall may enforce, by its code."""


def enforced(wall: Wall) -> dict[str, WallCell]:
    """Return what one wall enforces, by the codes of the rows."""
    return {code: wall.enforces.get(code, WallCell("yes")) for code in ENFORCED}


def sentences(wall: Wall) -> tuple[str, str]:
    """Return for people what one wall enforces, and what it does not."""
    held: list[str] = []
    not_held: list[str] = []
    cells = enforced(wall)
    for code, name in ENFORCED.items():
        cell = cells[code]
        more = f"partly: {cell.words}" if cell.holds == "partly" else cell.words
        said = f"{name[0].lower()}{name[1:]}" + (f" ({more})" if more else "")
        (held if cell.holds == "yes" else not_held).append(said)
    return "; ".join(held), "; ".join(not_held) or "nothing"


@dataclass(frozen=True, slots=True)
class SeenWall:
    """A wall, and whether it is on this machine."""

    wall: Wall
    here: bool
    found: str


async def survey(settings: Settings) -> list[SeenWall]:
    """Ask for each wall whether it is here, all at once and within twenty seconds."""
    return list(await asyncio.gather(*(_look(wall, settings) for wall in all_walls())))


def all_walls() -> tuple[Wall, ...]:
    """Return Docker's walls, and then those of our plugins."""
    return (*WALLS, *(wall for each in of_plugins() for wall in each.walls()))


def _is_docker_s(engine: str) -> bool:
    """Return whether the settings name a Docker of their own, or what may have one."""
    return engine != AUTO and (provider(engine).name == DOCKER or is_service(engine))


def settings_of(wall: Wall, settings: Settings) -> Settings:
    """Return the settings that choose a wall. A Docker that the settings name is the one that is meant."""
    own = wall.engine == DOCKER and _is_docker_s(settings.engine)
    return replace(
        settings,
        engine=settings.engine if own else wall.engine,
        runtime=wall.runtime or None,
        limits_kept="best-effort" if "limits = best-effort" in wall.settings else "enforced",
    )


async def _look(wall: Wall, settings: Settings) -> SeenWall:
    try:
        async with asyncio.timeout(ASKED_SECONDS):
            chosen = settings_of(wall, settings)
            engine = make_engine(chosen)
            info = await engine.info()
            if wall.runtime and wall.runtime not in info.runtimes:
                return SeenWall(wall, False, f"the engine has no runtime {wall.runtime}")
            unmet = [one for one in await engine.conditions() if not one.met]
            if chosen.limits_kept == "best-effort":
                unmet = [one for one in unmet if one.name != "cgroup"]
            if unmet:
                return SeenWall(wall, False, f"{unmet[0].name}: {unmet[0].found}")
            return SeenWall(wall, True, info.version)
    except SandboxError as error:
        return SeenWall(wall, False, str(error))
    except TimeoutError:
        return SeenWall(wall, False, f"no answer within {ASKED_SECONDS:g} s")


FIELDS = (
    ("For", "for_whom"),
    ("Kernel", "kernel"),
    ("Stops", "stops"),
    ("Leaves", "leaves"),
    ("Needs", "needs"),
    ("Costs", "costs"),
    ("Settings", "settings"),
)


def as_json(seen: Iterable[SeenWall]) -> str:
    """Return a list of what is in `Wall`, each with "here", "found" and what it enforces."""
    rows = []
    for one in seen:
        cells = enforced(one.wall)
        held = {code: {"holds": cell.holds, "words": cell.words} for code, cell in cells.items()}
        said = {field.name: getattr(one.wall, field.name) for field in fields(one.wall) if field.name != "enforces"}
        rows.append({**said, "here": one.here, "found": one.found, "enforced": held})
    return json.dumps(rows, indent=2)


def as_text(seen: Iterable[SeenWall]) -> str:
    """Return the walls for a terminal, one beneath the other."""
    import textwrap

    from ...policy.safe_text import ours

    lines = []
    for one in seen:
        lines.append(f"{one.wall.name}: {'here' if one.here else 'not here'} ({ours(one.found)})")
        said = [(title, getattr(one.wall, field)) for title, field in FIELDS]
        said += zip(("Enforces", "Not"), sentences(one.wall), strict=True)
        for title, text in said:
            lines.append(f"  {title:<9} {textwrap.fill(text, 108, subsequent_indent=' ' * 12)}")
        lines.append("")
    return "\n".join(lines).rstrip()
