"""The audit is a chain: whatever is done to its file later is found, and what honest processes go through is not."""

from __future__ import annotations

import fcntl
import io
import json
import os
import random
import re
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandbox_kernel import cli
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.codes import Code
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.record import audit as audits
from sandbox_kernel.plugins.record import hash_chain, keys, verification
from sandbox_kernel.plugins.record.audit import Audit
from sandbox_kernel.plugins.record.codes import RecordCode
from sandbox_kernel.plugins.record.hash_chain import Head
from sandbox_kernel.plugins.record.settings import RecordSettings
from sandbox_kernel.plugins.record.verification import Verifier
from tests.support.examples import examples
from tests.support.records import Folder, codes, missed, run_herd, verify, write

Bend = Callable[[Folder, Folder], None]


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """An audit of three sessions."""
    folder = Folder(tmp_path_factory.mktemp("honest"))
    for name in ("one", "two", "three"):
        write(folder.path, folder.key, name)
    return folder


@pytest.fixture
def bent(honest: Folder, tmp_path: Path) -> Folder:
    """A copy to be bent, of which the witness beside the key remembers the last line."""
    copy = honest.copy(tmp_path / "bent")
    (head,) = (copy.key.parent / "audit-heads").iterdir()
    head.rename(head.with_name(witness_of(copy)))
    return copy


def witness_of(folder: Folder) -> str:
    from sandbox_kernel.plugins.record.remembered_head import name_of

    return name_of(folder.path)


def reseal(lines: list[bytes], start: int, key: bytes) -> list[bytes]:
    """Seal the lines from `start` on again, as somebody does who has the source but not the key."""
    sealed = hash_chain.parse(lines[start - 1][:-1]) if start else None
    head, done = sealed.head if sealed is not None else hash_chain.NOTHING, lines[:start]
    for line in lines[start:]:
        old = hash_chain.parse(line[:-1])
        assert old is not None
        new, head = hash_chain.seal(head, old.said[: old.said.rindex(b',"n":')] + b"}", key)
        done.append(new)
    return done


# --- what is found ---------------------------------------------------------------------------------------------------


def change(folder: Folder, _: Folder) -> None:
    folder.lines = [line.replace(b'"number":2', b'"number":7') for line in folder.lines]


def change_the_last(folder: Folder, _: Folder) -> None:
    *others, last = folder.lines
    folder.lines = [*others, last.replace(b'"lost":0', b'"lost":1')]


def renumber(folder: Folder, _: Folder) -> None:
    folder.lines = [line.replace(b',"n":5,', b',"n":500,') for line in folder.lines]


def remove(folder: Folder, _: Folder) -> None:
    folder.lines = folder.lines[:5] + folder.lines[6:]


def remove_many(folder: Folder, _: Folder) -> None:
    folder.lines = folder.lines[:3] + folder.lines[12:]


def remove_the_beginning(folder: Folder, _: Folder) -> None:
    folder.lines = folder.lines[4:]


def cut_lines(folder: Folder, _: Folder) -> None:
    folder.lines = folder.lines[:-3]


def cut_to_an_end(folder: Folder, _: Folder) -> None:
    """The last session is gone as a whole: what is left ends with the end of another."""
    folder.lines = folder.lines[:-7]


def cut_bytes(folder: Folder, _: Folder) -> None:
    os.truncate(folder.path, folder.path.stat().st_size - 30)


def repeat(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    folder.lines = [*lines[:6], lines[5], *lines[6:]]


def repeat_at_the_end(folder: Folder, _: Folder) -> None:
    folder.lines = [*folder.lines, folder.lines[5]]


def swap(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    lines[4], lines[5] = lines[5], lines[4]
    folder.lines = lines


def move(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    lines.insert(12, lines.pop(4))
    folder.lines = lines


def insert(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    forged, _head = hash_chain.seal(hash_chain.parse(lines[5][:-1]).head, b'{"time":"x","event":"cell"}', b"guess")  # type: ignore[union-attr]
    folder.lines = [*lines[:6], forged, *lines[6:]]


def rewrite_without_the_key(folder: Folder, _: Folder) -> None:
    change(folder, folder)
    folder.lines = reseal(folder.lines, 0, b"guess")


def rewrite_with_another_key(folder: Folder, other: Folder) -> None:
    folder.path.unlink()
    write(folder.path, other.key, "forged", cells=30)


def add_text(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    folder.lines = [*lines[:6], b'{"time":"2026","event":"cell"}\n', *lines[6:]]


def add_text_at_the_end(folder: Folder, _: Folder) -> None:
    folder.lines = [*folder.lines, b"\x00" * 100_000 + b"\n"]


def put_back(folder: Folder, _: Folder) -> None:
    """A copy of yesterday takes the place of today's."""
    old = folder.path.read_bytes()
    write(folder.path, folder.key, "four")
    folder.path.write_bytes(old)


def transplant(folder: Folder, _: Folder) -> None:
    """A line that the same key has sealed, with the same number, of another audit."""
    other = folder.path.with_name("other.jsonl")
    write(other, folder.key, "other")
    lines = folder.lines
    lines[4] = other.read_bytes().splitlines(keepends=True)[4]
    other.unlink()
    folder.lines = lines


def cut_and_go_on(folder: Folder, _: Folder) -> None:
    """Nobody writes when it is cut, and somebody goes on later."""
    cut_lines(folder, folder)
    write(folder.path, folder.key, "four")


def change_and_go_on(folder: Folder, _: Folder) -> None:
    change_the_last(folder, folder)
    write(folder.path, folder.key, "four")


def add_much_and_go_on(folder: Folder, _: Folder) -> None:
    folder.lines = [*folder.lines, b"x" * 100_000]
    write(folder.path, folder.key, "four")


def lose_a_segment(folder: Folder, _: Folder) -> None:
    write(folder.path, folder.key, "four", cells=30, limit_bytes=3000)
    folder.path.with_name("audit.jsonl.2").unlink()


def exchange_segments(folder: Folder, _: Folder) -> None:
    write(folder.path, folder.key, "four", cells=30, limit_bytes=3000)
    one, two = (folder.path.with_name(f"audit.jsonl.{number}") for number in (2, 3))
    one.rename(spare := folder.path.with_name("spare"))
    two.rename(one)
    spare.rename(two)


def lose_the_oldest_segment(folder: Folder, _: Folder) -> None:
    write(folder.path, folder.key, "four", cells=30, limit_bytes=3000)
    folder.path.with_name("audit.jsonl.1").unlink()


def empty_and_go_on(folder: Folder, _: Folder) -> None:
    folder.lines = []
    write(folder.path, folder.key, "four")


def remove_and_go_on(folder: Folder, _: Folder) -> None:
    folder.path.unlink()
    write(folder.path, folder.key, "four")


def put_text_in_its_place_and_go_on(folder: Folder, _: Folder) -> None:
    folder.path.write_text('{"time":"2025","event":"cell"}\n')
    write(folder.path, folder.key, "four")


def another_of_the_same_key(folder: Folder, *, cells: int, limit_bytes: int = 1 << 30) -> Path:
    other = folder.path.with_name("other.jsonl")
    write(other, folder.key, "other", cells=cells, limit_bytes=limit_bytes)
    return other


def put_a_longer_audit_in_its_place(folder: Folder, _: Folder) -> None:
    another_of_the_same_key(folder, cells=40).rename(folder.path)


def put_a_longer_audit_in_its_place_and_go_on(folder: Folder, _: Folder) -> None:
    another_of_the_same_key(folder, cells=40).rename(folder.path)
    write(folder.path, folder.key, "four")


def put_one_of_the_same_length_in_its_place_and_go_on(folder: Folder, _: Folder) -> None:
    another_of_the_same_key(folder, cells=19).rename(folder.path)
    write(folder.path, folder.key, "four")


def put_the_end_of_a_longer_audit_in_its_place(folder: Folder, _: Folder) -> None:
    """None of its lines has the number of the one that is remembered."""
    other = another_of_the_same_key(folder, cells=60, limit_bytes=8000)
    header = hash_chain.parse(other.read_bytes().splitlines()[0])
    assert header is not None
    assert header.head.n > len(folder.lines)
    other.rename(folder.path)


def add_lines_of_another_audit_and_go_on(folder: Folder, _: Folder) -> None:
    longer = another_of_the_same_key(folder, cells=40).read_bytes().splitlines(keepends=True)
    folder.lines = [*folder.lines, *longer[22:]]
    write(folder.path, folder.key, "four")


def sign_with_an_anchor_of_before(folder: Folder, _: Folder) -> None:
    """The last anchor, with the signature of the first."""
    lines = folder.lines
    ends = [json.loads(line)["signature"].encode() for line in lines if b'"event":"end"' in line]
    folder.lines = [*lines[:-1], lines[-1].replace(ends[-1], ends[0])]


def forge_a_gap(folder: Folder, _: Folder) -> None:
    """What is removed was never written, says somebody."""
    lines = folder.lines
    before = hash_chain.parse(lines[4][:-1])
    assert before is not None
    body = b'{"time":"2026-01-01T00:00:00.000+00:00","session":"one","event":"gap","kind":"lost","lines":3}'
    forged, _head = hash_chain.seal(before.head, body, b"guess")
    folder.lines = [*lines[:5], forged, *lines[8:]]


def repeat_a_gap(folder: Folder, _: Folder) -> None:
    """A real one of before, behind what is cut off now."""
    folder.lines = [*folder.lines, b'{"time":']
    write(folder.path, folder.key, "four")
    (gap,) = (line for line in folder.lines if b'"event":"gap"' in line)
    folder.lines = [*folder.lines[:-3], gap]


def forge_a_signature(folder: Folder, _: Folder) -> None:
    lines = folder.lines
    old = json.loads(lines[-1])["signature"].encode()
    folder.lines = [*lines[:-1], lines[-1].replace(old, b"0" * 128)]


BENT: dict[Bend, set[Code]] = {
    change: {RecordCode.LINE_CHANGED},
    change_the_last: {RecordCode.LINE_CHANGED, RecordCode.NOT_ENDED},
    renumber: {RecordCode.LINE_CHANGED, RecordCode.LINES_MISSING},
    remove: {RecordCode.LINES_MISSING},
    remove_many: {RecordCode.LINES_MISSING, RecordCode.NOT_ENDED},
    remove_the_beginning: {RecordCode.BEGINNING_CUT, RecordCode.LINES_MISSING},
    cut_lines: {RecordCode.END_CUT, RecordCode.NOT_ENDED},
    cut_to_an_end: {RecordCode.END_CUT},
    cut_bytes: {RecordCode.END_CUT, RecordCode.END_TORN, RecordCode.NOT_ENDED},
    repeat: {RecordCode.LINE_REPEATED},
    repeat_at_the_end: {RecordCode.LINE_REPEATED},
    swap: {RecordCode.LINE_MOVED},
    move: {RecordCode.LINE_MOVED},
    insert: {RecordCode.LINE_CHANGED},
    rewrite_without_the_key: {RecordCode.LINE_CHANGED},
    rewrite_with_another_key: {RecordCode.KEY_NOT_GIVEN, RecordCode.HEAD_DIFFERS},
    add_text: {RecordCode.LINE_FOREIGN},
    add_text_at_the_end: {RecordCode.LINE_FOREIGN},
    put_back: {RecordCode.END_CUT},
    transplant: {RecordCode.LINES_MISSING},
    cut_and_go_on: {RecordCode.END_CUT, RecordCode.LINES_MISSING, RecordCode.NOT_ENDED},
    change_and_go_on: {RecordCode.LINE_CHANGED, RecordCode.AUDIT_ALTERED, RecordCode.NOT_ENDED},
    add_much_and_go_on: {RecordCode.END_TORN, RecordCode.AUDIT_ALTERED},
    lose_a_segment: {RecordCode.LINES_MISSING},
    exchange_segments: {RecordCode.LINE_MOVED},
    lose_the_oldest_segment: {RecordCode.EARLIER_MISSING},
    empty_and_go_on: {RecordCode.EARLIER_MISSING},
    remove_and_go_on: {RecordCode.EARLIER_MISSING},
    put_text_in_its_place_and_go_on: {RecordCode.EARLIER_MISSING, RecordCode.SET_ASIDE},
    put_a_longer_audit_in_its_place: {RecordCode.HEAD_DIFFERS},
    put_a_longer_audit_in_its_place_and_go_on: {RecordCode.AUDIT_ALTERED},
    put_one_of_the_same_length_in_its_place_and_go_on: {RecordCode.AUDIT_ALTERED},
    put_the_end_of_a_longer_audit_in_its_place: {RecordCode.EARLIER_MISSING},
    add_lines_of_another_audit_and_go_on: {RecordCode.LINES_MISSING},
    sign_with_an_anchor_of_before: {RecordCode.LINE_CHANGED, RecordCode.NOT_ENDED},
    forge_a_gap: {RecordCode.LINE_CHANGED, RecordCode.LINES_MISSING, RecordCode.NOT_ENDED},
    repeat_a_gap: {RecordCode.LINE_REPEATED, RecordCode.LINE_TORN, RecordCode.END_CUT, RecordCode.NOT_ENDED},
    forge_a_signature: {RecordCode.LINE_CHANGED, RecordCode.NOT_ENDED},
}
"""What somebody does to the file who cannot read the key, and what is found."""


def test_control_what_is_left_alone_is_as_it_was_written(honest: Folder, bent: Folder) -> None:
    for folder in (honest, bent):
        result = verify(folder.path, folder.key)
        assert (codes(result), result.is_as_written, result.is_end_known) == (set(), True, True)
        assert (result.first, result.proven_to, result.lines) == (1, 22, 22)
        assert result.signed_to == 21


@pytest.mark.parametrize("bend", BENT, ids=lambda bend: bend.__name__)
def test_what_is_done_to_the_file_is_found(bend: Bend, bent: Folder, tmp_path: Path) -> None:
    bend(bent, Folder(tmp_path / "other"))
    result = verify(bent.path, bent.key)
    assert not result.is_as_written
    assert codes(result) == BENT[bend]


@pytest.mark.parametrize("bend", BENT, ids=lambda bend: bend.__name__)
def test_whoever_has_the_public_key_alone_finds_it_or_is_told_how_far_it_reaches(
    bend: Bend, bent: Folder, tmp_path: Path
) -> None:
    """Nothing remembers the end for them: a cut is where the proof ends, and that is said."""
    public = keys.read_key(str(bent.key)).public
    control = verification.verify(bent.path, [], public)
    assert (control.is_as_written, control.proven_to, control.signed_to) == (True, 21, 21)
    bend(bent, Folder(tmp_path / "other"))
    result = verification.verify(bent.path, [], public)
    cut = bend in (cut_lines, cut_to_an_end, cut_bytes, put_back, repeat_at_the_end)
    of_another = bend is put_a_longer_audit_in_its_place  # it is signed, and which audit it is only a known line says
    assert not result.is_as_written or cut or of_another
    if bend in (cut_lines, cut_to_an_end, cut_bytes):
        assert result.proven_to < 21
        assert any("cut off at the end" in text for text in verification.unproven(result))


def test_a_forger_who_leaves_the_signatures_out_proves_nothing(bent: Folder) -> None:
    lines = [line for line in bent.lines if b'"event":"end"' not in line]
    bent.lines = reseal(lines, 0, b"guess")
    result = verification.verify(bent.path, [], keys.read_key(str(bent.key)).public)
    assert (result.is_as_written, result.proven_to) == (False, 0)
    assert RecordCode.NOT_SIGNED in codes(result)


def test_without_a_key_a_forgery_that_fits_together_is_not_found_and_that_is_said(bent: Folder) -> None:
    """The control of all others: it is the key that finds them."""
    rewrite_without_the_key(bent, bent)
    result = verification.verify(bent.path, [], None)
    assert result.is_as_written
    assert result.proven_to == 0
    assert "nothing" in verification.proven(result)[0]


def test_a_cut_is_found_by_a_line_that_somebody_else_has_kept(bent: Folder) -> None:
    last = hash_chain.parse(bent.lines[-1][:-1])
    assert last is not None
    public = keys.read_key(str(bent.key)).public
    assert verification.verify(bent.path, [], public, [last.head]).is_end_known
    cut_to_an_end(bent, bent)
    result = verification.verify(bent.path, [], public, [last.head])
    assert RecordCode.END_CUT in codes(result)
    assert not [text for text in verification.unproven(result) if "nothing else is known" in text], "the line is known"
    other = Head(last.head.n - 8, bytes(32))
    assert RecordCode.HEAD_DIFFERS in codes(verification.verify(bent.path, [], public, [other]))


@settings(examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_no_other_file_is_taken_for_the_honest_one(honest: Folder, data: st.DataObject) -> None:
    """Any edit of bytes or lines is found; a few bytes behind the last line may be a line that somebody began."""
    raw = honest.path.read_bytes()
    lines = raw.splitlines(keepends=True)
    kind = data.draw(st.sampled_from(("byte", "cut", "drop", "copy", "shuffle", "text")))
    at, to = data.draw(st.integers(0, len(lines) - 1)), data.draw(st.integers(0, len(lines) - 1))
    if kind == "byte":
        place = data.draw(st.integers(0, len(raw) - 1))
        edited = raw[:place] + bytes([raw[place] ^ data.draw(st.integers(1, 255))]) + raw[place + 1 :]
    elif kind == "cut":
        edited = raw[: data.draw(st.integers(0, len(raw) - 1))]
    elif kind == "drop":
        edited = b"".join(lines[:at] + lines[max(at, to) + 1 :])
    elif kind == "copy":
        edited = b"".join([*lines[:to], lines[at], *lines[to:]])
    elif kind == "shuffle":
        edited = b"".join(data.draw(st.permutations(lines)))
    else:
        edited = b"".join([*lines[:at], data.draw(st.binary(max_size=200)) + b"\n", *lines[at:]])
    key, last = keys.read_key(str(honest.key)), hash_chain.parse(lines[-1][:-1])
    assert last is not None
    verifier = Verifier({key.id: key}, None, [last.head])
    verifier.take("audit", io.BytesIO(edited))
    assert verifier.finish().is_as_written == (edited == raw)


# --- garbage ---------------------------------------------------------------------------------------------------------


def garbage(kind: str, size: int) -> bytes:
    one = random.Random(kind)
    if kind == "one line":
        return b"a" * size
    if kind == "newlines":
        return b"\n" * (size // 8)
    if kind == "noise":
        return one.randbytes(size)
    seal = '"n":%d,"chain":"%s","mac":"%s"}\n'
    begin = {"seals": '{"time":"x",', "nests": '{"time":"x","a":' + "[" * 1800 + "]" * 1800 + ","}[kind]
    text, number, made = list[str](), 10**17, 0
    while made < size:
        number -= one.randrange(1, 10**9) if len(text) % 2 else -(10**12)
        text.append(begin + seal % (number, one.randbytes(32).hex(), one.randbytes(16).hex()))
        made += len(text[-1])
    return "".join(text).encode()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["one line", "newlines", "noise", "seals", "nests"])
def test_garbage_costs_little_time_and_memory(kind: str, tmp_path: Path, honest: Folder) -> None:
    path = tmp_path / "audit.jsonl"
    path.write_bytes(garbage(kind, 1 << (18 if kind == "newlines" else 19)))
    key, began = keys.read_key(str(honest.key)), time.process_time()
    tracemalloc.start()
    try:
        results = [
            verification.verify(path, [key]),
            verification.verify(path, [], key.public),
            verification.verify(path, []),
        ]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 30
    assert peak < 6 << 20
    assert not any(result.is_as_written for result in results)
    assert len(json.dumps(verification.to_json(results[0]))) < 1 << 20
    for row in verification.rows(path):
        assert verification.shown(row).isprintable()


@examples(60)
@given(st.binary(max_size=3000))
def test_any_bytes_are_shown_safely(data: bytes) -> None:
    sealed = hash_chain.parse(data) or hash_chain.parse(b'{"time":"' + data)
    row = None if sealed is None else sealed.fields()
    assert verification.shown(row).isprintable()


# --- what honest processes go through --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1 << 40, 40_000], ids=["one file", "rotated"])
def test_processes_that_write_at_once_and_are_killed_leave_one_chain(limit: int, tmp_path: Path) -> None:
    """`python -m benchmarks.record` does the same with 100,000 lines and 200 kills."""
    folder = Folder(tmp_path / "herd")
    outcome = run_herd(folder, workers=4, lines=2000, kills=8, limit=limit)
    result = verify(folder.path, folder.key)
    assert codes(result) <= {RecordCode.NOT_ENDED, RecordCode.LINE_TORN, RecordCode.LINES_LOST}, result.findings
    assert result.is_end_known
    assert result.proven_to == result.last.n if result.last else False
    assert len(outcome["killed"]) == 8
    assert missed(folder, outcome) == []
    assert (len(result.files) > 1) == (limit < 1 << 40)


def test_a_line_that_was_broken_off_is_marked_by_the_next(bent: Folder) -> None:
    """As a kill within a write leaves it; the control is a file in which nobody marked it."""
    with bent.path.open("ab") as file:
        file.write(b'{"time":"2026-01-01T00:00:00.000+00:00","session":"four","eve')
    control = verify(bent.path, bent.key)
    assert (codes(control), control.is_as_written) == ({RecordCode.END_TORN}, True)
    write(bent.path, bent.key, "five")
    result = verify(bent.path, bent.key)
    assert (codes(result), result.is_as_written) == ({RecordCode.LINE_TORN}, True)
    (torn,) = (one for one in result.findings if one.code is RecordCode.LINE_TORN)
    assert torn.row == 23
    bent.path.write_bytes(bent.path.read_bytes().replace(b'"session":"four"', b'"session":"fork"'))
    assert codes(verify(bent.path, bent.key)) == {RecordCode.LINE_FOREIGN}


def test_a_line_that_was_broken_off_cannot_be_taken_out(bent: Folder) -> None:
    """The line behind it says that it was there. What stays of it may be all that there is of a cell."""
    with bent.path.open("ab") as file:
        file.write(b'{"time":"2026-01-01T00:00:00.000+00:00","session":"four","eve')
    write(bent.path, bent.key, "five")
    whole = bent.path.read_bytes()
    assert verify(bent.path, bent.key).is_as_written
    bent.path.write_bytes(whole.replace(b'{"time":"2026-01-01T00:00:00.000+00:00","session":"four","eve\n', b""))
    result = verify(bent.path, bent.key)
    assert (codes(result), result.is_as_written) == ({RecordCode.LINES_MISSING}, False)


def test_a_line_that_was_broken_off_behind_its_last_sign_is_whole(bent: Folder) -> None:
    """As a kill leaves it, before the line was remembered; else the next one has its number as well."""
    before, witness = bent.path.read_bytes(), bent.key.parent / "audit-heads" / witness_of(bent)
    remembered = witness.read_bytes()
    audit = Audit(str(bent.path), session="four", key=str(bent.key))
    audit("cell", number=1)
    audit.close()
    line = bent.path.read_bytes().removeprefix(before).partition(b"\n")[0]
    bent.path.write_bytes(before + line)
    witness.write_bytes(remembered)
    write(bent.path, bent.key, "five")
    result = verify(bent.path, bent.key)
    assert (codes(result), result.is_as_written) == ({RecordCode.NOT_ENDED}, True)
    assert bent.path.read_bytes().startswith(before + line + b"\n{")


def test_a_part_of_a_line_that_a_full_disk_took_is_taken_out_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, real = Folder(tmp_path / "full"), os.write
    audit = Audit(str(folder.path), session="one", key=str(folder.key))
    monkeypatch.setattr("sandbox_kernel.plugins.record.audit_file.os.write", lambda fd, data: real(fd, data[:40]))
    audit("cell", number=1)
    assert audit.waiting == 1
    monkeypatch.setattr("sandbox_kernel.plugins.record.audit_file.os.write", real)
    audit("cell", number=2)
    audit.close()
    result = verify(folder.path, folder.key)
    assert (codes(result), result.lines) == (set(), 5)


def test_a_line_waits_for_another_process_within_a_bound_and_comes_later(tmp_path: Path) -> None:
    folder, reports = Folder(tmp_path / "held"), list[str]()
    audit = Audit(str(folder.path), session="one", key=str(folder.key), report=reports.append)
    (head,) = (folder.key.parent / "audit-heads").iterdir()
    with head.open("rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        began = time.monotonic()
        for number in range(100):
            audit("cell", number=number)
        assert time.monotonic() - began < 20 * audits.PATIENCE_SECONDS + 2, "only the first one waits"
        assert (audit.waiting, len(reports)) == (100, 1)
    audit("cell", number=100)
    audit.close()
    assert [row["number"] for row in verification.rows(folder.path) if row and row["event"] == "cell"] == list(
        range(101)
    )
    assert codes(verify(folder.path, folder.key)) == set()


def test_a_forked_child_writes_nothing_and_takes_no_lock_with_it(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "forked")
    program = (
        "import os, sys; from sandbox_kernel.plugins.record.audit import Audit\n"
        "audit = Audit(sys.argv[1], session='one', key=sys.argv[2])\n"
        "audit('cell', number=1)\n"
        "if (pid := os.fork()) == 0: audit('cell', number=2); audit.close(); os._exit(0)\n"
        "os.waitpid(pid, 0); audit('cell', number=3); audit.close()\n"
    )
    subprocess.run([sys.executable, "-c", program, folder.path, folder.key], check=True, timeout=60)
    assert [row["number"] for row in verification.rows(folder.path) if row and row["event"] == "cell"] == [1, 3]
    assert codes(verify(folder.path, folder.key)) == set()


@pytest.mark.slow
def test_a_finalizer_may_close_an_audit_within_one_of_its_own_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line is written, and the end after it, into no file that was closed meanwhile."""
    folder, real = Folder(tmp_path / "dropped"), os.write
    audit = Audit(str(folder.path), session="one", key=str(folder.key))

    def collects(fd: int, data: bytes) -> int:
        audit.close()
        return real(fd, data)

    monkeypatch.setattr("sandbox_kernel.plugins.record.audit_file.os.write", collects)
    audit("cell", number=1)
    monkeypatch.setattr("sandbox_kernel.plugins.record.audit_file.os.write", real)
    audit("cell", number=2)
    assert not audit.is_kept
    events = [row["event"] for row in verification.rows(folder.path) if row]
    assert events == ["audit", "begin", "cell", "end"]
    assert codes(verify(folder.path, folder.key)) == set()


def test_a_file_from_before_there_was_a_chain_is_set_aside(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "old")
    folder.path.write_text('{"time":"2025","event":"cell"}\n')
    write(folder.path, folder.key, "one")
    result = verify(folder.path, folder.key)
    assert (codes(result), result.is_as_written) == ({RecordCode.SET_ASIDE}, True)
    assert folder.path.with_name("audit.jsonl.old-1").read_text() == '{"time":"2025","event":"cell"}\n'


def test_a_new_key_begins_a_new_file_of_the_same_chain(bent: Folder, tmp_path: Path) -> None:
    other = tmp_path / "other.key"
    write(bent.path, other, "four")
    assert codes(verify(bent.path, other)) == {RecordCode.KEY_NOT_GIVEN}
    both = verification.verify(bent.path, [keys.read_key(str(path)) for path in (bent.key, other)])
    assert (codes(both), both.proven_to) == (set(), both.last and both.last.n)


def test_an_audit_that_somebody_rotates_goes_on_where_it_was(bent: Folder) -> None:
    """Logrotate and the like: the older file belongs to it under its name, or is known by its last line."""
    before = hash_chain.parse(bent.lines[-1][:-1])
    assert before is not None
    old = bent.path.rename(bent.path.with_name("elsewhere"))
    write(bent.path, bent.key, "four")
    result = verify(bent.path, bent.key, before.head)
    assert (codes(result), result.first, result.is_as_written) == ({RecordCode.EARLIER_ELSEWHERE}, 23, True)
    result = verify(bent.path, bent.key, Head(22, bytes(32)))
    assert (codes(result), result.is_as_written) == ({RecordCode.EARLIER_MISSING}, False)
    old.rename(bent.path.with_name("audit.jsonl.1"))
    whole = verify(bent.path, bent.key)
    assert (codes(whole), whole.first, whole.proven_to) == (set(), 1, 30)


def test_files_that_were_put_away_make_no_room_for_newer_ones(bent: Folder) -> None:
    """Else a newer file had a lower number than the older ones, and all looked moved."""
    write(bent.path, bent.key, "four", cells=60, limit_bytes=3000)
    first = bent.path.with_name("audit.jsonl.1")
    last = hash_chain.parse(first.read_bytes().splitlines()[-1])
    assert last is not None
    first.unlink()
    write(bent.path, bent.key, "five", cells=60, limit_bytes=3000)
    assert not first.exists()
    assert codes(verify(bent.path, bent.key, last.head)) == {RecordCode.EARLIER_ELSEWHERE}


def test_a_process_that_was_killed_before_it_remembered_its_line_altered_nothing(bent: Folder) -> None:
    """The control of an audit that somebody has put in the place of another."""
    (witness,) = (bent.key.parent / "audit-heads").iterdir()
    remembered = witness.read_bytes()
    write(bent.path, bent.key, "four")
    witness.write_bytes(remembered)
    write(bent.path, bent.key, "five")
    assert codes(verify(bent.path, bent.key)) == set()


def test_the_last_of_a_thousand_lines_is_an_anchor(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "long")
    write(folder.path, folder.key, "one", cells=2100)
    anchors = [row["n"] for row in verification.rows(folder.path) if row and row["event"] == "anchor"]
    assert anchors == [1000, 2000]
    assert verify(folder.path, folder.key).is_as_written


def test_the_text_of_cells_is_kept_by_choice_and_bounded(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "source")
    audit = Audit(str(folder.path), session="one", key=str(folder.key))
    text = "print('\N{PILE OF POO}')\n" * 3000
    audit.source("0" * 64, text)
    audit.close()
    rows = [row for row in verification.rows(folder.path) if row and row["event"] == "source"]
    assert len(rows) == audits.MAX_SOURCE_LINES
    assert text.startswith("".join(row["text"] for row in rows))
    assert rows[0]["parts"] == -(-len(text) // audits.PIECE_CHARACTERS)
    assert codes(verify(folder.path, folder.key)) == set()


# --- the key ---------------------------------------------------------------------------------------------------------


def test_a_key_is_made_for_its_owner_alone_and_once(tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    key = keys.open_key(str(path))
    assert path.stat().st_mode & 0o777 == 0o600
    assert keys.open_key(str(path)).id == key.id
    assert key.id not in path.read_text()
    assert keys.open_key(str(tmp_path / "other.key")).id != key.id
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.key", "other.key"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644])
def test_a_key_that_others_can_read_is_refused(mode: int, tmp_path: Path) -> None:
    path = tmp_path / "audit.key"
    keys.open_key(str(path))
    assert from_keywords(audit_key=str(path)).of(RecordSettings).audit_key == str(path)
    path.chmod(mode)
    with pytest.raises(ConfigurationError, match="others than its owner") as raised:
        from_keywords(audit_key=str(path))
    assert (raised.value.code, raised.value.setting) == (RecordCode.KEY_READABLE, "audit_key")
    reports: list[str] = []
    audit = Audit(str(tmp_path / "audit"), session="one", key=str(path), report=reports.append)
    audit("cell")
    audit.close()
    assert len(reports) == 1
    assert not (tmp_path / "audit").exists()


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    for name, make in {"text": lambda path: path.write_text("secret"), "folder": Path.mkdir}.items():
        path = tmp_path / name
        make(path)
        path.chmod(0o700)
        with pytest.raises(ConfigurationError):
            keys.open_key(str(path))
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigurationError):
        keys.open_key(str(tmp_path / "link"))
    assert not (tmp_path / "elsewhere").exists()


def test_the_key_lies_neither_beside_a_notebook_nor_where_cells_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="absolute"):
        from_keywords(audit_key="audit.key")
    (tmp_path / "in").mkdir()
    with pytest.raises(ConfigurationError, match="files of cells"):
        from_keywords(audit_key=str(tmp_path / "in" / "audit.key"), uploads=str(tmp_path / "in"))


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_says_what_is_proven_by_its_exit_code_and_in_json(
    bent: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["audit", "verify", str(bent.path), "--key", str(bent.key)]
    assert cli.main(words) == 0
    assert "proven:     lines 1 to 22" in capsys.readouterr().out
    remove(bent, bent)
    assert cli.main(words) == 1
    assert "[lines-missing]" in capsys.readouterr().out
    assert cli.main([*words, "--json"]) == 1
    said = json.loads(capsys.readouterr().out)
    assert [one["code"] for one in said["findings"]] == ["lines-missing"]
    assert (said["is_as_written"], said["with"], said["proven_to"]) == (False, "key", 5)
    assert cli.main(["audit", "verify", str(bent.path.with_name("none")), "--key", str(bent.key)]) == 2
    assert cli.main(["audit", "verify", str(bent.path), "--key", str(bent.path.with_name("none"))]) == 2
    assert cli.main(["audit", "verify", str(bent.path), "--key", str(bent.key), "--head", "nonsense"]) == 2


def test_the_command_verifies_with_a_public_key(bent: Folder, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["audit", "public-key", "--key", str(bent.key)]) == 0
    public = capsys.readouterr().out.strip()
    assert cli.main(["audit", "verify", str(bent.path), "--public-key", public]) == 0
    assert "signed" in capsys.readouterr().out
    assert cli.main(["audit", "verify", str(bent.path), "--public-key", "0" * 64]) == 1
    assert cli.main(["audit", "verify", str(bent.path), "--public-key", "short"]) == 2


def test_an_audit_is_shown_without_what_a_terminal_acts_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Folder(tmp_path / "shown")
    audit = Audit(str(folder.path), session="one", key=str(folder.key))
    audit("policy", reason="\x1b]0;title\x07\x9b2J  code=fine\u202e\n", extra={"\x1b[2J": ["\x1b[2J"]})
    audit.close()
    assert cli.main(["audit", "show", str(folder.path), "--event", "policy"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.isprintable()
    assert re.sub(r'"(?:[^"\\]|\\.)*"', "", line).count("code=") == 0, "within a text only"
    assert cli.main(["audit", "show", str(folder.path), "--last", "2", "--json"]) == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["policy", "end"]


def test_fields_of_the_record_itself_cannot_be_forged_by_an_event(tmp_path: Path) -> None:
    folder = Folder(tmp_path / "forged")
    audit = Audit(str(folder.path), session="one", key=str(folder.key))
    hostile: dict[str, Any] = {"n": 900, "chain": "0" * 64, "mac": "0" * 32, "torn": {}, "kind": "cut"}
    for event in hash_chain.OWN_EVENTS:
        audit(event, **hostile)
    audit.close()
    assert codes(verify(folder.path, folder.key)) == set()


@pytest.mark.parametrize("event", ["[]", "{}", '[["end"]]', "null", "17", "true"])
def test_an_event_that_is_no_text_is_verified_and_shown_as_any_line(
    event: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever can write to the file can seal what anybody can compute, and without a key that is believed."""
    line, _ = hash_chain.seal(hash_chain.NOTHING, b'{"time":"now","session":"one","event":%b}' % event.encode(), b"key")
    (tmp_path / "audit").write_bytes(line)
    for words in (["verify", "--without-key"], ["verify", "--public-key", "0" * 64]):
        assert cli.main(["audit", words[0], str(tmp_path / "audit"), *words[1:]]) == 1
        assert "[beginning-cut]" in capsys.readouterr().out
    for action in ("show", "reads"):
        assert cli.main(["audit", action, str(tmp_path / "audit")]) == 0
