"""A server of its own for each module, and nothing of it is left."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugins.serve.container.server import Server

ENGINE = "SANDBOX_KERNEL_TEST_ENGINE"
"""Names the engine that a whole run has under test."""
TOKENS = {"ann": "e2b_" + "1" * 40, "bob": "e2b_" + "2" * 40}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    one = Server(*options(tmp_path_factory.mktemp("tokens")))
    yield one
    one.close()


@pytest.fixture(scope="module")
def named_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """Give a server that is found by names below sandbox.localhost, too, and the folder of its certificates."""
    folder = tmp_path_factory.mktemp("tokens")
    one = Server(*options(folder), "--domain")
    yield one, folder / "serve-certificates" / "sandbox.localhost"
    one.close()


def options(folder: Path) -> tuple[str, ...]:
    """Return the options of a server whose token file, with our tokens, is made in a folder."""
    pods = ("--engine", "kubernetes", "--cpus", "0.5") if os.environ.get(ENGINE) == "kubernetes" else ()
    return "--token-file", str(token_file(folder)), "--memory", "512M", "--sandboxes-per-tenant", "3", *pods


def token_file(folder: Path) -> Path:
    """Return a token file with our tokens, which is made in a folder."""
    file = folder / "tokens"
    file.touch(mode=0o600)
    file.write_text("".join(f"{name} {token}\n" for name, token in TOKENS.items()))
    return file
