"""Kernels of other languages in a real JupyterLab: what a person sees of them, and what their cells show."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, install_all, running_lab
from tests.browser.person import Person

pytestmark = pytest.mark.long

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


@pytest.fixture(scope="module")
def _one_lab(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Lab]:
    named = {f"sandbox-{name}": ("--kernel", name) for name in ("bash", "sql")}
    kernels = install_all(tmp_path_factory.mktemp("kernels"), image, named)
    with running_lab(tmp_path_factory.mktemp("lab"), kernels) as running:
        yield running


@pytest.fixture
def lab(_one_lab: Lab) -> Iterator[Lab]:
    yield _one_lab
    _one_lab.renew()


def test_bash_has_its_name_and_language_and_shows_text_and_pictures(lab: Lab, tmp_path: Path) -> None:
    picture = f"base64 -d <<< {PNG} > dot.png; display dot.png"
    lab.open("sandbox-bash", "echo $((6 * 7)); pwd", picture, "ls /none", language="bash")
    person = Person(lab, tmp_path)
    person.see(".jp-KernelName", r"Bash \(sandbox\)")
    info = lab.language()
    assert (info["name"], info["file_extension"]) == ("bash", ".sh")
    lab.run_all()
    assert lab.text(0) == ["42\n/mnt/data"]
    [shown] = lab.wait_for_pictures(lab.output(1))
    assert (shown.get_attribute("src") or "").startswith("data:image/png")
    assert "No such file or directory" in lab.text(2)[0]


def test_sql_shows_a_table(lab: Lab, tmp_path: Path) -> None:
    lab.open("sandbox-sql", "SELECT 6 * 7 AS answer", language="sql")
    Person(lab, tmp_path).see(".jp-KernelName", r"SQL.* \(sandbox\)")
    assert (lab.language()["name"], lab.language()["file_extension"]) == ("sql", ".sql")
    lab.run_all()
    table = lab.output(0).find_element("css selector", "table")
    assert table.text.split() == ["answer", "INTEGER", "42"]


def test_both_are_in_the_launcher_with_a_logo(lab: Lab, tmp_path: Path) -> None:
    lab.browser.get(f"{lab.url}lab?reset&token={lab.token}")
    for name in ("Bash", "SQL"):
        card = Person(lab, tmp_path).see(".jp-LauncherCard[data-category=Notebook]", rf"{name}.* \(sandbox\)")
        assert len(lab.wait_for_pictures(card)) == 1
