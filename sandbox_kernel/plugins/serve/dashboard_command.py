"""`sandbox-kernel dashboard`: the page, about the sandboxes of an engine or a broker, for whoever starts it."""

from __future__ import annotations

import argparse
import asyncio
from typing import TYPE_CHECKING

from ...config.sources import from_files_for_all, merged, resolve
from ...core.codes import EndCode
from ...core.errors import ConfigurationError, EngineUnavailable
from ...core.model import SandboxSample, Settings, format_bytes
from ...engines.inspectable import Crowded, CrowdInfo, Inspectable, Listed, use_of, user_of
from ...engines.select import make_engine_of_all
from ..mcp.server_process import asked_to_end, require_packages, say
from .codes import ServeCode

if TYPE_CHECKING:
    from .dashboard import Board, Rates, SandboxRow, Shared, UserRow
    from .tenants import Tenant

PORT = 8810
LIST_SECONDS = 20.0
"""For an engine's list; a page that is not read again says so."""
NEEDED = ("starlette", "uvicorn")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--port", type=int, default=PORT, metavar="N", help="on this machine alone; 0 is any (default: %(default)s)"
    )


def dashboard(options: argparse.Namespace) -> int:
    """Serve a page that shows all sandboxes this user may see: whose, since when, what they use.

    It changes nothing, and is for this machine alone: the address that is printed has a token of this run. Root sees
    the sandboxes of all users. Of a broker it shows its users, too, what they were refused, and what it has ready.
    """
    settings = resolve(merged(from_files_for_all(), options.values))
    require_packages(NEEDED, "serve", "the dashboard")
    if not 0 <= options.port <= 65535:
        raise ConfigurationError(ServeCode.REQUEST_IMPROPER, "port must be 0 to 65535", setting="port")
    asyncio.run(_serve(options.port, settings))
    return 0


async def _serve(port: int, settings: Settings) -> None:
    from starlette.applications import Starlette
    from starlette.middleware import Middleware

    from .dashboard import routes
    from .guard import RouteGuard
    from .place import ServerAddress
    from .tenants import ServeLimits, Tenants
    from .token_file import METRICS, Tokens, new_token
    from .web_server import RequestFilter, WebServer

    engine = await make_engine_of_all(settings)
    place = ServerAddress(host="127.0.0.1", port=port)
    listener = place.listen()
    token = new_token()
    guard = RouteGuard(Tenants({}, ServeLimits()), Tokens([(METRICS, token)]))
    app = Starlette(
        routes=list(routes(guard, OfEngine(engine))), middleware=[Middleware(RequestFilter, known=place.known())]
    )
    web = WebServer(app)
    stop = asked_to_end()
    serving = asyncio.create_task(web.serve(sockets=[listener]))
    say(f"http://127.0.0.1:{listener.getsockname()[1]}/dashboard#{token}\nabout the engine {engine.address}")
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    web.should_exit = True
    await serving


class OfEngine:
    """The sandboxes of an engine, as far as it shows them to this process's user."""

    def __init__(self, engine: Inspectable) -> None:
        from .dashboard import Rates, Shared

        self._engine = engine
        self._rates: Rates = Rates()
        self._board: Shared[Board] = Shared(self._read)

    async def read(self, observer: Tenant) -> Board:
        """Return all of it: there is one token."""
        return await self._board.get()

    async def _read(self) -> Board:
        from .dashboard import Board

        try:
            async with asyncio.timeout(LIST_SECONDS):
                listed = await self._engine.list()
                uses = await use_of(self._engine, [one.container for one in listed])
                crowd = await self._engine.crowd() if isinstance(self._engine, Crowded) else None
        except TimeoutError:
            raise EngineUnavailable(EndCode.ENGINE_SILENT, limit=f"{LIST_SECONDS:g} s") from None
        rows = tuple(self._row(one, use) for one, use in zip(listed, uses, strict=True))
        self._rates.forget(one.container for one in listed)
        facts = [("sandboxes", f"{len(rows)}")]
        if crowd is not None:
            facts = [
                ("sandboxes", f"{sum(one.sandboxes for one in crowd.users)} of {crowd.most}"),
                ("ready", f"{crowd.ready} of {crowd.size}"),
                ("refused", f"{sum(one.refused for one in crowd.users)}"),
            ]
        facts.append(("memory in use", format_bytes(sum(row.memory_used or 0 for row in rows))))
        return Board(
            title=f"Sandboxes of {self._engine.address}", facts=tuple(facts), users=_users(rows, crowd), sandboxes=rows
        )

    def _row(self, one: Listed, use: SandboxSample) -> SandboxRow:
        from .dashboard import OWNER_GONE, SandboxRow, trouble

        percent = self._rates.percent(one.container, one.age_seconds, use.cpu_seconds)
        owner = () if one.owner_alive is not False or one.state == "detached" else (OWNER_GONE,)
        return SandboxRow(
            id=one.session,
            user=user_of(one) or "unknown",
            work=one.image,
            state=one.state,
            age_seconds=one.age_seconds,
            memory_used=use.memory_bytes,
            memory_limit=one.memory_bytes,
            cpu_seconds=use.cpu_seconds,
            cpu_percent=percent,
            cells=None,
            network=one.network,
            trouble=(*owner, *trouble(use, one.memory_bytes, percent, None)),
        )


def _users(rows: tuple[SandboxRow, ...], crowd: CrowdInfo | None) -> tuple[UserRow, ...]:
    """Return a row for each user: as a broker counts them, or else by their sandboxes."""
    from .dashboard import UserRow

    if crowd is not None:
        return tuple(
            UserRow(
                name=one.name,
                sandboxes=one.sandboxes,
                memory_used=one.memory_used,
                memory_promised=one.memory_promised,
                cpu_seconds=round(one.cpu_seconds, 1),
                started=one.started,
                refused=one.refused,
                trouble=one.refused > 0 or any(row.trouble for row in rows if row.user == one.name),
            )
            for one in crowd.users
        )
    found = []
    for name in sorted({row.user for row in rows}):
        own = [row for row in rows if row.user == name]
        found.append(
            UserRow(
                name=name,
                sandboxes=len(own),
                memory_used=sum(row.memory_used or 0 for row in own),
                memory_promised=sum(row.memory_limit for row in own),
                cpu_seconds=round(sum(row.cpu_seconds or 0 for row in own), 1),
                started=len(own),
                trouble=any(row.trouble for row in own),
            )
        )
    return tuple(found)
