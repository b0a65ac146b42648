"""The way out of a session is made before its sandbox, and made again by the process that takes the sandbox over."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.events import ConnectionEnded
from sandbox_kernel.core.model import Inside, Limits, Settings
from sandbox_kernel.plugins.api import SessionHandle
from sandbox_kernel.plugins.network.codes import NetworkCode
from sandbox_kernel.plugins.network.connection_reporter import NetworkDenied
from sandbox_kernel.plugins.network.session_network import BUNDLE, MAX_CERTIFICATES, PROXY, Network
from sandbox_kernel.plugins.network.settings import NetworkSettings, SecretSource
from sandbox_kernel.plugins.network.traffic_limits import Traffic
from sandbox_kernel.sdk.values import NetworkDenial
from tests.support.events import an

VALUE = "sk-proj-Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6"
KEY = SecretSource(name="API_KEY", kind="env", place="GIVEN", hosts=("api.example.test",))
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"
PRIVATE = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----"


def chosen(limits: Limits | None = None, **values: Any) -> Settings:
    return Settings(limits=limits or Limits(), of_plugins=(NetworkSettings(**values),))


def opened(settings: Settings, kept: dict[str, object] | None = None) -> Network:
    return Network(settings, kept, environment={"GIVEN": VALUE})


def trusted(inside: Inside) -> tuple[str, str]:
    """Return the file of certificates that a kernel makes at its start, and what it adds to the image's own."""
    (line,) = inside.lines
    texts = [node.value for node in ast.walk(ast.parse(line)) if isinstance(node, ast.Constant)]
    call = ast.parse(max(map(str, texts), key=len)).body[-1]
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    path, certificates = map(ast.literal_eval, call.value.args)
    return path, certificates


def test_cells_find_the_proxy_and_placeholders() -> None:
    inside = opened(chosen(network=("api.example.test",), secrets=(KEY,))).inside
    assert inside.environment["HTTPS_PROXY"] == PROXY
    path, certificates = trusted(inside)
    assert inside.environment["SSL_CERT_FILE"] == path == BUNDLE
    assert inside.environment["API_KEY"].startswith("sk-proj-")
    assert certificates.count("BEGIN CERTIFICATE") == 1
    assert VALUE not in str(inside) + certificates


def test_who_takes_a_sandbox_over_has_what_its_cells_have() -> None:
    """The container keeps its variables and its certificates, so the new process has to be what they are for."""
    settings = chosen(network=("api.example.test",), secrets=(KEY,))
    before = opened(settings)
    said = json.dumps(before.state())
    assert VALUE not in said
    after = opened(settings, json.loads(said))
    assert after.inside == before.inside
    assert opened(settings).inside != before.inside


def test_limits_are_those_of_the_settings() -> None:
    limits = Limits(network_connections=3, network_bytes=1000, network_timeout=7.0)
    network = opened(chosen(network=("api.example.test",), limits=limits))
    found = network.service(cast(SessionHandle, SimpleNamespace(emit=None, tell=None))).limits
    assert (found.connections, found.cell_bytes, found.session_bytes, found.silent_seconds) == (3, 1000, 10_000, 7.0)
    assert network.traffic == Traffic()


def test_what_is_denied_is_heard_of_with_its_cell() -> None:
    """And what was let out, or failed on its way, is not called denied."""
    heard: list[tuple[str, NetworkDenial]] = []
    network = Network(
        chosen(network=("api.example.test",)), heard=lambda cell, denied: heard.append((cell, denied)), environment={}
    )
    said: list[str] = []
    session = SimpleNamespace(emit=lambda event: said.append(event.code.code), tell=said.append)
    listener = network.service(cast(SessionHandle, session)).reporter
    listener.note(an(ConnectionEnded, code=NetworkCode.CONNECTED, cell="1", host="a.test", port=80))
    listener.note(an(ConnectionEnded, code=NetworkCode.DIAL_FAILED, cell="1", host="a.test", port=80))
    listener.note(
        an(
            ConnectionEnded,
            code=NetworkCode.HOST_NOT_ALLOWED,
            reason="b.test is none",
            cell="1",
            host="b.test",
            port=443,
        )
    )
    listener.note(an(ConnectionEnded, code=NetworkCode.NOT_HTTP, cell="2"))
    assert said == ["connected", "dial-failed", "host-not-allowed", "not-http"]
    assert [(cell, denied.code, denied.host, denied.port) for cell, denied in heard] == [
        ("1", NetworkCode.HOST_NOT_ALLOWED.code, "b.test", 443)
    ]
    assert heard[0][1].reason == "b.test is none"


def test_what_is_denied_has_a_name_and_a_remedy() -> None:
    denied = NetworkDenied(NetworkCode.HOST_NOT_ALLOWED.note(host="b.test", rule="b.test"))
    assert denied.name == "NetworkDenied"
    assert "b.test is no allowed host" in str(denied)
    assert "setting network" in str(denied)


def test_of_a_file_of_certificates_nothing_but_certificates_goes_in(tmp_path: Path) -> None:
    """A file may hold the key beside them; that is no cell's business."""
    file = tmp_path / "ours.pem"
    file.write_text(f"# ours\n{PRIVATE}\n{CERTIFICATE}\n{CERTIFICATE}\n")
    inside = opened(chosen(network=("api.example.test",), network_certificates=str(file))).inside
    assert trusted(inside) == (BUNDLE, f"{CERTIFICATE}\n{CERTIFICATE}\n")


@pytest.mark.parametrize(
    ("text", "why"),
    [(None, "cannot be read"), (PRIVATE, "holds none"), (f"{CERTIFICATE}\n" * (MAX_CERTIFICATES // 50), "too many")],
    ids=["no file", "no certificate", "too many"],
)
def test_a_file_of_certificates_that_is_none_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    file = tmp_path / "ours.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError, match=why) as caught:
        opened(chosen(network=("api.example.test",), network_certificates=str(file)))
    assert caught.value.setting == "network_certificates"
