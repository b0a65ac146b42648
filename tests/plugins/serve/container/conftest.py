"""A server of its own for each module, and nothing of it is left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.serve.container.server import Server

TOKENS = {"ann": "e2b_" + "1" * 40, "bob": "e2b_" + "2" * 40}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    file: Path = tmp_path_factory.mktemp("tokens") / "tokens"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    one = Server("--token-file", str(file), "--memory", "512M", "--sandboxes-per-tenant", "3")
    yield one
    one.close()
