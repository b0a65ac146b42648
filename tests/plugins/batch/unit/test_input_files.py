"""The files that a notebook reads by names which stand in it, and what a run says of them before it begins."""

from __future__ import annotations

import io

import pytest

from sandbox_kernel.plugins.batch.input_files import literal_paths, modules
from sandbox_kernel.plugins.batch.output_stream import OutputStream
from sandbox_kernel.plugins.batch.progress import MUCH, RunProgress

READS = {
    "pandas": ("pd.read_csv('sales.csv')", ["sales.csv"]),
    "a keyword": ("pd.read_excel(io='a.xlsx', sheet_name='b')", ["a.xlsx"]),
    "below a folder": ("pd.read_csv('./data/bikes.csv')", ["data/bikes.csv"]),
    "in scratch": ("open('/mnt/data/a.txt')", ["a.txt"]),
    "a name": ("DATA = 'data'\np = os.path.join(DATA, 'x.csv')\npl.scan_csv(p)", ["data/x.csv"]),
    "pathlib": ("from pathlib import Path\n(Path('data') / 'x.json').read_text()", ["data/x.json"]),
    "open for reading": ("with open('a.json') as f: json.load(f)", ["a.json"]),
    "numpy": ("np.load('a.npy'); np.loadtxt('b.txt')", ["a.npy", "b.txt"]),
    "a picture": ("Image.open('cat.png')", ["cat.png"]),
    "beside a magic": ("%matplotlib inline\n!ls\ndf = pd.read_csv('a.csv')", ["a.csv"]),
    "in a timed cell": ("%%time\npd.read_csv('a.csv')", ["a.csv"]),
}
NOT = {
    "a text": "'sales.csv'",
    "an address": "pd.read_csv('https://a.test/x.csv')",
    "a file of the host": "pd.read_csv('/srv/x.csv')",
    "above": "pd.read_csv('../x.csv')",
    "what it writes": "df.to_csv('out.csv')\npd.read_csv('out.csv')",
    "open for writing": "open('a.txt', 'w')\nopen('b.txt', mode='ab')",
    "a computed name": "pd.read_csv(name)\npd.read_csv(f'{x}.csv')",
    "no Python": "pd.read_csv('a.csv'",
}


@pytest.mark.parametrize("case", READS)
def test_a_path_that_stands_in_the_code_is_found(case: str) -> None:
    code, paths = READS[case]
    assert literal_paths([code]) == paths


@pytest.mark.parametrize("case", NOT)
def test_what_is_no_file_to_bring_is_not(case: str) -> None:
    assert literal_paths([NOT[case]]) == []


def test_a_file_of_an_earlier_cell_is_there() -> None:
    assert literal_paths(["df.to_parquet('a.parquet')", "pd.read_parquet('a.parquet')", "open('b')"]) == ["b"]


@pytest.mark.parametrize(("total", "lines"), [(MUCH - 1, 0), (10 * MUCH, 4)])
def test_large_inputs_show_how_far_they_are(total: int, lines: int) -> None:
    stream = io.StringIO()
    progress = RunProgress(OutputStream(stream), total=1, live=False)
    for part in range(1, 1001):
        progress.copied(total * part // 1000, total)
    progress._output_stream.finish(5)  # noqa: SLF001 (what it says is written by a thread)
    assert stream.getvalue().count("inputs: ") == lines
    assert not lines or stream.getvalue().endswith("inputs: 320.0 MiB of 320.0 MiB\n")


def test_the_modules_that_cells_import_are_found() -> None:
    cells = [
        "import numpy as np, helpers.text\nfrom mine import f",
        "def g():\n    import late",
        "from . import x",
        "import (",
    ]
    assert modules(cells) == ["numpy", "helpers", "mine", "late"]
