"""What E2B's clients note of files that they send: words by their names, which entries bring along.

The server keeps them by path, in memory; the next one has none of them. What cells do to files does not change them.
"""

from __future__ import annotations

from pathlib import PurePosixPath

from starlette.requests import Request

from ..codes import ServeCode
from ..home import HOME
from ..requests import Refusal
from ..tenants import Lease

PREFIX = "x-metadata-"
MAX_BYTES = 4096
"""Of all names and values of one file."""
MAX_FILES = 1000
"""Of one sandbox."""


def whole(path: str) -> str:
    return str(PurePosixPath(HOME, path))


def given(request: Request) -> dict[str, str]:
    """Return what a request notes of its files. Raises `Refusal` for too much of it."""
    found = {
        name[len(PREFIX) :]: value
        for name, value in request.headers.items()
        if name.startswith(PREFIX) and len(name) > len(PREFIX)
    }
    if sum(len(name) + len(value) for name, value in found.items()) > MAX_BYTES:
        raise Refusal(400, ServeCode.BODY_TOO_LARGE, f"The metadata of a file may have {MAX_BYTES:,} bytes")
    return found


def check_room(lease: Lease, noted: dict[str, str]) -> None:
    """Raise `Refusal` if no more files of the sandbox may have any."""
    if noted and len(lease.metadata) >= MAX_FILES:
        raise Refusal(400, ServeCode.BODY_TOO_LARGE, f"{MAX_FILES:,} files of a sandbox may have metadata")


def written(lease: Lease, path: str, noted: dict[str, str]) -> None:
    """Note what is said of a file that was written; nothing takes away what was said before."""
    lease.metadata.pop(whole(path), None)
    if noted:
        lease.metadata[whole(path)] = noted


def of(lease: Lease, path: str) -> dict[str, dict[str, str]]:
    """Return the field of an entry."""
    found = lease.metadata.get(whole(path))
    return {"metadata": found} if found else {}


def moved(lease: Lease, source: str, destination: str) -> None:
    """Have what is noted of an entry, and of those in it, go with it."""
    old, new = PurePosixPath(whole(source)), PurePosixPath(whole(destination))
    removed(lease, destination)
    for path in [one for one in lease.metadata if PurePosixPath(one).is_relative_to(old)]:
        lease.metadata[str(new / PurePosixPath(path).relative_to(old))] = lease.metadata.pop(path)


def removed(lease: Lease, path: str) -> None:
    """Forget what is noted of an entry, and of those in it."""
    for one in [one for one in lease.metadata if PurePosixPath(one).is_relative_to(whole(path))]:
        del lease.metadata[one]
