"""One examination of this machine: which sandboxes are started, what is tried in each, and what the host looks at.

What is tried in one sandbox follows one after the other; the sandboxes run side by side. All ends with the call.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...core.errors import SandboxError
from ...core.model import MIB, Limits, Message, Settings
from ...engines.inspectable import EngineInfo, Inspectable
from ...engines.neighbours import NeighbourFact, facts
from ...engines.preparations import Preparations
from ...engines.select import begin, beneath, chosen, make_engine, provider
from ...sdk.client import AsyncSandbox, handle_of
from ...sdk.execution import Execution
from . import behaviour_probes, host_inspection, probe_cells
from .attack_program import cell, heard, table
from .canaries import Canaries, laid
from .probes import PROBES, Probe, Where
from .verdicts import ProbeFinding, complete, decided, failed, not_applicable, of_attacks

SMALL = Limits(memory=256 * MIB, scratch_size=32 * MIB, tmp_size=16 * MIB, shm_size=16 * MIB)
"""At most so much for sandboxes that use up what they have."""
SMALL_OUTPUT = 4 * MIB
MIN_SECONDS = 120.0
"""A cell of many attacks may take so long, whatever the limit of cells is."""
MIN_OUTPUT = 16 * MIB
SHORT_GRACE = 1.0
SECONDS_IN_A_MACHINE = 60
"""For one attack, where the processor is emulated; elsewhere the attacks know how long."""

FLOODS = ("end-output", "end-kernel", "limit-memory")
BUSY = ("plant-next", "end-time", "limit-processes")
ATTESTED = ("technology-attested", "technology-attestation-sees")
HARMLESS = {"plain.csv"}
"""What the cell made for the folder of results that is to arrive there."""


@dataclass(slots=True)
class Examination:
    """What was found, and on what."""

    settings: Settings
    engine: EngineInfo
    address: str
    findings: list[ProbeFinding] = field(default_factory=list)
    seconds: float = 0.0
    neighbours: tuple[NeighbourFact, ...] = ()
    """What sandboxes of this machine share; nothing where the engine's are on others. None of it is a failure."""


async def examine(settings: Settings, wanted: Sequence[Probe] = PROBES) -> Examination:
    """Try all that is wanted. Raises `SandboxError` if no sandbox can be started with these settings."""
    began = time.monotonic()
    settings = beneath(settings)
    engine = make_engine(settings)
    await begin(engine)
    done = Examination(settings, await engine.info(), engine.address)
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-verify-") as scratch:
        place = Path(scratch)
        for folder in (place, place / "bait", place / "results"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o755)  # so that only the sandbox is in the way
        with laid(secrets.token_hex(8), place / "bait") as canaries:
            run = _Run(settings, engine, {probe.code for probe in wanted}, canaries, place / "results")
            await run.all()
            done.findings = complete(run.found, wanted)
    if not provider(chosen(settings)).is_elsewhere:
        done.neighbours = await asyncio.to_thread(facts)
    done.seconds = time.monotonic() - began
    return done


class _Run:
    """The state of one examination."""

    def __init__(
        self, settings: Settings, engine: Inspectable, wanted: set[str], canaries: Canaries, results: Path
    ) -> None:
        self.settings = settings
        self.engine = engine
        self.wanted = wanted
        self.canaries = canaries
        self.results = results
        self.gvisor = settings.runtime == "runsc"
        self.its = provider(chosen(settings))
        self.slow = {"seconds": SECONDS_IN_A_MACHINE} if self.its.is_emulated else {}
        self.found: list[ProbeFinding] = []
        self.planted = asyncio.Event()
        self.sessions: set[str] = set()
        self.containers: set[str] = set()
        self.heard: list[str] = []
        """All that sandboxes have printed."""

    async def all(self) -> None:
        parts = [self._main(), *self._apart()]
        outcomes = await asyncio.gather(*parts, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if self.wanted & {"end-containers", "end-processes"}:
            self.found += await behaviour_probes.remains(self.engine, self.sessions, self.containers)
        self._look_back()

    def _apart(self) -> Iterator[Any]:
        """What needs sandboxes of its own, which it ends."""
        if self.wanted.intersection(FLOODS):
            yield self._try(
                FLOODS, self._in_small(lambda one: behaviour_probes.flood_kill_and_memory(one, self.wanted))
            )
        if self.wanted.intersection(BUSY):
            marker, wanted = str(self.canaries.given["marker"]), self.wanted

            def work(one: AsyncSandbox) -> Awaitable[list[ProbeFinding]]:
                return behaviour_probes.busy_and_many(
                    one, wanted, marker, self.planted, gvisor=self.gvisor, more=self.slow
                )

            yield self._try(BUSY, self._in_small(work))
        if self.wanted.intersection(ATTESTED):
            yield self._try(ATTESTED, behaviour_probes.attested(self.settings, self.engine))
        if "end-owner" in self.wanted:
            yield self._try(("end-owner",), self._orphaned())

    async def _try(self, codes: Iterable[str], work: Awaitable[list[ProbeFinding]]) -> None:
        """Take what some work finds; if it cannot be done, its probes have failed for that reason."""
        try:
            self.found += await work
        except (SandboxError, TimeoutError) as error:
            self.found += [failed(code, behaviour_probes.reason(error)) for code in codes if code in self.wanted]

    async def _orphaned(self) -> list[ProbeFinding]:
        return [await behaviour_probes.orphaned(small(self.settings), self.engine)]

    async def _in_small(self, work: Callable[[AsyncSandbox], Awaitable[list[ProbeFinding]]]) -> list[ProbeFinding]:
        async with self._sandbox(small(self.settings)) as sandbox:
            return await work(sandbox)

    @contextlib.asynccontextmanager
    async def _sandbox(self, settings: Settings) -> AsyncIterator[AsyncSandbox]:
        """A sandbox whose session, and whose first container, are looked for afterwards."""
        sandbox = AsyncSandbox(settings)
        self.sessions.add(sandbox.id)
        async with sandbox:
            self.containers.add(await handle_of(sandbox).session.started())
            yield sandbox

    # --- the sandbox with the settings as they are, and the one beside it ---

    async def _main(self) -> None:
        try:
            async with contextlib.AsyncExitStack() as stack:
                main, beside = self._sandbox(as_tried(self.settings, self.results)), self._sandbox(small(self.settings))
                one, other = await asyncio.gather(stack.enter_async_context(main), stack.enter_async_context(beside))
                await self._in_main(one, other)
        finally:
            self.planted.set()

    async def _in_main(self, main: AsyncSandbox, beside: AsyncSandbox) -> None:
        marker = self.canaries.given["marker"]
        await self._said(main, probe_cells.PLANT.format(marker=marker))
        self.planted.set()
        await self._from_outside(main, beside)
        await self._attack(main, Where.DOORS, self._told(main))
        await self._attack_neighbour(main, beside)
        await asyncio.gather(self._show(main), self._attack(beside, Where.SMALL, self._told(beside)))
        await self._past_the_rules(main)
        await self._attack(main, Where.AGENT, self._told(main))

    def _told(self, sandbox: AsyncSandbox) -> dict[str, Any]:
        limits, variables = asdict(sandbox.settings.limits), _variables(sandbox.settings)
        return {**self.canaries.given, **self.slow, "limits": limits, "variables": variables}

    async def _attack(self, sandbox: AsyncSandbox, where: Where, given: Mapping[str, Any]) -> None:
        probes = [probe for probe in PROBES if probe.where is where and probe.attacks and probe.code in self.wanted]
        if not probes:
            return
        names = list(dict.fromkeys(name for probe in probes for name in probe.attacks))
        said = heard(await self._said(sandbox, cell(names, given)), names)
        ends = partial(of_attacks, gvisor=self.gvisor, openings=self.its.openings, differences=self.its.differences)
        self.found += [ends(probe, table(), said) for probe in probes]

    async def _attack_neighbour(self, main: AsyncSandbox, beside: AsyncSandbox) -> None:
        codes = [probe.code for probe in PROBES if probe.where is Where.NEIGHBOUR and probe.code in self.wanted]
        if not codes:
            return
        session = secrets.token_hex(8)
        given = {"abstract": f"\0{session}", "key": 0x5B000000 + secrets.randbelow(1 << 24), "session": session}
        given |= {"secret": session, "file": f"/mnt/data/{session}"}
        said = await self._said(beside, probe_cells.VICTIM.format(given=json.dumps(given)))
        try:
            given["tcp"] = int(json.loads(said.strip().splitlines()[-1])["port"])
        except (ValueError, LookupError, TypeError):
            self.found += [failed(code, "the sandbox beside it did not lay anything out") for code in codes]
            return
        try:
            await self._attack(main, Where.NEIGHBOUR, {**self._told(main), **given})
        finally:
            await beside.run_code(probe_cells.TIDY)

    async def _show(self, main: AsyncSandbox) -> None:
        if any(code.startswith("output-") for code in self.wanted):
            messages: list[Message] = []
            await main.run_code(behaviour_probes.OUTPUTS_CELL, on_message=messages.append)
            self.found += behaviour_probes.of_outputs(messages, self.settings.outputs)

    async def _past_the_rules(self, main: AsyncSandbox) -> None:
        code = "network-past-the-rules"
        if code not in self.wanted:
            return
        if not self.settings.has_way_out:
            self.found.append(not_applicable(code, "the settings give no way out"))
            return
        if any(behaviour_probes.NOWHERE in rule for rule in self.settings.get("network", ())):
            self.found.append(not_applicable(code, "a rule names the address that is tried"))
            return
        self.found.append(of_denials(await main.run_code(probe_cells.BEYOND)))

    async def _said(self, sandbox: AsyncSandbox, code: str) -> str:
        """Run a cell and return what it printed. A cell that fails says what it said until then."""
        execution = await sandbox.run_code(code)
        text = "".join(execution.logs.stdout)
        self.heard += [text, "".join(execution.logs.stderr), str(execution.error or "")]
        return text

    # --- what the host looks at ---

    async def _from_outside(self, main: AsyncSandbox, beside: AsyncSandbox) -> None:
        one = await handle_of(main).session.started()
        other = await handle_of(beside).session.started()
        shown = await self.engine.shown(one)
        seen = await asyncio.to_thread(host_inspection.inspect, one, shown)
        near = await asyncio.to_thread(host_inspection.inspect, other, await self.engine.shown(other))
        limits, runtime = main.settings.limits, self.settings.runtime
        own = host_inspection.own()
        self.found += host_inspection.judge(seen, near, own, limits, gvisor=self.gvisor, runtime=runtime)
        code = "program-stays-inside"
        if not seen.processes:
            self.found.append(not_applicable(code, host_inspection.HIDDEN))
            return
        programs = await asyncio.to_thread(host_inspection.called, str(self.canaries.given["marker"]))
        away = set(programs) - await asyncio.to_thread(host_inspection.members, one, await self.engine.shown(one))
        inside = len(programs) - len(away)
        text = "it is no process of the host's" if not programs else f"{inside} in its sandbox's control group"
        fine = not away and (not programs if shown.is_machine else bool(programs) or self.gvisor)
        self.found.append(decided(code, fine, f"{text}, {len(away)} elsewhere" if programs else text))

    def _look_back(self) -> None:
        """Look at what came to the host's sockets and folders, whatever the sandbox said of it."""
        arrived = self.canaries.arrived()
        for code, names in {
            "network-host-loopback": {"tcp", "udp"},
            "network-host-sockets": {"abstract", "path"},
        }.items():
            if came := sorted(names.intersection(arrived)):
                self.found.append(failed(code, f"it came to the host's socket: {', '.join(came)}"))
        folders = [Path(folder) for folder in (self.settings.uploads, self.settings.downloads) if folder]
        if planted := self.canaries.planted(folders):
            self.found.append(failed("plant-anywhere", f"on this machine: {', '.join(map(str, planted))}"[:300]))
        out = self.canaries.untold in "\n".join(self.heard)
        text = "it came out of the sandbox" if out else "it did not come out"
        self.found.append(decided("leak-secret", not out, text))
        self.found.append(results(self.results, str(self.canaries.given["marker"])))


def of_denials(execution: Execution) -> ProbeFinding:
    """Judge a cell that asked for a host which no rule names."""
    denied = sorted({each.code for each in execution.denied if each.host == behaviour_probes.NOWHERE})
    text = f"the host denied it: {', '.join(denied)}" if denied else "the host denied nothing"
    return decided("network-past-the-rules", bool(denied), text)


def results(folder: Path, marker: str) -> ProbeFinding:
    """Judge what has come into the folder of results."""
    code, strange, plain = "plant-downloads", [], []
    for path in sorted(folder.rglob("*")):
        mode = path.lstat().st_mode
        regular = stat.S_ISREG(mode) and not mode & 0o7111
        if not (regular or stat.S_ISDIR(mode)) or path.name.startswith(".") or not path.name.isprintable():
            strange.append(ascii(path.name))
        plain.append(path.name)
    if strange:
        return failed(code, f"arrived: {', '.join(strange)}"[:300])
    if not HARMLESS.intersection(plain):
        return failed(code, "not even a plain file arrived, so nothing was tried")
    named = ", ".join(name for name in plain if name != marker)
    return decided(code, True, f"only regular files with plain names and without rights arrived: {named}"[:300])


def _variables(settings: Settings) -> list[str]:
    """Return the variables that plugins put into a sandbox: placeholders, and where the network is."""
    inside = Preparations(settings).inside
    return [] if inside is None else sorted(inside.environment)


def as_tried(settings: Settings, results: Path) -> Settings:
    """Return the settings with a folder for results, without alerts, and with room for many attacks."""
    limits = settings.limits
    limits = replace(
        limits,
        cell_timeout=max(limits.cell_timeout, MIN_SECONDS),
        output_limit=max(limits.output_limit, MIN_OUTPUT),
        output_messages=max(limits.output_messages, 1000),
        message_limit=max(limits.message_limit, MIN_OUTPUT),
    )
    tried = settings.without("audit", "monitor", "screen")
    return replace(tried, uploads=None, downloads=str(results), limits=limits)


def small(settings: Settings) -> Settings:
    """Return the same settings with less of everything, no folder and no way out."""
    limits = settings.limits
    least = {
        name: min(getattr(limits, name), getattr(SMALL, name))
        for name in ("memory", "scratch_size", "tmp_size", "shm_size", "pids", "open_files")
    }
    limits = replace(
        limits,
        **least,
        output_limit=min(limits.output_limit, SMALL_OUTPUT),
        interrupt_grace=min(limits.interrupt_grace, SHORT_GRACE),
        cell_timeout=max(limits.cell_timeout, MIN_SECONDS),
    )
    return replace(settings, uploads=None, downloads=None, of_plugins=(), limits=limits)
