"""Settings: one table of what a user can choose, read from arguments, config files or keywords, and checked once.

Imports model, errors and config_values; the engine, and traitlets, are imported when they are needed. traitlets reads
config files (`c.SandboxKernel.memory = "2G"`), and importing it costs 0.15 s: a start without such a file skips it.

The command line wins over config files, and these over the defaults. The environment has no say: whoever may start a
kernel may choose its environment, so no variable is a setting, chooses where config files are looked for, or says what
`~` means. A notebook has no say either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .config_values import (
    audit_file,
    choice,
    config_path,
    did_you_mean,
    downloads,
    folder,
    number,
    refuse,
    seconds,
    size,
    text,
)
from .errors import ConfigurationError
from .model import GIB, KIB, MIB, Limits, Settings, format_bytes

if TYPE_CHECKING:
    from .engines.docker import DockerEngine

CONFIG_NAME = "jupyter_sandbox_kernel_config"
CLASS_NAME = "SandboxKernel"

# --- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing a user can choose: its name everywhere, where it goes, how it is read, and what it means."""

    name: str
    field: str
    """Of `Limits` if it has such a field, else of `Settings`."""
    parse: Callable[[str, object], object]
    help: str
    default_text: str | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default(self) -> Any:
        return getattr(Limits() if self.is_limit else Settings(), self.field)

    @property
    def default_for_people(self) -> str:
        if self.default_text is not None:
            return self.default_text
        is_size, is_time = self.field.endswith("_bytes"), self.field.endswith("_seconds")
        return format_bytes(self.default) if is_size else f"{self.default:g} s" if is_time else str(self.default)

    @property
    def is_limit(self) -> bool:
        return self.field in Limits.__dataclass_fields__


SETTINGS: dict[str, Setting] = {
    setting.name: setting
    for setting in (
        Setting(
            "engine",
            "engine",
            text(
                re.compile(r"docker|unix:///\S+"), 'docker, or the address of a Docker-compatible socket: "unix:///..."'
            ),
            'The container engine: "docker" finds a local Docker socket; "unix:///PATH" is a socket '
            "that speaks the same API, such as Podman's.",
        ),
        Setting(
            "runtime",
            "runtime",
            text(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of an OCI runtime, such as runsc", none=True),
            'The OCI runtime, as the engine knows it: "runsc" is gVisor. Empty for the engine\'s own default.',
            "the engine's default",
        ),
        Setting(
            "image",
            "image",
            text(re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:@-]*"), "the name of an image"),
            "The image that cells run in; any with Python (3.9 or newer) and ipykernel will do. It is never pulled.",
        ),
        Setting(
            "memory",
            "memory_bytes",
            size(64 * MIB),
            "Memory of one session, for all of its processes and all files in scratch, /tmp and /dev/shm. Swap is "
            "never added. Over it, the cell ends as OutOfMemory.",
        ),
        Setting(
            "cpus", "cpus", number(float, 0.05, 4096), "Processors that one session may keep busy; 0.5 is half of one."
        ),
        Setting("pids", "pids", number(int, 32, 4_000_000), "Processes and threads of one session, counted together."),
        Setting("open_files", "open_files", number(int, 128, 1 << 20), "Files that one process may have open."),
        Setting(
            "scratch_size",
            "scratch_bytes",
            size(MIB),
            "Size of /mnt/data, the working folder of the cells. It lives in memory and dies with the session.",
            "a quarter of memory",
        ),
        Setting("tmp_size", "tmp_bytes", size(MIB), "Size of /tmp in the sandbox, in memory."),
        Setting("shm_size", "shm_bytes", size(64 * KIB), "Size of /dev/shm in the sandbox, in memory."),
        Setting(
            "cell_timeout",
            "cell_seconds",
            seconds(0.1),
            "How long one cell may run, in seconds (or 10m, 2h). The clock stops while a cell waits for input() or "
            "stands at a breakpoint. Over it, the cell ends as CellTimeout. Every cell has a clock, if a long one.",
        ),
        Setting(
            "interrupt_grace",
            "interrupt_grace_seconds",
            seconds(0.1, 3600),
            "How long a cell may take to end after the interrupt for its time limit, before its kernel is replaced.",
        ),
        Setting(
            "idle_timeout",
            "idle_seconds",
            seconds(1),
            "How long a session may be without a cell before its sandbox ends, with its variables and files.",
        ),
        Setting(
            "start_timeout",
            "start_seconds",
            seconds(1, 3600),
            "How long a start may take, until engine, agent and kernel are ready.",
        ),
        Setting(
            "output_limit", "output_bytes", size(KIB), "Output of one cell. Over it, the cell ends as OutputLimit."
        ),
        Setting(
            "output_messages",
            "output_messages",
            number(int, 10, 1_000_000_000),
            "Messages that one cell may send: pieces of text, displays and their updates.",
        ),
        Setting(
            "message_limit",
            "message_bytes",
            # Frames carry a 32-bit length (wire.py); half of that leaves room for the parts around the content.
            size(64 * KIB, 2 * GIB),
            "Size of one message from the sandbox, such as one display with its buffers.",
        ),
        Setting(
            "outputs",
            "outputs",
            choice("safe", "strict", "trusted"),
            "What may reach the browser. safe: static types, sanitised HTML, active HTML in a sandboxed frame without "
            "a network. strict: no active content. trusted: as it comes; scripts of a cell then run in the browser.",
        ),
        Setting(
            "uploads",
            "uploads",
            folder,
            "A host folder whose regular files are copied into scratch: at start, and what changed before each cell. A "
            "relative path starts at the notebook's folder.",
            "none",
        ),
        Setting(
            "downloads",
            "downloads",
            downloads,
            "A host folder that receives the regular files which cells make or change in scratch. Give it a folder of "
            "its own: cells choose names and contents. A relative path starts at the notebook's folder.",
            "none",
        ),
        Setting(
            "audit",
            "audit",
            audit_file,
            "A host file that receives one JSON line a cell, and one for each thing that was refused.",
            "none",
        ),
        Setting(
            "display_name",
            "display_name",
            text(re.compile(r"[^\x00-\x1f\x7f]{1,100}"), "a name of up to 100 printable characters"),
            "The name that front ends show.",
        ),
    )
}


def _resembles_ours(class_name: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, class_name.lower(), CLASS_NAME.lower()).ratio() >= 0.8


def _known(name: str) -> str:
    """Return the setting's name for `name` in either spelling, or say which one may be meant."""
    name = name.replace("-", "_")
    if name not in SETTINGS:
        raise ConfigurationError(f"there is no setting {name!r}{did_you_mean(name, SETTINGS)}", setting=name)
    return name


# --- where values come from -----------------------------------------------------------------------------------------


def from_files(path: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the settings of the config files on `path`, unchecked. A stronger file wins, and .json wins over .py."""
    found = [
        file
        for folder in reversed(list(config_path() if path is None else path))
        for suffix in (".py", ".json")
        if (file := Path(folder, CONFIG_NAME + suffix)).is_file()
    ]
    values: dict[str, Any] = {}
    for file in found:
        try:
            values |= {_known(name): value for name, value in _load(file).items()}
        except ConfigurationError as error:
            raise ConfigurationError(f"{error.message}, in {file}", setting=error.setting) from None
    return values


def _load(file: Path) -> Mapping[str, Any]:
    from traitlets.config.loader import Config, JSONFileConfigLoader, PyFileConfigLoader

    loader = PyFileConfigLoader if file.suffix == ".py" else JSONFileConfigLoader
    try:
        config: Config = loader(str(file)).load_config()
    except Exception as error:  # a config file is a program of the user's: whatever it raises is the user's to see
        raise ConfigurationError(f"the config file fails with {type(error).__name__}: {error}") from error
    for section in config:
        if section != CLASS_NAME and _resembles_ours(section):
            raise ConfigurationError(f"there is no section {section!r} (did you mean {CLASS_NAME}?)", setting=section)
    return cast("Mapping[str, Any]", config.get(CLASS_NAME, {}))


def read_argv(argv: Iterable[str]) -> tuple[str | None, dict[str, str]]:
    """Split a kernel's arguments into the connection file and the settings, unchecked.

    Settings are `--cell-timeout 120` or `--cell_timeout=120`, or in full `--SandboxKernel.cell_timeout=120`; the last
    one of a name counts. `--Class.trait=value` of another class is IPython's and is passed over: nbclient adds such
    arguments to every kernel it takes for ipykernel. Anything else is an error.
    """
    words = iter(argv)
    connection_file: str | None = None
    values: dict[str, str] = {}
    for word in words:
        flag, given, value = word.partition("=")
        name = flag.removeprefix("--").removeprefix("-")
        owner, dot, trait = name.rpartition(".")
        if not flag.startswith("-") or not name:
            raise ConfigurationError(f"the argument {word!r} is not a setting", value=repr(word))
        if dot and owner != CLASS_NAME:
            if not given or _resembles_ours(owner):
                raise ConfigurationError(f"there is no setting {name!r}{did_you_mean(trait, SETTINGS)}", setting=name)
            continue
        is_file = flag in ("-f", "--f", "--connection-file", "--connection_file")
        if not is_file:
            if not flag.startswith("--"):
                raise ConfigurationError(f"there is no setting {flag!r}", setting=flag)
            name = _known(trait)
        if not given:
            # `--image --memory 2G` is a forgotten image, not an image named --memory.
            value = next(words, "-")
            if value.startswith("-"):
                raise ConfigurationError(f"{flag} has no value", setting=name)
        if not is_file:
            values[name] = value
        elif connection_file not in (None, value):
            raise ConfigurationError("two connection files are given", value=f"{connection_file!r} and {value!r}")
        else:
            connection_file = value
    return connection_file, values


def resolve(values: Mapping[str, object]) -> Settings:
    """Check `values`, keyed by the names of `SETTINGS`, and fill in the defaults."""
    checked = {name: SETTINGS[name].parse(name, value) for name, value in values.items()}
    if "memory" in checked and "scratch_size" not in checked:
        checked["scratch_size"] = cast("int", checked["memory"]) // 4
    limits = {SETTINGS[name].field: value for name, value in checked.items() if SETTINGS[name].is_limit}
    others = {SETTINGS[name].field: value for name, value in checked.items() if not SETTINGS[name].is_limit}
    settings = Settings(limits=Limits(**cast("dict[str, Any]", limits)), **cast("dict[str, Any]", others))
    if settings.audit and settings.downloads and Path(settings.audit).is_relative_to(settings.downloads):
        raise refuse("audit", settings.audit, "audit lies in the downloads folder, where a cell could overwrite it")
    return settings


def from_argv(argv: Iterable[str]) -> tuple[str | None, Settings]:
    """Return a kernel's connection file and its settings, from its arguments and the config files."""
    connection_file, values = read_argv(argv)
    return connection_file, resolve(from_files() | values)


def from_keywords(**values: object) -> Settings:
    """Return settings from keyword arguments of the same names and forms, and the config files. None is the default."""
    given = {_known(name): value for name, value in values.items() if value is not None}
    return resolve(from_files() | given)


def make_engine(settings: Settings) -> DockerEngine:
    """Return the engine (`engines.base.Engine`) that the settings name. Nothing is connected before its first use."""
    from .engines.docker import DockerEngine

    return DockerEngine(base_url=None if settings.engine == "docker" else settings.engine)
