"""`python -m fuzz.renderers`: documents through the policy, and what the renderers of front ends make of them."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from .chromium import page
from .documents import Document
from .hunt import BATCH, MODES, RENDERERS, Finding, Tally, batches, hunt, kind_of, seen, small
from .install import MissingError, installed

ROOT = Path(__file__).resolve().parent.parent.parent
HEADER = f"{'renderer':<18} {'documents':>10} {'outputs':>10} {'a minute':>9}  findings"


def line(tally: Tally) -> str:
    return (
        f"{tally.renderer:<18} {tally.documents:>10,} {tally.outputs:>10,} {tally.per_minute:>9,}  "
        f"{len(tally.findings) or 'none'}"
    )


def write(finding: Finding, folder: Path) -> Path:
    """Write a finding as the files of fuzz/found/renderers are written."""
    folder.mkdir(parents=True, exist_ok=True)
    given = finding.document
    path = folder / f"{finding.renderer}-{finding.mode}-{given.number}.json"
    values = {
        "renderer": finding.renderer, "mode": finding.mode, "faults": finding.faults,
        "number": given.number, "kind": given.kind, "content": given.content,
    }  # fmt: skip
    path.write_text(json.dumps(values, indent=1) + "\n")
    return path


def read(path: Path) -> Finding:
    values = json.loads(path.read_text())
    given = Document(values["number"], values["kind"], values["content"])
    return Finding(values["renderer"], values["mode"], given, tuple(values["faults"]))


def one(renderer: str, options: argparse.Namespace) -> bool:
    """Hunt with one renderer; return whether anything was found."""
    tally, kinds = Tally(renderer), dict[str, int]()
    with page(installed()) as opened:
        for documents in batches(options.seed, options.documents, options.start):
            for finding in hunt(opened, renderer, options.mode or MODES, documents, tally):
                kind = kind_of(finding.faults)
                kinds[kind] = kinds.get(kind, 0) + 1
                if kinds[kind] <= options.kinds:
                    path = write(small(opened, finding), options.keep)
                    print(f"  {renderer} {finding.mode}, {tally.documents:,} documents: {kind}  {path}", flush=True)
            if tally.documents // BATCH % 100 == 0:
                print(f"  {line(tally)} so far", file=sys.stderr, flush=True)
    print(line(tally), flush=True)
    for kind, count in sorted(kinds.items(), key=lambda entry: -entry[1]):
        print(f"  {count:>6,}  {kind}", flush=True)
    return bool(tally.findings)


def several(renderers: Sequence[str], options: argparse.Namespace, given: Sequence[str]) -> bool:
    """Hunt with each renderer in a process of its own; print what each says when it has ended."""

    def run(renderer: str) -> int:
        command = [sys.executable, "-m", "fuzz.renderers", *given, "--renderer", renderer, "--bare"]
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
        print(done.stdout, end="", flush=True)
        return done.returncode

    with ThreadPoolExecutor(options.jobs) as pool:
        return any(list(pool.map(run, renderers)))


def replay(path: Path) -> bool:
    """Say what is wrong with one document that was kept, unfiltered and as the policy lets it pass."""
    finding = read(path)
    with page(installed()) as opened:
        for mode in ("trusted", *MODES):
            faults = seen(opened, finding.renderer, mode, finding.document)
            print(f"{mode:<8} {'; '.join(faults) or 'nothing'}")
    return bool(faults)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz.renderers", description=__doc__, allow_abbrev=False)
    parser.add_argument("--documents", type=int, default=125_000, help="for each renderer and mode (%(default)s)")
    parser.add_argument("--start", type=int, default=0, help="how many come before the first one (%(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="the same documents for the same seed (%(default)s)")
    parser.add_argument("--renderer", action="append", choices=RENDERERS, help="may be repeated; all without one")
    parser.add_argument("--mode", action="append", choices=(*MODES, "trusted"), help="may be repeated; safe and strict")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="renderers at a time (%(default)s)")
    parser.add_argument("--keep", type=Path, default=ROOT / ".cache" / "fuzz" / "found" / "renderers", metavar="FOLDER",
                        help="where findings are kept (%(default)s)")  # fmt: skip
    parser.add_argument("--kinds", type=int, default=3, help="findings of a kind that are made small and kept")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="judge this one that was kept")
    parser.add_argument("--bare", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    try:
        installed()
        if options.replay:
            return replay(options.replay)
        if not options.bare:
            print(HEADER, flush=True)
        renderers = options.renderer or RENDERERS
        if len(renderers) == 1:
            return one(renderers[0], options)
        given = sys.argv[1:] if arguments is None else arguments
        return several(renderers, options, [word for word in given if word not in ("--renderer", *RENDERERS)])
    except MissingError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
