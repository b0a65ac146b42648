"""Variables of the environment that a caller gives: for all cells of a sandbox, or for one call."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping

from ..core.codes import UsageCode
from ..core.errors import ConfigurationError, wrong_argument
from ..core.model import PYTHON_KERNEL, Settings
from ..engines.shipping import OWN_VARIABLES

MAX_BYTES = 32 << 10
"""Of all names and values of a sandbox: they are a part of its command."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


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
    if settings.kernel not in _CELLS:
        code = UsageCode.NO_ENVS_OF_A_CALL.note(kernel=settings.kernel)
        raise ConfigurationError(code, value=settings.kernel, setting="envs")
    return _CELLS[settings.kernel](given)


def _python(given: Mapping[str, str]) -> tuple[str, str]:
    sets = """\
import os, sys, types
module = sys.modules.setdefault("_sandbox_variables", types.ModuleType("_sandbox_variables"))
kept = module.__dict__.setdefault("kept", {})
for name, value in given.items():
    kept.setdefault(name, os.environ.get(name))
    os.environ[name] = value
"""
    puts_back = """\
import os, sys
module = sys.modules.pop("_sandbox_variables", None)
for name, value in module.kept.items() if module else ():
    if value is None:
        os.environ.pop(name, None)
    else:
        os.environ[name] = value
"""
    return f"exec({sets!r}, {{'given': {given!r}}})", f"exec({puts_back!r}, {{}})"


def _r(given: Mapping[str, str]) -> tuple[str, str]:
    # In backticks: TRUE and if, and what begins with an underscore, are names for R only so.
    values = ", ".join(f'`{name}` = "{_escaped(name, value)}"' for name, value in given.items())
    sets = f"""\
base::local({{
    given <- base::list({values})
    kept <- base::getOption("sandbox_variables", base::character())
    new <- base::setdiff(base::names(given), base::names(kept))
    base::options(sandbox_variables = base::c(kept, base::Sys.getenv(new, unset = NA, names = TRUE)))
    base::do.call(base::Sys.setenv, given)
    base::invisible()
}})
"""
    puts_back = """\
base::local({
    kept <- base::getOption("sandbox_variables")
    base::options(sandbox_variables = NULL)
    base::Sys.unsetenv(base::names(kept)[base::is.na(kept)])
    old <- base::as.list(kept[!base::is.na(kept)])
    if (base::length(old)) base::do.call(base::Sys.setenv, old)
    base::invisible()
})
"""
    return sets, puts_back


def _deno(given: Mapping[str, str]) -> tuple[str, str]:
    sets = f"""\
{{
    const kept = (globalThis[Symbol.for("sandbox_variables")] ??= new Map());
    for (const [name, value] of {json.dumps(list(given.items()))}) {{
        if (!kept.has(name)) kept.set(name, Deno.env.get(name));
        Deno.env.set(name, value);
    }}
}}
"""
    puts_back = """\
{
    const kept = globalThis[Symbol.for("sandbox_variables")] ?? [];
    delete globalThis[Symbol.for("sandbox_variables")];
    for (const [name, value] of kept) value === undefined ? Deno.env.delete(name) : Deno.env.set(name, value);
}
"""
    return sets, puts_back


def _bash(given: Mapping[str, str]) -> tuple[str, str]:
    sets = "declare -gA _sandbox_variables\n" + "".join(
        f"""\
[[ -v _sandbox_variables[{name}] ]] || _sandbox_variables[{name}]=$(declare -p {name} 2>/dev/null || :)
export {name}=$'{_escaped(name, value)}'
"""
        for name, value in given.items()
    )
    puts_back = """\
for _sandbox_name in "${!_sandbox_variables[@]}"; do
    unset -v "$_sandbox_name"
    eval "${_sandbox_variables[$_sandbox_name]}"
done
unset -v _sandbox_variables _sandbox_name
"""
    return sets, puts_back


def _escaped(name: str, value: str) -> str:
    """Return the bytes of a value as a string of R or Bash has them: no character of the caller's is in it."""
    try:
        return "".join(f"\\x{byte:02x}" for byte in value.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        raise _refused(f"the value of {name} must be text that UTF-8 has") from None


_CELLS: dict[str, Callable[[Mapping[str, str]], tuple[str, str]]] = {
    PYTHON_KERNEL: _python,
    "ir": _r,
    "deno": _deno,
    "bash": _bash,
}
"""By kernel: a name is checked, and a value stands in a cell as its language escapes it."""


def _refused(why: str) -> ConfigurationError:
    return wrong_argument("envs", why)
