"""Comments that allow a finding have an owner and an end, and what is wrong with one is said where it matters."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sandbox_kernel import cli
from sandbox_kernel.plugins.screen import override_report, overrides
from sandbox_kernel.plugins.screen.overrides import Needs, overrides_in
from sandbox_kernel.plugins.screen.screen import CellScreen
from tests.support import ROOT

SCHEMA = ROOT / "tests" / "plugins" / "screen" / "corpora" / "sarif-2.1.0-rtm.5.json"


@pytest.fixture(autouse=True)
def _today(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (overrides, override_report):
        monkeypatch.setattr(module, "today", lambda: date(2027, 1, 15))


def _found(comment: str, needs: Needs = "off") -> Any:
    [finding] = CellScreen(needs=needs).look(f"import os\nos.remove(name)  # sandbox: {comment}").findings
    return finding


IN_FORCE = {
    "a reason alone": "allow file-delete — its own",
    "an owner": "allow file-delete by=anna — its own",
    "an end": "allow file-delete until=2027-01-15 -- its own",
    "both": "allow file-delete, file-link  until=2030-12-31 by=anna@example.org - its own",
}


@pytest.mark.parametrize("comment", IN_FORCE.values(), ids=IN_FORCE)
def test_a_comment_allows_until_its_end(comment: str) -> None:
    finding = _found(comment)
    assert (finding.allowed, finding.override) == ("its own", None)
    assert finding.by in {None, "anna", "anna@example.org"}
    assert ("by=" in comment, "until=" in comment) == (finding.by is not None, finding.until is not None)


WITHOUT = {
    "it is over": ("allow file-delete by=anna until=2027-01-14 — its own", "it ended on 2027-01-14"),
    "no reason": ("allow file-delete", "it gives no reason behind a dash"),
    "a dash for a reason": ("allow file-delete — — its own", "it gives no reason"),
    "an empty owner": ("allow file-delete by= — its own", "'by=' does not name an owner"),
    "an owner with a space": ("allow file-delete by=anna smith — its own", "'smith' is not one by=NAME"),
    "two owners": ("allow file-delete by=anna by=ben — its own", "'by=ben' is not one by=NAME"),
    "no date": ("allow file-delete until=tomorrow — its own", "'until=tomorrow' is not a date"),
    "no day of that month": ("allow file-delete until=2027-02-30 — its own", "is not a date"),
    "another form of a date": ("allow file-delete until=20270230 — its own", "is not a date"),
    "another word": ("allow file-delete untill=2028-01-01 — its own", "'untill=2028-01-01' is not one by=NAME"),
    "no code": ("allow — its own", "does not have the form"),
    "a code that is none": ("allow File_Delete — its own", "does not have the form"),
    "signs of a terminal": ("allow file-delete by=\x1b[2J — its own", "'by=\\x1b[2J'"),
}


@pytest.mark.parametrize(("comment", "why"), WITHOUT.values(), ids=WITHOUT)
def test_one_without_effect_is_named_in_the_finding(comment: str, why: str) -> None:
    finding = _found(comment)
    assert finding.allowed is None
    assert why in finding.override
    assert finding.sentence().isprintable()
    assert finding.sentence().endswith(f"; its override has no effect: {finding.override}")
    assert finding.to_json()["override"] == finding.override


@pytest.mark.parametrize(
    ("needs", "allows"),
    [("off", 4), ("owner", 2), ("end", 2), ("owner-and-end", 1)],
)
def test_a_setting_demands_an_owner_or_an_end(needs: Needs, allows: int) -> None:
    found = [_found(comment, needs) for comment in IN_FORCE.values()]
    assert sum(one.allowed is not None for one in found) == allows
    assert all("screen_override_needs" in one.override for one in found if one.allowed is None)


def test_the_last_one_that_is_in_force_counts() -> None:
    over = "# sandbox: allow file-delete until=2020-01-01 — long ago"
    two = "# sandbox: allow file-delete — one\n# sandbox: allow file-delete by=anna — two"
    code = f"{over}\n{two}\n{over}\nimport os\nos.remove(x)"
    [finding] = CellScreen().look(code).findings
    assert (finding.allowed, finding.by, finding.override) == ("two", "anna", None)


def test_another_comment_is_none() -> None:
    assert overrides_in("# sandbox: allow-list of hosts\n# sandbox allow x\n# sandbox: allowed x — y") == []


def test_a_cell_of_comments_alone_is_read_in_time() -> None:
    found = overrides_in("# sandbox: allow a, b by=x — y\n" * 20_000)
    assert [found[0].line, found[-1].line] == [1, 20_000]
    assert overrides_in("# sandbox: allow" + " " * 100_000 + "a" + ",a " * 100_000)[0].fault


FILE = """import os
os.remove(a)  # sandbox: allow file-delete by=anna until=2027-12-31 — its own
os.remove(b)  # sandbox: allow process-shell until=2027-01-01 — it was needed
x = 1  # sandbox: allow
y = 1  # sandbox: allow no-such-rule — a rule of old
"""


def _printed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = cli.main(["screen", "--overrides", *words])
    return code, capsys.readouterr().out


def test_all_are_listed_with_place_rule_reason_owner_and_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.py").write_text(FILE, encoding="utf-8")
    cells = [{"cell_type": "code", "metadata": {}, "source": one} for one in ("1", FILE.split("\n", 2)[1])]
    (tmp_path / "b.ipynb").write_text(json.dumps({"cells": cells}, indent=1), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    code, text = _printed(capsys, "a.py", "b.ipynb")
    assert (code, text.splitlines()) == (
        0,
        [
            "a.py:2: file-delete: in force, by anna, until 2027-12-31: its own",
            "a.py:3: process-shell: over, until 2027-01-01: it was needed; nothing is found here",
            "a.py:4: override: without effect ('' does not have the form CODE, CODE by=NAME until=DATE -- REASON)"
            "; nothing is found here",
            "a.py:5: no-such-rule: without effect (no rule has this code): a rule of old; nothing is found here",
            "b.ipynb:11: cell 2, file-delete: in force, by anna, until 2027-12-31: its own",
            "2 in force, 1 over, 2 without effect",
        ],
    )
    code, text = _printed(capsys, "--strict", "--format", "json", "a.py", "b.ipynb")
    first, second = json.loads(text)["files"]
    assert (code, first["file"], [one["state"] for one in first["overrides"]]) == (
        1,
        "a.py",
        ["in-force", "over", "refused", "refused"],
    )
    assert second["overrides"] == [
        {
            "cell": 2,
            "file_line": 11,
            "code": "file-delete",
            "state": "in-force",
            "fault": "",
            "is_needed": True,
            "reason": "its own",
            "by": "anna",
            "until": "2027-12-31",
        }
    ]
    code, text = _printed(capsys, "--format", "sarif", "a.py")
    document = json.loads(text)
    jsonschema.Draft4Validator(json.loads(SCHEMA.read_text(encoding="utf-8"))).validate(document)
    [run] = document["runs"]
    assert [(one["ruleId"], one["level"], "suppressions" in one) for one in run["results"]] == [
        ("file-delete", "note", True),
        ("process-shell", "warning", False),
        ("override", "warning", False),
        ("no-such-rule", "warning", False),
    ]
    assert run["results"][0]["properties"] == {"owner": "anna", "until": "2027-12-31", "state": "in-force"}


def test_the_settings_decide_what_is_in_force(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.py"
    file.write_text("".join(FILE.splitlines(keepends=True)[:2]), encoding="utf-8")
    assert _printed(capsys, "--strict", str(file))[0] == 0
    assert _printed(capsys, "--strict", "--screen-override-needs", "owner-and-end", str(file))[0] == 0
    code, text = _printed(capsys, "--strict", "--screen-overrides", "forbid", str(file))
    assert (code, "screen_overrides forbids all" in text) == (1, True)
    file.write_text("import os\nos.remove(a)  # sandbox: allow file-delete — its own\n", encoding="utf-8")
    code, text = _printed(capsys, "--strict", "--screen-override-needs", "end", str(file))
    assert (code, "(until=YYYY-MM-DD)" in text) == (1, True)
    assert cli.main(["screen", "--screen-override-needs", "end", "--screen-threshold", "20", str(file)]) == 1
    assert "its override has no effect: it has no end" in capsys.readouterr().out


def test_it_is_no_hook() -> None:
    assert cli.main(["screen", "--hook", "--overrides"]) == 2
