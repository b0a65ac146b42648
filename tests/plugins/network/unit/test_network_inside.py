"""What a sandbox with a way out has inside, and that one without has nothing of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.core.model import AgentOptions, Inside, Limits
from sandbox_kernel.engines import shipping
from sandbox_kernel.plugins.network.inside import sandbox_certificates
from tests.support.engines import config_of

INSIDE = Inside(environment={"HTTPS_PROXY": "http://127.0.0.1:3128", "HOME": "/elsewhere"})


def test_a_sandbox_without_a_way_out_gets_nothing_of_it() -> None:
    """Neither its source nor its configuration: a start costs what it cost."""
    program = shipping.program_of(AgentOptions(), Limits())
    assert program.endswith(shipping.agent_source(shipping.MODULES).encode())
    assert not {"port", "HTTPS_PROXY"} & set(config_of(program) | config_of(program)["environment"])
    assert not set(shipping.MODULES) & set(shipping.MODULES_OF_A_WAY_OUT)


def test_a_sandbox_with_a_way_out_has_its_variables_and_none_of_its_own_replaced() -> None:
    program = shipping.program_of(AgentOptions(inside=INSIDE), Limits())
    assert program.endswith(shipping.agent_source(shipping.MODULES + shipping.MODULES_OF_A_WAY_OUT).encode())
    environment = config_of(program)["environment"]
    assert environment["HTTPS_PROXY"] == "http://127.0.0.1:3128"
    assert environment["HOME"] == "/tmp/home"


def test_the_file_has_the_certificates_of_the_image_and_those_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the image's own, the first that is there: its system's, else those that a package of Python brings."""
    written, system, packages = tmp_path / "ca.pem", tmp_path / "system.pem", tmp_path / "packages"
    (packages / "certifi").mkdir(parents=True)
    (packages / "certifi" / "cacert.pem").write_text("PACKAGED")
    monkeypatch.setattr("sys.path", [str(tmp_path / "none"), str(packages)])
    roots = (str(tmp_path / "missing.pem"), str(system))
    sandbox_certificates.prepare(str(written), "OURS\n", roots)
    assert written.read_text() == "PACKAGED\nOURS\n"
    system.write_text("SYSTEM")
    written.unlink()
    sandbox_certificates.prepare(str(written), "OURS\n", roots)
    assert written.read_text() == "SYSTEM\nOURS\n"
    monkeypatch.setattr("sys.path", [])
    written.unlink()
    sandbox_certificates.prepare(str(written), "OURS\n", ())
    assert written.read_text() == "OURS\n"


def test_a_later_kernel_leaves_alone_what_a_cell_made_of_the_file(tmp_path: Path) -> None:
    """It writes to nothing that a cell has put there, and waits for nothing."""
    written = tmp_path / "ca.pem"
    os.mkfifo(written)
    sandbox_certificates.prepare(str(written), "OURS\n", ())
    assert written.is_fifo()
    assert list(tmp_path.iterdir()) == [written]
