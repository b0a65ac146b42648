"""Presets: what they set, and what they never loosen."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.config import presets, sources
from sandbox_kernel.config.presets import PRESETS, merged
from sandbox_kernel.config.sources import SETTINGS, from_keywords, resolve
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import MIB


def test_untrusted_is_what_it_says() -> None:
    settings = resolve({"preset": "untrusted"})
    assert (settings.limits.memory, settings.limits.cpus, settings.limits.cell_timeout) == (256 * MIB, 0.5, 5.0)
    assert settings.preset == "untrusted"


@pytest.mark.parametrize("preset", PRESETS)
def test_each_value_of_a_preset_can_be_used_and_has_its_reason(preset: str) -> None:
    settings = resolve({"preset": preset})
    for name, (value, why) in PRESETS[preset].values.items():
        assert SETTINGS[name].value(settings) == SETTINGS[name].form(name, value)
        assert why


def test_every_preset_of_the_setting_is_there() -> None:
    assert SETTINGS["preset"].form.choices == ("none", *PRESETS)


def test_a_value_that_is_given_counts_in_place_of_the_presets() -> None:
    assert resolve(merged({}, {"preset": "untrusted", "memory": "4G"})).limits.memory == 4096 * MIB


@pytest.mark.parametrize(
    ("name", "looser", "stricter"),
    [
        ("memory", "4G", "128M"),
        ("cpus", 2, 0.25),
        ("cell_timeout", "1h", "1s"),
        ("outputs", "trusted", "strict"),
        ("screen", "warn", "block"),
        ("network", "api.example.org", "none"),
    ],
)
def test_of_a_files_value_and_a_presets_the_stricter_counts(name: str, looser: object, stricter: object) -> None:
    form = SETTINGS[name].form
    of_preset = form(name, PRESETS["untrusted"].values[name][0])
    given = {"preset": "untrusted"}
    assert SETTINGS[name].value(resolve(merged({name: looser}, given))) == of_preset
    assert SETTINGS[name].value(resolve(merged({name: stricter}, given))) == form(name, stricter)
    assert SETTINGS[name].value(resolve(merged({name: looser}, {}))) == form(name, looser)  # without the preset


def test_a_preset_loosens_no_value_of_a_file_and_no_preset_of_a_file() -> None:
    assert resolve(merged({"memory": "512M"}, {"preset": "analysis"})).limits.memory == 512 * MIB
    found = resolve(merged({"preset": "untrusted"}, {"preset": "analysis"}))
    assert found.limits.memory == 256 * MIB
    assert found.limits.cell_timeout == 5.0


def test_what_a_file_says_beside_its_own_preset_counts() -> None:
    assert resolve(merged({"preset": "untrusted", "memory": "1G"}, {})).limits.memory == 1024 * MIB


def test_a_value_of_a_file_that_cannot_be_read_is_an_error_with_a_preset_too() -> None:
    with pytest.raises(ConfigurationError, match="not a size"):
        resolve(merged({"memory": "much"}, {"preset": "untrusted"}))


def test_a_preset_that_is_none_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigurationError, match="untrusted"):
        from_keywords(preset="untrusty")


def test_each_value_says_where_it_comes_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = json.dumps({"SandboxKernel": {"pids": 32, "cell_timeout": "1h", "clients": "own"}})
    Path(tmp_path, f"{sources.CONFIG_NAME}.json").write_text(text)
    monkeypatch.setattr(sources, "config_path", lambda: [str(tmp_path)])
    assert main(["settings", "--json", "--preset", "untrusted", "--memory", "300M"]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["memory"]["from"] == "argument"
    assert (rows["pids"]["value"], rows["pids"]["from"]) == (32, "config file")
    assert rows["cell_timeout"]["value"] == 5
    assert rows["cell_timeout"]["from"].startswith("preset untrusted: ")
    assert rows["clients"]["from"] == "config file"
    assert rows["open_files"]["from"] == "default"


def test_a_preset_of_a_plugin_that_is_not_here_goes_without_its_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presets, "SETTINGS", {name: one for name, one in SETTINGS.items() if name != "screen"})
    assert "screen" not in PRESETS["untrusted"].here
    assert "memory" in PRESETS["untrusted"].here
