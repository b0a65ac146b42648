"""What an image says of one of its kernels: its name for people, its language and its logo, as a sandbox reads them.

An image is its operator's, but what it says lands in files of the host: it is checked.
"""

from __future__ import annotations

import ast
import asyncio
import base64
import json
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.forms import NAME
from ..core.codes import EndCode
from ..core.errors import SandboxDied
from ..core.model import PYTHON_KERNEL, Settings
from ..core.package_files import PACKAGE
from ..engines.select import beneath, make_engine
from ..policy.raster import claimed, image_type

LANGUAGE = re.compile(r"[A-Za-z0-9+#. _-]{1,40}", re.ASCII)
LOGO = "logo-64x64.png"
"""What front ends show of a kernel that has no SVG."""
MAX_LOGO_BYTES = 32 << 10
"""The largest of Jupyter's own logos has 6 KB."""
MAX_LOGO_PIXELS = 512 * 512
MAX_NAME = 80
"""Characters of a name for people, which gets a word behind it."""
LOOK = """
import base64 as _base64
def _look(name, logo, most):
    try:
        spec = read(name)
    except FileNotFoundError:
        return {"names": names()}
    except (OSError, ValueError) as error:
        return {"names": names(), "why": str(error)}
    found = {"display_name": spec["display_name"], "language": spec["language"]}
    for folder in folders():
        path = os.path.join(folder, name, logo)
        if os.path.isfile(path) and os.path.getsize(path) <= most:
            with open(path, "rb") as file:
                return {**found, "logo": _base64.b64encode(file.read()).decode()}
    return found
"""
"""A cell, behind the source of `container/kernelspecs.py`."""


@dataclass(frozen=True, slots=True)
class ImageKernelspec:
    """A kernel of an image, as front ends are to show it."""

    display_name: str
    language: str
    logo: bytes | None = None
    """A PNG."""

    @classmethod
    def unseen(cls, kernel: str) -> ImageKernelspec:
        """Return the entry of a kernel whose image was not asked: its name alone."""
        return cls(kernel, kernel[:40])

    @classmethod
    def of(cls, kernel: str, said: Any) -> ImageKernelspec:
        """Check what an image says; what is improper counts as not said."""
        shown, language = said.get("display_name"), said.get("language")
        fits = isinstance(shown, str) and NAME.fullmatch(shown[:MAX_NAME]) is not None
        proper = isinstance(language, str) and LANGUAGE.fullmatch(language) is not None
        unseen = cls.unseen(kernel)
        return cls(
            shown[:MAX_NAME] if fits else unseen.display_name,
            language if proper else unseen.language,
            _logo(said.get("logo")),
        )


def look(settings: Settings) -> ImageKernelspec:
    """Start a sandbox, and return what its image says of the kernel that the settings name.

    Raises:
        ImageMissing: The image has no such kernel, or there is no image.
        SandboxError: There is no sandbox to ask.
    """
    from ..session.lifecycle import no_kernelspec
    from . import self_test

    source = (PACKAGE / Path("container") / "kernelspecs.py").read_text(encoding="utf-8")
    code = f"{source}\n{LOOK}\njson.dumps(_look({settings.kernel!r}, {LOGO!r}, {MAX_LOGO_BYTES}))"
    plain = replace(beneath(settings), kernel=PYTHON_KERNEL)
    shown = asyncio.run(self_test.shown(plain, make_engine(plain), code))
    try:
        said = json.loads(ast.literal_eval(shown))
        if "names" not in said:
            return ImageKernelspec.of(settings.kernel, said)
        raise no_kernelspec(settings, said)
    except (AttributeError, MemoryError, RecursionError, SyntaxError, TypeError, ValueError) as error:
        words = f"the image {settings.image} says nothing of its kernels that can be read"
        raise SandboxDied(EndCode.NO_REPORT, words, value=shown[:200]) from error


def _logo(text: object) -> bytes | None:
    """Return the bytes of a PNG that is a logo's size, None for anything else."""
    if not isinstance(text, str) or len(text) > MAX_LOGO_BYTES * 2:
        return None
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        return None
    fits = image_type(data) == "image/png" and 0 < (claimed(data) or 0) <= MAX_LOGO_PIXELS
    return data if fits and len(data) <= MAX_LOGO_BYTES else None
