"""Every door has the way out, says what it allows, and carries the codes of what was denied; without rules, nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.codes import NetworkCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.kernel.proxy import Proxy
from sandbox_kernel.plugins.batch.events import Events, classify
from sandbox_kernel.plugins.batch.report import NetworkRecord, Report, schema
from sandbox_kernel.plugins.mcp import descriptions
from sandbox_kernel.plugins.mcp.contents import figures
from sandbox_kernel.sdk.execution import Execution
from sandbox_kernel.sdk.values import NetworkDenial, NetworkUsage

RULES = ("api.example.org", "*.data.example.org")
SECRET = {"API_KEY": {"env": "A_VARIABLE_OF_MINE", "hosts": ["api.example.org"]}}


def loaded(code: str) -> set[str]:
    """Return the modules of the gateway, and of the rules, that a program has after it."""
    program = (
        f"{code}\nimport sys, json\n"
        "print(json.dumps([name for name in sys.modules if 'gateway' in name or 'policy.network' in name"
        " or name in ('h11', 'cryptography')]))"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, timeout=60, capture_output=True, text=True)
    return set(json.loads(done.stdout))


PROGRAMS = {
    "the SDK": (
        "from sandbox_kernel.sdk.client import AsyncSandbox\n"
        "from sandbox_kernel.config.sources import resolve\n"
        "AsyncSandbox(resolve({values}))"
    ),
    "a kernel process": (
        "import tempfile, pathlib, sandbox_kernel.__main__\n"
        "from sandbox_kernel.config.sources import resolve\n"
        "from sandbox_kernel.kernel import head_start, proxy\n"
        "folder = tempfile.TemporaryDirectory()\n"
        "file = pathlib.Path(folder.name, 'connection.json')\n"
        'file.write_text(\'{{"key": "k"}}\')\n'
        "settings = resolve({values} | {{'engine': 'unix:///nobody/listens'}})\n"
        "begun = head_start.head_start(str(file), settings)\n"
        "proxy.Proxy(str(file), {{'key': 'k'}}, settings, begun)\n"
        "folder.cleanup()"
    ),
}


@pytest.mark.parametrize("door", PROGRAMS)
def test_without_a_rule_nothing_of_the_gateway_is_loaded(door: str) -> None:
    """Start-up time is a feature, and so is code that is not there."""
    assert loaded(PROGRAMS[door].format(values={})) == set()


@pytest.mark.parametrize("door", PROGRAMS)
def test_control_with_a_rule_it_is_loaded_but_nothing_of_secrets(door: str) -> None:
    found = loaded(PROGRAMS[door].format(values={"network": list(RULES)}))
    assert {"sandbox_kernel.gateway.opening", "sandbox_kernel.gateway.egress", "h11"} <= found
    assert not {"sandbox_kernel.gateway.secrets", "cryptography"} & found


# --- what each says is allowed ---------------------------------------------------------------------------------------


async def test_kernel_info_has_the_rules_and_the_names_of_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_VARIABLE_OF_MINE", "sk-Ha7fVerySecretValue")
    settings = resolve({"network": list(RULES), "secrets": SECRET, "engine": "unix:///nobody/listens"})
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, settings)

    async def settled() -> None:
        pass

    monkeypatch.setattr(proxy.session, "settled", settled)
    info = await proxy._kernel_info()
    assert info["sandbox"]["network"] == list(RULES)
    assert info["sandbox"]["secrets"] == ["API_KEY"]
    assert "reaches nothing but api.example.org, *.data.example.org" in info["banner"]
    assert "sk-Ha7f" not in json.dumps(info)
    assert "A_VARIABLE_OF_MINE" not in json.dumps(info)
    await proxy.session.close()


async def test_a_kernel_whose_secret_is_not_there_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It starts no sandbox: every cell is answered with what is missing."""
    monkeypatch.delenv("A_VARIABLE_OF_MINE", raising=False)
    proxy = Proxy(str(tmp_path / "connection.json"), {"key": "k"}, resolve({"network": RULES, "secrets": SECRET}))
    assert proxy.problem is not None
    assert "A_VARIABLE_OF_MINE, which is not set" in str(proxy.problem)
    await proxy.session.close()


def test_the_sdk_says_it_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from sandbox_kernel import AsyncSandbox, Sandbox

    monkeypatch.delenv("A_VARIABLE_OF_MINE", raising=False)
    settings = resolve({"network": RULES, "secrets": SECRET})
    for door in (AsyncSandbox, Sandbox):
        with pytest.raises(ConfigurationError, match="A_VARIABLE_OF_MINE, which is not set"):
            door(settings)
    info = AsyncSandbox(resolve({"network": RULES})).info
    assert (info.network, info.secrets) == (RULES, ())
    assert AsyncSandbox(Settings()).info.network == "none"
    assert AsyncSandbox(Settings()).network_usage == NetworkUsage()


def test_a_model_is_told_what_it_can_reach() -> None:
    from sandbox_kernel.plugins.mcp.clients import ServerLimits

    nothing, some = Settings(), resolve({"network": RULES, "secrets": SECRET})
    assert "- No network: nothing can be downloaded" in descriptions.run_code(nothing, ServerLimits())
    said = descriptions.run_code(some, ServerLimits())
    assert "- Network: api.example.org, *.data.example.org, and nothing else" in said
    assert "placeholders in API_KEY" in said
    assert "A_VARIABLE_OF_MINE" not in said
    assert "that reach nothing but api.example.org" in descriptions.instructions(some, ServerLimits())


# --- what each says was denied ---------------------------------------------------------------------------------------

DENIED = {
    "code": "host-not-allowed",
    "reason": NetworkCode.HOST_NOT_ALLOWED.note(host="a.test", rule="a.test").text,
    "host": "a.test\x1b[2J",
    "port": 443,
}


def test_a_denied_host_is_an_event_of_the_report() -> None:
    event = classify("network", DENIED)
    assert event is not None
    assert (event.severity, event.code, event.what) == ("violation", NetworkCode.HOST_NOT_ALLOWED, r"a.test\x1b[2J:443")
    assert "a.test is no allowed host" in event.reason
    nameless = classify("network", {"code": "not-http", "reason": "what came is no HTTP"})
    assert nameless is not None
    assert nameless.what == "connection"


def test_what_was_let_out_is_none() -> None:
    assert classify("network", {"code": "connected", "reason": "x", "host": "a.test", "port": 443}) is None


def test_a_slow_host_is_no_limit_of_the_run() -> None:
    """The code that asked for it is told, and may do without. A file that is too large is one all the same."""
    found = Events()
    for event in (
        classify("network", {"code": "lookup-slow", "reason": "x"}),
        classify("network", {"code": "secret-tls-slow", "reason": "x"}),
        classify("file_refused", {"code": "too-large", "op": "download", "reason": "y"}),
    ):
        assert event is not None
        assert event.severity == "limit"
        found.add(event)
    limit = found.limit()
    assert limit is not None
    assert limit.code.code == "too-large"


def test_a_report_has_what_connections_came_to() -> None:
    report = Report(
        source={"name": "x.ipynb", "kind": None, "sha256": None, "parameters": {}},
        sandbox={
            "session": None,
            "engine": "docker",
            "image": "x",
            "runtime": None,
            "outputs": "safe",
            "limits": {},
            "total_seconds": None,
            "fail_on_policy": "violation",
        },
        versions=dict.fromkeys(("nbclient", "nbformat", "sandbox_python", "sandbox_ipython"))
        | {"sandbox_kernel": "1", "python": "3"},
    )
    jsonschema.validate(report.to_json(), schema())
    assert "network" not in report.to_json()
    usage = NetworkUsage(connections=3, refused={"host-not-allowed": 2}, received_bytes=10, sent_bytes=5)
    report.network = NetworkRecord(RULES, ("API_KEY",), usage)
    jsonschema.validate(report.to_json(), schema())
    assert report.to_json()["network"] == {
        "rules": list(RULES),
        "secrets": ["API_KEY"],
        "connections": 3,
        "refused": [{"code": "host-not-allowed", "count": 2}],
        "received_bytes": 10,
        "sent_bytes": 5,
    }


def test_the_figures_of_an_mcp_answer_have_what_was_denied() -> None:
    denial = NetworkDenial(code="host-not-allowed", reason="no", host="a.test", port=443)
    assert figures(Execution(denied=[denial]), "main")["denied"] == [
        {"code": "host-not-allowed", "reason": "no", "host": "a.test", "port": 443}
    ]
    assert "denied" not in figures(Execution(), "main")
    assert Execution(denied=[denial]).to_json()["denied"][0]["code"] == "host-not-allowed"
