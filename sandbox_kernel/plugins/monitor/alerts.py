"""Alerts on their way to the operator: a webhook, or a program of the host's. Queued, bounded, retried; nobody waits.

One thread for each session that has somewhere to send to; it ends with the process, whatever it waits for. What is sent
is JSON on stdin or in a body, never an argument or a variable.
"""

from __future__ import annotations

import asyncio
import json
import queue
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from email.message import Message
from typing import IO

from ...core.helper_processes import environment_of_helpers
from ...core.model import Settings
from .settings import MonitorSettings

MAX_WAITING = 100
"""Most alerts that wait to be sent; a further one is reported as lost."""
TRIES, FIRST_PAUSE = 5, 1.0
"""The pause doubles: an alert is given up after 15 s of pauses and five tries."""
TRY_SECONDS = 10.0
CLOSE_SECONDS = 3.0
"""How long the end of a session waits for what is still to be sent."""

Lost = Callable[[str], None]


class _Stay(urllib.request.HTTPRedirectHandler):
    """An alert goes where the operator said, and nowhere else."""

    def redirect_request(  # noqa: PLR0917 (the library's own)
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> None:
        return None


class Alerts:
    """Sends documents, one after another."""

    def __init__(
        self,
        ways: Mapping[str, Callable[[bytes], None]],
        lost: Lost,
        *,
        tries: int = TRIES,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        """`ways` are functions that send bytes, or raise; `lost` is told of each alert that was not sent.

        `lost` is called from the loop on which `send` is called first.
        """
        self._ways = ways
        self._lost = lost
        self._tries, self._first_pause = tries, first_pause
        self._queue: queue.Queue[bytes | None] = queue.Queue(MAX_WAITING)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    @classmethod
    def of(cls, settings: Settings, lost: Lost) -> Alerts | None:
        """Return what sends the alerts of a session, None where there is nowhere to send them."""
        ways: dict[str, Callable[[bytes], None]] = {}
        chosen = settings.of(MonitorSettings)
        if chosen.monitor_webhook is not None:
            proxy, certificates = settings.get("network_proxy", None), settings.get("network_certificates", None)
            ways["webhook"] = webhook(chosen.monitor_webhook, proxy, certificates)
        if chosen.monitor_command:
            ways["command"] = command(chosen.monitor_command)
        return cls(ways, lost) if ways else None

    def send(self, document: Mapping[str, object]) -> None:
        """Queue an alert; never blocks."""
        if self._thread is None:
            self._loop = asyncio.get_running_loop()
            self._thread = threading.Thread(target=self._work, name="sandbox-alerts", daemon=True)
            self._thread.start()
        try:
            self._queue.put_nowait(json.dumps(document).encode())
        except queue.Full:
            self._lost(f"{MAX_WAITING} alerts are waiting to be sent already")

    async def close(self) -> None:
        """Wait a moment for what is still to be sent; the rest goes on with one try, as long as the process lives."""
        if self._thread is None:
            return
        self.end()
        await asyncio.to_thread(self._thread.join, CLOSE_SECONDS)

    def end(self) -> None:
        """Have the thread end once it has sent what there is, each with one more try; waits for nothing."""
        self._closing.set()
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return  # the thread ends when it has sent all of it, or with the process

    def _work(self) -> None:
        while (document := self._queue.get()) is not None:
            for name, way in self._ways.items():
                self._deliver(name, way, document)
            if self._closing.is_set() and self._queue.empty():
                return

    def _deliver(self, name: str, way: Callable[[bytes], None], document: bytes) -> None:
        pause, why = self._first_pause, ""
        for number in range(self._tries):
            if number:
                self._closing.wait(pause)
                pause *= 2
            try:
                way(document)
            except Exception as error:  # an answer that is no HTTP raises none of OSError; the thread outlives all
                why = f"an alert was not sent by the {name}: {_why(error)}"
            else:
                return
            if self._closing.is_set():
                break
        self._say(why)

    def _say(self, why: str) -> None:
        try:
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._lost, why)
        except RuntimeError:
            return  # its loop is closed, and the audit with it


def webhook(url: str, proxy: str | None, certificates: str | None) -> Callable[[bytes], None]:
    """Return a function that posts JSON to an address. It raises `OSError` unless the answer is of the kind 2xx."""

    def post(document: bytes) -> None:
        handlers: list[urllib.request.BaseHandler] = [_Stay()]
        if proxy != "environment":
            handlers.append(urllib.request.ProxyHandler({} if proxy is None else {"http": proxy, "https": proxy}))
        if url.startswith("https:"):
            import ssl

            context = ssl.create_default_context()
            if certificates is not None:
                context.load_verify_locations(certificates)
            handlers.append(urllib.request.HTTPSHandler(context=context))
        head = {"Content-Type": "application/json", "User-Agent": "sandbox-kernel"}
        request = urllib.request.Request(url, document, head)  # noqa: S310 (the setting takes http and https only)
        with urllib.request.build_opener(*handlers).open(request, timeout=TRY_SECONDS):
            pass

    return post


def command(arguments: tuple[str, ...]) -> Callable[[bytes], None]:
    """Return a function that starts a program with JSON on its stdin. It raises unless that ends with 0 in time."""

    def run(document: bytes) -> None:
        subprocess.run(
            arguments,
            input=document,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=environment_of_helpers(),
            timeout=TRY_SECONDS,
            check=True,
            start_new_session=True,
        )

    return run


def _why(error: Exception) -> str:
    """Say what went wrong without the address, which may hold a token, and without an argument."""
    if isinstance(error, urllib.error.HTTPError):
        return f"the answer was {error.code}"
    if isinstance(error, subprocess.CalledProcessError):
        return f"it ended with {error.returncode}"
    if isinstance(error, subprocess.TimeoutExpired | TimeoutError):
        return f"it took longer than {TRY_SECONDS:g} s"
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    return type(cause).__name__ if isinstance(cause, BaseException) else "no connection"
