"""A real server for the tests, on a free port of loopback."""

from __future__ import annotations

import re
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from tests.support.kernels import containers_of, eventually

START_SECONDS = 30


class NamesOfLoopback:
    """A proxy in which each name is 127.0.0.1, for machines whose resolver does not know names below localhost."""

    def __init__(self) -> None:
        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Tunnel)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Tunnel(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        asked = self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        found = re.match(rb"CONNECT [^ ]+:(\d+) ", asked)
        if found is None:
            return
        with socket.create_connection(("127.0.0.1", int(found[1]))) as server:
            self.connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            back = threading.Thread(target=_copy, args=(server, self.connection), daemon=True)
            back.start()
            _copy(self.connection, server)
            back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while piece := source.recv(65536):
            target.sendall(piece)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


class Server:
    """`sandbox-kernel serve` as a process."""

    program: tuple[str, ...] = ("-m", "sandbox_kernel")
    """What Python runs it by."""
    command: tuple[str, ...] = ("serve",)

    def __init__(self, *arguments: str) -> None:
        engine = () if "--engine" in arguments else ("--engine", "docker")  # no broker that other tests would meet
        command = [sys.executable, *self.program, *self.command, "--port", "0", *engine, *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        guard = threading.Timer(START_SECONDS, self.process.kill)
        guard.start()
        self.said = [self.process.stderr.readline()]
        while self.said[-1] and not self.said[-1].startswith("sandboxes "):
            self.said.append(self.process.stderr.readline())
        guard.cancel()
        self.url = self.said[0].strip()
        self.pid = self.process.pid
        assert re.fullmatch(r"https?://127\.0\.0\.1:\d+", self.url), self.said
        self.log: list[str] = []
        """What it said since, but for what clients of other wires set."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        self.log.extend(line for line in self.process.stderr or () if not line.startswith("for clients of "))

    def close(self) -> int:
        """End it as a service manager does, with all that it started; return its exit code."""
        if self.process.poll() is None:
            self.process.terminate()
        code = self.process.wait(20)
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
        eventually(lambda: not containers_of(self.process.pid), 10, "its containers are gone")
        return code


class McpServer(Server):
    """`sandbox-kernel mcp --http` as a process, whose tokens are in a file that it makes unless it is given one."""

    command = ("mcp", "--http")

    def __init__(self, *arguments: str) -> None:
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, "tokens")
        super().__init__(*(() if "--token-file" in arguments else ("--token-file", str(file))), *arguments)
        self.url += "/mcp"
        self.token = file.read_text().split()[1] if file.exists() else ""

    @asynccontextmanager
    async def client(self, token: str | None = None, mode: str = "auto") -> AsyncIterator[Client]:
        headers = {"Authorization": f"Bearer {token or self.token}"}
        async with (
            create_mcp_http_client(headers=headers) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=mode) as client,
        ):
            yield client

    def close(self) -> int:
        self._folder.cleanup()
        return super().close()
