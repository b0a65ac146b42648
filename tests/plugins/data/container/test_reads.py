"""The record of reads: which cell opened which file of a dataset, as the machine's kernel tells of real sandboxes."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.cli import main
from sandbox_kernel.plugins.data import reads
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.file_watch import BATCH
from sandbox_kernel.plugins.record import keys, verification
from tests.support.batch import command, run, write
from tests.support.command_line import SCRIPT
from tests.support.datasets import a_folder
from tests.support.kernels import containers_of, eventually
from tests.support.roots import root_of_tests

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="the kernel tells root alone what is opened"),
]

OPEN = "open('/mnt/datasets/sales/{}').read()"
MAP = "import mmap; file = open('/mnt/datasets/sales/{}', 'rb'); mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[:10]"
CAT = "import subprocess; subprocess.run(['cat', '/mnt/datasets/sales/{}'], check=True, capture_output=True)"


class Records:
    """An audit, and the dataset that it is about."""

    def __init__(self, folder: Path) -> None:
        self.path, self.key, self.dataset = folder / "audit.jsonl", folder / "audit.key", folder / "sales"
        self.settings: dict[str, Any] = {"audit": str(self.path), "audit_key": str(self.key)}
        self.dataset.mkdir()
        self.dataset.chmod(0o755)

    def fill(self, *names: str) -> None:
        for name in names:
            (self.dataset / name).parent.mkdir(exist_ok=True)
            (self.dataset / name).write_text("x" * 5000)

    def lines(self, event: str = "reads") -> list[dict[str, Any]]:
        """Return the lines of an event, of an audit that is as it was written."""
        assert verification.verify(self.path, [keys.read_key(str(self.key))]).is_as_written
        return [line for text in self.path.read_text().splitlines() if (line := json.loads(text))["event"] == event]

    @property
    def opened(self) -> dict[object, dict[str, bool]]:
        """Which files each cell opened, by its number, and whether it read them by calls."""
        numbers = {line["id"]: line["execution_count"] for line in self.lines("cell")}
        found: dict[object, dict[str, bool]] = {}
        for line in self.lines():
            (cell,) = line["cells"]
            number = f"after {numbers[cell]}" if line["after"] else numbers[cell]
            found.setdefault(number, {}).update({one["path"]: one["read"] for one in line["files"]})
        return found


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return Records(tmp_path)


@pytest.fixture
def start(records: Records, image: str) -> Callable[..., Sandbox]:
    def started(**settings: Any) -> Sandbox:
        own: dict[str, Any] = {"image": image, "memory": "512M", "datasets": {"sales": str(records.dataset)}}
        return Sandbox(**{"engine": "docker", **own, **records.settings, **settings})

    return started


def test_each_cell_has_the_files_that_it_opened_and_no_others(
    start: Callable[..., Sandbox], records: Records, tmp_path: Path
) -> None:
    """Neither does one have what other processes of this machine open of the same files, by whichever way."""
    records.fill("a.csv", "b.csv", "c.csv", "2024/a.csv", tmp_path.name)
    with start() as sandbox:
        for code in (
            OPEN.format("a.csv"),
            MAP.format("2024/a.csv"),
            "import os; os.listdir('/mnt/datasets/sales'); os.stat('/mnt/datasets/sales/c.csv').st_size",
            f"{CAT.format('c.csv')}\n{OPEN.format('a.csv')}",
        ):
            assert sandbox.run_code(code).error is None
            mounted = engine_s_folders(tmp_path.name)
            assert mounted
            for folder in (records.dataset, *mounted):
                subprocess.run(["cat", folder / "b.csv", folder / "2024/a.csv"], check=True, capture_output=True)
    assert records.opened == {
        1: {"sales/a.csv": True},
        2: {"sales/2024/a.csv": False},
        4: {"sales/a.csv": True, "sales/c.csv": True},
    }
    first = records.lines()[0]
    assert first["seen_by"] == "host"
    assert first["files"][0]["size"] == 5000
    assert not any(line["elsewhere"] for line in records.lines())


def engine_s_folders(marker: str) -> list[Path]:
    """Return where the engine has mounted a dataset in which there is a file of a name."""
    rows = (row.split() for row in Path("/proc/self/mountinfo").read_text().splitlines())
    return [Path(row[4]) for row in rows if row[4].endswith("/_data") and Path(row[4], marker).is_file()]


def test_what_a_killed_sandbox_has_opened_is_recorded_and_the_next_one_watched(
    start: Callable[..., Sandbox], records: Records, tmp_path: Path
) -> None:
    """When its mounts are gone, what its last cell opened still has the name of its dataset."""
    records.fill("a.csv", "b.csv")
    other = tmp_path / "other"
    other.mkdir()
    other.chmod(0o755)
    (other / "d.csv").write_text("x")
    datasets = {"sales": str(records.dataset), "other": str(other)}
    opens = f"{OPEN.format('a.csv')}; open('/mnt/datasets/other/d.csv').read(); print('now', flush=True)"
    with start(datasets=datasets) as sandbox:
        assert sandbox.run_code("1").error is None
        (container,) = containers_of(os.getpid())

        def kill(_: object) -> None:
            subprocess.run(["docker", "kill", container.container], check=True, capture_output=True)

        died = sandbox.run_code(f"{opens}; import time; time.sleep(60)", on_stdout=kill)
        assert died.error is not None
        assert died.error.name == "SandboxDied"
        assert sandbox.run_code(OPEN.format("b.csv")).error is None
    assert [[one["path"] for one in line["files"]] for line in records.lines()] == [
        ["other/d.csv", "sales/a.csv"],
        ["sales/b.csv"],
    ]


def test_what_a_thread_opens_after_its_cell_is_said_to_come_after_it(
    start: Callable[..., Sandbox], records: Records
) -> None:
    records.fill("a.csv", "b.csv")
    thread = f"{OPEN.format('b.csv')}; open('/mnt/data/done', 'w').close()"
    with start() as sandbox:
        assert (
            sandbox.run_code(f"import threading; threading.Timer(0.5, lambda: exec({thread!r})).start()").error is None
        )
        eventually(lambda: sandbox.files.exists("/mnt/data/done"), 30, "the thread has read its file")
        assert sandbox.run_code(OPEN.format("a.csv")).error is None
    assert records.opened == {"after 1": {"sales/b.csv": True}, 2: {"sales/a.csv": True}}


def test_files_without_number_are_counted_and_not_named(
    start: Callable[..., Sandbox], records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is told apart is bounded, and a line names a few of them; the others are a number."""
    monkeypatch.setattr(reads, "MAX_FILES", 40)
    records.fill(*(f"{number:03}.csv" for number in range(100)))
    with start() as sandbox:
        opens = "import glob\nfor path in sorted(glob.glob('/mnt/datasets/sales/*')): open(path).close()"
        assert sandbox.run_code(opens).error is None
    first, *others = records.lines()
    assert sum(len(line["files"]) for line in (first, *others)) == 40
    assert (first["files_count"], first["code"]) == (40, DataCode.READS_LOST.code)
    assert first["more_opened"] >= 60
    assert len(others) == 2


@pytest.mark.long
def test_a_flood_of_openings_is_no_more_than_the_queue_and_said_so(
    start: Callable[..., Sandbox], records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reads, "FOLLOW_SECONDS", 600)
    monkeypatch.setattr(reads, "MAX_FILES", 10)
    for number in range(17_000):
        (records.dataset / f"{number}").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with start() as sandbox:
        opens = "import os\nfor one in os.scandir('/mnt/datasets/sales'): os.close(os.open(one.path, os.O_RDONLY))"
        assert sandbox.run_code(opens).error is None
        assert sandbox.run_code("1").error is None
        during = len(list(Path("/proc/self/fd").iterdir()))
    (line,) = records.lines()
    assert line["overflow"] is True
    assert line["code"] == DataCode.READS_LOST.code
    assert during < before + 2 * BATCH


def test_the_table_of_an_audit_has_each_file_of_a_cell(
    start: Callable[..., Sandbox], records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    records.fill("a.csv", "\x1b[2Jb\n.csv")
    with start() as sandbox:
        assert sandbox.run_code(OPEN.format("a.csv")).error is None
        assert (
            sandbox.run_code(f"open({'/mnt/datasets/sales/' + chr(27) + '[2Jb' + chr(10) + '.csv'!r}).close()").error
            is None
        )
    assert main(["audit", "reads", str(records.path)]) == 0
    title, first, second = capsys.readouterr().out.splitlines()
    assert title.split() == ["SESSION", "CELL", "HOW", "SIZE", "CHANGED", "FILE"]
    assert first.split()[1:4] == ["[1]", "read", "5000"]
    assert second.split()[1:4] == ["[2]", "opened", "5000"]
    assert "\x1b" not in second
    assert main(["audit", "reads", str(records.path), "--json"]) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["cells"] for one in said] == [[1], [2]]


def test_gvisor_s_reads_are_seen_and_called_partial(
    start: Callable[..., Sandbox], records: Records, capsys: pytest.CaptureFixture[str]
) -> None:
    records.fill("a.csv", "b.csv")
    with start(runtime="runsc") as sandbox:
        assert sandbox.run_code(OPEN.format("a.csv")).error is None
        assert sandbox.run_code("1").error is None
        assert sandbox.run_code(f"{OPEN.format('a.csv')}, {OPEN.format('b.csv')}").error is None
    assert records.opened == {1: {"sales/a.csv": True}, 3: {"sales/a.csv": True, "sales/b.csv": True}}
    assert all(line["partial"] is True for line in records.lines())
    assert main(["audit", "reads", str(records.path)]) == 0
    assert "gVisor" in capsys.readouterr().out


def test_reads_below_bubblewrap_are_seen_as_well(start: Callable[..., Sandbox], records: Records) -> None:
    """Its sandboxes have a user that has to get to the folder, and pytest keeps others out of its own."""
    with a_folder() as folder:
        for name in ("a.csv", "b.csv"):
            (folder / name).write_text("x" * 5000)
        with start(engine="bubblewrap", image=root_of_tests(), datasets={"sales": str(folder)}) as sandbox:
            assert sandbox.run_code(OPEN.format("a.csv")).error is None
            (folder / "b.csv").read_bytes()
            assert sandbox.run_code(MAP.format("b.csv")).error is None
    assert records.opened == {1: {"sales/a.csv": True}, 2: {"sales/b.csv": False}}
    assert not any(line["partial"] or line["elsewhere"] for line in records.lines())


def test_a_user_to_whom_the_kernel_does_not_tell_has_one_line_that_says_so(
    records: Records, tmp_path: Path, image: str
) -> None:
    records.fill("a.csv")
    source = write(tmp_path, OPEN.format("a.csv"), OPEN.format("a.csv"))
    settings = ("--image", image, "--engine", "docker", "--dataset", f"sales={records.dataset}")
    audit = ("--audit", str(records.path), "--audit-key", str(records.key))
    without = ["setpriv", "--bounding-set", "-sys_admin", "--inh-caps", "-sys_admin"]
    done = subprocess.run(
        [*without, *command(tmp_path, source, *settings, *audit)], cwd=tmp_path, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr.decode()
    (line,) = records.lines()
    assert line["code"] == DataCode.READS_NOT_SEEN.code
    assert line["reason"] == "Operation not permitted"


NOTEBOOK = {
    "pandas": "import pandas as pd\nlen(pd.read_csv(f'{D}/rows.csv')) + len(pd.read_parquet(f'{D}/0.parquet'))",
    "duckdb": "import duckdb\nduckdb.sql(f\"SELECT sum(i) FROM '{D}/[12].parquet'\").fetchall()",
    "polars": "import polars as pl\npl.scan_parquet(f'{D}/*.parquet').select(pl.col('i').sum()).collect()",
    "nothing": "sum(range(10))",
    "pyarrow": "import pyarrow.dataset as ds\nds.dataset(f'{D}/3.parquet').to_table().num_rows",
    "pyarrow, mapped": "import pyarrow.parquet as pq\npq.read_table(f'{D}/2.parquet', memory_map=True).num_rows",
}
READ = {
    "pandas": {"rows.csv", "0.parquet"},
    "duckdb": {"1.parquet", "2.parquet"},
    "polars": {"0.parquet", "1.parquet", "2.parquet", "3.parquet"},
    "pyarrow": {"3.parquet"},
    "pyarrow, mapped": {"2.parquet"},
}


def test_a_notebook_with_four_libraries_has_a_record_of_what_it_read(records: Records, tmp_path: Path) -> None:
    import duckdb

    for number in range(4):
        rows = duckdb.sql("SELECT i, i / 7 AS x FROM range(50000) t(i)")
        assert rows is not None
        rows.write_parquet(f"{records.dataset}/{number}.parquet")
    (records.dataset / "rows.csv").write_text("a,b\n" + "1,2\n" * 10_000)
    source = write(tmp_path, *(f"D = '/mnt/datasets/sales'\n{NOTEBOOK[name]}" for name in NOTEBOOK))
    audit = ("--audit", str(records.path), "--audit-key", str(records.key))
    settings = ("--image", "sandbox-kernel:data", "--engine", "docker", "--memory", "1G")
    done = run(tmp_path, source, *settings, "--dataset", f"sales={records.dataset}", *audit)
    assert done.statuses == ["ok"] * len(NOTEBOOK), done.stderr
    expected = {number: READ[name] for number, name in enumerate(NOTEBOOK, 1) if name in READ}
    assert {cell: {path.removeprefix("sales/") for path in paths} for cell, paths in records.opened.items()} == expected
    shown = subprocess.run(
        [SCRIPT, "audit", "reads", str(records.path)], check=True, capture_output=True, text=True
    ).stdout
    assert len(shown.splitlines()) == 1 + sum(map(len, expected.values()))
