"""E2B's wire in a sandbox: cells, whose output is streamed as lines of JSON, and contexts.

Clients find it by `E2B_SANDBOX_URL`, and say by headers which sandbox and which of its ports they mean.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ...core.codes import EndCode
from ...core.errors import SandboxError
from ...core.model import SCRATCH
from ...sdk.execution import ExecutionError
from ...sdk.output_text import OutputMessage
from ...sdk.result import Result
from ...sdk.values import Context
from .codes import ServeCode
from .requests import Refusal, answer, json_of
from .tenants import Lease, Tenants

PORT = "49999"
HOME = "/home/user"
KEEP_ALIVE_SECONDS = 5.0
"""Between two lines."""
FIRST_SECONDS = 1.0
"""For what refuses a cell; after that the answer has begun."""
MAX_BACKLOG = 64
"""Lines that wait for the client, which holds up the callbacks and not the server."""

Line = dict[str, Any]
Handler = Callable[[Request, Tenants, Lease], Awaitable[Any]]


async def execute(request: Request, tenants: Tenants, lease: Lease) -> Any:
    """Run a cell."""
    body = await json_of(request)
    code = body.fields.get("code")
    if not isinstance(code, str):
        raise Refusal(400, ServeCode.REQUEST_IMPROPER, "code is text")
    if lease.calls >= tenants.limits.calls_per_sandbox:
        words = f"{lease.calls} calls run or wait in the sandbox, which is the limit. Wait for one of them"
        raise Refusal(429, ServeCode.CALLS_OF_SANDBOX, words)
    context = body.text("context_id")
    language = None if context is not None else body.text("language")
    cell = Cell(tenants, lease, code, language=language, context=context, envs=body.texts("env_vars") or None)
    await cell.settle()
    return cell


class Cell:
    """One cell that runs, as the answer to a request. A client that goes interrupts it."""

    def __init__(self, tenants: Tenants, lease: Lease, code: str, **arguments: Any) -> None:
        """Start it."""
        self._lines: asyncio.Queue[Line | None] = asyncio.Queue(MAX_BACKLOG)
        self._lease = lease
        self._first: Line | None = None
        lease.calls += 1
        self._task = tenants.tasks.hold(self._run(code, arguments), "a cell")
        self._task.add_done_callback(self._ended)

    async def settle(self) -> None:
        """Wait until it has said something, for a moment. Raises what refuses it before."""
        try:
            self._first = await self._next(FIRST_SECONDS)
            if self._first is None:
                await self._task
        except BaseException:
            self._task.cancel()
            raise

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._lease.calls -= 1
        if not task.cancelled():
            task.exception()  # whoever reads the lines tells of it, unless the client is gone

    async def _run(self, code: str, arguments: dict[str, Any]) -> None:
        try:
            execution = await self._lease.sandbox.run_code(
                code,
                on_stdout=self._said,
                on_stderr=self._said,
                on_result=self._shown,
                on_error=self._failed,
                **arguments,
            )
            await self._lines.put({"type": "number_of_executions", "execution_count": execution.execution_count})
        finally:
            if not self._lines.full():
                self._lines.put_nowait(None)

    async def _said(self, message: OutputMessage) -> None:
        kind = "stderr" if message.error else "stdout"
        await self._lines.put({"type": kind, "text": str(message), "timestamp": message.timestamp})

    async def _shown(self, result: Result) -> None:
        await self._lines.put(line_of(result))

    async def _failed(self, error: ExecutionError) -> None:
        if error.code != EndCode.SANDBOX_ENDED_BY_OWNER.code:
            await self._lines.put(
                {
                    "type": "error",
                    "name": error.name,
                    "value": error.value,
                    "traceback": error.traceback,
                }
            )

    async def _next(self, seconds: float) -> Line | None:
        """Return the next line, None at the end; after so many seconds, a line that means nothing."""
        waiting = asyncio.create_task(self._lines.get())
        try:
            await asyncio.wait({waiting, self._task}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
            if self._task.done():
                return None if self._lines.empty() else self._lines.get_nowait()
            return {"type": "keepalive"}
        finally:
            waiting.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send its lines; cut the connection where the sandbox has ended, as clients of E2B expect it."""
        listening = asyncio.create_task(self._watch(receive))

        async def write(line: Line) -> None:
            await send({"type": "http.response.body", "body": orjson.dumps(line) + b"\n", "more_body": True})

        try:
            headers = [(b"content-type", b"application/x-ndjson"), (b"cache-control", b"no-store")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            line = self._first
            while line is not None:
                await write(line)
                line = await self._next(KEEP_ALIVE_SECONDS)
            await asyncio.wait({self._task})
            error = None if self._task.cancelled() else self._task.exception()
            if isinstance(error, SandboxError):
                await write({"type": "error", "name": error.name, "value": str(error), "traceback": str(error)})
            elif error is not None:
                raise error
            if self._lease.is_there:
                await send({"type": "http.response.body", "body": b""})
        finally:
            listening.cancel()
            self._task.cancel()

    async def _watch(self, receive: Receive) -> None:
        """Interrupt the cell when the client goes."""
        while (await receive())["type"] != "http.disconnect":
            pass
        self._task.cancel()


def line_of(result: Result) -> Line:
    """Return a result as a line: each representation by its name, the others in `extra`."""
    found: Line = {"type": "result", "is_main_result": result.is_main_result}
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


async def make_context(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Start a kernel more."""
    body = await json_of(request)
    cwd = body.text("cwd")
    if cwd is not None and (cwd == HOME or cwd.startswith(f"{HOME}/")):
        cwd = SCRATCH + cwd[len(HOME) :]
    return answer(_described(await lease.sandbox.create_context(body.text("language"), cwd)))


async def contexts(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """List the contexts."""
    return answer([_described(context) for context in await lease.sandbox.list_contexts()])


async def remove_context(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """End a context."""
    await lease.sandbox.remove_context(request.path_params["context_id"])
    return Response(status_code=204)


async def restart_context(request: Request, tenants: Tenants, lease: Lease) -> Response:
    """Start the kernel of a context again."""
    await lease.sandbox.restart_context(request.path_params["context_id"])
    return Response(status_code=204)


ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("POST", "/execute", execute),
    ("POST", "/contexts", make_context),
    ("GET", "/contexts", contexts),
    ("DELETE", "/contexts/{context_id}", remove_context),
    ("POST", "/contexts/{context_id}/restart", restart_context),
)
"""Each with what the traffic token of a sandbox opens, on the port of its interpreter."""
