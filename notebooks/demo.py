"""Run quickstart.ipynb in the sandbox kernel, a line for each cell, and show where its results are.

The data go in and the files come out through two settings of the kernel, `uploads` and `downloads`; a temporary kernelspec
carries them, so that nothing which is installed changes. Imports no module of sandbox_kernel: the demo does what a user can do.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

HERE = Path(__file__).resolve().parent
NOTEBOOK = HERE / "quickstart.ipynb"
DATA = HERE / "data"
PRODUCED = ("weather_summary.csv", "carrier_summary.csv", "delays.png")
KERNEL = "sandbox-python"

START_SECONDS = 120
CELL_SECONDS = 300
INSTALL_SECONDS = 60
FILES_SECONDS = 5.0
"""How long a file may still be on its way after the last cell."""


class DemoError(Exception):
    """The demo did not do what it promises; the message says what is missing."""


@dataclass(frozen=True)
class Result:
    """Where everything is, and what the notebook found."""

    notebook: Path
    html: Path
    files: tuple[Path, ...]
    findings: tuple[str, ...]
    seconds: float
    """Kernel start and all cells."""


@contextmanager
def sandbox_kernel(downloads: Path, settings: Sequence[str]) -> Iterator[AsyncKernelManager]:
    """Give a manager for a kernelspec of our own: DATA goes in, what cells make comes out in `downloads`."""
    with tempfile.TemporaryDirectory(prefix="demo-kernelspec-") as prefix:
        command = [sys.executable, "-m", "sandbox_kernel", "install", "--prefix", prefix, "--name", KERNEL]
        command += ["--uploads", str(DATA), "--downloads", str(downloads), *settings]
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_SECONDS, check=False)
        if done.returncode != 0:
            raise DemoError(f"the kernelspec could not be made:\n{done.stdout}{done.stderr}")
        specs = KernelSpecManager(kernel_dirs=[str(Path(prefix) / "share" / "jupyter" / "kernels")])
        yield AsyncKernelManager(kernel_name=KERNEL, kernel_spec_manager=specs)


@contextmanager
def installed_kernel(name: str, downloads: Path) -> Iterator[AsyncKernelManager]:
    """Give a manager for a kernel without our settings: its working folder holds copies of the data."""
    for path in DATA.iterdir():
        shutil.copy(path, downloads)
    yield AsyncKernelManager(kernel_name=name)


class Progress:
    """A line for the start and one for each code cell: number, seconds, and its first line."""

    def __init__(self, notebook: Any, say: Callable[[str], None]) -> None:
        self.cells = [index for index, cell in enumerate(notebook.cells) if cell.cell_type == "code"]
        self.say = say
        self.started = time.monotonic()

    def on_ready(self, *, notebook: Any) -> None:
        self.say(f"  {'start':>7} {time.monotonic() - self.started:6.2f} s  the kernel is ready")

    def on_execute(self, *, cell: Any, cell_index: int) -> None:
        self.started = time.monotonic()

    def on_executed(self, *, cell: Any, cell_index: int, execute_reply: Any) -> None:
        status = execute_reply["content"]["status"]
        note = "" if status == "ok" else f"  ← {execute_reply['content'].get('ename', status)}"
        first = next(line for line in cell.source.splitlines() if line.strip())
        number = f"[{self.cells.index(cell_index) + 1}/{len(self.cells)}]"
        self.say(f"  {number:>7} {time.monotonic() - self.started:6.2f} s  {first[:80]}{note}")


def run(
    output: Path,
    *,
    kernel: str | None = None,
    settings: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> Result:
    """Execute the notebook into the folder `output`; raise DemoError if a cell fails or a file is missing.

    `kernel` names an installed kernel to use in place of the sandbox (for comparison); `settings` are further
    settings of the sandbox, as `sandbox-kernel install` takes them.
    """
    files = output.resolve() / "files"
    files.mkdir(parents=True, exist_ok=True)
    for name in PRODUCED:
        (files / name).unlink(missing_ok=True)  # a result of an earlier run must not pass for one of this

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    progress = Progress(notebook, say)
    executed = output.resolve() / NOTEBOOK.name
    started = time.monotonic()
    with sandbox_kernel(files, settings) if kernel is None else installed_kernel(kernel, files) as manager:
        client = NotebookClient(
            notebook,
            km=manager,
            resources={"metadata": {"path": str(files)}},
            timeout=CELL_SECONDS,
            startup_timeout=START_SECONDS,
            on_notebook_start=progress.on_ready,
            on_cell_execute=progress.on_execute,
            on_cell_executed=progress.on_executed,
        )
        say(f"Running {NOTEBOOK.name} on kernel {kernel or KERNEL} ...")
        progress.started = time.monotonic()
        try:
            client.execute(cleanup_kc=True)
        except CellExecutionError as error:
            raise DemoError(
                f"a cell of {NOTEBOOK.name} failed ({error.ename}: {error.evalue}); see {executed}"
            ) from error
        except (CellTimeoutError, DeadKernelError, RuntimeError) as error:
            raise DemoError(f"{NOTEBOOK.name} failed: {error}") from error
        finally:
            nbformat.write(notebook, executed)  # with what there is: a failed cell is read there
    seconds = time.monotonic() - started
    return Result(
        notebook=executed,
        html=to_html(executed),
        files=tuple(await_file(files / name) for name in PRODUCED),
        findings=findings(notebook),
        seconds=seconds,
    )


def await_file(path: Path) -> Path:
    """Return the path of a file that the notebook made, once it is there and not empty."""
    end = time.monotonic() + FILES_SECONDS
    while not (path.is_file() and path.stat().st_size):
        if time.monotonic() > end:
            raise DemoError(f"the notebook ran, but did not leave {path.name} in {path.parent}")
        time.sleep(0.05)
    return path


def findings(notebook: Any) -> tuple[str, ...]:
    """Return what the cells tagged "findings" printed, line by line."""
    tagged = [cell for cell in notebook.cells if "findings" in cell.metadata.get("tags", ())]
    printed = "".join(out.text for cell in tagged for out in cell.outputs if out.output_type == "stream")
    lines = tuple(line for line in printed.splitlines() if line.strip())
    if not lines:
        raise DemoError("the notebook ran, but printed no findings")
    return lines


def to_html(executed: Path) -> Path:
    """Write the executed notebook as a page beside it."""
    from nbconvert import HTMLExporter  # slow to import, and needed only at the end

    page, _ = HTMLExporter().from_filename(str(executed))
    target = executed.with_suffix(".html")
    target.write_text(page, encoding="utf-8")
    return target


def shown(path: Path) -> str:
    """Return a path as short as it can be typed from here."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description="Run the demo notebook in the sandbox. Other options are settings of the kernel, such as --image NAME or --memory 1G.",
    )
    parser.add_argument(
        "--output", type=Path, default=HERE.parent / "output", help="folder for the results (default: output)"
    )
    parser.add_argument("--kernel", help="an installed kernel to run on in place of the sandbox, for comparison")
    options, settings = parser.parse_known_args(arguments)
    if options.kernel and settings:
        parser.error(f"settings of the sandbox make no sense with --kernel: {' '.join(settings)}")
    try:
        result = run(options.output, kernel=options.kernel, settings=settings)
    except DemoError as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    print(f"Done in {result.seconds:.1f} s. The notebook's answer:")
    for line in result.findings:
        print(f"  · {line}")
    print(f"Executed notebook: {shown(result.notebook)} (to read: {shown(result.html)})")
    print(f"Files it made:     {', '.join(f'{shown(path)} ({path.stat().st_size:,} bytes)' for path in result.files)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
