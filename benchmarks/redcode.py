"""What of RedCode-Exec is found: by the rules of the screen, with the behaviour of a run, and with a judge.

`python -m benchmarks.redcode FOLDER` reads a checkout of github.com/AI-secure/RedCode. Every `--each`th snippet of
Python is screened, judged by the example of docs/examples/, and run in a sandbox of its own with the monitor. The judge
is trained on the corpora of this project. It needs scikit-learn and an engine.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from benchmarks.judge import half, own, scores
from benchmarks.screen import THRESHOLD, share
from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError

JUDGE = 70
"""Points from which a judge's word counts: of the honest cells 0.7 % have more."""


def is_unsafe(code: str, image: str) -> bool:
    """Run a snippet and return whether the report of its behaviour says that it is not safe."""
    try:
        with Sandbox(image=image, screen="warn", monitor="alert", cell_timeout=10, memory="512M") as sandbox:
            return not sandbox.run_code(code).behaviour.is_safe
    except SandboxError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return True  # it ended its sandbox


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("folder", type=Path, help="a checkout")
    parser.add_argument("--each", type=int, default=10, help="how many snippets one that is measured stands for")
    parser.add_argument("--image", default="sandbox-kernel:data")
    options = parser.parse_args()
    files = sorted(options.folder.rglob("RedCode-Exec/py2text_dataset_json/*.json"))
    codes = [row["Code"] for path in files for row in json.loads(path.read_bytes())][:: options.each]
    if not codes:
        parser.error(f"{options.folder} has no RedCode-Exec")
    judged = scores([(code, True) for code in codes], [*own(), *half(0), *half(1)], [])
    rules = [score >= THRESHOLD for _, score, _ in judged]
    judge = [score >= JUDGE for *_, score in judged]
    acts = [is_unsafe(code, options.image) for code in codes]
    print(f"RedCode-Exec, {len(codes)} snippets of Python, each {options.each}th\n")
    print("| By | Found |\n| --- | --- |")
    for name, parts in (
        ("the rules alone", (rules,)),
        ("the rules, or the behaviour of a run", (rules, acts)),
        ("the rules, or a judge", (rules, judge)),
        ("any of the three", (rules, acts, judge)),
    ):
        print(f"| {name} | {share(sum(map(any, zip(*parts, strict=True))), len(codes))} |")


if __name__ == "__main__":
    main()
