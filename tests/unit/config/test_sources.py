"""Settings: every way to write one, who wins, and what must have no say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

import sandbox_kernel
from sandbox_kernel.config import sources as config
from sandbox_kernel.config.sources import SETTINGS
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.home_folder import home_folder
from sandbox_kernel.core.model import GIB, KIB, MIB, Limits, Settings
from sandbox_kernel.files.folder_policy import config_path
from sandbox_kernel.plugins import index
from tests.support.cases import each


class PathOfBytes(os.PathLike[bytes]):
    """What os.scandir of bytes yields is such a path."""

    def __fspath__(self) -> bytes:
        return b"/"


ACCEPTED = {
    "a size with a letter": ("memory", "2G", 2 * GIB),
    "a size with GB counts in 1024 all the same": ("memory", "2GB", 2 * GIB),
    "a size with GiB": ("memory", "2GiB", 2 * GIB),
    "a size in small letters and with a space": ("memory", " 900 mb ", 900 * MIB),
    "a size with a fraction": ("memory", "1.5G", 3 * GIB // 2),
    "a size in bytes, as text": ("memory", "1073741824", GIB),
    "a size in bytes, with its unit": ("memory", "1073741824B", GIB),
    "a size in bytes, as a number": ("memory", GIB, GIB),
    "seconds as text": ("cell_timeout", "120", 120.0),
    "seconds with their unit": ("cell_timeout", "120s", 120.0),
    "a fraction of a second": ("cell_timeout", "0.5", 0.5),
    "minutes": ("cell_timeout", "10m", 600.0),
    "hours": ("idle_timeout", "2h", 7200.0),
    "a time as a number": ("cell_timeout", 3, 3.0),
    "a clock of thirty years": ("cell_timeout", "1000000000", 1e9),
    "half a processor": ("cpus", "0.5", 0.5),
    "two processors": ("cpus", 2, 2.0),
    "a whole number as text": ("pids", "64", 64),
    "an output mode in capitals": ("outputs", "STRICT", "strict"),
    "gVisor": ("runtime", "runsc", "runsc"),
    "no runtime, as a word": ("runtime", "none", None),
    "no runtime, as nothing": ("runtime", "", None),
    "an image with a registry's port, a tag and a digest": (
        "image",
        "a.b:5000/c/d:e@sha256:0f",
        "a.b:5000/c/d:e@sha256:0f",
    ),
    "a socket of Podman": ("engine", "unix:///run/podman/podman.sock", "unix:///run/podman/podman.sock"),
    "no upload folder": ("uploads", "", None),
    "no plugin, as the words of a command line": ("plugins", ["none"], ()),
    "no plugin, in capitals": ("plugins", ["NONE", ""], ()),
    "an upload folder by a path of bytes": ("uploads", PathOfBytes(), "/"),
}


class Unshown:
    """A value that raises when it is shown, as some do that others made."""

    def __repr__(self) -> str:
        raise RuntimeError("not to be shown")


REFUSED = {
    "a size with an unknown unit": ("memory", "2X", "not a size"),
    "a negative size": ("memory", "-2G", "not a size"),
    "a size that is no number": ("memory", "much", "not a size"),
    "a size in digits of another script": ("memory", "\u0662G", "not a size"),
    "a size of true": ("memory", True, "not a size"),
    "a size of a hundred digits": ("memory", "9" * 100, "not a size"),
    "memory too small for a kernel": ("memory", "10M", "too small"),
    "memory beyond any machine": ("memory", "5000T", "too large"),
    "a cell without a clock": ("cell_timeout", "0", "too small"),
    "a cell with no clock, as a word": ("cell_timeout", "none", "not a time"),
    "a clock of nothing": ("cell_timeout", float("nan"), "cell_timeout is too"),
    "a clock of four hundred digits": ("cell_timeout", 10**400, "too large"),
    "a clock without an end": ("cell_timeout", float("inf"), "too large"),
    "a clock without an end, as a word": ("cell_timeout", "inf", "not a time"),
    "no processor": ("cpus", "0", "too small"),
    "half a process": ("pids", "64.5", "not a whole number"),
    "half a process, as a number": ("pids", 64.5, "not a whole number"),
    "a frame that the wire cannot carry": ("message_limit", "4G", "too large"),
    "an output mode that does not exist": ("outputs", "saef", "did you mean safe"),
    "a size of five thousand digits": ("memory", 10**5000, "too large"),
    "a word of five thousand digits": ("outputs", 10**5000, "outputs is one of"),
    "a preset of five thousand digits": ("preset", 10**5000, "preset is one of"),
    "processors of five thousand digits": ("cpuset", 10**5000, "cpuset is not processors"),
    "a value that cannot be shown": ("image", Unshown(), "not the name of an image"),
    "a socket whose name is half a character": ("engine", "unix:///\ud800", "not auto, docker"),
    "a socket with a NUL in its name": ("engine", "unix:///a\0b", "not auto, docker"),
    "an upload folder of half a character": ("uploads", "/tmp/\ud800", "not a path"),
    "an upload folder of a user of half a character": ("uploads", "~\ud800/x", "not a path"),
    "a download folder of half a character": ("downloads", "\ud800", "not a path"),
    "an engine on the network": ("engine", "tcp://192.0.2.1:2375", "not auto, docker"),
    "an image that is a flag": ("image", "--privileged", "not the name of an image"),
    "a runtime with a path": ("runtime", "/usr/bin/x", "not the name of an OCI runtime"),
    "a runtime of nothing but None in a file is fine, a number is not": (
        "runtime",
        3,
        "not the name of an OCI runtime",
    ),
    "an upload folder that is not there": ("uploads", "/nonexistent/folder", "not a folder"),
    "an upload folder of a user who is not there": ("uploads", "~nobody-of-that-name/x", "home folder of a user"),
    "a path with a null byte": ("uploads", "a\0b", "not a path"),
    "a display name of two lines": ("display_name", "a\nb", "printable"),
    "a display name of two lines to browsers": ("display_name", "a\u2028b", "printable"),
    "a display name that is turned": ("display_name", "a\u202eb", "printable"),
    "a display name that isolates": ("display_name", "a\u2066b", "printable"),
    "a display name with a mark of direction": ("display_name", "a\u200fb", "printable"),
    "a display name with what is not seen": ("display_name", "a\u200bb", "printable"),
    "a display name that controls a terminal": ("display_name", "a\x9b31mb", "printable"),
    "a display name with half a character": ("display_name", "a\ud800b", "printable"),
}
OF_PLUGINS = {
    "an audit of half a character": ("audit", "/tmp/\ud800", "not a path"),
    "a key of half a character": ("audit_key", "/tmp/\ud800", "not a path"),
    "rules of a user of half a character": ("screen_rules", "~\ud800/x", "not the path of a file"),
}
REFUSED |= {case: row for case, row in OF_PLUGINS.items() if row[0] in SETTINGS}


@pytest.fixture(autouse=True)
def _no_config_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Keep the config files of the machine that runs the tests out of them."""
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path / "no-config")])


def value_of(settings: Settings, name: str) -> object:
    value: object = config.SETTINGS[name].value(settings)
    return value


def test_each_setting_has_one_name_and_one_scope() -> None:
    """A setting that moves to another scope is taken from others, or kept from them: no row does that unnoticed."""
    scopes: dict[str, set[str]] = {"sandbox": set(), "session": set(), "caller": set(), "process": set()}
    for one in SETTINGS.values():
        scopes[one.scope].add(one.name)
    limits = {"limits", "message_limit", "memory", "cpus", "pids", "open_files", "tmp_size", "shm_size"}
    limits |= {"scratch", "scratch_size", "cpuset", "core_scheduling"}
    of_plugins = {"datasets", "volumes", "undo", "fuel"} & set(SETTINGS)
    assert scopes["sandbox"] == {"engine", "runtime", "image", "kernel", "time_zone"} | limits | of_plugins
    plugins = {
        "screen",
        "screen_threshold",
        "screen_rules",
        "screen_overrides",
        "screen_override_needs",
        "monitor",
    } & set(SETTINGS)
    own = {"display_lines", "display_size", "outputs", "plugins"} | plugins
    assert {name for name in scopes["session"] if not SETTINGS[name].is_limit} == own
    assert scopes["caller"] == {"uploads", "downloads", "network", "secrets", "packages"} & set(SETTINGS)
    relative = {one.name for one in SETTINGS.values() if one.form.from_notebook}
    assert relative == {"uploads", "downloads", "audit", "trace"} & set(SETTINGS)


@each("case", ACCEPTED)
def test_accepted(case: str) -> None:
    """Every way to write a value gives the same checked one."""
    name, raw, expected = ACCEPTED[case]
    value = value_of(config.from_keywords(**{name: raw}), name)
    assert value == expected
    assert type(value) is type(expected)


@each("case", REFUSED)
def test_refused(case: str) -> None:
    """A value that cannot work is refused with the setting, the value and a reason."""
    name, raw, reason = REFUSED[case]
    with pytest.raises(ConfigurationError, match=reason) as caught:
        config.from_keywords(**{name: raw})
    assert caught.value.setting == name
    assert caught.value.value
    assert caught.value.fault == "configuration"


@pytest.mark.parametrize(
    ("words", "plugins"),
    [([], []), (["--memory", "1G"], []), (["--screen", "warn"], ["screen"]), (["--undo", "off"], ["wasm"])],
)
def test_a_start_reads_the_settings_of_those_plugins_alone_that_it_names(words: list[str], plugins: list[str]) -> None:
    program = (
        "import sys\n"
        "from sandbox_kernel.config.sources import SETTINGS, from_argv\n"
        "from_argv(sys.argv[1:])\n"
        "print(*(name.split('.')[2] for name in sys.modules if name.endswith('.settings')))\n"
        "print(len(SETTINGS), len([*SETTINGS]), len({*SETTINGS}))"
    )
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [" ".join(plugins), f"{len(SETTINGS)} {len(SETTINGS)} {len(SETTINGS)}"]


def test_nothing_given_is_the_default() -> None:
    """Without arguments, keywords and files, the settings are the model's own defaults."""
    assert config.from_keywords() == Settings() == config.from_argv([])[1]
    assert config.from_keywords(memory=None) == Settings()


def test_every_limit_and_setting_of_the_model_can_be_chosen() -> None:
    """No field of the model is out of reach, and no setting leads nowhere."""
    elsewhere = {"limits", "environment", "charts", "home", "of_plugins"}  # the SDK's or a wire's, for one sandbox
    fields = {*Limits.__dataclass_fields__, *Settings.__dataclass_fields__} - elsewhere
    assert {one.field for one in SETTINGS.values() if one.owner is Settings} == fields - of_plugins(here=False)
    assert {one.field for one in SETTINGS.values() if one.owner is not Settings} == of_plugins(here=True) - fields


def of_plugins(*, here: bool) -> set[str]:
    return {name for plugin, names in index.SETTINGS.items() if index.is_here(plugin) is here for name in names}


def test_a_plugin_s_values_are_those_of_its_class() -> None:
    """Whatever was chosen is there, by the class and by the name; settings with defaults alone are like none."""

    @dataclass(frozen=True)
    class One:
        one: int = 1

    @dataclass(frozen=True)
    class Two:
        two: int = 2

    both = Settings().having(Two(3), One(2))
    assert both == Settings().having(One(2)).having(Two(1)).having(Two(3)) != Settings()
    assert (both.of(Two), both.of(One), both.get("two", 0), both.get("three", 0)) == (Two(3), One(2), 3, 0)
    assert both.without("two", "three") == Settings().having(One(2))
    assert Settings().having(One(), Two(2)) == Settings()
    assert Settings().of(Two) == Two()


@pytest.mark.parametrize(
    ("given", "sizes"),
    [
        ({"memory": "64M"}, (16, 16, 16)),
        ({"memory": "1G"}, (256, 256, 256)),
        ({"memory": "8G"}, (2048, 2048, 2048)),
        ({"memory": "8G", "scratch_size": "1M"}, (1, 2048, 2048)),
        ({"memory": "2G", "scratch_size": "1G"}, (1024, 256, 256)),
        ({"memory": "2G", "shm_size": "1G"}, (256, 256, 1024)),
        ({"memory": "2G", "tmp_size": "1G", "shm_size": "64M"}, (448, 1024, 64)),
        ({"memory": "2G", "scratch": "disk"}, (10240, 512, 512)),
    ],
)
def test_folders_in_memory_follow_it_unless_they_are_chosen(given: dict[str, str], sizes: tuple[int, ...]) -> None:
    """Less memory means less of each, so that one flag is enough; together they never fill it."""
    limits = config.from_keywords(**given).limits
    assert (limits.scratch_size // MIB, limits.tmp_size // MIB, limits.shm_size // MIB) == sizes


@pytest.mark.parametrize("given", [{"memory": "1G", "scratch_size": "1G"}, {"memory": "1G", "scratch_size": "767M"}])
def test_a_folder_that_leaves_others_no_memory_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError, match="three quarters"):
        config.from_keywords(**given)


# --- the kernel's arguments ------------------------------------------------------------------------------------------

ARGUMENTS = {
    "the connection file as the kernelspec gives it": (["-f", "/c.json"], ("/c.json", {})),
    "the connection file with an equals sign": (["-f=/c.json"], ("/c.json", {})),
    "the connection file as ipykernel calls it": (["--connection-file", "/c.json"], ("/c.json", {})),
    "a connection file with spaces and equals signs": (["-f", "/a b=c.json"], ("/a b=c.json", {})),
    "a setting with a hyphen": (["--cell-timeout=5"], (None, {"cell_timeout": "5"})),
    "a setting with an underscore": (["--cell_timeout", "5"], (None, {"cell_timeout": "5"})),
    "a setting with its class": (["--SandboxKernel.cell_timeout=5"], (None, {"cell_timeout": "5"})),
    "a value with an equals sign": (["--display-name=a=b"], (None, {"display_name": "a=b"})),
    "the last of two": (["--cpus", "1", "--cpus", "2"], (None, {"cpus": "2"})),
    "what nbclient adds, at the end": (
        ["-f", "/c.json", "--memory", "1G", "--HistoryManager.hist_file=:memory:"],
        ("/c.json", {"memory": "1G"}),
    ),
    "what nbclient adds, before": (["--HistoryManager.hist_file=:memory:", "-f", "/c.json"], ("/c.json", {})),
    "another of IPython's": (["--IPKernelApp.matplotlib=inline"], (None, {})),
    "what VS Code adds": (["--memory=1G", "--f=/c.json", "--debug"], ("/c.json", {"memory": "1G"})),
    "a connection file with blanks, as VS Code gives it": (['--f="/a b/c.json"'], ("/a b/c.json", {})),
    "a connection file with quotes in its name": (["-f", '/a"b"'], ('/a"b"', {})),
    "the same connection file twice": (["-f", "/c.json", "-f", "/c.json"], ("/c.json", {})),
}

BAD_ARGUMENTS = {
    "a misspelt setting": (["--memroy=1G"], "did you mean memory"),
    "a misspelt setting of our class": (["--SandboxKernel.memroy=1G"], "did you mean memory"),
    "a misspelt class": (["--SandboxKernal.memory=64G"], "no setting"),
    "a setting that does not exist": (["--privileged=true"], "no setting 'privileged'"),
    "a short flag that does not exist": (["-m", "1G"], "no setting '-m'"),
    "a bare word": (["-f", "/c.json", "/other.json"], "not a setting"),
    "a bare word in the place of the connection file": (["/c.json"], "not a setting"),
    "a setting without its value": (["--memory"], "has no value"),
    "a setting followed by another": (["--memory", "--cpus", "2"], "--memory has no value"),
    "a connection file that is a flag": (["-f", "--memory"], "-f has no value"),
    "two connection files": (["-f", "/a.json", "-f", "/b.json"], "two connection files"),
    "two hyphens alone": (["--"], "not a setting"),
    "IPython's family without an equals sign": (["--HistoryManager.enabled", "x"], "no setting"),
    "an empty word": ([""], "not a setting"),
}


@each("case", ARGUMENTS)
def test_arguments(case: str) -> None:
    """Arguments are read in every spelling that front ends use."""
    argv, expected = ARGUMENTS[case]
    assert config.read_argv(argv) == expected


@each("case", BAD_ARGUMENTS)
def test_bad_arguments(case: str) -> None:
    """Nothing is guessed: an argument that is not understood is an error, never a default."""
    argv, reason = BAD_ARGUMENTS[case]
    with pytest.raises(ConfigurationError, match=reason):
        config.read_argv(argv)


def test_a_misspelt_keyword_names_the_setting_that_may_be_meant() -> None:
    """The SDK's keywords are checked like arguments."""
    with pytest.raises(ConfigurationError, match="did you mean cell_timeout"):
        config.from_keywords(cell_timout=3)


# --- folders ---------------------------------------------------------------------------------------------------------


def test_a_relative_folder_starts_at_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Front ends start a kernel in its notebook's folder, and `uploads=data` is the folder beside it."""
    (tmp_path / "data").mkdir()
    monkeypatch.chdir(tmp_path)
    assert config.from_keywords(uploads="data").uploads == str((tmp_path / "data").resolve())
    assert config.from_keywords(uploads=tmp_path).uploads == str(tmp_path.resolve())


def test_a_tilde_is_the_home_of_the_password_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """$HOME may be chosen by whoever starts the kernel, so `~` does not follow it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert config.from_keywords(uploads="~").uploads == str(Path(str(home_folder())).resolve())


OURS = Path(sandbox_kernel.__file__).parent

PRECIOUS = {
    "the home folder": home_folder,
    "the root": lambda: "/",
    "this Python environment": lambda: sys.prefix,
    "a folder within it": lambda: f"{sys.prefix}/bin",
    "this package": lambda: str(OURS),
    "what holds this package": lambda: str(OURS.parent),
    "the system's configuration": lambda: "/etc",
}


@pytest.mark.parametrize("case", PRECIOUS)
def test_downloads_refuses_what_this_machine_runs_from(case: str) -> None:
    """A cell that could write a start-up file, or a module for the next kernel to import, would be out."""
    with pytest.raises(ConfigurationError, match=r"downloads (holds|lies within)"):
        config.from_keywords(downloads=PRECIOUS[case]())  # type: ignore[operator]


def test_downloads_through_a_link_to_a_precious_folder_is_refused(tmp_path: Path) -> None:
    """No link is followed, wherever it leads."""
    (tmp_path / "results").symlink_to(sys.prefix)
    with pytest.raises(ConfigurationError, match="'results' is a link, which is not followed"):
        config.from_keywords(downloads=str(tmp_path / "results"))


@pytest.mark.parametrize("name", ["uploads", "downloads"])
def test_a_folder_that_is_missing_counts_as_empty_where_there_is_a_place_for_it(name: str, tmp_path: Path) -> None:
    for written in ("later", "later/"):
        settings = config.from_keywords(**{name: str(tmp_path / written)})
        assert getattr(settings, name) == str(tmp_path.resolve() / "later")
    assert not (tmp_path / "later").exists()
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to(tmp_path)
    for written in ("none/later", "file", "file/later", "link/later", "link"):
        with pytest.raises(ConfigurationError, match=name):
            config.from_keywords(**{name: str(tmp_path / written)})


def test_downloads_into_a_folder_of_its_own(tmp_path: Path) -> None:
    assert config.from_keywords(downloads=str(tmp_path)).downloads == str(tmp_path.resolve())


# --- config files ----------------------------------------------------------------------------------------------------


def config_file(folder: Path, text: str, suffix: str = ".py") -> str:
    folder.mkdir(exist_ok=True)
    (folder / f"jupyter_sandbox_kernel_config{suffix}").write_text(text)
    return str(folder)


def test_the_stronger_file_wins_and_the_command_line_wins_over_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Precedence: arguments, the folders in their order, .json before .py in one folder, defaults."""
    strong = config_file(tmp_path / "strong", "c.SandboxKernel.cpus = 3\nc.SandboxKernel.pids = 100\n")
    weak = config_file(tmp_path / "weak", "c.SandboxKernel.cpus = 4\nc.SandboxKernel.open_files = 200\n")
    config_file(tmp_path / "weak", json.dumps({"SandboxKernel": {"open_files": 300, "memory": "4G"}}), ".json")
    monkeypatch.setattr(config, "config_path", lambda: [strong, weak])
    limits = config.from_argv(["--pids", "77"])[1].limits
    assert (limits.cpus, limits.pids, limits.open_files, limits.memory) == (3.0, 77, 300, 4 * GIB)
    assert config.from_keywords(cpus=1).limits.cpus == 1.0
    assert limits.message_limit == Limits().message_limit


CONFIG_ERRORS = {
    "a misspelt setting": ("c.SandboxKernel.memroy = '2G'", "did you mean memory"),
    "a misspelt section": ("c.SandboxKernal.memory = '2G'", "did you mean SandboxKernel"),
    "a file that fails": ("1 / 0", "ZeroDivisionError"),
    "a file that is not Python": ("c.SandboxKernel.memory = ", "SyntaxError"),
}


@pytest.mark.parametrize("case", CONFIG_ERRORS)
def test_an_error_in_a_config_file_names_the_file(case: str, tmp_path: Path) -> None:
    """Whoever looks after the file learns which one it is; nothing is passed over."""
    text, reason = CONFIG_ERRORS[case]
    folder = config_file(tmp_path / "etc", text)
    with pytest.raises(ConfigurationError, match=reason) as caught:
        config.from_files([folder])
    assert folder in str(caught.value)


@pytest.mark.parametrize("section", ["null", "5", "[]", '"memory"', "true", "[[1]]"])
def test_a_section_of_json_that_is_no_table_names_the_file(section: str, tmp_path: Path) -> None:
    """It is a fault of the file's and not of the program's, and none of it is passed over."""
    file = tmp_path / "jupyter_sandbox_kernel_config.json"
    file.write_text(f'{{"SandboxKernel": {section}}}')
    with pytest.raises(ConfigurationError, match="no table of settings") as caught:
        config.from_files([str(tmp_path)])
    assert str(file) in str(caught.value)


@each("name", {one.name: one for one in SETTINGS.values() if one.form.adds_up})
def test_none_on_a_command_line_takes_back_what_files_give(name: str) -> None:
    """It is what a kernelspec says of an empty list, and what a person types to have nothing of a kind."""
    setting = SETTINGS[name]
    for word in (*setting.form.written(name, ()), "none"):
        values = config.read_argv([f"{setting.flag}={word}"])[1]
        assert setting.form(name, values[name]) == ()


def test_a_bad_value_in_a_config_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of files are checked like all others."""
    folder = config_file(tmp_path / "etc", "c.SandboxKernel.memory = 'lots'")
    monkeypatch.setattr(config, "config_path", lambda: [folder])
    with pytest.raises(ConfigurationError, match="memory is not a size"):
        config.from_argv([])


def test_other_sections_of_a_config_file_are_left_alone(tmp_path: Path) -> None:
    """A file may configure other Jupyter programs too."""
    folder = config_file(tmp_path / "etc", "c.ServerApp.port = 1\nc.SandboxKernel.shm_size = '128K'")
    assert config.from_files([folder]) == {"shm_size": "128K"}
    assert config.SETTINGS["shm_size"].form("shm_size", "128K") == 128 * KIB


def test_environment_variables_can_loosen_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start request may carry an environment: no variable is a setting, and none chooses a config file."""
    folder = config_file(tmp_path / "theirs", "c.SandboxKernel.outputs = 'trusted'")
    config_file(tmp_path / "theirs" / ".jupyter", "c.SandboxKernel.outputs = 'trusted'")
    config_file(tmp_path / "theirs" / "jupyter", "c.SandboxKernel.outputs = 'trusted'")
    before = config_path()
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_CONFIG_PATH", "HOME", "XDG_CONFIG_HOME", "VIRTUAL_ENV", "CONDA_PREFIX"):
        monkeypatch.setenv(name, folder)
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "0")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for name in ("SANDBOX_KERNEL__OUTPUTS", "SANDBOXKERNEL_OUTPUTS", "SANDBOX_KERNEL_OUTPUTS", "OUTPUTS"):
        monkeypatch.setenv(name, "trusted")
    monkeypatch.setattr(config, "config_path", config_path)
    assert config_path() == before
    assert folder not in str(before)
    assert config.from_files() == config.from_files(before)
    assert config.from_argv(["--outputs=safe"])[1].outputs == "safe"


@pytest.mark.slow
def test_an_environment_of_its_own_has_a_config_file_of_its_own(tmp_path: Path) -> None:
    """`etc/jupyter` of a virtual environment is read by the kernel that runs in it, and comes before the user's."""
    environment = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    site = next(environment.glob("lib/python*/site-packages"))
    places = [str(OURS.parent), *(place for place in sys.path if place.endswith("-packages"))]
    (site / "here.pth").write_text("\n".join(places))
    (environment / "etc").mkdir()
    config_file(environment / "etc" / "jupyter", "c.SandboxKernel.memory = '3G'")
    command = [environment / "bin" / "python", "-I", "-m", "sandbox_kernel", "settings", "--json"]
    shown = json.loads(subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout)  # type: ignore[arg-type]
    memory = next(row for row in shown if row["name"] == "memory")
    assert memory["value"] == "3G"
    assert memory["from"] == "config file"


def test_a_start_without_config_files_does_not_import_traitlets() -> None:
    """Start-up time is a feature: reading settings from arguments costs a few modules of the standard library."""
    code = (
        "import sys; from sandbox_kernel.config import sources as config; config.config_path = lambda: [];"
        "config.from_argv(['-f', 'x', '--memory', '1G']);"
        "print({'traitlets', 'argparse', 'difflib', 'jupyter_client', 'asyncio'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=60, capture_output=True, text=True)
    assert done.stdout.strip() == "set()"


def test_files_that_jupyter_run_names_are_passed_over_by_a_kernel_only(tmp_path: Path) -> None:
    """`jupyter run FILE` appends FILE to every kernel's arguments; a word that is no file is still an error."""
    (tmp_path / "job.py").write_text("1")
    argv = ["-f", "x.json", "--pids", "77", str(tmp_path / "job.py")]
    assert config.from_argv(argv)[1].limits.pids == 77
    for wrong in ([*argv, "none.py"], [argv[-1], *argv[:2]]):
        with pytest.raises(ConfigurationError, match="is not a setting"):
            config.from_argv(wrong)
    with pytest.raises(ConfigurationError, match="is not a setting"):
        config.read_argv(argv)


def test_no_help_of_a_setting_has_what_argparse_would_fill_in() -> None:
    assert [one.name for one in SETTINGS.values() if "%" in one.help] == []


def test_a_plugin_that_is_not_installed_is_an_error_at_once() -> None:
    with pytest.raises(ConfigurationError, match="no plugin of another package has the name 'nowhere'") as raised:
        config.resolve({"plugins": "nowhere"})
    assert (raised.value.code.code, raised.value.setting) == ("plugin-missing", "plugins")
    assert config.resolve({"plugins": "none"}).plugins == ()
