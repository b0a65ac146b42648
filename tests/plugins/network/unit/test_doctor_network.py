"""The doctor finds what the network of an installed kernel is missing before a front end does."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.doctor import doctor
from sandbox_kernel.plugins.doctor.doctor import DoctorCheck
from sandbox_kernel.plugins.network import plugin
from sandbox_kernel.setup.install import install

HOST = "api.example.test"
VARIABLE = "A_VARIABLE_OF_THE_TESTS"
Break = Callable[[Path], object]


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(secrets.token_hex(16))
    file.chmod(0o600)
    return file


def kernel(tmp_path: Path, **values: object) -> Path:
    return install({"network": [HOST], **values}, prefix=str(tmp_path / "prefix"))


def row_of(folder: Path) -> DoctorCheck:
    (row,) = doctor.rows_of_plugins(Settings(), folder)
    assert row.name == "network of sandbox-python"
    return row


BROKEN: dict[str, tuple[Break, str]] = {
    "a file that is gone": (Path.unlink, "cannot be opened"),
    "a file that others can read": (lambda file: file.chmod(0o644), "600"),
    "a file with a word in it": (lambda file: file.write_text("password"), "guessing"),
    "a file with nothing in it": (lambda file: file.write_text(""), "empty"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_secret_that_cannot_be_read_is_found(case: str, tmp_path: Path, token: Path) -> None:
    value = token.read_text()
    folder = kernel(tmp_path, secrets={"API_KEY": {"file": str(token), "hosts": [HOST]}})
    row = row_of(folder)
    assert (row.status, row.found) == ("ok", "rules: 1, secrets: 1; what they name is there")
    change, reason = BROKEN[case]
    change(token)
    row = row_of(folder)
    assert row.status == "wrong"
    assert "secrets.API_KEY" in row.found
    assert reason in row.found
    assert str(token) in row.remedy
    assert value not in repr(row)


def test_a_variable_that_is_not_set_here_may_be_set_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a note, unless the kernelspec sets it; what else is wrong is found all the same."""
    monkeypatch.delenv(VARIABLE, raising=False)
    folder = kernel(tmp_path, secrets={"API_KEY": {"env": VARIABLE, "hosts": [HOST]}})
    row = row_of(folder)
    assert (row.status, row.ok) == ("note", True)
    assert VARIABLE in row.found
    assert VARIABLE in row.remedy
    path = folder / "kernel.json"
    spec = json.loads(path.read_text())
    path.write_text(json.dumps({**spec, "env": {VARIABLE: secrets.token_hex(16)}}))
    assert row_of(folder).status == "ok"
    path.write_text(json.dumps({**spec, "argv": [*spec["argv"], "--network-certificates=/nonexistent/ca.pem"]}))
    row = row_of(folder)
    assert row.status == "wrong"
    assert VARIABLE in row.found
    assert "file of certificates" in row.found


def test_a_file_of_certificates_that_is_none_is_found(tmp_path: Path) -> None:
    file = tmp_path / "ca.pem"
    folder = kernel(tmp_path, network_certificates=str(file))
    assert "cannot be read" in row_of(folder).found
    file.write_text("no certificate")
    row = row_of(folder)
    assert row.status == "wrong"
    assert "none in PEM" in row.found
    assert "network_certificates" in row.remedy


def test_the_package_that_secrets_need_is_found_missing(
    tmp_path: Path, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = kernel(tmp_path, secrets={"API_KEY": {"file": str(token), "hosts": [HOST]}})
    monkeypatch.setattr(plugin, "find_spec", lambda name: None)
    row = row_of(folder)
    assert row.status == "wrong"
    assert row.remedy == "`pip install 'cryptography>=44'`"


def test_a_kernel_without_a_network_has_no_row(tmp_path: Path) -> None:
    assert doctor.rows_of_plugins(Settings(), install({}, prefix=str(tmp_path))) == []


def test_the_settings_that_are_asked_about_have_a_row_of_their_own(tmp_path: Path) -> None:
    """And so has every kernel that is installed, whichever the doctor was asked about."""
    settings = resolve({"network": [HOST], "network_certificates": str(tmp_path / "gone")})
    rows = doctor.rows_of_plugins(settings, install({}, prefix=str(tmp_path)))
    assert [(row.name, row.status) for row in rows] == [("network", "wrong")]


def test_every_kernel_that_is_installed_has_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one-api", "another-api"):
        folder = install({"network": [HOST]}, name=name, prefix=str(tmp_path))
    broken = install({}, name="broken", prefix=str(tmp_path))
    (broken / "kernel.json").write_text("{")
    monkeypatch.setenv("JUPYTER_PATH", str(folder.parent.parent))
    names = {row.name for row in doctor.rows_of_plugins(Settings())}
    assert names >= {"network of one-api", "network of another-api"}
    assert "network of broken" not in names
