"""Which account of this machine the user id of a process stands for: ceilings, quotas and denials are an account's.

One user can have thousands of user ids: those that /etc/subuid lends to it, for its containers and user namespaces. So
a user id counts only if it is an account's own, in the system's table of users (NSS), and nobody else's to take. All
others are refused and not charged to somebody: the ranges may overlap, name a user that is gone, or be kept elsewhere,
and who is refused has no sandbox, no file and no row of anybody's. Groups play no part: those of a ceiling are read
from the account, never from the process.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from ...core.errors import EngineError
from .codes import BrokerCode

SUBORDINATE = Path("/etc/subuid")
UID_MAP = Path("/proc/self/uid_map")
OVERFLOW = Path("/proc/sys/kernel/overflowuid")
ALL_IDS = (1 << 32) - 1
"""How many user ids there are: the last number stands for none."""


def require_account(uid: int) -> None:
    """Raise `EngineError` unless a process under this user id is root's, this process's own user's or an account's."""
    if uid < 0 or uid >= ALL_IDS or (uid == _overflow() and not _sees_all()):
        raise _refused(uid, "it stands for each user that this user namespace does not map")
    if uid in {0, os.geteuid()}:
        return
    try:
        owners = sorted({owner for first, count, owner in _ranges() if first <= uid < first + count})
    except OSError as error:
        raise _refused(uid, f"{SUBORDINATE} cannot be read, which may lend it: {error.strerror}") from error
    try:
        name = pwd.getpwuid(uid).pw_name
    except KeyError:
        lent = f" lends it to {', '.join(owners)}" if owners else " lends it to nobody"
        raise _refused(uid, f"the system's table of users does not have it; {SUBORDINATE}{lent}") from None
    # Root may be any user, with a range or without: LXC wants "root:1000:1" to share one account's id.
    others = [owner for owner in owners if owner != name and _uid_of(owner) not in {uid, 0}]
    if others:
        raise _refused(uid, f"it is the account {name}, and {SUBORDINATE} lends it to {', '.join(others)}")


def _refused(uid: int, why: str) -> EngineError:
    return EngineError(BrokerCode.BROKER_NO_ACCOUNT, why[:500], value=f"uid {uid}")


def _uid_of(owner: str) -> int | None:
    """Return the user id of the owner of a range, who is named or numbered; None for one that is gone."""
    if owner.isdecimal():
        return int(owner)
    try:
        return pwd.getpwnam(owner).pw_uid
    except KeyError:
        return None


def _ranges() -> tuple[tuple[int, int, str], ...]:
    """Return first id, number of ids and owner of each range, read anew after a change. Raises OSError."""
    try:
        status = SUBORDINATE.stat()
    except FileNotFoundError:
        return ()
    return _read(SUBORDINATE, status.st_ino, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _read(path: Path, *_: int) -> tuple[tuple[int, int, str], ...]:
    return tuple(_parsed(path.read_bytes().decode("utf-8", "backslashreplace")))


def _parsed(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the ranges as newuidmap reads them: what is no range lends nothing there either."""
    for line in text.split("\n"):
        owner, *numbers = line.split(":")
        try:
            first, count = (_number(number.strip()) for number in numbers)
        except ValueError:
            continue
        if owner and count > 0:
            yield first, count, owner


def _number(text: str) -> int:
    """Return a number as C's `strtoul` reads it: hexadecimal after 0x, octal after 0. Raises ValueError."""
    return int(text, 8 if text[:1] == "0" and text.isdecimal() else 0)


def _overflow() -> int:
    try:
        return int(OVERFLOW.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 65534


def _sees_all() -> bool:
    """Return whether each user id of the machine has a number of its own here."""
    try:
        rows = [line.split() for line in UID_MAP.read_text(encoding="ascii").splitlines()]
    except OSError:
        return False
    return sum(int(row[2]) for row in rows) >= ALL_IDS
