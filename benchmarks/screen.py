"""How good the screen is: attacks of the corpus that are found, honest cells that are not, and what a cell costs.

`python -m benchmarks.screen` measures the project's own corpora. With `--fetch FOLDER` it first has pip download the
sources of a few packages whose documentation is notebooks, and with `--notebooks FOLDER` it reads all notebooks there,
archives included. Nothing of them is run by the screen, and nothing of them is kept in the repository.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from sandbox_kernel.core.screen_findings import Screened
from sandbox_kernel.plugins.screen.screen import CellScreen
from tests.plugins.screen.corpora import attacks, honest, is_held_out

THRESHOLD = 60
PACKAGES = (
    *("seaborn", "xarray", "bambi", "dowhy", "holoviews", "hvplot", "imbalanced-learn", "leafmap", "sktime", "tsfresh"),
    *("yellowbrick", "lmfit"),
)
"""Those of the first measurement whose sources have notebooks."""


def fetch(folder: Path) -> None:
    """Have pip download the sources; a package that cannot be had is passed over."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--no-deps",
            "--no-binary",
            package,
            "-q",
            package,
            "-d",
            str(folder),
        ]
        done = subprocess.run(command, check=False, timeout=600)
        print(f"{package}: {'fetched' if done.returncode == 0 else 'not fetched'}", file=sys.stderr)


def notebooks(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each notebook with the sources of its code cells."""
    for path in sorted(folder.rglob("*.ipynb")):
        yield path.name, cells(path.read_bytes())
    for path in sorted(folder.rglob("*.tar.gz")):
        with tarfile.open(path) as archive:
            for member in archive:
                if member.name.endswith(".ipynb") and (file := archive.extractfile(member)) is not None:
                    yield member.name, cells(file.read())


def cells(data: bytes) -> list[str]:
    try:
        found = [cell["source"] for cell in json.loads(data)["cells"] if cell["cell_type"] == "code"]
    except (ValueError, KeyError, TypeError):
        return []
    return [text for source in found if (text := "".join(source)).strip()]


def timed(screen: CellScreen, code: str, seconds: list[float]) -> Screened:
    start = time.thread_time()
    found = screen.look(code)
    seconds.append(time.thread_time() - start)
    return found


def say_attacks() -> None:
    print("| Family | Attacks | Found | At the threshold | Held out | Found | At the threshold |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    seconds: list[float] = []
    rows: dict[str, list[int]] = {}
    for family, code in attacks():
        found = timed(CellScreen(), code, seconds)
        at = 3 * is_held_out(code)
        for name in (family, "all"):
            row = rows.setdefault(name, [0] * 6)
            row[at] += 1
            row[at + 1] += bool(found.findings)
            row[at + 2] += found.score >= THRESHOLD
    whole = rows.pop("all")
    for family, row in [*rows.items(), ("all", whole)]:
        print(f"| {family} | {' | '.join(map(str, row))} |")
    print(f"\nfound: {share(whole[1] + whole[4], whole[0] + whole[3])}, of those held out {share(whole[4], whole[3])}")
    say_seconds("attacks", seconds)


def say_honest(name: str, books: Iterable[tuple[str, list[str]]]) -> None:
    seconds: list[float] = []
    count = warned = blocked = files = 0
    families: Counter[str] = Counter()
    for file, sources in books:
        screen = CellScreen()
        files += 1
        for code in sources:
            found = timed(screen, code, seconds)
            count += 1
            warned += bool(found.findings)
            families.update({one.family for one in found.findings})
            if found.score >= THRESHOLD:
                blocked += 1
                print(f"  {file}: {found.score}: {', '.join(one.code for one in found.findings)}", file=sys.stderr)
    if not count:
        return
    print(f"\n{name}: {count} cells of {files} notebooks")
    print(f"with a finding {share(warned, count)}, at the threshold {share(blocked, count)}")
    print(
        "cells with a finding, by family: "
        + ", ".join(f"{family} {number}" for family, number in families.most_common())
    )
    say_seconds(name, seconds)


def say_redcode(folder: Path) -> None:
    """Measure RedCode-Exec, of a checkout of github.com/AI-secure/RedCode; its shell scripts are cells of `%%bash`."""
    for name, prefix in (("py2text", ""), ("bash2text", "%%bash\n")):
        files = sorted(folder.rglob(f"RedCode-Exec/{name}_dataset_json/*.json"))
        codes = [prefix + row["Code"] for path in files for row in json.loads(path.read_bytes())]
        screened = [CellScreen().look(code) for code in codes]
        found, blocked = sum(bool(one.findings) for one in screened), sum(one.score >= THRESHOLD for one in screened)
        print(f"\nRedCode-Exec, {name}: {len(codes)} snippets")
        print(f"found {share(found, len(codes))}, at the threshold {share(blocked, len(codes))}")


def say_seconds(name: str, seconds: list[float]) -> None:
    ordered = sorted(seconds)
    figures = [ordered[int(len(ordered) * part)] * 1000 for part in (0.5, 0.99)]
    most = ordered[-1] * 1000
    print(f"{name}: {figures[0]:.2f} ms p50, {figures[1]:.2f} ms p99, {most:.1f} ms at most, of processor time")


def share(part: int, whole: int) -> str:
    return f"{part} ({100 * part / max(whole, 1):.2f} %)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None, allow_abbrev=False)
    parser.add_argument("--fetch", type=Path, metavar="FOLDER", help="download sources with notebooks into a folder")
    parser.add_argument("--notebooks", type=Path, metavar="FOLDER", help="read the notebooks of a folder")
    parser.add_argument("--redcode", type=Path, metavar="FOLDER", help="measure RedCode-Exec, of a checkout")
    options = parser.parse_args()
    if options.fetch:
        fetch(options.fetch)
    CellScreen().look("x = 1")
    say_attacks()
    say_honest("own honest cells", [("own", [code]) for _, code in honest()])
    if options.redcode:
        say_redcode(options.redcode)
    if folder := options.notebooks or options.fetch:
        say_honest("notebooks", notebooks(folder))


if __name__ == "__main__":
    main()
