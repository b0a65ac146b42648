"""E2B's wire in a sandbox: cells, whose output is streamed as lines of JSON, and contexts.

Clients find it by `E2B_SANDBOX_URL`, and say by headers which sandbox and which of its ports they mean.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response

from .... import OutputMessage, Result
from ....core.codes import EndCode
from ....core.errors import SandboxError
from ....core.model import SCRATCH
from ....sdk.execution import ExecutionError
from ....sdk.values import Context
from .. import home
from ..home import HOME
from ..requests import Refusal, answer
from ..streams import Piece, Put, StreamForm, TaskResponse
from ..tenants import Lease, Tenants
from .bodies import ExecuteRequest, NewContext

PORT = "49999"


async def execute(request: Request, tenants: Tenants, lease: Lease, body: ExecuteRequest) -> Any:
    """Run a cell. A client that goes interrupts it."""
    context = body.context_id or None
    language = None if context is not None else body.language or None

    async def work(put: Put) -> None:
        async def said(message: OutputMessage) -> None:
            kind = "stderr" if message.error else "stdout"
            await put({"type": kind, "text": str(message), "timestamp": message.timestamp})

        async def shown(result: Result) -> None:
            for line in lines_of(result):
                await put(line)

        async def failed(error: ExecutionError) -> None:
            if error.code is not None:  # its kernel may have ended
                home.forget(lease)
            if error.code != EndCode.SANDBOX_ENDED_BY_OWNER.code:  # the connection is cut then
                await put({"type": "error", "name": error.name, "value": error.value, "traceback": error.traceback})

        await home.settle(lease, context, language)
        execution = await lease.sandbox.run_code(
            body.code,
            on_stdout=said,
            on_stderr=said,
            on_result=shown,
            on_error=failed,
            language=language,
            context=context,
            envs=body.env_vars or None,
        )
        await put({"type": "number_of_executions", "execution_count": execution.execution_count})

    cell = TaskResponse(tenants, lease, work, LINES)
    await cell.settle()
    return cell


def _line(piece: Piece) -> bytes:
    return orjson.dumps(piece) + b"\n"


def _failed(error: SandboxError | Refusal) -> bytes:
    name = error.name if isinstance(error, SandboxError) else type(error).__name__
    return _line({"type": "error", "name": name, "value": str(error), "traceback": str(error)})


LINES = StreamForm(media_type="application/x-ndjson", encode=_line, keep_alive={"type": "keepalive"}, failed=_failed)


def lines_of(result: Result) -> list[Piece]:
    """Return a result as lines: one, and one more for each picture that its markup shows besides the first."""
    lines, named = [line_of(result)], {"image/png": "png", "image/jpeg": "jpeg"}
    shown = set(lines[0]) | set(lines[0].get("extra", ()))
    for kind, data in result.pictures:
        name = named.get(kind, kind)
        if name in shown:
            shown.remove(name)  # it is in the first line
        else:
            line: Piece = {name: data} if kind in named else {"extra": {kind: data}}
            lines.append({"type": "result", "is_main_result": False, **line})
    return lines


def line_of(result: Result) -> Piece:
    """Return a result as a line: each representation by its name, the others in `extra`."""
    found: Piece = {"type": "result", "is_main_result": result.is_main_result}
    for name in ("text", "html", "markdown", "svg", "png", "jpeg", "pdf", "latex", "json", "javascript"):
        if (value := getattr(result, name)) is not None:
            found[name] = value
    text = found.get("text")
    if isinstance(text, str) and len(text) >= 2 and text[0] in "'\"" and text[-1] == text[0]:
        found["text"] = text[1:-1]  # a string stands there without its quotes
    if (chart := result.chart) is not None:
        found["chart"] = chart.to_dict()
    if extra := dict(result.extra):
        found["extra"] = extra
    return found


# --- contexts ---------------------------------------------------------------------------------------------------------


def _described(context: Context) -> dict[str, str]:
    cwd = context.cwd
    if cwd == SCRATCH or cwd.startswith(f"{SCRATCH}/"):
        cwd = HOME + cwd[len(SCRATCH) :]
    return {"id": context.id, "language": context.language, "cwd": cwd}


async def make_context(request: Request, tenants: Tenants, lease: Lease, body: NewContext) -> Response:
    """Start a kernel more."""
    cwd = body.cwd
    if cwd == HOME or cwd.startswith(f"{HOME}/"):
        cwd = SCRATCH + cwd[len(HOME) :]
    return answer(_described(await lease.sandbox.create_context(body.language or None, cwd or None)))


async def contexts(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """List the contexts."""
    return answer([_described(context) for context in await lease.sandbox.list_contexts(offered=True)])


async def remove_context(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """End a context."""
    await lease.sandbox.remove_context(request.path_params["context_id"])
    return Response(status_code=204)


async def restart_context(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Start the kernel of a context again."""
    await lease.sandbox.restart_context(request.path_params["context_id"])
    home.forget(lease, request.path_params["context_id"])
    return Response(status_code=204)


ROUTES: tuple[tuple[str, str, Callable[..., Awaitable[Any]]], ...] = (
    ("POST", "/execute", execute),
    ("POST", "/contexts", make_context),
    ("GET", "/contexts", contexts),
    ("DELETE", "/contexts/{context_id}", remove_context),
    ("POST", "/contexts/{context_id}/restart", restart_context),
)
"""Each with what the traffic token of a sandbox opens, on the port of its interpreter."""
