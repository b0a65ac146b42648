"""`python -m sandbox_kernel -f CONNECTION_FILE [settings]` runs the kernel; with a command, it is `sandbox-kernel`.

The path of the kernel imports nothing that it does not need: its start-up time begins here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first, which may be one from elsewhere.
    del sys.path[0]

from itertools import pairwise
from pathlib import Path

from . import __version__
from .core.errors import ConfigurationError
from .core.model import Settings


def main(argv: list[str]) -> int:
    """Return the exit code: 2 for arguments without a connection file, else the kernel's or the command's own."""
    if argv == ["--version"]:
        sys.stdout.write(f"sandbox-kernel {__version__}\n")
        return 0
    if not is_kernel(argv):
        from .cli import main as command_line

        return command_line(argv)
    gc.disable()  # until all is loaded, which stays: looking through it takes a tenth of the start
    from .config.sources import from_argv

    settings: Settings | ConfigurationError
    try:
        connection_file, settings = from_argv(argv)
    except ConfigurationError as error:
        sys.stderr.write(f"sandbox-kernel: {error}\n")
        connection_file, settings = _connection_file(argv), error
        if connection_file is None:
            return 2
    if connection_file is None:
        sys.stderr.write("sandbox-kernel: a kernel needs -f and the connection file that its front end wrote\n")
        return 2
    from .kernel.head_start import NOTHING_BEGUN, head_start, run_kernel

    begun = NOTHING_BEGUN if isinstance(settings, ConfigurationError) else head_start(connection_file, settings)
    return run_kernel(connection_file, settings, begun)


def is_kernel(argv: list[str]) -> bool:
    """Return whether these are the arguments of a kernel, and not of a command."""
    return bool(argv) and argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version")


def _connection_file(argv: list[str]) -> str | None:
    """Return the connection file among arguments of which one is wrong, if it can be said."""
    found = [after for word, after in pairwise(argv) if word == "-f" and Path(after).is_file()]
    return found[0] if len(found) == 1 else None


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if is_kernel(sys.argv[1:]):
        # All that it had is closed. Whoever restarts it waits for its end, and looks every 0.1 s.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
