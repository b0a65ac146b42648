"""Which wall for whom: the page is made of the table, and what is not here is not said to be."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.plugins.doctor import walls
from tests.support import ROOT


def table(rows: Iterable[tuple[str, Iterable[object]]]) -> str:
    """Return a table of the page: a column for each wall."""
    names = [wall.name for wall in walls.all_walls()]
    lines = ["| | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    return "\n".join([*lines, *(f"| {title} | " + " | ".join(map(str, cells)) + " |" for title, cells in rows)])


def of_enforced() -> Iterator[tuple[str, Iterable[object]]]:
    """Yield the rows of what is enforced; a cell with the words of its left neighbour only says so."""
    columns = [walls.enforced(wall) for wall in walls.all_walls()]
    for code, name in walls.ENFORCED.items():
        cells = [column[code] for column in columns]
        pairs = zip([None, *cells], cells, strict=False)
        yield name, ["the same" if cell.words and cell == left else cell for left, cell in pairs]


def test_the_page_has_the_table() -> None:
    rows = [(title, [getattr(wall, field) for wall in walls.all_walls()]) for title, field in walls.FIELDS]
    assert table(rows) in (ROOT / "docs" / "isolation.md").read_text(encoding="utf-8")


def test_the_page_has_the_table_of_what_is_enforced() -> None:
    assert table(of_enforced()) in (ROOT / "docs" / "isolation.md").read_text(encoding="utf-8")


def test_each_wall_has_a_word_for_each_row() -> None:
    text = walls.as_text([walls.SeenWall(wall, True, "") for wall in walls.all_walls()])
    assert all(name[1:].split()[0] in text for name in walls.ENFORCED.values())
    for wall in walls.all_walls():
        assert wall.enforces.keys() <= walls.ENFORCED.keys()
        assert all(cell.words for cell in wall.enforces.values() if cell.holds == "partly"), wall.name


@pytest.mark.slow
def test_a_wall_without_its_engine_is_not_here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--walls", "--json", "--engine", f"unix://{tmp_path}/nobody.sock"])
    seen = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in seen] == [wall.name for wall in walls.all_walls()]
    assert [one["here"] for one in seen if one["engine"] == "docker"] == [False, False]
    assert all(one["found"] for one in seen)
    assert seen[1]["enforced"]["kernel"] == {"holds": "yes", "words": ""}


def test_the_settings_of_each_wall_are_settings() -> None:
    from sandbox_kernel.config.table import SETTINGS

    for wall in walls.all_walls():
        named = dict(part.split(" = ") for part in wall.settings.split(", "))
        assert named.keys() <= SETTINGS.keys()
        assert named["engine"] == wall.engine
        assert named.get("runtime", "") == wall.runtime
