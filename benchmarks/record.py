"""The audit under load: many lines by processes that are killed at random, and what a line costs.

python -m benchmarks.record [--lines 100000] [--workers 8] [--kills 200]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from sandbox_kernel.plugins.record import verification
from sandbox_kernel.plugins.record.audit import Audit
from tests.support.records import Folder, codes, missed, run_herd, verify


def cost_of_a_line(folder: Folder, count: int = 5000) -> float:
    """Return the microseconds that a cell's line takes, anchors included."""
    audit = Audit(str(folder.path), session="cost", key=str(folder.key))
    began = time.perf_counter()
    for number in range(count):
        audit("cell", status="ok", number=number, source_sha256="0" * 64, codes={}, files_in=[], files_out=[])
    seconds = time.perf_counter() - began
    audit.close()
    return seconds / count * 1e6


def cost_of_a_write(folder: Folder, count: int = 5000) -> float:
    """Return what it takes to append as many bytes without a seal, as the audit did before it was a chain."""
    line = b"x" * 300 + b"\n"
    with (folder.logs / "plain").open("ab", buffering=0) as file:
        began = time.perf_counter()
        for number in range(count):
            file.write(json.dumps({"number": number, "status": "ok"}).encode() + line)
        return (time.perf_counter() - began) / count * 1e6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    for name, default in (("lines", 100_000), ("workers", 8), ("kills", 200), ("seed", int(time.time()))):
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Folder(Path(place) / "herd")
        outcome = run_herd(folder, limit=8 << 20, **vars(given))
        said = sum(outcome["acknowledged"].values())
        print(
            f"seed {given.seed}: {given.workers} processes, {len(outcome['killed'])} killed, {said} lines acknowledged"
        )
        print(f"written in {outcome['seconds']:.1f} s, {said / outcome['seconds']:.0f} lines a second")
        began = time.perf_counter()
        result = verify(folder.path, folder.key)
        print(f"verified {result.lines} lines in {len(result.files)} files in {time.perf_counter() - began:.1f} s")
        print({code.code: result.counts[code] for code in sorted(codes(result), key=str)})
        wrong = missed(folder, outcome)
        print(f"as it was written: {result.is_as_written}; end known: {result.is_end_known}; lost: {wrong or 'none'}")
        for text in verification.proven(result):
            print(f"proven: {text}")
        other = Folder(Path(place) / "cost")
        print(f"a line: {cost_of_a_line(other):.0f} us; without a seal: {cost_of_a_write(other):.0f} us")
    return 0 if result.is_as_written and result.is_end_known and not wrong else 1


if __name__ == "__main__":
    raise SystemExit(main())
