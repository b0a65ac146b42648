"""Settings: read from arguments, config files or keywords, and checked once against the table of `table`.

The engine, and traitlets, are imported when they are needed. traitlets reads
config files (`c.SandboxKernel.memory = "2G"`), and importing it costs 0.15 s: a start without such a file skips it.

The command line wins over config files, and these over a preset and the defaults; `presets` says what a preset never
loosens. The environment has no effect: its caller chooses its environment, so no variable is a setting, chooses where
config files are looked for, or says what `~` means. A notebook has no say either.

Public: plugins may import it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError
from ..core.model import FOLDERS_IN_MEMORY, PYTHON_KERNEL, Limits, Settings
from ..files.folder_policy import config_path
from ..plugins import index
from .forms import did_you_mean
from .presets import filled, merged
from .table import SETTINGS

__all__ = ["SETTINGS", "merged"]

LIMITS_OF_A_SANDBOX = tuple(one.name for one in SETTINGS.own.values() if one.is_limit and one.scope == "sandbox")
"""The limits that a sandbox is made with; all others are kept by the session."""

CONFIG_NAME = "jupyter_sandbox_kernel_config"
CLASS_NAME = "SandboxKernel"
CONNECTION_FILE = ("-f", "--f", "--connection-file", "--connection_file")
OF_FRONT_ENDS = ("--debug",)
"""What VS Code adds for ipykernel, if its user wants logs of the kernel."""


def _resembles_ours(class_name: str) -> bool:
    import difflib

    return difflib.SequenceMatcher(None, class_name.lower(), CLASS_NAME.lower()).ratio() >= 0.8


def _known(name: str) -> str:
    """Return the setting's name for `name` in either spelling, or say which one may be meant."""
    name = name.replace("-", "_")
    if name not in SETTINGS:
        for setting in SETTINGS.values():
            if setting.singular == name:
                return setting.name
        if (plugin := index.with_setting(name)) is not None:
            index.plugin(plugin)  # it raises: a plugin that is here has its settings in the table
        raise ConfigurationError(
            UsageCode.UNKNOWN_SETTING,
            f"there is no setting {name!r}{did_you_mean(name, SETTINGS)}",
            setting=name,
        )
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
            raise ConfigurationError(error.code, f"{error.message}, in {file}", setting=error.setting) from None
    return values


def from_files_for_all() -> dict[str, Any]:
    """Return `from_files` without relative paths, which belong to each notebook's own folder."""
    return {name: value for name, value in from_files().items() if is_for_all(name, value)}


def is_for_all(name: str, value: object) -> bool:
    """Return whether a setting means the same wherever a kernel starts."""
    return not SETTINGS[name].form.from_notebook or not isinstance(value, str) or value.startswith(("/", "~"))


def _load(file: Path) -> Mapping[str, Any]:
    from traitlets.config.loader import Config, JSONFileConfigLoader, PyFileConfigLoader

    loader = PyFileConfigLoader if file.suffix == ".py" else JSONFileConfigLoader
    try:
        config: Config = loader(str(file)).load_config()
    except Exception as error:  # a config file is a program of the user's: whatever it raises is the user's to see
        raise ConfigurationError(
            UsageCode.CONFIG_FILE_FAILED, f"the config file fails with {type(error).__name__}: {error}"
        ) from error
    for section in config:
        if section != CLASS_NAME and _resembles_ours(section):
            raise ConfigurationError(
                UsageCode.UNKNOWN_SETTING,
                f"there is no section {section!r} (did you mean {CLASS_NAME}?)",
                setting=section,
            )
    found = config.get(CLASS_NAME, {})
    if not isinstance(found, Mapping):  # JSON may have anything there
        words = f"its section {CLASS_NAME} is no table of settings, but {type(found).__name__}"
        raise ConfigurationError(UsageCode.CONFIG_FILE_FAILED, words)
    return cast("Mapping[str, Any]", found)


def read_argv(argv: Iterable[str], *, scripts: bool = False) -> tuple[str | None, dict[str, Any]]:
    """Split a kernel's arguments into the connection file and the settings, unchecked.

    Settings are `--cell-timeout 120` or `--cell_timeout=120`, or in full `--SandboxKernel.cell_timeout=120`; the last
    one of a name counts, but all of those that give one of several. `--Class.trait=value` of another class is IPython's
    and is passed over: nbclient adds such arguments to every kernel it takes for ipykernel, and so is `--debug`, which
    VS Code adds. It also puts a connection file with blanks in its name into quotes. Anything else is an error;
    but `jupyter run FILE` gives the names of its files to the kernel as well, before it sends what they hold, and with
    `scripts` these are passed over.
    """
    words = iter(argv)
    connection_file: str | None = None
    values: dict[str, Any] = {}
    for word in words:
        if word in OF_FRONT_ENDS:
            continue
        flag, given, value = word.partition("=")
        name = flag.removeprefix("--").removeprefix("-")
        owner, dot, trait = name.rpartition(".")
        if not flag.startswith("-") or not name:
            if scripts and connection_file is not None and Path(word).is_file():
                continue
            raise ConfigurationError(
                UsageCode.WRONG_ARGUMENT, f"the argument {word!r} is not a setting", value=repr(word)
            )
        if dot and owner != CLASS_NAME:
            if not given or _resembles_ours(owner):
                raise ConfigurationError(
                    UsageCode.UNKNOWN_SETTING,
                    f"there is no setting {name!r}{did_you_mean(trait, SETTINGS)}",
                    setting=name,
                )
            continue
        is_file = flag in CONNECTION_FILE
        if not is_file:
            if not flag.startswith("--"):
                raise ConfigurationError(UsageCode.UNKNOWN_SETTING, f"there is no setting {flag!r}", setting=flag)
            name = _known(trait)
        if not given:
            # `--image --memory 2G` is a forgotten image, not an image named --memory.
            value = next(words, "-")
            if value.startswith("-"):
                raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{flag} has no value", setting=name)
        if is_file:
            value = unquoted(value)
        if not is_file:
            values[name] = [*values.get(name, ()), value] if SETTINGS[name].form.adds_up else value
        elif connection_file not in (None, value):
            raise ConfigurationError(
                UsageCode.NOT_TOGETHER,
                "two connection files are given",
                value=f"{connection_file!r} and {value!r}",
            )
        else:
            connection_file = value
    return connection_file, values


def unquoted(name: str) -> str:
    """Return the name of a connection file without the quotes that VS Code puts around one with blanks."""
    return name[1:-1] if len(name) > 2 and name[0] == name[-1] == '"' else name


def resolve(values: Mapping[str, object]) -> Settings:
    """Check `values`, keyed by the names of `SETTINGS`, and fill in those of their preset, and the defaults."""
    checked = {name: SETTINGS[name].form(name, value) for name, value in filled(values).items()}
    settings = changed(Settings(), dict.fromkeys(FOLDERS_IN_MEMORY, 0) | checked)
    for module in index.settings_with(checked):
        if hasattr(module, "check"):
            module.check(settings)
    if settings.plugins or settings.kernel != PYTHON_KERNEL:
        list(index.services(settings))  # one that is not there, or for Python alone, is an error now
    return settings


def changed(settings: Settings, values: Mapping[str, Any]) -> Settings:
    """Return `settings` with other values, keyed by the names of `SETTINGS` and checked."""
    of: dict[type[Any], dict[str, Any]] = {Limits: {}, Settings: {}}
    for setting in map(SETTINGS.__getitem__, values):
        of.setdefault(Limits if setting.is_limit else setting.owner, {})[setting.field] = values[setting.name]
    limits = replace(settings.limits, **of.pop(Limits))
    settings = replace(settings, limits=limits, **of.pop(Settings))
    return settings.having(*(replace(settings.of(owner), **chosen) for owner, chosen in of.items()))


def from_argv(argv: Iterable[str]) -> tuple[str | None, Settings]:
    """Return a kernel's connection file and its settings, from its arguments and the config files."""
    connection_file, values = read_argv(argv, scripts=True)
    return connection_file, resolve(merged(from_files(), values))


def from_keywords(**values: object) -> Settings:
    """Return settings from keyword arguments of the same names and forms, and the config files. None is the default."""
    return resolve(merged(from_files(), by_name(values)))


def by_name(values: Mapping[str, object]) -> dict[str, object]:
    """Return values by the names of their settings, unchecked; None is the default. Raises for a name of none."""
    return {_known(name): value for name, value in values.items() if value is not None}
