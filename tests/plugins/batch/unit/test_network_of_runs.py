"""What a batch run says of its network: what was denied, in its events and its report."""

from __future__ import annotations

import jsonschema

from sandbox_kernel.cli.program import parse
from sandbox_kernel.core.codes import FileCode
from sandbox_kernel.core.events import ConnectionEnded, FileNotTransferred
from sandbox_kernel.plugins.batch.command import _settings
from sandbox_kernel.plugins.batch.policy_events import Events, classify
from sandbox_kernel.plugins.batch.run_report import NetworkRecord, RunReport, schema
from sandbox_kernel.plugins.network.codes import NetworkCode, SecretCode
from sandbox_kernel.plugins.network.settings import NetworkSettings, SecretSource
from sandbox_kernel.sdk.values import NetworkUsage
from tests.support.events import an

RULES = ("api.example.org", "*.data.example.org")
DENIED = an(
    ConnectionEnded,
    code=NetworkCode.HOST_NOT_ALLOWED,
    reason=NetworkCode.HOST_NOT_ALLOWED.note(host="a.test", rule="a.test").text,
    host="a.test\x1b[2J",
    port=443,
)


def test_a_denied_host_is_an_event_of_the_report() -> None:
    event = classify(DENIED)
    assert event is not None
    assert (event.severity, event.code, event.what) == ("violation", NetworkCode.HOST_NOT_ALLOWED, r"a.test\x1b[2J:443")
    assert "a.test is no allowed host" in event.reason
    nameless = classify(an(ConnectionEnded, code=NetworkCode.NOT_HTTP))
    assert nameless is not None
    assert nameless.what == "connection"


def test_what_was_let_out_is_none() -> None:
    assert classify(an(ConnectionEnded, code=NetworkCode.CONNECTED, host="a.test", port=443)) is None


def test_a_slow_host_is_no_limit_of_the_run() -> None:
    """The code that asked for it is told, and may do without. A file that is too large is one all the same."""
    found = Events()
    for event in (
        classify(an(ConnectionEnded, code=NetworkCode.LOOKUP_SLOW)),
        classify(an(ConnectionEnded, code=SecretCode.SECRET_TLS_SLOW)),
        classify(an(FileNotTransferred, code=FileCode.TOO_LARGE, op="download")),
    ):
        assert event is not None
        assert event.severity == "limit"
        found.add(event)
    limit = found.limit()
    assert limit is not None
    assert limit.code.code == "too-large"


def test_a_report_has_what_connections_came_to() -> None:
    report = RunReport(
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


def test_the_command_line_of_run_takes_flags_that_add_up() -> None:
    token = SecretSource(name="API_KEY", kind="env", place="TOKEN_OF_MINE", hosts=("api.example.org",))
    argv = ["run", "x.ipynb", "--network", "a.test", "--network", "api.example.org"]
    settings, _ = _settings(parse([*argv, "--secret", "API_KEY=env:TOKEN_OF_MINE@api.example.org"]))
    assert settings.of(NetworkSettings) == NetworkSettings(network=("a.test", "api.example.org"), secrets=(token,))
