"""Answers of earlier runs: what is the same, what is never answered, and what becomes of damage."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from sandbox_kernel.config.sources import resolve
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Settings
from sandbox_kernel.engines.inspectable import ImageInfo
from sandbox_kernel.files.file_rules import FileLimits
from sandbox_kernel.files.host_paths import open_folder
from sandbox_kernel.plugins.batch import answers, input_files, source_notebook
from sandbox_kernel.plugins.batch.answers import Answers, give, key, rows_of, unsteady, why_not
from sandbox_kernel.plugins.batch.exit_codes import FINE
from sandbox_kernel.plugins.batch.run import RunPlan
from sandbox_kernel.plugins.batch.run_report import OutputFile, RunReport, schema

IMAGE = ImageInfo(size_bytes=1, made="2026-01-01", contents="sha256:1", identity="sha256:2")
Made = Callable[..., RunPlan]


@pytest.fixture
def plan(tmp_path: Path) -> Made:
    """Make the plan of a run of some code."""

    def made(code: str = "print(1)", *, settings: Settings | None = None, **more: Any) -> RunPlan:
        inputs = input_files.plan(more.pop("inputs", ()), FileLimits.of(Settings().limits))
        return RunPlan(
            source=source_notebook.read("a.py", code.encode()),
            settings=settings or Settings(engine="docker"),
            inputs=inputs,
            notebook=OutputFile(tmp_path / "out.ipynb"),
            files=open_folder(tmp_path / "files", make=True),
            **more,
        )

    return made


def key_of(plan: RunPlan, image: ImageInfo = IMAGE) -> str:
    return key(plan, image, rows_of(plan))


def test_the_same_has_the_same_key_and_whatever_differs_has_another(plan: Made, tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("1")
    same = {key_of(plan(inputs=[str(data)])) for _ in range(2)}
    assert len(same) == 1
    docker = Settings(engine="docker")
    others = [
        key_of(plan("print(2)", inputs=[str(data)])),
        key_of(plan()),
        key_of(plan(inputs=[str(data)]), replace(IMAGE, identity="sha256:3")),
        key_of(plan(inputs=[str(data)], settings=replace(docker, runtime="runsc"))),
        key_of(plan(inputs=[str(data)], settings=replace(docker, outputs="strict"))),
        key_of(plan(inputs=[str(data)], settings=replace(docker, limits=replace(docker.limits, pids=64)))),
        key_of(plan(inputs=[str(data)], allow_errors=True)),
        key_of(plan(inputs=[str(data)], install=("x",))),
    ]
    data.write_text("2")
    others.append(key_of(plan(inputs=[str(data)])))
    assert len({*same, *others}) == 1 + len(others)


@pytest.mark.parametrize(
    "code",
    [
        "import random",
        "from random import random",
        "import numpy as np; np.random.rand(3)",
        "from datetime import datetime; datetime.now()",
        "import os; os.urandom(3)",
        "import time",
        "exec('x = 1')",
        "__import__('x')",
        "!date",
        "%run other.py",
        "import subprocess as s",
    ],
)
def test_code_that_may_answer_otherwise_the_next_time_is_known(code: str, plan: Made) -> None:
    assert unsteady(plan(code)) is not None


@pytest.mark.parametrize(
    "code",
    ["print(6 * 7)", "import pandas as pd\npd.read_csv('a.csv').groupby('date').sum()", "from datetime import date"],
)
def test_honest_computing_may_be_answered(code: str, plan: Made) -> None:
    assert unsteady(plan(code)) is None
    assert why_not(plan(code), signed=False) is None


def test_what_can_connect_or_leaves_a_record_is_never_answered(plan: Made, tmp_path: Path) -> None:
    for values in ({"network": "api.example.org"}, {"audit": str(tmp_path / "a.jsonl")}, {"uploads": str(tmp_path)}):
        assert why_not(plan(settings=resolve(values)), signed=False) is not None
    assert why_not(plan(), signed=True) is not None


@pytest.fixture
def kept(plan: Made, tmp_path: Path) -> tuple[Answers, RunPlan, str]:
    """An answer in a folder of its own, with a file below a folder."""
    one = plan()
    Path(one.files.path, "sub").mkdir()
    Path(one.files.path, "sub", "b.txt").write_text("yes")
    report = RunReport(
        source={"name": "a.py", "kind": "script", "sha256": "0" * 64, "parameters": {}}, sandbox={}, versions={}
    )
    report.files = input_files.produced(one.files, ["sub/b.txt"])
    report.end = FINE
    store = Answers(tmp_path / "cache")
    name = key_of(one)
    assert store.keep(name, report, '{"cells": []}', one.files) is None
    Path(one.files.path, "sub", "b.txt").unlink()
    return store, one, name


def test_an_answer_comes_back_as_it_was_and_says_so(kept: tuple[Answers, RunPlan, str]) -> None:
    store, one, name = kept
    answer, damage = store.find(name)
    assert answer is not None
    assert damage is None
    report = RunReport(source={}, sandbox={}, versions={})
    give(answer, one, report)
    assert Path(one.files.path, "sub", "b.txt").read_text() == "yes"
    said = report.to_json()
    assert said["cached"]["first_run"] == answer.report["started"]
    assert said["exit"]["code"] == 0
    jsonschema.validate(said["cached"], schema()["properties"]["cached"])


def test_what_is_not_there_is_no_damage(kept: tuple[Answers, RunPlan, str]) -> None:
    assert kept[0].find("0" * 64) == (None, None)


@pytest.mark.parametrize("change", ["a byte", "the end", "another's", "nothing left"])
def test_a_damaged_answer_is_not_taken(change: str, kept: tuple[Answers, RunPlan, str], tmp_path: Path) -> None:
    store, _, name = kept
    path = tmp_path / "cache" / name
    data = path.read_bytes()
    changed = {"a byte": data[:-30] + b"?" + data[-29:], "the end": data[:-1], "another's": data, "nothing left": b""}
    asked_for = "f" * 64 if change == "another's" else name
    (tmp_path / "cache" / asked_for).write_bytes(changed[change])
    answer, damage = store.find(asked_for)
    assert answer is None
    assert damage == "its digest is another one"


def test_the_folder_is_closed_to_others_and_nobody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cache").mkdir(mode=0o755)
    Answers(tmp_path / "cache")
    assert stat.S_IMODE((tmp_path / "cache").stat().st_mode) == 0o700
    uid = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: uid + 1)
    with pytest.raises(ConfigurationError, match="another user"):
        Answers(tmp_path / "cache")


def test_the_oldest_answers_make_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
    store, one, name = kept
    os.utime(tmp_path / "cache" / name, (1, 1))
    monkeypatch.setattr(answers, "MAX_ENTRIES", 2)
    report = RunReport(source={}, sandbox={}, versions={})
    for other in ("1" * 64, "2" * 64):
        store.keep(other, report, "{}", one.files)
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == ["1" * 64, "2" * 64]


def test_what_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch, kept: Any) -> None:
    store, one, _ = kept
    monkeypatch.setattr(answers, "MAX_ENTRY", 1 << 10)
    reason = store.keep("1" * 64, RunReport(source={}, sandbox={}, versions={}), "x" * 2000, one.files)
    assert "larger" in str(reason)
    assert store.find("1" * 64) == (None, None)
