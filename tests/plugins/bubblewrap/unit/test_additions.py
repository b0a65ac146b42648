"""What an environment has besides packages: links to the fonts of packages, and modules that a kernel's start calls."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from sandbox_kernel.core.package_files import brought
from sandbox_kernel.plugins.bubblewrap.roots import build as additions
from sandbox_kernel.policy import frame_libraries


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
        *("sandbox_plots.py", "sandbox_measures.py"),
        *("sandbox_unpack.js", "sandbox_plotly_failures.js", "sandbox_plotly_without_outlines.js"),
    }
    assert "sandbox_plots" in (home / ".ipython" / "profile_default" / "startup" / "00-plots.py").read_text()


@pytest.mark.parametrize(("needs", "kernel"), [("bin/bash", "bash"), ("lib/python3.13/site-packages/duckdb", "sql")])
def test_a_kernel_is_there_where_its_program_is(needs: str, kernel: str, tmp_path: Path) -> None:
    environment = tmp_path / "env"
    (environment / "lib" / "python3.13" / "site-packages").mkdir(parents=True)
    (environment / needs).mkdir(parents=True)
    additions.add(brought("images"), environment, tmp_path / "home")
    [folder] = (environment / "share" / "jupyter" / "kernels").iterdir()
    assert folder.name == kernel
    assert {path.name for path in folder.iterdir()} == {"kernel.json", f"{kernel}_kernel.py", "kernel_base.py"}


def test_a_figure_packs_its_libraries_as_the_host_would_and_its_scripts_run_in_their_order(tmp_path: Path) -> None:
    """The host shares such a library by its hash, and its frame unpacks it."""
    for name in ("plots.py", "unpack.js"):
        (tmp_path / f"sandbox_{name}").write_bytes((brought("images") / name).read_bytes())
    plots = runpy.run_path(str(tmp_path / "sandbox_plots.py"))
    library = "".join(f"function f{number}(){{return '<script> é'}};\n" for number in range(6_000))
    source = (
        f'<p>a<script type="text/javascript">{library}</script>b<script>draw(1)</script>'
        '<script type="application/json">{}</script>c'
    )
    host = frame_libraries.Packer().pack(library)
    shown = plots["late"](source)
    assert plots["packed"](library) == (host.name, host.text)
    assert shown == (
        f"<p>a<script>{(brought('images') / 'unpack.js').read_text()}</script>"
        f'<script type="text/later" data-packed="{host.name}">{host.text}</script>b'
        '<script type="text/later">draw(1)</script><script type="application/json">{}</script>c'
    )
    assert plots["late"]("<p>no script") == "<p>no script"
