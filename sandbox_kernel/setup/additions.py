"""What an environment has besides packages, as the image has it: modules that fit libraries, fonts, packed libraries.

What `images/recipe.py` does within an image is done here from outside: no code of a package runs.
"""

from __future__ import annotations

import os
import runpy
import shutil
from pathlib import Path

MODULES = ("plots", "measures")
"""Each kernel's start calls the first, which loads the other when it is needed."""
LIBRARIES = "libraries.py"
"""What makes the JavaScript libraries of charts small."""
FILES = (*(f"{name}.py" for name in MODULES), LIBRARIES)
"""All that is taken from images/."""


def add(recipes: Path, environment: Path, home: Path) -> None:
    """Add all, of the folder images/, to an environment and to the home that each session's begins with."""
    packages = next((environment / "lib").glob("python*/site-packages"))
    _add_modules(recipes, packages, home)
    _link_fonts(packages, environment / "share" / "fonts")
    runpy.run_path(str(recipes / LIBRARIES))["prepare"](packages)


def _add_modules(recipes: Path, packages: Path, home: Path) -> None:
    startup = home / ".ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    for name in MODULES:
        shutil.copyfile(recipes / f"{name}.py", packages / f"sandbox_{name}.py")
    (startup / "00-plots.py").write_text('__import__("sandbox_plots").prepare()\n')


def _link_fonts(packages: Path, folder: Path) -> None:
    """Put the fonts of packages where programs look for fonts."""
    folder.mkdir(parents=True, exist_ok=True)
    for font in (*packages.glob("fontpkg_*/files/*.ttf"), *packages.glob("noto_cjk_*/*.ttc")):
        (folder / font.name).symlink_to(os.path.relpath(font, folder))
