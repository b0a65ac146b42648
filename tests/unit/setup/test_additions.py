"""What an environment has besides packages: links to the fonts of packages, and modules that a kernel's start calls."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.resources import brought
from sandbox_kernel.policy import packed
from sandbox_kernel.setup import roots as additions


def test_fonts_of_packages_lie_where_programs_look_for_them(tmp_path: Path) -> None:
    environment, home = tmp_path / "env", tmp_path / "home"
    packages = environment / "lib" / "python3.13" / "site-packages"
    fonts = [packages / "fontpkg_some" / "files" / "Some[wght].ttf", packages / "noto_cjk_some" / "Other.ttc"]
    for font in (*fonts, packages / "other" / "Unasked.ttf"):
        font.parent.mkdir(parents=True)
        font.write_bytes(font.name.encode())
    additions.add(brought("images"), environment, home)
    environment.rename(tmp_path / "elsewhere")  # inside, all of it lies at another place
    folder = tmp_path / "elsewhere" / "share" / "fonts"
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        font.name: font.name.encode() for font in fonts
    }
    assert {path.name for path in (tmp_path / "elsewhere" / "lib").glob("*/*/sandbox_*")} == {
        "sandbox_plots.py",
        "sandbox_measures.py",
        "sandbox_libraries_packed",
    }
    assert "sandbox_plots" in (home / ".ipython" / "profile_default" / "startup" / "00-plots.py").read_text()


def libraries() -> dict[str, Any]:
    return runpy.run_path(str(brought("images") / "libraries.py"))


@pytest.mark.slow
def test_libraries_of_charts_are_made_small_and_what_gains_little_stays(tmp_path: Path) -> None:
    environment, home = tmp_path / "env", tmp_path / "home"
    packages = environment / "lib" / "python3.13" / "site-packages"
    large = "".join(f"function f{number}(){{return {number * number % 9973}}};\n" for number in range(60_000))
    for path, code in {
        "plotly/package_data/plotly.min.js": large,
        "bokeh/server/static/js/bokeh.min.js": large,
        "bokeh/server/static/js/bokeh-small.min.js": "var small;\n" * 20_000,
    }.items():
        (packages / path).parent.mkdir(parents=True, exist_ok=True)
        (packages / path).write_text(code)
    additions.add(brought("images"), environment, home)
    made = packages / "sandbox_libraries_packed"
    small = (made / "bokeh.min.js").read_text()
    assert libraries()["MIN_LENGTH"] < len(small) < len(large) // 4
    assert not {"&", "<", '"', "\\"} & set(small.partition("const t='")[2].partition("'")[0])
    assert (made / "plotly.min.js").read_text() == small
    assert (made / "bokeh-small.min.js").read_text() == "var small;\n" * 20_000


def test_signs_of_packed_libraries_are_those_of_the_host() -> None:
    assert libraries()["SIGNS"] == packed.SIGNS
