"""How one setting is written: forms that turn what a user wrote into a checked value, or say what is wrong with it.

Imports model's units and errors only. Every form takes the setting's name, for the error, and the raw value: text
from a command line, or text, a number or None from a config file or a keyword.
"""

from __future__ import annotations

import os
import pwd
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from .errors import ConfigurationError
from .model import GIB, KIB, MIB, format_bytes

T = TypeVar("T")
MOST_BYTES = 1 << 50
MOST_SECONDS = 1e9

_SIZE = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(?:([KMGT])(?:I?B)?|B)?", re.IGNORECASE)
_TIME = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*(s|m|min|h)?", re.IGNORECASE)
_UNITS = {"": 1, "K": KIB, "M": MIB, "G": GIB, "T": 1 << 40}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """A function that reads a value, and what it takes, in words."""

    read: Callable[[str, object], T]
    words: str

    def __call__(self, name: str, raw: object) -> T:
        return self.read(name, raw)


def refuse(name: str, value: object, message: str, *, limit: str | None = None) -> ConfigurationError:
    """Return the error for a value that cannot work."""
    return ConfigurationError(message, limit=limit, value=repr(value), setting=name)


def _check(name: str, raw: object, value: float, bounds: tuple[float, float], show: Callable[[float], str]) -> None:
    low, high = bounds
    if not low <= value <= high:  # so written, it refuses NaN too
        side, bound = ("small", f"at least {show(low)}") if value < low else ("large", f"at most {show(high)}")
        raise refuse(name, raw, f"{name} is too {side}", limit=bound)


def size(low: int, high: int = MOST_BYTES) -> Form[int]:
    """A size in bytes: an integer, or text such as 512M, 2G, 1.5GiB. Units count in 1024 with or without the i."""

    def parse(name: str, raw: object) -> int:
        match = _SIZE.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match:
            value = int(float(match[1]) * _UNITS[(match[2] or "").upper()])
        elif isinstance(raw, int) and not isinstance(raw, bool):
            value = raw
        else:
            raise refuse(name, raw, f"{name} is not a size such as 512M or 2G")
        _check(name, raw, value, (low, high), format_bytes)
        return value

    most = f" to {format_bytes(high)}" if high < MOST_BYTES else " or more"
    return Form(parse, f"a size (`512M`, `2G`), {format_bytes(low)}{most}")


def seconds(low: float, high: float = MOST_SECONDS) -> Form[float]:
    """A time in seconds: a number, or text such as 120, 90s, 10m, 2h. There is no value for "without a clock"."""

    def parse(name: str, raw: object) -> float:
        match = _TIME.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match:
            value = float(match[1]) * _SECONDS[(match[2] or "").lower()]
        elif isinstance(raw, int | float) and not isinstance(raw, bool):
            value = float(raw)
        else:
            raise refuse(name, raw, f"{name} is not a time such as 120 (seconds), 90s, 10m or 2h")
        _check(name, raw, value, (low, high), lambda bound: f"{bound:g} s")
        return value

    most = f" to {high:g} s" if high < MOST_SECONDS else " or more"
    return Form(parse, f"a time (`90`, `10m`, `2h`), {low:g} s{most}")


def number(kind: type[int] | type[float], low: float, high: float) -> Form[float]:
    """A whole number, or a number."""
    form = re.compile(r"[0-9]{1,18}" if kind is int else r"[0-9]{1,18}(?:\.[0-9]{1,18})?")

    def parse(name: str, raw: object) -> float:
        if isinstance(raw, str) and form.fullmatch(raw.strip()):
            value = kind(raw)
        elif isinstance(raw, int | float) and not isinstance(raw, bool) and (kind is float or isinstance(raw, int)):
            value = raw
        else:
            raise refuse(name, raw, f"{name} is not a {'whole ' if kind is int else ''}number")
        _check(name, raw, value, (low, high), lambda bound: f"{bound:g}")
        return value

    return Form(parse, f"a {'whole ' if kind is int else ''}number, {low:g} to {high:,}")


def choice(*choices: str) -> Form[str]:
    """One of a few words."""

    def parse(name: str, raw: object) -> str:
        if isinstance(raw, str) and raw.strip().lower() in choices:
            return raw.strip().lower()
        raise refuse(name, raw, f"{name} is one of {', '.join(choices)}{did_you_mean(str(raw), choices)}")

    return Form(parse, " or ".join(f"`{one}`" for one in choices))


def text(form: re.Pattern[str], what: str, *, none: bool = False) -> Form[str | None]:
    """Text of one form; with `none`, also nothing at all."""

    def parse(name: str, raw: object) -> str | None:
        if none and (raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "none", "default"))):
            return None
        if isinstance(raw, str) and form.fullmatch(raw.strip()):
            return raw.strip()
        raise refuse(name, raw, f"{name} is not {what}")

    return Form(parse, what)


def path(name: str, raw: object) -> str | None:
    """An absolute path of the host, with `~` expanded; relative ones start at the notebook's folder."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return None
    if not isinstance(raw, str | os.PathLike) or "\0" in (written := os.fspath(raw)):
        raise refuse(name, raw, f"{name} is not a path")
    if written.startswith("~"):
        user, _, rest = written[1:].partition("/")
        home = home_folder(user)
        if home is None:
            raise refuse(name, raw, f"{name} begins with the home folder of a user who has none")
        written = f"{home}/{rest}"
    return os.path.realpath(written)


def folder(name: str, raw: object) -> str | None:
    """A folder that exists."""
    found = path(name, raw)
    if found is not None and not Path(found).is_dir():
        raise refuse(name, found, f"{name} is not a folder of this machine; make it first, or name another")
    return found


def downloads(name: str, raw: object) -> str | None:
    """A folder that cells can fill without reaching anything which this machine later runs or reads as its own."""
    found = folder(name, raw)
    if found is None:
        return None
    target, home = Path(found), home_folder()
    for place, what, inside in _own_places(home):
        if place.is_relative_to(target) or (inside and target.is_relative_to(place)):
            side = "lies within" if place != target and target.is_relative_to(place) else "holds"
            raise refuse(
                name, found, f"{name} {side} {what}, which a cell could then write to; give it a folder of its own"
            )
    if home and target.is_relative_to(home) and target.relative_to(home).parts[0].startswith("."):
        raise refuse(name, found, f"{name} lies within a hidden folder of {home}, where programs keep what they run")
    return found


def _own_places(home: str | None) -> Iterator[tuple[Path, str, bool]]:
    """What a cell must not write to: the place, its name, and whether that goes for every folder within it too."""
    if home:
        yield Path(home).resolve(), "a home folder", False
    yield Path(sys.prefix).resolve(), "this kernel's Python environment", True
    yield Path(__file__).resolve().parent, "this kernel's own code", True
    for place in config_path():
        yield Path(place).resolve(), "configuration of Jupyter", True


def audit_file(name: str, raw: object) -> str | None:
    """A file, there or not, in a folder that exists."""
    found = path(name, raw)
    if found is not None and (Path(found).is_dir() or not Path(found).parent.is_dir()):
        raise refuse(name, found, f"{name} is not a file in a folder that exists")
    return found


def home_folder(user: str = "") -> str | None:
    """Return a home folder as the password database has it; $HOME may be chosen by whoever starts a kernel."""
    try:
        return (pwd.getpwnam(user) if user else pwd.getpwuid(os.getuid())).pw_dir or None
    except KeyError:
        return None


def config_path() -> list[str]:
    """Return the folders of config files, the strongest first: Jupyter's own, without those of its variables.

    That is `~/.jupyter`, then `etc/jupyter` of the Python environment, then the system's. As in Jupyter, a virtual
    environment comes before the home folder if it belongs to the user.
    """
    home = home_folder()
    user = [f"{home}/.jupyter"] if home else []
    system = ["/usr/local/etc/jupyter", "/etc/jupyter"]
    environment = [place] if (place := f"{sys.prefix}/etc/jupyter") not in system else []
    own = sys.prefix != sys.base_prefix and Path(sys.prefix).stat().st_uid == os.geteuid()
    return [*environment, *user, *system] if own else [*user, *environment, *system]


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " (did you mean ...?)" if one of `choices` is near to `word`, else nothing."""
    import difflib

    close = difflib.get_close_matches(word.lower(), list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
