"""Runs in the background: `sandbox-kernel submit` begins one, and `sandbox-kernel result` says what became of it.

There is no server. Each is a process of `sandbox-kernel run` in a session of its own, which outlives the shell, and a
folder of the user's own, `~/.local/state/sandbox-kernel/runs/ID`: `run.json`, the report, and what it said. The output
is elsewhere: cells choose names in it.
The process holds a lock on its folder's file as long as it lives, so that a dead one is known, whatever killed it.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...files.file_rules import printable
from ...files.host_paths import usable
from . import again, many
from .private_folder import below_home, private
from .run_report import UNENDED, moment, now

MAX_RUNS = 200
"""Folders of one user; what is not needed any more is removed with `result ID --remove`."""
MAX_RUNNING = 16
MAX_SAID = 4096
"""Bytes of what a run said last."""
MAX_JSON = 64 << 20
RUN, REPORT, SAID, LOCK = "run.json", "report.json", "said", "lock"
_ID = re.compile(r"[0-9a-f]{12}")
State = Literal["running", "done", "died"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """One of them."""

    id: str
    folder: Path

    def _json(self, name: str) -> dict[str, Any]:
        try:
            with (self.folder / name).open("rb") as file:
                found = json.loads(file.read(MAX_JSON))
        except (OSError, ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}

    @property
    def about(self) -> dict[str, Any]:
        return self._json(RUN)

    @property
    def is_alive(self) -> bool:
        """Whether its process holds the lock."""
        try:
            with (self.folder / LOCK).open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def row(self) -> dict[str, Any]:
        """Return what is known of it, as plain JSON."""
        alive = self.is_alive  # before its report is read: one that ends meanwhile has written it
        report, about = self._json(REPORT), self.about
        end = report.get("exit") or {}
        ended = bool(end) and end.get("reason") != UNENDED
        state: State = "running" if alive else "done" if ended else "died"
        return {
            "id": self.id,
            "state": state,
            "source": about.get("source"),
            "submitted": about.get("submitted"),
            "exit": end if ended else None,
            "report": str(self.folder / REPORT) if report else None,
            "output": about.get("output"),
            "said": self._said(),
        }

    def _said(self) -> str:
        with suppress(OSError), (self.folder / SAID).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MAX_SAID))
            return file.read(MAX_SAID).decode(errors="replace")
        return ""

    def stop(self) -> None:
        """Have it end in order, as Ctrl-C would. Does nothing to one that has ended."""
        pid = self.about.get("pid")
        if isinstance(pid, int) and pid > 1 and self.is_alive:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGINT)


def everything() -> list[Submitted]:
    """Return all of this user's, the oldest first. Raises `ConfigurationError`."""
    folder = private(below_home(".local", "state", "sandbox-kernel", "runs"))
    found = [Submitted(path.name, path) for path in folder.path.iterdir() if _ID.fullmatch(path.name)]
    return sorted(found, key=lambda one: (str(one.about.get("submitted")), one.id))


def submit(options: argparse.Namespace) -> int:
    """Run a notebook or a script in the background, and print its id.

    It takes the options of `run`. It goes on when the shell ends, until it is over or the machine stops. `result` shows
    what became of it.
    """
    if many.is_many(options.source) or options.source == ["-"] or again.is_asked(options):
        words = "in the background runs one notebook or script, from a file"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, value=" ".join(options.source)[:200])
    for name in ("report", "receipt", "jobs"):
        if getattr(options, name) is not None:
            words = f"the result has a folder of its own; --{name} has no place here"
            raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting=f"--{name}")
    there = everything()
    running = sum(one.is_alive for one in there)
    for count, limit, way in ((len(there), MAX_RUNS, "result ID --remove"), (running, MAX_RUNNING, "result ID --stop")):
        if count >= limit:
            words = f"there are too many runs of this user's; `sandbox-kernel {way}` makes room"
            raise ConfigurationError(UsageCode.NOT_TOGETHER, words, limit=str(limit), value=str(count))
    [source] = options.source
    with usable(UsageCode.NOTEBOOK_UNREADABLE, f"{source} cannot be read"):
        source = str(Path(source).resolve(strict=True))
    identity = secrets.token_hex(6)
    folder = below_home(".local", "state", "sandbox-kernel", "runs", identity)
    private(folder).close()
    given = many.words(options) + ([] if options.variation is None else [f"--as={options.variation}"])
    output = Path(options.output or f"{Path(source).stem}-output-{identity}").absolute()
    places = [f"--output={output}", f"--report={folder / REPORT}"]
    command = [sys.executable, "-I", "-m", "sandbox_kernel", "run", *places, *given, "--", source]
    with (folder / LOCK).open("wb") as lock, (folder / SAID).open("wb") as said:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )  # the lock is the process's from here on
        about = {"source": source, "submitted": moment(now()), "output": str(output), "pid": process.pid}
        (folder / RUN).write_text(json.dumps(about))
    process.returncode = 0  # it is not waited for: this process ends before it
    print(identity)
    return 0


def add_result_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `result`."""
    parser.add_argument("id", metavar="ID", nargs="?", help="what submit has printed (default: list all)")
    parser.add_argument("--json", action="store_true", help="print JSON")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--stop", action="store_true", help="have it end, as Ctrl-C would")
    what.add_argument("--remove", action="store_true", help="remove what it has left, once it has ended")


EXIT_CODES = {
    "0": "of a run, that of the run if it has ended; else it was done",
    "1": "it died: its process ended without a report of its end",
    "2": "a wrong argument, or no such run",
    "75": "it is still running",
}
STILL, DIED = 75, 1
"""The first is EX_TEMPFAIL."""


def result(options: argparse.Namespace) -> int:
    """Show what became of runs in the background: running, done, or died.

    For one that has ended, the exit code is that of the run.
    """
    there = everything()
    if options.id is None:
        if options.stop or options.remove:
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "say of which run: give its ID")
        rows = [one.row() for one in there]
        if options.json:
            print(json.dumps(rows, indent=2))
        for row in () if options.json else rows:
            print(_line(row))
        return 0
    one = next((one for one in there if one.id == options.id), None)
    if one is None:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "there is no run of this ID", value=options.id[:100])
    if options.stop:
        one.stop()
        return 0
    row = one.row()
    if options.remove:
        if row["state"] == "running":
            raise ConfigurationError(UsageCode.NOT_TOGETHER, "it is running; --stop ends it", value=one.id)
        shutil.rmtree(one.folder)
        return 0
    if options.json:
        print(json.dumps(row, indent=2))
    else:
        print(_line(row))
        for name in ("report", "output"):
            print(f"{name:9} {printable(str(row[name]), 4096)}")  # named after a notebook, which may have any name
        print(printable(row["said"].strip().replace("\n", " | "), MAX_SAID))
    return STILL if row["state"] == "running" else DIED if row["exit"] is None else int(row["exit"]["code"])


def _line(row: dict[str, Any]) -> str:
    kind = "" if row["exit"] is None else f"{row['exit']['kind']} ({row['exit']['code']})"
    return f"{row['id']}  {row['state']:7}  {kind:20}  {row['submitted']}  {printable(str(row['source']))}"
