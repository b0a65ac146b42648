"""Whether each plugin can be deleted: `python -m tests.support.deleted [NAME ...]`, which is `make test-deleted`.

Each plugin in turn: a copy of this checkout without the plugin's folder and its tests, in an environment where the copy
is the package that is installed. There all modules are imported, the linters and the type checker pass on the package,
the plugin's commands are refused with a code, unit tests of the nucleus pass, and a sandbox runs a cell.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel.plugins import index
from tests.support import ROOT

NUCLEUS = (
    "test_codes",
    "config/test_sources",
    "files/test_host_tree",
    "engines/test_seccomp_program",
    "kernel/test_handover",
    "setup/test_install",
    "session/test_agent_link",
    "policy/test_protocol",
    "kernel/test_proxy",
    "session/requests/test_queue",
    "session/requests/test_scheduler",
    "kernel/test_front_sockets",
    "session/test_container_states",
    "core/test_tasks",
    "files/test_folder_sync",
    "container/test_wire",
)
"""Unit tests of the path of a cell, its files, settings and codes: they name no plugin."""

IMPORT_ALL = """
import importlib, pkgutil, sandbox_kernel
names = [one.name for one in pkgutil.walk_packages(sandbox_kernel.__path__, "sandbox_kernel.")]
inside = "sandbox_kernel.container."
for name in names:
    if not name.startswith(inside) and ".inside." not in name and not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except ImportError as error:
            if not error.name or error.name.startswith("sandbox_kernel"):
                raise  # else it is a framework that is not installed here
print(len(names), "modules in", sandbox_kernel.__path__[0])
"""
RUN_A_CELL = """
import sandbox_kernel
with sandbox_kernel.Sandbox(image={image!r}) as sandbox:
    execution = sandbox.run_code("print(6 * 7)")
assert execution.error is None and execution.logs.stdout == ["42\\n"], execution
"""


@contextmanager
def without(name: str) -> Iterator[Path]:
    """Yield a copy of the checkout that lacks one plugin and those that need it, with an environment in `.venv`."""
    listed = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    files = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    gone = [name, *(one for one, needed in index.REQUIRES.items() if name in needed)]
    left_out = tuple(f"{folder}/plugins/{one}/" for one in gone for folder in ("sandbox_kernel", "tests"))
    with tempfile.TemporaryDirectory(prefix=f"sandbox-kernel-without-{name}-") as folder:
        copy = Path(folder)
        for file in filter(None, files):
            if not file.startswith(left_out) and (ROOT / file).is_file():
                (copy / file).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / file, copy / file)
        _environment(copy)
        yield copy


def _environment(copy: Path) -> None:
    """Make an environment with all that this one has, in which the copy comes before this checkout."""
    environment = copy / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True)
    [packages] = environment.glob("lib/python*/site-packages")
    ours = sysconfig.get_path("purelib")
    (packages / "copy.pth").write_text(f"{copy}\nimport site; site.addsitedir({ours!r})\n")
    for script in Path(sys.executable).parent.iterdir():
        if (
            script.is_file()
            and not script.is_symlink()
            and script.read_bytes().startswith(b"#!")
            and "python" not in script.name
        ):
            lines = script.read_text().splitlines()
            made = environment / "bin" / script.name
            made.write_text("\n".join([f"#!{environment}/bin/python", *lines[1:], ""]))
            made.chmod(0o755)


def _contracts(copy: Path) -> Iterator[str]:
    """Yield options for the contracts that name no module which is gone."""
    settings = tomllib.loads((copy / "pyproject.toml").read_text(encoding="utf-8"))
    for one in settings["tool"]["importlinter"]["contracts"]:
        named = [module.replace(".", "/") for module in one.get("modules", ()) if "*" not in module]
        if all((copy / path).is_dir() or (copy / f"{path}.py").is_file() for path in named):
            yield from ("--contract", one["id"])


def check(name: str, image: str) -> list[str]:
    """Try all without one plugin; return what failed."""
    failed: list[str] = []
    with without(name) as copy:
        python = str(copy / ".venv" / "bin" / "python")
        contracts = "import sys; from importlinter.cli import lint_imports_command; lint_imports_command()"
        tests = [f"tests/unit/{part}.py" for part in NUCLEUS]
        steps: dict[str, list[str]] = {
            "imports": [python, "-P", "-c", IMPORT_ALL],
            "ruff": [python, "-P", "-m", "ruff", "check", "-q", "sandbox_kernel", *tests],
            "contracts": [python, "-P", "-c", contracts, "--no-cache", "--no-logo", *_contracts(copy)],
            "mypy": [python, "-P", "-m", "mypy", "--cache-dir", str(copy / ".mypy_cache"), "-p", "sandbox_kernel"],
            "help": [python, "-P", "-m", "sandbox_kernel", "--help"],
            **{f"refuses {word}": [python, "-P", "-m", "sandbox_kernel", word] for word in index.COMMANDS[name]},
            "a sandbox": [python, "-P", "-c", RUN_A_CELL.format(image=image)],
            "unit tests": [
                *(python, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-q", "-x", "-m", "not slow"),
                *("--numprocesses", "2", "--dist", "worksteal", *tests),
            ],
        }  # fmt: skip
        for step, command in steps.items():
            began = time.monotonic()
            environment = {
                word: value for word, value in os.environ.items() if word not in ("PYTHONPATH", "VIRTUAL_ENV")
            }
            done = subprocess.run(
                command, cwd=copy, env=environment, capture_output=True, text=True, timeout=1200, check=False
            )
            fine = done.returncode == 0
            if step.startswith("refuses "):
                fine = done.returncode == 2 and "is not a part of this installation" in " ".join(done.stderr.split())
            elif step == "imports":
                fine = fine and str(copy) in done.stdout
            elif step == "help":
                fine = fine and not any(f"\n  {word} " in done.stdout for word in index.COMMANDS[name])
            print(
                f"without {name}: {step}: {'ok' if fine else 'FAILED'} ({time.monotonic() - began:.1f} s)", flush=True
            )
            if not fine:
                failed.append(f"without {name}: {step}\n{done.stdout[-6000:]}{done.stderr[-3000:]}")
    return failed


def main() -> int:
    """Try the plugins that are named, or all of them. Return 1 if anything failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0], allow_abbrev=False)
    parser.add_argument("names", metavar="NAME", nargs="*", help="plugins (default: all)")
    parser.add_argument("--image", default="sandbox-kernel:data", help="of the sandbox (default: %(default)s)")
    options = parser.parse_args()
    if unknown := set(options.names) - set(index.COMMANDS):
        parser.error(f"no such plugin: {', '.join(sorted(unknown))}")
    failed = [one for name in options.names or index.COMMANDS for one in check(name, options.image)]
    print("\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
