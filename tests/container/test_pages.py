"""Examples of pages, run as a reader would type them: only hosts, packages and addresses are those of the tests."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest

import sandbox_kernel
from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.packages import installation
from tests.plugins.broker.brokers import a_broker
from tests.support.index import serving, wheel
from tests.support.kernels import containers_of, install
from tests.support.origins import Origins, reachable
from tests.support.pages import run, snippets

pytestmark = pytest.mark.slow


@pytest.fixture
def origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Origins]:
    with reachable(tmp_path) as origins:
        with_settings(monkeypatch, network_certificates=str(origins.certificates))
        yield origins


def with_settings(monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
    """Give the sandboxes of a page settings that belong to this machine, and not to the page."""
    monkeypatch.setattr(sandbox_kernel, "Sandbox", functools.partial(Sandbox, **settings), raising=False)


def example(page: str, *changes: tuple[str, str], number: int = 0) -> dict[str, Any]:
    """Run an example after the changes to its text; return the names that it leaves."""
    source = snippets(page)[number]
    for old, new in changes:
        assert old in source
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(source, page, "exec"), names)  # noqa: S102 (our own page)
    return names


def test_the_tutorial(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    for source in snippets("docs/tutorial.md"):
        exec(compile(source, "docs/tutorial.md", "exec"), names)  # noqa: S102 (our own page)
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == ["45", "46"]
    assert said[2:7] == ["['user']", "FileNotFoundError", "CellTimeout cell-timeout", "45", "URLError"]
    assert said[7:9] == [",sales", "count,2.0"]
    assert not containers_of(os.getpid())


def test_tools() -> None:
    names = example("docs/tools.md", ("len(rows)", "print(len(rows))"), ("sandbox.run_code", "done = sandbox.run_code"))
    assert names["done"].logs.stdout == ["4\n"]
    with example("docs/tools.md", number=1)["sandbox"] as sandbox:
        done = sandbox.run_code("from sandbox_tools import report\nprint(report('May'))")
        assert done.logs.stdout == ["the report of May\n"]


def hosts(origins: Origins) -> tuple[tuple[str, str], ...]:
    rules, host = f"network={origins.rules!r}", f"api.example.test:{origins.tls.port}"
    return ('network=["api.example.org"]', rules), ("api.example.org", host)


def test_network(origins: Origins) -> None:
    names = example("docs/network.md", *hosts(origins))
    assert (names["execution"].error, names["execution"].denied) == (None, [])
    assert [path for _, path, _ in origins.tls.requests] == ["/rows"]


def test_secrets(origins: Origins, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXAMPLE_TOKEN", "a-key-of-some-api-0123456789")  # as the page exports it
    example("docs/secrets.md", *hosts(origins))
    assert [headers["Authorization"] for _, _, headers in origins.tls.requests] == [
        "Bearer a-key-of-some-api-0123456789"
    ]


@pytest.mark.long
def test_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(installation, "cache", lambda: tmp_path / "cache")
    wheel(tmp_path, "humanize", "4.0")
    wheel(
        tmp_path,
        "rapidfuzz",
        files={"rapidfuzz.py": b"class fuzz:\n    ratio = staticmethod(lambda a, b: print(a, b))\n"},
    )
    with serving(tmp_path) as index:
        with_settings(monkeypatch, packages_index=index.address)
        names = example("docs/images.md", ("sandbox.run_code", "done = sandbox.run_code"))
    assert (names["done"].error, names["done"].logs.stdout) == (None, ["lamp lamps\n"])
    assert "humanize" in capsys.readouterr().out


def test_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    example("docs/files.md")
    assert capsys.readouterr().out.splitlines()[-1] == "result.bin: 1000 of 1000 bytes"
    assert Path("result.bin").read_bytes() == bytes(1000)


def test_a_detached_sandbox(capsys: pytest.CaptureFixture[str]) -> None:
    with a_broker() as daemon:
        example("docs/broker.md", ('engine="broker"', f'engine="{daemon.address}"'))
    assert capsys.readouterr().out == "6\n"


@pytest.mark.long
def test_nbclient(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(tmp_path)
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share/jupyter"))
    monkeypatch.chdir(tmp_path)
    example("docs/batch.md")
    [done] = nbformat.read("done.ipynb", as_version=4).cells
    assert done.outputs[0].text == "42\n"
    assert not containers_of(os.getpid())


@pytest.mark.long
async def test_an_mcp_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}")
    names: dict[str, Any] = {}
    await run(names, snippets("docs/mcp.md")[0], "docs/mcp.md")
    assert "42" in names["answer"].content[0].text
