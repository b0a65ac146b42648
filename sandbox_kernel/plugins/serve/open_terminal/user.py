"""Open Terminal's wire: whose sandbox a request is for, what is kept of it, and where a path leads.

Open WebUI has one key for all of its users, and says by a header which of them asks.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any

from starlette.requests import HTTPConnection, Request
from starlette.responses import Response

from ....core.errors import FileNotThere
from ....sdk.folder_entries import EntryInfo, FileType
from ....sdk.sandbox_paths import folder_of
from ..bodies import reading
from ..codes import ServeCode
from ..home import HOME
from ..replicas import Locus
from ..requests import Refusal, answer, improper, one_header
from ..tenants import TEMPLATE, Lease, Tenant, Tenants

WIRE = "open-terminal"
PREFIX = "/open-terminal"
SECONDS = 1800.0
"""How long the sandbox of a user lasts after a request."""
MAX_ID = 256
MAX_FOLDERS = 256
"""Chats of one user whose folder is known."""


@dataclass(slots=True, eq=False)
class Box:
    """The sandbox of one user, and what the wire keeps of it."""

    lease: Lease
    user: str
    folders: dict[str, str] = field(default_factory=dict)
    """Where each chat is."""
    processes: dict[str, Any] = field(default_factory=dict)
    terminals: dict[str, Any] = field(default_factory=dict)
    notebooks: dict[str, Any] = field(default_factory=dict)

    def folder(self, chat: str) -> str:
        return self.folders.get(chat, HOME)

    def go(self, chat: str, folder: str) -> None:
        """Have a chat be in a folder from now on."""
        self.folders.pop(chat, None)
        self.folders[chat] = folder
        while len(self.folders) > MAX_FOLDERS:
            del self.folders[next(iter(self.folders))]


@dataclass(slots=True, kw_only=True, eq=False)
class UserRequest:
    """A request, and the sandbox that it is for."""

    request: Request
    tenants: Tenants
    box: Box
    chat: str

    @property
    def sandbox(self) -> Any:
        return self.box.lease.sandbox

    def path(self, given: str) -> str:
        """Return where a path leads, as the client has it: what cells may not touch, the sandbox itself refuses."""
        text = HOME + given[1:] if given == "~" or given.startswith("~/") else given
        return posixpath.normpath(posixpath.join(self.box.folder(self.chat), text)).replace("//", "/")

    async def entry(self, path: str) -> EntryInfo | None:
        """Return what is at a path, None for nothing. Raises `FileRefused` for an improper one, and for the home."""
        try:
            found: EntryInfo = await self.sandbox.files.get_info(path)
        except FileNotThere:
            return None
        return found

    async def is_folder(self, path: str) -> bool:
        if not folder_of(path):
            return True
        found = await self.entry(path)
        return found is not None and found.type is FileType.DIR

    async def is_file(self, path: str) -> bool:
        if not folder_of(path):
            return False
        found = await self.entry(path)
        return found is not None and found.type is FileType.FILE


Work = Callable[..., Awaitable[Response]]
Handler = Callable[[Request, Tenants, Tenant], Awaitable[Response]]


class Users:
    """Finds the sandboxes of users."""

    def __init__(self) -> None:
        self._boxes: dict[tuple[str, str], Box] = {}

    async def box(self, request: HTTPConnection, tenants: Tenants, tenant: Tenant) -> Box:
        """Return the sandbox of the user who asks; it is made if there is none. Raises `Refusal`, `SandboxError`."""
        user, digest = _user_of(request)
        seconds = min(SECONDS, tenants.limits.lifetime)
        settings = replace(tenants.templates[TEMPLATE], home=True)
        room = tenants.limits.idle_makes_room
        lease = await tenants.named(tenant, f"{WIRE}/{digest}", seconds, settings=settings, makes_room=room)
        for key in [key for key, box in self._boxes.items() if not box.lease.is_there]:
            del self._boxes[key]
        known = self._boxes.get((tenant.name, digest))
        if known is None or known.lease is not lease:
            known = self._boxes[tenant.name, digest] = Box(lease, user)
        return known

    def where(self, request: HTTPConnection, tenant: Tenant) -> Locus | None:
        """Say whether the sandbox of the user who asks is here, or on its way."""
        try:
            name = f"{WIRE}/{_user_of(request)[1]}"
        except Refusal:  # which the handler tells as this wire does
            return None
        there = name in tenant.making or any(one.name == name and one.is_there for one in tenant.leases.values())
        return Locus(is_here=there, name=f"{tenant.name}/{name}")

    def where_shell_is(self, request: HTTPConnection, nobody: Tenant) -> Locus | None:
        """Say whether the shell of a WebSocket is here. Its id is random; who asks proves itself behind that."""
        identity = request.path_params["session_id"]
        return Locus(is_here=any(identity in box.terminals and box.lease.is_there for box in self._boxes.values()))

    def boxes(self, tenant: Tenant) -> list[Box]:
        return [box for (name, _), box in self._boxes.items() if name == tenant.name and box.lease.is_there]

    def handler(self, work: Work) -> Handler:
        """Return a handler that finds the sandbox of the user who asks."""
        whole = reading(work)

        @wraps(whole)  # with what our page says of it
        async def handle(request: Request, tenants: Tenants, tenant: Tenant) -> Response:
            chat = header(request, "X-Session-Id")
            box = await self.box(request, tenants, tenant)
            return await whole(UserRequest(request=request, tenants=tenants, box=box, chat=chat))

        return handle


def _user_of(request: HTTPConnection) -> tuple[str, str]:
    """Return the user who asks, and what the sandbox is called. Raises `Refusal`."""
    user, context = header(request, "X-User-Id"), header(request, "X-Terminal-Context-Id")
    return user, hashlib.sha256(f"{len(user)}:{user}{context}".encode()).hexdigest()[:32]


def refused(refusal: Refusal) -> Response:
    """Tell a refusal as Open Terminal does."""
    return answer({"detail": str(refusal), "error": refusal.code.code}, refusal.status)


def missing(what: str) -> Refusal:
    return Refusal(404, ServeCode.NOT_THERE, f"{what} not found")


def header(request: HTTPConnection, name: str) -> str:
    """Return an id that Open WebUI sends, "" for none. Raises `Refusal` for two, and for what is no id."""
    found = one_header(request, name) or ""
    if len(found) > MAX_ID or not found.isascii() or (found and not found.isprintable()):
        raise improper(name, f"is up to {MAX_ID} characters of ASCII")
    return found
