"""The setting of the engine by risk: a small table of the operator's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ...config.forms import Form, engine, is_nothing, refuse, texts_of
from ...config.setting import rows, setting

RISKS = ("clean", "findings", "threshold")
"""What the screen finds in the code of a run: nothing, something, or as much as `screen_threshold`."""
REFUSE = "refuse"


def _table(name: str, raw: object) -> tuple[tuple[str, str, str | None], ...]:
    if is_nothing(raw):
        return ()
    texts = (
        [f"{risk}={wall}" for risk, wall in raw.items()] if isinstance(raw, Mapping) else texts_of(name, raw, "pairs")
    )
    found: dict[str, tuple[str, str, str | None]] = {}
    for text in texts:
        risk, _, wall = (part.strip() for part in text.partition("="))
        chosen, _, runtime = wall.partition("+")
        if risk not in RISKS or risk in found or not chosen:
            raise refuse(name, text, f"{name} has one engine for each of {', '.join(RISKS)}")
        found[risk] = risk, REFUSE if chosen == REFUSE else engine(name, chosen), runtime or None
    if missing := [risk for risk in RISKS if risk not in found]:
        raise refuse(name, raw, f"{name} says nothing of {' and '.join(missing)}")
    return tuple(found[risk] for risk in RISKS)


def _words(_name: str, raw: object) -> list[str]:
    return [",".join(f"{risk}={wall}" for risk, wall in raw.items()) if isinstance(raw, Mapping) else str(raw)]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSettings:
    """What holds for batch runs."""

    engine_by_risk: tuple[tuple[str, str, str | None], ...] = setting(
        (),
        Form(
            _table,
            "an engine, or `refuse`, for each: `clean=bubblewrap, findings=docker, threshold=docker+runsc`",
            "TABLE",
            written=_words,
            types="str | Mapping[str, str]",
        ),
        "Which engine `run --engine by-risk` takes, by what the screen finds in the code: nothing, something, or as "
        "much as screen_threshold. A runtime follows a plus. refuse: it is not run (docs/batch.md).",
        "none",
        scope="process",
    )
    """A risk, the engine's name, and its runtime."""


GROUP = "By need"
SETTINGS = rows(BatchSettings)
