"""What an environment has besides packages: links to the fonts of packages, and modules that a kernel's start calls."""

from __future__ import annotations

from pathlib import Path

from sandbox_kernel.core.resources import brought
from sandbox_kernel.setup import additions


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
    }
    assert "sandbox_plots" in (home / ".ipython" / "profile_default" / "startup" / "00-plots.py").read_text()
