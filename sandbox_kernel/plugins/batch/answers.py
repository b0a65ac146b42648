"""Answers of earlier runs: the same code, inputs, image and settings need no second run.

An answer is a file of the user's own, `~/.cache/sandbox-kernel/runs/KEY`: a digest of the rest, and a ZIP archive with
report, notebook and files. The key is a digest of all that the run depends on. The digest finds damage, and nobody but
the user can write there; it is no signature.
"""

from __future__ import annotations

import ast
import asyncio
import hashlib
import io
import json
import os
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ... import __version__
from ...config.sources import SETTINGS
from ...core.errors import FileRefused, SandboxError
from ...core.model import Settings
from ...engines.inspectable import ImageInfo
from ...engines.select import chosen, make_engine_of_all
from ...files.file_rules import check_name
from ...files.host_paths import Folder, open_folder
from .input_files import InputFile
from .private_folder import below_home, private
from .run import RunPlan
from .run_report import RunReport, moment
from .source_notebook import is_run

FORM = 1
"""Of an entry: one of another form is not found."""
MAX_ENTRY = 64 << 20
"""Bytes of one answer, packed or not. A larger one is not kept."""
MAX_CACHE = 1 << 30
"""Bytes of all; the oldest make room."""
MAX_ENTRIES = 1000
_MODULES = frozenset(
    ("random", "secrets", "uuid", "time", "subprocess", "socket", "importlib", "runpy", "ctypes")
)  # fmt: skip
_NAMES = frozenset(
    (
        *("now", "today", "utcnow", "time", "time_ns", "monotonic", "perf_counter", "gmtime", "localtime", "strftime"),
        *("ctime", "urandom", "getrandom", "rand", "randn", "randint", "random", "random_sample", "default_rng"),
        *("RandomState", "choice", "permutation", "shuffle", "sample", "getpid", "system", "popen", "exec", "eval"),
        "__import__",
    )
)
"""Names of functions that give another answer each time, or hide which ones are called."""


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What an earlier run left."""

    report: dict[str, Any]
    notebook: str
    files: dict[str, bytes]


def why_not(plan: RunPlan, *, signed: bool) -> str | None:
    """Return why such a run is never answered from earlier ones; None if it may be."""
    for name in ("network", "secrets"):
        if plan.settings.get(name, ()):
            return f"its cells may connect ({name})"
    for name in ("datasets", "volumes", "audit"):
        if plan.settings.get(name, None):
            return f"the setting {name} is about more than an answer has"
    if plan.settings.uploads is not None:
        return "what will be in the folder of uploads is not known"
    if plan.settings.plugins:
        return "plugins of other packages take part in it"
    return "its receipt is of a run that took place" if signed else None


def unsteady(plan: RunPlan) -> str | None:
    """Return what in a run may give another answer the next time; None if nothing was found."""
    if plan.install or plan.settings.get("packages", ()):
        return "it installs packages"
    for cell in plan.source.notebook.cells:
        if is_run(cell) and (found := _unsteady(cell.source)) is not None:
            return found
    return None


def _unsteady(code: str) -> str | None:
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "a cell is not plain Python: a magic, or a command of the shell"
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                modules = {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names):
                modules = {module, *(alias.name for alias in names if alias.name in _NAMES)}
            case ast.Name(id=name) | ast.Attribute(attr=name):
                modules = {name} & _NAMES
            case _:
                continue
        if found := sorted(one for one in modules if one in _NAMES or one.partition(".")[0] in _MODULES):
            return f"the code uses {found[0]}"
    return None


async def image_of(settings: Settings) -> ImageInfo:
    """Return what the engine has under the name of the image. Raises `EngineError`."""
    return await (await make_engine_of_all(settings)).image(settings.image)


def key(plan: RunPlan, image: ImageInfo, inputs: Iterable[dict[str, Any]]) -> str:
    """Return the digest of all that a run depends on; `inputs` have path, size and digest."""
    settings = plan.settings
    kept = {one.name: one.form.kept(one.value(settings)) for one in SETTINGS.values() if one.scope in _MATTER}
    whole = {
        "form": FORM,
        "package": __version__,
        "source": [plan.source.kind, plan.source.stem, plan.source.sha256],
        "parameters": plan.source.parameters,
        "install": plan.install,
        "inputs": sorted((row["path"], row["sha256"]) for row in inputs),
        "image": [settings.image, image.identity, image.contents],
        "settings": kept | {"engine": chosen(settings)},
        "rules": [plan.allow_errors, plan.fail_on, plan.total_seconds],
        "as": None if plan.variation is None else plan.variation.word,
    }
    text = json.dumps(whole, sort_keys=True, separators=(",", ":"), ensure_ascii=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


_MATTER = ("sandbox", "session")


def rows_of(plan: RunPlan) -> Iterator[dict[str, Any]]:
    """Read all inputs; yield path, size and digest of each."""
    for item in plan.inputs.files:
        reader = InputFile(item)
        with reader.opened() as file:
            while file.read():
                pass
        yield reader.row()


class Answers:
    """The answers of this user."""

    def __init__(self, path: Path | None = None) -> None:
        """Raises `ConfigurationError` for a folder that is not the user's own."""
        self._folder = private(path or below_home(".cache", "sandbox-kernel", "runs"))

    def find(self, name: str) -> tuple[KeptAnswer | None, str | None]:
        """Return the answer with that key, or None; and what is wrong with one that is damaged."""
        try:
            with os.fdopen(self._folder.open_file(name), "rb") as file:
                data = file.read(MAX_ENTRY + 100)
        except FileNotFoundError:
            return None, None
        except (OSError, FileRefused) as error:
            return None, str(error)
        digest, _, packed = data.partition(b"\n")
        if digest.decode("ascii", "replace") != _digest(name, packed):
            return None, "its digest is another one"
        try:
            return _unpacked(packed), None
        except (ValueError, KeyError, TypeError, OSError, zipfile.BadZipFile, RecursionError) as error:
            return None, f"it cannot be read: {error}"

    def keep(self, name: str, report: RunReport, notebook: str, files: Folder) -> str | None:
        """Keep the answer of a run that has ended; return why it is not kept."""
        packed = io.BytesIO()
        total = len(notebook) + sum(row["bytes"] for row in report.files)
        if total > MAX_ENTRY:
            return f"it is larger than {MAX_ENTRY >> 20} MB"
        with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("report.json", json.dumps(report.to_json()))
            archive.writestr("notebook", notebook.encode("utf-8", "backslashreplace"))
            for row in report.files:
                with os.fdopen(files.open_file(row["path"]), "rb") as file:
                    archive.writestr(f"files/{row['path']}", file.read(row["bytes"]))
        data = packed.getvalue()
        if len(data) > MAX_ENTRY:
            return f"it is larger than {MAX_ENTRY >> 20} MB"
        self._make_room(len(data))
        with self._folder.create(name) as made:
            made.write(_digest(name, data).encode() + b"\n" + data)
            made.commit()
        return None

    def _make_room(self, size: int) -> None:
        """Remove the oldest, as far as there would be too many bytes or files."""
        there = []
        for name in os.listdir(self._folder.handle):  # noqa: PTH208 (the folder that was checked)
            with suppress(OSError):
                status = os.stat(name, dir_fd=self._folder.handle, follow_symlinks=False)
                there.append((status.st_mtime, status.st_size, name))
        there.sort()
        total, count = sum(one[1] for one in there) + size, len(there) + 1
        for _, bytes_there, name in there:
            if total <= MAX_CACHE and count <= MAX_ENTRIES:
                break
            with suppress(OSError):
                os.unlink(name, dir_fd=self._folder.handle)
            total, count = total - bytes_there, count - 1


def _digest(name: str, packed: bytes) -> str:
    return hashlib.sha256(name.encode() + b"\n" + packed).hexdigest()


def _unpacked(packed: bytes) -> KeptAnswer:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        if sum(one.file_size for one in archive.infolist()) > MAX_ENTRY + (8 << 20):
            raise ValueError("it is too large")
        report = json.loads(archive.read("report.json"))
        names = [row["path"] for row in report["output"]["files"]]
        if not isinstance(report["exit"]["code"], int) or not isinstance(report["started"], str):
            raise TypeError("it has no report")
        files = {str(name): archive.read(f"files/{name}") for name in names}
        return KeptAnswer(report, archive.read("notebook").decode(), files)


def give(answer: KeptAnswer, plan: RunPlan, report: RunReport) -> None:
    """Write an answer where the run would have written its own, and the report as it was. Raises `SandboxError`."""
    report.notebook_sha256 = plan.notebook.write(answer.notebook)
    for path, data in answer.files.items():
        parent, _, name = str(check_name(path)).rpartition("/")
        place = open_folder(plan.files.path / parent, make=True) if parent else plan.files
        with place.create(name) as made:
            made.write(data)
            made.commit()
    report.files = answer.report["output"]["files"]
    report.notebook, report.output = str(plan.notebook.path), str(plan.files.path)
    report.answered = answer.report | {
        "notebook": report.notebook,
        "output": {"folder": report.output, "files": report.files},
        "cached": {"first_run": answer.report["started"], "at": moment(report.started)},
    }


@dataclass(slots=True)
class CachedRun:
    """A run that may be answered from earlier ones."""

    answers: Answers
    image: ImageInfo
    key: str

    @classmethod
    def of(cls, plan: RunPlan, *, signed: bool, always: bool) -> CachedRun | str:
        """Return it, or why the run has to take place. Raises `SandboxError`."""
        if (reason := why_not(plan, signed=signed)) is not None:
            return reason
        if not always and (reason := unsteady(plan)) is not None:
            return f"{reason}; --cached-always takes an earlier answer all the same"
        image = asyncio.run(image_of(plan.settings))
        if not (image.identity or image.contents):
            return "the engine does not say which image that is"
        return cls(Answers(), image, key(plan, image, rows_of(plan)))

    def keep(self, plan: RunPlan, report: RunReport, notebook: str) -> str | None:
        """Keep what the run has left; return why not. An input that changed meanwhile has another key."""
        if key(plan, self.image, report.inputs) != self.key:
            return "an input has changed meanwhile"
        try:
            return self.answers.keep(self.key, report, notebook, plan.files)
        except (OSError, SandboxError) as error:
            return str(error)
