"""R in a real JupyterLab: what a person sees of it, and a plot of ggplot2's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browser.lab import Lab, install_all, running_lab
from tests.browser.person import Person
from tests.languages.places import R, asked_for

pytestmark = [asked_for, pytest.mark.timeout(180)]

PLOT = "library(ggplot2); ggplot(mtcars, aes(wt, mpg)) + geom_point()"


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    kernels = install_all(tmp_path_factory.mktemp("kernels"), R.image, {"sandbox-ir": ("--kernel", R.kernel)})
    with running_lab(tmp_path_factory.mktemp("lab"), kernels) as running:
        yield running


def test_r_has_its_name_and_language_and_shows_a_table_and_a_plot(lab: Lab, tmp_path: Path) -> None:
    lab.open("sandbox-ir", "head(mtcars, 2)", PLOT, "stop('why')", language="R")
    Person(lab, tmp_path).see(".jp-KernelName", r"R \(sandbox\)")
    info = lab.language()
    assert (info["name"], info["file_extension"], info["mimetype"]) == ("R", ".r", "text/x-r-source")
    lab.run_all()
    assert "Mazda RX4" in lab.output(0).find_element("css selector", "table").text
    assert "Error" in "".join(lab.text(2))
    [shown] = lab.wait_for_pictures(lab.output(1))
    assert shown.size["width"] > 200


def test_it_is_in_the_launcher_with_its_own_logo(lab: Lab, tmp_path: Path) -> None:
    lab.browser.get(f"{lab.url}lab?reset&token={lab.token}")
    card = Person(lab, tmp_path).see(".jp-LauncherCard[data-category=Notebook]", r"R \(sandbox\)")
    [logo] = lab.wait_for_pictures(card)
    assert (logo.get_attribute("src") or "").endswith("/kernelspecs/sandbox-ir/logo-64x64.png")
