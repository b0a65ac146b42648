"""One run of the program: the arguments choose a command, and what it raises on purpose becomes an exit code."""

from __future__ import annotations

import os
import select
import sys
import textwrap
from collections.abc import Sequence

from ..core.errors import ConfigurationError, EngineError, SandboxError
from ..core.resources import keep_ends_of_children
from ..policy.safe_text import LogLines, ours
from .arguments import parse
from .commands import INTERRUPTED, PLATFORM, USAGE, WRONG

READER_GONE = 141
"""128 + SIGPIPE, as shells say it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors made on purpose are one paragraph, others a traceback."""
    _import_no_grammar()
    keep_ends_of_children()
    try:
        options = parse(sys.argv[1:] if argv is None else list(argv))
        return _said(int(options.run(options)))
    except SandboxError as error:
        text = textwrap.fill(ours(f"sandbox-kernel: {error}"), 110, break_long_words=False)
        print(LogLines().feed(text), file=sys.stderr)
        return PLATFORM if isinstance(error, EngineError) else USAGE if isinstance(error, ConfigurationError) else WRONG
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        if not _reader_is_gone():
            raise
        return READER_GONE


def _said(code: int) -> int:
    sys.stdout.flush()  # here, where it is known what to do if nobody reads it
    return code


def _reader_is_gone() -> bool:
    """Return whether nobody reads what is printed any more, as behind `| head`; nothing is printed then."""
    look = select.poll()
    look.register(sys.stdout, 0)
    if not look.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left would be tried again at the end
    return True


def _import_no_grammar() -> None:
    """Let jsonschema, which nbformat and mcp import, go without its check of the format `iri`; no schema here names it.

    Where the package of that check is installed, as JupyterLab has it, its import compiles a grammar for a second.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: as if it were not installed
