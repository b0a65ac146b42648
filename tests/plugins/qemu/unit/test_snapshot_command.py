"""`sandbox-kernel snapshots`, and what `reap` does about them."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from sandbox_kernel import cli
from sandbox_kernel.cli import subcommands
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.doctor.doctor import DoctorCheck, inventory_rows
from sandbox_kernel.plugins.qemu.snapshots import store as store_module
from sandbox_kernel.plugins.qemu.snapshots.store import Store


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setattr(store_module, "usual_folder", lambda: str(tmp_path / "snapshots"))
    store = Store(1 << 30, 1000.0)
    for name in ("one", "two"):
        with store.begin(name, 1 << 20) as draft:
            os.write(draft.content, name.encode() * 1000)
            draft.commit({"spec": {"image": "mine\x1b[2J", "engine": "qemu"}})
    return store


def test_they_are_listed_for_people_and_for_programs(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["snapshots"]) == 0
    said = capsys.readouterr().out
    assert "NAME" in said
    assert "two" in said
    assert "\x1b" not in said, "what a snapshot says of itself is shown as text"
    assert cli.main(["snapshots", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {(row["name"], row["bytes"], row["engine"]) for row in rows} == {
        ("one", 3000, "qemu"),
        ("two", 3000, "qemu"),
    }


def test_one_is_deleted_and_one_that_is_not_there_is_an_error(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["snapshots", "delete", "one"]) == 0
    assert [one.name for one in store.list()] == ["two"]
    assert cli.main(["snapshots", "delete", "one"]) == 1
    assert "there is no snapshot 'one'" in capsys.readouterr().err
    assert cli.main(["snapshots", "delete", "../two"]) == 1


@pytest.mark.usefixtures("store")
def test_what_is_older_than_the_setting_is_gone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    assert cli.main(["snapshots", "--snapshots-age=200"]) == 0
    assert "one" in capsys.readouterr().out
    assert cli.main(["snapshots", "--snapshots-age=50"]) == 0
    assert capsys.readouterr().out == "there is no snapshot\n"


def test_the_doctor_says_how_many_there_are_and_what_is_wrong_with_their_folder(store: Store) -> None:
    def rows() -> list[DoctorCheck]:
        return [row for row in inventory_rows(Settings()) if row.name == "snapshots"]  # others have rows, too

    (row,) = rows()
    assert (row.name, row.status, row.found.partition(",")[0]) == ("snapshots", "ok", "2")
    for name in ("one", "two"):
        store.delete(name)
    assert rows() == []
    real = Path(store.path).rename(Path(store.path).with_name("elsewhere"))
    Path(store.path).symlink_to(real)
    (row,) = rows()
    assert row.status == "wrong"
    assert row.remedy


@pytest.mark.usefixtures("store")
def test_reap_removes_what_is_too_old(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subcommands, "engine_call", lambda options, name: 0)
    assert cli.main(["reap"]) == 0
    assert capsys.readouterr().out == "nothing to remove\n"
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + 100)
    assert cli.main(["reap", "--snapshots-age=50"]) == 0
    assert capsys.readouterr().out == "removed 2 snapshots\n"


@pytest.mark.parametrize("words", [["delete"], ["list", "one"]])
def test_what_is_to_be_deleted_has_a_name(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["snapshots", *words]) == 2
    assert "NAME" in capsys.readouterr().err
