"""What this plugin adds: answers to requests of front ends about files."""

from __future__ import annotations

from typing import Any

from ..api import FileAnswers, FileRequests, Plugin
from .codes import FileMessageCode


def described() -> dict[str, int]:
    """Return what kernel_info says of these messages."""
    from . import bounds

    return bounds.described()


def answers(*session: Any, **more: Any) -> FileAnswers:
    """Return what answers for one session."""
    from .file_messages import FileMessages

    return FileMessages(*session, **more)


PLUGIN = Plugin(
    name="file_messages",
    page="docs/jupyter-server.md",
    codes={"File messages": FileMessageCode},
    file_requests=FileRequests(described, answers),
)
