"""`sandbox-kernel audit` and `sandbox-kernel receipt`: what was recorded, verified and shown.

Texts of the files may come from cells: each is printed safe for a terminal.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...config.sources import from_files_for_all
from ...core.codes import Note, UsageCode
from ...core.errors import ConfigurationError, FileRefused
from ...core.remedies import install_words
from ...files.file_rules import check_name, printable
from .codes import RecordCode

if TYPE_CHECKING:
    from .receipt import Receipt

FINE, WRONG = 0, 1
ACTIONS = ("verify", "show", "reads", "public-key")
MAX_CELLS = 1_000_000
"""Cells of an audit whose numbers are known to its table of reads."""


def add_audit_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=ACTIONS, metavar="ACTION", help=", ".join(ACTIONS))
    add("files", nargs="*", type=Path, metavar="FILE", help="an audit; FILE.1, FILE.2, ... beside it belong to it")
    _add_keys(parser)
    add(
        "--head", action="append", default=[], metavar="N:CHAIN",
        help="verify: a line that is known from elsewhere: from a receipt, or the last of files that were put away",
    )  # fmt: skip
    add("--session", metavar="ID", help="show, reads: lines of one session; the beginning of its id is enough")
    add("--event", metavar="NAME", help="show: lines of one event, such as cell or network")
    add("--last", type=int, metavar="N", help="show: the last of these lines only")
    add("--json", action="store_true", help="print JSON")


def add_receipt_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("action", choices=("verify",), metavar="ACTION", help="verify")
    add("file", type=Path, metavar="FILE", help="what `run --receipt` wrote")
    _add_keys(parser)
    add("--output", metavar="FOLDER", help="the output folder of the run: its files are held against the receipt")
    add(
        "--audit-file",
        type=Path,
        metavar="FILE",
        help="the audit of the run: it is verified up to the line in the receipt",
    )
    add("--json", action="store_true", help="print JSON")


def _add_keys(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--key", action="append", default=[], metavar="FILE", help="the key (default: the one that `audit_key` names)")
    add("--public-key", metavar="KEY", help="the public key in place of it: 64 hexadecimal digits, or a file of them")
    add("--without-key", action="store_true", help="with neither, which proves nothing")


def audit(options: argparse.Namespace) -> int:
    """Verify an audit, show it or what was read of datasets, or print the public key of this account's audit."""
    if options.action == "public-key":
        (key,) = _keys(options)[:1] or (None,)
        if key is None or key.public is None:
            raise ConfigurationError(
                UsageCode.PACKAGE_MISSING, f"a public key needs cryptography: {install_words('secrets')}"
            )
        print(json.dumps({"public": key.public, "id": key.id}) if options.json else key.public)
        return FINE
    if not options.files:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"audit {options.action} needs a FILE")
    do = {"verify": _verify, "reads": _reads}.get(options.action, _show)
    return max(do(options, file) for file in options.files)


# --- keys ------------------------------------------------------------------------------------------------------------


def _keys(options: argparse.Namespace) -> list[Any]:
    """Return the keys to verify with. Raises `ConfigurationError` where there is none and nobody said so."""
    from .keys import read_key

    if options.public_key or options.without_key:
        return []
    return [read_key(path) for path in options.key or [from_files_for_all().get("audit_key")]]


def _public(options: argparse.Namespace) -> str | None:
    from .keys import parse_public, signed_by

    if options.public_key is None:
        return None
    text = str(options.public_key)
    if parse_public(text) is None:
        try:
            text = Path(text).read_text(encoding="utf-8")[:200]
        except (OSError, ValueError) as error:
            raise ConfigurationError(
                UsageCode.WRONG_ARGUMENT, f"--public-key is no key, and no file of one: {error}"
            ) from None
    if (public := parse_public(text)) is None:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "--public-key holds no key of 64 hexadecimal digits")
    try:
        signed_by(public, b"", bytes(64))
    except ImportError:
        raise ConfigurationError(
            UsageCode.PACKAGE_MISSING, f"signatures need cryptography: {install_words('secrets')}"
        ) from None
    return public


# --- an audit --------------------------------------------------------------------------------------------------------


def _verify(options: argparse.Namespace, file: Path) -> int:
    from . import verification
    from .hash_chain import Head

    known = [head for text in options.head if (head := Head.parse(text)) is not None]
    if len(known) != len(options.head):
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, "--head is a number, a colon and 64 hexadecimal digits")
    result = verification.verify(file, _keys(options), _public(options), known)
    if options.json:
        print(json.dumps(verification.to_json(result), indent=2))
        return FINE if result.is_as_written else WRONG
    names = ", ".join(map(printable, result.files))
    print(f"{printable(str(file), 400)}: {result.lines} lines in {names}")
    for one in result.findings:
        where = f"{printable(one.file)}:{one.row}" if one.row else printable(one.file)
        sign = "note " if one.code.severity == "notice" else "WRONG"
        number = "" if one.n is None else f"line {one.n}: "
        print(f"{sign}  {where}  {number}{one.text}  [{one.code.code}]")
    for code, count in result.more.items():
        print(f"       and {count} more of [{code}]")
    for title, said in (("proven", verification.proven(result)), ("not proven", verification.unproven(result))):
        for text in said:
            print(f"{title + ':':11} {text}")
    print("as it was written" if result.is_as_written else "NOT as it was written")
    return FINE if result.is_as_written else WRONG


def _show(options: argparse.Namespace, file: Path) -> int:
    from . import verification

    def wanted() -> Iterator[Mapping[str, Any] | None]:
        for row in verification.rows(file):
            session, event = (str((row or {}).get(name)) for name in ("session", "event"))
            if options.session and not session.startswith(options.session):
                continue
            if options.event and event != options.event:
                continue
            yield row

    last = options.last
    found = wanted() if last is None else iter(deque(wanted(), maxlen=max(0, min(last, 1_000_000))))
    for row in found:
        print(json.dumps(row) if options.json else verification.shown(row))
    return FINE


def _reads(options: argparse.Namespace, file: Path) -> int:
    """Print which cell opened which file of a dataset. What was not seen, or not written down, has a row as well."""
    from . import verification

    def rows(event: str) -> Iterator[Mapping[str, Any]]:
        for row in verification.rows(file):
            if row is None or row.get("event") != event:
                continue
            if str(row.get("session")).startswith(options.session or ""):
                yield row

    partial: set[str] = set()
    numbers: dict[tuple[str, str], object] = {}
    for row in islice(rows("cell"), MAX_CELLS):
        if row.get("execution_count") is not None:
            numbers[str(row.get("session")), str(row.get("id"))] = row["execution_count"]
    if not options.json:
        print(READS.format("SESSION", "CELL", "HOW", "SIZE", "CHANGED", "FILE"))
    for row in rows("reads"):
        session, ids, files = str(row.get("session")), row.get("cells"), row.get("files")
        cells = [numbers.get((session, str(one)), str(one)[:8]) for one in (ids if isinstance(ids, list) else [])]
        number = ("after " if row.get("after") else "") + " or ".join(map(str, cells))
        opened = [one for one in (files if isinstance(files, list) else []) if isinstance(one, dict)]
        if options.json:
            said = {key: row[key] for key in SAID if key in row}
            print(json.dumps({"session": session, "cells": cells, **said, "files": opened}))
            continue
        head = (printable(session[:8]), printable(f"[{number}]" if cells else "", 24))
        for one in opened:
            size, changed, path = (printable(str(one.get(key)), 400) for key in ("size", "modified", "path"))
            print(READS.format(*head, "read" if one.get("read") else "opened", size, changed[:19], path))
        notes = _not_said(row)
        if row.get("partial") and session not in partial:
            partial.add(session)
            notes.append(PARTIAL)
        for note in notes:
            print(READS.format(*head, "note", "", "", note))
    return FINE


READS = "{:8}  {:<10}  {:6}  {:>14}  {:19}  {}"
SAID = ("after", "seen_by", "partial", "code", "reason", "files_count", "more_opened", "overflow", "elsewhere")


PARTIAL = "gVisor keeps files open: one that was only listed may be named, and one that a cell mapped again may not"


def _not_said(row: Mapping[str, Any]) -> list[str]:
    """Return what a line says of reads that it does not name; nothing if it names all that the host's kernel showed."""
    said = [f"not seen: {row['reason']}"] if row.get("reason") else []
    if row.get("more_opened"):
        said.append(f"{row['more_opened']} more were opened")
    if row.get("overflow"):
        said.append("more were opened than the machine's kernel kept")
    if row.get("elsewhere"):
        said.append(f"{row['elsewhere']} were opened by another path")
    return [printable(text, 400) for text in said]


# --- a receipt -------------------------------------------------------------------------------------------------------


def receipt(options: argparse.Namespace) -> int:
    """Verify a receipt of a run: its signature, and the files and the audit that it names."""
    public = _public(options) or next((key.public for key in _keys(options)), None)
    findings: list[Note] = []
    found: Receipt | None = None
    try:
        found = _read(options.file)
    except ValueError as error:
        findings.append(Note(RecordCode.RECEIPT_MALFORMED, printable(str(error))))
    signed = found is not None and public is not None and found.is_signed_by(public)
    if found is not None:
        if public is not None and not signed:
            findings.append(RecordCode.SIGNATURE_WRONG.note())
        findings += _outputs(found, options.output)
        findings += _audit_of(found, options, public)
    good = found is not None and not findings
    if options.json:
        rows = [{"code": note.code.code, "text": note.text} for note in findings]
        said = {"statement": found.predicate, "subjects": found.subjects} if found is not None else {}
        print(json.dumps({"is_good": good, "is_signed": signed, "findings": rows, **said}, indent=2))
        return FINE if good else WRONG
    for note in findings:
        print(f"WRONG  {note.text}  [{note.code.code}]")
    if found is not None:
        _say(found, signed, options, has_key=public is not None)
    return FINE if good else WRONG


def _read(path: Path) -> Receipt:
    from ...files.host_paths import open_file
    from . import receipt

    try:
        with os.fdopen(open_file(path), "rb") as file:
            return receipt.read(file.read(receipt.MAX_BYTES + 1))
    except (OSError, FileRefused) as error:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{path} cannot be read: {error}") from None


def _outputs(found: Receipt, folder: str | None) -> list[Note]:
    """Hold the files of a folder against a receipt, whose names may lead anywhere."""
    from ...files.host_paths import open_folder

    if folder is None:
        return []
    differ: list[Note] = []
    try:
        place = open_folder(folder)
    except (OSError, FileRefused) as error:
        raise ConfigurationError(UsageCode.WRONG_ARGUMENT, f"{folder} cannot be opened: {error}") from None
    with place:
        for name, sha256 in found.subjects:
            try:
                with os.fdopen(place.open_file(str(check_name(name))), "rb") as file:
                    same = hashlib.file_digest(file, "sha256").hexdigest() == sha256
            except (OSError, FileRefused):
                same = False
            if not same:
                differ.append(Note(RecordCode.OUTPUT_DIFFERS, f"{printable(name)} is not the file of the run"))
    return differ


def _audit_of(found: Receipt, options: argparse.Namespace, public: str | None) -> list[Note]:
    from . import verification
    from .hash_chain import Head

    if options.audit_file is None:
        return []
    known = None if found.head is None else Head.parse(found.head)
    if known is None:
        return [Note(RecordCode.HEAD_DIFFERS, "the receipt names no line of an audit")]
    keys = _keys(options)
    result = verification.verify(options.audit_file, keys, None if keys else public, [known])
    return [Note(one.code, one.text) for one in result.findings if one.code.severity != "notice"]


def _say(found: Receipt, signed: bool, options: argparse.Namespace, *, has_key: bool) -> None:
    said = found.predicate
    end, source = said.get("exit"), said.get("source")
    if isinstance(end, dict) and isinstance(source, dict):
        print(printable(f"run of {source.get('name')}, {said.get('started')}: {end.get('kind')}", 300))
    for name, sha256 in found.subjects:
        print(f"output {sha256[:64] if sha256.isalnum() else '?'}  {printable(name)}")
    why = "it is not signed with the key that it was held to" if has_key else "no key was given to hold it to"
    print(f"proven:     {'the owner of the key has stated this' if signed else f'nothing: {why}'}")
    if options.output is None:
        print("not proven: that files are those of the run: name their folder by --output")
    if options.audit_file is None:
        print("not proven: what the audit says: name it by --audit-file")
