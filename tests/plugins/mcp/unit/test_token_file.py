"""A token file is no link, and is made for its user alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.mcp.http_server import tokens_of

pytestmark = pytest.mark.slow


def test_a_token_file_is_no_link(repo: Path) -> None:
    (repo.parent / "mine" / "key").write_text("t" * 40)
    (repo.parent / "mine" / "key").chmod(0o600)
    assert tokens_of(repo.parent / "mine" / "key") == ["t" * 40]
    (repo / "tokens").symlink_to("../mine/key")
    (repo / "folder").symlink_to("../mine")
    for name in ("tokens", "folder/key", "folder/new"):
        with pytest.raises(ConfigurationError, match="link"):
            tokens_of(Path(name))
    assert len(tokens_of(Path("new"))) == 1
    assert Path("new").stat().st_mode & 0o777 == 0o600
