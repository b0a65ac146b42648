"""The engine `wasm`: for each session a process with one wasmtime store, in which CPython runs; no image, no daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...container import wire
from ...core.codes import EndCode, Survived
from ...core.errors import AbilityMissing, EngineError, EngineUnavailable
from ...core.model import PYTHON_KERNEL, SIGKILLED, ExitReason, SandboxSample, SandboxSpec, format_bytes
from ...core.remedies import install_words
from ...core.tasks import made_in_thread
from ...core.version import __version__
from ...engines import shipping
from ...engines.abilities import Ability
from ...engines.attestation import demand, same
from ...engines.base import AttestationCheck, Handover, Inspection
from ...engines.pipe import TAIL_BYTES, OverPipe, Pipe
from ...engines.seccomp import ArgumentCondition, SyscallRule, rules
from ...engines.seccomp_program import program
from ...engines.usage_watch import sample_of_family
from . import template
from .codes import NUMBERS, WasmCode
from .image import Image, find
from .settings import WasmSettings
from .template import NAME, Forked
from .versions import PINNED, faults

if TYPE_CHECKING:
    from ...engines.abilities import Ask
    from ...engines.inspectable import EngineInfo, ImageInfo, Listed, MachineCondition, Shown

MODULE = f"{__package__}.host"
ABILITIES = frozenset({Ability.SNAPSHOT, Ability.FORK, Ability.CHECKPOINT})
MAX_REPORT = 64 << 20
"""Bytes of a process's report, or of its state besides the guest's memory and files."""
KILL_SECONDS = 4.0
LEAST_MEMORY = 256 << 20
"""Of a guest: the image's memory has half of it."""
CLONE_THREAD = 0x10000
SPARE = "sandbox-kernel-wasm-"
"""How the names of folders begin, before the number of a session's process."""
NOT_CALLED = frozenset(
    """
    execve execveat fork vfork clone socket socketpair bind listen accept accept4 connect send sendto sendmsg sendmmsg
    recvmsg recvmmsg kill pidfd_open pidfd_send_signal shmget shmat shmctl msgget semget setuid setgid setreuid setregid
    setresuid setresgid setgroups setfsuid setfsgid mknod mknodat ioprio_set setpriority
    """.split()  # noqa: SIM905
)
"""What a session's process needs of a sandbox's calls no more, once it is closed in."""


def calls() -> bytes:
    """Return the filter for a session's process: a sandbox's list without processes and sockets; b"" if unknown."""
    kept = [
        SyscallRule(names, one.conditions, one.error)
        for one in rules(shared=True)
        if (names := tuple(name for name in one.names if name not in NOT_CALLED))
    ]
    kept.append(SyscallRule(("clone",), (ArgumentCondition(0, CLONE_THREAD, CLONE_THREAD),)))
    machine = os.uname().machine
    try:
        return program(tuple(kept), {"arm64": "aarch64"}.get(machine, machine))
    except LookupError:
        return b""


def installed() -> str:
    """Return the version of wasmtime here. Raises `EngineUnavailable` if there is none, or one with known faults."""
    try:
        found = version("wasmtime")
    except PackageNotFoundError:
        words = f"{WasmCode.WASM_NOT_INSTALLED.text}: {install_words('wasm')}"
        raise EngineUnavailable(WasmCode.WASM_NOT_INSTALLED, words, setting="engine") from None
    if known := faults(found, os.uname().machine):
        why = "; ".join(f"{one.advisory}: {one.what}" for one in known)
        raise EngineUnavailable(WasmCode.WASM_VERSION_UNSAFE.note(version=found, why=why), setting="engine")
    return found


def refuse(spec: SandboxSpec) -> None:
    """Raise `EngineError` for what a guest cannot have."""
    made_of, limits = spec.made_of, spec.limits
    lacking = (
        (spec.runtime is not None, f"runtime {spec.runtime!r}", "runtime"),
        (made_of is None or spec.command != shipping.COMMAND, "programs besides its kernel", "engine"),
        (made_of is not None and made_of.kernel != PYTHON_KERNEL, "kernels of other languages", "kernel"),
        (made_of is not None and made_of.inside is not None, "connections: network, tools, packages", "network"),
        (bool(spec.attached), "datasets, volumes and disks", "datasets"),
        (limits.scratch == "disk", "scratch on a disk", "scratch"),
        (limits.cpus < 1 and spec.limits_kept == "enforced", "part of a processor", "cpus"),
    )
    for is_wanted, what, setting in lacking:
        if is_wanted:
            raise EngineError(WasmCode.WASM_LACKS.note(what=what), setting=setting)
    if memory_of(spec) < LEAST_MEMORY:
        least = LEAST_MEMORY + limits.scratch_size + limits.tmp_size
        words = "the guest, scratch and /tmp together need more memory"
        value = format_bytes(limits.memory)
        raise EngineError(EndCode.ENGINE_NOT_SET_UP, words, limit=format_bytes(least), value=value, setting="memory")


def memory_of(spec: SandboxSpec) -> int:
    """Return what the guest itself may have, in whole pages: all of the session's memory but for its files."""
    most = min(spec.limits.memory - spec.limits.scratch_size - spec.limits.tmp_size, 4 << 30)
    return most >> 16 << 16


def told(spec: SandboxSpec, image: Image, found: str, spare: str, own: WasmSettings) -> dict[str, Any]:
    """Return what a session's process is told; nothing of it is a secret."""
    config = shipping.agent_config(spec.limits, spec.made_of or shipping.PLAIN)
    # The first line is for ipykernel's sockets, which a guest has none of.
    guest = {
        "environment": {**config["environment"], **_OWN},
        "scratch": "/mnt/data",
        "installed": shipping.INSTALLED,
        "words": {name: f"{one.code}: {one.text}" for name, one in _WORDS.items()},
        "lines": [line for line in config["lines"] if "iopub_thread" not in line],
    }
    limits = spec.limits
    return {
        "image": image.folder,
        "contents": image.contents,
        "wasmtime": found,
        "memory_bytes": image.memory_bytes,
        "bits": image.bits,
        "memory": memory_of(spec),
        "data_bytes": limits.scratch_size,
        "tmp_bytes": limits.tmp_size,
        "uid": spec.uid,
        "open_files": limits.open_files,
        "max_frame": config["max_frame"],
        "calls": calls().hex(),
        "spare": spare,
        "undo": own.undo == "on",
        "fuel": own.fuel,
        "metered": image.metered,
        "guest": json.dumps(guest),
    }


_WORDS = {
    "processes": WasmCode.WASM_NO_PROCESSES,
    "sockets": WasmCode.WASM_NO_SOCKETS,
    "none": WasmCode.WASM_NO_PAGE_MAP,
    "name": EndCode.CHECKPOINT_NAME_UNFIT,
    "missing": EndCode.CHECKPOINT_MISSING,
}
"""What a guest says of what it lacks, or cannot have."""
_OWN = {"TMPDIR": "/tmp", "HOME": "/tmp/home", "MPLBACKEND": "module://matplotlib_inline.backend_inline"}  # noqa: S108


class WasmEngine:
    """wasmtime, of the package's extra `wasm`."""

    address = "wasm"
    abilities = ABILITIES

    def __init__(self, own: WasmSettings | None = None) -> None:
        self._own = own or WasmSettings()

    async def start(self, spec: SandboxSpec) -> WasmContainer:
        """Start a session's process. One that fails, or is cancelled, leaves nothing behind."""
        return await self._start(spec, None)

    async def restore(self, spec: SandboxSpec, fd: int, facts: Mapping[str, Any]) -> WasmContainer:
        """Start a session's process that goes on from what `WasmContainer.save` has written."""
        if facts.get("image") != find(spec.image).contents:
            raise EngineError(EndCode.ENGINE_FAILED, "the image of the engine wasm is another one by now")
        container = await self._start(spec, fd)
        try:
            await container.hear(spec.limits.start_timeout)
        except BaseException:
            await asyncio.shield(container.kill())
            raise
        return container

    async def _start(self, spec: SandboxSpec, saved: int | None) -> WasmContainer:
        found = installed()
        image = find(spec.image)
        if (image.wasmtime, image.machine) != (found, os.uname().machine):
            words = f"the image is for wasmtime {image.wasmtime} on {image.machine}, and here is {found}"
            raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"{words}. Run `sandbox-kernel build --engine wasm`")
        if self._own.fuel and not image.metered:
            raise EngineError(WasmCode.WASM_NOT_METERED, setting="fuel")
        spec = shipping.without_home(spec)
        refuse(spec)
        try:
            process, mine, errors = await made_in_thread(lambda: _begun(spec.session_id, image, saved), _give_up)
        except OSError as error:
            raise EngineError(EndCode.ENGINE_NOT_SET_UP, f"Python does not start: {error}") from error
        container = WasmContainer(process, Pipe(mine), errors, image, spec.limits.memory)
        container.undoes = self._own.undo == "on"
        try:
            said = told(spec, image, found, container.spare, self._own)
            await container.load(shipping.sized(json.dumps({**said, "saved": saved})))
        except BaseException:
            await asyncio.shield(container.kill())
            raise
        return container

    async def adopt(self, fd: int, state: dict[str, Any]) -> WasmContainer:
        raise EngineError(EndCode.CONTAINER_NOT_ADOPTED, _NOT_ADOPTED)

    async def reap(self) -> int:
        """Remove what sessions left that were killed together with their owner. Processes end with their pipe."""
        return await asyncio.to_thread(_remove_left)

    async def info(self) -> EngineInfo:
        from ...engines.inspectable import EngineInfo
        from .image import places

        return EngineInfo(
            version=installed(),
            api_version="",
            architecture=os.uname().machine,
            runtimes=frozenset(),
            default_runtime="",
            seccomp=bool(calls()),
            limited=frozenset({"memory", "swap", "cpus", "pids"}),
            cgroup_version="",
            memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
            folder=next(iter(places())),
            product="wasmtime",
        )

    async def conditions(self) -> tuple[MachineCondition, ...]:
        from ...engines.inspectable import MachineCondition

        rows = [MachineCondition("experimental", met=True, found=NUMBERS)]
        try:
            found = f"{installed()}; {PINNED} is the one that is tested"
            rows.append(MachineCondition("wasmtime", met=True, found=found))
        except EngineUnavailable as error:
            rows.append(MachineCondition("wasmtime", met=False, found=error.message, remedy=error.code.remedy))
        return tuple(rows)

    async def list(self) -> tuple[Listed, ...]:
        from ...engines.inspectable import Listed

        return tuple(
            Listed(
                session=session,
                container=f"wasm-{pid}",
                owner_pid=owner,
                owner_alive=owner is not None,
                state="running",
                age_seconds=age,
                image="wasm",
                memory_bytes=0,
                version=made_by,
                reaches_hosts=False,
            )
            for pid, session, made_by, age, owner in await asyncio.to_thread(
                lambda: [(*one, _owner(one[0])) for one in sessions()]
            )
        )

    async def used(self, container: str) -> SandboxSample:
        sample = await asyncio.to_thread(sample_of_family, int(container.removeprefix("wasm-")))
        return sample._replace(programs=None)

    async def shown(self, container: str) -> Shown:
        from ...engines.inspectable import Shown

        pid = int(container.removeprefix("wasm-"))
        return Shown(inside=frozenset({pid}), one_user=os.geteuid() != 0)

    async def image(self, name: str) -> ImageInfo:
        from ...engines.inspectable import ImageInfo

        found = find(name)
        return ImageInfo(size_bytes=found.size_bytes, made=found.made, contents=found.contents, identity=found.contents)


def _begun(session: str, found: Image, saved: int | None) -> tuple[Forked, socket.socket, Any]:
    """Start a session's process; return it, this side of its pipe, and the file of its last words. Raises `OSError`."""
    mine, theirs = socket.socketpair()
    errors = tempfile.TemporaryFile()  # noqa: SIM115 (read when the process has ended)
    try:
        with theirs:
            process = None
            if saved is None:
                process = template.forked(MODULE, found, session, theirs.fileno(), errors.fileno())
            return process or _alone(session, theirs, errors, saved), mine, errors
    except BaseException:
        mine.close()
        errors.close()
        raise


def _give_up(begun: tuple[Forked, socket.socket, Any]) -> None:
    """End a process that nobody waits for any more: it ends with its pipe."""
    process, mine, errors = begun
    os.close(process.handle)
    mine.close()
    errors.close()


def _alone(session: str, pipe: socket.socket, errors: Any, saved: int | None) -> Forked:
    process = subprocess.Popen(
        [sys.executable, "-I", "-m", MODULE, session, f"--version={__version__}"],
        stdin=pipe.fileno(),
        stdout=pipe.fileno(),
        stderr=errors,
        env={},
        cwd="/",
        start_new_session=True,
        pass_fds=() if saved is None else (saved,),
    )
    process.returncode = 0  # its end is awaited by its pidfd
    return Forked(process.pid, os.pidfd_open(process.pid))


def _remove_left() -> int:
    count = 0
    for folder in Path(tempfile.gettempdir()).glob(f"{SPARE}*"):
        pid = folder.name.removeprefix(SPARE)
        with contextlib.suppress(OSError):
            if pid.isdigit() and folder.lstat().st_uid == os.geteuid() and not Path("/proc", pid).exists():
                shutil.rmtree(folder)
                count += 1
    return count


def sessions() -> Iterator[tuple[int, str, str, int]]:
    """Yield the processes of sessions: number, session, version and age in seconds. Anybody can look like one."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
                if words[1:4] == ["-I", "-m", MODULE] and len(words) > 5 and words[4] != NAME:
                    ticks = float((entry / "stat").read_text().rpartition(")")[2].split()[19])
                    up = float(Path("/proc/uptime").read_text().split()[0])
                    age = int(up - ticks / os.sysconf("SC_CLK_TCK"))
                    yield int(entry.name), words[4], words[5].partition("=")[2], age


def _owner(pid: int) -> int | None:
    """Return the process whose child a session is, or the child of its child, which is a template; None if it ended."""
    try:
        parent = _parent(pid)
        words = Path(f"/proc/{parent}/cmdline").read_bytes().split(b"\0")
        if words[3:5] == [MODULE.encode(), NAME.encode()]:
            parent = _parent(parent)
    except OSError:
        return None
    return parent if parent > 1 else None


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


_KILLED = ExitReason(kind="killed", exit_code=SIGKILLED, detail="the sandbox was ended by its owner")
_NOT_ADOPTED = "no sandbox of the engine wasm can be adopted: it ends with its owner"


class WasmContainer(OverPipe):
    """A session's process. Made by `WasmEngine.start` only."""

    held = True
    abilities = ABILITIES
    report: object = None
    """What the process says of itself, once that is known."""
    undoes = False
    """Whether it has to have checkpoints."""

    def __init__(self, process: Forked, pipe: Pipe, errors: Any, image: Image, most: int) -> None:
        self.id = f"wasm-{process.pid}"
        self.image_id: str | None = None
        self._pipe = pipe
        self._pid = process.pid
        self._errors, self._image, self._most = errors, image, most
        self.spare = f"{tempfile.gettempdir()}/{SPARE}{process.pid}"
        """Where the process makes a folder if it can have no sized ones. It removes that, unless it is killed."""
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[ExitReason] = self._loop.create_future()
        self._killed = False
        self._handle = process.handle
        self._loop.add_reader(self._handle, self._has_ended)

    async def load(self, data: bytes) -> None:
        await self._pipe.load(data)

    async def hear(self, seconds: float) -> None:
        """Take in what a process says of itself that waits for its first command then."""
        decoder, frames = wire.Decoder(MAX_REPORT), list[tuple[int, tuple[bytes, ...]]]()
        try:
            async with asyncio.timeout(seconds):
                while not frames:
                    if not (data := await self.receive()):
                        raise EngineError(EndCode.ENGINE_FAILED, (await self.wait()).detail[-500:])
                    frames = decoder.feed(data)
        except TimeoutError:
            raise EngineError(EndCode.ENGINE_SILENT, limit=f"{seconds:.0f} s") from None
        self.report = json.loads(frames[0][1][0])["report"]

    async def save(self, fd: int, ask: Ask) -> dict[str, Any]:
        """Write the guest's memory and its files down, all by what its process answers, which is bounded."""
        said, data = await ask("save")
        size = 0
        while said.get("ok") is True:
            said, data = await ask("saved")
            if not data:
                return {"image": self._image.contents}
            size += len(data)
            if size > self._most + MAX_REPORT:
                raise EngineError(EndCode.SANDBOX_SILENT, "the sandbox has no end", limit=format_bytes(self._most))
            await asyncio.to_thread(_write, fd, data)
        if said.get("error") == "none":
            raise AbilityMissing(WasmCode.WASM_NO_PAGE_MAP, setting="engine")
        raise EngineError(EndCode.SANDBOX_SILENT, "the sandbox does not stand still")

    async def resume(self) -> None:
        """It goes on by itself when it is written down."""

    async def wait(self) -> ExitReason:
        return await asyncio.shield(self._ended)

    async def kill(self) -> None:
        """End the process, within 4 s. Raises `EngineError` when that is not done by then."""
        if not self._ended.done() and self._errors.closed:  # abandoned: nothing hears of its end
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)  # its number is its own until somebody waits for it
                await asyncio.to_thread(os.waitpid, self._pid, 0)
            self._ended.set_result(_KILLED)
        elif not self._ended.done():
            self._killed = True
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            try:
                async with asyncio.timeout(KILL_SECONDS):
                    await self.wait()
            except TimeoutError:
                limit = f"{KILL_SECONDS:.0f} s"
                raise EngineError(EndCode.CONTAINER_NOT_REMOVED, "the sandbox did not end", limit=limit) from None
        self._pipe.close()

    def abandon(self) -> None:
        self._pipe.abandon()  # the process ends with its pipe
        if not self._errors.closed:
            self._forget()

    def detach(self) -> Handover:
        raise EngineError(EndCode.CONTAINER_NOT_ADOPTED, _NOT_ADOPTED)

    async def sample(self) -> SandboxSample:
        return await asyncio.to_thread(sample_of_family, self._pid)

    def _forget(self) -> str:
        """Let go of what hears of the process; return what it has said last."""
        if not self._loop.is_closed():
            self._loop.remove_reader(self._handle)
        os.close(self._handle)
        with self._errors:
            self._errors.seek(-min(TAIL_BYTES, self._errors.seek(0, os.SEEK_END)), os.SEEK_END)
            return str(self._errors.read().decode("utf-8", "replace")).strip()

    def _has_ended(self) -> None:
        detail = self._forget()
        try:
            code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        except ChildProcessError:  # a template's: one that ends by itself says why
            code = 1 if detail else -signal.SIGKILL
        self._pipe.finish()
        shutil.rmtree(self.spare, ignore_errors=True)
        if self._killed:
            reason = _KILLED
        elif detail.endswith("out of scratch"):
            reason = ExitReason(kind="out_of_scratch", exit_code=SIGKILLED, detail="its folders are full")
        elif code < 0:
            reason = ExitReason(kind="killed", exit_code=128 - code, detail="the sandbox was ended from outside")
        else:
            reason = ExitReason(kind="exited", exit_code=code, detail=detail)
        self._ended.set_result(reason)

    # --- what it is ---

    async def compare(self, report: object, spec: SandboxSpec) -> tuple[AttestationCheck, ...]:
        """Compare what the process says of itself before a guest runs in it: it is this package's own program."""
        if self._ended.done():
            raise EngineError(EndCode.CONTAINER_GONE, kept=Survived.NOTHING)
        self.image_id = self._image.contents
        said = report if isinstance(report, dict) else {}
        undo = (same("checkpoints", expected=True, found=said.get("checkpoints")),) if self.undoes else ()
        return (*lines(said, spec, self._image), *undo)

    async def attest(self, report: object, spec: SandboxSpec) -> None:
        demand(await self.compare(report, spec))

    async def look(self, spec: SandboxSpec) -> Inspection:
        return Inspection(() if self.report is None else await self.compare(self.report, spec), frozenset())


WEAKER = "the setting limits accepts that only WebAssembly is between the guest and this user's files"


def lines(report: dict[str, Any], spec: SandboxSpec, image: Image) -> Iterator[AttestationCheck]:
    """Yield the comparisons of a session's process with its spec."""
    yield same("image", image.contents, report.get("image"))
    yield same("wasmtime", image.wasmtime, report.get("wasmtime"))
    yield same("memory limit", memory_of(spec), report.get("memory"))
    yield same("environment variables", [], [one for one in report.get("environment", [None]) if one != "LC_CTYPE"])
    yield same("core file size", [0, 0], report.get("core"))
    accepted = spec.limits_kept == "best-effort"
    for name in ("root of its own", "capabilities dropped", "no new privileges", "system call filter"):
        check = same(name, expected=True, found=report.get(name))
        if not check.ok and accepted:
            check = replace(check, ok=True, excuse=WEAKER)
        elif not check.ok:
            check = replace(check, found=f"{check.found} (limits = best-effort accepts that)")
        yield check
    if report.get("root of its own") is True or not accepted:
        whole = -(-spec.limits.scratch_size // 4096) * 4096
        yield same("size of scratch", whole, report.get("scratch"))
        if os.geteuid() == 0:
            yield same("user ids", [spec.uid] * 3, report.get("uids"))
            yield same("other groups", [], report.get("groups"))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]
