"""The variables by which libraries find the way out."""

from __future__ import annotations

import urllib.request

import pytest
import requests
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from sandbox_kernel.config import sources
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.network.policy import HostRule
from sandbox_kernel.plugins.network.session_network import BUNDLE, PROXY, inside


def environment(*rules: str) -> dict[str, str]:
    return dict(inside([HostRule.parse(rule) for rule in rules], {"API_KEY": "sk-placeholder"}).environment)


def test_a_library_takes_the_proxy_for_all_but_the_sandbox_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two libraries that read the variables each in its own way."""
    monkeypatch.setattr("os.environ", environment("api.example.org"))
    for url in ("http://api.example.org/", "https://api.example.org/", "https://192.0.2.7:8443/"):
        assert requests.utils.select_proxy(url, requests.utils.get_environ_proxies(url)) == PROXY
        host = url.split("/")[2].partition(":")[0]
        assert urllib.request.getproxies()[url.partition(":")[0]] == PROXY
        assert not urllib.request.proxy_bypass(host)
    for own in ("http://localhost:8000/", "http://127.0.0.1:8000/"):
        assert requests.utils.get_environ_proxies(own) == {}
    assert requests.Session().merge_environment_settings("https://a.test", {}, None, None, None)["verify"] == BUNDLE


def test_an_address_of_the_loopback_that_a_rule_names_is_the_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.environ", environment("127.0.0.1:8000"))
    assert not urllib.request.proxy_bypass("127.0.0.1")
    assert urllib.request.proxy_bypass("localhost")


@pytest.mark.parametrize("scheme", ["http", "https", "ws", "wss"])
def test_aiohttp_takes_the_proxy_for_web_sockets_as_well(monkeypatch: pytest.MonkeyPatch, scheme: str) -> None:
    """It reads a variable of its own for each scheme."""
    monkeypatch.setattr("os.environ", environment("api.example.org"))
    found, _ = get_env_proxy_for_url(URL(f"{scheme}://api.example.org/"))
    assert str(found).rstrip("/") == PROXY


@pytest.mark.parametrize(
    ("rule", "asks"),
    [("api.example.org", False), ("169.254.169.254", True), ("metadata.google.internal", True)],
)
def test_a_library_looks_for_the_credentials_of_a_machine_only_if_a_rule_names_them(rule: str, asks: bool) -> None:
    """Without credentials, boto3 and google-auth would ask, and the denial would be a violation that no code meant."""
    for name in ("AWS_EC2_METADATA_DISABLED", "NO_GCE_CHECK"):
        assert environment(rule).get(name) == (None if asks else "true")


def test_a_placeholder_replaces_no_variable_of_the_way_out() -> None:
    """Nor can a secret be called so in the first place."""
    rules = [HostRule.parse("api.example.org")]
    assert inside(rules, {"HTTPS_PROXY": "x"}).environment["HTTPS_PROXY"] == PROXY
    for name in set(environment("api.example.org")) - {"API_KEY"}:
        with pytest.raises(ConfigurationError, match="another meaning"):
            sources.resolve({"secrets": {name: {"env": "X", "hosts": ["api.example.org"]}}})
