"""A mount namespace in which this machine is like macOS to Python: no /proc, no /sys, and no name that Linux alone has.

The names come from typeshed, which mypy brings along. The engine, its socket and the network are this machine's.
"""

from __future__ import annotations

import ast
import encodings
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import SimpleNamespace

import mypy

from tests.support.darwin import hook

STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"
IN_C = {"os": "posix", "socket": "_socket", "signal": "_signal"}
"""Modules of Python, each with that of C which it takes its names from."""

ENTER = r"""
set -e
folder=$1 encodings=$2; shift 2
root=$folder/root
mount --make-rprivate /
mkdir -p "$root"
mount -t tmpfs none "$root"
mkdir "$root/dev" "$root/.linux"
mount --rbind / "$root/.linux"
for place in /* /dev/null /dev/zero /dev/full /dev/random /dev/urandom /dev/tty /dev/ptmx /dev/pts; do
    case $place in /proc | /sys | /dev) continue ;; esac
    if [ -L "$place" ]; then cp -a "$place" "$root$place"; continue; fi
    if [ -d "$place" ]; then mkdir -p "$root$place"; else : > "$root$place"; fi
    mount --rbind "$place" "$root$place"
done
ln -s /.linux/proc/self/fd "$root/dev/fd"
for name in encodings ps lsof sysctl; do
    case $name in encodings) place=$encodings ;; *) place=$(command -v $name) ;; esac
    mount --bind "$folder/$name" "$root$place"
done
exec chroot "$root" env -C "$folder/home" "$@"
"""
PROGRAMS = {
    "ps": 'exec chroot /.linux /bin/ps "$@"',
    "lsof": 'exec chroot /.linux "$(command -v lsof)" "$@"',
    "sysctl": '[ "$*" = "-n kern.bootsessionuuid" ] && exec cat /.linux/proc/sys/kernel/random/boot_id',
}
"""What macOS has, too: told by this machine's own."""


def names(module: str, platform: str) -> set[str]:
    """Return what a module of the standard library has on a platform, as typeshed says."""
    [stub] = [one for one in (STUBS / f"{module}.pyi", STUBS / module / "__init__.pyi") if one.exists()]
    given = {"sys": SimpleNamespace(platform=platform, version_info=sys.version_info), "TYPE_CHECKING": True}
    return set(_names(ast.parse(stub.read_text(encoding="utf-8")).body, given))


def _names(body: list[ast.stmt], given: dict[str, object]) -> Iterator[str]:
    for one in body:
        match one:
            case ast.If():
                told = eval(compile(ast.Expression(one.test), "typeshed", "eval"), dict(given))  # noqa: S307 (mypy's own)
                yield from _names(one.body if told else one.orelse, given)
            case ast.ImportFrom() | ast.Import():
                yield from (alias.asname or alias.name for alias in one.names)
            case ast.FunctionDef() | ast.ClassDef():
                yield one.name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def gone() -> dict[str, list[str]]:
    """Return what Linux has and macOS lacks, by the module that is written in C."""
    found: dict[str, set[str]] = {}
    for module in sorted(sys.stdlib_module_names):
        in_c = IN_C.get(module, module)
        if _is_in_c(in_c) and (STUBS / f"{module}.pyi").exists() | (STUBS / module / "__init__.pyi").exists():
            found.setdefault(in_c, set()).update(names(module, "linux") - names(module, "darwin"))
    return {module: sorted(those) for module, those in found.items() if those}


def _is_in_c(module: str) -> bool:
    spec = importlib.util.find_spec(module)
    return spec is not None and str(spec.origin).endswith(("built-in", *EXTENSION_SUFFIXES))


class Darwin:
    """Runs programs on it. What they write beneath `home` stays, until the caller removes the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        place = Path(encodings.__file__).parent
        shutil.copytree(place, folder / "encodings", ignore=shutil.ignore_patterns("__pycache__"))
        text = Path(hook.__file__).read_text(encoding="utf-8")
        line = "GONE: dict[str, list[str]] = {}"
        assert line in text
        (folder / "encodings" / "darwin.py").write_text(text.replace(line, f"GONE = {gone()!r}"), encoding="utf-8")
        with (folder / "encodings" / "__init__.py").open("a", encoding="utf-8") as file:
            file.write("\nfrom . import darwin\n")
        for name, line in PROGRAMS.items():
            (folder / name).write_text(f"#!/bin/sh\n{line}\n")
            (folder / name).chmod(0o755)
        (folder / "send2trash.py").write_text("send2trash = None\n")  # Jupyter Server's; macOS' own uses its libraries
        self._enter = ["unshare", "--mount", "sh", "-c", ENTER, "darwin", str(folder), str(place)]

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return {**kept, "HOME": str(self.home), "TMPDIR": str(self.home), "PYTHONPATH": str(self.folder)}

    def why_not(self) -> str | None:
        """Return why there can be none on this machine."""
        if missing := [name for name in ("unshare", "chroot", "ps", "lsof", "sysctl") if shutil.which(name) is None]:
            return f"there is no program {missing[0]}"
        done = self.run("true")
        return None if done.returncode == 0 else f"no mount namespace: {done.stderr.strip()[-200:]}"

    def command(self, *argv: str) -> list[str]:
        """Return the command that runs another one there, in its home folder."""
        return [*self._enter, *argv]

    def run(self, *argv: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command there."""
        return subprocess.run(
            self.command(*argv), env=self.environment, capture_output=True, text=True, timeout=seconds, check=False
        )

    def python(self, code: str, *argv: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a program of Python's there."""
        return self.run(sys.executable, "-c", code, *argv, seconds=seconds)
