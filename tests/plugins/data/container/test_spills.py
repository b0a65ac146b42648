"""With scratch on a disk, programs put there what does not fit into memory, without a setting."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.model import SPILL
from sandbox_kernel.plugins.data import disk_images

pytestmark = pytest.mark.skipif(disk_images.available() is not None, reason=f"no disks: {disk_images.available()}")

WHERE = """
import json, os, tempfile
import duckdb, joblib, polars
from joblib import _memmapping_reducer
print(json.dumps({
    "python": tempfile.gettempdir(),
    "duckdb": os.path.abspath(duckdb.sql("SELECT current_setting('temp_directory')").fetchall()[0][0]),
    "joblib": _memmapping_reducer._get_temp_dir("x")[0],
}))
"""

SORT = """
import os, threading
import duckdb
duckdb.sql("SET memory_limit = '300MB'")
duckdb.sql("SET threads = 1")
duckdb.sql("SET preserve_insertion_order = false")
most, over = 0, threading.Event()
def look():
    global most
    while not over.wait(0.01):
        space = os.statvfs("/mnt/data")
        most = max(most, (space.f_blocks - space.f_bfree) * space.f_frsize)
looking = threading.Thread(target=look)
looking.start()
try:
    duckdb.sql('''COPY (SELECT range AS a, hash(range) AS b, hash(range + 1) AS c, hash(range + 2) AS d
                        FROM range(25_000_000) ORDER BY b) TO '/dev/null' (FORMAT csv)''')
finally:
    over.set()
    looking.join()
print(most)
"""


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(
        engine="docker",
        image="sandbox-kernel:data",
        memory="512M",
        scratch="disk",
        scratch_size="4G",
        cell_timeout=300,
    ) as sandbox:
        yield sandbox


def printed(sandbox: Sandbox, code: str) -> str:
    execution = sandbox.run_code(code)
    assert execution.error is None, execution.error
    return "".join(execution.logs.stdout)


def test_what_is_spilled_is_on_the_disk_and_no_file_of_a_cell(sandbox: Sandbox) -> None:
    places = json.loads(printed(sandbox, WHERE))
    assert {name: place for name, place in places.items() if not place.startswith(SPILL)} == {}
    printed(sandbox, "open(tempfile.mkstemp()[1], 'w').write('spilled'); open('own', 'w').close()")
    assert [entry.name for entry in sandbox.files.list("/mnt/data")] == ["own"]


@pytest.mark.long
def test_duckdb_sorts_more_than_the_sandbox_s_memory(sandbox: Sandbox) -> None:
    assert int(printed(sandbox, SORT)) > 512 << 20
