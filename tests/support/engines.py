"""What the tests of the engines share: each engine as the contract meets it, programs to run inside, readers."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import os
import secrets
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import psutil

from sandbox_kernel.container import agent_report, syscall_filters
from sandbox_kernel.core.model import MIB, Limits, LimitsKept, SandboxSpec
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.base import Container, Engine
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.docker.engine_errors import NoSuchContainer
from sandbox_kernel.plugins import index
from tests.support.plain_engine import SESSION, PlainEngine
from tests.support.roots import root_of_tests

if TYPE_CHECKING:
    from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine
    from sandbox_kernel.plugins.bubblewrap.process_labels import LabelledProcess
    from sandbox_kernel.plugins.podman.engine import PodmanEngine
    from tests.plugins.broker.brokers import Daemon

IMAGE = os.environ.get("SANDBOX_KERNEL_TEST_IMAGE", "sandbox-kernel:base")

Started = TypeVar("Started", bound=Container)


@contextlib.asynccontextmanager
async def alive(starting: Awaitable[Started]) -> AsyncIterator[Started]:
    """Give the container that an engine starts, for as long as a block."""
    container = await starting
    try:
        yield container
    finally:
        await container.kill()


SMALL = Limits(memory=192 * MIB, scratch_size=32 * MIB, tmp_size=16 * MIB, shm_size=16 * MIB)

ECHO = """
import os
while data := os.read(0, 65536):
    while data:
        data = data[os.write(1, data) :]
"""
"""Gives back what it gets. gVisor takes less than it is given where the host's pipe has less room."""

DEAF = "import signal, time\nfor number in (1, 2, 3, 15): signal.signal(number, signal.SIG_IGN)\ntime.sleep(600)"
"""Hears nothing of its pipe, as an agent does that gets no turn of the processor."""

REPORT = """
import json, sys
filters, module = {"__name__": "syscall_filters"}, {"__name__": "agent_report"}
exec(sys.argv[2], filters)
exec(sys.argv[1], module)
status = module["own_status"]()
filters = filters["install"](bytes.fromhex(sys.argv[3]))
print(json.dumps(module["collect"](status, filters)), flush=True)
sys.stdin.read()
"""


def report_sources() -> tuple[str, str, str]:
    """Return what `REPORT` takes as its arguments: two programs, and the filter that the agent is sent."""
    return (
        Path(agent_report.__file__).read_text(encoding="utf-8"),
        Path(syscall_filters.__file__).read_text(encoding="utf-8"),
        shipping.calls().hex(),
    )


def new_spec(code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
    """Return a spec for a program in a small container of its own; `fields` are the spec's."""
    if fields.get("runtime") == "runc":
        fields["runtime"] = None  # the default, and so named nowhere
    return SandboxSpec(
        **{
            "session_id": secrets.token_hex(8),
            "image": IMAGE,
            "limits": SMALL,
            "command": ("python3", "-I", "-c", code, *arguments),
            "uid": 300_000_000 + secrets.randbelow(100_000_000),
            **fields,
        }
    )


def config_of(program: bytes) -> dict[str, Any]:
    """Return what an agent is told, of its program."""
    found = ast.literal_eval(program.partition(b"\n")[0].partition(b"CONFIG = ")[2].decode())
    assert isinstance(found, dict)
    return found


async def receive_all(container: Container) -> bytes:
    output = bytearray()
    while data := await container.receive():
        output += data
    return bytes(output)


async def receive_line(container: Container) -> bytes:
    output = bytearray()
    while not output.endswith(b"\n"):
        data = await container.receive()
        assert data, (await container.wait()).detail
        output += data
    return bytes(output)


async def containers_of(engine: DockerEngine, session_id: str) -> list[str]:
    """Return the containers that the engine has for a session, running or not."""
    return [row.container for row in await engine.list() if row.session == session_id]


UNSEEN = "test_its_programs_are_seen_from_outside"
DATASET = "test_a_dataset_is_attested_and_read_and_cannot_be_changed"


# --- engines as the contract meets them -------------------------------------------------------------------------------


class EngineUnderTest(Protocol):
    """An engine, and what a look from outside can do."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str:
        """Return a line that imports it as `Engine`, for another process."""

    @property
    def lacks(self) -> Mapping[str, str]:
        """Return the tests of the contract that it cannot pass, each with the reason; they must go on failing."""

    @property
    def unenforced(self) -> Mapping[str, str]:
        """Return the lines of the attestation that differ, each with the reason: no sandbox of it is accepted."""

    def absent(self) -> str | None:
        """Return why it is not to be had here."""

    def make(self) -> Engine: ...

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec: ...

    async def left(self, session_id: str) -> list[str]:
        """Look from outside what is there of a session."""

    async def end_from_outside(self, container: Container) -> None:
        """Kill it behind its owner's back."""

    async def sweep(self, session_id: str) -> None:
        """Remove what a test that fails has left."""


@cache
def docker_runtimes() -> frozenset[str]:
    return asyncio.run(DockerEngine().info()).runtimes


@dataclass(frozen=True)
class Docker:
    """Docker with one runtime."""

    runtime: str
    name: str
    lacks: Mapping[str, str] = field(default_factory=dict)
    unenforced: Mapping[str, str] = field(default_factory=dict)
    address: str | None = None
    """Of a daemon beside the usual one (`tests.engines`)."""
    limits: LimitsKept = "enforced"

    @property
    def source(self) -> str:
        line = "from sandbox_kernel.engines.docker.engine import DockerEngine as Engine"
        if self.address is None:
            return line
        return f"{line}; from functools import partial; Engine = partial(Engine, {self.address!r})"

    def absent(self) -> str | None:
        return None if self.runtime in docker_runtimes() else f"the engine has no runtime {self.runtime!r}"

    def make(self) -> DockerEngine:
        return DockerEngine(self.address)

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        return new_spec(code, *arguments, **{"runtime": self.runtime, "limits_kept": self.limits, **fields})

    async def left(self, session_id: str) -> list[str]:
        return await containers_of(self.make(), session_id)

    async def end_from_outside(self, container: Container) -> None:
        await self.make().request("POST", f"/containers/{container.id}/kill?signal=KILL")

    async def sweep(self, session_id: str) -> None:
        for identity in await self.left(session_id):
            await self.make().remove(identity)


class Podman(Docker):
    """Podman, whose address `tests.other_dockers` says."""

    @property
    def source(self) -> str:
        line = "from sandbox_kernel.plugins.podman.engine import PodmanEngine; from functools import partial"
        return f"{line}; Engine = partial(PodmanEngine, {self.address!r})"

    def absent(self) -> str | None:
        return None if self.address else "`make test-engines` starts it"

    def make(self) -> PodmanEngine:
        from sandbox_kernel.plugins.podman.engine import PodmanEngine

        assert self.address is not None
        return PodmanEngine(self.address)

    async def end_from_outside(self, container: Container) -> None:
        with contextlib.suppress(NoSuchContainer):  # Podman waits for its end, when it may be removed already
            await super().end_from_outside(container)


class Plain:
    """A child process without any wall."""

    name = "plain"
    source = "from tests.support.plain_engine import PlainEngine as Engine"
    lacks: Mapping[str, str] = {
        "test_out_of_memory_is_named": "nobody limits its memory",
        "test_a_container_that_does_not_hear_of_its_owner_s_end_is_ended": "nothing outlives its owner to end it",
        "test_a_missing_image_is_an_error_of_its_own": "it knows no images",
        "test_scratch_on_a_disk_is_bounded_and_goes_with_the_sandbox": "nobody makes it a disk",
        UNSEEN: "nobody asks for its processes, which are this machine's",
        DATASET: "it mounts nothing",
    }
    unenforced: Mapping[str, str] = {
        "engine": "there is none",
        "process id of the agent": "it sees all processes of the machine",
        "user ids": "it runs as whoever started it",
        "root file system": "it is the machine's",
        "mounts besides the sandbox's own": "all of the machine's are there",
        "host name": "it is the machine's",
        "size of /dev/shm": "it is the machine's",
    }

    def absent(self) -> str | None:
        return None

    def make(self) -> PlainEngine:
        return PlainEngine()

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        # This interpreter, and not what stands for one in the PATH: it is one process.
        return new_spec(**{"command": (sys.executable, "-I", "-c", code, *arguments), **fields})

    async def left(self, session_id: str) -> list[str]:
        return [str(process.pid) for process in self._processes(session_id)]

    async def end_from_outside(self, container: Container) -> None:
        os.kill(int(container.id), signal.SIGKILL)

    async def sweep(self, session_id: str) -> None:
        for process in self._processes(session_id):
            process.kill()

    def _processes(self, session_id: str) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get(SESSION) == session_id and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found


@dataclass(frozen=True)
class Bubblewrap:
    """bubblewrap, on a root that is made of the test's image; with a cgroup, or with the weaker form of limits."""

    name: str
    cgroup: bool = True
    lacks: Mapping[str, str] = field(default_factory=dict)
    unenforced: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        line = "from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine as Engine"
        return line if self.cgroup else f"{line}; from functools import partial; Engine = partial(Engine, cgroup=False)"

    def absent(self) -> str | None:
        from sandbox_kernel.plugins.bubblewrap import cgroups
        from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program

        if bubblewrap_program() is None:
            return "there is no bubblewrap"
        return cgroups.available() if self.cgroup else None

    def make(self) -> BubblewrapEngine:
        from sandbox_kernel.plugins.bubblewrap.engine import BubblewrapEngine

        return BubblewrapEngine(cgroup=self.cgroup)

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        kept = {} if self.cgroup else {"limits_kept": "best-effort"}
        return new_spec(code, *arguments, **{"image": root_of_tests(), **kept, **fields})

    def found(self) -> Iterator[LabelledProcess]:
        """Look which there are."""
        from sandbox_kernel.plugins.bubblewrap.process_labels import sandboxes

        return sandboxes()

    async def left(self, session_id: str) -> list[str]:
        """Return the names of those that have a process, or a cgroup."""
        running = {found.name for found in self.found() if found.session == session_id}
        return sorted(running | self._groups(session_id))

    def _groups(self, session_id: str) -> set[str]:
        return {path.name for path in Path("/sys/fs/cgroup").glob(f"*/sandbox-kernel-{session_id[:12]}-*")}

    async def end_from_outside(self, container: Container) -> None:
        state = next(found for found in self.found() if found.name == container.id)
        for child in psutil.Process(state.pid).children():
            child.kill()

    async def sweep(self, session_id: str) -> None:
        for process in self._processes(session_id):
            for child in process.children():
                child.kill()

    def _processes(self, session_id: str) -> list[psutil.Process]:
        return [psutil.Process(found.pid) for found in self.found() if found.session == session_id]


@dataclass(frozen=True)
class Brokered:
    """An engine behind a broker, which is a process of its own."""

    inner: Docker | Bubblewrap
    lacks: Mapping[str, str] = field(default_factory=lambda: {DATASET: "it takes no folder of a caller's"})

    @property
    def name(self) -> str:
        return f"broker-of-{self.inner.name}"

    @property
    def unenforced(self) -> Mapping[str, str]:
        return self.inner.unenforced

    @property
    def source(self) -> str:
        address = self._daemon().address
        line = "from tests.plugins.broker.brokers import RawBrokerEngine; from functools import partial"
        return f"{line}; Engine = partial(RawBrokerEngine, {address!r})"

    def absent(self) -> str | None:
        return self.inner.absent()

    def make(self) -> Engine:
        from tests.plugins.broker.brokers import RawBrokerEngine

        return RawBrokerEngine(self._daemon().address)

    def spec(self, code: str = ECHO, *arguments: str, **fields: Any) -> SandboxSpec:
        return self.inner.spec(code, *arguments, **fields)

    async def left(self, session_id: str) -> list[str]:
        return await self.inner.left(session_id)

    async def end_from_outside(self, container: Container) -> None:
        await self.inner.end_from_outside(container)

    async def sweep(self, session_id: str) -> None:
        await self.inner.sweep(session_id)

    def _daemon(self) -> Daemon:
        """Return the broker's process."""
        from tests.plugins.broker.brokers import shared

        return shared("--anything", "--engine", "docker" if isinstance(self.inner, Docker) else self.inner.name)


BUBBLEWRAP: tuple[Bubblewrap, ...] = ()
if index.is_here("bubblewrap"):
    BUBBLEWRAP = (Bubblewrap("bubblewrap"), Bubblewrap("bubblewrap-best-effort", cgroup=False))
ALL: tuple[EngineUnderTest, ...] = (
    Docker("runc", "docker"),
    Docker("runsc", "docker-gvisor", lacks={UNSEEN: "this machine has gVisor's processes, and none of the cells'"}),
    *BUBBLEWRAP,
    Plain(),
)
"""Every engine that is not emulated, and every runtime that is said to work."""
if index.is_here("broker"):
    ALL += (Brokered(Docker("runc", "docker")), *map(Brokered, BUBBLEWRAP[:1]))

DISK = "test_scratch_on_a_disk_is_bounded_and_goes_with_the_sandbox"
BESIDE = os.environ.get("SANDBOX_KERNEL_TEST_DOCKER")
"""The address of a daemon beside the usual one, as `tests.docker_engines` sets it."""
OTHER_DAEMONS: tuple[Docker, ...] = (
    Docker("runc", "docker-29", address=BESIDE),
    Docker(
        "runc",
        "docker-remapped",
        lacks={DISK: "the file system's user is not the sandbox's"},
        address=BESIDE,
    ),
    Docker(
        "runc",
        "docker-rootless",
        lacks={DISK: "a daemon without root mounts none"},
        address=BESIDE,
        limits="best-effort",
    ),
)

if index.is_here("podman"):
    _NO_LAYER = {DATASET: "it mounts no layer"}
    OTHER_DAEMONS += (
        Podman("runc", "podman", lacks=_NO_LAYER, address=BESIDE),
        Podman(
            "runc",
            "podman-rootless",
            lacks={**OTHER_DAEMONS[-1].lacks, **_NO_LAYER},
            address=BESIDE,
            limits="best-effort",
        ),
    )

OF_OTHERS = ("broker", "bubblewrap", "podman", "shared", "wasm")
"""Plugins whose sandboxes are those of another engine, or that are in `ALL` or `OTHER_DAEMONS`; and `wasm`.

That one runs no program but its own kernel, so that no attack or limit is tried by a program in it.
"""
ONLY = os.environ.get("SANDBOX_KERNEL_TEST_ENGINE")


@cache
def of_plugins() -> tuple[Bubblewrap, ...]:
    """Return the engines of our plugins that are here: each has a module `engine` among its tests.

    They are emulated, and slow by that: a run has one of them under test, and nothing else.
    """
    here = [name for name in index.ENGINES if name not in OF_OTHERS and index.is_here(name)]
    return tuple(import_module(f"tests.plugins.{name}.engine").UNDER_TEST for name in here)


@cache
def under_test() -> tuple[EngineUnderTest, ...]:
    """Return those of this run; `SANDBOX_KERNEL_TEST_ENGINE` names one."""
    if ONLY is None:
        return ALL
    if ONLY == "wasm":
        return (import_module("tests.plugins.wasm.engine").UNDER_TEST,)
    others = of_plugins()
    lent = (Brokered(one, {**one.lacks, **Brokered(one).lacks}) for one in others) if index.is_here("broker") else ()
    return tuple(one for one in (*ALL, *others, *lent, *OTHER_DAEMONS) if one.name == ONLY)
