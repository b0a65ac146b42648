"""What a user may have of a broker, and who says so: the operator's TOML file, or none for a user's own broker.

Pure but for reading the file and the tables of users and groups. A file with one wrong line is refused as a whole.
"""

from __future__ import annotations

import grp
import os
import pwd
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...config.forms import seconds, size
from ...core.codes import Note, UsageCode
from ...core.errors import ConfigurationError, QuotaExceeded, SandboxError
from ...core.model import DATA_NAME, Attached, Settings, format_bytes
from .client import packets
from .codes import BrokerCode
from .create_request import IMAGE, RUNTIME, CreateRequest

MAX_CEILING = 100_000
OF_ALL = 256
"""Sandboxes at once, if nobody says how many."""
FILE_BYTES = 1 << 20
MAX_DATASETS = 1000
"""Of one table."""
DEFAULT_RUNTIME = "default"
"""How the file names the engine's own."""
BEST_EFFORT = "best-effort"
_DATASET = re.compile(DATA_NAME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """What one user may have; None is no limit of the broker's."""

    images: tuple[str, ...] | None = None
    runtimes: tuple[str, ...] | None = None
    memory: int | None = None
    """Bytes of one sandbox."""
    cpus: float | None = None
    """Of one sandbox."""
    pids: int | None = None
    scratch_size: int | None = None
    """Bytes of one sandbox's scratch, if that is on a disk."""
    scratch_total: int | None = None
    """Bytes of all of them at once."""
    datasets: Mapping[str, str] = field(default_factory=dict)
    """Folders that cells may read, by the names that users have for them."""
    volumes: int | None = None
    """Volumes."""
    volumes_size: int | None = None
    """Bytes of all of them together."""
    sessions: int | None = 64
    """Sandboxes at once."""
    hourly: int | None = None
    """Sandboxes within an hour."""
    detached: int = 16
    """Sandboxes at once that outlive their callers."""
    lifetime: float = 86400.0
    """Seconds after its start in which such a one ends, whatever its owner asks for."""
    takes: tuple[str, ...] = ()
    """Users whose detached sandboxes this one may list, use and end."""
    limits: str = "enforced"
    """"best-effort" allows sandboxes whose limits the machine does not enforce."""
    denied: bool = False
    own: bool = False
    """Whether the broker is this user's own, whose folders may stand in for an image and be datasets."""
    set_by: Mapping[str, str] | None = None
    """Who set each."""

    def by(self, name: str) -> str:
        return (self.set_by or {}).get(name, "the broker's own default")

    def check(self, order: CreateRequest) -> None:
        """Raise `QuotaExceeded` for an order that is over it."""
        if self.denied:
            raise QuotaExceeded(BrokerCode.BROKER_DENIED, set_by=self.by("denied"))
        for name, value in (("images", order.image), ("runtimes", order.runtime or DEFAULT_RUNTIME)):
            allowed: tuple[str, ...] | None = getattr(self, name)
            if allowed is not None and value not in allowed:
                limit, setting = ", ".join(allowed) or "none", name.removesuffix("s")
                raise QuotaExceeded(
                    BrokerCode.BROKER_DENIED, limit=limit, value=value, setting=setting, set_by=self.by(name)
                )
        if self.images is None and order.image.startswith("/") and not self.own:
            words = "a folder stands in for an image only where it is named"
            raise QuotaExceeded(Note(BrokerCode.BROKER_DENIED, words), setting="image", set_by=self.by("images"))
        asked = order.limits
        figures: tuple[tuple[str, float, Any], ...] = (
            ("memory", asked.memory, format_bytes),
            ("cpus", asked.cpus, str),
            ("pids", asked.pids, str),
            ("scratch_size", order.disk, format_bytes),
        )
        for name, number, show in figures:
            most = getattr(self, name)
            if most is not None and number > most:
                raise QuotaExceeded(
                    BrokerCode.BROKER_DENIED, limit=show(most), value=show(number), setting=name, set_by=self.by(name)
                )
        if order.limits_kept != "enforced" and self.limits != BEST_EFFORT:
            raise QuotaExceeded(
                BrokerCode.BROKER_DENIED,
                limit=self.limits,
                value=order.limits_kept,
                setting="limits",
                set_by=self.by("limits"),
            )
        if 0 in {self.volumes, self.volumes_size} and any(one.kind == "volume" for one in order.attached):
            raise QuotaExceeded(BrokerCode.BROKER_DENIED, limit="none", setting="volumes", set_by=self.by("volumes"))

    def grant(self, order: CreateRequest, uid: int, volumes: str = "") -> CreateRequest:
        """Return what is made for an order of this user, with the folders of its data. Raises `QuotaExceeded`.

        `volumes` is the folder of this user's volumes.
        """
        self.check(order)
        attached = tuple(
            self._granted(one) if one.kind == "dataset" else replace(one, source=volumes) for one in order.attached
        )
        return replace(order, attached=attached, reader=uid)

    def _granted(self, one: Attached) -> Attached:
        if one.source and self.own:
            return one
        if one.source or one.name not in self.datasets:
            raise QuotaExceeded(
                BrokerCode.BROKER_NO_PATHS if one.source else BrokerCode.BROKER_DENIED,
                limit=f"the datasets {', '.join(self.datasets)}" if self.datasets else "no dataset",
                value=one.name,
                setting="datasets",
                set_by=self.by("datasets"),
            )
        return replace(one, source=self.datasets[one.name])


UNSAID = Ceiling(
    images=(Settings().image, "sandbox-kernel:base"),
    runtimes=(DEFAULT_RUNTIME,),
    scratch_size=0,
    scratch_total=0,
    volumes=0,
    volumes_size=0,
)
"""What a file allows that does not say more: our own images, the engine's own runtime, and no disk of the machine's."""


OWN = Ceiling(own=True, sessions=None, limits=BEST_EFFORT, detached=OF_ALL)
"""What a broker of the user's own allows without a file: its caller might have had each without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The ceilings of all users of a broker."""

    everybody: Ceiling = Ceiling()
    groups: Mapping[str, Ceiling] | None = None
    users: Mapping[str, Ceiling] | None = None
    sessions: int = OF_ALL
    """Sandboxes at once, of all users together."""
    only: int | None = None
    """The one user who is served, besides root; None serves all."""
    source: str = "the broker's own default"

    def of(self, uid: int) -> Ceiling:
        """Return what a user may have: its own table wins over its groups' and these over `all`.

        Of several groups the first in the file counts.
        """
        if self.only is not None and uid not in {self.only, 0}:
            return Ceiling(denied=True, set_by={"denied": "the owner of this broker, whose own it is"})
        if not self.users and not self.groups:
            return self.everybody
        try:
            user = pwd.getpwuid(uid)
        except KeyError:  # who is served without an account is this process's own user (`user_accounts.py`)
            return self.everybody
        below = self.everybody
        mine = set()
        for gid in os.getgrouplist(user.pw_name, user.pw_gid):
            try:
                mine.add(grp.getgrgid(gid).gr_name)
            except KeyError:
                continue
        for group, ceiling in (self.groups or {}).items():
            if group in mine:
                below = ceiling
                break
        own = (self.users or {}).get(user.pw_name)
        return below if own is None else _over(below, own)


def _over(below: Ceiling, above: Ceiling) -> Ceiling:
    """Return `below` with what `above` sets itself."""
    given = {name: getattr(above, name) for name in above.set_by or {}}
    return replace(below, **given, set_by={**(below.set_by or {}), **(above.set_by or {})})


# --- the operator's file --------------------------------------------------------------------------------------------


def load(path: Path) -> Policy:
    """Return what an operator's file says. Raises `ConfigurationError` with the line and the reason."""
    try:
        status = path.stat()
        if status.st_mode & 0o022 or status.st_uid not in {0, os.geteuid()}:
            raise _wrong(path, None, "others may write it: it must be root's or the broker's own, and closed to others")
        with path.open("rb") as file:
            data = file.read(FILE_BYTES + 1)
    except OSError as error:
        raise _wrong(path, None, f"it cannot be read: {error.strerror}") from error
    if len(data) > FILE_BYTES:
        raise _wrong(path, None, f"it is larger than {format_bytes(FILE_BYTES)}")
    try:
        source = data.decode()
        said = tomllib.loads(source)
    except (ValueError, RecursionError) as error:  # the first says the line
        raise _wrong(path, None, str(error)) from error
    return _File(path, source).policy(said)


def _wrong(path: Path, line: int | None, why: str) -> ConfigurationError:
    place = f"{path}, line {line}" if line else str(path)
    return ConfigurationError(UsageCode.CONFIG_FILE_FAILED, f"the operator's file is refused: {place}: {why}")


class _File:
    def __init__(self, path: Path, source: str) -> None:
        self._path = path
        self._lines = source.splitlines()

    def policy(self, said: Mapping[str, Any]) -> Policy:
        for name in said:
            if name not in {"all", "total", "group", "user"}:
                raise self._refused((name,), name, "there is no such table: all, total, group.NAME and user.NAME are")
        everybody = _over(UNSAID, self._ceiling(("all",), said.get("all", {})))
        groups = {
            name: _over(everybody, self._ceiling(("group", name), table))
            for name, table in self._tables(said, "group", grp.getgrnam)
        }
        users = {name: self._ceiling(("user", name), table) for name, table in self._tables(said, "user", pwd.getpwnam)}
        total = said.get("total", {})
        for name in self._table(("total",), total):
            if name != "sessions":
                raise self._refused(("total",), name, "there is no such line: sessions is")
        sessions = self._whole(("total",), "sessions", total.get("sessions", OF_ALL))
        return Policy(everybody=everybody, groups=groups, users=users, sessions=sessions, source=str(self._path))

    def _tables(self, said: Mapping[str, Any], kind: str, look: Any) -> list[tuple[str, Any]]:
        tables = self._table((kind,), said.get(kind, {}))
        for name in tables:
            try:
                look(name)
            except KeyError:
                raise self._refused((kind, name), name, f"this machine has no {kind} of that name") from None
        return list(tables.items())

    def _table(self, table: tuple[str, ...], said: Any) -> Mapping[str, Any]:
        if not isinstance(said, Mapping):
            raise self._refused((), table[-1], "that is no table")
        return said

    def _ceiling(self, table: tuple[str, ...], said: Any) -> Ceiling:
        known = {one.name for one in fields(Ceiling)} - {"set_by", "own"}
        given: dict[str, Any] = {}
        for name, value in self._table(table, said).items():
            if name not in known:
                raise self._refused(table, name, f"there is no such line: {', '.join(sorted(known))} are")
            given[name] = self._value(table, name, value)
        by = f"{self._path}, [{'.'.join(table)}]"
        return Ceiling(**given, set_by=dict.fromkeys(given, by))

    def _value(self, table: tuple[str, ...], name: str, value: Any) -> Any:
        if name in {"images", "runtimes"}:
            form = IMAGE if name == "images" else RUNTIME
            if not isinstance(value, list) or not all(isinstance(one, str) and form.fullmatch(one) for one in value):
                raise self._refused(table, name, "that is no list of names")
            return tuple(value)
        if name in {"memory", "scratch_size", "scratch_total", "volumes_size"}:
            if type(value) is int and value == 0 and name != "memory":
                return 0
            try:
                return size(1)(name, value)
            except SandboxError as error:
                raise self._refused(table, name, error.message) from error
        if name == "datasets":
            return self._datasets(table, value)
        if name == "lifetime":
            try:
                found = float(str(seconds(1)(name, value)))
            except SandboxError as error:
                raise self._refused(table, name, error.message) from error
            if found > packets.MAX_LIFETIME:
                raise self._refused(table, name, f"that is longer than {packets.MAX_LIFETIME:g} s")
            return found
        if name == "takes":
            return self._users(table, value)
        if name == "cpus":
            if type(value) not in {int, float} or not 0 < value <= MAX_CEILING:
                raise self._refused(table, name, "that is no number of processors")
            return float(value)
        if name == "limits":
            if value not in {"enforced", BEST_EFFORT}:
                raise self._refused(table, name, f"enforced and {BEST_EFFORT} are the choices")
            return value
        if name == "denied":
            if type(value) is not bool:
                raise self._refused(table, name, "true and false are the choices")
            return value
        return self._whole(table, name, value)

    def _datasets(self, table: tuple[str, ...], value: Any) -> Mapping[str, str]:
        """A folder need not be there yet: a user who asks for it is told."""
        if not isinstance(value, Mapping) or len(value) > MAX_DATASETS:
            raise self._refused(table, "datasets", f"that is no table of names and folders, {MAX_DATASETS} at most")
        for name, path in value.items():
            if not _DATASET.fullmatch(name):
                why = f"{name!r} is no name: letters, digits, dots, dashes and underlines, 63 at most"
                raise self._refused(table, "datasets", why)
            if not isinstance(path, str) or not path.startswith("/") or "\0" in path:
                raise self._refused(table, "datasets", f"{name} is no path from the root on")
        return dict(value)

    def _users(self, table: tuple[str, ...], value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise self._refused(table, "takes", "that is no list of names")
        for one in value:
            try:
                pwd.getpwnam(one)
            except KeyError:
                raise self._refused(table, "takes", f"this machine has no user {one!r}") from None
        return tuple(value)

    def _whole(self, table: tuple[str, ...], name: str, value: Any) -> int:
        if type(value) is not int or not 0 <= value <= MAX_CEILING:
            raise self._refused(table, name, f"that is no whole number from 0 to {MAX_CEILING}")
        return value

    def _refused(self, table: tuple[str, ...], name: str, why: str) -> ConfigurationError:
        """Return the error, with the line that the name stands in, as far as a look from outside finds it."""
        head = re.compile(r"\s*\[\s*" + r"\s*\.\s*".join(f"[\"']?{re.escape(one)}[\"']?" for one in table) + r"\s*\]")
        word = re.compile(rf"\s*\[?\s*[\"']?(?:[\w-]+\.)*[\"']?{re.escape(name)}[\"']?\s*[=.\]]")
        within, found = not table, None
        for number, line in enumerate(self._lines, 1):
            if head.match(line):
                within, found = True, found or number
            elif line.lstrip().startswith("[") and table:
                within = False
            if within and word.match(line):
                found = number
                break
        return _wrong(self._path, found, f"{name}: {why}")
