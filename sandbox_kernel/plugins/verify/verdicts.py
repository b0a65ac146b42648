"""What was found, as values: a verdict for each probe, and what is made of all of them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType

from .differences import DIFFERENCES, REASONS
from .inside.kit import Attack
from .probes import BY_CODE, PROBES, Probe, ProbeGroup, Word

NOTHING: Mapping[str, str] = MappingProxyType({})
MAX_NAMED = 6
"""Attacks that a finding names."""


class ProbeVerdict(StrEnum):
    """How a probe ended. Only the first is good."""

    PASS = "pass"  # noqa: S105 (not a password)
    FAIL = "fail"
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True, slots=True)
class ProbeFinding:
    """One probe, and how it ended."""

    probe: Probe
    verdict: ProbeVerdict
    happened: str
    word: Word

    @property
    def stopped_by(self) -> str | None:
        """What stopped it, None if nothing did or if nothing was to be stopped."""
        return self.probe.stops if self.verdict is ProbeVerdict.PASS else None

    def to_json(self) -> dict[str, str | None]:
        return {
            "code": self.probe.code,
            "group": self.probe.group.value,
            "tried": self.probe.tried,
            "happened": self.happened,
            "stopped_by": self.stopped_by,
            "verdict": self.verdict.value,
            "word": self.word.value,
        }


def passed(code: str, happened: str, word: Word | None = None) -> ProbeFinding:
    return _finding(code, ProbeVerdict.PASS, happened, word)


def failed(code: str, happened: str, word: Word | None = None) -> ProbeFinding:
    return _finding(code, ProbeVerdict.FAIL, happened, word)


def not_applicable(code: str, reason: str, word: Word | None = None) -> ProbeFinding:
    return _finding(code, ProbeVerdict.NOT_APPLICABLE, reason, word)


def decided(code: str, ok: bool, happened: str, word: Word | None = None) -> ProbeFinding:
    return _finding(code, ProbeVerdict.PASS if ok else ProbeVerdict.FAIL, happened, word)


def _finding(code: str, verdict: ProbeVerdict, happened: str, word: Word | None) -> ProbeFinding:
    probe = BY_CODE[code]
    return ProbeFinding(probe, verdict, happened, word or probe.word)


def of_attacks(
    probe: Probe,
    table: Mapping[str, Attack],
    said: Mapping[str, tuple[str, str]],
    *,
    gvisor: bool,
    openings: Mapping[str, str] = NOTHING,
    differences: Mapping[str, str] = NOTHING,
) -> ProbeFinding:
    """Judge a sandbox's reports on a probe's attacks. An attack that got out, or has no report, fails the probe.

    `openings` are attacks that find something with this engine, and why that is no way out; `differences` are those
    that it refuses in another word.
    """
    different, why = {**dict.fromkeys(openings, "worked"), **differences}, dict(openings)
    if gvisor:
        different.update(DIFFERENCES)
        why.update(REASONS)
    refused: dict[str, list[str]] = {}
    got_out, excused = [], []
    for name in probe.attacks:
        word, rest = said.get(name, ("no answer", ""))
        differs = different.get(name) == word
        if differs and word == "worked":
            excused.append(name)
        elif differs or word in table[name].refused:
            refused.setdefault(word, []).append(name)
        else:
            got_out.append(f"{readable(name)}: {word}{f' ({rest})' if rest else ''}")
    if got_out:
        return failed(probe.code, _some(got_out, "; "), probe.word)
    words = "; ".join(
        f"{_some([readable(name) for name in names])}: {'found nothing' if word == 'nothing' else word}"
        for word, names in refused.items()
    )
    reasons = "; ".join(dict.fromkeys(why[name] for name in excused))
    if not refused:
        return not_applicable(probe.code, reasons, probe.word)
    return passed(probe.code, f"{words}; left out: {reasons}" if reasons else words, probe.word)


def readable(name: str) -> str:
    """Return the name of an attack as words."""
    return name.replace("_s_", "'s_").replace("_", " ")


def _some(texts: list[str], between: str = ", ") -> str:
    more = len(texts) - MAX_NAMED
    return between.join(texts[:MAX_NAMED]) + (f"{between}and {more} more" if more > 0 else "")


def complete(found: Iterable[ProbeFinding], wanted: Iterable[Probe] = PROBES) -> list[ProbeFinding]:
    """Return a finding for each probe that was wanted, in the order of the table; one without any has failed.

    Of several, one that failed counts: a sandbox's report never overrides the host's.
    """
    by_code: dict[str, ProbeFinding] = {}
    for one in found:
        before = by_code.get(one.probe.code)
        if before is None or one.verdict is ProbeVerdict.FAIL:
            by_code[one.probe.code] = one
    return [by_code.get(probe.code) or failed(probe.code, "it was not answered") for probe in wanted]


def counts(found: Iterable[ProbeFinding]) -> dict[ProbeVerdict, int]:
    """Return how many ended in which way."""
    verdicts = [one.verdict for one in found]
    return {verdict: verdicts.count(verdict) for verdict in ProbeVerdict}


def groups(found: Iterable[ProbeFinding]) -> dict[ProbeGroup, list[ProbeFinding]]:
    """Return the findings of each group that has any."""
    by_group: dict[ProbeGroup, list[ProbeFinding]] = {}
    for one in found:
        by_group.setdefault(one.probe.group, []).append(one)
    return by_group
