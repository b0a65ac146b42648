"""The gate: only a receipt that is signed, young, harmless, of this commit and without unknown overrides passes."""

from __future__ import annotations

import hashlib
import json
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import cli
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.record import gate, receipt
from sandbox_kernel.plugins.record.keys import RecordKey, open_key

CODE = b"print(1)\n"
FINDING = {"code": "process-shell", "allowed": "the revision", "by": "anna@example.org", "until": "2999-01-01"}


class Place:
    """A repository with one commit, a policy and a receipt of a run of its file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.key: RecordKey = open_key(str(folder / "key"))
        self.rules: dict[str, Any] = {"public_keys": [self.key.public], "max_age": "1h", "max_score": 40}
        ended = datetime.now(UTC).isoformat()
        self.said: dict[str, Any] = {
            "ended": ended,
            "exit": {"code": 0, "kind": "fine"},
            "source": {"name": "a.py", "sha256": hashlib.sha256(CODE).hexdigest()},
            "sandbox": {"screen": "warn"},
            "behaviour": {"risk_score": 40},
            "cells": [{"number": 1, "findings": [{"code": "file-delete", "allowed": None}]}],
        }
        (folder / "a.py").write_bytes(CODE)
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for words in (["init", "-q"], ["add", "a.py"], ["commit", "-q", "-m", "one"]):
            subprocess.run([*git, *words], check=True)

    def decide(self, *words: str, commit: str | None = "HEAD") -> int:
        policy, file = self.folder / "gate.toml", self.folder / "receipt.json"
        # A value of JSON is one of TOML as well, for all that a policy has.
        policy.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in self.rules.items()))
        file.write_text(receipt.make([], self.said, self.key))
        of_commit = [] if commit is None else ["--commit", commit, "--repository", str(self.folder)]
        return cli.main(["gate", "--receipt", str(file), "--policy", str(policy), *of_commit, *words])


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_control_what_the_policy_wants_passes(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    assert place.decide() == 0
    assert capsys.readouterr().out.endswith("it passes\n")


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("exit", "code"), 1, "run-not-fine"),
        (("exit", "code"), False, "run-not-fine"),
        (("exit",), None, "run-not-fine"),
        (("behaviour", "risk_score"), 41, "run-too-risky"),
        (("behaviour", "risk_score"), None, "run-too-risky"),
        (("behaviour", "risk_score"), True, "run-too-risky"),
        (("sandbox", "screen"), "off", "run-not-screened"),
        (("sandbox",), {}, "run-not-screened"),
        (("ended",), timedelta(hours=-2), "run-too-old"),
        (("ended",), timedelta(hours=1), "run-too-old"),
        (("ended",), "never", "run-too-old"),
        (("source", "sha256"), hashlib.sha256(b"print(2)\n").hexdigest(), "run-of-other-code"),
        (("source", "name"), "b.py", "run-of-other-code"),
        (("cells",), [{"number": 1, "findings": [FINDING]}], "run-overridden"),
    ],
)
def test_what_the_policy_does_not_take_is_refused_with_its_code(
    place: Place, capsys: pytest.CaptureFixture[str], path: tuple[str, ...], value: object, code: str
) -> None:
    at = place.said
    for name in path[:-1]:
        at = at[name]
    at[path[-1]] = (datetime.now(UTC) + value).isoformat() if isinstance(value, timedelta) else value
    assert place.decide("--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert (said["passes"], [one["code"] for one in said["findings"]]) == (False, [code])


@pytest.mark.parametrize(
    ("wants", "more", "why"),
    [
        ("any", {"by": None, "until": None}, ""),
        ("owner", {"by": None}, "it has no owner"),
        ("owner", {"until": None}, ""),
        ("end", {"until": None}, "it has no end"),
        ("owner-and-end", {}, ""),
        ("owner-and-end", {"until": "2020-01-01"}, "it ended on 2020-01-01"),
        ("owner-and-end", {"by": "eve@example.org"}, "its owner is not one of override_owners"),
    ],
)
def test_an_override_needs_what_the_policy_says(
    place: Place, capsys: pytest.CaptureFixture[str], wants: str, more: dict[str, Any], why: str
) -> None:
    place.rules |= {"overrides": wants}
    if wants == "owner-and-end":
        place.rules |= {"override_owners": ["anna@example.org"]}
    place.said["cells"] = [{"number": 3, "findings": [FINDING | more]}]
    assert place.decide() == (1 if why else 0)
    said = capsys.readouterr().out
    assert why in said
    assert "override  cell 3: process-shell, by " in said


def test_a_receipt_of_another_key_proves_nothing(place: Place, tmp_path: Path) -> None:
    place.rules["public_keys"] = [open_key(str(tmp_path / "other")).public]
    assert place.decide() == 3
    place.rules["public_keys"].append(place.key.public)
    assert place.decide() == 0


def test_a_receipt_that_was_changed_proves_nothing(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.decide()
    file, policy = place.folder / "receipt.json", place.folder / "gate.toml"
    envelope = json.loads(file.read_text())
    envelope["payload"] = json.loads(receipt.make([], place.said | {"ended": "x"}, place.key))["payload"]
    file.write_text(json.dumps(envelope))
    words = ["gate", "--receipt", str(file), "--policy", str(policy), "--commit", "HEAD"]
    assert cli.main(words) == 3
    file.write_text("{}")
    assert cli.main(words) == 3
    assert "[receipt-malformed]" in capsys.readouterr().out


def test_a_policy_that_wants_no_commit_says_so(place: Place) -> None:
    assert place.decide(commit=None) == 2
    place.rules["commit"] = False
    assert place.decide(commit=None) == 0
    assert place.decide(commit="0" * 40) == 1  # one that is named is held to
    assert place.decide("--commit=--help", commit=None) == 2


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"max_scores": 1}, "it has 'max_scores'"),
        ({"max_score": None}, "it does not say max_score"),
        ({"max_score": True}, "max_score is not a whole number"),
        ({"max_score": 101}, "max_score is not a whole number"),
        ({"public_keys": []}, "public_keys is no list of keys"),
        ({"public_keys": ["x"]}, "public_keys is no list of keys"),
        ({"overrides": "some"}, "overrides is one of none"),
        ({"commit": "no"}, "commit is not true or false"),
        ({"max_age": "soon"}, "max_age is not a time"),
    ],
)
def test_a_policy_that_is_wrong_is_refused(change: dict[str, Any], why: str) -> None:
    rules = {"public_keys": ["0" * 64], "max_age": "1h", "max_score": 40} | change
    text = "".join(f"{name} = {json.dumps(value)}\n" for name, value in rules.items() if value is not None)
    with pytest.raises((ValueError, ConfigurationError), match=why):
        gate.policy_of(text)


def test_a_policy_that_nests_too_deep_is_refused() -> None:
    with pytest.raises(ValueError, match="nests too deep"):
        gate.policy_of("a = " + "[" * 20_000)


def test_texts_of_a_receipt_are_printed_safe(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    place.said["source"]["name"] = "\x1b[2Ja.py\n::error::x"
    place.said["cells"] = [{"number": "\x1b", "findings": [FINDING | {"allowed": "\x1b]0;x\x07\n::warning::y"}]}]
    assert place.decide("--source", "a.py") == 1
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert "\n::" not in said
