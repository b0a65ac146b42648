"""`python -m sandbox_kernel -f CONNECTION_FILE [settings]` runs the kernel; with a command, it is `sandbox-kernel`.

The path of the kernel imports nothing that it does not need: its start-up time begins here.
"""

from __future__ import annotations

import contextlib
import os
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current folder first, which may be one from elsewhere.
    del sys.path[0]

from . import __version__


def main(argv: list[str]) -> int:
    """Return the exit code: 2 for arguments without a connection file, else the kernel's or the command's own."""
    if argv == ["--version"]:
        sys.stdout.write(f"sandbox-kernel {__version__}\n")
        return 0
    if not is_kernel(argv):
        from .cli import main as command_line

        return command_line(argv)
    from .kernel.head_start import kernel_main

    return kernel_main(argv)


def is_kernel(argv: list[str]) -> bool:
    """Return whether these are the arguments of a kernel, and not of a command."""
    return bool(argv) and argv[0].startswith("-") and argv[0] not in ("-h", "--help", "--version")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if is_kernel(sys.argv[1:]):
        # All that it had is closed. Whoever restarts it waits for its end, and looks every 0.1 s.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
