"""How a program comes into a sandbox, and the clock of cells: the zone of the machine, by its name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core import time_zone
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.engines import shipping
from tests.support.engines import config_of

PROGRAM = "import sys\nprint(os.read(0, 99), sys.argv[1:], flush=True)\n" + "# and more\n" * 2000


@contextmanager
def starter() -> Iterator[subprocess.Popen[bytes]]:
    pipe = subprocess.PIPE
    command = [sys.executable, *shipping.COMMAND[1:]]
    with subprocess.Popen(command, bufsize=0, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        yield process


def test_a_program_that_comes_byte_by_byte_is_run_and_finds_what_comes_behind_it() -> None:
    with starter() as process:
        assert process.stdin is not None
        for byte in shipping.sized(PROGRAM):
            process.stdin.write(bytes([byte]))
        output, errors = process.communicate(b"a frame", timeout=60)
    assert (output, errors) == (b"b'a frame' ['sandbox-kernel', 'agent']\n", b"")


@pytest.mark.parametrize("length", [0, 3, 8, 70, -1])
def test_a_program_that_is_cut_off_ends_without_a_word(length: int) -> None:
    with starter() as process:
        output, errors = process.communicate(shipping.sized(PROGRAM)[:length], timeout=60)
    assert (process.returncode, output, errors) == (0, b"", b"")


def test_control_the_whole_program_runs() -> None:
    with starter() as process:
        output, _ = process.communicate(shipping.sized(PROGRAM), timeout=60)
    assert output.startswith(b"b''")


def test_a_command_is_short_and_has_nothing_of_a_session() -> None:
    specs = [shipping.new_spec(from_keywords(time_zone=zone)) for zone in ("UTC", "Asia/Tokyo")]
    assert {spec.command for spec in specs} == {shipping.COMMAND}
    assert len(" ".join(shipping.COMMAND)) < 300
    assert specs[0].program != specs[1].program


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(time_zone, "LINK", tmp_path / "localtime")
    monkeypatch.setattr(time_zone, "NAME", tmp_path / "timezone")
    return tmp_path


def clock(**settings: str) -> str | None:
    """Return the zone that a cell's process is given."""
    zone = config_of(shipping.new_spec(from_keywords(**settings)).program)["environment"].get("TZ")
    assert zone is None or isinstance(zone, str)
    return zone


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
