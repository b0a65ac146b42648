"""`python -m fuzz.renderers`: documents through the policy into the renderers of front ends, and what they make of them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from .chromium import page
from .hunt import MODES, RENDERERS, Finding, Tally, batches, hunt, kind_of, small
from .install import MissingError, installed

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = f"{'renderer':<18} {'documents':>10} {'outputs':>10} {'a minute':>9}  findings"


def line(tally: Tally) -> str:
    return f"{tally.renderer:<18} {tally.documents:>10,} {tally.outputs:>10,} {tally.per_minute:>9,}  {len(tally.findings) or 'none'}"


def write(finding: Finding, folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{finding.renderer}-{finding.mode}-{finding.document.number}.json"
    path.write_text(json.dumps({
        "renderer": finding.renderer, "mode": finding.mode, "faults": finding.faults,
        "number": finding.document.number, "kind": finding.document.kind, "content": finding.document.content,
    }, indent=1) + "\n")  # fmt: skip
    return path


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.renderers", description=__doc__)
    parser.add_argument("--documents", type=int, default=1_000_000, help="for each renderer and mode (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="the number of the first one (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same documents for the same seed (%(default)s)")
    parser.add_argument("--renderer", action="append", choices=RENDERERS, help="may be repeated; all without one")
    parser.add_argument("--mode", action="append", choices=(*MODES, "trusted"), help="may be repeated; safe and strict")
    parser.add_argument("--keep", type=Path, default=ROOT / ".cache" / "fuzz" / "found" / "renderers")
    parser.add_argument("--kinds", type=int, default=3, help="findings of one kind that are made small and kept")
    parser.add_argument("--stop", action="store_true", help="end at the first finding of each renderer")
    options = parser.parse_args(arguments)
    try:
        folder = installed()
    except MissingError as error:
        print(error)
        return 2
    print(HEADER, flush=True)
    found = False
    for renderer in options.renderer or RENDERERS:
        tally, kinds = Tally(renderer), dict[str, int]()
        with page(folder) as opened:
            for documents in batches(options.seed, options.documents, options.start):
                for finding in hunt(opened, renderer, options.mode or MODES, documents, tally):
                    kind = kind_of(finding.faults)
                    kinds[kind] = kinds.get(kind, 0) + 1
                    if kinds[kind] <= options.kinds:
                        path = write(small(opened, finding), options.keep)
                        print(f"  {renderer} {finding.mode} after {tally.documents:,}: {kind}  {path}", flush=True)
                if options.stop and tally.findings:
                    break
        print(line(tally), flush=True)
        for kind, count in sorted(kinds.items(), key=lambda one: -one[1]):
            print(f"  {count:>6,}  {kind}", flush=True)
        found = found or bool(tally.findings)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
