"""Audits for tests: made of real lines, bent in every way, and held against what was told to their writers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from sandbox_kernel.core.codes import Code
from sandbox_kernel.plugins.record import keys, verification
from sandbox_kernel.plugins.record.audit import Audit
from sandbox_kernel.plugins.record.hash_chain import Head
from sandbox_kernel.plugins.record.verification import VerificationResult
from tests.support import ROOT


def write(path: Path, key: Path, session: str, cells: int = 5, **more: Any) -> Audit:
    """Write an audit as one session does, and return it closed."""
    audit = Audit(str(path), session=session, key=str(key), **more)
    for number in range(cells):
        audit("cell", status="ok", number=number, source_sha256="0" * 64)
    audit.close()
    return audit


def verify(path: Path, key: Path, *known: Head) -> VerificationResult:
    return verification.verify(path, [keys.read_key(str(key))], None, known)


def codes(result: VerificationResult) -> set[Code]:
    return {one.code for one in result.findings}


class Folder:
    """A folder with an audit and, elsewhere, its key."""

    def __init__(self, place: Path) -> None:
        self.logs, keep = place / "logs", place / "keep"
        self.logs.mkdir(parents=True)
        keep.mkdir()
        self.path, self.key = self.logs / "audit.jsonl", keep / "audit.key"

    def copy(self, place: Path) -> Folder:
        """Return the same audit under the same names, elsewhere; its witness goes by the name of the copy."""
        other = Folder(place)
        shutil.copytree(self.logs, other.logs, dirs_exist_ok=True)
        shutil.copytree(self.key.parent, other.key.parent, dirs_exist_ok=True)
        return other

    @property
    def lines(self) -> list[bytes]:
        return self.path.read_bytes().splitlines(keepends=True)

    @lines.setter
    def lines(self, lines: list[bytes]) -> None:
        self.path.write_bytes(b"".join(lines))


def run_herd(folder: Folder, **given: Any) -> dict[str, Any]:
    """Have several processes write an audit; return what became of them."""
    about = {"path": str(folder.path), "key": str(folder.key), "seed": 1, "limit": 1 << 40} | given
    command = [sys.executable, "-m", "tests.support.herd", json.dumps(about)]
    done = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=1800)
    return dict(json.loads(done.stdout))


def missed(folder: Folder, outcome: dict[str, Any]) -> list[str]:
    """Return what is wrong: sessions whose acknowledged lines are not all there, once each and in their order."""
    there: dict[str, list[int]] = {}
    for row in verification.rows(folder.path):
        if row is not None and row.get("event") == "cell":
            there.setdefault(row["session"], []).append(row["number"])
    wrong = [f"{name}: twice" for name, found in there.items() if max(Counter(found).values()) > 1]
    wrong += [f"{name}: order" for name, found in there.items() if found != sorted(found)]
    return wrong + [
        f"{name}: {len(there.get(name, ()))} of {count}"
        for name, count in outcome["acknowledged"].items()
        if there.get(name, [])[:count] != list(range(count))
    ]
