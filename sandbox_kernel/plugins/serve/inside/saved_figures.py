"""A figure that a cell saved as a file is not shown as a second picture, for clients that have both as files.

Runs in the kernel: standard library and IPython, and matplotlib only where a cell imports it. A figure that was changed
after it was saved is shown, and so is one whose file is not among those that go out.
"""

from __future__ import annotations

import os
import sys
from functools import wraps
from importlib import import_module
from importlib.util import find_spec

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

MODULE = "matplotlib.figure"
ROOT = "/mnt/data"
PICTURES = (".png", ".jpg", ".jpeg", ".svg", ".webp", ".tif", ".tiff")
MARK = "_sandbox_saved_as"


def install(shell: Any) -> None:
    """Do it in this kernel. Idempotent."""
    formatter = shell.display_formatter.ipython_display_formatter
    if hasattr(type(formatter), MARK):
        return
    kind = type(formatter)

    def call(self: Any, value: Any) -> Any:
        return is_saved(value) or kind.__call__(self, value)

    formatter.__class__ = type(kind.__name__, (kind,), {"__call__": call, MARK: True})
    if MODULE in sys.modules:
        mark_what_is_saved(sys.modules[MODULE])
    else:
        sys.meta_path.insert(0, Finder())


class Finder:
    """Looks at matplotlib's figures when they are imported, and then no more."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> Any:
        if name != MODULE:
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type, unused-ignore]
        spec = find_spec(name)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            run(module)
            mark_what_is_saved(module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def mark_what_is_saved(module: Any) -> None:
    """Have each figure know where it was saved last."""
    save = module.Figure.savefig

    @wraps(save)  # pyplot looks at its names
    def savefig(self: Any, fname: Any, *args: Any, **options: Any) -> Any:
        found = save(self, fname, *args, **options)
        try:
            path = os.path.realpath(os.fspath(fname))
            if not os.path.splitext(path)[1]:
                path += "." + (options.get("format") or import_module("matplotlib").rcParams["savefig.format"])
            hidden = any(part.startswith(".") for part in path[len(ROOT) :].split("/"))
            if path.startswith(ROOT + "/") and not hidden and path.lower().endswith(PICTURES):
                setattr(self, MARK, path)
                self.stale = False
        except (TypeError, AttributeError):  # into a buffer
            pass
        return found

    module.Figure.savefig = savefig


def is_saved(value: Any) -> bool:
    """Return whether a value is a figure as it was saved last, and its file is still there."""
    figure = getattr(sys.modules.get(MODULE), "Figure", None)
    if figure is None or not isinstance(value, figure):
        return False
    path = getattr(value, MARK, None)
    return path is not None and not value.stale and os.path.isfile(path)


def install_here() -> None:
    from IPython import get_ipython

    install(get_ipython())
