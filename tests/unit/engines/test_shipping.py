"""The clock of cells: the zone of the machine, by its name, and nothing that is no name."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core import time_zone
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.engines import shipping


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(time_zone, "LINK", tmp_path / "localtime")
    monkeypatch.setattr(time_zone, "NAME", tmp_path / "timezone")
    return tmp_path


def clock(**settings: str) -> str | None:
    """Return the zone that a cell's process is given."""
    found = ast.literal_eval(shipping.new_spec(from_keywords(**settings)).command[-1])
    return found["environment"].get("TZ")


def test_a_cell_has_the_zone_of_the_machine_or_of_the_setting(machine: Path) -> None:
    assert clock() is None
    (machine / "timezone").write_text("Asia/Tokyo\n")
    assert clock() == "Asia/Tokyo"
    (machine / "localtime").symlink_to("../usr/share/zoneinfo/America/Argentina/Ushuaia")
    assert clock() == "America/Argentina/Ushuaia"
    assert clock(time_zone="Etc/GMT+3") == "Etc/GMT+3"
    assert clock(time_zone="none") is None


def test_what_is_no_name_of_a_zone_is_none(machine: Path) -> None:
    (machine / "localtime").symlink_to("/usr/share/zoneinfo/../../../etc/passwd")
    (machine / "timezone").write_text("A; rm -rf\n")
    assert clock() is None
    for name in ("../etc/passwd", "/etc/passwd", ":x", "Europe/Berlin\n#"):
        with pytest.raises(ConfigurationError, match="time zone"):
            from_keywords(time_zone=name)
