"""The forms of settings for sandboxes that are ready before they are asked for, and what is said of them."""

from __future__ import annotations

import re

from .values import Form, refuse

MOST_MODULES = 50
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")

POOL = (
    "How many sandboxes `sandbox-kernel broker` keeps ready, of the kinds that were requested last. Each uses as much "
    "memory as an idle kernel. 0: none."
)
PRELOAD = (
    "Modules that the sandboxes of `sandbox-kernel broker` import while they wait, if the image has them. The first "
    "import in a cell then takes no time."
)


def _modules(name: str, raw: object) -> tuple[str, ...]:
    if raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "none")):
        return ()
    parts = raw if isinstance(raw, list | tuple) else [raw]
    words: list[str] = []
    for one in parts:
        if not isinstance(one, str):
            raise refuse(name, raw, f"{name} is no list of modules")
        words += (word.strip() for word in one.split(","))
    if len(words) > MOST_MODULES:
        raise refuse(name, raw, f"{name} names too many modules", limit=str(MOST_MODULES))
    if wrong := [word for word in words if not _MODULE.fullmatch(word)]:
        raise refuse(name, wrong[0], f"{name} is no list of modules such as numpy, matplotlib.pyplot")
    return tuple(words)


modules: Form[tuple[str, ...]] = Form(
    _modules, "modules, with commas or as a list: `numpy, matplotlib.pyplot`", "MODULES", adds_up=True,
    written=lambda name, raw: [",".join(_modules(name, raw)) or "none"],
)  # fmt: skip
