"""Variables of the environment that a caller gives: for all cells of a sandbox, or for one call."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, wrong_argument
from ..core.model import PYTHON_KERNEL, Settings
from ..engines.shipping import OWN_VARIABLES

MAX_BYTES = 32 << 10
"""Of all names and values of a sandbox: they are a part of its command."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)

_SET = """\
import os, sys, types
module = sys.modules.setdefault("_sandbox_variables", types.ModuleType("_sandbox_variables"))
kept = module.__dict__.setdefault("kept", {})
for name, value in given.items():
    kept.setdefault(name, os.environ.get(name))
    os.environ[name] = value
"""
_PUT_BACK = """\
import os, sys
module = sys.modules.pop("_sandbox_variables", None)
for name, value in module.kept.items() if module else ():
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
"""


def checked(envs: object) -> dict[str, str]:
    """Return variables as they may be set. Raises `ConfigurationError`."""
    if envs is None:
        return {}
    if not isinstance(envs, Mapping):
        raise _refused(f"envs must be a mapping of names to text, not {type(envs).__name__}")
    size = 0
    for name, value in envs.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise _refused(f"{name!r} is no name of a variable")
        if not isinstance(value, str) or "\0" in value:
            raise _refused(f"the value of {name} must be text without a null character, not {type(value).__name__}")
        size += len(name.encode()) + len(value.encode(errors="surrogatepass"))
    if size > MAX_BYTES:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            "the variables are too large together; write a file instead",
            limit=f"{MAX_BYTES} bytes",
            value=f"{size} bytes",
            setting="envs",
        )
    return dict(envs)


def of_sandbox(envs: object) -> tuple[tuple[str, str], ...]:
    """Return the variables of a whole sandbox. Raises `ConfigurationError`, also for those that it sets itself."""
    found = checked(envs)
    if own := sorted(found.keys() & OWN_VARIABLES):
        raise _refused(f"the sandbox sets {', '.join(own)} itself; set it in a cell, or for one call")
    return tuple(found.items())


def around(envs: Mapping[str, str] | None, settings: Settings) -> tuple[str, str] | None:
    """Return the cells that set variables before a call, and put them back after it. Raises `ConfigurationError`."""
    given = checked(envs)
    if not given:
        return None
    if settings.kernel != PYTHON_KERNEL:
        code = UsageCode.PYTHON_ALONE.note(what="envs of a call", kernel=settings.kernel)
        raise ConfigurationError(code, value=settings.kernel, setting="envs")
    return f"exec({_SET!r}, {{'given': {given!r}}})", f"exec({_PUT_BACK!r}, {{}})"


def _refused(why: str) -> ConfigurationError:
    return wrong_argument("envs", why)
