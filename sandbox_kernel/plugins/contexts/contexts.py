"""The contexts of one sandbox: the sandbox's own kernel, and those that its caller adds.

Each that is added is a session within the session of the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import posixpath
import re
from collections import defaultdict
from dataclasses import replace

from ...core.codes import EndCode, Survived, UsageCode
from ...core.errors import ConfigurationError, KernelDied, wrong_argument
from ...core.events import SessionEvent
from ...core.model import KERNEL_NAME, PYTHON_KERNEL, SCRATCH
from ...core.tasks import Tasks, noted_in
from ...sdk.values import Context
from ..api import OwnedSession, SandboxHandle
from .codes import ContextCode
from .nested_agents import NestedEngine

KERNELS = {
    "python": PYTHON_KERNEL,
    "r": "ir",
    "javascript": "deno",
    "js": "deno",
    "typescript": "deno",
    "ts": "deno",
}
"""Languages whose kernels have another name. Any other is the name of a kernelspec, or the language that one says."""
SHORT = {"js": "javascript", "ts": "typescript"}
LANGUAGES = {PYTHON_KERNEL: "python", "ir": "r", "deno": "typescript"}
OF_SANDBOX = ("network", "secrets", "packages", "monitor")
"""What the sandbox's own session does for all of its kernels."""
MAX_PATH = 1000
MAX_KERNELSPECS = 100
"""Kernels of an image that are looked at; the sandbox names them."""
_WORD = re.compile(KERNEL_NAME)


class ContextMade(SessionEvent):
    """A sandbox has a further kernel."""

    name = "context"
    context: str
    kernel: str | None
    cwd: str | None


class Contexts:
    """See the module. Methods raise `ConfigurationError` for what there is not, and `SandboxError` for what fails."""

    def __init__(self, instance: SandboxHandle) -> None:
        self._instance = instance
        self._own = Context(id=instance.session.id, language=_language(instance.settings.kernel), cwd=SCRATCH)
        self._tasks = Tasks(noted_in(instance.session.emit))
        self._made: dict[str, tuple[Context, OwnedSession]] = {}
        self._offered: dict[str, str] = {}
        """Kernels by the contexts that were listed before one was there."""
        self._of_language: dict[str, str] = {}
        """The context of each kernel that runs cells which name a language alone."""
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """By kernel, so that calls which begin together make one context and not several."""

    async def create(self, language: str | None, cwd: str | None) -> Context:
        """See `AsyncSandbox.create_context`."""
        instance = self._instance
        await instance.ready(fresh=True)
        kernel = await self._kernel(language)
        folder = _folder(cwd)
        settings = instance.settings.without(*OF_SANDBOX)
        settings = replace(settings, kernel=kernel, uploads=None, downloads=None)
        session = instance.session_within(settings, NestedEngine(instance.session.open_nested, folder))
        try:
            await session.started()
            instance.check()
        except BaseException:
            await self._close(session)
            instance.check()  # killed meanwhile: that is the reason, then
            raise
        context = Context(id=session.id, language=_language(kernel, language), cwd=folder)
        self._made[context.id] = context, session
        instance.session.emit(ContextMade(context=context.id, kernel=kernel, cwd=folder))
        return context

    def all(self) -> list[Context]:
        """See `AsyncSandbox.list_contexts`."""
        return [self._own, *(context for context, _ in self._made.values())]

    async def offered(self) -> list[Context]:
        """Return all, and one for each other language of the image, whose kernel starts with its first cell."""
        offered = []
        for kernel in await self._kernelspecs():
            if kernel in {PYTHON_KERNEL, self._instance.settings.kernel, *self._of_language}:
                continue
            for language in _languages(kernel):
                identity = hashlib.sha256(f"{self._own.id}/{language}".encode()).hexdigest()[:32]
                self._offered[identity] = kernel
                offered.append(Context(id=identity, language=language, cwd=SCRATCH))
        own, *made = self.all()
        return [own, *offered, *made]

    async def restart(self, context: Context | str) -> None:
        """See `AsyncSandbox.restart_context`."""
        session = await self.session(context, None)
        await session.renew()
        await session.settled()
        self._instance.check()
        if session.failure is not None:
            raise session.failure

    async def remove(self, context: Context | str) -> None:
        """See `AsyncSandbox.remove_context`."""
        session = self._session(context)
        if session is self._instance.session:
            raise ConfigurationError(ContextCode.CONTEXT_OF_SANDBOX, value=session.id, setting="context")
        del self._made[session.id]
        self._of_language = {kernel: one for kernel, one in self._of_language.items() if one != session.id}
        session.lose_cells(KernelDied(EndCode.CONTEXT_DIED, kept=Survived.FILES))
        await self._close(session)

    async def _close(self, session: OwnedSession) -> None:
        """End one, to the end even if the caller gives up."""
        await asyncio.shield(self._tasks.hold(session.close(), "the end of a context"))

    async def session(self, context: Context | str | None, language: str | None) -> OwnedSession:
        """Return what runs a cell: in a context, or in the one of its language, which is made if there is none."""
        if context is not None and language is not None:
            raise ConfigurationError(
                UsageCode.NOT_TOGETHER, "give a context or a language, and not both", setting="context"
            )
        if context is not None:
            identity = context.id if isinstance(context, Context) else context
            if identity not in self._offered:
                return self._session(context)
            language = self._offered[identity]
        if (kernel := await self._kernel(language)) == self._instance.settings.kernel:
            return self._instance.session
        async with self._turns[kernel]:
            if kernel not in self._of_language:
                self._of_language[kernel] = (await self.create(language, None)).id
            return self._made[self._of_language[kernel]][1]

    def _session(self, context: Context | str) -> OwnedSession:
        identity = context.id if isinstance(context, Context) else context
        if identity == self._own.id:
            return self._instance.session
        if not isinstance(identity, str) or identity not in self._made:
            raise ConfigurationError(ContextCode.CONTEXT_UNKNOWN, value=str(identity)[:100], setting="context")
        return self._made[identity][1]

    async def _kernel(self, language: str | None) -> str:
        """Return the kernelspec for a language. Raises `ConfigurationError` if the image has none."""
        if language is None:
            return self._instance.settings.kernel
        if not isinstance(language, str) or not _WORD.fullmatch(language):
            raise wrong_argument("language", f"{str(language)[:100]!r} is no name of a language")
        word = language.lower()
        if (kernel := KERNELS.get(word, word)) in {PYTHON_KERNEL, self._instance.settings.kernel}:
            return kernel
        found = await self._kernelspecs()
        for name, said in found.items():
            if name == kernel or said == word:
                return name
        has = ", ".join(["python", *(_language(name) for name in found)])
        code = ContextCode.LANGUAGE_UNKNOWN.note(image=self._instance.settings.image, language=language, has=has)
        raise ConfigurationError(code, value=language, setting="language")

    async def _kernelspecs(self) -> dict[str, str]:
        """Return the kernelspecs of the image, each with its language; the sandbox says what it likes."""
        await self._instance.ready(fresh=True)
        said = await self._instance.session.nested_kernelspecs()
        rows = [row for row in said[:MAX_KERNELSPECS] if isinstance(row, dict)] if isinstance(said, list) else []
        return {
            row["name"]: row["language"][:100].lower() if isinstance(row.get("language"), str) else ""
            for row in rows
            if isinstance(row.get("name"), str) and _WORD.fullmatch(row["name"])
        }


def _language(kernel: str, asked: str | None = None) -> str:
    """Return the language of a kernel, by the name that it was `asked` for if it has several."""
    word = "" if asked is None else asked.lower()
    return SHORT.get(word, word) if KERNELS.get(word) == kernel else LANGUAGES.get(kernel, kernel)


def _languages(kernel: str) -> list[str]:
    """Return the languages of a kernel, by their whole names."""
    words = [word for word, name in KERNELS.items() if name == kernel and word not in SHORT]
    return words or [_language(kernel)]


def _folder(cwd: object) -> str:
    """Return the folder in which a context begins. Raises `ConfigurationError`."""
    if cwd is None:
        return SCRATCH
    if not isinstance(cwd, str) or not cwd or "\0" in cwd or len(cwd) > MAX_PATH:
        raise wrong_argument("cwd", f"cwd is a path in the sandbox of up to {MAX_PATH} characters")
    return posixpath.normpath(posixpath.join(SCRATCH, cwd))
