"""Open Terminal's wire, which Open WebUI speaks, under `/open-terminal`: a sandbox for each of its users."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from .... import __version__
from ..codes import ServeCode
from ..guard import RouteGuard
from ..home import HOME
from ..requests import Refusal, answer
from . import commands as open_terminal_commands
from . import files as open_terminal_files
from . import notebooks as open_terminal_notebooks
from . import sockets as open_terminal_sockets
from .page import page
from .user import PREFIX, UserRequest, Users, Work, missing, refused

_PROMPT = (
    "You have access to a computer: a sandbox that runs Linux, with bash and Python. Your files are in {home}, which "
    "programs also know as /mnt/data. {network} Use your tools to run commands, to read and write files and to look "
    "for them. Look at what is there before you change it, and at the output of commands: none mostly means success."
)


async def _health(request: Request) -> Response:
    return answer({"status": "ok"})


async def _config(request: Request) -> Response:
    return answer({"features": {"terminal": True, "notebooks": True, "system": True}})


async def _page(request: Request) -> Response:
    return answer(page(__version__))


async def system(asked: UserRequest) -> Response:
    """Say what a model is told of its sandbox."""
    reach = "It reaches some hosts of a network." if asked.sandbox.settings.has_way_out else "It has no network."
    return answer({"prompt": _PROMPT.format(home=HOME, network=reach)})


async def none(asked: UserRequest) -> Response:
    """Say that there are none: of skills."""
    return answer([])


async def no_skill(asked: UserRequest) -> Response:
    raise missing("Skill")


async def ports(asked: UserRequest) -> Response:
    """Say that no port of a sandbox is open from outside."""
    return answer({"ports": []})


async def not_offered(asked: UserRequest) -> Response:
    """Refuse what is another's: ports of a sandbox, and comparisons of documents."""
    what = asked.request.url.path.removeprefix(PREFIX)[:60]
    raise Refusal(501, ServeCode.NOT_OFFERED, f"This server does not offer {what}")


PUBLIC = (("/health", _health), ("/api/config", _config), ("/openapi.json", _page))
"""What anybody may ask: it is the same for everybody."""
ROUTES: tuple[tuple[str, str, Work], ...] = (
    ("GET", "/system", system),
    ("GET", "/skills", none),
    ("GET", "/skills/read", no_skill),
    ("GET", "/ports", ports),
    ("POST", "/files/compare", not_offered),
    *(
        (method, "/proxy/{port}/{path:path}", not_offered)
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")
    ),
    *open_terminal_files.ROUTES,
    *open_terminal_commands.ROUTES,
    *open_terminal_sockets.ROUTES,
    *open_terminal_notebooks.ROUTES,
)


def routes(guard: RouteGuard) -> Iterable[BaseRoute]:
    users = Users()
    sockets = open_terminal_sockets.Sockets(guard, users)
    for path, public in PUBLIC:
        yield Route(PREFIX + path, public, methods=["GET"])
    for method, path, work in ROUTES:
        yield guard.route(method, PREFIX + path, users.handler(work), where=users.where, form=refused)
    yield guard.socket(PREFIX + open_terminal_sockets.SOCKET, sockets.handle, sockets.who, where=users.where_shell_is)
