"""How plugins are found: ours by one list, and those of other packages by entry points, for unknown names only."""

from __future__ import annotations

import importlib.metadata
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel import cli
from sandbox_kernel.cli.program import parser
from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines import select
from sandbox_kernel.engines.select import make_engine
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import Plugin
from tests.support import ROOT

FOLDERS = sorted(path.parent.name for path in (ROOT / "sandbox_kernel" / "plugins").glob("*/plugin.py"))
OTHERS = """
from sandbox_kernel.engines.select import EngineProvider
from sandbox_kernel.plugins.api import Command, Plugin

def greet(options):
    \"\"\"Greet.\"\"\"
    print("hello from another package")
    return 0

def verify(options):
    \"\"\"Say that nothing is wrong.\"\"\"
    return 0

def made(name, run):
    return Command(name=name, run=run, examples={f"sandbox-kernel {name}": "a greeting"}, settings=False)

class Tiny(EngineProvider):
    name = "tiny"

class Other(EngineProvider):
    name = "docker"

class NoProvider:
    name = "odd"

ENGINES = Plugin(name="engines", page="e.md", engines=(Tiny(), Other(), NoProvider()))
ALIKE = Plugin(name="alike", page="a.md", engines=(Tiny(),))
ONE = Plugin(name="one", page="one.md", commands=(made("greet", greet), made("verify", verify)))
TWO = Plugin(name="two", page="two.md", commands=(made("greet", greet),))
NO_PLUGIN = 3
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> object:
    """Return a function that has another package name entry points, as one that pip installed does."""
    (tmp_path / "of_another_package.py").write_text(OTHERS)
    monkeypatch.syspath_prepend(str(tmp_path))

    def install(**entries: str) -> None:
        folder = tmp_path / "another-1.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: another\nVersion: 1\n")
        lines = "".join(f"{name} = of_another_package:{what}\n" for name, what in entries.items())
        (folder / "entry_points.txt").write_text(f"[{index.ENTRY_POINTS}]\n{lines}")

    yield install
    sys.modules.pop("of_another_package", None)


def test_the_index_names_each_plugin_with_its_commands() -> None:
    assert sorted(index.COMMANDS) == FOLDERS
    found = {plugin.name: plugin for plugin in index.plugins()}
    assert {name: tuple(one.name for one in plugin.commands) for name, plugin in found.items()} == index.COMMANDS


@pytest.mark.parametrize("plugin", list(index.plugins()), ids=lambda plugin: plugin.name)
def test_a_plugin_has_a_page(plugin: Plugin) -> None:
    assert (ROOT / plugin.page).is_file()


def test_the_types_of_what_is_on_macos_too_are_checked_for_it() -> None:
    [left_out] = re.findall(r"^LINUX_ALONE := '(.*)'$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    alone = {name for name in FOLDERS if {name, *index.REQUIRES.get(name, ())} & {*index.LINUX}}
    assert {name for name in FOLDERS if re.search(left_out, f"sandbox_kernel/plugins/{name}/")} == alone


def test_a_plugin_whose_folder_is_gone_is_left_out_of_the_help(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(index.COMMANDS, "gone", ("vanish",))
    assert "gone" not in [plugin.name for plugin in index.plugins()]
    assert "vanish" not in parser().format_help()


def test_a_plugin_whose_folder_is_gone_is_an_error_when_it_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(index.COMMANDS, "gone", ("vanish",))
    with pytest.raises(ConfigurationError) as raised:
        index.with_command("vanish")
    assert raised.value.code is UsageCode.PLUGIN_MISSING
    assert cli.main(["vanish"]) == 2
    assert "the plugin gone is not a part of this installation" in " ".join(capsys.readouterr().err.split())


def test_a_command_of_another_package_runs(installed, capsys: pytest.CaptureFixture[str]) -> None:
    installed(one="ONE")
    assert cli.main(["greet"]) == 0
    assert capsys.readouterr().out == "hello from another package\n"


def test_another_package_does_not_replace_a_command(installed) -> None:
    """It brings a `verify` of its own, beside the command that is asked for."""
    installed(one="ONE")
    found = index.with_command("greet")
    assert found is not None
    whole = parser(found)
    assert whole.commands["greet"].summary == "Greet"
    assert whole.commands["verify"].summary.startswith("Try to get out of a sandbox")


def test_no_entry_point_is_read_for_a_command_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(**_: object) -> None:
        raise AssertionError("entry points were read")

    monkeypatch.setattr(importlib.metadata, "entry_points", read)
    assert index.with_command("verify") is not None
    with pytest.raises(AssertionError, match="entry points were read"):  # the control
        index.with_command("greet")


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({"one": "NOTHING"}, "the plugin one cannot be loaded"),
        ({"one": "NO_PLUGIN"}, "the plugin one is no Plugin"),
        ({"one": "ONE", "two": "TWO"}, "several plugins have the command greet: one, two"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_an_error(installed, entries: dict[str, str], words: str) -> None:
    installed(**entries)
    with pytest.raises(ConfigurationError, match=words) as raised:
        index.with_command("greet")
    assert raised.value.code is UsageCode.PLUGIN_UNUSABLE


def test_a_broken_plugin_does_not_hide_another_one(installed) -> None:
    installed(broken="NOTHING", one="ONE")
    found = index.with_command("greet")
    assert found is not None
    assert found.name == "one"


def test_an_unknown_command_is_nobody_s() -> None:
    assert index.with_command("no-such-command") is None


# --- engines ---------------------------------------------------------------------------------------------------------


def test_each_engine_of_the_index_is_brought_by_its_plugin() -> None:
    found = {plugin.name: tuple(getattr(one, "name", "") for one in plugin.engines) for plugin in index.plugins()}
    assert {name: engines for name, engines in found.items() if engines} == {
        name: engines for name, engines in index.ENGINES.items() if index.is_here(name)
    }
    assert select.DOCKER not in {name for engines in index.ENGINES.values() for name in engines}


def test_an_engine_of_ours_that_is_not_here_is_an_error_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(index.ENGINES, "gone", ("away",))
    with pytest.raises(ConfigurationError, match="the plugin gone is not a part of this installation") as failed:
        make_engine(Settings(engine="away"))
    assert failed.value.code is UsageCode.PLUGIN_MISSING
    with pytest.raises(ConfigurationError):
        resolve({"engine": "away"})
    assert "away" not in select.names()


def test_an_engine_of_another_package_is_found_by_its_name(installed: Callable[..., None]) -> None:
    installed(some="ENGINES")
    assert resolve({"engine": "tiny"}).engine == "tiny"
    assert select.provider("tiny").name == "tiny"
    assert type(select.provider("docker")).__module__ == "sandbox_kernel.engines.docker"  # it replaces none of ours
    assert type(select.provider("unix:///x.sock")).__module__ == "sandbox_kernel.engines.docker"


@pytest.mark.parametrize(
    ("entries", "engine", "says"),
    [
        ({"some": "ENGINES"}, "odd", "is no EngineProvider"),
        ({"some": "ENGINES", "more": "ALIKE"}, "tiny", "several plugins have the engine tiny"),
        ({"some": "NOT_THERE"}, "tiny", "cannot be loaded"),
    ],
)
def test_an_engine_that_cannot_be_used_is_an_error_and_no_other_is_taken(
    installed: Callable[..., None], entries: dict[str, str], engine: str, says: str
) -> None:
    installed(**entries)
    with pytest.raises(ConfigurationError, match=says) as failed:
        make_engine(Settings(engine=engine))
    assert failed.value.code is UsageCode.PLUGIN_UNUSABLE


def test_a_name_of_no_engine_excuses_nothing(installed: Callable[..., None]) -> None:
    """A broker says which engine its sandboxes have; what it makes up is a difference."""
    assert select.excuses("bubblewrap without a cgroup")
    for name in ("", "nobody", "bubblewrap, as it were", "runsc", "docker"):
        assert select.excuses(name) is None
