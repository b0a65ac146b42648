"""The command `sandbox-kernel run` for the tests: as a process, with its report and its notebook checked each time."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import nbformat

from sandbox_kernel.plugins.batch.run_report import schema
from tests.support.command_line import SCRIPT

NO_ENGINE = "unix:///nonexistent/engine.sock"
SECONDS = 120
VALIDATOR = jsonschema.Draft202012Validator(schema(), format_checker=jsonschema.FormatChecker())


@dataclass
class Done:
    """What a run left behind."""

    code: int
    stdout: str
    stderr: str
    folder: Path

    @property
    def report(self) -> dict[str, Any]:
        """The report, valid by its schema, with the exit code that the command had."""
        found: dict[str, Any] = json.loads((self.folder / "report.json").read_text(encoding="utf-8"))
        VALIDATOR.validate(found)
        assert found["exit"]["code"] == self.code
        assert found["started"] <= found["ended"]
        return found

    @property
    def notebook(self) -> Any:
        """The executed notebook, valid as a notebook."""
        (path,) = (self.folder / "out").glob("*.ipynb")
        assert self.report["notebook"] in (str(path), None)
        found = nbformat.read(path, as_version=4)
        nbformat.validate(found)
        return found

    @property
    def statuses(self) -> list[str]:
        return [cell["status"] for cell in self.report["cells"]]

    def text(self, cell: int) -> str:
        """Return what a code cell has printed, as it stands in the notebook."""
        code = [one for one in self.notebook.cells if one.cell_type == "code"]
        return "".join(output.text for output in code[cell - 1].outputs if output.output_type == "stream")


def write(folder: Path, *cells: str, name: str = "work.ipynb") -> Path:
    """Write a notebook that names another kernel, as such notebooks do."""
    document = nbformat.v4.new_notebook()
    document.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    document.cells = [nbformat.v4.new_code_cell(cell) for cell in cells]
    nbformat.write(document, folder / name)
    return folder / name


def command(folder: Path, source: Path | str, *arguments: str) -> list[str]:
    places = ["--output", str(folder / "out"), "--report", str(folder / "report.json")]
    return [str(SCRIPT), "run", str(source), *places, *arguments]


def run(folder: Path, source: Path | str, *arguments: str, stdin: bytes | None = None) -> Done:
    done = subprocess.run(
        command(folder, source, *arguments),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        timeout=SECONDS,
        cwd=folder,
        check=False,
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode(), folder)


class Started:
    """A run under way, in a process group of its own, as a shell starts it."""

    def __init__(self, folder: Path, source: Path | str, *arguments: str) -> None:
        self.folder = folder
        self.process = subprocess.Popen(
            command(folder, source, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            start_new_session=True,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        self._said: list[str] = []

    def wait_for(self, words: str) -> None:
        """Wait until a line on stderr says something; the tests' time limit bounds it."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self._said.append(line)
            if words in line:
                return
        raise AssertionError(f"the run has ended without saying {words!r}: {''.join(self._said)}")

    def wait_for_output(self, words: str) -> None:
        """Wait until a script's cell has printed something."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if words in line:
                return
        raise AssertionError(f"the run has ended without printing {words!r}")

    def signal(self, number: int) -> None:
        """Send a signal to the whole group, as a terminal does."""
        os.killpg(self.process.pid, number)

    def hang_up(self) -> Done:
        """Stop reading what it prints, and wait for its end."""
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process.stdout = None
        return self.ended()

    def ended(self) -> Done:
        stdout, stderr = self.process.communicate(timeout=SECONDS)
        return Done(self.process.returncode, stdout or "", "".join(self._said) + stderr, self.folder)
