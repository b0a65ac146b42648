"""What the server needs at its start: a certificate, templates, and the files that are shipped to start it."""

from __future__ import annotations

import configparser
from pathlib import Path

import pytest
import yaml

from sandbox_kernel.cli.program import parse
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve.command import _words, templates, tls
from sandbox_kernel.plugins.serve.place import ServerAddress
from sandbox_kernel.plugins.serve.token_file import tokens_of
from tests.plugins.serve.unit.test_token_file import TOKEN, file_of
from tests.support import ROOT


def test_a_certificate_and_its_key_go_together_and_are_of_use(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for certificate, key in ((wrong, None), (None, wrong)):
        with pytest.raises(ConfigurationError, match="go together"):
            tls(certificate, key)
    for unfit in (wrong, tmp_path / "none"):
        with pytest.raises(ConfigurationError, match="cannot be used"):
            tls(unfit, wrong)
    assert tls(None, None) == {}


def test_a_template_is_a_name_of_an_image() -> None:
    offered = templates(Settings(image="one"), ["big=two:x"])
    assert {name: settings.image for name, settings in offered.items()} == {
        "base": "one",
        "code-interpreter-v1": "one",
        "big": "two:x",
    }
    for wrong in ("big", "=two", "big="):
        with pytest.raises(ConfigurationError, match="a name and an image"):
            templates(Settings(), [wrong])


def test_the_unit_that_is_shipped_takes_every_right_it_can_do_without() -> None:
    """And starts the command that there is, with a state folder of its own."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "system" / "sandbox-kernel-serve.service")
    service = unit["Service"]
    program, *words = service["ExecStart"].split()
    assert program.endswith("/sandbox-kernel")
    options = parse(words)
    assert options.command == "serve"
    assert str(options.token_file.parent) == f"/var/lib/{service['StateDirectory']}"
    assert service["StateDirectoryMode"] == "0700"
    assert f"u {service['User']} " in (ROOT / "system" / "sandbox-kernel.sysusers.conf").read_text()
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables"):
        assert service[name] == "yes"
    assert service["CapabilityBoundingSet"] == ""


def test_the_compose_file_that_is_shipped_publishes_on_loopback_and_gives_no_rights() -> None:
    found = yaml.safe_load((ROOT / "system" / "compose.yaml").read_text())["services"]["serve"]
    options = parse(found["command"])
    assert options.command == "serve"
    ServerAddress(
        host=options.host, tls=True, token_file=options.token_file is not None, domain=options.domain
    ).check_remote()
    assert all(port.startswith("127.0.0.1:") for port in found["ports"])
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges"]
    assert found["read_only"] is True
    assert "privileged" not in found
    assert (ROOT / found["build"]["dockerfile"]).is_file()


def test_what_clients_set_has_no_token_that_opens_figures_alone(tmp_path: Path) -> None:
    path = file_of(tmp_path, f"metrics {TOKEN}\nann {TOKEN}1\n")
    words = _words(("127.0.0.1", 80), ServerAddress(), path, tokens_of(path), None)
    assert '"ann"' in words
    assert '"metrics"' not in words
