"""The extension of VS Code as it is packed, without npm; `make test-vscode` sees in a browser what it does."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET
from zipfile import ZipFile

import pytest

from sandbox_kernel.cli.program import parser
from sandbox_kernel.core.version import __version__
from tests.support.vsix import SOURCE, pack

PACKAGE = json.loads((SOURCE / "package.json").read_bytes())
SCRIPT = (SOURCE / "extension.js").read_text(encoding="utf-8")
OF_VSCODE = {"vscode", "os"}
"""Modules that VS Code has."""


@pytest.fixture
def packed(tmp_path: Path) -> ZipFile:
    pack(tmp_path / "first.vsix")
    pack(tmp_path / "second.vsix")
    assert (tmp_path / "first.vsix").read_bytes() == (tmp_path / "second.vsix").read_bytes()
    return ZipFile(tmp_path / "first.vsix")


def test_what_is_packed_belongs_together(packed: ZipFile) -> None:
    names = set(packed.namelist())
    about = ET.fromstring(packed.read("extension.vsixmanifest"))  # noqa: S314 (our own)
    [identity] = about.iterfind(".//{*}Identity")
    assert [identity.get(one) for one in ("Id", "Version")] == [PACKAGE["name"], PACKAGE["version"]]
    assert {str(one.get("Path")) for one in about.iterfind(".//{*}Asset")} <= names
    assert about.findtext(".//{*}License") in names
    assert f"extension/{PACKAGE['main'].removeprefix('./')}" in names
    assert json.loads(packed.read("extension/package.json")) == PACKAGE
    assert packed.read("extension/extension.js").decode() == SCRIPT
    types = ET.fromstring(packed.read("[Content_Types].xml"))  # noqa: S314 (as above)
    kinds = {str(one.get("Extension")) for one in types}
    assert {f".{name.rpartition('.')[2]}" for name in names - {"[Content_Types].xml"}} == kinds


def test_the_script_and_its_description_agree() -> None:
    lock = json.loads((SOURCE / "package-lock.json").read_bytes())["packages"]
    asked = {name.partition("/")[0] for name in re.findall(r"require\('([^']+)'\)", SCRIPT)}
    assert asked == OF_VSCODE | PACKAGE["dependencies"].keys()
    for name, version in PACKAGE["dependencies"].items():
        assert lock[f"node_modules/{name}"]["version"] == version
    assert all("integrity" in one for name, one in lock.items() if name)
    declared = PACKAGE["contributes"]["configuration"]["properties"]
    used = set(re.findall(r"getConfiguration\('sandboxKernelScreen'\)\.get\('(\w+)'\)", SCRIPT))
    assert {name.removeprefix("sandboxKernelScreen.") for name in declared} == used
    assert PACKAGE["version"] == __version__


def test_a_workspace_names_no_program() -> None:
    """A folder from elsewhere comes with settings of its own."""
    declared = PACKAGE["contributes"]["configuration"]["properties"]
    assert {one["scope"] for one in declared.values()} == {"machine"}
    program, *words = declared["sandboxKernelScreen.command"]["default"]
    assert program == "sandbox-kernel"
    assert parser().parse_args(words)
    assert "cwd: os.homedir()" in SCRIPT


def test_pasting_is_api_that_is_stable_in_the_oldest_vs_code_that_it_takes() -> None:
    assert PACKAGE["engines"]["vscode"] == "^1.97.0"
    assert "enabledApiProposals" not in PACKAGE
