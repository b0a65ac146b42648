"""What an ordinary exception of a cell has to do with the sandbox: one line for a person who does not know its walls.

Pure; imports model only. What the cell says is looked at and not repeated, so nothing of it gets into a hint.
"""

from __future__ import annotations

import re

from ..core.model import Limits, format_bytes

_NO_NETWORK = (
    r"Temporary failure in name resolution|Name or service not known|\[Errno 101\] Network is unreachable"
    r"|\[Errno 113\] No route to host|Could not resolve host|Cannot connect to host .* \[DNS"
)
_WITH_A_WAY_OUT = (
    "this went past the way out, which is a proxy: the sandbox itself has no network. Libraries find it in HTTP_PROXY "
    "and HTTPS_PROXY; aiohttp needs trust_env=True. What is no HTTP or TLS cannot use it. Setting: network."
)
"""In place of the hint on the network, where there are rules for it."""

_HINTS = (
    (
        r"No space left on device",
        "a folder of the sandbox is full. Limits: {scratch} in /mnt/data (scratch_size), {tmp} in /tmp (tmp_size), "
        "{shm} in /dev/shm (shm_size).",
    ),
    (
        r"Unable to allocate |^MemoryError\b",
        "this needs more memory than the sandbox has. Limit: {memory}, files included. Setting to change: memory.",
    ),
    (
        r"^BlockingIOError: \[Errno 11\]|can't start new thread",
        "the sandbox runs no more processes and threads at a time. Limit: {pids}. Setting to change: pids.",
    ),
    (
        r"\[Errno 24\] Too many open files",
        "a process may have no more files open. Limit: {files}. Setting to change: open_files.",
    ),
    (_NO_NETWORK, "the sandbox has no network. Bring the file in from outside, such as through the uploads folder."),
    (
        r"^ModuleNotFoundError: ",
        "a cell cannot install packages; they are part of the image (sandbox-kernel build --requirements FILE).",
    ),
)
_MAX_SEARCHED = 5000
"""Characters of an exception that are looked at; an error's text may be as long as a message."""


def hint(name: str, value: str, limits: Limits, *, way_out: bool = False) -> str | None:
    """Return the hint for an exception, by its name and its text, if there is one.

    `way_out` says that cells may reach something.
    """
    said = f"{name}: {value[:_MAX_SEARCHED]}"
    if way_out and re.search(_NO_NETWORK, said):
        return _WITH_A_WAY_OUT
    found = next((text for pattern, text in _HINTS if re.search(pattern, said)), None)
    return found and found.format(
        scratch=format_bytes(limits.scratch_bytes),
        tmp=format_bytes(limits.tmp_bytes),
        shm=format_bytes(limits.shm_bytes),
        memory=format_bytes(limits.memory_bytes),
        pids=limits.pids,
        files=limits.open_files,
    )
