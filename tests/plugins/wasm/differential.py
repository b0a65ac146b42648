"""`python -m tests.plugins.wasm.differential [FOLDER ...]`: do cells compute in a guest what they compute outside?

Runs each line of `expressions.txt` (a name in braces stands for each of its values), the honest cells of the
monitor's tests, examples in docstrings of packages (`examples.py`), and cells of notebooks below the folders, in the
guest of the engine `wasm` and in a Python of the machine with the guest's versions of the packages (`--native`). What a
cell shows, prints and assigns is compared: numbers to six digits, types by kind and width. A session is a `.ipynb`, a
`.py` with cells after `# %%`, or a `.jsonl` of `{"code": ...}`, and runs in a copy of its folder. A cell that fails
outside, or differs in a second run there, is compared with nothing. Prints how many answers differ, and which.
"""

from __future__ import annotations

import argparse
import itertools
import json
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.honest import TABLES, cells

HERE = Path(__file__).parent
SECONDS = 600
MAX_FOLDER = 64 << 20
Runs = Callable[[str, Path], str]
"""Runs a program in a folder, and returns what it prints."""


class Session(NamedTuple):
    name: str
    cells: Sequence[str | None]
    """None begins anew."""
    folder: Path | None
    apart: bool = False
    """Whether each cell begins anew."""


class Answer(NamedTuple):
    values: str
    types: str
    error: str


def expressions() -> Session:
    """Return the table, with each name in braces replaced by each of its values."""
    sets: dict[str, list[str]] = {}
    found = []
    for line in (HERE / "expressions.txt").read_text().splitlines():
        name, equals, values = line.partition(" := ")
        if equals:
            sets[name] = values.split(" | ")
        elif line and not line.startswith("#"):
            names = sorted({one for one in re.findall(r"{(\w+)}", line) if one in sets})
            for chosen in itertools.product(*(sets[one] for one in names)):
                code = line
                for one, value in zip(names, chosen, strict=True):
                    code = code.replace(f"{{{one}}}", value)
                found.append(code)
    return Session("expressions", found, None, apart=True)


def examples(native: Runs, most: int, at_once: int = 60) -> Iterator[Session]:
    """Yield examples in docstrings of the packages outside, of `most` cells evenly chosen, in sessions by package."""
    groups = json.loads(native((HERE / "examples.py").read_text(), Path("/")))
    step = max(1, sum(len(codes) for _, codes in groups) // most) if most else len(groups) + 1
    for name, found in itertools.groupby(groups[::step], lambda group: str(group[0])):
        chosen = [(None, *codes) for _, codes in found]
        for start in range(0, len(chosen), at_once):
            yield Session(name, [code for codes in chosen[start : start + at_once] for code in codes], None)


def sessions(folder: Path) -> Iterator[Session]:
    for path in sorted(folder.rglob("*")):
        if path.suffix == ".ipynb":
            parts = json.loads(path.read_text(encoding="utf-8")).get("cells", [])
            codes = ["".join(one["source"]) for one in parts if one["cell_type"] == "code"]
        elif path.suffix == ".py" and "# %%" in (text := path.read_text(encoding="utf-8")):
            codes = re.split(r"^# %%.*$", text, flags=re.M)
        elif path.suffix == ".jsonl":
            codes = [json.loads(line)["code"] for line in path.read_text(encoding="utf-8").splitlines()]
        else:
            continue
        if found := [one for one in map(_plain, codes) if one.strip()]:
            yield Session(str(path.relative_to(folder)), found, path.parent)


def _plain(code: str) -> str:
    """Take lines away that only IPython knows."""
    return "\n".join(
        "" if line.lstrip()[:1] in ("%", "!", "?") or line.rstrip().endswith("?") else line
        for line in code.splitlines()
    )


def run(session: Session, way: Runs) -> list[Answer]:
    program = (HERE / "judged.py").read_text() + f"\nmain({json.dumps(session.cells)!r}, {session.apart})\n"
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "work")
        folder.mkdir()
        if session.folder:
            total = 0
            for one in sorted(session.folder.rglob("*")):
                if one.is_file() and (total := total + one.stat().st_size) < MAX_FOLDER:
                    (target := folder / one.relative_to(session.folder)).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(one, target)
        for name, content in TABLES.items():
            (folder / name).write_bytes(content)
        lines = [line for line in way(program, folder).splitlines() if line.startswith("ANSWER ")]
    return [Answer(*json.loads(line.removeprefix("ANSWER "))) for line in lines]


def command(words: str) -> Runs:
    def way(program: str, folder: Path) -> str:
        done = subprocess.run(
            shlex.split(words), input=program, cwd=folder, text=True, capture_output=True, timeout=SECONDS, check=False
        )
        return done.stdout

    return way


def guest(program: str, folder: Path) -> str:
    """Run it in a sandbox of the engine, as a cell."""
    from sandbox_kernel import Sandbox

    with Sandbox(engine="wasm") as sandbox:
        for one in folder.rglob("*"):
            if one.is_file():
                sandbox.files.write(str(one.relative_to(folder)), one.read_bytes())
        return "".join(sandbox.run_code(program).logs.stdout)


def kind(outside: Answer, inside: Answer) -> str:
    if inside.error:
        return "fails in the guest"
    if outside.values != inside.values:
        return "another answer"
    return "another type" if outside.types != inside.types else "same"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument(
        "--native", default=f"{sys.executable} -", help="a Python that reads a program from its standard input"
    )
    parser.add_argument("--guest", help="the same for a guest; the engine's own if there is none")
    parser.add_argument("--examples", default=2500, type=int, help="how many cells of docstrings; 0 for none")
    parser.add_argument("--show", default=40, type=int, help="how many differences to print for each corpus")
    options = parser.parse_args()
    native, inside = command(options.native), command(options.guest) if options.guest else guest
    honest = Session("honest cells", [one.code for one in cells() if not one.fails], None)
    corpora: dict[str, Iterator[Session]] = {"expressions": iter([expressions()]), "honest cells": iter([honest])}
    corpora["docstrings"] = examples(native, options.examples)
    corpora |= {folder.name: sessions(folder) for folder in options.folders}
    for corpus, found in corpora.items():
        counts, left_out, shown = Counter[str](), 0, 0
        for session in found:
            once, twice, there = run(session, native), run(session, native), run(session, inside)
            there += [Answer("", "", "no answer")] * (len(once) - len(there))
            cells_of = [code for code in session.cells if code is not None]
            for code, first, second, other in zip(cells_of, once, twice, there, strict=False):
                if first.error or first != second:
                    left_out += 1
                    continue
                counts[verdict := kind(first, other)] += 1
                if verdict != "same" and shown < options.show:
                    shown += 1
                    pair = (
                        (first.types, other.types)
                        if verdict == "another type"
                        else (first.values, other.error or other.values)
                    )
                    print(f"  {verdict}: {session.name}: {code.strip()[-100:]!r}: {_apart(*pair)}", flush=True)
        compared = counts.total()
        rest = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common() if verdict != "same")
        print(
            f"{corpus}: {compared - counts['same']} of {compared} differ ({rest or 'none'}); {left_out} not compared",
            flush=True,
        )


def _apart(one: str, other: str, around: int = 40) -> str:
    """Return both texts from shortly before the place where they begin to differ."""
    place = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    start = max(0, place - 20)
    return f"{one[start : place + around]!r} and {other[start : place + around]!r}"


if __name__ == "__main__":
    main()
