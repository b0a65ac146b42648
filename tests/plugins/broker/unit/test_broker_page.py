"""The operator's file as the page shows it."""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

from sandbox_kernel.plugins.broker.ceilings import load
from tests.support.pages import snippets


def test_the_example_of_an_operator_s_file_is_one(tmp_path: Path) -> None:
    [source] = snippets("docs/jupyterhub.md", "toml")
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    (tmp_path / "broker.toml").write_text(
        source.replace("[user.ann]", f"[user.{user}]").replace(".students]", f".{group}]")
    )
    assert load(tmp_path / "broker.toml").sessions == 64
