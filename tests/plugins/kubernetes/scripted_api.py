"""An API server on loopback that plays one: pods in a dictionary, watches, attaching, and whatever fault is asked for.

The client, its HTTP and its WebSocket are the real ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import WSMsgType, web

from sandbox_kernel.plugins.kubernetes.cluster_api import PROTOCOL
from sandbox_kernel.plugins.kubernetes.warm_pool import ASSIGNED

Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]
Program = Callable[[web.WebSocketResponse], Awaitable[None]]
RUNNING = {"phase": "Running", "containerStatuses": [{"state": {"running": {}}, "restartCount": 0}]}
STDIN, STDOUT, CLOSED = 0, 1, 255


async def echo(wire: web.WebSocketResponse) -> None:
    """Send back what comes after what the gate is told, until stdin closes."""
    kept, told = b"", False
    async for message in wire:
        if message.type is not WSMsgType.BINARY or message.data[0] == CLOSED:
            return
        kept += message.data[1:]
        if not told and len(kept) >= 8 and len(kept) >= 8 + int(kept[:8], 16):
            kept, told = kept[8 + int(kept[:8], 16) :], True
        if told and kept:
            await wire.send_bytes(bytes((STDOUT,)) + kept)
            kept = b""


class ScriptedApi:
    """The API server, with one namespace; every pod runs as soon as it is made, unless `status` says otherwise."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.seen: Counter[str] = Counter()
        """How often each step was asked for: list, watch, make, look, attach, delete, claim."""
        self.claims: dict[str, dict[str, Any]] = {}
        self.pool: list[str] | None = None
        """The names of pods that wait; where there is none, one is made for a claim. None: there is no such pool."""
        self.makes_pods = True
        """Whether who asks may make pods."""
        self.faults: dict[str, Fault] = {}
        """What is done in place of a step; None as its answer lets the step go on."""
        self.status: Mapping[str, Any] = RUNNING
        """Of a pod that is made."""
        self.program: Program = echo
        self.url = ""
        self.reached = asyncio.Condition()
        self._version = 1
        self._watching: dict[asyncio.Queue[bytes | None], str] = {}
        """Who watch, and the path of what they watch."""
        self._wires: dict[str, web.WebSocketResponse] = {}

    # --- what a test does ---

    def change(self, name: str, status: Mapping[str, Any] | None = None, **metadata: Any) -> None:
        """Change a pod, and tell those who watch."""
        pod = self.pods[name]
        pod["metadata"].update(metadata)
        pod["status"] = dict(pod["status"] if status is None else status)
        self._tell("MODIFIED", pod)

    def delete(self, name: str) -> bool:
        """Delete a pod at once."""
        if (pod := self.pods.pop(name, None)) is None:
            return False
        self._tell("DELETED", pod)
        return True

    async def hang_up(self, name: str) -> None:
        """Break the connection to a pod."""
        if (transport := self._wires[name].get_extra_info("socket")) is not None:
            transport.shutdown(2)

    def say(self, line: bytes | None) -> None:
        """Send a line to all who watch, None for the end."""
        for queue in self._watching:
            queue.put_nowait(line)

    async def until(self, step: str, count: int = 1) -> None:
        async with self.reached:
            await self.reached.wait_for(lambda: self.seen[step] >= count)

    # --- what it answers ---

    def _tell(self, kind: str, pod: dict[str, Any]) -> None:
        self._version += 1
        pod["metadata"]["resourceVersion"] = str(self._version)
        line = json.dumps({"type": kind, "object": pod}).encode()
        for queue, path in self._watching.items():
            if _are_claims(path) is (pod.get("kind") == "SandboxClaim"):
                queue.put_nowait(line)

    def _kept(self, path: str) -> dict[str, dict[str, Any]]:
        return self.claims if _are_claims(path) else self.pods

    async def answer(self, request: web.Request) -> web.StreamResponse:
        step = _step(request)
        async with self.reached:
            self.seen[step] += 1
            self.reached.notify_all()
        if (fault := self.faults.get(step)) is not None and (found := await fault(request)) is not None:
            return found
        does: Callable[[web.Request], Awaitable[web.StreamResponse]] = getattr(self, f"_{step}")
        return await does(request)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        metadata = {"resourceVersion": str(self._version)}
        return web.json_response({"metadata": metadata, "items": list(self._kept(request.path).values())})

    async def _watch(self, request: web.Request) -> web.StreamResponse:
        answer, queue = web.StreamResponse(), asyncio.Queue[bytes | None]()
        since = int(request.query["resourceVersion"])
        for pod in self._kept(request.path).values():
            if int(pod["metadata"]["resourceVersion"]) > since:
                queue.put_nowait(json.dumps({"type": "MODIFIED", "object": pod}).encode())
        self._watching[queue] = request.path
        try:
            await answer.prepare(request)
            while (line := await queue.get()) is not None:
                await answer.write(line + b"\n")
        except ConnectionError:
            pass
        finally:
            self._watching.pop(queue, None)
        return answer

    async def _make(self, request: web.Request) -> web.StreamResponse:
        if not self.makes_pods:
            return refused(403, "pods is forbidden: cannot create resource")
        return web.json_response(self._made(await request.json()), status=201)

    def _made(self, pod: dict[str, Any]) -> dict[str, Any]:
        pod["metadata"].update(creationTimestamp="2026-01-01T00:00:00Z", uid="1")
        pod["status"] = dict(self.status)
        self.pods[pod["metadata"]["name"]] = pod
        self._tell("ADDED", pod)
        return pod

    async def _claim(self, request: web.Request) -> web.StreamResponse:
        """Do as the controller of agent-sandbox: give a pod that waits, or make one."""
        claim = await request.json()
        metadata = claim["metadata"]
        self.claims[metadata["name"]] = claim
        self._tell("ADDED", claim)
        if self.pool is None:
            gone = {"type": "Ready", "status": "False", "reason": "WarmPoolNotFound", "message": "no such pool"}
            claim["status"] = {"conditions": [gone]}
        else:
            name = self.pool.pop() if self.pool else metadata["name"]
            if name != metadata["name"]:
                metadata["annotations"] = {ASSIGNED: name}
            self._made({"kind": "Pod", "metadata": {"name": name}})
            ready = {"type": "Ready", "status": "True"}
            claim["status"] = {"sandbox": {"name": name, "podIPs": ["198.18.0.1"]}, "conditions": [ready]}
        self._tell("MODIFIED", claim)
        return web.json_response(claim, status=201)

    async def _look(self, request: web.Request) -> web.StreamResponse:
        if request.path.endswith("/selfsubjectaccessreviews"):
            asked = (await request.json())["spec"]["resourceAttributes"]
            makes = (asked["verb"], asked["resource"]) == ("create", "pods")
            return web.json_response({"status": {"allowed": self.makes_pods or not makes}})
        pod = self.pods.get(request.path.rpartition("/")[2])
        return refused(404, "there is no such pod") if pod is None else web.json_response(pod)

    async def _delete(self, request: web.Request) -> web.StreamResponse:
        name = request.path.rpartition("/")[2]
        if _are_claims(request.path) and (claim := self.claims.pop(name, None)) is not None:
            name = claim["status"].get("sandbox", {}).get("name", "")
            self._tell("DELETED", claim)
        return web.json_response({}) if self.delete(name) else refused(404, "there is no such pod")

    async def _attach(self, request: web.Request) -> web.StreamResponse:
        wire = web.WebSocketResponse(protocols=(PROTOCOL,), max_msg_size=0)
        await wire.prepare(request)
        name = request.path.split("/")[-2]
        self._wires[name] = wire
        with contextlib.suppress(ConnectionError):
            await self.program(wire)
        with contextlib.suppress(ConnectionError):
            await wire.close()
        return wire


def _are_claims(path: str) -> bool:
    return "/sandboxclaims" in path


def _step(request: web.Request) -> str:
    last = request.path.rpartition("/")[2]
    if last in {"pods", "sandboxclaims"}:
        making = "make" if last == "pods" else "claim"
        return making if request.method == "POST" else "watch" if "watch" in request.query else "list"
    return "attach" if last == "attach" else "delete" if request.method == "DELETE" else "look"


def refused(status: int, message: str, **headers: str) -> web.StreamResponse:
    """Return what an API server says that refuses."""
    said = {"kind": "Status", "status": "Failure", "message": message, "code": status}
    return web.json_response(
        said, status=status, headers={name.replace("_", "-"): one for name, one in headers.items()}
    )


def refusing(status: int, message: str, **headers: str) -> Fault:
    """Return a step that is refused each time."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return refused(status, message, **headers)

    return fault


@contextlib.asynccontextmanager
async def scripted_api(folder: Path, patch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedApi]:
    """Serve one, and have KUBECONFIG name it."""
    api, application = ScriptedApi(), web.Application(client_max_size=8 << 20)
    application.router.add_route("*", "/{path:.*}", api.answer)
    runner = web.AppRunner(application, handler_cancellation=False, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    api.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    file = folder / "scripted.kubeconfig"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": api.url}}],
        "users": [{"name": "me", "user": {"token": "none"}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "me"}}],
        "current-context": "it",
    }
    file.write_text(json.dumps(document))
    patch.setenv("KUBECONFIG", str(file))
    try:
        yield api
    finally:
        api.say(None)
        await runner.cleanup()
