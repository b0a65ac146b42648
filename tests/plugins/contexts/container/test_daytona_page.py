"""The example of docs/chat.md, as a reader would run it, and the names of ours that its table has."""

from __future__ import annotations

import re
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.commands import blocking_commands
from sandbox_kernel.sdk import blocking
from tests.support import ROOT
from tests.support.pages import snippets

PAGE = "docs/chat.md"


def test_the_example(capsys: pytest.CaptureFixture[str]) -> None:
    (source,) = snippets(PAGE)
    names: dict[str, Any] = {}
    exec(compile(source, PAGE, "exec"), names)  # noqa: S102 (our own page)
    assert capsys.readouterr().out.splitlines() == ["north", " None", "0 3", "", "['sales.csv']", "2"]
    assert names["content"] == b"region,sales\nnorth,3\nsouth,5\n"


def test_what_the_table_names_of_ours_is_there() -> None:
    rows = re.findall(r"^\| `.*?\| (.*?) \|", (ROOT / PAGE).read_text(encoding="utf-8"), re.MULTILINE)
    parts = {
        "files": blocking.Files,
        "commands": blocking_commands.Commands,
        "pty": blocking_commands.Pty,
        "sandbox": Sandbox,
        "Sandbox": Sandbox,
    }
    named = [found for row in rows for found in re.findall(r"\b(files|commands|pty|sandbox|Sandbox)\.(\w+)", row)]
    assert len(named) > 20
    assert [(part, name) for part, name in named if not hasattr(parts[part], name)] == []
