"""An examination as a table for people, as JSON for programs, and as a page. `report.schema.json` describes the JSON.

The page is one file without a script, and may load nothing. All text that did not come from this package is escaped.
"""

from __future__ import annotations

import html
import json
import platform
import textwrap
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

from ... import __version__
from ...core.model import format_bytes
from ...policy.safe_text import ours
from .examination import Examination
from .probes import QUESTIONS, Word
from .verdicts import ProbeFinding, ProbeVerdict, counts, groups

VERSION = 1
"""Of the JSON's form: a new meaning is a new version."""
SCHEMA = f"urn:sandbox-kernel:verify-report:{VERSION}"
FINE, WRONG = 0, 1
WIDTH = 110
MARKS = {ProbeVerdict.PASS: "pass", ProbeVerdict.FAIL: "FAIL", ProbeVerdict.NOT_APPLICABLE: "n/a"}
SHARED = "What do sandboxes of this machine share that no wall closes?"
SAID = {"ok": "ok", "note": "note", "unknown": "?"}
WORDS = {
    Word.HOST: "host",
    Word.SANDBOX: "sandbox's word",
    Word.BOTH: "sandbox's word, and the host's",
}


@cache
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a report."""
    text = resources.files(__package__).joinpath("report.schema.json").read_text(encoding="utf-8")
    return dict(json.loads(text))


def exit_code(done: Examination) -> int:
    """Return 0 if nothing has failed. What is not applicable is no failure, and no pass."""
    return WRONG if counts(done.findings)[ProbeVerdict.FAIL] else FINE


def to_json(done: Examination) -> dict[str, Any]:
    """Return the whole as plain JSON."""
    settings, limits = done.settings, done.settings.limits
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "sandbox_kernel": __version__,
        "python": platform.python_version(),
        "machine": {"kernel": platform.release(), "architecture": platform.machine()},
        "engine": {"version": done.engine.version, "address": done.address},
        "settings": {
            "image": settings.image,
            "runtime": settings.runtime or done.engine.default_runtime,
            "outputs": settings.outputs,
            "network": list(settings.get("network", ())),
            "memory_bytes": limits.memory,
            "cpus": limits.cpus,
            "pids": limits.pids,
            "scratch_bytes": limits.scratch_size,
            "cell_seconds": limits.cell_timeout,
        },
        "ended": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        "seconds": round(done.seconds, 3),
        "counts": {verdict.value: count for verdict, count in counts(done.findings).items()},
        "exit": exit_code(done),
        "findings": [one.to_json() for one in done.findings],
        "neighbours": [one.to_json() for one in done.neighbours],
    }


def as_json(done: Examination) -> str:
    return json.dumps(to_json(done), indent=2, ensure_ascii=True)


def table(done: Examination) -> str:
    """Return the findings for a terminal, group by group."""
    lines = [_about(done), ""]
    width = max((len(one.probe.code) for one in done.findings), default=0)
    for group, found in groups(done.findings).items():
        lines.append(f"{group.upper()}: {QUESTIONS[group]}")
        for one in found:
            indent = " " * (width + 8)
            lines.append(f"  {MARKS[one.verdict]:4}  {one.probe.code:{width}}  {one.probe.tried}")
            lines += _wrapped(one.happened, indent)
            lines += _wrapped(_why(one), indent)
        lines.append("")
    if done.neighbours:
        lines.append(f"SHARED: {SHARED}")
        lines += [f"  {SAID[one.state]:4}  {one.name:{width}}  {one.found}" for one in done.neighbours]
        lines.append("")
    lines.append(summary(done))
    return "\n".join(ours(part) for line in lines for part in line.split("\n"))


def summary(done: Examination) -> str:
    """Return one line on the whole."""
    found = counts(done.findings)
    own = sum(one.word is Word.SANDBOX for one in done.findings if one.verdict is ProbeVerdict.PASS)
    return (
        f"{found[ProbeVerdict.PASS]} passed ({own} of them on the sandbox's own word), "
        f"{found[ProbeVerdict.FAIL]} failed, "
        f"{found[ProbeVerdict.NOT_APPLICABLE]} not applicable, in {done.seconds:.1f} s"
    )


def _about(done: Examination) -> str:
    settings = done.settings
    runtime = settings.runtime or f"{done.engine.default_runtime} (the default)"
    return (
        f"sandbox-kernel {__version__}, engine {done.engine.version} at {done.address}, runtime {runtime}, "
        f"image {settings.image}, {format_bytes(settings.limits.memory)} of memory, outputs {settings.outputs}"
    )


def _why(one: ProbeFinding) -> str:
    stopped = f"stopped by {one.stopped_by}; " if one.stopped_by else ""
    return f"[{stopped}{WORDS[one.word]}]"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


# --- the page --------------------------------------------------------------------------------------------------------

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #1b1b1b }
table { border-collapse: collapse; width: 100%; margin: .5em 0 1.5em }
th, td { text-align: left; vertical-align: top; padding: .35em .6em; border-bottom: 1px solid #ddd }
td.pass { color: #126b2c }
td.fail { color: #fff; background: #b3261e; font-weight: bold }
td.not-applicable { color: #666 }
code { font-size: .93em } td:nth-child(1) { white-space: nowrap }
""".strip()


def page(done: Examination) -> str:
    """Return the whole as one HTML document."""
    text = _text
    parts = [
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        f"<title>sandbox-kernel verify</title><style>{_STYLE}</style></head><body>",
        f"<h1>sandbox-kernel verify</h1><p>{text(_about(done))}</p><p><b>{text(summary(done))}</b></p>",
    ]
    for group, found in groups(done.findings).items():
        parts.append(f"<h2>{text(group.value)}</h2><p>{text(QUESTIONS[group])}</p><table><tr>")
        parts += [
            f"<th>{name}</th>" for name in ("verdict", "code", "tried", "happened", "stopped by", "on whose word")
        ]
        parts.append("</tr>")
        parts += [_row(one) for one in found]
        parts.append("</table>")
    if done.neighbours:
        rows = ([SAID[one.state], str(one.code or ""), one.name, one.found] for one in done.neighbours)
        told = ("".join(f"<td>{text(cell)}</td>" for cell in row) for row in rows)
        parts += [f"<h2>shared</h2><p>{text(SHARED)}</p><table>", *(f"<tr>{row}</tr>" for row in told), "</table>"]
    return "\n".join([*parts, "</body></html>"])


def _row(one: ProbeFinding) -> str:
    cells = [one.probe.tried, one.happened, one.stopped_by or "", WORDS[one.word]]
    return (
        f'<tr><td class="{one.verdict.value}">{one.verdict.value}</td><td><code>{_text(one.probe.code)}</code></td>'
        + "".join(f"<td>{_text(cell)}</td>" for cell in cells)
        + "</tr>"
    )


def _text(text: str) -> str:
    return html.escape(ours(text), quote=True)
