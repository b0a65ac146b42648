"""The caller's tools, as functions in the kernel: `from sandbox_tools import search`.

Runs in the kernel of a session that has some, from source that the host ships: standard library only, and Python 3.9
and later. A call is JSON over a connection to the container's loopback, which the agent carries to the host. The host
believes nothing of what it says: each limit is checked again there.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib.machinery
import inspect
import json
import os
import socket
import struct
import sys
import threading
import types
from typing import Any

MAX_IDLE = 16
"""Connections that are kept for later calls: each costs the host one of those that a session may have."""
_LENGTH = struct.Struct("!I")


class ToolError(Exception):
    """A call that failed: `code` says how, `name` and `text` are those of what the tool itself raised, if it did."""

    def __init__(self, said: str, code: str, name: str = "", text: str = "") -> None:
        super().__init__(said)
        self.code, self.name, self.text = code, name, text


class Text:
    """What stands in a signature where the host has an object."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


class Client:
    """The connections to the host: one for each call that is under way."""

    def __init__(self, module: str, port: int, limit: int, at_once: int) -> None:
        self.module, self.port, self.limit, self.at_once = module, port, limit, at_once
        self.preamble = b"\0%b\n" % module.encode()  # by which the host tells a connection from one to a network
        self.idle: list[socket.socket] = []
        self.lock = threading.Lock()
        self.threads: concurrent.futures.ThreadPoolExecutor | None = None
        os.register_at_fork(after_in_child=self.forget)

    def forget(self) -> None:
        """In a forked child: the connections are the parent's."""
        self.idle, self.lock, self.threads = [], threading.Lock(), None

    def call(self, name: str, arguments: dict[str, Any]) -> Any:
        """Return what a tool returns. Raises `ToolError`, and `TypeError` for arguments that are no JSON."""
        try:
            data = json.dumps({"tool": name, "arguments": arguments}, allow_nan=False, ensure_ascii=False).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError("%s: arguments of tools are JSON: %s" % (name, error)) from None
        if len(data) > self.limit:
            said = "the arguments of %s are %d bytes, and may be %d" % (name, len(data), self.limit)
            raise ToolError(said, "tool-arguments-large")
        answer = json.loads(self.exchange(data))
        if "error" not in answer:
            return answer["result"]
        raise ToolError(*(answer["error"][part] for part in ("said", "code", "name", "text")))

    def exchange(self, data: bytes) -> bytes:
        """Send a call and return the answer. A connection on which that fails is not used again."""
        with self.lock:
            connection = self.idle.pop() if self.idle else None
        try:
            if connection is None:
                connection = socket.create_connection(("127.0.0.1", self.port))
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.sendall(self.preamble)
            connection.sendall(_LENGTH.pack(len(data)) + data)
            (size,) = _LENGTH.unpack(receive(connection, _LENGTH.size))
            answer = receive(connection, size)
        except BaseException as error:  # also KeyboardInterrupt: the host then gives the call up
            if connection is not None:
                connection.close()
            if isinstance(error, OSError):
                raise ToolError("the host broke the connection: %s" % error, "tool-stopped") from None
            raise
        with self.lock:
            if len(self.idle) < MAX_IDLE:
                self.idle.append(connection)
                return answer
        connection.close()
        return answer

    async def call_async(self, name: str, arguments: dict[str, Any]) -> Any:
        """Do it in a thread: as many at once as the host works on."""
        if self.threads is None:
            self.threads = concurrent.futures.ThreadPoolExecutor(self.at_once, self.module)
        return await asyncio.wrap_future(self.threads.submit(self.call, name, arguments))


def receive(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        piece = connection.recv(min(size - len(data), 1 << 20))
        if not piece:
            raise ConnectionError("it ended")
        data += piece
    return bytes(data)


def function(client: Client, described: dict[str, Any]) -> Any:
    name, parameters = described["name"], []
    for parameter in described["parameters"]:
        default = (
            parameter["default"]
            if "default" in parameter
            else Text("...")
            if parameter["optional"]
            else inspect.Parameter.empty
        )
        annotation = Text(parameter["type"]) if parameter["type"] else inspect.Parameter.empty
        kind = getattr(inspect.Parameter, parameter["kind"])
        parameters.append(inspect.Parameter(parameter["name"], kind, default=default, annotation=annotation))
    returns = Text(described["returns"]) if described["returns"] else inspect.Signature.empty
    signature = inspect.Signature(parameters, return_annotation=returns)

    def named(args: Any, kwargs: Any) -> dict[str, Any]:
        try:
            return dict(signature.bind(*args, **kwargs).arguments)
        except TypeError as error:
            raise TypeError("%s() %s" % (name, error)) from None

    if described["async"]:

        async def tool(*args: Any, **kwargs: Any) -> Any:
            return await client.call_async(name, named(args, kwargs))

    else:

        def tool(*args: Any, **kwargs: Any) -> Any:  # type: ignore[misc]
            return client.call(name, named(args, kwargs))

    tool.__name__ = tool.__qualname__ = name
    tool.__module__, tool.__doc__ = client.module, described["doc"] or None
    tool.__signature__ = signature  # type: ignore[attr-defined]
    return tool


def install(name: str, port: int, text: str) -> None:
    """Make the module of that name, from what the host says of its tools."""
    described = json.loads(text)
    client = Client(name, port, described["limit"], described["at_once"])
    module = types.ModuleType(name, "Functions of whoever runs this sandbox. A call that fails raises ToolError.")
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    names = [one["name"] for one in described["tools"]]
    module.__dict__.update({one["name"]: function(client, one) for one in described["tools"]})
    ToolError.__module__ = name
    module.__dict__.update(ToolError=ToolError, call_and_wait=client.call, __all__=[*names, "ToolError"])
    sys.modules[name] = module
