"""The settings of the way out: every form of a rule and of a secret, and that no value of a secret is ever repeated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import cli
from sandbox_kernel.config import sources as config
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import MIB, Settings
from sandbox_kernel.plugins.network.settings import NetworkSettings, SecretSource
from sandbox_kernel.setup.install import kernel_spec
from tests.support.cases import each

TOKEN = SecretSource(name="API_KEY", kind="env", place="TOKEN_OF_MINE", hosts=("api.example.org",))
BEARER = SecretSource(
    name="OTHER", kind="file", place="/run/a secret@home", hosts=("a.test", "b.test:8443"), header="X-Key: k {}"
)
TABLES = {
    "API_KEY": {"env": "TOKEN_OF_MINE", "hosts": ["api.example.org"]},
    "OTHER": {"file": "/run/a secret@home", "hosts": "a.test, b.test:8443", "header": "X-Key: k {}"},
}
ALLOWED = ("api.example.org", "a.test", "b.test:8443")
"""A secret allows no connection: its hosts need rules too."""
WORDS = [
    "API_KEY=env:TOKEN_OF_MINE@api.example.org",
    "OTHER=file:/run/a secret@home@a.test,b.test:8443 X-Key: k {}",
]


@pytest.fixture(autouse=True)
def _no_config_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path / "no-config")])


# --- rules ---------------------------------------------------------------------------------------------------------

RULES: dict[str, tuple[Any, tuple[str, ...]]] = {
    "one, as text": ("api.example.org", ("api.example.org",)),
    "several, with commas": (" a.test,*.b.test:8443 , GET c.test ", ("a.test", "*.b.test:8443", "GET c.test")),
    "a list": (["a.test", "b.test:80"], ("a.test", "b.test:80")),
    "a list of texts with commas": (["a.test,b.test", "c.test"], ("a.test", "b.test", "c.test")),
    "the same twice": (["a.test", "a.test"], ("a.test",)),
    "an address": ("192.0.2.1:8080", ("192.0.2.1:8080",)),
    "an empty list is nothing": ([], ()),
    "an empty text is nothing": ("", ()),
    "nothing, as a word": ("none", ()),
    "in capitals, with a dot behind": ("API.Example.ORG.", ("api.example.org",)),
}

NO_RULES: dict[str, tuple[Any, str]] = {
    "a switch of another program": ("host", "not a kind of network"),
    "everything": ("*", "not a kind of network"),
    "true": (True, "not a list of rules"),
    "a number in a list": (["a.test", 1], "not a list of rules"),
    "a table": ({"a.test": True}, "not a list of rules"),
    "bytes": (b"a.test", "not a list of rules"),
    "an address of the web": ("https://a.test/", "a rule that is none"),
    "nothing between two commas": ("a.test,,b.test", "a rule that is none"),
    "a user in it": ("me@a.test", "a rule that is none"),
    "too many": ([f"h{number}.test" for number in range(201)], "too many rules"),
}


def of(**values: Any) -> NetworkSettings:
    return config.from_keywords(**values).of(NetworkSettings)


def of_argv(argv: list[str]) -> NetworkSettings:
    return config.from_argv(argv)[1].of(NetworkSettings)


@pytest.mark.parametrize("case", RULES)
def test_rules_are_a_list_in_every_form(case: str) -> None:
    raw, expected = RULES[case]
    assert of(network=raw).network == expected


@pytest.mark.parametrize("case", NO_RULES)
def test_what_is_no_rule_is_refused(case: str) -> None:
    raw, reason = NO_RULES[case]
    with pytest.raises(ConfigurationError, match=reason) as caught:
        config.from_keywords(network=raw)
    assert caught.value.setting == "network"


def test_flags_of_a_list_add_up_and_replace_those_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody who says what this kernel reaches does not mean what the file lets all others reach as well."""
    (tmp_path / "jupyter_sandbox_kernel_config.py").write_text("c.SandboxKernel.network = ['file.test']\n")
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path)])
    assert of_argv([]).network == ("file.test",)
    argv = ["--network", "a.test,b.test", "--network=GET c.test"]
    assert of_argv(argv).network == ("a.test", "b.test", "GET c.test")
    assert of_argv(["--network=none"]).network == ()


# --- secrets -------------------------------------------------------------------------------------------------------

SECRETS: dict[str, Any] = {
    "tables": TABLES,
    "words of a command line": WORDS,
}


@pytest.mark.parametrize("case", SECRETS)
def test_secrets_are_the_same_in_every_form(case: str) -> None:
    assert of(secrets=SECRETS[case], network=ALLOWED).secrets == (TOKEN, BEARER)


def test_a_config_file_has_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path)])
    python, plain = (tmp_path / f"jupyter_sandbox_kernel_config{suffix}" for suffix in (".py", ".json"))
    python.write_text(f"c.SandboxKernel.secrets = {TABLES!r}\nc.SandboxKernel.network = {ALLOWED!r}\n")
    assert of_argv([]).secrets == (TOKEN, BEARER)
    python.unlink()
    plain.write_text(json.dumps({"SandboxKernel": {"secrets": TABLES, "network": ALLOWED}}))
    settings = of_argv([])
    assert (settings.secrets, settings.network) == ((TOKEN, BEARER), ALLOWED)
    assert of_argv(["--secret=none"]).secrets == ()


def test_a_flag_gives_one_secret(capsys: pytest.CaptureFixture[str]) -> None:
    allowed = [f"--network={rule}" for rule in ALLOWED]
    argv = [word for text in WORDS for word in ("--secret", text)]
    assert of_argv([*argv, *allowed]).secrets == (TOKEN, BEARER)
    assert of_argv([f"--secrets={WORDS[0]}", *allowed]).secrets == (TOKEN,)


VALUE = "sk-Ha7fVerySecretValue"

NO_SECRETS: dict[str, tuple[Any, str]] = {
    "the value in its place": ({"API_KEY": VALUE}, "never given"),
    "the value on a command line": (f"API_KEY={VALUE}", "never given"),
    "the value on a command line, with a host": (f"API_KEY={VALUE}@api.example.org", "never given"),
    "the value under a name of its own": ({"API_KEY": {"value": VALUE, "hosts": ["a.test"]}}, "never given"),
    "the value beside where it is": (
        {"API_KEY": {"env": "X", "value": VALUE, "hosts": ["a.test"]}},
        "more than env or file",
    ),
    "the value in the header": (
        {"API_KEY": {"env": "X", "hosts": ["a.test"], "header": f"Authorization: Bearer {VALUE}"}},
        "has a header that is not like",
    ),
    "the value as the name of a variable": ({"API_KEY": {"env": VALUE, "hosts": ["a.test"]}}, "name of a variable"),
    "the value as a file": ({"API_KEY": {"file": VALUE, "hosts": ["a.test"]}}, "not a path from the root"),
    "the value as the name": ({VALUE: {"env": "X", "hosts": ["a.test"]}}, "name that no variable can have"),
    "both": ({"API_KEY": {"env": "X", "file": "/x", "hosts": ["a.test"]}}, "either"),
    "neither": ({"API_KEY": {"hosts": ["a.test"]}}, "either"),
    "no hosts": ({"API_KEY": {"env": "X"}}, "no list of 1 to"),
    "an empty list of hosts": ({"API_KEY": {"env": "X", "hosts": []}}, "no list of 1 to"),
    "hosts without end": ({"API_KEY": {"env": "X", "hosts": ["a.test"] * 33}}, "no list of 1 to"),
    "a host with a method": ({"API_KEY": {"env": "X", "hosts": ["GET a.test"]}}, "method"),
    "every host": ({"API_KEY": {"env": "X", "hosts": ["*"]}}, "a host that is none"),
    "all below a host": ({"API_KEY": {"env": "X", "hosts": ["*.a.test"]}}, "somebody else"),
    "an address": ({"API_KEY": {"env": "X", "hosts": ["192.0.2.1"]}}, "for an address"),
    "the value as a host": ({"API_KEY": {"env": "X", "hosts": [f"https://{VALUE}"]}}, "a host that is none"),
    "a header of two lines": (
        {"API_KEY": {"env": "X", "hosts": ["a.test"], "header": "A: {}\r\nHost: b.test"}},
        "header",
    ),
    "a header with two places": ({"API_KEY": {"env": "X", "hosts": ["a.test"], "header": "A: {} {}"}}, "header"),
    "the header that names the host": (
        {"API_KEY": {"env": "X", "hosts": ["a.test"], "header": "Host: {}"}},
        "how a request is read",
    ),
    "the header that says where a request ends": (
        {"API_KEY": {"env": "X", "hosts": ["a.test"], "header": "content-length: {}"}},
        "how a request is read",
    ),
    "a name that the loader obeys": ({"LD_PRELOAD": {"env": "X", "hosts": ["a.test"]}}, "another meaning"),
    "a name that the way out needs": ({"https_proxy": {"env": "X", "hosts": ["a.test"]}}, "another meaning"),
    "the same name twice": ([WORDS[0], WORDS[0]], "same variable twice"),
    "bytes": (VALUE.encode(), "neither a table"),
    "a number": ([7], "neither a table"),
    "too many": ({f"S{n}": {"env": "X", "hosts": ["a.test"]} for n in range(33)}, "too many"),
}


@each("case", NO_SECRETS)
def test_what_is_no_secret_is_refused_and_not_repeated(case: str) -> None:
    """A value that somebody gives in place of where it is found gets into no error, and so into no log or notebook."""
    raw, reason = NO_SECRETS[case]
    with pytest.raises(ConfigurationError, match=reason) as caught:
        config.from_keywords(secrets=raw)
    error: BaseException | None = caught.value
    said = []
    while error is not None:
        said.append(f"{error!s} {error!r} {vars(error)}")
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert VALUE not in " ".join(said)
    assert caught.value.setting == "secrets"


def test_control_other_settings_repeat_what_was_given() -> None:
    with pytest.raises(ConfigurationError) as caught:
        config.from_keywords(memory=VALUE)
    assert VALUE in str(caught.value)


# --- the host's own proxy --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("http://proxy.example.org:3128", "http://proxy.example.org:3128"),
        ("http://[2001:db8::1]:3128/", "http://[2001:db8::1]:3128"),
        ("Environment", "environment"),
        ("none", None),
        ("", None),
    ],
)
def test_the_hosts_own_proxy(raw: str, expected: str | None) -> None:
    assert of(network_proxy=raw).network_proxy == expected


@pytest.mark.parametrize(
    "raw", ["proxy.example.org:3128", "https://p.test:1", "http://p.test", "http://p.test:99999", 3]
)
def test_what_is_no_proxy_is_refused(raw: object) -> None:
    with pytest.raises(ConfigurationError, match="neither the address of a proxy"):
        config.from_keywords(network_proxy=raw)


def test_a_proxy_has_no_password_here() -> None:
    with pytest.raises(ConfigurationError, match="no place for a user and a password") as caught:
        config.from_keywords(network_proxy=f"http://me:{VALUE}@p.test:3128")
    assert VALUE not in f"{caught.value} {vars(caught.value)}"


def test_certificates_are_a_file_from_the_root_on() -> None:
    assert of(network_certificates="/etc/ours.pem").network_certificates == "/etc/ours.pem"
    assert of(network_certificates="none").network_certificates is None
    with pytest.raises(ConfigurationError, match="from the root"):
        config.from_keywords(network_certificates="ours.pem")


def test_limits_of_the_network() -> None:
    limits = config.from_keywords(network_connections="7", network_bytes="10M", network_timeout="30s").limits
    assert (limits.network_connections, limits.network_bytes, limits.network_timeout) == (7, 10 * MIB, 30.0)


# --- entry points ----------------------------------------------------------------------------------------------------


def test_a_kernelspec_says_the_same_again(tmp_path: Path) -> None:
    """What `install` writes into argv is what the kernel reads, for each form that it was given in."""
    for values in (
        {"network": [*ALLOWED, "GET b.test"], "secrets": TABLES},
        {"network": ", ".join((*ALLOWED, "GET b.test")), "secrets": WORDS},
    ):
        settings = config.resolve(values)
        spec = kernel_spec(values, settings, python="python", isolation=[])
        given = spec["argv"][spec["argv"].index("{connection_file}") + 1 :]
        assert config.from_argv(given)[1] == settings
        assert spec["metadata"]["sandbox_kernel"]["network"] == [*ALLOWED, "GET b.test"]
        assert spec["metadata"]["sandbox_kernel"]["secrets"] == ["API_KEY", "OTHER"]


def test_a_kernelspec_that_allows_nothing_says_so_against_a_config_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jupyter_sandbox_kernel_config.py").write_text(
        f"c.SandboxKernel.network = ['file.test']\nc.SandboxKernel.secrets = {TABLES!r}\n"
    )
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path)])
    values: dict[str, object] = {"network": [], "secrets": {}}
    spec = kernel_spec(values, Settings(), python="python", isolation=[])
    settings = of_argv(spec["argv"][spec["argv"].index("{connection_file}") + 1 :])
    assert (settings.network, settings.secrets) == ((), ())


def test_the_settings_that_are_shown_hold_no_value(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN_OF_MINE", VALUE)
    assert cli.main(["settings", "--json", "--secret", WORDS[0], "--network", ALLOWED[0]]) == 0
    shown = capsys.readouterr().out
    assert WORDS[0] in shown
    assert VALUE not in shown


def test_a_start_without_a_network_does_not_load_the_rules() -> None:
    """Start-up time is a feature: neither the rules nor what serves connections is imported unless there is a rule."""
    code = (
        "import sys; from sandbox_kernel.config import sources as config; config.config_path = lambda: [];"
        "config.from_argv(['-f', 'x', *sys.argv[1:]]);"
        "ours = [name for name in sys.modules if name.startswith('sandbox_kernel.plugins.network.')];"
        "print([name for name in ours if not name.endswith('.settings')])"
    )

    def loaded(*argv: str) -> str:
        command = [sys.executable, "-c", code, *argv]
        return subprocess.run(command, check=True, timeout=60, capture_output=True, text=True).stdout.strip()

    assert loaded() == loaded("--network=none") == "[]"
    assert "plugins.network.policy" in loaded("--network=a.test")


# --- a secret allows no connection ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("network", "host", "wanted"),
    [
        ([], "api.example.org", "api.example.org"),
        (["other.example.org"], "api.example.org", "api.example.org"),
        (["api.example.org:8443"], "api.example.org", "api.example.org:443"),
        (["api.example.org"], "api.example.org:8443", "api.example.org:8443"),
        (["GET api.example.org"], "api.example.org", "api.example.org"),
        (["*.api.example.org"], "api.example.org", "api.example.org"),
    ],
)
def test_a_secret_whose_host_no_rule_allows_is_said_at_once(network: list[str], host: str, wanted: str) -> None:
    with pytest.raises(ConfigurationError, match="a secret allows no connection by itself") as raised:
        config.resolve({"network": network, "secrets": {"API_KEY": {"env": "GIVEN", "hosts": [host]}}})
    assert raised.value.setting == "network"
    assert raised.value.limit == f"network has the rule {wanted}"


@pytest.mark.parametrize("rule", ["api.example.org", "api.example.org:443", "*.example.org"])
def test_control_a_secret_whose_host_a_rule_allows_is_taken(rule: str) -> None:
    settings = config.resolve(
        {"network": [rule], "secrets": {"API_KEY": {"env": "GIVEN", "hosts": ["api.example.org"]}}}
    )
    assert settings.of(NetworkSettings).secrets[0].hosts == ("api.example.org",)
