"""What came of the steps: judged by pytest's own results, kept from one run to the next, and shown as one table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests.modern.machine import Done
from tests.modern.steps import LEFT_OUT, Step

WORDS = "PASSED|FAILED|ERROR|SKIPPED|XFAIL"
LINE = re.compile(rf"(?:(?P<before>{WORDS}) )?(?P<name>tests/\S+\.py::.*?)(?: (?P<after>{WORDS})(?: .*)?)?\s*$")
"""A test in what pytest says as it goes; one without a word is under way."""


@dataclass(frozen=True)
class Outcome:
    """How a step ended; `wrong` has a line for each thing that should not be so."""

    passed: int
    skipped: int
    wrong: tuple[str, ...]
    said: tuple[str, ...] = ()
    """What its tests have for the table."""
    minutes: float = 0
    processor: float = 0
    """Minutes of the real processors: what the step costs, whatever else they do meanwhile."""


def read(step: Step, done: Done, xml: bytes) -> Outcome:
    """Judge a step by pytest's own results; one that has left none, by what it said until then."""
    if not xml:
        return until_then(done.lines, f"no results, exit code {done.code}: {' | '.join(done.lines[-3:])}")
    passed, skipped, wrong, said = 0, 0, [], []
    for case in ElementTree.fromstring(xml).iter("testcase"):  # noqa: S314 (pytest in our own machine wrote it)
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        skip, bad = case.find("skipped"), [*case.iter("failure"), *case.iter("error")]
        said += [each.get("value") or "" for each in case.iter("property") if each.get("name") == "row"]
        if bad:
            wrong.append(f"{name}: {(bad[0].get('message') or '').splitlines()[:1]}")
        elif skip is None or skip.get("type") == "pytest.xfail":
            passed += 1
        elif any(part in (skip.get("message") or "") for part in step.skips):
            skipped += 1
        else:
            wrong.append(f"{name} was skipped: {skip.get('message')}")
    if done.code != 0 and not wrong:
        wrong.append(f"exit code {done.code}: {' | '.join(done.lines[-3:])}")
    if not passed:
        wrong.append("no test has passed")
    return Outcome(passed, skipped, tuple(wrong), tuple(said))


def until_then(lines: Sequence[str], why: str) -> Outcome:
    """Judge a step that was ended, by what pytest said until then."""
    words: dict[str, str] = {}
    for line in lines:
        if found := LINE.search(line):
            words[found["name"]] = found["before"] or found["after"] or words.get(found["name"], "")
    under_way = [name for name, word in words.items() if not word]
    bad = [f"{name}: {word}" for name, word in words.items() if word in {"FAILED", "ERROR"}]
    passed = sum(word in {"PASSED", "XFAIL"} for word in words.values())
    skipped = sum(word == "SKIPPED" for word in words.values())
    return Outcome(passed, skipped, (why, *bad, *(f"{name} was under way" for name in under_way)))


class Kept:
    """The outcomes of one checkout on one disk, in a file; those of another are forgotten."""

    def __init__(self, path: Path, identity: str) -> None:
        self._path, self._identity = path, identity
        self.outcomes: dict[str, Outcome] = {}
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            if found["identity"] == identity:
                self.outcomes = {name: _outcome(**values) for name, values in found["outcomes"].items()}
        except (OSError, ValueError, LookupError, TypeError):
            pass  # there is none, or another version's

    def put(self, step: Step, outcome: Outcome) -> None:
        self.outcomes[step.name] = outcome
        document = {"identity": self._identity, "outcomes": {n: asdict(each) for n, each in self.outcomes.items()}}
        self._path.write_text(json.dumps(document, indent=1), encoding="utf-8")


def _outcome(wrong: Sequence[str], said: Sequence[str], **values: float) -> Outcome:
    return Outcome(wrong=tuple(wrong), said=tuple(said), **values)  # type: ignore[arg-type]


def table(steps: Sequence[Step], outcomes: Mapping[str, Outcome], earlier: frozenset[str] = frozenset()) -> str:
    """Return a line for each step, and beneath it what its tests have to say, and what should not be so."""
    wide = max(len(step.name) for step in steps)
    lines = [f"{'':8}{'step':{wide}}  {'user':8}{'passed':>7}{'skipped':>9}{'minutes':>9}{'processor':>11}"]
    for step in steps:
        outcome = outcomes.get(step.name)
        if outcome is None:
            lines.append(f"{'not run':8}{step.name:{wide}}  {step.user:8}")
            continue
        word, when = "FAILED" if outcome.wrong else "ok", "  (earlier)" if step.name in earlier else ""
        lines.append(
            f"{word:8}{step.name:{wide}}  {step.user:8}{outcome.passed:7}{outcome.skipped:9}{outcome.minutes:9.1f}"
            f"{outcome.processor:11.1f}{when}"
        )
        lines += [f"{'':10}{line}" for line in (*outcome.said, *outcome.wrong)]
    ran = [outcomes[step.name] for step in steps if step.name in outcomes]
    well, passed = sum(not each.wrong for each in ran), sum(each.passed for each in ran)
    minutes, processor = sum(each.minutes for each in ran), sum(each.processor for each in ran)
    lines.append(
        f"{well} of {len(steps)} steps are well; {passed} tests passed; "
        f"{minutes:.0f} minutes, {processor:.0f} of a processor."
    )
    return "\n".join([*lines, f"Left out: {LEFT_OUT}."])
