"""What a session knows of its secrets: read once, shown to nobody, and for single hosts with names."""

from __future__ import annotations

import logging
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.network.interfaces import RequestHead, TlsInterceptor
from sandbox_kernel.plugins.network.secrets import Secrets, keep_out_of_cores

from .hosts import HOST, KEY, Source

SECOND = "ghp_" + "7Hq2" * 9


def load(*sources: Source, **options: object) -> Secrets:
    return Secrets.load(sources, environment={"GIVEN": KEY, "SECOND": SECOND}, **options)  # type: ignore[arg-type]


def test_it_is_an_insight_into_its_hosts() -> None:
    insight: TlsInterceptor = load(Source(hosts=(HOST, "B.example.test:8443")))
    assert insight.looks_into(HOST, 443)
    assert insight.looks_into("b.example.test", 8443)
    assert not insight.looks_into(HOST, 80)
    assert not insight.looks_into("b.example.test", 443)
    assert not insight.looks_into("x." + HOST, 443)


def test_cells_have_placeholders() -> None:
    secrets = load(Source(), Source(name="TOKEN", place="SECOND"))
    found = secrets.environment()
    assert set(found) == {"API_KEY", "TOKEN"}
    assert found["TOKEN"].startswith("ghp_")
    assert not {KEY, SECOND} & set(found.values())
    assert load(Source()).environment()["API_KEY"] != found["API_KEY"]


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("*.example.test", "wildcard"),
        ("93.184.216.34", "is for an address"),
        ("[2001:db8::1]:8443", "is for an address"),
        ("GET api.example.test", "for a method"),
        ("https://api.example.test", "has a scheme"),
        ("api.example.test/v1", "has a path"),
        ("", "is empty"),
    ],
)
def test_a_secret_is_for_single_hosts_with_names(host: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"secrets.API_KEY .*{why}"):
        load(Source(hosts=(host,)))


def test_a_secret_without_a_host_is_for_nothing() -> None:
    with pytest.raises(ConfigurationError, match="for no host"):
        load(Source(hosts=()))


def test_two_secrets_cannot_set_one_header() -> None:
    form = "Authorization: Bearer {}"
    with pytest.raises(ConfigurationError, match="sets a header that another secret sets"):
        load(Source(header=form), Source(name="TOKEN", place="SECOND", header=form.lower()))


def test_control_two_secrets_can_set_two_headers_or_one_at_two_hosts() -> None:
    form = "Authorization: Bearer {}"
    load(Source(header=form), Source(name="TOKEN", place="SECOND", header="X-Token: {}"))
    load(Source(header=form), Source(name="TOKEN", place="SECOND", hosts=("b.example.test",), header=form))


def test_a_file_of_certificates_that_is_none_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be used: No such file"):
        load(Source(), certificates=str(tmp_path / "none"))
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigurationError, match="cannot be used"):
        load(Source(), certificates=str(tmp_path / "empty"))


def test_nothing_that_is_printed_holds_a_value(caplog: pytest.LogCaptureFixture) -> None:
    secrets = load(Source(), Source(name="TOKEN", place="SECOND"))
    looker = secrets.exchange(RequestHead("GET", "https", HOST, 443, b"/", ()))
    caplog.set_level(logging.DEBUG)
    logging.getLogger("sandbox_kernel").warning("%r %r %r", secrets, looker, vars(secrets))
    said = caplog.text + f"{secrets} {vars(looker)}"
    assert "<the value of a secret>" in said
    assert KEY not in said
    assert SECOND not in said


def test_a_process_that_holds_values_leaves_no_core_file() -> None:
    """In a process of its own, since the limit stays."""
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_CORE, (resource.RLIM_INFINITY,) * 2)\n"
        "from sandbox_kernel.plugins.network.secrets import keep_out_of_cores\n"
        "before = resource.getrlimit(resource.RLIMIT_CORE)[0]; keep_out_of_cores()\n"
        "print(before, resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    limit = resource.getrlimit(resource.RLIMIT_CORE)[1]
    if limit == 0:
        keep_out_of_cores()
        assert resource.getrlimit(resource.RLIMIT_CORE)[0] == 0
        return
    code = code.replace("resource.RLIM_INFINITY", str(limit))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(limit), "0"]
