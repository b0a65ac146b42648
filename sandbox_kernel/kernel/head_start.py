"""What a kernel process loads, and when: the engine is asked for its container first, and works meanwhile.

Both take about as long. Nothing here is needed for a start: without it the session asks, and meets what is wrong.
Imports the pipe holder and the engine's spec; neither asyncio nor what does.
"""

from __future__ import annotations

import gc
import importlib
import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..core.errors import ConfigurationError, SandboxError
from ..core.helper_processes import keep_ends_of_children
from ..engines.attachment import may_wait
from ..engines.preparations import Preparations
from ..engines.select import ask_ahead, make_engine, of_session
from ..engines.shipping import new_spec
from . import kept_ports, pipe_holder

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from ..core.model import Settings
    from ..engines.base import Ahead

SWITCH_SECONDS = 0.0005
"""How long a thread that imports may keep the loop waiting, each time."""


class HeadStart(NamedTuple):
    """What was begun: the first container, and what plugins prepared for it."""

    ahead: Ahead | None = None
    prepared: Preparations | None = None
    ports: Mapping[str, int] = kept_ports.NO_PORTS
    """The sockets that clients find open already, by channel."""


NOTHING_BEGUN = HeadStart()


def kernel_main(argv: list[str], ports: Mapping[str, int] = kept_ports.NO_PORTS) -> int:
    """Run a kernel with these arguments until its shutdown; return its exit code, 2 without a connection file.

    Its `ports` may be open already.
    """
    keep_ends_of_children()
    gc.disable()  # until all is loaded, which stays: looking through it takes a tenth of the start
    from ..config.sources import from_argv

    settings: Settings | ConfigurationError
    try:
        connection_file, settings = from_argv(argv)
    except ConfigurationError as error:
        sys.stderr.write(f"sandbox-kernel: {error}\n")
        connection_file, settings = connection_file_of(argv), error
        if connection_file is None:
            return 2
    if connection_file is None:
        sys.stderr.write("sandbox-kernel: a kernel needs -f and the connection file that its front end wrote\n")
        return 2
    ports = ports or open_ports(connection_file)
    begun = NOTHING_BEGUN if isinstance(settings, ConfigurationError) else head_start(connection_file, settings)
    return run_kernel(connection_file, settings, begun._replace(ports=ports))


def open_ports(connection_file: str | None) -> dict[str, int]:
    """Listen where the connection file says, if it does; what is wrong with it is said later."""
    try:
        connection = json.loads(Path(str(connection_file)).read_text(encoding="utf-8"))
        return kept_ports.listen(connection)
    except (OSError, ValueError, AttributeError):
        return {}


def connection_file_of(argv: list[str]) -> str | None:
    """Return the connection file among arguments of which one is wrong, if it can be said."""
    from ..config.sources import CONNECTION_FILE, unquoted

    words = [(*word.partition("="), after) for word, after in pairwise([*argv, ""])]
    named = {unquoted(value if given else after) for flag, given, value, after in words if flag in CONNECTION_FILE}
    found = [name for name in named if Path(name).is_file()]
    return found[0] if len(found) == 1 else None


def head_start(connection_file: str, settings: Settings) -> HeadStart:
    """Ask for the first container; for none if the kernel process before may have left one, or it cannot be."""
    try:
        connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))
        if pipe_holder.left(pipe_holder.place(connection_file, str(connection.get("key", "")))):
            return NOTHING_BEGUN
        prepared = Preparations(settings)
        spec = new_spec(settings, inside=prepared.inside)
        if may_wait(spec):  # front ends do not: the sockets come first
            return HeadStart(None, prepared)
        return HeadStart(ask_ahead(of_session(settings), spec), prepared)
    except (OSError, ValueError, AttributeError, SandboxError):
        return NOTHING_BEGUN


def run_kernel(
    connection_file: str,
    settings: Settings | ConfigurationError,
    begun: HeadStart = NOTHING_BEGUN,
) -> int:
    """Run a kernel until its shutdown; return the process's exit code.

    Its first container may be asked for already. With an error in place of settings it starts nothing, and every cell
    is answered with that: where a person would else see a kernel that dies again and again.
    """
    import asyncio

    from ..core.heap import share_arena

    share_arena()  # importing what comes next takes a thread
    connection = json.loads(Path(connection_file).read_text(encoding="utf-8"))

    async def run() -> int:
        engine = None
        if begun.ahead is not None and not isinstance(settings, ConfigurationError):
            engine = make_engine(settings, begun.ahead)  # which goes on, while the rest is loaded
        module = await import_meanwhile("sandbox_kernel.kernel.proxy")
        proxy = module.Proxy(connection_file, connection, settings, begun, engine)
        return int(await proxy.run())

    return asyncio.run(run())


async def import_meanwhile(name: str) -> ModuleType:
    """Import a module in a thread. The loop has short turns, and the engine waits for each of them."""
    if name in sys.modules:
        return sys.modules[name]
    import asyncio

    usual = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        return await asyncio.to_thread(importlib.import_module, name)
    finally:
        sys.setswitchinterval(usual)
