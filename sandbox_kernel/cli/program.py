"""One run of the program: the arguments choose a command, and what it raises on purpose becomes an exit code."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence

from ..core.errors import ConfigurationError, EngineError, SandboxError
from ..policy.shown import LogLines, ours
from .arguments import parse
from .commands import INTERRUPTED, PLATFORM, USAGE, WRONG


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; errors made on purpose are one paragraph, others a traceback."""
    _import_no_grammar()
    try:
        options = parse(sys.argv[1:] if argv is None else list(argv))
        return int(options.run(options))
    except SandboxError as error:
        text = textwrap.fill(ours(f"sandbox-kernel: {error}"), 110, break_long_words=False)
        print(LogLines().feed(text), file=sys.stderr)
        return PLATFORM if isinstance(error, EngineError) else USAGE if isinstance(error, ConfigurationError) else WRONG
    except KeyboardInterrupt:
        return INTERRUPTED


def _import_no_grammar() -> None:
    """Let jsonschema, which nbformat and mcp import, go without its check of the format `iri`; no schema here names it.

    Where the package of that check is installed, as JupyterLab has it, its import compiles a grammar for a second.
    """
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # None: as if it were not installed
