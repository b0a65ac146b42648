"""`python -m tests.plugins.wasm.notebooks FOLDER ...`: do public notebooks end as with a stock ipykernel?

Runs the notebooks in the folders by nbclient, on the engine `wasm` and on the kernel of `--native`, a Python with
ipykernel and the guest's versions of the packages. Compared are for each cell its status, the kinds of its outputs, and
their texts with numbers to six digits. What differs in a second run of the stock kernel is compared with nothing.
Nothing is fetched: the notebooks come from their own repositories.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import nbformat
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient

from benchmarks.kernels import STOCK, spec_name, write_sandbox, write_stock

SECONDS = 120
WASM = "wasm"
_NUMBER = re.compile(r"-?\d+\.\d+(?:e[-+]?\d+)?")
_NOISE = re.compile(
    r"0x[0-9a-f]+|<ipython-input[^>]*>|/tmp/\S+|Cell In\[\d+\]|\x1b\[[0-9;]*m|\(\S+ \d+\.\d+ ?[a-z]?s\)"
)


class Ended(NamedTuple):
    status: str
    kinds: tuple[str, ...]
    text: str


def told(cell: Any) -> Ended:
    """Return how a cell ended."""
    status, kinds, texts = "ok", [], []
    for output in cell.outputs:
        kinds.append(output.output_type)
        if output.output_type == "error":
            status = str(output.ename)
        elif output.output_type == "stream":
            texts.append(output.text if output.name == "stdout" else "")
        else:
            kinds += sorted(output.data)
            texts.append(output.data.get("text/plain", ""))
    text = _NOISE.sub("", "".join(texts))
    return Ended(status, tuple(kinds), _NUMBER.sub(lambda one: f"{float(one[0]):.5g}", text))


def run(path: Path, kernel: str, specs: KernelSpecManager) -> list[tuple[str, Ended]]:
    """Return each cell of a notebook with how it ended."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        cell.pop("outputs", None)
        if cell.cell_type == "code":
            cell.outputs = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder, "work")
        shutil.copytree(path.parent, work)
        manager = AsyncKernelManager(kernel_name=spec_name(kernel), kernel_spec_manager=specs)
        client = NotebookClient(notebook, km=manager, allow_errors=True, timeout=SECONDS)
        client.resources = {"metadata": {"path": str(work)}}
        if kernel == WASM:
            _bring(client, work)
        client.execute(cleanup_kc=True)
    return [(cell.source, told(cell)) for cell in notebook.cells if cell.cell_type == "code"]


def _bring(client: NotebookClient, work: Path) -> None:
    """Bring the files beside a notebook into its sandbox, as the setting `uploads` does for a folder of that name."""
    (work / "uploads").mkdir(exist_ok=True)
    for one in list(work.iterdir()):
        if one.name != "uploads" and one.suffix != ".ipynb":
            shutil.move(one, work / "uploads")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--native", default=sys.executable, metavar="PYTHON", help="a Python with ipykernel")
    parser.add_argument("--cells", default=200, type=int, help="after how many the last notebook begins")
    options = parser.parse_args(arguments)
    counts, left_out, outputs = Counter[str](), 0, Counter[str]()
    with tempfile.TemporaryDirectory() as place:
        specs = write_stock(Path(place), os.path.abspath(options.native))  # noqa: PTH100 (a link means its environment)
        write_sandbox(Path(place), WASM, ["--engine", "wasm", "--uploads", "uploads", "--cell-timeout", str(SECONDS)])
        for path in sorted(one for folder in options.folders for one in folder.rglob("*.ipynb")):
            if counts.total() >= options.cells:
                break
            once, twice, there = (run(path, kernel, specs) for kernel in (STOCK, STOCK, WASM))
            for (code, first), (_, second), (_, other) in zip(once, twice, there, strict=True):
                if first != second:
                    left_out += 1
                    continue
                outputs["with an output"] += bool(first.kinds)
                verdict = "same"
                if first.status != other.status:
                    verdict = "another status"
                elif first.kinds != other.kinds:
                    verdict = "other outputs"
                elif first.text != other.text:
                    verdict = "another text"
                counts[verdict] += 1
                if verdict != "same":
                    print(f"  {verdict}: {path.name}: {code[-120:]!r}: {_shown(first)} and {_shown(other)}", flush=True)
    rest = ", ".join(f"{number} {verdict}" for verdict, number in counts.most_common() if verdict != "same")
    print(
        f"{counts['same']} of {counts.total()} cells end as stock ({rest or 'all'}); {outputs['with an output']} "
        f"have an output; {left_out} not compared, which differ from run to run"
    )
    return 0


def _shown(one: Ended) -> str:
    return f"{one.status} {'/'.join(one.kinds)[:60]} {one.text[:80]!r}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
