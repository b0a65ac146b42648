"""LibreChat's wire: code in a sandbox, the files that it is given, and those that it makes."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any
from weakref import WeakSet

from ....core.codes import FileCode
from ....core.errors import ConfigurationError, FileRefused
from ....core.model import PYTHON_KERNEL
from ....core.package_files import PACKAGE
from ....files.file_rules import printable, stands_in
from ....policy.safe_text import plain
from ....sdk.client import AsyncSandbox, handle_of
from ....sdk.execution import Execution
from ....sdk.folder_entries import DEEPEST, EntryInfo, FileType
from ....sdk.sandbox_paths import relative
from ..codes import ServeCode
from ..requests import Refusal
from .files import FileStore, StoredContent, StoredFile, StoredSession, pieces

KNOWN = ("py", "js", "ts", "c", "cpp", "java", "php", "rs", "go", "d", "f90", "r", "bash")
"""What LibreChat may ask for."""
OFFERED = {"py": "python", "js": "javascript", "ts": "typescript", "r": "r", "bash": "bash"}
"""Those that an image may have, by our names."""
MAX_OUTPUTS = 100
"""Files of one run that go out."""
MAX_NAMED = 10
"""Of the files that stay, those whose names are told."""
_NOT_OUT = "__pycache__"
_SAVED_FIGURES = Path("plugins", "serve", "inside", "saved_figures.py")
_PREPARED: WeakSet[AsyncSandbox] = WeakSet()
"""Whose kernel shows no figure that it saved."""
_REPLACED = FileCode.NAME_REPLACED.text

Ref = dict[str, Any]


@dataclass(slots=True)
class Ran:
    """What a run said."""

    stdout: str = ""
    stderr: str = ""
    images: list[tuple[str, bytes]] = field(default_factory=list)
    """Their extensions, and what they are."""
    error: str | None = None
    """The name of what ended it from outside."""

    def note(self, line: str) -> None:
        """Say something of our own, where the model reads it."""
        self.stderr += f"{'' if not self.stderr or self.stderr.endswith(chr(10)) else chr(10)}{line}\n"


def check_language(lang: object) -> str:
    """Return a language of LibreChat's. Raises `Refusal` for what is none."""
    if not isinstance(lang, str) or lang not in KNOWN:
        raise Refusal(400, ServeCode.NOT_OFFERED, f"lang is one of {', '.join(KNOWN)}")
    return lang


def not_run(lang: str) -> str | None:
    """Return what is said of a language that no image has, None for others.

    It is an answer and no error: LibreChat shows its model the text of answers alone.
    """
    if lang in OFFERED:
        return None
    return f"This server does not run {lang}. It runs {', '.join(OFFERED)}, where its image has them.\n"


async def run(sandbox: AsyncSandbox, lang: str, code: str, args: Sequence[str], seconds: float | None) -> Ran:
    """Run code. What it fails with is part of what it said."""
    if args and lang not in {"py", "bash"}:
        raise Refusal(400, ServeCode.NOT_OFFERED, f"This server does not offer args for {lang}")
    if lang == "bash":
        return await bash(sandbox, code, args, seconds)
    language = None if sandbox.settings.kernel == PYTHON_KERNEL and lang == "py" else OFFERED[lang]
    try:
        if language is None and sandbox not in _PREPARED:
            source = (PACKAGE / _SAVED_FIGURES).read_text(encoding="utf-8") + "\ninstall_here()"
            await handle_of(sandbox).run_own(f"exec({source!r}, {{'__name__': 'saved_figures'}})", reads="", timeout=60)
            _PREPARED.add(sandbox)
        if args:
            await sandbox.run_code(f"import sys; sys.argv = {['', *args]!r}", language=language)
        said = ran(await sandbox.run_code(code, timeout=seconds, language=language))
    except ConfigurationError as error:
        if error.setting != "language":
            raise
        return Ran(stderr=f"{error.message}\n")
    if said.error is not None:  # the next cell may have a new kernel
        _PREPARED.discard(sandbox)
    return said


async def bash(sandbox: AsyncSandbox, code: str, args: Sequence[str], seconds: float | None, before: str = "") -> Ran:
    """Run code in a Bash of its own. `before` is Python that may change its variables, `env`.

    What it says is read before the cell ends: what a program writes to the kernel's own descriptors may come too late.
    What it leaves running is not waited for.
    """
    language = None if sandbox.settings.kernel == PYTHON_KERNEL else "python"
    cell = (
        "def run(code, args):\n"
        "    import codecs, os, subprocess, sys, threading\n"
        "    env = {n: v for n, v in os.environ.items() if n not in ('FORCE_COLOR', 'CLICOLOR_FORCE', 'CLICOLOR')}\n"
        "    env['NO_COLOR'] = '1'\n"
        f"{before}"
        "    PIPE = subprocess.PIPE\n"
        "    argv = ['bash', '-c', code, 'bash', *args]\n"
        "    found = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=PIPE, stderr=PIPE, env=env)\n"
        "    def copy(source, target):\n"
        "        text = codecs.getincrementaldecoder('utf-8')('replace')\n"
        "        while piece := source.read1(65536):\n"
        "            target.write(text.decode(piece))\n"
        "    pairs = ((found.stdout, sys.stdout), (found.stderr, sys.stderr))\n"
        "    both = [threading.Thread(target=copy, args=pair, daemon=True) for pair in pairs]\n"
        "    for one in both:\n"
        "        one.start()\n"
        "    try:\n"
        "        found.wait()\n"
        "    except BaseException:\n"
        "        found.kill()\n"
        "        raise\n"
        "    for one in both:\n"
        "        one.join(1)\n"
        "    if found.returncode:\n"
        "        print('exit code', found.returncode, file=sys.stderr)\n"
        f"run({code!r}, {list(args)!r}); del run"
    )
    return ran(await sandbox.run_code(cell, timeout=seconds, language=language))


def ran(execution: Execution) -> Ran:
    """Return what an execution said, without colours."""
    said = Ran(plain("".join(execution.logs.stdout)), plain("".join(execution.logs.stderr)))
    for result in execution.results:
        for kind, image in result.pictures:
            extension = kind.removeprefix("image/").replace("jpeg", "jpg")
            with suppress(ValueError):  # with `outputs` at `trusted` it may be anything
                said.images.append((extension, base64.b64decode(image)))
    if (error := execution.error) is not None:
        said.note(plain(str(error) if error.from_sandbox else error.traceback or str(error)))
        said.error = error.name if error.from_sandbox else None
    return said


# --- files ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileState:
    """What tells one state of a file from another, as the sandbox says."""

    size: int
    modified: datetime
    inode: int


class SandboxFolder:
    """The files of one sandbox, and which of those that are kept here they are."""

    def __init__(self) -> None:
        self._same: dict[str, tuple[str, FileState]] = {}
        """By the path: the id of the kept file, and the state of the sandbox's."""
        self._complete = True
        """Whether the last look saw all."""
        self._others: set[str] = set()
        """What the last look saw that is no file and no folder: links, mostly."""

    async def states(self, sandbox: AsyncSandbox) -> dict[str, FileState]:
        """Return the regular files that are not hidden."""
        found = await sandbox.files.list("", DEEPEST)
        self._complete = found.complete
        self._others = {entry.path for entry in found if entry.type is None and _is_shown(entry.path)}
        return {entry.path: _state(entry) for entry in found if entry.type is FileType.FILE and _is_shown(entry.path)}

    async def put(
        self, sandbox: AsyncSandbox, store: FileStore, refs: Sequence[Ref], said: Ran
    ) -> dict[str, FileState]:
        """Put files that are kept here into the sandbox, if they are not there; return what is in it then."""
        found = await self.states(sandbox)
        written = []
        for ref in refs:
            name = str(ref.get("name") or "")
            try:
                session, stored = store.file(ref.get("storage_session_id") or ref.get("session_id"), ref.get("id"))
                path = relative(name or stored.name)
                if self._same.get(path) == (stored.id, found.get(path)):
                    continue
                await sandbox.files.write(path, StoredContent(session, stored).file)
                written.append((path, stored.id))
                if stands_in(path) and path != (given := name or stored.name):
                    said.note(f"{printable(given)!r} is in the sandbox as {path!r}: {_REPLACED}")
            except Refusal as refusal:
                said.note(f"{name[:200]!r} is not there: {refusal}")
            except FileRefused as error:
                said.note(f"{name[:200]!r} is not there: {error.message}")
        if written:
            found = await self.states(sandbox)
            self._same.update({path: (identity, found[path]) for path, identity in written if path in found})
        return found

    async def take(self, sandbox: AsyncSandbox, before: dict[str, FileState], limit: int, said: Ran) -> StoredSession:
        """Return the files that are new or were changed, and the images that were shown."""
        session, others = StoredSession(), self._others
        after = await self.states(sandbox)
        for path in sorted(self._others - others)[:MAX_NAMED]:
            said.note(f"{path!r} was not taken out of the sandbox: it is a link, or no regular file")
        changed = [path for path, state in after.items() if before.get(path) != state]
        for path in changed[:MAX_OUTPUTS]:
            if session.size + after[path].size > limit:
                said.note(f"{path!r} was not taken out of the sandbox: files of one run have up to {limit:,} bytes")
                continue
            if stands_in(path):
                said.note(f"{path!r} was taken out of the sandbox under {_REPLACED}")
            try:
                stored = await session.add(path, await sandbox.files.read(path, "stream"), limit - session.size)
                self._same[path] = (stored.id, after[path])
            except FileRefused as error:
                said.note(f"{path!r} was not taken out of the sandbox: {error.message}")
        if len(changed) > MAX_OUTPUTS:
            left = ", ".join(map(repr, changed[MAX_OUTPUTS : MAX_OUTPUTS + MAX_NAMED]))
            more = ", ..." * (len(changed) > MAX_OUTPUTS + MAX_NAMED)
            words = f"({left}{more}): a run has up to {MAX_OUTPUTS}; put them into an archive"
            said.note(f"{len(changed) - MAX_OUTPUTS} files were not taken out of the sandbox {words}")
        if not self._complete:
            said.note(
                "not all files were taken out of the sandbox: there are more than are looked at, or some lie too deep"
            )
        names = {stored.name for stored in session.files.values()} | after.keys()
        numbers = iter(range(1, MAX_OUTPUTS + len(names) + 2))
        for index, (extension, image) in enumerate(said.images):
            name = next(one for number in numbers if (one := f"figure-{number}.{extension}") not in names)
            if len(session.files) >= MAX_OUTPUTS or session.size + len(image) > limit:
                said.note(f"{len(said.images) - index} pictures that were shown are no files: the run has too many")
                break
            if not any(_is(session, stored, image) for stored in session.files.values()):
                await session.add(name, _once(image), len(image))
        return session


def _state(entry: EntryInfo) -> FileState:
    return FileState(entry.size, entry.modified_time, entry.inode)


def _is_shown(path: str) -> bool:
    return not any(part.startswith(".") or part == _NOT_OUT for part in PurePosixPath(path).parts)


def _is(session: StoredSession, stored: StoredFile, image: bytes) -> bool:
    """Return whether a picture that was shown is a file that goes out anyway."""
    return stored.size == len(image) and session.read(stored.offset, stored.size) == image


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def described(session: StoredSession, stored: StoredFile) -> dict[str, Any]:
    """Return a file as answers to a run have it."""
    return {
        "id": stored.id,
        "fileId": stored.id,
        "name": stored.name,
        "storage_session_id": session.id,
        "session_id": session.id,
        "size": stored.size,
    }


__all__ = ["Ran", "SandboxFolder", "bash", "check_language", "described", "not_run", "pieces", "ran", "run"]
