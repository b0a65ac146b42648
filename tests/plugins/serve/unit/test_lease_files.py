"""What is written down of sandboxes that outlive their server: whole or not at all, for this user, for one server."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import orjson
import pytest

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.serve.lease_files import KeptLease, LeaseFiles

LEASE = KeptLease(
    tenant="ann",
    template="base",
    name="chat/1",
    access_token="a" * 48,
    traffic_token="t" * 48,
    metadata={"a": "b" * 5000},
    offline=True,
    pauses_at=1.5,
)
NAME = "0" * 32
OTHERS: list[tuple[str, object]] = [
    ("pauses_at", "soon"),
    ("pauses_at", 1e300),
    ("pauses_at", -1),
    ("metadata", []),
    ("metadata", "ab"),
    ("hosts", ""),
    ("hosts", "ab"),
    ("hosts", {}),
]
"""Fields of another type, or beyond any calendar."""


def test_the_next_server_reads_what_the_one_before_wrote(tmp_path: Path) -> None:
    folder = tmp_path / "sandboxes"
    first = LeaseFiles(folder)
    first.write(NAME, LEASE)
    first.write("1" * 32, LEASE)
    first.remove("1" * 32)
    first.remove("2" * 32)
    modes = {path.stat().st_mode & 0o777 for path in folder.iterdir()}
    assert (folder.stat().st_mode & 0o777, modes) == (0o700, {0o600})
    with pytest.raises(ConfigurationError) as caught:
        LeaseFiles(folder)
    assert caught.value.code.code == "serve-runs-already"
    first.close()
    second = LeaseFiles(folder)
    assert (second.all(), second.mark) == ({NAME: LEASE}, first.mark)
    second.close()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"{}",
        orjson.dumps({"tenant": "ann"}),
        orjson.dumps({"tenant": 1, "template": "", "name": "", "access_token": "a" * 48, "traffic_token": "t" * 48}),
        orjson.dumps({"tenant": "ann", "template": "", "name": "", "access_token": "", "traffic_token": "t" * 48}),
        *(orjson.dumps(asdict(LEASE) | {name: other}) for name, other in OTHERS),
    ],
)
def test_what_is_no_sandbox_is_removed_and_costs_no_other_anything(tmp_path: Path, content: bytes) -> None:
    files = LeaseFiles(tmp_path / "sandboxes")
    files.write(NAME, LEASE)
    for name in ("1" * 32, f"{NAME}.new", "other"):
        (tmp_path / "sandboxes" / name).write_bytes(content)
    assert files.all() == {NAME: LEASE}
    assert {path.name for path in (tmp_path / "sandboxes").iterdir()} == {NAME, "lock"}
    files.close()


def test_a_folder_that_others_may_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "sandboxes").mkdir()
    (tmp_path / "sandboxes").chmod(0o755)
    with pytest.raises(ConfigurationError, match="not this user's alone"):
        LeaseFiles(tmp_path / "sandboxes")
