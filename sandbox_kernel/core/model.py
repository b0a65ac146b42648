"""The frozen values that the parts hand to each other; units stand in the names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple, TypeVar

from .codes import Code, EndCode, UsageCode
from .errors import ConfigurationError

T = TypeVar("T")
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

Channel = Literal["shell", "control", "stdin", "iopub"]
OutputMode = Literal["safe", "strict", "trusted"]
LimitsKept = Literal["enforced", "best-effort"]
Scratch = Literal["memory", "disk"]
CoreScheduling = Literal["off", "on"]

MAX_RULES_SHOWN = 20

SCRATCH = "/mnt/data"
"""The working directory of every cell: the place that model-written code already expects."""
HOME = "/home/user"
"""What hosted interpreters call that folder. Each of both names leads to the other, unless scratch itself is there."""
PYTHON_KERNEL = "python3"
"""The kernel that every image has, and whose start is the host's. Others are kernelspecs of an image."""
KERNEL_NAME = r"[A-Za-z0-9._-]{1,100}"
"""What the name of a kernelspec looks like."""
DATA_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}"
"""What the name of a dataset or a volume looks like."""
PRELOAD = ("numpy", "pandas", "matplotlib.pyplot")
"""What kernels have imported that wait for their users, unless somebody chooses otherwise."""
ATTACHED = "/mnt"
"""Where a sandbox has the datasets and volumes that it was given: /mnt/datasets/NAME and /mnt/volumes/NAME."""
MAX_ATTACHED = 32
"""Datasets of a sandbox, and volumes."""
DATASETS = f"{ATTACHED}/datasets/"
SPILL = f"{SCRATCH}/.tmp"
"""Where programs put what does not fit into memory, if scratch is on a disk. No file of it is copied out."""
SERVICE_PORT = 3128
"""Of the sandbox's own loopback: where a cell that has a way out finds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one session may use. Sizes in bytes, times in seconds."""

    memory: int = 2 * GIB
    """All processes, and every file in scratch, /tmp and /dev/shm: these live in memory. Swap is never added."""
    cpus: float = 2.0
    pids: int = 256
    """Processes and threads together."""
    open_files: int = 1024
    scratch: Scratch = "memory"
    """Where scratch is: in `memory`, of which it is a part, or on a disk of its own."""
    scratch_size: int = 0
    """Of this one and the next two, 0 is an equal share of three quarters of memory, a quarter at most; on a disk,
    scratch has 10 GiB then."""
    tmp_size: int = 0
    shm_size: int = 0
    cell_timeout: float = 300.0
    interrupt_grace: float = 2.0
    """How long a cell may take to end after an interrupt for its time limit, before its kernel is killed."""
    idle_timeout: float = 3600.0
    start_timeout: float = 60.0
    """Engine, agent and kernel together must be ready within this."""
    output_limit: int = 128 * MIB
    """Output of one cell."""
    output_messages: int = 100_000
    """Messages of one cell: streams, displays, display updates."""
    message_limit: int = 96 * MIB
    """One message from the container, buffers included."""
    file_limit: int = 0
    """One file that is copied into scratch or out of it; 0 is as much as scratch holds."""
    folder_limit: int = 0
    """All files of an upload folder; all that a session has put into its download folder. 0 is as much as scratch
    holds, and 1 GiB at least."""
    folder_files: int = 1000
    """How many files these are."""
    network_connections: int = 64
    """Connections that are open at a time. Like what follows, of no account where nothing serves them."""
    network_bytes: int = 2 * GIB
    """What the connections of one cell bring in, and as much again out."""
    network_timeout: float = 120.0
    """How long a connection may take to be made, and how long it may be silent."""

    def __post_init__(self) -> None:
        if self.scratch == "disk" and not self.scratch_size:
            object.__setattr__(self, "scratch_size", DISK_BYTES)
        for name in self.__dataclass_fields__:
            given = getattr(self, name)
            if name != "scratch" and (given < 0 or (given == 0 and name not in _MAY_FOLLOW)):
                raise ConfigurationError(
                    EndCode.WRONG_SETTING, f"{name} must be positive, not {getattr(self, name)}", setting=name
                )
        in_memory = FOLDERS_IN_MEMORY[1:] if self.scratch == "disk" else FOLDERS_IN_MEMORY
        sizes = {name: getattr(self, name) for name in in_memory}
        following = [name for name, size in sizes.items() if not size]
        most, files = self.memory * 3 // 4, sum(sizes.values())
        share = min(self.memory // 4, (most - files) // max(1, len(following))) // KIB * KIB
        if files + max(share, SMALLEST_FOLDER) * len(following) > most:
            raise ConfigurationError(
                UsageCode.MEMORY_TOO_SMALL,
                "scratch, /tmp and /dev/shm live in the sandbox's memory and would fill more than three quarters of it",
                limit=format_bytes(most),
                value=format_bytes(files + SMALLEST_FOLDER * len(following)),
                setting="memory or scratch_size",
            )
        for name in following:
            object.__setattr__(self, name, share)


FOLDERS_IN_MEMORY = ("scratch_size", "tmp_size", "shm_size")
"""Limits of folders that live in memory, and follow it unless they are chosen."""
SMALLEST_FOLDER = MIB
DISK_BYTES = 10 * GIB
_MAY_FOLLOW = frozenset({"file_limit", "folder_limit", *FOLDERS_IN_MEMORY})
"""Limits of which 0 stands for what follows from others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything a user can choose, resolved and checked; made by `config` or by a caller of the SDK."""

    engine: str = "auto"
    runtime: str | None = None
    """The engine's OCI runtime: None is its default; "runsc" is gVisor."""
    image: str = "sandbox-kernel:data"
    kernel: str = PYTHON_KERNEL
    """The kernelspec of the image that runs the cells."""
    limits: Limits = field(default_factory=Limits)
    limits_kept: LimitsKept = "enforced"
    """Whether a sandbox may start where no cgroup can limit memory, processes and processors."""
    cpuset: str | None = None
    """The processors of this machine that a sandbox runs on, as in "0-3,8"; None is all."""
    core_scheduling: CoreScheduling = "off"
    """Whether nothing else may run on the other thread of a processor's core while a sandbox runs there."""
    outputs: OutputMode = "safe"
    time_zone: str | None = "machine"
    """The zone of the clock in cells, as the tz database names it; "machine" is this machine's, None is UTC."""
    uploads: str | None = None
    """A host folder whose regular files are copied into scratch: at start, and what changed before each cell."""
    downloads: str | None = None
    """A host folder that receives the regular files which cells make or change in scratch."""
    plugins: tuple[str, ...] = ()
    """Plugins of other packages that take part in the session."""
    preset: str = "none"
    """The preset that gave what nobody else did."""
    of_plugins: tuple[object, ...] = ()
    """The values of our plugins' settings, each of its plugin's own class; without those that are all defaults."""
    display_name: str = "Python 3 (sandbox)"
    display_lines: int = 10_000
    """Lines of one cell that a Jupyter front end is given to show; the rest goes into a file of scratch."""
    display_size: int = MIB
    """The same, in characters."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables of the cells, by the caller of the SDK; no config file has them."""
    charts: bool = False
    """Whether a matplotlib figure brings its data along, for the caller of the SDK."""
    home: bool = False
    """Whether scratch itself is at /home/user, for clients of hosted interpreters, and /mnt/data leads there."""
    clients: Literal["own", "any"] = "own"
    """Whose processes may connect to a kernel's sockets: the user's and root's, or everybody's who reaches them."""

    def of(self, kind: type[T]) -> T:
        """Return the values of a plugin's settings, by its class of them."""
        return next((one for one in self.of_plugins if isinstance(one, kind)), None) or kind()

    def get(self, name: str, default: Any) -> Any:
        """Return the value of a plugin's setting, for those who do without that plugin; `default` is its own."""
        return next((getattr(one, name) for one in self.of_plugins if hasattr(one, name)), default)

    @property
    def watches_calls(self) -> bool:
        """Whether somebody wants to know which calls are tried in a sandbox."""
        return bool(self.get("trace", None) or getattr(self.get("monitor", None), "watches", False))

    def having(self, *values: object) -> Settings:
        """Return the same settings with other values of plugins' settings, in place of those of the same class."""
        of_plugins = {type(one): one for one in (*self.of_plugins, *values)}
        chosen = [one for kind, one in of_plugins.items() if one != kind()]
        return replace(self, of_plugins=tuple(sorted(chosen, key=lambda one: type(one).__name__)))

    def without(self, *names: str) -> Settings:
        """Return the same settings with the defaults of each plugin that has a setting of one of these names."""
        kept = (one for one in self.of_plugins if not any(hasattr(one, name) for name in names))
        return replace(self, of_plugins=tuple(kept))

    @property
    def has_way_out(self) -> bool:
        """Whether the host serves connections of cells, if only to refuse them."""
        return bool(self.get("network", ()) or self.get("secrets", ()))

    @property
    def reach(self) -> str | None:
        """What cells may reach, for people; None if that is nothing. Long lists are cut."""
        rules = self.get("network", ())
        more = len(rules) - MAX_RULES_SHOWN
        said = ", ".join(rules[:MAX_RULES_SHOWN])
        return f"{said} and {more} more" if more > 0 else said or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Inside:
    """What is in a sandbox whose connections the host serves, and in no other."""

    environment: Mapping[str, str]
    """Variables of the cells, besides those that all have."""
    lines: tuple[str, ...] = ()
    """Of Python, that each kernel runs at its start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """What an agent's program is made of, besides the limits. A broker builds it again."""

    variables: tuple[tuple[str, str], ...] = ()
    """The caller's, for its cells."""
    charts: bool = False
    """Whether figures bring their data along."""
    home: bool = False
    """Whether scratch is at /home/user."""
    zone: str | None = None
    """The time zone of its clocks, None for UTC."""
    inside: Inside | None = None
    """What plugins have in it; None without a way out."""
    kernel: str = PYTHON_KERNEL
    """The image's kernelspec that runs the cells."""
    watch: bool = False
    """Whether the agent says which calls are tried that honest code does not make."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attached:
    """A folder of the host's that a sandbox has, by an exception that somebody on the host made."""

    kind: Literal["dataset", "volume"]
    name: str
    source: str = ""
    """The absolute path of a dataset's folder, or of the folder that has the volume. Empty: whoever makes the sandbox
    knows the name; of a volume, it is one of this process's user."""
    writable: bool = False
    """Only a volume is."""

    @property
    def path(self) -> str:
        """Where cells see it."""
        return f"{ATTACHED}/{self.setting}/{self.name}"

    @property
    def setting(self) -> str:
        """What asks for it."""
        return f"{self.kind}s"

    @property
    def layered(self) -> bool:
        """Whether a layer of the sandbox's own lies above a folder; else it is a file system of its own."""
        return self.kind == "dataset"


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxSpec:
    """One container to start: what the engine needs to know, and what the attestation compares with."""

    session_id: str
    image: str
    limits: Limits
    command: tuple[str, ...]
    """An argument vector that runs in the container as PID 1. That of an agent reads its program, and becomes it."""
    program: bytes = field(default=b"", repr=False)
    """What an engine writes to its stdin before all else: the agent, as the command reads it."""
    uid: int
    """User and group id of every process inside; one of its own for each session, never 0."""
    runtime: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    """All of the container's environment; nothing of the host's is added."""
    limits_kept: LimitsKept = "enforced"
    """As the setting says; for engines that do not always have what enforces the limits."""
    cpuset: str | None = None
    core_scheduling: CoreScheduling = "off"
    """Both as the settings say. Only an engine gets them that keeps them (`select.EngineProvider.keeps_apart`)."""
    made_of: AgentOptions | None = None
    """What `program` was made of; None if that is no agent's."""
    attached: tuple[Attached, ...] = ()
    """What it has of the host's, by name."""
    reader: int | None = None
    """User of the machine whose rights count for datasets; None: this process's own."""

    @property
    def scratch(self) -> str:
        """Where scratch is: the other one of `SCRATCH` and `HOME` leads there. A disk is at `SCRATCH` always."""
        at_home = self.made_of is not None and self.made_of.home and self.limits.scratch == "memory"
        return HOME if at_home else SCRATCH

    @property
    def reaches_hosts(self) -> bool:
        """Whether its cells have a way to hosts, which the host side serves."""
        inside = None if self.made_of is None else self.made_of.inside
        return inside is not None and "HTTPS_PROXY" in inside.environment

    @property
    def watched(self) -> bool:
        """Whether its agent watches calls."""
        return self.made_of is not None and self.made_of.watch

    def without_home(self) -> SandboxSpec:
        """Return the same with scratch at `SCRATCH`, as of an engine that has no other place for it."""
        made_of = self.made_of
        return self if made_of is None or not made_of.home else replace(self, made_of=replace(made_of, home=False))

    def __post_init__(self) -> None:
        if self.uid <= 0:
            raise ConfigurationError(EndCode.WRONG_SETTING, f"a session must not run as uid {self.uid}", setting="uid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One Jupyter message on one channel, decoded; never the raw bytes of the other side."""

    channel: Channel
    header: Mapping[str, Any]
    parent: Mapping[str, Any] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    content: Mapping[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()
    plain: bool = field(default=False, compare=False)
    """Known to hold printable ASCII only, so that a large text need not be searched again for what it does not hold."""
    memory: int = field(default=0, compare=False)
    """Bytes that the content of a display or a comm takes, rounded up; 0 for what is only text."""
    work: int = 0
    """Elements of a page that it counts as, by the output policy."""
    mended: bool = field(default=False, compare=False)
    """Whether it came as what is no JSON, and was read as front ends read that."""
    type: str = field(init=False, repr=False, compare=False)
    """What the header says. It is read some eighty times on the way of one cell."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", str(self.header["msg_type"]))

    @property
    def id(self) -> str:
        return str(self.header["msg_id"])


class Audience(NamedTuple):
    """How one entry point says what a person, or a model, can do: each text is one or two whole sentences."""

    bring: str = "The calling program brings files in with Sandbox.files.write or Sandbox.files.upload; a cell cannot."
    """How a file comes in."""
    bring_by_folder: str | None = None
    """The same, where there is an upload folder; `{uploads}` is its name."""
    packages: str = (
        "Let cells install it, with the setting `packages`, or build an image with `sandbox-kernel build "
        "--requirements FILE`."
    )
    """How a package comes into the image."""
    full: str = "The image {image} has {name}: `sandbox-kernel build --kind full`, and the setting `image`. "
    """The same for what an image has that this project builds."""


class ProcessSample(NamedTuple):
    """One process of a sandbox, as the machine's kernel shows it; its texts are printable and short."""

    identity: str
    """Its number and when it began: no later process has both."""
    name: str
    """What it calls itself."""
    cpu_seconds: float
    files: tuple[str, ...]
    """Where its program lies in the sandbox; of one that a loader started, also what that has mapped."""


class SandboxSample(NamedTuple):
    """What the machine's kernel says of a sandbox; None is what cannot be read here."""

    refused_processes: int | None = None
    """How often there was no room for one more process since its start."""
    cpu_seconds: float | None = None
    """Of all its processes since its start."""
    programs: tuple[ProcessSample, ...] | None = None
    """Its processes, or some of them; None where its processes are none of this machine's, or not to be seen."""
    memory_bytes: int | None = None
    """In use now, less the cache that the machine may take back."""


class OpenedDatasetFile(NamedTuple):
    """A file of a dataset that a sandbox opened, as the machine's kernel tells."""

    path: str
    """Below /mnt/datasets: its first part is the name of the dataset."""
    size: int
    modified_ns: int
    """When its content was last changed, in nanoseconds since 1970."""
    read: bool
    """Whether it was read by calls; else it was opened, and may have been mapped into memory."""


SIGKILLED = 128 + 9
"""The exit code of what SIGKILL ended, as shells and engines have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExitReason:
    """Why a container is gone."""

    kind: Literal[
        "exited",
        "out_of_memory",
        "out_of_processes",
        "out_of_scratch",
        "killed",
        "engine_lost",
        "taken",
        "expired",
        "flooded",
        "broker_ended",
        "nested_ended",
    ]
    """Four are a broker's, of a sandbox that it keeps. "nested_ended" is that of an agent in a sandbox that goes on."""
    exit_code: int | None = None
    detail: str = ""
    code: Code | None = None
    """What an engine calls this end, where it has a name of its own; `detail` is its text then."""


def format_bytes(count: float) -> str:
    """Return a size for people, with a binary unit: 1536 is "1.5 KiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    return f"{count:.0f} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"


def printable(text: str, limit: int = 160) -> str:
    """Return `text` on one line, with everything escaped that a terminal or a reader could mistake."""
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
