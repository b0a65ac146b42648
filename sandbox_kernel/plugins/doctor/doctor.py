"""What a session needs of this machine, checked row by row, with a remedy for each row that is wrong.

Rows about the engine's own report come from pure functions; the last rows come from a real start.
"""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import shutil
import subprocess
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from ...config.sources import SETTINGS, read_argv
from ...core.codes import EndCode
from ...core.errors import ConfigurationError, SandboxError
from ...core.kernel_command import PROVISIONER, is_own
from ...core.model import GIB, PYTHON_KERNEL, Settings, format_bytes
from ...core.remedies import own_as_root, wrapped
from ...engines import base
from ...engines.image_names import BY_NAME, build_command
from ...engines.inspectable import EngineInfo, Inspectable, MachineCondition
from ...engines.neighbours import facts
from ...engines.select import AUTO, begin, beneath, chosen, explained, make_engine, provider
from ...policy.safe_text import ours
from ...setup.install import NAME, check, flags, values_in
from .. import index
from ..api import Diagnosis

if TYPE_CHECKING:
    from jupyter_client.kernelspec import KernelSpec

Status = Literal["ok", "note", "wrong", "skipped"]


FREE_DISK_BYTES = 4 * GIB
"""The data image takes 1.5 GiB, and its build as much again; below this, `build` may fail half-way."""
TOTAL_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """One row: what was looked at, what was found, and how to repair it."""

    name: str
    status: Status
    found: str
    remedy: str = ""
    details: tuple[base.AttestationCheck, ...] = ()
    """For the attested start: each protection, what was asked for, and what was found."""
    code: str = ""
    """Of what neighbours share, for programs (docs/codes.md); empty for all else."""

    @property
    def ok(self) -> bool:
        return self.status != "wrong"


_MARKS = {"ok": "ok", "note": "note", "wrong": "WRONG", "skipped": "-"}


def table(rows: list[DoctorCheck], *, details: bool = False) -> str:
    """Return the rows for a terminal, each remedy beneath its row.

    Protections that are missing are listed; with `details`, all of them.
    """
    width = max(len(row.name) for row in rows)
    lines = []
    for row in rows:
        indent = " " * (width + 9)
        lines.append(wrapped(f"{_MARKS[row.status]:5}  {row.name:{width}}  {row.found}", 110, rest=indent))
        if row.remedy and row.status != "ok":
            lines.append(wrapped(f"remedy: {row.remedy}", 110, first=indent, rest=indent))
        for line in (one for one in row.details if details or not one.ok):
            mark = _MARKS["ok" if line.ok else "wrong"]
            lines.append(
                f"       {mark:5}  {line.name}: {line.found if line.ok else f'{line.found}, not {line.expected}'}"
            )
    wrong = sum(not row.ok for row in rows)
    lines.append(
        "everything a session needs is there" if not wrong else f"{wrong} of {len(rows)} checks found something wrong"
    )
    return "\n".join(ours(part) for line in lines for part in line.split("\n"))  # an engine says what it likes


def as_json(rows: list[DoctorCheck]) -> str:
    """Return the rows as JSON: {"ok": true, "checks": [{"name", "status", "found", "remedy", "details", ...}, ...]}."""
    return json.dumps({"ok": all(row.ok for row in rows), "checks": [asdict(row) for row in rows]}, indent=2)


def diagnose(
    settings: Settings,
    *,
    name: str = NAME,
    folder: Path | None = None,
    given: Mapping[str, object] = MappingProxyType({}),
    line_by_line: bool = True,
) -> list[DoctorCheck]:
    """Check everything, within two minutes; leaves nothing behind.

    The kernelspec is the one in `folder`, or else the one that front ends find by `name`. `given` are those of the
    settings that the caller gave; remedies repeat them. `line_by_line` starts a sandbox only for its
    attestation. Without it the first cell has to do: no cell runs in a sandbox that lacks one.
    """

    async def both() -> list[DoctorCheck]:
        reading = asyncio.to_thread(kernelspec_row, name, folder, given)
        of_plugins = asyncio.to_thread(rows_of_plugins, settings, folder)
        kept = asyncio.to_thread(inventory_rows, settings)
        start = engine_and_start(settings, line_by_line)
        rows, spec, ways, there = await asyncio.gather(start, reading, of_plugins, kept)
        others = [] if folder else await asyncio.to_thread(promise_rows)
        near = await asyncio.to_thread(neighbour_rows, settings)
        return [*rows, spec, *others, *ways, *there, *near]

    return asyncio.run(both())


async def engine_and_start(settings: Settings, line_by_line: bool) -> list[DoctorCheck]:
    """Check an engine and its image, and start a sandbox unless something is wrong; within `TOTAL_SECONDS`."""
    rows: list[DoctorCheck] = []
    settings = beneath(settings)
    try:
        async with asyncio.timeout(TOTAL_SECONDS):
            engine = make_engine(settings)
            try:
                await begin(engine)
                info = await engine.info()
            except SandboxError as error:
                return [await asyncio.to_thread(_no_engine, engine, error)]
            api = f", API {info.api_version}" if info.api_version else ""
            why = f"; auto takes {explained(settings)}" if settings.engine == AUTO else ""
            rows.append(
                DoctorCheck("engine", "ok", f"{info.version}{api}, at {engine.address.removeprefix('unix://')}{why}")
            )
            needs = await engine.conditions()
            rows += condition_rows(needs, settings)
            said = {one.name for one in needs}
            rows += [row for row in engine_rows(info, settings) if row.name != "limits" or "cgroup" not in said]
            rows.append(await image_row(engine, settings.image, info.architecture))
            if not all(row.ok for row in rows):
                return [*rows, DoctorCheck("start", "skipped", "not tried while something above is wrong")]
            if line_by_line:
                rows.append(await attested_row(engine, settings))
            rows.append(await first_cell_row(engine, settings))
    except (SandboxError, TimeoutError) as error:
        rows.append(DoctorCheck("engine", "wrong", str(error) or f"no answer within {TOTAL_SECONDS:g} s"))
    return rows


# --- the engine ------------------------------------------------------------------------------------------------------


def _no_engine(engine: Inspectable, error: SandboxError) -> DoctorCheck:
    if not engine.address.startswith("unix://"):
        remedy = provider(engine.address).remedy(engine.address) or error.code.remedy
        return DoctorCheck("engine", "wrong", str(error), remedy)
    from ...setup.engine_setup import find_engine  # it knows what to do on which system; importing it takes a while

    status = find_engine(engine.address)
    return DoctorCheck("engine", "wrong", status.problem or str(error), status.remedy)


def condition_rows(found: Iterable[MachineCondition], settings: Settings) -> list[DoctorCheck]:
    """Judge what an engine needs of the machine; without a cgroup it is as the setting `limits` says."""
    accepted = {"cgroup"} if settings.limits_kept == "best-effort" else set()
    rows = []
    for one in found:
        if not one.met and one.name in accepted:
            rows.append(DoctorCheck(one.name, "note", f"{one.found}; limits = best-effort has accepted that"))
        else:
            rows.append(DoctorCheck(one.name, "ok" if one.met else "wrong", one.found, one.remedy))
    return rows


def engine_rows(info: EngineInfo, settings: Settings) -> list[DoctorCheck]:
    """Judge an engine by what it says of itself; one without runtimes has none to be chosen."""
    runtimes = [_runtime(info, settings.runtime), _gvisor(info)] if info.runtimes or settings.runtime else []
    limits = [_limits(info, settings), *_sockets(info)]
    return [_seccomp(info), *limits, *_users(info), *runtimes, _memory(info, settings), _disk(info)]


def _seccomp(info: EngineInfo) -> DoctorCheck:
    if info.seccomp:
        return DoctorCheck("seccomp", "ok", "available")
    return DoctorCheck("seccomp", "wrong", "the engine has no seccomp", "use an engine and a kernel built with seccomp")


def _limits(info: EngineInfo, settings: Settings) -> DoctorCheck:
    """Without one of these, a limit of the settings would be ignored, with a warning at best."""
    needed = ("memory", "swap", "cpus", "pids")
    version = f"cgroup v{info.cgroup_version}" if info.cgroup_version else "on its machines"
    missing = [what for what in needed if what not in info.limited]
    if missing == ["swap"] and not _host_has_swap():
        return DoctorCheck("limits", "ok", f"{version}: memory, cpus, pids; swap cannot be limited, and there is none")
    if missing and info.users and settings.limits_kept == "best-effort":
        found = f"{version}: the engine cannot limit {', '.join(missing)}; limits = best-effort has accepted that"
        return DoctorCheck("limits", "note", found)
    if missing:
        return DoctorCheck(
            "limits",
            "wrong",
            f"{version}: the engine cannot limit {', '.join(missing)}",
            "switch the cgroup controllers on (kernel parameters cgroup_enable=memory swapaccount=1, or cgroup v2 "
            "with delegation for a rootless engine)",
        )
    return DoctorCheck("limits", "ok", f"{version}: {', '.join(needed)}")


def _sockets(info: EngineInfo) -> list[DoctorCheck]:
    """Warn where nothing limits the memory of TCP and UDP: cgroup version 1 does not count it."""
    if info.cgroup_version != "1" or os.geteuid() == 0:
        return []
    found = "cgroup v1: memory of TCP and UDP sockets is limited for all sandboxes together; root's broker limits each"
    return [DoctorCheck("sockets", "note", found)]


def _users(info: EngineInfo) -> list[DoctorCheck]:
    """Say so where its containers do not have the machine's; whether they suffice is shown by a start."""
    if not info.users:
        return []
    return [DoctorCheck("user ids", "note", f"the engine is {info.users}: its containers have those that it was given")]


def _host_has_swap() -> bool:
    try:
        return len(Path("/proc/swaps").read_text().splitlines()) > 1
    except FileNotFoundError:
        return True  # the engine's machine is another one, which may have some


def _runtime(info: EngineInfo, wanted: str | None) -> DoctorCheck:
    there = sorted(name for name in info.runtimes if not name.startswith("io.containerd."))
    if wanted is None or wanted in there:
        return DoctorCheck(
            "runtime", "ok", f"{wanted or f'{info.default_runtime} (the default)'}; there are {', '.join(there)}"
        )
    remedy = (
        f"`{own_as_root('setup --gvisor')}`"
        if wanted == "runsc"
        else 'add it to "runtimes" of the engine\'s daemon.json'
    )
    return DoctorCheck("runtime", "wrong", f"{wanted} is chosen; there are {', '.join(there)}", remedy)


def _gvisor(info: EngineInfo) -> DoctorCheck:
    if "runsc" in info.runtimes:
        return DoctorCheck("gvisor", "ok", 'available: --runtime runsc, or c.SandboxKernel.runtime = "runsc"')
    return DoctorCheck("gvisor", "note", "not a runtime of the engine", f"optional: `{own_as_root('setup --gvisor')}`")


def _memory(info: EngineInfo, settings: Settings) -> DoctorCheck:
    total, wanted = info.memory_bytes, settings.limits.memory
    found = f"{format_bytes(wanted)} a session" + (f", of {format_bytes(total)} of the machine" if total else "")
    if total and wanted > total:
        return DoctorCheck("memory", "note", found, "a session can exhaust the machine: choose a smaller --memory")
    return DoctorCheck("memory", "ok", found)


def _disk(info: EngineInfo) -> DoctorCheck:
    try:
        free = shutil.disk_usage(info.folder).free
    except OSError:
        return DoctorCheck("disk", "skipped", f"{info.folder or 'the engine folder'} cannot be seen from here")
    found = f"{format_bytes(free)} free in {info.folder}"
    if free < FREE_DISK_BYTES:
        return DoctorCheck("disk", "note", found, f"an image build wants {format_bytes(FREE_DISK_BYTES)}")
    return DoctorCheck("disk", "ok", found)


async def image_row(engine: Inspectable, name: str, architecture: str) -> DoctorCheck:
    its = provider(engine.address)
    if (said := await asyncio.to_thread(its.state, name)) is not None:
        return DoctorCheck(*said)
    try:
        found = await engine.image(name)
    except SandboxError:
        command = build_command(name)
        remedy = f"`{command}`" if command else f"build or load {name}; it is never pulled"
        return DoctorCheck("image", "wrong", f"{name} is not there", remedy)
    text = f"{name}, {format_bytes(found.size_bytes)}, made {found.made}"
    if kind := BY_NAME.get(name):
        from ...setup.image_build import chain

        current = chain(kind, None, None, architecture, fresh=False)[-1].digest
        if found.contents != current:
            return DoctorCheck("image", "note", f"{text}; this version would build another", f"`{build_command(name)}`")
        text += ", current"
    return DoctorCheck("image", "ok", text)


def neighbour_rows(settings: Settings) -> list[DoctorCheck]:
    """Say what the sandboxes of this machine share; nothing where the engine's are on others."""
    if provider(chosen(settings)).is_elsewhere:
        return []
    status: dict[str, Status] = {"ok": "ok", "note": "note", "unknown": "skipped"}
    return [
        DoctorCheck(
            one.name, status[one.state], one.found, one.code.remedy if one.code else "", code=str(one.code or "")
        )
        for one in facts()
    ]


# --- a real start -----------------------------------------------------------------------------------------------------


_UNKNOWN = frozenset({
    EndCode.NO_KERNEL_STARTS, EndCode.NO_REPORT, EndCode.NO_INTRODUCTION, EndCode.KERNEL_DIED, EndCode.SANDBOX_DIED,
    EndCode.PIPE_GONE,
})  # fmt: skip
"""Ends of a start that image, limits and machine can cause alike: nothing is proposed that might mend none of them."""
_HERE = EndCode.ENGINE_FAILED.remedy
"""That of who has not run the doctor."""


def start_remedy(error: SandboxError, settings: Settings) -> str:
    """Return what to do about a start that failed: what its code says, or what is known where that is nothing."""
    if error.code in _UNKNOWN:
        limits = f"{format_bytes(settings.limits.memory)} of memory and {settings.limits.pids} processes"
        return f"{settings.image} has to bring Python 3.9 or newer and ipykernel; the sandbox had {limits}"
    if error.code.remedy != _HERE:
        return error.code.remedy
    return "the engine refuses it for the cause that it says; its log may say more"


async def attested_row(engine: base.Engine, settings: Settings) -> DoctorCheck:
    from ...engines.attested_start import attestations

    try:
        lines, _ = await attestations(settings, engine)
    except SandboxError as error:
        return DoctorCheck("attestation", "wrong", str(error), start_remedy(error, settings))
    lost = [line for line in lines if not line.ok]
    if lost:
        found = "; ".join(line.sentence for line in lost)
        remedy = "such a sandbox is refused: docs/isolation.md says what a protection needs; or choose another engine"
        return DoctorCheck("attestation", "wrong", found, remedy, lines)
    return DoctorCheck(
        "attestation", "ok", f"a sandbox started, and all {len(lines)} protections are in place", "", lines
    )


async def first_cell_row(engine: base.Engine, settings: Settings) -> DoctorCheck:
    from ...setup import self_test

    began = time.perf_counter()
    try:
        # A kernel of another language has an empty cell, which is correct in each, and its answer counts as 42.
        code, otherwise = ("6 * 7", "") if settings.kernel == PYTHON_KERNEL else ("", "42")
        shown = await self_test.shown(settings, engine, code) or otherwise
    except SandboxError as error:
        return DoctorCheck("first cell", "wrong", f"{error.name}: {error}", start_remedy(error, settings))
    if shown != "42":
        remedy = f"the image {settings.image} has another kernel than IPython's, or a broken one"
        return DoctorCheck("first cell", "wrong", f"6 * 7 shows {shown[:500]!r}", remedy)
    return DoctorCheck("first cell", "ok", f"answered {time.perf_counter() - began:.1f} s after its start")


# --- the kernelspec --------------------------------------------------------------------------------------------------


def kernelspec_row(
    name: str, folder: Path | None = None, given: Mapping[str, object] = MappingProxyType({})
) -> DoctorCheck:
    """Check that front ends find the kernel, and that its command line works. `given` are settings of the check."""
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager, NoSuchKernel

    try:
        found = KernelSpec.from_resource_dir(str(folder)) if folder else None
        spec = found or KernelSpecManager().get_kernel_spec(name)
    except NoSuchKernel:
        return DoctorCheck("kernelspec", "wrong", f"no kernel {name} is installed", _installs(name, given))
    except Exception as error:  # whatever a broken kernel.json leads to
        unreadable = f"the kernel.json of {name} cannot be read: {type(error).__name__}: {error}"
        broken = folder or Path(KernelSpecManager().find_kernel_specs().get(name, ""))
        return DoctorCheck("kernelspec", "wrong", unreadable, _installs(name, given, broken))
    where = f"{name} in {spec.resource_dir}"
    anew = _installs(name, _readable(spec.argv) | dict(given), Path(spec.resource_dir))
    try:
        problem = _problem_of(list(spec.argv), spec.interrupt_mode)
    except SandboxError as error:
        problem = str(error)
        if isinstance(error, ConfigurationError) and error.setting and error.setting in SETTINGS:
            problem = f"its setting {error.setting} is refused: {problem}"
            anew = f"{anew}, and another {SETTINGS[error.setting].flag} if it is to have one"
    if problem:
        return DoctorCheck("kernelspec", "wrong", f"{where}: {problem}", anew)
    return DoctorCheck("kernelspec", "ok", where)


def _installs(name: str, values: Mapping[str, object], folder: Path | None = None) -> str:
    """Return the command that installs a kernel with these settings; in place of the one in `folder`, if that is given.

    Front ends look into several places: one that is installed elsewhere may come after the broken one.
    """
    from jupyter_core.paths import jupyter_data_dir

    place: list[str] = []
    if folder is not None and folder.parent == Path(jupyter_data_dir(), "kernels"):
        place = ["--user"]
    elif folder is not None and folder.parent.parts[-3:] == ("share", "jupyter", "kernels"):
        place = ["--prefix", str(folder.parents[3])]
    return f"`{shlex.join(['sandbox-kernel', 'install', '--name', name, *place, *flags(values)])}`"


def _readable(argv: list[str]) -> dict[str, object]:
    """Return the settings in a kernel's command, without those that no kernel takes."""
    words = argv[argv.index("sandbox_kernel") + 1 :] if "sandbox_kernel" in argv else []
    taken: dict[str, object] = {}
    for word in words:
        with suppress(ConfigurationError):
            read_argv([word])
            taken = read_argv([*flags(taken), word])[1]
    while True:
        try:
            check(taken)
        except ConfigurationError as error:
            if taken.pop(str(error.setting), None) is None:
                return {}
        else:
            return taken


def _problem_of(argv: list[str], interrupt_mode: str) -> str | None:
    """Return what keeps the kernel from starting. Raises `SandboxError` for its settings."""
    if "sandbox_kernel" not in argv:
        return "it starts another kernel than this"
    start = argv.index("sandbox_kernel") + 1
    connection_file, values = read_argv(argv[start:])
    check(values)
    if connection_file != "{connection_file}":
        return "it does not pass the connection file on"
    if interrupt_mode != "message":
        return "its interrupt_mode is not message"
    try:
        command = [*argv[:start], "--version"]
        tried = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False, cwd="/")
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{argv[0]} does not run: {error}"
    if tried.returncode != 0:
        return f"{argv[0]} does not find sandbox_kernel: {tried.stderr.strip()[-200:]}"
    return None


def promise_rows() -> list[DoctorCheck]:
    """Name the kernelspecs of this machine that promise a sandbox, and have another command than our kernel's.

    VS Code and Zed start a kernelspec's command themselves: then it runs without a sandbox. They look into more folders
    than Jupyter, and list also those whose name Jupyter finds in another folder first.
    """
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
    from jupyter_client.provisioning.factory import KernelProvisionerFactory

    by_default = KernelProvisionerFactory.instance().default_provisioner_name == PROVISIONER
    rows: list[DoctorCheck] = []
    for place in dict.fromkeys([*KernelSpecManager().kernel_dirs, str(Path.home() / ".local/share/jupyter/kernels")]):
        for folder in sorted(file.parent for file in Path(place).glob("*/kernel.json")):
            try:
                spec = KernelSpec.from_resource_dir(str(folder))
                named = spec.metadata.get("kernel_provisioner", {}).get("provisioner_name")
                # What `install` writes down says of which image it is.
                about = spec.metadata.get("sandbox_kernel", {})
                promises = named == PROVISIONER or "image" in about
                config = spec.metadata.get("kernel_provisioner", {}).get("config", {}) if named == PROVISIONER else {}
                lacking = config.keys() - values_in(spec.argv).keys() if is_own(spec.argv) else ()
                remedy = _installs(folder.name, _promised(spec, about) | config, folder)
            except Exception:  # noqa: S112 (of others, or broken)
                continue
            if lacking:
                found = f"{folder}: VS Code and Zed do not read a provisioner's config: {', '.join(sorted(lacking))}"
                rows.append(DoctorCheck("kernelspecs", "note", found, remedy))
            elif not is_own(spec.argv) and (promises or (by_default and named is None)):
                found = f"{folder}: VS Code and Zed start {shlex.join(spec.argv[:2])} ... on this machine"
                rows.append(DoctorCheck("kernelspecs", "wrong" if promises else "note", found, remedy))
    return rows


def _promised(spec: KernelSpec, about: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that a kernelspec names besides its provisioner's, with the kernel that this would start."""
    if is_own(spec.argv):
        return _readable(spec.argv)
    kernel = {} if spec.language.lower() == "python" else {"kernel": Path(spec.resource_dir).name}
    return kernel | {name: about[name] for name in ("image", "kernel") if name in about}


def rows_of_plugins(settings: Settings, folder: Path | None = None) -> list[DoctorCheck]:
    """Check what the settings of plugins name: in these settings, and in those of the kernels that are installed."""
    own = ("", settings, dict(os.environ))
    kernels = [(f" of {name}", its, variables) for name, its, variables in _kernels(folder)]
    rows = []
    for whose, wanted, environment in [own, *kernels]:
        for plugin in index.services(wanted):
            if plugin.diagnose is None:
                continue
            rows.append(_row_of(f"{plugin.name}{whose}", plugin.diagnose(wanted, environment)))
    return rows


def inventory_rows(settings: Settings) -> list[DoctorCheck]:
    """Say what plugins have on this machine."""
    there = [plugin.inventory(settings) for plugin in index.plugins() if plugin.inventory is not None]
    return [_row_of(name, found) for one in there for name, found in one.items()]


def _row_of(name: str, found: Diagnosis) -> DoctorCheck:
    certain = any(one.certain for one in found.problems)
    status: Status = "wrong" if certain else "note" if found.problems else "skipped" if found.skipped else "ok"
    said = "; ".join(one.missing for one in found.problems) or found.there
    return DoctorCheck(name, status, said, "; ".join(dict.fromkeys(one.remedy for one in found.problems)))


def _kernels(folder: Path | None = None) -> Iterator[tuple[str, Settings, dict[str, str]]]:
    """Yield each installed kernel of ours: its name, settings and variables. Broken ones are not.

    With `folder`, it is the kernelspec in there alone.
    """
    from jupyter_client.kernelspec import KernelSpec, KernelSpecManager

    named = {folder.name: str(folder)} if folder else KernelSpecManager().find_kernel_specs()
    for name, place in sorted(named.items()):
        try:
            spec = KernelSpec.from_resource_dir(place)
            argv = list(spec.argv)
            settings = check(read_argv(argv[argv.index("sandbox_kernel") + 1 :])[1])
        except Exception:  # noqa: S112 (of others, or broken: another row says so of the one that is asked about)
            continue
        yield name, settings, {**os.environ, **spec.env}
