"""Where cells and commands of clients of E2B and Open Terminal begin: `/home/user`, as on E2B.

The folder is a link to the one where all cells begin, and the system says that one's name. So a cell of ours has each
kernel say the name that its client knows. No wall knows of it. A program that asks the system itself is told the
folder's own name.
"""

from __future__ import annotations

import posixpath

from ...core.errors import wrong_argument
from ...core.model import PYTHON_KERNEL, SCRATCH
from ...sdk.client import handle_of
from .tenants import Lease

HOME = "/home/user"
USER = "user"

_PYTHON = f"""
import os
def getcwd(real=os.getcwd):
    path = real()
    return {HOME!r} + path[{len(SCRATCH)}:] if (path + "/").startswith({SCRATCH + "/"!r}) else path
if os.getcwd.__module__ != "sandbox_home":
    for name, folder in (("CACHE", ".cache"), ("CONFIG", ".config"), ("DATA", ".local/share")):
        os.environ.setdefault(f"XDG_{{name}}_HOME", os.path.join(os.environ["HOME"], folder))
    os.getcwd = getcwd
    os.environ.update(HOME={HOME!r}, USER={USER!r}, LOGNAME={USER!r}, PWD=getcwd())
"""
_BASH = (
    f'export HOME={HOME} USER={USER} LOGNAME={USER}; case "$PWD/" in {SCRATCH}/*) cd "{HOME}${{PWD#{SCRATCH}}}";; esac'
)
_R = f"""
local({{
  real <- base::getwd
  unlockBinding("getwd", baseenv())
  assign("getwd", function() sub("^{SCRATCH}(?=/|$)", "{HOME}", real(), perl = TRUE), envir = baseenv())
  lockBinding("getwd", baseenv())
  Sys.setenv(HOME = "{HOME}", USER = "{USER}", LOGNAME = "{USER}")
}})
"""
_DENO = f"""
{{
  const told = (real) => () => real().replace(/^{SCRATCH.replace("/", "[/]")}(?=[/]|$)/, "{HOME}");
  Deno.cwd = told(Deno.cwd);
  globalThis.process.cwd = told(globalThis.process.cwd);
}}
"""
_CELLS = {
    PYTHON_KERNEL: f"exec({_PYTHON!r}, {{'__name__': 'sandbox_home'}})",
    "bash": _BASH,
    "ir": _R,
    "deno": _DENO,
}
"""By kernelspec."""


async def settle(lease: Lease, context: str | None = None, language: str | None = None) -> None:
    """Have a kernel of the sandbox say where its client thinks it is, unless it does already.

    Raises as `run_code` for a context or a language that there is not.
    """
    sandbox = handle_of(lease.sandbox)
    session = sandbox.session
    if context is not None or language is not None:
        session = await sandbox.part("contexts").session(context, language)
    if session.id not in lease.settled:
        lease.settled.add(session.id)
        session.submit_silently(_CELLS.get(session.settings.kernel, ""))


def check_user(name: str | None) -> None:
    """Raise `ConfigurationError` for another user than the sandbox's own."""
    if name not in {None, "", USER, "sandbox"}:
        raise wrong_argument("user", f"all in a sandbox is done as its own user, and not as {name!r}")


def working_folder(cwd: str | None) -> dict[str, str]:
    """Return the variable by which a shell says the name of its folder that the client gave."""
    path = posixpath.normpath(posixpath.join(HOME, cwd or ""))
    return {"PWD": path} if path == HOME or path.startswith(f"{HOME}/") else {}


def forget(lease: Lease, context: str | None = None) -> None:
    """Note that a kernel has ended: the next one is told again. Without a context, it may be any."""
    if context is None:
        lease.settled.clear()
    else:
        lease.settled.discard(context)
