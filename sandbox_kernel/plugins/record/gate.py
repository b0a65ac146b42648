"""`sandbox-kernel gate`: whether a signed receipt of a run is good enough for a policy, such as that of a deployment.

The policy is the operator's: it says whose receipts are believed and what a run may have done. What it does not
mention is refused. Texts of a receipt may come from code that ran: they are printed safe for a terminal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import subprocess
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ...config.forms import seconds
from ...core.codes import Note, UsageCode
from ...core.errors import ConfigurationError
from ...core.helper_processes import environment_of_helpers
from ...core.screen_findings import MAX_SCORE
from ...files.file_rules import printable
from ...files.host_paths import fetch
from .codes import RecordCode
from .keys import parse_public
from .receipt import Receipt, read

PASSES, REFUSED, UNPROVEN = 0, 1, 3
SKEW = timedelta(minutes=5)
"""How far ahead the clock of the run may have been."""
GIT_SECONDS = 60.0
OVERRIDES = ("none", "any", "owner", "end", "owner-and-end")


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePolicy:
    """What a run has to be. Each default is the strictest."""

    public_keys: tuple[str, ...]
    """Whose receipts are believed."""
    max_age: float
    """Seconds since the end of the run."""
    max_score: int
    """The highest score of behaviour that passes."""
    overrides: str = "none"
    """What comments that allow a finding need, if they may be there at all."""
    override_owners: tuple[str, ...] = ()
    """Who may answer for one; empty is anybody."""
    screened: bool = True
    """Whether the screen has to have read the code."""
    commit: bool = True
    """Whether the source has to be that of a commit."""


def policy_of(text: str) -> GatePolicy:
    """Return the policy of a TOML file. Raises ValueError for what is none."""
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise ValueError("it nests too deep") from None
    known = GatePolicy.__slots__
    if unknown := sorted(set(table) - set(known)):
        raise ValueError(f"it has {unknown[0]!r}, and may have {', '.join(known)}")
    if missing := [name for name in ("public_keys", "max_age", "max_score") if name not in table]:
        raise ValueError(f"it does not say {missing[0]}")
    for name, kinds, what in (
        ("public_keys", list, "a list"),
        ("override_owners", list, "a list"),
        ("screened", bool, "true or false"),
        ("commit", bool, "true or false"),
        ("max_score", int, f"a whole number from 0 to {MAX_SCORE}"),
    ):
        if name in table and (not isinstance(table[name], kinds) or (kinds is int and isinstance(table[name], bool))):
            raise ValueError(f"{name} is not {what}")
    keys = tuple(parse_public(str(one)) or "" for one in table["public_keys"])
    if not keys or not all(keys):
        raise ValueError("public_keys is no list of keys, each of 64 hexadecimal digits")
    if not 0 <= table["max_score"] <= MAX_SCORE:
        raise ValueError(f"max_score is not a whole number from 0 to {MAX_SCORE}")
    if table.get("overrides", "none") not in OVERRIDES:
        raise ValueError(f"overrides is one of {', '.join(OVERRIDES)}")
    owners = tuple(map(str, table.get("override_owners", ())))
    age = seconds(1)("max_age", table["max_age"])
    return GatePolicy(**table | {"public_keys": keys, "max_age": age, "override_owners": owners})


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--receipt", required=True, metavar="FILE", help="what `run --receipt` wrote")
    add("--policy", required=True, metavar="FILE", help="a TOML file of yours: what a run has to be (docs/record.md)")
    add("--commit", metavar="REVISION", help="the commit that is to be deployed: its file has to be the run's source")
    add("--source", metavar="PATH", help="the path of the source in the repository (default: the name in the receipt)")
    add("--repository", default=".", metavar="FOLDER", help="the checkout or repository (default: where this runs)")
    add("--json", action="store_true", help="print JSON")


def gate(options: argparse.Namespace) -> int:
    """Say whether a run passes; return the exit code. Raises `ConfigurationError`."""
    try:
        policy = policy_of(fetch(options.policy).decode())
    except ValueError as error:  # what is no text, and what is no TOML, are such too
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"the policy {options.policy} is none: {error}") from None
    if policy.commit and options.commit is None:
        words = "the policy wants the source of a commit: name it by --commit, or write commit = false"
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, words)
    try:
        receipt = read(fetch(options.receipt))
    except ValueError as error:
        return _told(options, UNPROVEN, [Note(RecordCode.RECEIPT_MALFORMED, printable(str(error)))])
    try:
        signed = any(map(receipt.is_signed_by, policy.public_keys))
    except ImportError:
        from ...core.remedies import install_words

        words = f"signatures need cryptography: {install_words('secrets')}"
        raise ConfigurationError(UsageCode.PACKAGE_MISSING, words) from None
    if not signed:
        return _told(options, UNPROVEN, [RecordCode.SIGNATURE_WRONG.note()])
    findings = [*_of_run(receipt, policy), *_of_overrides(receipt, policy)]
    if options.commit is not None:
        findings += _of_commit(receipt, options)
    return _told(options, REFUSED if findings else PASSES, findings, receipt)


def _part(statement: object, *names: str) -> Any:
    for name in names:
        statement = statement.get(name) if isinstance(statement, Mapping) else None
    return statement


def _of_run(receipt: Receipt, policy: GatePolicy) -> Iterator[Note]:
    said = receipt.predicate
    kind, code = _part(said, "exit", "kind"), _part(said, "exit", "code")
    if code != 0 or isinstance(code, bool):
        yield Note(RecordCode.RUN_NOT_FINE, f"the run ended with {printable(str(kind))}, exit code {code!r:.20}")
    score = _part(said, "behaviour", "risk_score")
    if isinstance(score, bool) or not isinstance(score, int) or not 0 <= score <= policy.max_score:
        yield Note(RecordCode.RUN_TOO_RISKY, f"its score is {score!r:.20}, and the policy takes {policy.max_score}")
    if policy.screened and _part(said, "sandbox", "screen") not in {"warn", "ask", "block"}:
        yield Note(RecordCode.RUN_NOT_SCREENED, "the screen did not read its code")
    try:
        age = datetime.now(UTC) - datetime.fromisoformat(str(said.get("ended"))).astimezone(UTC)
    except (ValueError, OverflowError):
        age = None
    if age is None or not -SKEW <= age <= timedelta(seconds=policy.max_age):
        ended = printable(str(said.get("ended")), 40)
        yield Note(RecordCode.RUN_TOO_OLD, f"it ended at {ended}, and the policy takes {policy.max_age:g} s")


def overrides_of(receipt: Receipt) -> list[dict[str, Any]]:
    """Return the findings of the screen that comments allowed in the run: what, in which cell, who, until when, why."""
    cells = receipt.predicate.get("cells")
    found: list[dict[str, Any]] = []
    for cell in cells if isinstance(cells, list) else []:
        findings = _part(cell, "findings")
        for one in findings if isinstance(findings, list) else []:
            if _part(one, "allowed") is not None:
                named = {name: _part(one, name) for name in ("code", "by", "until")}
                found.append({"cell": _part(cell, "number"), **named, "why": _part(one, "allowed")})
    return found


def _of_overrides(receipt: Receipt, policy: GatePolicy) -> Iterator[Note]:
    today = datetime.now(UTC).date().isoformat()
    for one in overrides_of(receipt):
        wants = policy.overrides
        fault = (
            "the policy takes none"
            if wants == "none"
            else "it has no owner"
            if one["by"] is None and wants in {"owner", "owner-and-end"}
            else "it has no end"
            if one["until"] is None and wants in {"end", "owner-and-end"}
            else "its owner is not one of override_owners"
            if policy.override_owners and one["by"] not in policy.override_owners
            else f"it ended on {printable(str(one['until']))}"
            if one["until"] is not None and str(one["until"]) < today
            else ""
        )
        if fault:
            where = f"cell {one['cell']!r:.20}: {printable(str(one['code']))}"
            yield Note(RecordCode.RUN_OVERRIDDEN, f"{where} was allowed by a comment, and {fault}")


def _of_commit(receipt: Receipt, options: argparse.Namespace) -> Iterator[Note]:
    """Hold the file of a commit against the source of the run. Raises `ConfigurationError`."""
    path = options.source or str(_part(receipt.predicate, "source", "name"))
    if options.commit.startswith("-"):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"--commit is no revision: {options.commit}")
    command = ["git", "-C", options.repository, "cat-file", "blob", f"{options.commit}:{path}"]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment_of_helpers()) as process:
            sha256 = hashlib.file_digest(process.stdout, "sha256").hexdigest()  # type: ignore[arg-type]  # a pipe is one
            code = process.wait(GIT_SECONDS)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"git cannot say what the commit has: {error}") from None
    shown = printable(f"{options.commit}:{path}", 200)
    if code:
        yield Note(RecordCode.RUN_OF_OTHER_CODE, f"the repository has no file {shown}")
    elif sha256 != _part(receipt.predicate, "source", "sha256"):
        yield Note(RecordCode.RUN_OF_OTHER_CODE, f"{shown} is not what was run")


def _told(options: argparse.Namespace, code: int, findings: list[Note], receipt: Receipt | None = None) -> int:
    overrides = [] if receipt is None else overrides_of(receipt)
    said: Mapping[str, Any] = {} if receipt is None else receipt.predicate
    about = {
        "source": _part(said, "source", "name"),
        "sha256": _part(said, "source", "sha256"),
        "ended": said.get("ended"),
        "score": _part(said, "behaviour", "risk_score"),
    }
    if options.json:
        rows = [{"code": note.code.code, "text": note.text} for note in findings]
        print(json.dumps({"passes": code == PASSES, "findings": rows, **about, "overrides": overrides}, indent=2))
        return code
    for note in findings:
        print(f"WRONG     {note.text}  [{note.code.code}]")
    for one in overrides:
        who = printable(f"{one['by'] or 'nobody named'}, until {one['until'] or 'ever'}: {one['why']}", 400)
        print(f"override  cell {one['cell']!r:.20}: {printable(str(one['code']))}, by {who}")
    if receipt is not None:
        source, ended = (printable(str(about[name])) for name in ("source", "ended"))
        print(f"run       {source}, {ended}, score {about['score']!r:.20}")
    print("it passes" if code == PASSES else "it does NOT pass")
    return code
