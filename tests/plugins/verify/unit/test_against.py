"""Products are compared by what code finds in them: an open one meets nothing, and what one closes is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from sandbox_kernel import cli
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.verify import against
from sandbox_kernel.plugins.verify.against import CRITERIA, Comparison, Product, as_markdown, compared

CONFINED = """
import os, resource, signal, subprocess, sys, tempfile
def limit():
    resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))
import re
with tempfile.TemporaryDirectory() as folder:
    process = subprocess.Popen([sys.executable, "-"], stdin=0, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={},
                               preexec_fn=limit, cwd=folder)
    try:
        said = process.communicate(timeout=3)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[0]
sys.stdout.write(said.decode().replace(chr(27), ""))
sys.exit(abs(process.returncode))
"""
PROBES = {probe for _, probes in CRITERIA.values() for probe in probes}


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(against, "NOWHERE", "127.0.0.1")  # tests send traffic to the loopback only
    monkeypatch.setattr(against, "CALL_SECONDS", 60.0)
    monkeypatch.setattr(against, "LEFT_SECONDS", 0.3)


@pytest.mark.slow
def test_control_a_plain_interpreter_meets_no_criterion() -> None:
    [found] = compared([Product.of(f"plain={sys.executable} -")], mib=64, seconds=0.5)
    assert set(found.probes) == PROBES
    got_out = {probe for probe, (got, _) in found.probes.items() if got}
    # An exception ends an interpreter with 1; port 9 of the loopback refuses at once, as this machine itself shows.
    assert got_out == PROBES - {"told", "outside"}
    assert found.probes["outside"][0] is None
    assert {name for name in CRITERIA if found.verdict(name) == "no"} == set(CRITERIA) - {"observed"}
    assert found.verdict("observed") == "in part"


@pytest.mark.slow
def test_what_a_product_closes_is_told(tmp_path: Path) -> None:
    file = tmp_path / "confined.py"
    file.write_text(CONFINED)
    [found] = compared([Product.of(f"confined={sys.executable} {file}")], mib=512, seconds=20)
    closed = {probe for probe, (got_out, _) in found.probes.items() if got_out is False}
    assert {"secret", "memory", "time", "output-terminal", "told"} <= closed
    assert found.probes["file-read"] == (True, "it reads a file of the machine")
    assert found.verdict("observed") == "yes"


def test_a_product_that_does_not_run_is_unknown(tmp_path: Path) -> None:
    [found] = compared([Product.of("none=false {code}")], mib=64, seconds=0.5)
    assert {found.verdict(name) for name in CRITERIA} == {"unknown"}


def test_the_code_goes_into_an_argument_or_a_file() -> None:
    planted = against.Planted(64, 0.1)
    try:
        python = sys.executable
        within = f"sh -c 'test -d {{folder}}/. && exec {python} {{file}}'"  # as in --output={folder}/o
        for words in (f"{python} -c {{code}}", f"{python} {{file}}", f"{python} -", within):
            call = against._call(Product.of(f"x={words}"), planted, "again")  # noqa: SLF001
            assert set(call.said) == {"python", "left-file"}
    finally:
        planted.close()


@pytest.mark.slow
def test_nothing_is_left_of_what_was_planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    planted = against.Planted(64, 0.1)
    planted.close()
    assert not planted.folder.exists()
    assert against._process_with(planted.process, 0) is None  # noqa: SLF001
    compared([Product.of(f"x={sys.executable} -")], mib=64, seconds=0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "x", "x=", "=python3", "x=no-such-program-here {code}", "x='"])
def test_a_product_that_cannot_be_asked_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        Product.of(text)


def test_words_of_a_product_stay_in_their_cell() -> None:
    found = Comparison(Product("a|b", ("x",)), "3 <b>", {"told": (True, "| **x** \x1b[2J <script>")})
    text = as_markdown([found])
    assert "a\\|b" in text
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert "\x1b" not in text


def test_the_command_prints_both_forms(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["verify", "--against", "none=false {code}", "--format", "json"]) == 0
    [product] = json.loads(capsys.readouterr().out)["products"]
    assert (product["name"], set(product["criteria"])) == ("none", set(CRITERIA))
    assert cli.main(["verify", "--against", "none=false {code}"]) == 0
    assert "| none | unknown |" in capsys.readouterr().out
    assert cli.main(["verify", "--against", "none=false {code}", "--memory", "1G"]) == 2
