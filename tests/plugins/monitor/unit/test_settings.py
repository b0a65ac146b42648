"""The settings of the monitor: every form, a clear word on what is wrong, and no word of a webhook's token."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.config import sources as config
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.events import CallTried
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.monitor import call_trace
from sandbox_kernel.plugins.monitor.behaviour_rules import MonitorRule
from sandbox_kernel.plugins.monitor.codes import MonitorCode
from sandbox_kernel.plugins.monitor.monitor import Monitor
from sandbox_kernel.plugins.monitor.settings import MonitorSettings
from tests.support.cases import each
from tests.support.events import an
from tests.unit.test_architecture import modules_after


@pytest.fixture(autouse=True)
def _no_config_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path / "no-config")])


def resolved(**values: Any) -> MonitorSettings:
    return config.from_keywords(**values).of(MonitorSettings)


@pytest.mark.parametrize("value", [None, "off", "", "none", {"level": "off"}])
def test_without_a_level_there_is_no_monitor(value: object) -> None:
    assert resolved(monitor=value).monitor is None


def test_a_level_a_table_and_a_file_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('level = "kill"\n[rules.many-denials]\ncount = 2\nseconds = 5\nlevel = "kill"\n')
    table = {"level": "kill", "rules": {"many-denials": {"count": 2, "seconds": 5, "level": "kill"}}}
    by_file, by_table = resolved(monitor=str(file)).monitor, resolved(monitor=table).monitor
    assert by_file is not None
    assert by_file == by_table
    assert MonitorRule("many-denials", "kill", 2, 5.0) in by_file.rules
    assert resolved(monitor="Alert").monitor == resolved(monitor={"level": "alert"}).monitor


def test_the_flag_of_a_kernel_says_what_was_given(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text('level = "note"\n')
    form = config.SETTINGS["monitor"].form
    assert form.written("monitor", str(file)) == [str(file)]
    _, settings = config.from_argv(
        ["-f", "x", "--monitor", str(file), "--monitor-command", f"{sys.executable} -c pass"]
    )
    assert settings.of(MonitorSettings).monitor is not None
    assert settings.of(MonitorSettings).monitor_command == (sys.executable, "-c", "pass")


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a word that is no level": ({"monitor": "loud"}, "none of off, note, alert, kill"),
    "a path of a user who is not there": ({"monitor": "~nobody-of-that-name/x"}, "no path from the root"),
    "a path of the working folder": ({"monitor": "rules.toml"}, "no path from the root"),
    "a file that there is not": ({"monitor": "/no/such/rules.toml"}, "cannot be taken"),
    "a file that is no TOML": ({"monitor": __file__}, "no TOML"),
    "a number": ({"monitor": 3}, "neither a level nor a file"),
    "a rule that there is not": ({"monitor": {"rules": {"x": {}}}}, "has a rule 'x'"),
    "a webhook of another kind": ({"monitor": "alert", "monitor_webhook": "ftp://a.test/s3cret"}, "not the address"),
    "a webhook with a user": ({"monitor": "alert", "monitor_webhook": "https://s3cret:x@a.test/"}, "not the address"),
    "a command by its name": ({"monitor": "alert", "monitor_command": "logger"}, "is not a program"),
    "a command that is a folder": ({"monitor": "alert", "monitor_command": "/usr"}, "is not a program"),
    "a command with a quote": ({"monitor": "alert", "monitor_command": "/bin/sh '"}, "is no command"),
    "a webhook without a monitor": ({"monitor_webhook": "https://a.test/s3cret"}, "the monitor is off"),
    "a command without a monitor": ({"monitor_command": "/bin/sh"}, "the monitor is off"),
}


@each("what", WRONG)
def test_what_cannot_work_is_said_at_once_and_without_a_token(what: str) -> None:
    values, why = WRONG[what]
    with pytest.raises(ConfigurationError) as caught:
        resolved(**values)
    assert why in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_a_file_that_nests_too_deep_is_none(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("a = " + "[" * 20_000)
    with pytest.raises(ConfigurationError, match="cannot be taken: no TOML"):
        resolved(monitor=str(file))


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text("# " + "x" * (64 << 10) + "\n")
    with pytest.raises(ConfigurationError, match="more than 65536 bytes"):
        resolved(monitor=str(file))


@pytest.mark.slow
def test_without_a_monitor_nothing_of_it_is_imported() -> None:
    lines = (
        "from sandbox_kernel import AsyncSandbox",
        "from sandbox_kernel.config.sources import resolve",
        "AsyncSandbox(resolve({{'monitor': '{}'}}))",
    )
    names = {f"sandbox_kernel.plugins.monitor.{name}" for name in ("monitor", "alerts", "behaviour_rules")}
    assert not names & modules_after(*(line.format("off") for line in lines))
    assert names <= modules_after(*(line.format("note") for line in lines))


def test_a_sandbox_watches_calls_where_a_rule_or_a_file_wants_it(tmp_path: Path) -> None:
    tried = ("secret-sought", "port-scan", "escape-tried")
    without = {"level": "kill", "rules": {code: {"level": "off"} for code in tried}}
    for values, wanted in (
        ({}, False),
        ({"monitor": "alert"}, True),
        ({"monitor": without}, False),
        ({"trace": str(tmp_path / "calls.jsonl")}, True),
    ):
        settings = config.from_keywords(**values)
        assert settings.watches_calls is wanted, values
        assert new_spec(settings).watched is wanted
        assert (b"secret_watch" in new_spec(settings).program) is wanted


def test_a_trace_is_a_file_of_ours_or_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    assert resolved(trace=str(file)).trace == str(file)
    assert resolved(trace="off").trace is None
    file.write_text("something else\n")
    with pytest.raises(ConfigurationError, match="trace is not a file"):
        resolved(trace=str(file))
    (tmp_path / "d").mkdir()
    with pytest.raises(ConfigurationError, match="trace lies in the downloads folder"):
        config.from_keywords(trace=str(tmp_path / "d" / "x"), downloads=str(tmp_path / "d"))


def test_a_trace_that_cannot_be_written_disarms_no_rule(tmp_path: Path) -> None:
    """A disk may be full: of files that cells have made and that were copied out, too."""
    emitted: list[Any] = []
    session: Any = SimpleNamespace(id="s", running_cells=list, emit=emitted.append, say=lambda text: None)
    settings = config.from_keywords(monitor="alert", trace=str(tmp_path / "calls.jsonl"))
    monitor = Monitor(settings, session)
    trace = monitor._trace  # noqa: SLF001 (the file that is open)
    assert trace is not None
    with Path("/dev/full").open("wb") as full:
        os.dup2(full.fileno(), trace._file)  # noqa: SLF001 (as above)
    for tried in (
        an(CallTried, call="secret", target="keys of SSH", program="x", thread=7, count=1),
        *(an(CallTried, call="connect", target=f"192.0.2.1:{n}", program="x", thread=7, count=1) for n in range(1, 31)),
    ):
        with pytest.raises(OSError, match="No space"):
            monitor.hear(tried)
    assert [one.code for one in emitted] == [MonitorCode.SECRET_SOUGHT, MonitorCode.PORT_SCAN]
    monitor.abandon()


def test_a_trace_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_trace, "MAX_BYTES", 1000)
    session: Any = SimpleNamespace(id="s", running_cells=lambda: [SimpleNamespace(id="c", sent=True)])
    trace = call_trace.CallTrace(str(tmp_path / "calls.jsonl"))
    for _ in range(50):
        trace.write(an(CallTried, call="mount", thread=7, count=1), session)
    trace.close()
    trace.close()
    trace.write(an(CallTried, call="mount", thread=7, count=1), session)
    lines = [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]
    assert 3 < len(lines) < 12
    assert {"session": "s", "cells": ["c"], "call": "mount", "thread": 7, "count": 1}.items() <= lines[0].items()
    assert lines[-1]["more"] == "is not written"
    assert config.from_keywords(trace=str(tmp_path / "calls.jsonl")), "its own file is taken again"
