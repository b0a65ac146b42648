"""The doctor's matrix, on real engines: who serves here, what stops the others, and what that leaves open."""

from __future__ import annotations

import json

import pytest

from sandbox_kernel.cli.program import main
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.doctor import matrix, walls
from tests.support.engines import IMAGE


def test_each_engine_has_a_row_and_what_stops_one_has_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--matrix", "--json", "--image", IMAGE]) == 0
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(rows) == [wall.name for wall in walls.all_walls()]
    docker = rows["Docker with runc"]
    assert (docker["serves"], docker["stopped_by"], docker["remedy"], docker["accepted"]) == (True, "", "", {})
    stopped = [row for row in rows.values() if not row["serves"]]
    assert {"Kubernetes"} <= {row["name"] for row in stopped}  # no cluster is named
    assert all(row["stopped_by"] and row["remedy"] for row in stopped)
    assert "its own kernel" in docker["not_enforced"]
    assert [row["name"] for row in rows.values() if row["chosen"]] == ["Docker with runc"]


async def test_what_an_engine_accepted_is_told_with_its_reason() -> None:
    rows = await matrix.survey(Settings(image=IMAGE, engine="docker"))
    gvisor = next(row for row in rows if row.name == "Docker with gVisor")
    if not gvisor.serves:
        pytest.skip(f"gVisor does not serve here: {gvisor.stopped_by}")
    assert gvisor.accepted["no_new_privs"].startswith("gVisor does not honour setuid files")
    text = matrix.as_text(rows, Settings(image=IMAGE, engine="docker"))
    assert "no_new_privs (gVisor does not honour setuid files" in " ".join(text.split())


async def test_an_image_that_is_missing_stops_all_engines_that_start_from_it() -> None:
    rows = await matrix.survey(Settings(image="sandbox-kernel:nobody-built-this", engine="docker"))
    docker = [row for row in rows if row.name.startswith("Docker")]
    assert not any(row.serves for row in docker)
    assert all("sandbox-kernel:nobody-built-this is not there" in row.stopped_by for row in docker[:1])
    assert all(row.remedy for row in docker)


def test_without_any_engine_none_serves(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--matrix", "--engine", f"unix://{tmp_path}/nobody.sock", "--image", "nobody:built"])
    text = capsys.readouterr().out
    assert code == 1
    assert "serves " not in text
    assert text.count("stopped by:") == len(walls.all_walls())
