"""LibreChat's wire: its code interpreter, under `/librechat/v1`.

A request that has a `runtime_session_hint`, the id of a conversation, has the sandbox of that; others have a new one,
which ends with them. Files are kept here in between.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from ....core.errors import FileRefused, SandboxError
from ....core.model import PYTHON_KERNEL
from ....files.file_rules import CHUNK_BYTES, FileLimits
from ....sdk.sandbox_paths import relative
from ...tools.tools import Tool, Tools
from ..bodies import reading
from ..codes import ServeCode
from ..forms import FormFile, form_of
from ..guard import RouteGuard
from ..replicas import Locus
from ..requests import Refusal, answer, improper, while_there
from ..streams import Download, begun
from ..tenants import TEMPLATE, Lease, Tenant, Tenants
from . import cells
from .bodies import InConversation, RunBody, RunProgram
from .files import MAX_BYTES, FileStore, StoredFile, StoredSession, new_id, pieces
from .programs import CALL_SECONDS, Bridge, TenantPrograms, ToolProgram, bash_lines, end_of, python_lines

PREFIX = "/librechat/v1"
WIRE = "librechat"
SECONDS = 1800.0
"""How long the sandbox of a conversation lasts after a request."""
IDLE_SECONDS = 60.0
"""After which the sandbox of a conversation makes room for that of another: its files are kept."""
RETRY_SECONDS = 10
MAX_FIELDS = 8

Handler = Callable[..., Awaitable[Response]]


class Conversation:
    """What is kept of a conversation beside its sandbox, which may be made again."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.bridge = Bridge()
        self.waiting = 0
        self.folder = cells.SandboxFolder()
        self.lease = ""
        """Whose files the folder is about."""


class OfTenant:
    def __init__(self) -> None:
        self.store = FileStore()
        self.programs = TenantPrograms()
        self.conversations: dict[str, Conversation] = {}


class LibreChat:
    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self._of: dict[str, OfTenant] = {}
        self._limit = min(FileLimits.of(tenants.templates[TEMPLATE].limits).file_bytes, MAX_BYTES)
        tenants.tools[WIRE] = lambda tenant, name: self._tools(lambda: self._conversation(tenant, name).bridge)

    def of(self, tenant: Tenant) -> OfTenant:
        return self._of.setdefault(tenant.name, OfTenant())

    def where(self, request: HTTPConnection, tenant: Tenant) -> Locus:
        """Say whether this replica has what is kept of a tenant: files, conversations and programs are at one."""
        return Locus(is_here=tenant.name in self._of, name=f"{tenant.name}/{WIRE}")

    # --- code ---------------------------------------------------------------------------------------------------------

    async def execute(self, request: Request, tenants: Tenants, tenant: Tenant, body: RunBody) -> Response:
        """Run code to its end. A client that goes interrupts it."""
        lang, refs = cells.check_language(body.lang), self._refs(body, tenant)
        if (words := cells.not_run(lang)) is not None:
            return answer({"status": "completed", "session_id": new_id(), "stdout": "", "stderr": words, "files": []})

        async def work(lease: Lease) -> cells.Ran:
            return await cells.run(lease.sandbox, lang, body.code, body.args, None)

        said, rest = await while_there(request, self._run(tenant, _hint(body), refs, work))
        return answer({"status": "completed", "stdout": said.stdout, "stderr": said.stderr, **rest})

    async def program(self, request: Request, tenants: Tenants, tenant: Tenant, body: RunProgram) -> Response:
        """Run code that may call tools of the client's, or go on with their results."""
        programs, code = self.of(tenant).programs, body.code
        if body.continuation_token is not None:
            program = programs.take(body.continuation_token)
            program.give(body.tool_results)
            return answer(await while_there(request, programs.answer(program)))
        if code is None or body.tools is None:
            raise improper("code and tools", "are needed, or a continuation_token")
        lang, names = cells.check_language(body.lang), [one.name for one in body.tools]
        if lang not in {"py", "bash"}:
            raise Refusal(400, ServeCode.NOT_OFFERED, f"This server does not offer tools for {lang}")
        hint, refs, seconds = _hint(body), self._refs(body, tenant), self._seconds(body)
        conversation = self._conversation(tenant, hint)
        programs.check_room()
        program = ToolProgram(names)

        async def work(lease: Lease) -> cells.Ran:
            conversation.bridge.program = program
            try:
                if lang == "bash":
                    lines, before = bash_lines(names)
                    return await cells.bash(lease.sandbox, lines + code, (), seconds, before)
                await lease.sandbox.run_code(python_lines(names))
                return await cells.run(lease.sandbox, "py", code, (), seconds)
            finally:
                conversation.bridge.program = None

        async def whole() -> dict[str, Any]:
            programs.running += 1
            try:
                return end_of(*await self._run(tenant, hint, refs, work, conversation))
            finally:
                programs.running -= 1

        program.start(tenants.tasks.hold(whole(), "a program that calls tools"))
        return answer(await while_there(request, programs.answer(program)))

    def _seconds(self, body: RunProgram) -> float | None:
        longest = self._tenants.templates[TEMPLATE].limits.cell_timeout
        return None if body.timeout is None else max(1.0, min(body.timeout / 1000, longest))

    def _refs(self, body: InConversation, tenant: Tenant) -> list[cells.Ref]:
        """Return the files that a run is to have; those of its session if it names none."""
        if body.files or not body.session_id:
            return body.files
        try:
            session = self.of(tenant).store.session(body.session_id)
        except Refusal:
            return []
        return [cells.described(session, stored) for stored in session.files.values()]

    def _conversation(self, tenant: Tenant, hint: str) -> Conversation:
        """Return a conversation; those without a sandbox are forgotten."""
        if not hint:
            return Conversation()
        known = self.of(tenant).conversations
        there = {lease.name for lease in self._tenants.all_of(tenant)}
        for name, one in list(known.items()):
            if name not in there and not one.waiting:
                del known[name]
        return known.setdefault(hint, Conversation())

    async def _run(
        self,
        tenant: Tenant,
        hint: str,
        refs: list[cells.Ref],
        work: Callable[[Lease], Awaitable[cells.Ran]],
        conversation: Conversation | None = None,
    ) -> tuple[cells.Ran, dict[str, Any]]:
        """Do something in the sandbox of a conversation, one at a time, with its files."""
        one = conversation or self._conversation(tenant, hint)
        if one.waiting >= self._tenants.limits.calls_per_sandbox:
            words = f"{one.waiting} calls run or wait in the sandbox, which is the limit. Wait for one of them"
            raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)
        one.waiting += 1
        try:
            async with one.lock:
                lease = await self._lease(tenant, hint, one)
                lease.calls += 1
                try:
                    return await self._with_files(tenant, one, lease, refs, work, lasts=bool(hint))
                finally:
                    lease.calls -= 1
                    if not hint:
                        self._tenants.tasks.start(self._tenants.end(lease), "the end of a sandbox of one request")
        finally:
            one.waiting -= 1

    async def _lease(self, tenant: Tenant, hint: str, one: Conversation) -> Lease:
        settings, tools = self._tenants.templates[TEMPLATE], self._tools(lambda: one.bridge)
        seconds = min(SECONDS, self._tenants.limits.lifetime)
        if hint:
            return await self._tenants.named(tenant, hint, seconds, makes_room=IDLE_SECONDS, tools=tools)
        return await self._tenants.create(tenant, TEMPLATE, settings, seconds, f"{WIRE}/{new_id()}", tools=tools)

    def _tools(self, bridge: Callable[[], Bridge]) -> Tools | None:
        """Return what the sandbox of a conversation may call; its program is there at the call."""
        if self._tenants.templates[TEMPLATE].kernel != PYTHON_KERNEL:
            return None

        async def call_tool(name: str, arguments: Any) -> Any:
            """Call a tool of the agent that runs this program."""
            return await bridge().call_tool(name, arguments)

        tool = Tool.of(call_tool, seconds=CALL_SECONDS, stops_clock=True)
        return Tools([tool], seconds=CALL_SECONDS, at_once=64)

    async def _with_files(
        self,
        tenant: Tenant,
        one: Conversation,
        lease: Lease,
        refs: list[cells.Ref],
        work: Callable[[Lease], Awaitable[cells.Ran]],
        *,
        lasts: bool,
    ) -> tuple[cells.Ran, dict[str, Any]]:
        is_new = one.lease != lease.id
        if is_new:
            one.lease, one.folder = lease.id, cells.SandboxFolder()
        store, notes = self.of(tenant).store, cells.Ran()
        before = await one.folder.put(lease.sandbox, store, refs, notes)
        said = await work(lease)
        if notes.stderr:
            said.note(notes.stderr.rstrip("\n"))
        try:
            session = await one.folder.take(lease.sandbox, before, self._limit, said)
        except SandboxError as error:  # it ended with its cell, which has said why
            session = StoredSession()
            said.note(f"no files were taken out of the sandbox: {error.message}")
        if session.files:
            store.keep(session)
        rest: dict[str, Any] = {
            "session_id": session.id,
            "files": [cells.described(session, stored) for stored in session.files.values()],
        }
        if lasts:
            rest |= {"runtime_session_id": lease.id, "runtime_status": "new" if is_new else "reused"}
        return said, rest

    # --- files --------------------------------------------------------------------------------------------------------

    async def upload(self, request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        """Keep a file, or several."""
        async with tenant.uploads, form_of(request, self._limit, MAX_FIELDS) as files:
            session, rows = StoredSession(), []
            for one in files:
                name = one.filename
                try:
                    if one.size > self._limit:
                        raise Refusal(413, ServeCode.BODY_TOO_LARGE, f"A file may have {self._limit:,} bytes")
                    stored = await session.add(relative(name), _chunks(one), self._limit)
                    rows.append({"status": "success", "fileId": stored.id, "filename": stored.name})
                except (FileRefused, Refusal) as error:
                    if not request.url.path.endswith("/batch"):
                        raise
                    rows.append({"status": "error", "filename": name[:200], "error": str(error)})
        succeeded = len(session.files)
        if succeeded:
            self.of(tenant).store.keep(session)
        return answer(
            {
                "message": "success" if succeeded else "error",
                "session_id": session.id,
                "storage_session_id": session.id,
                "files": rows,
                "succeeded": succeeded,
                "failed": len(rows) - succeeded,
            }
        )

    async def download(self, request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        """Send a kept file."""
        session, stored = self._found(request, tenant)
        headers = {
            "Content-Length": str(stored.size),
            "Content-Disposition": "attachment",
            "X-Content-Type-Options": "nosniff",
            "Cache-Control": "no-store",
        }
        return Download(await begun(pieces(session, stored)), headers=headers, media_type="application/octet-stream")

    async def files(self, request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        """List the files of a session."""
        session = self.of(tenant).store.session(request.path_params["session_id"])
        return answer([_object(session, stored) for stored in session.files.values()])

    async def show(self, request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        """Say what a kept file is."""
        return answer(_object(*self._found(request, tenant)))

    async def remove(self, request: Request, tenants: Tenants, tenant: Tenant) -> Response:
        """Keep a file no more."""
        self.of(tenant).store.remove(request.path_params["session_id"], request.path_params["file_id"])
        return Response(status_code=204)

    def _found(self, request: Request, tenant: Tenant) -> tuple[StoredSession, StoredFile]:
        return self.of(tenant).store.file(request.path_params["session_id"], request.path_params["file_id"])


def _object(session: StoredSession, stored: StoredFile) -> dict[str, Any]:
    suffix = stored.name.rpartition("/")[2].rpartition(".")
    return {
        **cells.described(session, stored),
        "name": f"{session.id}/{stored.id}{f'.{suffix[2]}' if suffix[0] else ''}",
        "lastModified": session.made.isoformat().replace("+00:00", "Z"),
        "metadata": {"original-filename": stored.name},
    }


async def _chunks(file: FormFile) -> AsyncIterator[bytes]:
    while piece := file.read(CHUNK_BYTES):
        yield piece
        await asyncio.sleep(0)


def _hint(body: InConversation) -> str:
    """Return the name of the sandbox that a request is about, "" for a new one."""
    hint = body.runtime_session_hint
    return hint and f"{WIRE}/{hashlib.sha256(hint.encode(errors='backslashreplace')).hexdigest()[:32]}"


def _said(refusal: Refusal) -> Response:
    """Tell a refusal: that of too much in LibreChat's own words, which it shows its model."""
    if refusal.status != 429:
        return refusal.response()
    words = {"code": 429, "message": str(refusal), "error": "rate_limited", "retry_after_seconds": RETRY_SECONDS}
    return answer(words, 429)


def routes(guard: RouteGuard) -> Iterable[BaseRoute]:
    wire = LibreChat(guard.tenants)
    file = "{session_id}/{file_id}"
    for method, path, handler in (
        ("POST", "/exec", wire.execute),
        ("POST", "/exec/programmatic", wire.program),
        ("POST", "/upload", wire.upload),
        ("POST", "/upload/batch", wire.upload),
        ("GET", f"/download/{file}", wire.download),
        ("GET", "/files/{session_id}", wire.files),
        ("DELETE", f"/files/{file}", wire.remove),
        ("GET", "/sessions/{session_id}/objects/{file_id}", wire.show),
        ("DELETE", "/sessions/{session_id}/objects/{file_id}", wire.remove),
    ):
        yield guard.route(method, PREFIX + path, reading(handler), guard.signed, where=wire.where, form=_said)
