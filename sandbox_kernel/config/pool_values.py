"""The forms of settings for sandboxes that are ready before they are asked for, and what is said of them."""

from __future__ import annotations

import re

from .values import Form, listed

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")

POOL = (
    "How many sandboxes `sandbox-kernel broker` keeps ready, of the kinds that were requested last. Each uses as much "
    "memory as an idle kernel. 0: none."
)
PRELOAD = (
    "Modules that the sandboxes of `sandbox-kernel broker` import while they wait, if the image has them. The first "
    "import in a cell then takes no time."
)

modules: Form[tuple[str, ...]] = listed(_MODULE, "modules", "numpy, matplotlib.pyplot", "MODULES")
