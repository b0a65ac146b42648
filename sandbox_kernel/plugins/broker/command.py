"""`sandbox-kernel broker`: the daemon's options, its sockets and its file."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...core.codes import UsageCode
from ...core.descriptors import room_for_files
from ...core.errors import ConfigurationError, SandboxError
from .settings import STATE, BrokerSettings

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from ...core.model import Settings
    from .ceilings import Policy

OPERATORS_FILE = Path("/etc/sandbox-kernel/broker.toml")
OWN_IDLE_SECONDS = 1800.0
MAX_METRICS_BYTES = 4096


def add_options(one: argparse.ArgumentParser) -> None:
    """Add what the daemon takes besides settings."""
    one.add_argument("--socket", metavar="PATH", help="where it listens (default: the user's own place)")
    one.add_argument(
        "--for-all",
        action="store_true",
        help=f"serve all users of the machine, within the ceilings of the file (default: {OPERATORS_FILE})",
    )
    one.add_argument("--file", type=Path, metavar="FILE", help="a TOML file of ceilings; read again on SIGHUP")
    one.add_argument("--state", metavar="FOLDER", help=f"what outlives it: its users' volumes (default: {STATE})")
    one.add_argument("--metrics", metavar="PATH", help="a unix socket on which Prometheus's figures are to be had")
    one.add_argument(
        "--stay", action="store_true", help="do not end when it was unused for half an hour (always with --for-all)"
    )
    one.add_argument("--check", action="store_true", help="only say whether the file is in order")


def serve(options: argparse.Namespace, settings: Settings) -> int:
    """Run until SIGTERM. Raises `ConfigurationError`."""
    from .ceilings import OWN, Policy, load

    file: Path | None = options.file or (OPERATORS_FILE if options.for_all else None)
    if options.check and file is None:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "--check needs --file, or --for-all")
    own = os.geteuid()
    policy = load(file) if file is not None else Policy(everybody=OWN)
    if not options.for_all:
        policy = replace(policy, only=own)
    if options.check:
        sys.stdout.write(f"{file} is in order\n")
        return 0
    asyncio.run(_serve(options, settings, policy, file))
    return 0


async def _serve(options: argparse.Namespace, settings: Settings, policy: Policy, file: Path | None) -> None:
    from ...engines.broker_sockets import OPERATORS, own
    from ...engines.select import make_own_engine
    from .ceilings import load
    from .client.listener_trust import others
    from .daemon import Broker, bound, on_signals
    from .pool import Pool

    room_for_files()
    warm = settings.of(BrokerSettings)
    path = options.socket or (OPERATORS if options.for_all else own())
    engine = make_own_engine(settings)
    sock, _lock = bound(path, for_all=options.for_all)
    broker = Broker(
        engine,
        policy,
        pool=Pool(engine, size=warm.pool, preload=warm.preload, report=_say),
        idle_seconds=None if options.stay or options.for_all else OWN_IDLE_SECONDS,
        state=options.state or STATE,
        say=_say,
    )

    def again() -> None:
        if file is None:
            return
        try:
            found = load(file)
        except SandboxError as error:
            _say(f"{error} What was in force before stays in force.")
            return
        broker.policy = found if options.for_all else replace(found, only=os.geteuid())
        _say(f"{file} is in force")

    on_signals(broker, again)
    pages = await _metrics(broker.page, options.metrics) if options.metrics else None
    broker.listen(sock)
    kept = f"{warm.pool} {'sandbox' if warm.pool == 1 else 'sandboxes'} kept ready"
    _say(f"listening at {path}, engine {engine.address}, {kept}")
    for other in others() if path == own() else ():
        _say(f"a broker of another installation listens at {other}: sessions of this one do not take it")
    try:
        await broker.run()
    finally:
        if pages is not None:
            pages.close()


async def _metrics(figures: Callable[[], Awaitable[str]], path: str) -> asyncio.AbstractServer:
    """Serve the page of figures on a unix socket, over as much HTTP as Prometheus needs."""
    from ...core.prometheus_text import CONTENT_TYPE

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(5):
                head = await reader.readuntil(b"\r\n\r\n")
                found = head.startswith(b"GET /metrics ")
                page = await figures() if found else "there is /metrics and nothing else\n"
                status = "200 OK" if found else "404 Not Found"
                body = page.encode()
                writer.write(
                    f"HTTP/1.0 {status}\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                    + body
                )
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 (a loop waits for no disk here)
    before = os.umask(0o117)
    try:
        return await asyncio.start_unix_server(answer, path, limit=MAX_METRICS_BYTES)
    finally:
        os.umask(before)


def _say(line: str) -> None:
    """Write a line for the operator, as far as there is room for it: a log on a full disk ends nothing."""
    with contextlib.suppress(OSError):
        os.write(2, f"sandbox-kernel broker: {line}\n".encode(errors="backslashreplace"))
