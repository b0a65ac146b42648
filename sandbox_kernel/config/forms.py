"""How one setting is written: forms that turn what a user wrote into a checked value, or say what is wrong with it.

Every form takes the setting's name, for the error, and the raw value: text from a command line, or text, a number or
None from a config file or a keyword.

Public: plugins may import it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

from ..core.codes import EndCode
from ..core.errors import ConfigurationError, FileRefused
from ..core.home_folder import home_folder
from ..core.model import format_bytes
from ..files.folder_policy import why_not
from ..files.host_paths import Folder, check_log, open_folder, open_parent

NAME = re.compile(r"[^\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]{1,100}")
"""A name that reads as it is written: no controls, ends of lines, marks of direction or halves of a character."""

T = TypeVar("T")
MAX_BYTES = 1 << 50
MAX_SECONDS = 1e9

_AMOUNT = re.compile(r"([0-9]{1,18})(\.[0-9]{1,18})?\s*([A-Za-z]*)")
_NO_UNITS = {"": 1}
_UNITS = {"": 1, "b": 1} | {f"{one}{b}": 1024**n for n, one in enumerate("kmgt", 1) for b in ("", "b", "ib")}
_SECONDS = {"": 1, "s": 1, "m": 60, "min": 60, "h": 3600}
MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class Form(Generic[T]):
    """A function that reads a value, and what it takes: in words, in a word, and all choices if they are few."""

    read: Callable[[str, object], T]
    words: str
    metavar: str = "VALUE"
    choices: tuple[str, ...] = ()
    adds_up: bool = False
    """Whether a flag that is given twice means both."""
    written: Callable[[str, object], list[str]] = lambda _, raw: [str(raw)]
    """How a raw value is written on a command line: what follows each of its flags."""
    from_notebook: bool = False
    """Whether it is a path that starts at the folder of each notebook if it is relative."""
    types: str = "str"
    """What a keyword of it may be, as Python writes types."""
    kept: Callable[[T], object] = lambda value: value
    """A value as JSON has it, for whoever takes the sandbox over."""
    reread: Callable[[str, object], T] | None = None
    """Reads what was `kept`, and others may have changed: it opens no file. None is `read`."""

    def __call__(self, name: str, raw: object) -> T:
        return self.read(name, raw)

    def restore(self, name: str, kept: object) -> T:
        """Return the value that was kept. Raises `ConfigurationError` or ValueError if it is no value of this form."""
        return (self.reread or self.read)(name, kept)


def refuse(name: str, value: object, message: str, *, limit: str | None = None) -> ConfigurationError:
    """Return the error for a value that cannot work."""
    return ConfigurationError(EndCode.WRONG_SETTING, message, limit=limit, value=_shown(value), setting=name)


def _shown(value: object) -> str:
    """Return a value as Python writes it; a config file's may be none that Python writes, as a number too long."""
    try:
        return repr(value)
    except Exception:  # whatever its own way to be shown raises
        return f"<{type(value).__name__}>"


def is_nothing(raw: object, *words: str) -> bool:
    """Return whether a value says that there is none: None, no text, "none" or one of `words`."""
    return raw is None or (isinstance(raw, str) and raw.strip().lower() in ("", "none", *words))


def _amount(
    kind: type[int] | type[float], bounds: tuple[float, float], show: Callable[[float], str], what: str,
    units: Mapping[str, int] = _NO_UNITS,
) -> Callable[[str, object], Any]:  # fmt: skip
    """Return what reads a number, or text with one of `units` behind it."""
    low, high = bounds

    def parse(name: str, raw: object) -> float:
        match = _AMOUNT.fullmatch(raw.strip()) if isinstance(raw, str) else None
        if match and match[3].lower() in units and not (match[2] and kind is int and units is _NO_UNITS):
            value = float(match[1] + (match[2] or "")) * units[match[3].lower()]
        elif isinstance(raw, (kind, int)) and not isinstance(raw, bool):
            value = raw
        else:
            raise refuse(name, raw, f"{name} is not {what}")
        if not low <= value <= high:  # so written, it refuses NaN too
            side, bound = ("small", f"at least {show(low)}") if value < low else ("large", f"at most {show(high)}")
            raise refuse(name, raw, f"{name} is too {side}", limit=bound)
        return kind(value)

    return parse


def size(low: int, high: int = MAX_BYTES) -> Form[int]:
    """A size in bytes: an integer, or text such as 512M, 2G, 1.5GiB. Units count in 1024 with or without the i."""
    read = _amount(int, (low, high), format_bytes, "a size such as 512M or 2G", _UNITS)
    most = f" to {format_bytes(high)}" if high < MAX_BYTES else " or more"
    return Form(read, f"a size (`512M`, `2G`), {format_bytes(low)}{most}", "SIZE", types="str | int")


def seconds(low: float, high: float = MAX_SECONDS) -> Form[float]:
    """A time in seconds: a number, or text such as 120, 90s, 10m, 2h. There is no value for "without a clock"."""
    what = "a time such as 120 (seconds), 90s, 10m or 2h"
    read = _amount(float, (low, high), lambda bound: f"{bound:g} s", what, _SECONDS)
    most = f" to {high:g} s" if high < MAX_SECONDS else " or more"
    return Form(read, f"a time (`90`, `10m`, `2h`), {low:g} s{most}", "TIME", types="str | float")


def number(kind: type[int] | type[float], low: float, high: float) -> Form[float]:
    """A whole number, or a number."""
    what = f"a {'whole ' if kind is int else ''}number"
    read = _amount(kind, (low, high), lambda bound: f"{bound:g}", what)
    return Form(read, f"{what}, {low:g} to {high:,}", "NUMBER", types=kind.__name__)


def choice(*choices: str) -> Form[str]:
    """One of a few words."""

    def parse(name: str, raw: object) -> str:
        if isinstance(raw, str) and raw.strip().lower() in choices:
            return raw.strip().lower()
        said = raw if isinstance(raw, str) else _shown(raw)
        raise refuse(name, raw, f"{name} is one of {', '.join(choices)}{did_you_mean(said, choices)}")

    return Form(parse, " or ".join(f"`{one}`" for one in choices), "|".join(choices), choices)


def text(form: re.Pattern[str], what: str, *, none: bool = False) -> Form[str | None]:
    """Text of one form; with `none`, also nothing at all."""

    def parse(name: str, raw: object) -> str | None:
        if none and is_nothing(raw, "default"):
            return None
        if isinstance(raw, str) and form.fullmatch(raw.strip()):
            return raw.strip()
        raise refuse(name, raw, f"{name} is not {what}")

    return Form(parse, what)


def _processors(name: str, raw: object) -> str | None:
    """Return them as the kernel writes them: in order, each once, neighbours as a range."""
    if is_nothing(raw, "all"):
        return None
    found: set[int] = set()
    written = raw if isinstance(raw, str) else _shown(raw) if type(raw) is int else ""
    for part in written.split(","):
        match = _RANGE.fullmatch(part.strip())
        several = range(int(match[1]), int(match[2] or match[1]) + 1) if match else range(0)
        if not several or several[-1] >= MAX_PROCESSORS:
            raise refuse(name, raw, f"{name} is not {processors.words}", limit=f"numbers below {MAX_PROCESSORS}")
        found |= set(several)
    firsts = [one for one in sorted(found) if one - 1 not in found]
    lasts = [one for one in sorted(found) if one + 1 not in found]
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(firsts, lasts, strict=True))


MAX_PROCESSORS = 8192
"""The most that Linux is built for."""
_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
processors = Form(_processors, "processors by their numbers, such as `0-3,8`", types="str | int")
"""Processors of a machine, as in cpuset(7); None is all."""


def _engine(name: str, raw: object) -> str:
    if isinstance(raw, str) and (said := raw.strip()).isprintable():
        if _ENGINE.fullmatch(said):
            return said
        if (named := _NAME_OF_AN_ENGINE.fullmatch(said)) is not None:
            from ..engines.select import provider

            if provider(said).name == named[1]:  # it raises for a name of none
                return said
    raise refuse(name, raw, f"{name} is not {engine.words}")


_ENGINE = re.compile(r"auto|docker|unix:///\S+")
_NAME_OF_AN_ENGINE = re.compile(r"([a-z][a-z0-9_-]{0,62})(?::///\S+)?")
engine = Form(
    _engine,
    "auto, docker, podman, bubblewrap, broker, the name of a plugin's engine, or the address of a socket: "
    '"unix:///..." or "broker:///..."',
)
"""An engine that there is."""


def texts_of(name: str, raw: object, what: str) -> list[str]:
    """Return texts that were given as one, with commas between them, or as a list of such texts."""
    if raw is None:
        return []
    given = [raw] if isinstance(raw, str) else raw
    if not isinstance(given, Iterable) or isinstance(given, Mapping | bytes):
        raise refuse(name, raw, f"{name} is not a list of {what}")
    found: list[str] = []
    for one in given:
        if not isinstance(one, str):
            raise refuse(name, one, f"{name} is not a list of {what}")
        found += [] if is_nothing(one) else [text.strip() for text in one.split(",")]
    return found


def listed(form: re.Pattern[str], what: str, example: str, metavar: str) -> Form[tuple[str, ...]]:
    """Several words of one form, with commas or as a list, 50 at most; none or nothing are none."""

    def parse(name: str, raw: object) -> tuple[str, ...]:
        if is_nothing(raw):
            return ()
        words: list[str] = []
        for one in raw if isinstance(raw, list | tuple) else [raw]:
            if not isinstance(one, str):
                raise refuse(name, raw, f"{name} is no list of {what}")
            words += () if is_nothing(one) else (word.strip() for word in one.split(","))
        if len(words) > MAX_LISTED:
            raise refuse(name, raw, f"{name} names too many {what}", limit=str(MAX_LISTED))
        if wrong := [word for word in words if not form.fullmatch(word)]:
            raise refuse(name, wrong[0], f"{name} is no list of {what} such as {example}")
        return tuple(words)

    return Form(
        parse, f"{what}, with commas or as a list: `{example}`", metavar, adds_up=True, types="str | Sequence[str]",
        written=lambda name, raw: [",".join(parse(name, raw)) or "none"],
    )  # fmt: skip


def folder(name: str, raw: object, why_not: Callable[[Folder], str | None] = lambda found: None) -> str | None:
    """A folder: its absolute path, without a link. Relative ones start at the notebook's folder.

    One that is missing counts as empty, if there is a folder for it to be in: a mistyped path is found out. `why_not`
    says of one that is there why it cannot be used; what may be made there is asked when it is made.
    """
    found = _open(name, raw)
    if not isinstance(found, Folder):
        return found
    with found:
        if reason := why_not(found):
            raise refuse(name, str(found.path), f"{name} {reason}; give it a folder of its own")
        return str(found.path)


downloads = partial(folder, why_not=why_not)
"""A folder that cells can fill without reaching anything which this machine later runs or reads as its own."""


def _open(name: str, raw: object) -> Folder | str | None:
    """Return an open folder, or the path of a missing one; None for nothing. Raises `ConfigurationError`."""
    written = written_path(name, raw)
    if written is None:
        return None
    try:
        with suppress(FileNotFoundError):
            return open_folder(written)
        parent, missing = open_parent(written.rstrip("/"))
        with parent:
            return str(parent.path / missing)
    except OSError:
        message = f"{name} is not a folder of this machine; make it first, or name another"
        raise refuse(name, whole_path(written), message) from None
    except FileRefused as error:
        raise refuse(name, whole_path(written), f"{name} is not opened: {error.message}") from None


def path_from_root(raw: object) -> str | None:
    """Return a path of the host that begins at the root or at `~`; None for any other value."""
    path = _expanded(os.fsdecode(raw)) if isinstance(raw, str | os.PathLike) else None
    return path if path is not None and path.startswith("/") and path.isprintable() else None


def _command(name: str, raw: object) -> tuple[str, ...]:
    if is_nothing(raw, "off"):
        return ()
    if isinstance(raw, str):
        import shlex

        try:
            words = shlex.split(raw)
        except ValueError as error:
            raise refuse(name, raw, f"{name} is no command: {error}") from None
    else:
        words = list(raw) if isinstance(raw, Iterable) and not isinstance(raw, Mapping | bytes) else []
    if not words or not all(isinstance(word, str) and "\0" not in word for word in words):
        raise refuse(name, raw, f"{name} is no command")
    program = path_from_root(words[0])
    if program is None or not Path(program).is_file() or not os.access(program, os.X_OK):
        raise refuse(name, words[0], f"{name} is not a program of this machine, by its path from the root or ~ on")
    return (program, *words[1:])


def _written_command(name: str, raw: object) -> list[str]:
    import shlex

    return [shlex.join(_command(name, raw)) or "none"]


def log_file(name: str, written: str, begins: bytes) -> str:
    """Return the path of a file in a folder that exists: a new one, or one whose lines begin so."""
    try:
        return str(check_log(written, begins))
    except (OSError, FileRefused) as error:
        why = error.strerror if isinstance(error, OSError) else error.message
        raise refuse(name, whole_path(written), f"{name} is not a file in a folder that exists: {why}") from None


command = Form(
    _command,
    "a program's path, with arguments as a shell has them",
    "COMMAND",
    written=_written_command,
    types="str | Sequence[str]",
)
"""A program of the host with its arguments; no shell reads them."""


def _expanded(path: str) -> str | None:
    """Return a path without `~`; None if that is the home folder of a user who has none."""
    if not path.startswith("~"):
        return path
    user, _, rest = path[1:].partition("/")
    home = home_folder(user)
    return None if home is None else f"{home}/{rest}"


def whole_path(written: str) -> str:
    """Return a path from the root on, for an error: a relative one starts where a front end started the kernel."""
    return os.path.abspath(written)  # noqa: PTH100 (no link is followed)


def written_path(name: str, raw: object) -> str | None:
    """A path of the host, with `~` expanded."""
    if raw is None or (isinstance(raw, str) and not raw.strip()):
        return None
    if not isinstance(raw, str | os.PathLike) or not _is_path(written := os.fsdecode(raw)):
        raise refuse(name, raw, f"{name} is not a path")
    if (path := _expanded(written)) is None:
        raise refuse(name, raw, f"{name} begins with the home folder of a user who has none")
    return path


def _is_path(written: str) -> bool:
    """Return whether a file can be called so: of a text of JSON that has half a character, the system has no name."""
    try:
        return b"\0" not in os.fsencode(written)
    except UnicodeEncodeError:
        return False


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """Return " (did you mean ...?)" if one of `choices` is near to `word`, else nothing."""
    import difflib

    close = difflib.get_close_matches(word.lower(), list(choices), n=1)
    return f" (did you mean {close[0]}?)" if close else ""
