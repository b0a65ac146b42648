"""What the screen writes as SARIF is SARIF: the standard's own schema accepts it, whatever was read."""

from __future__ import annotations

import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any
from urllib.parse import unquote, unquote_to_bytes, urlsplit

import jsonschema
import orjson
import pytest

from sandbox_kernel import cli
from tests.plugins.screen.corpora import attacks
from tests.support import ROOT

SCHEMA = json.loads(
    (ROOT / "tests" / "plugins" / "screen" / "corpora" / "sarif-2.1.0-rtm.5.json").read_text(encoding="utf-8")
)
VALIDATOR = jsonschema.Draft4Validator(SCHEMA, format_checker=jsonschema.FormatChecker())
GRAVE = "import os\nos.system('rm -rf /')\n"


def notebook(*cells: str | list[str], **options: Any) -> str:
    code: list[dict[str, Any]] = [
        {"cell_type": "code", "metadata": {}, "execution_count": None, "outputs": [], "source": one} for one in cells
    ]
    return json.dumps({"cells": code, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, **options)


INPUTS: dict[str, tuple[str, str, tuple[str, ...], int]] = {
    "findings": ("grave.py", GRAVE, (), 4),
    "none": ("fine.py", "x = 1\n", (), 0),
    "nothing at all": ("empty.py", "", (), 0),
    "a syntax error": ("broken.py", f"def (\n{GRAVE}", (), 4),
    "what a comment allows": ("a.py", "import os\nos.remove(x)  # sandbox: allow file-delete — its own\n", (), 1),
    "and an operator forbids": (
        "a.py",
        "import os\nos.remove(x)  # sandbox: allow file-delete — its own\n",
        ("--screen-overrides", "forbid"),
        1,
    ),
    "a notebook": ("book.ipynb", notebook("x = 1", "from os import system as go", 'go("rm -rf /")', indent=1), (), 4),
    "a notebook on one line": ("book.ipynb", notebook(GRAVE, [GRAVE]), (), 8),
    "half a pair of surrogates": (
        "half.ipynb",
        notebook(GRAVE + "# sandbox: allow file-delete-system — \ud800"),
        (),
        4,
    ),
    "a script of a shell": ("run.sh", "curl https://a.example.test | sh\n", (), 1),
    "spaces": ("a b.py", GRAVE, (), 4),
    "other scripts": ("данные/Übung ✓.py", GRAVE, (), 4),
    "percent": ("100%41.py", GRAVE, (), 4),
    "what a URI would take for its own": ("a:b?c#d[e].py", GRAVE, (), 4),
    "a backslash": ("back\\slash.py", GRAVE, (), 4),
    "quotes and a line": ('it\'s\n"x".py', GRAVE, (), 4),
    "bytes that are no text": (os.fsdecode(b"\xff\xfe.py"), GRAVE, (), 4),
    "a name like a host": ("x/y.py", GRAVE, (), 4),
}


def sarif(capsys: pytest.CaptureFixture[str], *words: str, check: bool = True) -> dict[str, Any]:
    """Return what was printed, read by a strict reader and, if it is to be checked, accepted by the schema."""
    assert cli.main(["screen", "--format", "sarif", *words]) in (0, 1)
    document: dict[str, Any] = orjson.loads(capsys.readouterr().out)
    if check:
        VALIDATOR.validate(document)
    return document


@pytest.mark.slow
@pytest.mark.parametrize("what", INPUTS)
def test_the_standard_s_schema_accepts_it_and_each_place_is_the_file(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    name, text, words, least = INPUTS[what]
    monkeypatch.chdir(tmp_path)
    Path(name).parent.mkdir(exist_ok=True)
    Path(name).write_text(text, encoding="utf-8")
    for given, file in ((name, name), (f"./{name}", name), (f".//{name}", name), (str(tmp_path / name), None)):
        [one] = sarif(capsys, *words, given, check=given in {name, str(tmp_path / name)})["runs"]
        assert len(one["results"]) >= least
        assert bool(one["results"]) == bool(least)
        for result in one["results"]:
            parts = urlsplit(result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
            expected = ("file", str(tmp_path / name)) if file is None else ("", file)
            assert (parts.scheme, unquote_to_bytes(parts.path)) == (expected[0], os.fsencode(expected[1]))
            assert (parts.netloc, parts.query, parts.fragment) == ("", "", "")
            assert "\\" not in unquote(parts.geturl().replace("%5C", ""))


@pytest.mark.slow
def test_the_schema_accepts_what_all_attacks_and_all_rules_give(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "all.ipynb").write_text(notebook(*(snippet for _, snippet in attacks())))
    [one] = sarif(capsys, str(tmp_path / "all.ipynb"))["runs"]
    assert len(one["results"]) > 500
    assert len(one["tool"]["driver"]["rules"]) > 80
    assert len({result["partialFingerprints"]["sandboxKernelScreen/v1"] for result in one["results"]}) == len(
        one["results"]
    )


def test_control_the_schema_refuses_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is the standard's, unchanged, and formats are checked as well."""
    data = (ROOT / "tests" / "plugins" / "screen" / "corpora" / "sarif-2.1.0-rtm.5.json").read_bytes()
    assert hashlib.sha256(data).hexdigest() == "2d99159ae54a3eea97f81781cff48780548657c35949f4b7f25e99a2ba4de4f8"
    (tmp_path / "a.py").write_text(GRAVE)
    text = json.dumps(sarif(capsys, str(tmp_path / "a.py")))
    wrong = {
        '"level": "error"': '"level": "grave"',
        '"startLine": 2': '"startLine": 0',
        '"ruleIndex": 0': '"ruleIndex": -2',
        '"version": "2.1.0"': '"version": "2.0.0"',
        '"uri": "': '"uri": "a b',
        '"results": ': '"outcome": ',
        '"columnKind": "unicodeCodePoints"': '"columnKind": "bytes"',
    }
    for before, after in wrong.items():
        assert before in text
        assert not VALIDATOR.is_valid(json.loads(text.replace(before, after))), after


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        notebook(*["import os\nos.system('rm -rf /')"] * 1500),
        notebook(*[["a = 'é'\n"] * 2000] * 10).replace("\\u00e9", "\\u00E9"),
        notebook(*[[f"a = '{number}é'\n" for number in range(2000)]] * 10).replace("\\u00e9", "\\u00E9"),
        notebook("\n" * 500_000),
    ],
    ids=["many findings", "a line again and again", "lines in another spelling", "empty lines"],
)
def test_a_hostile_notebook_is_read_in_bounded_time(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of processor time; what grows with the square of a notebook takes minutes."""
    (tmp_path / "a.ipynb").write_text(text)
    start = time.process_time()
    cli.main(["screen", "--format", "sarif", str(tmp_path / "a.ipynb")])
    assert time.process_time() - start < 5
    assert orjson.loads(capsys.readouterr().out)["version"] == "2.1.0"


def test_a_line_is_found_however_the_notebook_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Escapes have several spellings, a text may stand in an output before, and a cell may be one text or a list."""
    lines = ["import os\n", "\n", "os.system('rm -rf /é')"]
    text = notebook(["x = 1"], lines, indent=1).replace("\\u00e9", "\\u00E9").replace("rm -rf /", "rm -rf \\/")
    first = text.index('"outputs"')
    text = text[:first] + f'"said": {json.dumps(lines)},\n' + text[first:]
    (tmp_path / "a.ipynb").write_text(text)
    [one] = sarif(capsys, str(tmp_path / "a.ipynb"))["runs"]
    places = {result["locations"][0]["physicalLocation"]["region"]["startLine"] for result in one["results"]}
    found = [json.loads(text.split("\n")[place - 1].strip()) for place in places]
    assert found == [lines[2]]
