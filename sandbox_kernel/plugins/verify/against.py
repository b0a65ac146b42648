"""`verify --against`: asks any product that takes Python and gives output seven things, and compares.

A product is a command: the code goes to its stdin, or in place of `{code}` or `{file}` in its arguments. Each call is a
session of its own to it. What a program cannot know from inside, the machine says: whether a file came, a connection,
or a process that is left. Nothing is aimed at but what is planted here, the loopback, and an address of no one.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...files.file_rules import printable

CRITERIA: dict[str, tuple[str, tuple[str, ...]]] = {
    "processes": ("Processes of the machine", ("process-seen", "process-signal")),
    "files": ("Files and variables of the machine", ("file-read", "file-written", "secret")),
    "network": ("Network", ("loopback", "outside")),
    "limits": ("Memory and processes are limited", ("memory", "processes")),
    "lifetime": ("Calls end, with all they started", ("time", "left-process")),
    "neighbours": ("Nothing is left for the next call", ("left-file",)),
    "observed": ("Failures are told, output is cleaned", ("told", "output-terminal")),
}
"""The seven, each with its title and its probes."""
NOWHERE = "192.0.2.1"
"""An address that nobody has (RFC 5737)."""
MAX_OUTPUT = 1 << 20
CALL_SECONDS = 300.0
"""How long a call may take. The step `time` has this less."""
LEFT_SECONDS = 3.0
"""How long what a call has started may take to end after it."""
STEPS = ("look", "again", "memory", "processes", "time", "fail")
_NAMES = re.compile(r"\{(?:code|file|folder)\}")
INSIDE = Path(__file__).parent / "inside" / "criteria.py"


@dataclass(frozen=True, slots=True)
class Product:
    """A way to run code."""

    name: str
    arguments: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> Product:
        """Read `NAME=COMMAND`. Raises `ConfigurationError`."""
        name, _, command = text.partition("=")
        try:
            arguments = tuple(shlex.split(command))
        except ValueError:
            arguments = ()
        if not name.strip() or not arguments or shutil.which(arguments[0]) is None:
            words = f"--against is NAME=COMMAND, with a program that is here: {text!r}"
            raise ConfigurationError(UsageCode.WRONG_ARGUMENT, words)
        return cls(name.strip(), arguments)


@dataclass(slots=True)
class Comparison:
    """What was found of one product: by probe, whether it got out (None: unknown), and how that is known."""

    product: Product
    python: str = ""
    probes: dict[str, tuple[bool | None, str]] = field(default_factory=dict)

    def verdict(self, criterion: str) -> str:
        """Return yes, no, in part, or unknown."""
        found = [self.probes.get(probe, (None, ""))[0] for probe in CRITERIA[criterion][1]]
        known = [one for one in found if one is not None]
        if not known:
            return "unknown"
        return "no" if all(known) else "in part" if any(known) else "yes" if len(known) == len(found) else "yes?"

    def to_json(self) -> dict[str, Any]:
        criteria = {
            name: {
                "met": self.verdict(name),
                "probes": [
                    {"probe": probe, "got_out": self.probes[probe][0], "text": self.probes[probe][1]}
                    for probe in probes
                    if probe in self.probes
                ],
            }
            for name, (_, probes) in CRITERIA.items()
        }
        command = shlex.join(self.product.arguments)
        return {"name": self.product.name, "command": command, "python": self.python, "criteria": criteria}


class Planted:
    """What code is to look for on this machine, for one product: a file, a process, a service, a word, a mark."""

    def __init__(self, mib: int, seconds: float) -> None:
        self.word, self.process, self.left = (f"{name}-{secrets.token_hex(8)}" for name in ("word", "process", "left"))
        self.folder = Path(tempfile.mkdtemp(prefix="sandbox-kernel-against-"))
        self.folder.chmod(0o777)
        (self.folder / "planted").write_text(self.word)
        (self.folder / "planted").chmod(0o644)
        line = "import time; time.sleep(3600)"
        self._process = subprocess.Popen([sys.executable, "-c", line, self.process], start_new_session=True)
        self.is_reached = False
        """Whether anybody has connected to the service."""
        self._service = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self._serve, daemon=True).start()
        self.given = {
            "mark": f"@{secrets.token_hex(8)} ",
            "word": self.word,
            "process": self.process,
            "pid": self._process.pid,
            "left": self.left,
            "folder": str(self.folder),
            "port": self._service.getsockname()[1],
            "nowhere": NOWHERE,
            "processes": 300,
            "mib": mib,
            "seconds": seconds,
        }

    def _serve(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                connection, _ = self._service.accept()
                self.is_reached = True
                with connection, suppress(OSError):
                    connection.sendall(self.word.encode())

    def code(self, step: str) -> str:
        """Return a program that asks what belongs to a step."""
        source = INSIDE.read_text(encoding="utf-8")
        return f"{source}\n\nGIVEN.update({self.given!r})\nrun({step!r})\n"

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._service.shutdown(socket.SHUT_RDWR)
        self._service.close()
        shutil.rmtree(self.folder, ignore_errors=True)
        for place in ("/tmp", "/var/tmp", "/dev/shm", "."):  # noqa: S108 (where an unprotected program has written)
            with suppress(OSError):
                Path(place, self.left).unlink()


def compared(products: Iterable[Product], *, mib: int = 1024, seconds: float = 20.0) -> list[Comparison]:
    """Ask each product, one after another."""
    mib = max(64, min(mib, _available_mib() // 4))
    return [_of_product(product, mib, seconds) for product in products]


def _available_mib() -> int:
    with suppress(OSError, ValueError, StopIteration), Path("/proc/meminfo").open(encoding="ascii") as file:
        return int(next(line for line in file if line.startswith("MemAvailable")).split()[1]) >> 10
    return 1024


def _of_product(product: Product, mib: int, seconds: float) -> Comparison:
    found, planted = Comparison(product), Planted(mib, seconds)
    try:
        calls = {}
        for step in STEPS:
            calls[step] = _call(product, planted, step)
            if step == "look":
                left = _process_with(planted.left, LEFT_SECONDS)
                calls[step].left = left is not None
                if left is not None:
                    os.kill(left, signal.SIGKILL)
        _judge(found, calls, planted)
    finally:
        planted.close()
    return found


@dataclass(slots=True)
class Call:
    """One call of a product, and what came of it."""

    said: dict[str, tuple[bool, str]]
    output: bytes
    code: int | None
    """None if it did not end in time."""
    seconds: float
    left: bool = False


def _call(product: Product, planted: Planted, step: str) -> Call:
    code = planted.code(step)
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-call-") as folder:
        file, begun = Path(folder, "program.py"), time.monotonic()
        file.write_text(code, encoding="utf-8")
        names = {"{code}": code, "{file}": str(file), "{folder}": folder}
        arguments = [_NAMES.sub(lambda found: names[found[0]], one) for one in product.arguments]
        takes_input = not re.search(r"\{(?:code|file)\}", " ".join(product.arguments))
        with (
            tempfile.TemporaryFile() as output,
            subprocess.Popen(
                arguments,
                stdin=subprocess.PIPE if takes_input else subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=os.environ | {"SANDBOX_KERNEL_CANARY": planted.word},
                start_new_session=True,
            ) as process,
        ):
            ended: int | None = None
            try:
                process.communicate(code.encode() if takes_input else None, CALL_SECONDS)
                ended = process.returncode
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            seconds = time.monotonic() - begun
            output.seek(0)
            data = output.read(MAX_OUTPUT)
    said: dict[str, tuple[bool, str]] = {}
    for line in data.decode(errors="replace").splitlines():
        _, mark, text = line.partition(str(planted.given["mark"]))
        if mark:
            with suppress(ValueError, TypeError, IndexError):
                probe, got_out, words = json.loads(text[: text.rindex("]") + 1])
                said[str(probe)] = bool(got_out), printable(str(words), 200)
    return Call(said, data, ended, seconds)


def _judge(found: Comparison, calls: Mapping[str, Call], planted: Planted) -> None:
    """Put together what was said inside and what this machine shows."""
    look, probes = calls["look"], found.probes
    found.python = look.said.get("python", (False, ""))[1]
    if not found.python:
        why = printable(look.output[-300:].decode(errors="replace"), 200)
        probes |= {probe: (None, f"it did not run: {why}") for _, names in CRITERIA.values() for probe in names}
        return
    probes |= {probe: said for probe, said in look.said.items() if probe not in {"python", "left-file"}}
    if (planted.folder / "written").exists():
        probes["file-written"] = True, "it wrote a file to this machine"
    if _refused_here():
        probes["outside"] = None, "this machine itself has no way to other machines"
    if look.left:
        probes["left-process"] = True, "a process is left after the call"
    if b"\x1b]0;" + planted.word.encode() in look.output:
        probes["output-terminal"] = True, "a sequence that changes the terminal's title arrives as it is"
    again = calls["again"].said.get("left-file")
    probes["left-file"] = again or (None, "the second call said nothing")
    if planted.is_reached:
        probes["loopback"] = True, "it reaches a service on the machine's loopback"
    for step in ("memory", "processes", "time"):
        call = calls[step]
        how = "it did not end" if call.code is None else f"it ended with {call.code}"
        ended = False, f"{how} after {call.seconds:.0f} s, before it was done"
        probes[step] = call.said.get(step, ended if call.code is not None else (True, ended[1]))
    fail = calls["fail"]
    told = fail.code != 0 or planted.left.encode() in fail.output
    probes["told"] = not told, "an exception is seen from outside" if told else "an exception looks like success"


def _refused_here() -> bool:
    """Return whether this machine refuses at once what is sent to others: then nothing is known of a product."""
    try:
        socket.create_connection((NOWHERE, 9), 2).close()
    except TimeoutError:
        return False
    except OSError:
        return True
    return False


def _process_with(word: str, seconds: float) -> int | None:
    """Return a process of this machine with a word in its command line that is still there after a while."""
    until = time.monotonic() + seconds
    while True:
        found = None
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                words = path.read_bytes().split(b"\0")
                if word.encode() in words and b"-c" in words:
                    found = int(path.parent.name)
        if found is None or time.monotonic() > until:
            return found
        time.sleep(0.2)


# --- what is printed -------------------------------------------------------------------------------------------------


def as_json(found: Sequence[Comparison]) -> str:
    titles = {name: title for name, (title, _) in CRITERIA.items()}
    return json.dumps({"version": 1, "criteria": titles, "products": [one.to_json() for one in found]}, indent=2)


def as_markdown(found: Sequence[Comparison]) -> str:
    """Return a table of verdicts, and a list of what got out of each product."""
    head = ["Product", *(title for title, _ in CRITERIA.values())]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    lines += [f"| {' | '.join([_cell(one.product.name), *map(one.verdict, CRITERIA)])} |" for one in found]
    for one in found:
        command = shlex.join(one.product.arguments).replace("`", "'")
        python = _cell(one.python) or "that did not run"
        lines += ["", f"**{_cell(one.product.name)}** (Python {python}): `{command}`", ""]
        open_ = [f"- {probe}: {_cell(text)}" for probe, (got_out, text) in one.probes.items() if got_out is not False]
        lines += open_ or ["- nothing got out"]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return "".join(f"\\{sign}" if sign in "|<>*_`[]" else sign for sign in printable(text, 200))
