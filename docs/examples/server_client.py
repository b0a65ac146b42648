"""A chat back end's client for the sandbox, through a Jupyter Server: start, run, upload, download, interrupt, restart.

Needs nothing but `websocket-client`, which comes with jupyter_server. As a program it goes through all of it once:

    JUPYTER_TOKEN=... python server_client.py http://127.0.0.1:8888 sales.csv
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import sys
import threading
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import websocket

SUBPROTOCOL = "v1.kernel.websocket.jupyter.org"
CHUNK = 1 << 20
"""Bytes of a file in one message: as many as the kernel takes (`sandbox.file_messages` of its kernel_info)."""


_Open = dict[str, queue.Queue[dict[str, Any] | None]]
"""The requests whose answers are awaited, by their ids; None says that nothing more will come."""


class KernelGone(Exception):
    """The connection or the kernel process is gone; nothing more will come for what was asked."""


class FileError(Exception):
    """The kernel refused to write, read or remove a file, and says why."""


class Kernel:
    """One kernel of a Jupyter Server, from its start to its end. Its methods may be called from several threads."""

    def __init__(self, server: str, token: str, name: str = "sandbox-python", patience: float = 600) -> None:
        """Start a kernel. `patience` is how many seconds to wait for the next message: more than its `cell_timeout`."""
        self._server = server.rstrip("/")
        self._headers = {"Authorization": f"token {token}", "Content-Type": "application/json"}
        self._patience = patience
        self._session = uuid.uuid4().hex
        self._open: _Open = {}
        self.id = self._rest("POST", "/api/kernels", {"name": name})["id"]
        try:
            self._socket = websocket.create_connection(
                f"{self._server.replace('http', 'ws', 1)}/api/kernels/{self.id}/channels?session_id={self._session}",
                header=[f"Authorization: token {token}"],
                subprotocols=[SUBPROTOCOL],
                timeout=60,
                enable_multithread=True,
            )
        except BaseException:
            self._rest("DELETE", f"/api/kernels/{self.id}")
            raise
        self._socket.settimeout(None)
        self._reader = threading.Thread(target=self._read, daemon=True)  # it answers the server's pings, too
        self._reader.start()

    def __enter__(self) -> Kernel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- code ---

    def run(self, code: str) -> Iterator[dict[str, Any]]:
        """Yield the outputs of a cell while it runs, as Jupyter messages; the last message is its `execute_reply`."""
        content = {"code": code, "silent": False, "store_history": True, "allow_stdin": False, "stop_on_error": True}
        reply = idle = None
        with self._request("shell", "execute_request", content) as answers:
            while reply is None or idle is None:
                message = answers.next()
                kind = message["header"]["msg_type"]
                if kind == "execute_reply":
                    reply = message
                elif kind != "status":
                    yield message
                elif message["content"]["execution_state"] == "idle":
                    idle = message
        yield reply

    def interrupt(self) -> None:
        """Interrupt the running cell; it ends with a KeyboardInterrupt."""
        self._rest("POST", f"/api/kernels/{self.id}/interrupt")

    def restart(self) -> None:
        """Start over with a new kernel: the variables are gone, the files are kept."""
        self._rest("POST", f"/api/kernels/{self.id}/restart")

    def state(self) -> str:
        """Return what the server takes the kernel for: starting, idle, busy or dead."""
        return str(self._rest("GET", f"/api/kernels/{self.id}")["execution_state"])

    def info(self) -> dict[str, Any]:
        """Return the kernel's description of itself; `sandbox` in it holds the limits."""
        return dict(self._ask("shell", "kernel_info_request", {})["content"])

    def close(self) -> None:
        """End the kernel, its sandbox, and all files in it."""
        self._rest("DELETE", f"/api/kernels/{self.id}")
        self._socket.close()
        self._reader.join(10)

    # --- files, also while a cell runs ---

    def upload(self, source: BinaryIO, path: str) -> int:
        """Write a file of the sandbox, chunk by chunk; return its size. Until the last chunk it is not there."""
        where: dict[str, Any] = {"path": path, "offset": 0}
        chunk = source.read(CHUNK)
        while True:
            following = source.read(CHUNK)
            reply = self._file("write", where | {"final": not following}, chunk)["content"]
            if not following:
                return int(reply["offset"])
            where |= {"upload": reply["upload"], "offset": reply["offset"]}
            chunk = following

    def download(self, path: str, target: BinaryIO) -> int:
        """Read a file of the sandbox, chunk by chunk; return its size. The code in there chose what is in it."""
        where: dict[str, Any] = {"path": path, "offset": 0}
        while True:
            reply = self._file("read", where)
            target.write(reply["buffers"][0])
            where |= {"offset": where["offset"] + len(reply["buffers"][0]), "etag": reply["content"]["etag"]}
            if reply["content"]["final"]:
                return int(where["offset"])

    def files(self, folder: str = "") -> list[dict[str, Any]]:
        """Return path, size and time of change of the sandbox's files."""
        found: list[dict[str, Any]] = []
        while True:
            after = found[-1]["path"] if found else ""
            page = self._file("list", {"folder": folder, "after": after})["content"]
            found += page["files"]
            if not page["more"]:
                return found

    def remove(self, path: str) -> None:
        """Remove a file or an empty folder of the sandbox."""
        self._file("remove", {"path": path})

    def _file(self, what: str, content: dict[str, Any], *buffers: bytes) -> dict[str, Any]:
        reply = self._ask("control", f"sandbox_file_{what}_request", {"version": 1, **content}, *buffers)
        if reply["content"]["status"] != "ok":
            raise FileError(reply["content"]["evalue"])
        return reply

    # --- the wire ---

    def _rest(self, method: str, path: str, body: object = None) -> Any:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(self._server + path, data, self._headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as response:
            return json.loads(response.read() or b"null")

    def _ask(self, channel: str, kind: str, content: dict[str, Any], *buffers: bytes) -> dict[str, Any]:
        with self._request(channel, kind, content, *buffers) as answers:
            while True:
                message = answers.next()
                if message["channel"] == channel:
                    return message

    def _request(self, channel: str, kind: str, content: dict[str, Any], *buffers: bytes) -> _Answers:
        header = {"msg_id": uuid.uuid4().hex, "msg_type": kind, "session": self._session, "version": "5.4"}
        header |= {"username": "", "date": ""}
        answers = _Answers(self._open, header["msg_id"], self._patience)
        parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
        try:
            self._socket.send_binary(pack(channel, [*parts, *buffers]))
        except (OSError, websocket.WebSocketException) as error:
            self._open.pop(header["msg_id"], None)
            raise KernelGone(str(error)) from None
        return answers

    def _read(self) -> None:
        try:
            while isinstance(frame := self._socket.recv(), bytes) and frame:
                message = unpack(frame)
                gone = message["content"].get("execution_state") in ("restarting", "autorestarting", "dead")
                asked = None if gone else self._open.get(message["parent_header"].get("msg_id"))
                if gone:
                    self._give_up()
                elif asked is not None:
                    asked.put(message)
        except (OSError, websocket.WebSocketException):
            pass
        self._give_up()

    def _give_up(self) -> None:
        for asked in list(self._open.values()):
            asked.put(None)


class _Answers:
    """What comes back for one request."""

    def __init__(self, requests: _Open, message_id: str, patience: float) -> None:
        self._requests, self._id, self._patience = requests, message_id, patience
        self._queue = requests[message_id] = queue.Queue()

    def __enter__(self) -> _Answers:
        return self

    def __exit__(self, *_: object) -> None:
        self._requests.pop(self._id, None)

    def next(self) -> dict[str, Any]:
        try:
            message = self._queue.get(timeout=self._patience)
        except queue.Empty:
            raise KernelGone(f"no answer within {self._patience:g} s") from None
        if message is None:
            raise KernelGone("the kernel restarted, or the connection is closed")
        return message


def pack(channel: str, parts: list[bytes]) -> bytes:
    """Write one message as the subprotocol has it: the offsets of channel and parts, each in 8 bytes, then these."""
    pieces = [channel.encode(), *parts]
    offsets = [8 * (len(pieces) + 2)]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return b"".join([number.to_bytes(8, "little") for number in (len(offsets), *offsets)] + pieces)


def unpack(frame: bytes) -> dict[str, Any]:
    """Read one message of the server."""
    count = int.from_bytes(frame[:8], "little")
    offsets = [int.from_bytes(frame[8 * i : 8 * i + 8], "little") for i in range(1, count + 1)]
    channel, *parts = (frame[begin:end] for begin, end in itertools.pairwise(offsets))
    header, parent, metadata, content = (json.loads(part) for part in parts[:4])
    return {
        "channel": channel.decode(),
        "header": header,
        "parent_header": parent,
        "metadata": metadata,
        "content": content,
        "buffers": parts[4:],
    }


def show(message: dict[str, Any]) -> None:
    """Print a message as a chat would show it."""
    kind, content = message["header"]["msg_type"], message["content"]
    match kind:
        case "stream":
            print(content["text"], end="", flush=True)
        case "execute_result" | "display_data" | "update_display_data":
            print(content["data"].get("text/plain", ""), sorted(content["data"]))  # image/png is base64
        case "error":
            print(f"{content['ename']}: {content['evalue']}")
        case "execute_reply":
            print(f"[{content['status']}]")


def main(server: str, file: str) -> None:
    with Kernel(server, os.environ["JUPYTER_TOKEN"]) as kernel:
        print("memory:", kernel.info()["sandbox"]["limits"]["memory"])

        with Path(file).open("rb") as source:
            print("uploaded:", kernel.upload(source, "data.csv"), "bytes")

        for message in kernel.run(
            "import pandas\nframe = pandas.read_csv('data.csv')\nprint(len(frame), 'rows')\nframe"
        ):
            show(message)
        for message in kernel.run("frame.plot().figure.savefig('plot.png')"):
            show(message)

        with Path("plot.png").open("wb") as target:
            print("downloaded:", kernel.download("plot.png", target), "bytes")

        for message in kernel.run("import time\nfor i in range(1000):\n    print(i)\n    time.sleep(0.1)"):
            if "3" in message["content"].get("text", ""):
                kernel.interrupt()  # as when a person presses stop
            show(message)

        kernel.restart()
        for message in kernel.run("import os\nprint('frame' in globals(), sorted(os.listdir()))"):
            show(message)


if __name__ == "__main__":
    main(*sys.argv[1:])
