"""SECURITY.md says what each engine shows otherwise than asked for, and why that is accepted."""

from __future__ import annotations

from sandbox_kernel.engines.attestation import EXCUSED
from sandbox_kernel.engines.select import names, provider
from tests.support import ROOT

LONG = 60
"""Characters of what an engine shows: longer lists are alternatives of the same."""


def as_markdown() -> str:
    """Return the table: a row for each reason, with the engines and the lines of the attestation that it holds for."""
    every = {"gVisor": EXCUSED["runsc"]}
    every |= {whose: rows for name in names() for whose, rows in provider(name).excuses.items()}
    reasons: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for whose, rows in every.items():
        for line, (shown, why) in rows.items():
            engines, lines = reasons.setdefault(why, ({}, {}))
            engines[whose] = None
            lines[f"{line}: {shown if len(shown) <= LONG else shown[:LONG].rpartition(' ')[0] + ' …'}"] = None
    head = "| Engine | Line of the attestation, and what it may show | Why |\n|---|---|---|"
    return "\n".join(
        [
            head,
            *(f"| {', '.join(engines)} | {'; '.join(lines)} | {why} |" for why, (engines, lines) in reasons.items()),
        ]
    )


def test_the_table_in_security_md_is_what_the_code_excuses() -> None:
    assert as_markdown() in (ROOT / "SECURITY.md").read_text(encoding="utf-8")
