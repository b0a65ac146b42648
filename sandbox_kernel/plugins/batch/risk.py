"""The engine of a run by what the screen finds in its code. It is triage: each engine has to hold whatever comes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from ...core.behaviour import THRESHOLD
from ...core.codes import Survived, UsageCode
from ...core.errors import ConfigurationError, ScreenBlocked
from ...core.model import Settings
from ...core.screen_findings import Screened
from ...sdk.client import AsyncSandbox
from .settings import REFUSE, RISKS, BatchSettings
from .source_notebook import SourceNotebook, is_run

BY_RISK = "by-risk"


def table_of(settings: Settings) -> dict[str, tuple[str, str | None]]:
    """Return engine and runtime by risk. Raises `ConfigurationError` without the operator's table."""
    table = {risk: (engine, runtime) for risk, engine, runtime in settings.of(BatchSettings).engine_by_risk}
    if not table:
        words = "engine by-risk needs a table of engines"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting="engine_by_risk")
    return table


def chosen(settings: Settings, source: SourceNotebook) -> tuple[Settings, dict[str, Any]]:
    """Return the settings with the engine that is for this code, and what the report says of it.

    Raises `ScreenBlocked` if the table refuses it, and `ConfigurationError` where no screen is.
    """
    threshold = settings.get("screen_threshold", THRESHOLD)
    gravest = max(asyncio.run(_screened(settings, source)), key=lambda one: one.score, default=Screened())
    risk = RISKS[2 if gravest.score >= threshold else 1 if gravest.counted else 0]
    engine, runtime = table_of(settings)[risk]
    if engine == REFUSE:
        sentences = [one.sentence() for one in gravest.counted]
        raise ScreenBlocked(sentences, score=gravest.score, threshold=threshold, kept=Survived.NOTHING)
    said = {"risk": risk, "score": gravest.score, "engine": engine, "runtime": runtime}
    return replace(settings, engine=engine, runtime=runtime), said


async def _screened(settings: Settings, source: SourceNotebook) -> list[Screened]:
    """Screen each cell, and all as one: a name that one cell gives, another one may use."""
    cells = [cell.source for cell in source.notebook.cells if is_run(cell)]
    sandbox = AsyncSandbox(settings)  # never started
    return [sandbox.screen(code) for code in (*cells, "\n".join(cells))]
