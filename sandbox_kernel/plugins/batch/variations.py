"""Under which circumstances a run is repeated, and in what two runs did otherwise.

A clock is shifted by libfaketime, which the images have: for Python, its libraries and the programs that it starts.
Hostile code can get around it. What differs is a reason to look, and no difference is no proof.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from ...core import time_zone
from ...core.answer_allowance import AnswerAllowance
from ...core.codes import UsageCode
from ...core.errors import AnswerError, ConfigurationError
from ...core.model import PYTHON_KERNEL, Limits, Settings
from ...core.package_files import PACKAGE
from ...files.file_rules import printable
from .codes import BatchCode

PLAIN = "plain"
LIBRARY = "/usr/$LIB/faketime/libfaketime.so.1"
"""As Debian's package has it; the loader knows the folder of libraries."""
ACROSS = (
    *("zone=Asia/Tokyo", "zone=America/Los_Angeles", "locale=de_DE.UTF-8", "locale=zh_CN.UTF-8"),
    *("flag=CI", "flag=PRODUCTION", "seed=1"),
)
"""What `--time-bomb` tries besides its date."""
MAX_VARIATIONS = 50
CLOCK_SECONDS = 300.0
"""How far a shifted clock may be from what it should show: a start takes its time."""
MAX_ACTIONS = 500
MAX_ACTION = 200
_LOCALE = re.compile(r"[A-Za-z]{2,3}(_[A-Z]{2})?(\.[A-Za-z0-9-]+)?")
_FLAG = re.compile(r"[A-Z_][A-Z0-9_]{0,63}")
_FLAGS: Mapping[str, Mapping[str, str]] = {
    "CI": {"CI": "true", "GITHUB_ACTIONS": "true"},
    "PRODUCTION": {"PRODUCTION": "1", "ENV": "production", "APP_ENV": "production"},
}
_INSTALLS = """\
import sys, time, types
{seeds}
module = sys.modules["_sandbox_witness"] = types.ModuleType("_sandbox_witness")
exec({source!r}, module.__dict__)
module.witness = module.Witness()
sys.addaudithook(module.witness.heard)
print(time.time())
"""
_SEEDS = """\
import random
random.seed({0})
try:
    import numpy
except ImportError:
    pass
else:
    numpy.random.seed({0})
"""


@dataclass(frozen=True, slots=True)
class Variation:
    """One set of circumstances, as `--as` names it."""

    word: str
    shift: int = 0
    """Seconds by which its clock is ahead of this machine's."""
    variables: Mapping[str, str] = field(default_factory=dict)
    zone: str | None = None
    seed: int | None = None

    @classmethod
    def of(cls, word: str) -> Variation:
        """Return it by its word: plain, date=2030-01-01, zone=NAME, locale=NAME, flag=NAME, seed=N.

        Raises `ConfigurationError`.
        """
        kind, _, value = word.partition("=")
        if word == PLAIN:
            return cls(word)
        if kind == "date":
            return cls(word, shift=_shift(value))
        if kind == "zone" and re.fullmatch(time_zone.FORM, value):
            return cls(word, zone=value)
        if kind == "locale" and _LOCALE.fullmatch(value):
            return cls(word, variables={"LC_ALL": value})
        if kind == "flag" and _FLAG.fullmatch(value):
            return cls(word, variables=_FLAGS.get(value, {value: "1"}))
        if kind == "seed" and re.fullmatch("[0-9]{1,10}", value) and int(value) < 1 << 32:
            return cls(word, variables={"PYTHONHASHSEED": str(int(value))}, seed=int(value))
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            "a run is as it is, or as one of plain, date=2030-01-01, zone=Asia/Tokyo, locale=de_DE.UTF-8, flag=CI, "
            "seed=1",
            value=word[:100],
            setting="--as",
        )

    def applied(self, settings: Settings) -> Settings:
        """Return settings of a run under it. Raises `ConfigurationError` for cells that are no Python."""
        if settings.kernel != PYTHON_KERNEL:
            code = UsageCode.PYTHON_ALONE.note(what="--as", kernel=settings.kernel)
            raise ConfigurationError(code, value=settings.kernel, setting="kernel")
        more = dict(self.variables)
        if self.shift:
            more |= {"LD_PRELOAD": LIBRARY, "FAKETIME": f"{self.shift:+d}"}
            # Waits are by the other clock, and compiled modules are found by the times of files.
            more |= {"FAKETIME_DONT_FAKE_MONOTONIC": "1", "NO_FAKE_STAT": "1", "FAKETIME_DISABLE_SHM": "1"}
        found = replace(settings, environment=(*settings.environment, *more.items()))
        return found if self.zone is None else replace(found, time_zone=self.zone)

    def begin(self) -> str:
        """Return the cell that comes before all others: it notes what is asked for, and prints the time."""
        source = (PACKAGE / "plugins" / "batch" / "inside" / "witness.py").read_text(encoding="utf-8")
        seeds = "" if self.seed is None else _SEEDS.format(self.seed)
        whole = _INSTALLS.format(source=source, seeds=seeds)
        return f"exec({whole!r}, {{}})"

    def check_clock(self, said: str) -> None:
        """Check what the first cell printed. Raises `ConfigurationError` if the clock is not where it should be."""
        try:
            off = abs(float(said) - time.time() - self.shift)
        except ValueError:
            off = float("inf")
        if not off < CLOCK_SECONDS:
            raise ConfigurationError(BatchCode.CLOCK_NOT_SHIFTED, setting="image")


TOLD = "import json, sys; print(json.dumps(sys.modules['_sandbox_witness'].witness.told())); del json, sys"
"""The cell that asks what was noted."""


def actions(said: str, limits: Limits) -> list[str]:
    """Return what the sandbox says was noted; it may say anything."""
    try:
        found = AnswerAllowance(limits).json(said)
    except AnswerError:
        return []
    if not isinstance(found, list):
        return []
    return [printable(one, MAX_ACTION) for one in found[:MAX_ACTIONS] if isinstance(one, str)]


def _shift(text: str) -> int:
    try:
        then = datetime.fromisoformat(text)
    except ValueError:
        then = None
    if then is None or not 1971 <= then.year <= 2200:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT, "a date is YYYY-MM-DD, from 1971 to 2200", value=text[:100], setting="--dates"
        )
    if "T" not in text and " " not in text:
        then = then.replace(hour=12)  # so that it is this day in all time zones
    return round((then if then.tzinfo else then.replace(tzinfo=UTC)).timestamp() - time.time())


def asked(*, time_bomb: str | None, dates: str | None) -> list[str]:
    """Return the words of the runs that are compared, the plain one first. Raises `ConfigurationError`."""
    days = [day.strip() for text in (time_bomb, dates) if text for day in text.split(",")]
    words = [PLAIN, *(f"date={day}" for day in days), *(ACROSS if time_bomb else ())]
    found = list(dict.fromkeys(words))
    if len(found) > MAX_VARIATIONS:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            "there are too many dates",
            limit=str(MAX_VARIATIONS),
            value=str(len(found)),
            setting="--dates",
        )
    for word in found:
        Variation.of(word)
    return found


# --- what two runs did otherwise --------------------------------------------------------------------------------------


def differences(first: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> list[str]:
    """Return in what the report of a run differs from that of the first one: what was done, and not what came out."""
    if first is None or other is None:
        return [] if first is other else ["there is no report"]
    lines = []
    if (was := first["exit"]["kind"]) != (now := other["exit"]["kind"]):
        lines.append(f"it ends with: {now} (was: {was})")
    cells = {cell["number"]: cell["status"] for cell in first["cells"]}
    lines += [
        f"cell {cell['number']}: {cell['status']} (was: {before})"
        for cell in other["cells"]
        if (before := cells.get(cell["number"])) != cell["status"]
    ]
    rows, others = _rows(first), _rows(other)
    lines += [f"also: {others[key]}" for key in others if key not in rows]
    lines += [f"not: {rows[key]}" for key in rows if key not in others]
    did, does = (_actions(one) for one in (first, other))
    return lines + _only("also", does, did) + _only("not", did, does)


def _actions(report: Mapping[str, Any]) -> Sequence[str]:
    found: Sequence[str] = report.get("variation", {}).get("actions", ())
    return found


def _only(word: str, here: Iterable[str], there: Iterable[str]) -> list[str]:
    known = set(there)
    return [f"{word}: {one}" for one in here if one not in known]


def _rows(report: Mapping[str, Any]) -> dict[tuple[str, str], str]:
    return {
        (row["kind"], row["code"]): f"{row['reason']} ({row['score']} points)" for row in report["behaviour"]["rows"]
    }
