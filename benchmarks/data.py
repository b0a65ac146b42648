"""`python -m benchmarks.data`: a large parquet folder, read in a sandbox and without one, in one run.

The one without is the same Python from the same image, unpacked into a folder, with no walls: by `unshare` and
`chroot`, as root. The folder is made first (`--size` of it, ten gigabytes unless said). Each analysis runs with cold
caches (`--cold`), or with whatever the machine has cached of a first reading. A row is a median, beside its ratio to
the one without. Scratch is on a disk, and memory is 2 GiB.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sandbox_kernel import Sandbox

from .kernels import BenchmarkError
from .languages import unpack

ROWS_OF_A_FILE = 4_000_000
GIB = 1 << 30
TABLE = """
    SELECT
        i AS id,
        DATE '2020-01-01' + CAST(i % 2000 AS INTEGER) AS day,
        'region ' || CAST(hash(i) % 40 AS VARCHAR) AS region,
        CAST(hash(i + 1) % 1000000 AS INTEGER) AS customer,
        hash(i + 2) / 1e17 AS price,
        hash(i + 3) / 1e17 AS weight,
        CAST(hash(i + 4) % 100 AS INTEGER) AS pieces,
        hash(i + 5) / 1e17 AS score,
        md5(CAST(i AS VARCHAR)) AS token
    FROM range({start}, {end}) AS numbers(i)
"""
"""Rows that do not compress well; the same for the same number."""

ANALYSES = {
    "duckdb": """
import duckdb
duckdb.sql("SET enable_progress_bar = false")
table = f"'{FOLDER}/*.parquet'"
duckdb.sql(f"SELECT region, count(*), avg(price * pieces) FROM {table} GROUP BY region ORDER BY region").fetchall()
""",
    "duckdb, a join that spills": """
import duckdb
duckdb.sql("SET enable_progress_bar = false; SET memory_limit = '1GB'")
duckdb.sql(f'''
    SELECT count(*) FROM (SELECT token, id FROM '{FOLDER}/*.parquet' WHERE pieces < 50) a
    JOIN (SELECT token, score FROM '{FOLDER}/*.parquet' WHERE pieces < 50) b USING (token)
''').fetchall()
""",
    "polars": """
import polars as pl
table = pl.scan_parquet(f"{FOLDER}/*.parquet").group_by("region")
table.agg(pl.len(), (pl.col("price") * pl.col("pieces")).mean()).sort("region").collect(engine="streaming")
""",
    "pyarrow": """
import pyarrow as pa, pyarrow.compute as pc, pyarrow.dataset as ds
pa.set_cpu_count(2)
total, rows = 0.0, 0
for batch in ds.dataset(FOLDER).to_batches(columns=["price", "pieces"], batch_readahead=4, fragment_readahead=1):
    total += pc.sum(pc.multiply(batch["price"], pc.cast(batch["pieces"], "float64"))).as_py() or 0
    rows += batch.num_rows
""",
    "pandas": """
import pyarrow.parquet as pq, glob
found = {}
for path in sorted(glob.glob(f"{FOLDER}/*.parquet")):
    for batch in pq.ParquetFile(path).iter_batches(batch_size=1_000_000, columns=["region", "price"]):
        for name, value in batch.to_pandas().groupby("region")["price"].sum().items():
            found[name] = found.get(name, 0.0) + value
""",
}
WRITES = {
    "disk, a gigabyte written and kept": """
import os
with open(f"{PLACE}/large", "wb") as file:
    for _ in range(1024):
        file.write(bytes(1 << 20))
    file.flush()
    os.fsync(file.fileno())
""",
    "disk, 20,000 random blocks": """
import os, random
chosen = random.Random(1)
file = os.open(f"{PLACE}/blocks", os.O_RDWR | os.O_CREAT)
for _ in range(20_000):
    os.pwrite(file, bytes(4096), chosen.randrange(1 << 16) * 4096)
os.fsync(file)
""",
    "disk, 5,000 small files": """
import os
os.makedirs(f"{PLACE}/small")
for number in range(5_000):
    with open(f"{PLACE}/small/{number}", "wb") as file:
        file.write(bytes(4096))
os.sync()
""",
    "disk, parquet of 400 MB written and read": """
import os, numpy, pyarrow as pa, pyarrow.parquet as pq
table = pa.table({str(one): numpy.random.default_rng(one).random(5_000_000) for one in range(10)})
pq.write_table(table, f"{PLACE}/table.parquet", compression="none")
with open(f"{PLACE}/table.parquet", "rb") as file:
    os.fsync(file.fileno())
pq.read_table(f"{PLACE}/table.parquet")
""",
}
"""What scratch on a disk is compared with: a folder of the host's own disk."""
ALL = ANALYSES | WRITES
INSIDE, OUTSIDE = "/mnt/datasets/table", "/mnt/table"
WITHOUT, SANDBOX = "without a sandbox", "sandbox"
RUN = "import time as _time\n_begin = _time.perf_counter()\n{code}\nprint('took', _time.perf_counter() - _begin)"


PREPARED = """
import os, shutil
FOLDER, PLACE = {folder!r}, {place!r}
if PLACE != "/mnt/data":
    shutil.rmtree(PLACE, ignore_errors=True)
    os.makedirs(PLACE)
    os.sync()
"""
"""What each begins with; a sandbox's disk is new."""


def generate(folder: Path, size: int) -> int:
    """Write parquet files of `size` bytes together; return how large they are."""
    import duckdb

    connection, written, number = duckdb.connect(), sum(path.stat().st_size for path in folder.iterdir()), 0
    connection.sql("SET enable_progress_bar = false")
    while written < size:
        path = folder / f"part-{number:04}.parquet"
        if not path.exists():
            start = number * ROWS_OF_A_FILE
            select = TABLE.format(start=start, end=start + ROWS_OF_A_FILE)
            connection.sql(f"COPY ({select}) TO '{path}' (FORMAT parquet, COMPRESSION uncompressed)")
            written += path.stat().st_size
        number += 1
    for path in (folder, *folder.iterdir()):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return written


@contextmanager
def without(root: Path, table: Path) -> Iterator[list[str]]:
    """Yield the command that runs a program of the image with no walls, with the table in its place.

    Its /tmp is a folder of the host's disk.
    """
    (root / OUTSIDE[1:]).mkdir(parents=True, exist_ok=True)
    mounts = f"mount --bind {table} {root}{OUTSIDE} && mount --rbind /dev {root}/dev && mount -t proc proc {root}/proc"
    variables = "HOME=/tmp/home PATH=/usr/local/bin:/usr/bin:/bin LANG=C.UTF-8 TMPDIR=/tmp POLARS_MAX_THREADS=2"
    script = f'{mounts} && exec chroot {root} /usr/bin/env -i {variables} python3 -I -c "$1"'
    yield ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]


def drop_caches() -> None:
    """Have the machine forget what it has read."""
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3", encoding="ascii")


def seconds(said: str) -> float:
    found = [line.split()[1] for line in said.splitlines() if line.startswith("took ")]
    if not found:
        raise BenchmarkError(said[-1000:])
    return float(found[0])


def peak(pid: int | str = "self") -> float:
    """Return the most memory that a process of ours had, in MiB."""
    rows = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(row.split()[1]) for row in rows if row.startswith("VmHWM")) / 1024


def start(engine: str, table: Path | None) -> float:
    """Return the seconds to the first result of a new sandbox, with the dataset or without."""
    begin, datasets = time.perf_counter(), {"table": str(table)} if table else {}
    with Sandbox(engine=engine, image="sandbox-kernel:data", datasets=datasets) as sandbox:
        sandbox.run_code("1")
        return time.perf_counter() - begin


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.data", description=__doc__, allow_abbrev=False)
    parser.add_argument("--size", type=float, default=10, help="gigabytes of parquet")
    parser.add_argument("--folder", type=Path, help="where it is kept, for the next run; by default it is removed")
    parser.add_argument("--engine", default="docker")
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--starts", type=int, default=15)
    parser.add_argument("--cold", action="store_true", help="forget what was read, before each")
    parser.add_argument("--only", nargs="+", choices=ALL, default=list(ALL), metavar="NAME")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="benchmarks-", dir="/var/tmp") as name:
        table, root = options.folder or Path(name, "table"), Path(name, "root")
        Path(name).chmod(0o755)
        table.mkdir(parents=True, exist_ok=True)
        root.mkdir()
        size = generate(table, int(options.size * 1e9))
        print(f"{size / 1e9:.1f} GB in {len(list(table.iterdir()))} files", flush=True)
        unpack("sandbox-kernel:data", root)
        starts: dict[str, list[float]] = {"without a dataset": [], "with one": []}
        for _ in range(options.starts):
            starts["without a dataset"].append(start(options.engine, None))
            starts["with one"].append(start(options.engine, table))
        plain, given = (statistics.median(taken) for taken in starts.values())
        more = 1000 * (given - plain)
        print(f"start to first result: {1000 * plain:.0f} ms, with a dataset {more:+.0f} ms", flush=True)
        with without(root, table) as command:
            compare(command, table, options)
        print(f"memory of this process at most: {peak():.0f} MiB", flush=True)
    return 0


def compare(command: list[str], table: Path, options: argparse.Namespace) -> None:
    for name in options.only:
        taken: dict[str, list[float]] = {WITHOUT: [], SANDBOX: []}
        for _ in range(options.repetitions):
            code = PREPARED.format(folder=OUTSIDE, place="/tmp/work") + RUN.format(code=ALL[name])
            if options.cold:
                drop_caches()
            done = subprocess.run([*command, code], check=False, capture_output=True, text=True)
            taken[WITHOUT].append(seconds(done.stdout + done.stderr))
            code = PREPARED.format(folder=INSIDE, place="/mnt/data") + RUN.format(code=ALL[name])
            with Sandbox(
                engine=options.engine,
                image="sandbox-kernel:data",
                datasets={"table": str(table)},
                memory="2G",
                scratch="disk",
                scratch_size="20G",
                cell_timeout=3600,
            ) as sandbox:
                if options.cold:
                    drop_caches()
                done_inside = sandbox.run_code(code)
                said = "".join(done_inside.logs.stdout) + json.dumps(str(done_inside.error or ""))
                taken[SANDBOX].append(seconds(said))
        outside, inside = (statistics.median(each) for each in taken.values())
        print(f"{name}: {outside:.1f} s without, {inside:.1f} s in a sandbox ({inside / outside:.2f} x)", flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
