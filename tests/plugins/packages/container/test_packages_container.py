"""Packages into real sandboxes: by the caller, by cells that may, and never in place of what the image has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.packages import installation
from tests.support.index import Index, serving, wheel
from tests.support.mcp_hosts import over_stdio, text_of

pytestmark = pytest.mark.slow


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setattr(installation, "cache", lambda: tmp_path / "cache")
    folder = tmp_path / "index"
    folder.mkdir()
    wheel(folder, "greeting", needs=("helper",), files={"json.py": b"raise SystemExit", "numpy/__init__.py": b"x = 1"})
    wheel(
        folder,
        "helper",
        files={"helper-1.0.data/purelib/more.py": b"HERE = True\n", "evil.pth": b"import os; os._exit(3)"},
    )
    with serving(folder) as one:
        yield one


def test_a_caller_installs_and_the_next_cell_imports(image: str, index: Index, tmp_path: Path) -> None:
    audit, said = tmp_path / "audit.jsonl", list[str]()
    own = wheel(tmp_path, "own_thing", "2.0", needs=("helper",))
    with Sandbox(image=image, memory="512M", packages_index=index.address, audit=str(audit)) as sandbox:
        found = sandbox.install("greeting", own, progress=said.append)
        assert sorted(one.name for one in found) == ["greeting", "helper", "own-thing"]
        assert said[0] == "resolving greeting, own_thing-2.0-py3-none-any.whl"
        code = (
            "import greeting, own_thing, more, json, numpy\n"
            "print(greeting.VERSION, own_thing.VERSION, more.HERE, '/usr' in json.__file__, hasattr(numpy, 'x'))"
        )
        assert "".join(sandbox.run_code(code).logs.stdout) == "1.0 2.0 True True False\n"
        assert sandbox.install("greeting") == []  # it is there already
        sandbox.restart()
        assert "".join(sandbox.run_code(code).logs.stdout) == "1.0 2.0 True True False\n"
        assert sandbox.files.list("/mnt/data") == []
        refused = "".join(sandbox.run_code("%pip install --force-reinstall greeting").logs.stdout)
        assert "No matching distribution found for greeting" in refused  # no setting allows it to cells
    events = [json.loads(line) for line in audit.read_text().splitlines()]
    names = [line["name"] for line in events if line["event"] == "package"]
    assert sorted(names) == ["greeting", "helper", "own-thing"]


def test_a_cell_installs_what_the_setting_allows(image: str, index: Index) -> None:
    keywords = {"packages": ["greeting"], "packages_index": index.address}
    with Sandbox(image=image, memory="512M", **keywords) as sandbox:  # type: ignore[arg-type]
        execution = sandbox.run_code("%pip install greeting\nimport greeting; print(greeting.VERSION)")
        assert "".join(execution.logs.stdout).splitlines()[-1] == "1.0", execution
        assert "Resolving greeting" in "".join(execution.logs.stdout)
        denied = sandbox.run_code("!pip install helper")
        assert "helper is no package that cells may install" in "".join(denied.logs.stderr)
        for way in ("/etc/passwd", "-r /etc/passwd", "greeting[x]", "greeting@http://127.0.0.1/"):
            sandbox.run_code(f"%pip install {way}")
        assert {path.split("/")[1] for path in index.asked} == {"simple", "files"}
        said = sandbox.run_code("import _sandbox_pip; print(_sandbox_pip.__all__)").logs.stdout
        assert said == ["['pip_install', 'ToolError']\n"]
        error = sandbox.run_code("import sandbox_tools").error
        assert error is not None, "which is for the tools of a caller"
        assert error.name == "ModuleNotFoundError"


@pytest.mark.long
async def test_a_model_installs_what_the_operator_allows(index: Index, tmp_path: Path) -> None:
    settings = ("--memory", "512M", "--package", "greeting", "--packages-index", index.address)
    async with over_stdio(*settings, env={"XDG_CACHE_HOME": str(tmp_path / "cache")}) as client:
        (tool,) = [one for one in (await client.list_tools()).tools if one.name == "install_packages"]
        assert "greeting" in str(tool.description)
        installed = await client.call_tool("install_packages", {"packages": ["greeting"]})
        assert "Installed greeting-1.0" in text_of(installed)
        answer = await client.call_tool("run_code", {"code": "import greeting; print(greeting.VERSION)"})
        assert "1.0" in text_of(answer)
        refused = await client.call_tool("install_packages", {"packages": ["helper"]})
        assert "no package that cells may install" in text_of(refused)
        for name in ("greeting\n!id", "greeting; !id", "-r /etc/passwd", "/tmp/x.whl", "greeting @ file:///x", ""):
            wrong = await client.call_tool("install_packages", {"packages": [name]})
            assert wrong.is_error, name
    async with over_stdio("--memory", "512M") as client:
        assert "install_packages" not in [one.name for one in (await client.list_tools()).tools]
