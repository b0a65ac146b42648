"""The JupyterLab extension as it is committed and shipped; tests/browser/test_labextension.py sees what it does."""

from __future__ import annotations

import json
import re
import tomllib

from tests.support import ROOT
from tests.support.labextension import BUILT, FOLDER, NOTED, OF, digests


def test_the_bundle_belongs_to_the_sources() -> None:
    """`make labextension` builds it and notes of what: a source or a bundle that was changed by itself is seen."""
    assert NOTED.read_text() == digests()
    for pattern in OF:
        assert list(FOLDER.glob(pattern)), pattern


def test_the_bundle_is_readable_code_without_what_a_page_has_already() -> None:
    scripts = sorted((BUILT / "static").glob("*.js"))
    assert sum(script.stat().st_size for script in scripts) < 200_000
    assert max(len(line) for script in scripts for line in script.read_text().splitlines()) < 4000
    [main] = [script.read_text() for script in scripts if script.name.startswith("lib_index_js.")]
    assert "class Sandbox " in main


def test_jupyterlab_finds_the_start_of_the_bundle_and_whose_it_is() -> None:
    package = json.loads((BUILT / "package.json").read_text())
    assert (BUILT / package["jupyterlab"]["_build"]["load"]).is_file()
    assert json.loads((FOLDER / "install.json").read_text())["packageName"] == "sandbox-kernel"


def test_nothing_of_it_reads_texts_as_html_or_code() -> None:
    """Names and errors are a kernel's word: there is no place where one could become markup."""
    forbidden = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|createContextualFragment"
    for source in (FOLDER / "src").glob("*.ts"):
        assert not re.search(forbidden, source.read_text()), source.name


def test_the_page_listens_to_no_window_and_reads_no_message() -> None:
    """To read a value that a frame posts is to build it. A handler without an event cannot."""
    handler = r"\bonmessage\b(?! = \(\) => \{)"
    listens = re.compile(rf"['\"`]message(error)?['\"`]|{handler}|\bMessageEvent\b|\bonmessageerror\b")
    assert listens.search("window.addEventListener('message', event => 0)")
    assert listens.search("port.onmessage = event => { event.data }")
    sources = [*(FOLDER / "src").glob("*.ts"), *(BUILT / "static").glob("*.js")]
    assert [source.name for source in sources if listens.search(source.read_text())] == []
    assert [source.name for source in sources if "port1.onmessage = () => {" in source.read_text()]


def test_the_wheel_ships_it_where_jupyterlab_looks() -> None:
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    shared = tool["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert shared["labextension/built/sandbox-kernel"] == "share/jupyter/labextensions/sandbox-kernel"
    assert shared["labextension/install.json"] == "share/jupyter/labextensions/sandbox-kernel/install.json"
