"""An hour of honest work under the monitor at its strictest, and how often it cries: it has to be never.

`python -m benchmarks.honest [--minutes 60] [--share 10] [--image NAME]`. The demo notebooks, and two hundred cells in a
sandbox that stays, again and again under `monitor = "kill"` with the rules as they are shipped. Between them it rests,
so that all of it takes `--share` percent of one processor on average. An attack at the end shows that alerts are heard.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from notebooks import network_demo
from sandbox_kernel import Sandbox
from tests.support.honest import BEGUN, TABLES, Cell, cells

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
DATA = NOTEBOOKS / "data"
METADATA = '"http://169.254.169.254/latest/meta-data/", '
"""In a notebook that shows what is refused: an attack, if a harmless one."""
CREATED = "AsyncSandbox.create("
DROPPED = "import shutil, subprocess\nshutil.copy('/bin/sleep', 'm'); subprocess.run(['./m', '6'])"
BURST = 10
"""Cells that follow each other without a rest, as people run them."""
NOTEBOOK_SECONDS = 300

Found = Counter[tuple[str, str]]
"""How often each rule was met, by its code and its level."""


class Pace:
    """Rests after work, so that on average there is no more of it than is meant to be."""

    def __init__(self, seconds: float, share: float) -> None:
        self._share = share
        self._began = time.monotonic()
        self._end = self._began + seconds
        self.used = 0.0
        """Seconds of the processor."""

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self._end

    @property
    def minutes(self) -> float:
        return (time.monotonic() - self._began) / 60

    def rest(self) -> None:
        until = min(self._began + self.used / self._share, self._end) if self._share else 0.0
        time.sleep(max(0.0, until - time.monotonic()))


def met(audit: Path) -> Found:
    """Return which rules an audit says were met."""
    lines = (json.loads(line) for line in audit.read_text().splitlines())
    return Counter((line["code"], line["level"]) for line in lines if line["event"] == "monitor")


def alerts(found: Found) -> int:
    return sum(count for (_, level), count in found.items() if level != "note")


# --- cells ---


def watched(folder: Path, image: str) -> Sandbox:
    downloads = folder / "downloads"
    downloads.mkdir()
    return Sandbox(
        image=image, memory="1G", monitor="kill", audit=str(folder / "audit.jsonl"), downloads=str(downloads)
    )


def give(sandbox: Sandbox) -> None:
    for name, data in TABLES.items():
        sandbox.files.write(name, data)


def run(sandbox: Sandbox, cell: Cell) -> None:
    """Run a cell as a person does. Raises AssertionError if it does not end as it is meant to."""
    pressed: list[threading.Thread] = []

    def press(text: str) -> None:
        if cell.interrupt and text.startswith(BEGUN) and not pressed:
            pressed.append(threading.Thread(target=sandbox.interrupt))
            pressed[0].start()

    error = sandbox.run_code(cell.code, on_stdout=press, on_input=lambda prompt: "Ada").error
    for thread in pressed:
        thread.join()
    name = None if error is None else error.name
    assert name == cell.fails, f"{cell.kind}: {error}"


# --- notebooks ---


def words_of(notebook: str) -> list[str]:
    """Return the settings that the text of a notebook names."""
    text = "".join(json.loads((NOTEBOOKS / notebook).read_text())["cells"][0]["source"])
    found = re.search(r"sandbox-kernel install(?:.*\\\n)+.*", text)
    assert found is not None
    words = shlex.split(found[0].replace("\\\n", ""))
    return words[words.index("--memory") :]


def command(notebook: Path, folder: Path, image: str, *more: str) -> list[str]:
    given = ["--input", f"{DATA}/.", "--output", str(folder / "output"), "--fail-on-policy", "never", "--quiet"]
    watch = ["--monitor", "kill", "--audit", str(folder / "audit.jsonl"), "--image", image]
    return [sys.executable, "-m", "sandbox_kernel", "run", str(notebook), *given, *watch, *more]


def quickstart(folder: Path, image: str) -> None:
    execute(command(NOTEBOOKS / "quickstart.ipynb", folder, image), 0)


def files_and_limits(folder: Path, image: str) -> None:
    notebook = NOTEBOOKS / "files_and_limits.ipynb"
    execute(command(notebook, folder, image, *words_of(notebook.name), "--allow-errors"), None)


def one_api(folder: Path, image: str) -> None:
    """As it is, but for one address."""
    source = (NOTEBOOKS / "one_api.ipynb").read_text()
    wanted = json.dumps(METADATA)[1:-1]
    assert wanted in source
    notebook = folder / "one_api.ipynb"
    notebook.write_text(source.replace(wanted, ""))
    with network_demo.serving() as port:
        address = f"{network_demo.ADDRESS}:{port}"
        execute(command(notebook, folder, image, "-p", "API", f"http://{address}", "--network", address), 0)


def chat_analysis(folder: Path, image: str) -> None:
    """A notebook of the host's, whose sandbox is watched."""
    source = (NOTEBOOKS / "chat_analysis.ipynb").read_text()
    assert source.count(CREATED) == 1
    audit = folder / "audit.jsonl"
    watch = json.dumps(f'{CREATED}image="{image}", monitor="kill", audit="{audit}", ')[1:-1]
    (folder / "chat.ipynb").write_text(source.replace(CREATED, watch))
    shutil.copytree(DATA, folder / "data")
    program = (
        "import nbformat, nbclient\n"
        "nbclient.NotebookClient(nbformat.read('chat.ipynb', 4), timeout=150, kernel_name='python3').execute()"
    )
    execute([sys.executable, "-c", program], 0, cwd=folder)


def execute(words: Sequence[str], code: int | None, cwd: Path | None = None) -> None:
    """Run a program of the host's. Raises AssertionError if it does not end with `code`; None is any but a signal."""
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, timeout=NOTEBOOK_SECONDS, check=False)
    assert done.returncode >= 0 if code is None else done.returncode == code, f"{words}: {done.stderr[-2000:]}"


DEMOS: tuple[Callable[[Path, str], None], ...] = (quickstart, files_and_limits, one_api, chat_analysis)


def used() -> float:
    """Return the seconds of the processor that this process and those that it started have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


class Hour:
    """The work, and what the monitor says of it."""

    def __init__(self, image: str, pace: Pace) -> None:
        self.image = image
        self.pace = pace
        self.cells = self.notebooks = 0
        self.of_notebooks: Found = Counter()

    def work(self, sandbox: Sandbox) -> None:
        """Do all of it once, or as much as there is time for."""
        for number, cell in enumerate(cells(), start=1):
            before = used() + (sandbox.usage().cpu_seconds or 0.0)
            run(sandbox, cell)
            self.cells += 1
            self.pace.used += used() + (sandbox.usage().cpu_seconds or 0.0) - before
            if number % BURST == 0:
                self.pace.rest()
                if self.pace.is_over:
                    return
            if number % (BURST * 5) == 0:
                self.notebook(DEMOS[number // (BURST * 5) - 1])

    def notebook(self, demo: Callable[[Path, str], None]) -> None:
        before = used()
        with tempfile.TemporaryDirectory(prefix="honest-") as folder:
            began = time.monotonic()
            demo(Path(folder), self.image)
            self.of_notebooks += met(Path(folder, "audit.jsonl"))
        self.notebooks += 1
        # What its container takes is not told behind its end; no more than one processor, most of the time.
        self.pace.used += max(used() - before, 0.0) + (time.monotonic() - began)
        self.pace.rest()


@contextlib.contextmanager
def place() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="honest-") as folder:
        yield Path(folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--share", type=float, default=10, help="percent of one processor; 0 is without a rest")
    parser.add_argument("--image", default="sandbox-kernel:data")
    arguments = parser.parse_args()
    hour = Hour(arguments.image, Pace(60 * arguments.minutes, arguments.share / 100))
    with place() as folder, watched(folder, arguments.image) as sandbox:
        give(sandbox)
        found: Found = Counter()
        while not hour.pace.is_over:
            hour.work(sandbox)
            found = met(folder / "audit.jsonl") + hour.of_notebooks
            print(
                f"{hour.pace.minutes:6.1f} min  {hour.cells} cells, {hour.notebooks} notebooks, "
                f"{hour.pace.used:.0f} s of the processor: "
                f"{alerts(found)} alerts, {found.total() - alerts(found)} notes",
                flush=True,
            )
        sandbox.run_code(DROPPED)
        heard = until(lambda: ("dropped-program", "alert") in met(folder / "audit.jsonl"))
    for (code, level), count in sorted(found.items()):
        print(f"{level:6}{code:24}{count:6}")
    print(f"an attack at the end is {'an alert' if heard else 'NOT HEARD'}")
    return 0 if heard and not alerts(found) else 1


def until(condition: Callable[[], bool]) -> bool:
    end = time.monotonic() + 10
    while not (there := condition()) and time.monotonic() < end:
        time.sleep(0.05)
    return there


if __name__ == "__main__":
    sys.exit(main())
