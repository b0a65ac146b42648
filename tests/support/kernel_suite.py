"""jupyter_kernel_test's suite with its own samples for ipykernel, and a client for kernels behind a WebSocket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue
from typing import Any

from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.session import Session
from jupyter_server.services.kernels.connection.base import deserialize_msg_from_ws_v1, serialize_msg_to_ws_v1
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Subprotocol

V1 = Subprotocol("v1.kernel.websocket.jupyter.org")


class IPythonSamples:
    """For a subclass of `jupyter_kernel_test.KernelTests`."""

    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys; print('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]  # noqa: RUF012
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n\n\n"]  # noqa: RUF012
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]  # noqa: RUF012
    invalid_code_samples = ["import = 7q"]  # noqa: RUF012
    code_page_something = "zip?"
    code_generate_error = "raise"
    code_execute_result = [  # noqa: RUF012
        {"code": "1+2+3", "result": "6"},
        {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"},
    ]
    code_display_data = [  # noqa: RUF012
        {"code": "from IPython.display import HTML, display; display(HTML('<b>test</b>'))", "mime": "text/html"},
        {"code": "from IPython.display import Math, display; display(Math('\\\\frac{1}{2}'))", "mime": "text/latex"},
        # The suite's own documentation has it so: a form feed and "rac", as there is no `r`.
        {"code": "from IPython.display import Math, display; display(Math('\\frac{1}{2}'))", "mime": "text/latex"},
    ]
    code_history_pattern = "1?2*"
    supported_history_operations: tuple[str, ...] = ("tail", "search")
    code_inspect_sample = "zip"
    code_clear_output = "from IPython.display import clear_output; clear_output()"


class Channel:
    """One channel of a kernel, as `jupyter_client` has them."""

    def __init__(self, client: WebSocketKernelClient, name: str) -> None:
        self._client, self._name = client, name
        self.came: Queue[dict[str, Any]] = Queue()

    def send(self, message: dict[str, Any]) -> None:
        self._client.send(self._name, message)

    def get_msg(self, timeout: float | None = None) -> dict[str, Any]:
        return self.came.get(timeout=timeout)


class WebSocketKernelClient(BlockingKernelClient):
    """A client of `jupyter_client` whose channels are one WebSocket."""

    def __init__(self, connection: ClientConnection) -> None:
        super().__init__()
        self.session = Session(key=b"")
        self._named = {name: Channel(self, name) for name in ("shell", "iopub", "stdin", "control")}
        self._connection = connection

    def send(self, channel: str, message: dict[str, Any]) -> None:
        _, _, *parts = self.session.serialize(message)  # a delimiter and the signature come first
        self._connection.send(serialize_msg_to_ws_v1(parts, channel))

    def read(self) -> None:
        """Take in what comes, until the connection ends."""
        for data in self._connection:
            channel, parts = deserialize_msg_from_ws_v1(data)
            self._named[channel].came.put(self.session.deserialize([b"", *parts]))

    shell_channel = property(lambda self: self._named["shell"])
    iopub_channel = property(lambda self: self._named["iopub"])
    stdin_channel = property(lambda self: self._named["stdin"])
    control_channel = property(lambda self: self._named["control"])


@contextmanager
def connected(url: str) -> Iterator[WebSocketKernelClient]:
    """Yield a client of the kernel behind an address."""
    with connect(url, subprotocols=[V1], max_size=None) as connection:
        client = WebSocketKernelClient(connection)
        reader = threading.Thread(target=client.read)
        reader.start()
        try:
            yield client
        finally:
            connection.close()
            reader.join()
