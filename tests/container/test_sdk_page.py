"""The page for chat back ends: every snippet runs, one after another, as a reader would type them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.kernels import containers_of
from tests.support.pages import run, snippets


async def test_every_snippet_of_the_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    first, *others, snapshots, checkpoints = snippets("docs/sdk.md")
    assert "sandbox.snapshot(" in snapshots  # which QEMU has: tests/plugins/qemu/container/test_snapshots.py
    assert "sandbox.checkpoint(" in checkpoints  # which wasm has: tests/plugins/wasm/container/test_checkpoints.py
    await asyncio.to_thread(exec, first, names)
    assert len(others) >= 6
    for snippet in others:
        await run(names, snippet, "docs/sdk.md")
    printed = capsys.readouterr().out
    assert "<table" in printed
    assert "ZeroDivisionError: division by zero" in printed
    assert "1 s" in printed
    assert [line for line in printed.splitlines() if line.startswith("so far:")] == [f"so far: {i}" for i in range(3)]
    assert (tmp_path / "copy.bin").read_bytes() == bytes(10)
    assert not await asyncio.to_thread(containers_of, os.getpid())


def test_the_snippet_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (snippet,) = [one for one in snippets("README.md") if "import Sandbox" in one]
    exec(snippet, {})  # noqa: S102 (our own page)
    assert "north" in capsys.readouterr().out
    assert Path("chart.png").read_bytes().startswith(b"\x89PNG")
    assert not containers_of(os.getpid())
