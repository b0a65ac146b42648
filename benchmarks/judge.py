"""What a second opinion adds to the rules of the screen: the judge of docs/examples/, asked as a session would ask it.

`python -m benchmarks.judge` needs scikit-learn. The reviewers' snippets and cells are halved; each half is judged by a
model that was trained on the other one and on the project's own corpora. `--examples FILE` writes what a model can be
trained on. Nothing is run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import statistics
import tempfile
from collections.abc import Iterable
from pathlib import Path

from benchmarks.screen import THRESHOLD, share
from sandbox_kernel.plugins.screen.judges import Judges, function_judge
from sandbox_kernel.plugins.screen.screen import CellScreen
from sandbox_kernel.plugins.screen.settings import ScreenSettings
from tests.plugins.screen.corpora import attacks, honest, reviewed

EXAMPLE = Path(__file__).parent.parent / "docs" / "examples" / "screen_judge.py"
Labelled = tuple[str, bool]


def own() -> list[Labelled]:
    return [(code, True) for _, code in attacks()] + [(code, False) for _, code in honest()]


def half(number: int) -> list[Labelled]:
    """Return a half of what the reviewers wrote."""
    found = [(code, kind == "risky") for kind in ("risky", "honest") for code in reviewed(kind)]
    return [one for one in found if hashlib.sha256(one[0].encode()).digest()[0] % 2 == number]


def write(file: Path, labelled: Iterable[Labelled]) -> None:
    file.write_text("".join(json.dumps({"code": code, "risky": risky}) + "\n" for code, risky in labelled))


def scores(test: list[Labelled], train: list[Labelled], seconds: list[float]) -> list[tuple[bool, int, int]]:
    """Return of each snippet whether it is risky, the points of the rules, and those of the judge."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(shutil.copy(EXAMPLE, folder))
        write(file.with_suffix(".jsonl"), train)
        name = f"{file}:judge"
        judges = Judges(ScreenSettings(screen_judges=(name,), screen_judge_seconds=60.0))
        rows = []
        try:
            for code, risky in test:
                found = CellScreen().look(code)
                [opinion] = judges.opinions(code, found)
                seconds.append(opinion.seconds)
                rows.append((risky, found.score, opinion.weight))
        finally:
            function_judge(name).end()
        return rows


def say(name: str, rows: list[tuple[bool, bool]]) -> None:
    """Print a row of the table: of what is risky and of what is honest, what is blocked."""
    risky, blocked = sum(risky for risky, _ in rows), sum(blocked for _, blocked in rows)
    right = sum(risky and blocked for risky, blocked in rows)
    wrong = blocked - right
    print(f"| {name} | {share(right, risky)} | {share(wrong, len(rows) - risky)} | {100 * right / blocked:.1f} % |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument(
        "--examples", type=Path, metavar="FILE", help="write all labelled snippets, and do nothing else"
    )
    options = parser.parse_args()
    if options.examples:
        write(options.examples, [*own(), *half(0), *half(1)])
        return
    seconds: list[float] = []
    rows = [row for number in (0, 1) for row in scores(half(number), [*own(), *half(1 - number)], seconds)]
    risky = sum(risky for risky, *_ in rows)
    print(f"{risky} risky snippets and {len(rows) - risky} honest cells; blocked at {THRESHOLD} points\n")
    print("| Who judges | Risky ones that are blocked (recall) | Honest ones that are | Precision |")
    print("| --- | --- | --- | --- |")
    say("the rules", [(risky, rules >= THRESHOLD) for risky, rules, _ in rows])
    for least in (50, 60, 70):
        say(f"the judge, from {least} points on", [(risky, judge >= least) for risky, _, judge in rows])
        both = [(risky, rules >= THRESHOLD or judge >= least) for risky, rules, judge in rows]
        say(f"either, the judge from {least} on", both)
    print(
        f"\nA question: {1000 * statistics.median(seconds):.1f} ms p50; the first one also loads and trains the model."
    )


if __name__ == "__main__":
    main()
