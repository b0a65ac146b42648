"""Which versions of which packages: chosen by pip, a package at a time, and never together with what it needs.

pip would follow by itself what packages need. But it reads markers for the Python that it runs on, and it fetches and
builds what a package names by an address, whatever `--only-binary` says. So pip is asked for names alone: for the
newest version that fits, and what that version needs. What follows from that is decided here.

Packages that do not go together have older versions of those tried that ask, the last chosen first (dynamic
backtracking, Ginsberg 1993). What was found impossible once is not tried again.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from ...wheels.pip_process import Pip, PipFailed, WheelTarget, errors_of
from .requirements import Wanted

MAX_TRIES = 30
"""Versions that are given up because they do not go with others, before the search ends."""
MAX_PACKAGES = 1000
MAX_NEEDS = 3000
"""Requirements of one package."""


class Unresolved(Exception):
    """Why there is no choice of versions, as a sentence."""

    def __init__(self, message: str, *, is_conflict: bool = False, pin: str = "") -> None:
        """Take the sentence, whether packages do not go together, and the `name==version` that an image keeps."""
        super().__init__(message)
        self.message, self.is_conflict, self.pin = message, is_conflict, pin


class WrongHash(Exception):
    """What came has no hash, or not its own."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A version of a package."""

    name: str
    version: str
    sha256: str
    """Of its wheel."""
    url: str
    needs: tuple[Requirement, ...]
    """All that its metadata name, whatever the marker."""


@dataclass(frozen=True, slots=True)
class _Requirement:
    """One requirement: of a chosen version, or of the user (None)."""

    by: tuple[str, str] | None
    what: Requirement

    @property
    def name(self) -> str:
        return canonicalize_name(self.what.name)

    def takes(self, version: str) -> bool:
        return self.what.specifier.contains(version, prereleases=True)

    def __str__(self) -> str:
        extras = f"[{','.join(sorted(self.what.extras))}]" if self.what.extras else ""
        who = " ".join(self.by) if self.by else "your file"
        return f"{who} asks for {self.what.name}{extras}{self.what.specifier}"


def resolve(wanted: Wanted, pip: Pip, kept: Mapping[str, str], *, are_there: bool = False) -> list[Chosen]:
    """Return versions that meet requirements, and all that these need.

    `kept` has the version of each package that must not have another one. With `are_there`, these packages are where
    the others go, with what they need: they are returned only if an extra of theirs is asked for. Raises `Unresolved`,
    and what `Pip.choose` raises.
    """
    return _Search(wanted, pip, kept, are_there=are_there).run()


def fetch(chosen: Sequence[Chosen], wanted: Wanted, pip: Pip, folder: Path) -> dict[str, Path]:
    """Fetch the wheels of what was chosen into an empty folder, and return each by its sha256.

    Raises `WrongHash`, and what `Pip.download` raises.
    """
    lines = []
    for one in chosen:
        if one.url.startswith(f"file://{pip.place}/"):
            shutil.copy(unquote(one.url.removeprefix("file://")), folder)
        else:
            lines.append(f"{one.name}=={one.version} --hash=sha256:{one.sha256}")
    if lines:
        (pip.place / "chosen.txt").write_text("\n".join([*wanted.flags, *lines, ""]), encoding="utf-8")
        pip.download(folder, pip.place / "chosen.txt")
    came = {digest_of(path): path for path in folder.glob("*.whl")}
    for one in chosen:
        if one.sha256 not in came:
            raise WrongHash(f"what came of {one.name} {one.version} does not have its sha256")
    return came


def digest_of(path: Path) -> str:
    """Return the sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _Search:
    def __init__(self, wanted: Wanted, pip: Pip, kept: Mapping[str, str], *, are_there: bool) -> None:
        self.pip, self.kept, self.are_there = pip, kept, are_there
        self.flags = [*wanted.flags, *["--require-hashes"][: wanted.has_hashes]]
        self.hashes: dict[str, frozenset[str]] = {}
        self.wanted = [_Requirement(None, one) for one in self.read(wanted.lines)]
        self.constraints = [_Requirement(None, one) for one in self.read(wanted.constraints)]
        self.files: dict[str, tuple[str, str]] = {}
        """By the name of a package, the version of the wheel that the user names, and the line for it."""
        folder = Path(tempfile.mkdtemp(dir=pip.place))
        for wheel in wanted.wheels:
            name, version = map(str, parse_wheel_filename(wheel.name)[:2])
            if name in self.files:
                raise Unresolved(f"two wheels of {name} are named")
            digest = f" --hash=sha256:{wheel.sha256}" if wanted.has_hashes else ""
            self.files[name] = version, f"{wheel.copy(folder)}{digest}"
            self.wanted.append(_Requirement(None, Requirement(f"{name}=={version}")))
        self.chosen: dict[str, Chosen] = {}
        """By name, the last chosen last."""
        self.found: dict[str, Chosen | PipFailed] = {}
        """What pip said to a line."""
        self.barred: dict[str, dict[str, frozenset[tuple[str, str]]]] = {}
        """By name, versions that do not go together with some others, all of which would have to be chosen."""
        self.tries = 0
        self.first: Unresolved | None = None
        """What did not go together first: the newest versions, of which a user knows most."""

    def read(self, lines: Iterable[str]) -> list[Requirement]:
        """Return the lines that have a meaning there, and note their hashes."""
        found = []
        for line in lines:
            text, *hashes = line.split(" --hash=")
            one = Requirement(text)
            if one.marker is None or self.holds(one.marker):
                found.append(one)
                if hashes:
                    name = canonicalize_name(one.name)
                    self.hashes[name] = self.hashes.get(name, frozenset(hashes)) & frozenset(hashes)
        return found

    def holds(self, marker: Marker, extra: str = "") -> bool:
        return marker.evaluate({**self.pip.target.markers, "extra": extra})

    def run(self) -> list[Chosen]:
        while True:
            asked = self.asked()
            for name in self.chosen.keys() - asked.keys():
                del self.chosen[name]
            if len(asked) > MAX_PACKAGES:
                raise Unresolved(f"more than {MAX_PACKAGES} packages are needed")
            lines: dict[str, str] = {}
            for name, asks in asked.items():
                if self.is_impossible(name, asks):
                    self.step_back(name, asks, self.conflict(name, asks))
                    break
                there = self.are_there and name in self.kept and not any(ask.what.extras for ask in asks)
                if not there and not self.still_fits(name, asks):
                    lines[name] = self.line(name, asks)
            else:
                if not lines:
                    return list(self.chosen.values())
                self.choose(asked, lines)

    def asked(self) -> dict[str, list[_Requirement]]:
        """Return what is asked of each package: by the user, and by all that is chosen because of that."""
        asked: dict[str, list[_Requirement]] = {}
        followed: dict[str, set[str]] = {}
        left = self.wanted[::-1]
        while left:
            ask = left.pop()
            asked.setdefault(ask.name, []).append(ask)
            extras = {"", *ask.what.extras} - followed.setdefault(ask.name, set())
            followed[ask.name] |= extras
            if extras and (one := self.chosen.get(ask.name)) is not None:
                left += self.needs(one, extras)
        for ask in self.constraints:
            if ask.name in asked:
                asked[ask.name].append(ask)
        return asked

    def needs(self, one: Chosen, extras: set[str]) -> list[_Requirement]:
        found = []
        for need in one.needs:
            marker = need.marker
            if "" in extras if marker is None else any(self.holds(marker, extra) for extra in extras):
                if need.url is not None:
                    raise Unresolved(f"{one.name} {one.version} needs {need.name} by an address, which is not asked")
                found.append(_Requirement((one.name, one.version), need))
        return found

    def bars(self, name: str) -> dict[str, frozenset[tuple[str, str]]]:
        """Return the versions of a package that do not go with what is chosen now, and with which of it."""
        now = {(one.name, one.version) for one in self.chosen.values()}
        return {version: others for version, others in self.barred.get(name, {}).items() if others <= now}

    def fixed(self, name: str) -> list[str]:
        """Return the versions that a package must have, whatever is asked of it."""
        return [*self.files.get(name, ())[:1], *filter(None, [self.kept.get(name)])]

    def is_impossible(self, name: str, asks: Iterable[_Requirement]) -> bool:
        """Say whether it is known without pip that no version fits."""
        bars = self.bars(name)
        return any(version in bars or not all(ask.takes(version) for ask in asks) for version in self.fixed(name))

    def still_fits(self, name: str, asks: Iterable[_Requirement]) -> bool:
        one = self.chosen.get(name)
        return one is not None and one.version not in self.bars(name) and all(ask.takes(one.version) for ask in asks)

    def line(self, name: str, asks: Iterable[_Requirement]) -> str:
        """Return the line by which pip is asked for a package."""
        if name in self.files:
            return self.files[name][1]
        specifiers = {str(one) for ask in asks for one in ask.what.specifier}
        exact = {f"=={version}" for version in self.fixed(name)} | {one for one in specifiers if _EXACT.fullmatch(one)}
        if len(exact) == 1 and all(ask.takes(next(iter(exact)).lstrip("=")) for ask in asks):
            specifiers = exact  # in a file with hashes, pip takes no more than this
        specifiers |= {f"!={version}" for version in self.bars(name)}
        hashes = sorted(self.hashes.get(name, ()))
        return "".join([name, ",".join(sorted(specifiers)), *(f" --hash={one}" for one in hashes)])

    def choose(self, asked: Mapping[str, Sequence[_Requirement]], lines: Mapping[str, str]) -> None:
        """Have pip choose what lines ask for. The first line for which it finds nothing ends that."""
        unknown = {line: name for name, line in lines.items() if line not in self.found}
        if unknown:
            try:
                rows = [_read(row) for row in self.pip.choose([*self.flags, *unknown])]
            except PipFailed as error:
                missing = re.match(r"[\w.-]*", _missing(str(error)), re.ASCII)
                line = lines.get(canonicalize_name(missing[0])) if missing else None
                if line is None:
                    raise
                self.found[line] = error
            else:
                by_name = {one.name: one for one in rows}
                if by_name.keys() != set(unknown.values()):
                    raise Unresolved("pip chose other packages than those that it was asked for")
                self.found |= {line: by_name[name] for line, name in unknown.items()}
        for name, line in lines.items():
            match self.found.get(line):
                case Chosen() as one:
                    self.chosen.pop(name, None)
                    self.chosen[name] = one
                    if not self.still_fits(name, asked[name]):  # it would be asked for without end
                        raise Unresolved(f"pip chose {name} {one.version}, which is not what it was asked for")
                case PipFailed() as failed:
                    told = [ask for ask in asked[name] if ask.what.specifier]
                    is_conflict = len(told) > 1 and "(from versions: none)" not in str(failed)
                    why = self.conflict(name, told) if is_conflict else explain(str(failed), self.pip.target)
                    self.step_back(name, asked[name], why)
                    return

    def step_back(self, name: str, asks: Iterable[_Requirement], why: Unresolved) -> None:
        """Give up the version chosen last of those because of which a package cannot be had.

        Raises `Unresolved` if there is none, or if enough was tried.
        """
        self.first = self.first or why
        against = [ask for ask in asks if not all(map(ask.takes, self.fixed(name)))] or asks
        because = {ask.by for ask in against if ask.by is not None}.union(*self.bars(name).values())
        self.tries += 1
        if not because or self.tries > MAX_TRIES:
            raise self.first
        order = list(self.chosen)
        last = max(because, key=lambda one: order.index(one[0]))
        self.barred.setdefault(last[0], {})[last[1]] = frozenset(because - {last})
        del self.chosen[last[0]]

    def conflict(self, name: str, asks: Sequence[_Requirement]) -> Unresolved:
        kept = self.kept.get(name)
        against = asks if kept is None else [ask for ask in asks if not ask.takes(kept)]
        said = "; ".join(dict.fromkeys(map(str, against)))[-1000:]
        pin = f"{name}=={kept}" if kept is not None and against else ""
        keeps = f", and the image keeps {pin}" if pin else ""
        what = f"pip cannot meet the requirements, because of {name}: {said}{keeps}"
        return Unresolved(what, is_conflict=True, pin=pin)


_EXACT = re.compile(r"==[^*=]+")


def _read(row: Mapping[str, Any]) -> Chosen:
    """Read a row of pip's report."""
    name, version = str(canonicalize_name(row["metadata"]["name"])), str(Version(row["metadata"]["version"]))
    digest = row["download_info"].get("archive_info", {}).get("hashes", {}).get("sha256", "")
    if not re.fullmatch("[0-9a-f]{64}", digest):
        raise WrongHash(f"the index has no sha256 of {name} {version}")
    needs = row["metadata"].get("requires_dist", [])
    if len(needs) > MAX_NEEDS:
        raise Unresolved(f"{name} {version} needs more than {MAX_NEEDS} packages")
    try:
        return Chosen(name, version, digest, row["download_info"]["url"], tuple(map(Requirement, needs)))
    except InvalidRequirement:
        raise Unresolved(f"the metadata of {name} {version} cannot be read") from None


def explain(stderr: str, target: WheelTarget) -> Unresolved:
    """Return why pip did not choose, from what it said."""
    if missing := _missing(stderr):
        what = "has no wheel" if "(from versions: none)" in stderr else "has no wheel in a version that fits"
        return Unresolved(
            f"{missing} {what} for Python {target.python} on Linux {target.architecture}, or does not exist; the "
            "image has no compiler and is built offline. Ask for another version, or make the wheel on Debian 13 with "
            f"`pip wheel {missing}` and name its path in the requirements"
        )
    return Unresolved(f"pip cannot meet the requirements: {errors_of(stderr)}")


def _missing(stderr: str) -> str:
    found = re.search(r"No matching distribution found for ([^\s(]+)", errors_of(stderr))
    return found[1] if found else ""
