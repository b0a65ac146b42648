"""What outlives the server of the sandboxes that do: whose each is, its tokens, and by which name it is found.

A file for each sandbox: a create writes its own and no other, and one that is broken costs no other anything. They are
closed to others, for they hold tokens; the broker's own list of sandboxes, which has metadata, shows none.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson

from ...core.errors import ConfigurationError
from .codes import ServeCode

NAME = re.compile(r"[0-9a-f]{32}")
MAX_BYTES = 8 << 20
"""Of one file; the metadata of a client is most of it."""
LAST_MOMENT = 1e11
"""Seconds since 1970 of the last moments that there is a date of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLease:
    """One sandbox as its file has it."""

    tenant: str
    template: str
    name: str
    access_token: str
    traffic_token: str
    metadata: dict[str, str] = field(default_factory=dict)
    offline: bool = False
    """Whether its client wanted no network, whatever the operator allows."""
    hosts: list[str] = field(default_factory=list)
    """What its client narrowed the network to, of what the operator allowed then."""
    pauses_at: float | None = None
    """When it is paused, in seconds since 1970, where its client wanted that in place of its end."""


class LeaseFiles:
    """The files of one server, which no other may use meanwhile."""

    def __init__(self, folder: Path) -> None:
        """Take the folder; make it if it is not there. Raises `ConfigurationError`."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = folder.stat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o077:
                raise PermissionError(1, "it is not this user's alone")
            self._lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self.mark = os.pread(self._lock, 64, 0).decode("ascii", "replace")
                if not NAME.fullmatch(self.mark):
                    self.mark = secrets.token_hex(16)
                    os.ftruncate(self._lock, 0)
                    os.pwrite(self._lock, self.mark.encode(), 0)
            except BaseException:
                os.close(self._lock)
                raise
        except BlockingIOError:
            words = f"another server has the sandboxes of {folder}; end it, or use another token file"
            raise ConfigurationError(ServeCode.SERVE_RUNS_ALREADY, words, setting="token-file") from None
        except OSError as error:
            words = f"{folder}, where the tokens of sandboxes are kept, cannot be used: {error.strerror}"
            raise ConfigurationError(ServeCode.SERVE_TOKENS_UNFIT, words, setting="token-file") from None
        self._folder = folder
        """`mark` tells the sandboxes of this server from others of this user; the folder keeps it."""

    def write(self, identity: str, lease: KeptLease) -> None:
        """Write a sandbox down: all of it, or nothing. Raises OSError."""
        path = self._folder / identity
        new = path.with_suffix(".new")
        fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(orjson.dumps(asdict(lease)))
        new.rename(path)

    def remove(self, identity: str) -> None:
        (self._folder / identity).unlink(missing_ok=True)

    def all(self) -> dict[str, KeptLease]:
        """Return the sandboxes that are written down, by their ids; what cannot be read is removed."""
        leases: dict[str, KeptLease] = {}
        for path in self._folder.iterdir():
            if path.name == "lock":
                continue
            try:
                if not NAME.fullmatch(path.name) or path.stat().st_size > MAX_BYTES:
                    raise ValueError("that is no sandbox")
                lease = KeptLease(**orjson.loads(path.read_bytes()))
                if type(lease.metadata) is not dict or type(lease.hosts) is not list:
                    raise ValueError("that is no sandbox")
                own = (lease.tenant, lease.template, lease.name, lease.access_token, lease.traffic_token)
                texts = (*own, *lease.hosts, *lease.metadata, *lease.metadata.values())
                if not all(isinstance(each, str) for each in texts) or type(lease.offline) is not bool:
                    raise ValueError("that is no sandbox")
                if lease.pauses_at is not None and (
                    type(lease.pauses_at) not in {int, float} or not 0 <= lease.pauses_at < LAST_MOMENT
                ):
                    raise ValueError("that is no time")
                if min(len(lease.access_token), len(lease.traffic_token)) < 16:
                    raise ValueError("a token is too short")
                leases[path.name] = lease
            except (OSError, LookupError, TypeError, ValueError):
                path.unlink(missing_ok=True)
        return leases

    def close(self) -> None:
        """Leave them to the next server."""
        os.close(self._lock)
