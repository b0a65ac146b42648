"""What the server needs at its start: a token file that is closed, and TLS where others reach it."""

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
from tests.support import ROOT

TOKEN = "e2b_" + "0" * 40


def file_of(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "tokens"
    path.touch(mode)
    path.chmod(mode)
    path.write_text(text)
    return path


def test_a_file_that_is_not_there_is_made_with_a_token_and_closed_to_others(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    made = tokens_of(path)
    assert path.stat().st_mode & 0o777 == 0o600
    name, token = path.read_text().split()
    assert (made.names, made.name_of(token)) == (("default",), name)
    assert tokens_of(path).name_of(token) == "default"


def test_each_token_has_its_name(tmp_path: Path) -> None:
    tokens = tokens_of(file_of(tmp_path, f"# people\nann {TOKEN}\n\nbob {TOKEN}1\nann {TOKEN}2\n"))
    assert tokens.names == ("ann", "bob")
    found = [tokens.name_of(TOKEN + end) for end in ("", "1", "2", "3")]
    assert [*found, tokens.name_of(""), tokens.name_of("\ud800")] == ["ann", "bob", "ann", None, None, None]


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        (f"ann {TOKEN}\n", 0o644),
        (f"ann {TOKEN}\n", 0o620),
        ("", 0o600),
        (f"{TOKEN}\n", 0o600),
        ("ann short\n", 0o600),
        (f"a/b {TOKEN}\n", 0o600),
        (f"ann {TOKEN} x\n", 0o600),
        (f"ann {TOKEN}\nbob {TOKEN}\n", 0o600),
        (f"ann {TOKEN}\n" + "# people\n" * 8000, 0o600),
    ],
)
def test_a_token_file_that_is_open_or_improper_is_refused(tmp_path: Path, text: str, mode: int) -> None:
    with pytest.raises(ConfigurationError) as found:
        tokens_of(file_of(tmp_path, text, mode))
    assert found.value.code.code == "serve-tokens-unfit"


@pytest.mark.parametrize("missing", ["tls", "token_file", "names"])
def test_an_address_that_others_reach_needs_tls_tokens_and_a_name(missing: str) -> None:
    whole = {"tls": True, "token_file": True, "names": ("box.example.com",)}
    given = {name: value for name, value in whole.items() if name != missing}
    with pytest.raises(ConfigurationError) as found:
        ServerAddress(host="0.0.0.0", port=0, **given).listen()  # type: ignore[arg-type]  # noqa: S104 (refused before)
    assert found.value.code.code == "serve-exposed"
    ServerAddress(**whole).check_remote()  # type: ignore[arg-type]
    ServerAddress(port=0).listen().close()


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
