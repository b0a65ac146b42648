"""The page for large data: its examples run, one after another, also on a folder that is larger than memory."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.data import generate
from sandbox_kernel import Sandbox
from sandbox_kernel.core.codes import HintCode
from sandbox_kernel.engines import volumes
from tests.support.pages import snippets

MIB = 1 << 20
PAGE = "docs/large-data.md"

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a disk for scratch is root's to make")


def test_every_example_of_the_page_runs(tmp_path: Path) -> None:
    examples_run(tmp_path, 60 * 10**6, memory="512M")


@pytest.mark.long
def test_every_example_runs_on_more_than_memory(tmp_path: Path) -> None:
    examples_run(tmp_path, 3 * 10**9, memory="1536M")


def examples_run(tmp_path: Path, size: int, *, memory: str) -> None:
    folder = tmp_path / "sales"
    folder.mkdir()
    assert generate(folder, size) >= size
    first, *others = (one for one in snippets(PAGE) if "volumes" not in one)
    assert "/srv/sales" in first
    assert len(others) == 4
    names: dict[str, Any] = {}
    made: list[Any] = []

    class Kept(Sandbox):
        """One that says what its cells came to."""

        def __init__(self, **keywords: Any) -> None:
            super().__init__(image="sandbox-kernel:data", memory=memory, cell_timeout=600, **keywords)

        def run_code(self, *arguments: Any, **keywords: Any) -> Any:
            made.append(super().run_code(*arguments, **keywords))
            return made[-1]

    source = first.replace("/srv/sales", str(folder)).replace('"50G"', '"4G"')
    exec(source.replace("from sandbox_kernel import Sandbox", ""), names | {"Sandbox": Kept}, names)  # noqa: S102
    for snippet in others:
        exec(snippet, names)  # noqa: S102 (our own page)
    assert [one.error for one in made] == [None] * 5
    assert all("region" in str(one.text) for one in (made[0], made[1], made[4]))


def test_the_example_with_a_volume_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(volumes, "default_folder", lambda: str(tmp_path / "volumes"))
    (snippet,) = (one for one in snippets(PAGE) if "volumes" in one)
    exec(snippet, {"Sandbox": partial(Sandbox, image="sandbox-kernel:base", engine="docker")})  # noqa: S102
    (volume,) = volumes.of_user().list()
    assert (volume.name, volume.size_bytes) == ("models", volumes.DEFAULT_BYTES)


@pytest.mark.parametrize("code", [HintCode.STORAGE_FULL, HintCode.MEMORY_SHORT], ids=str)
def test_what_is_too_small_names_the_page(code: HintCode) -> None:
    assert PAGE in code.text
