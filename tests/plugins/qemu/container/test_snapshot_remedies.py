"""What a message about snapshots says is done, in a home in the place of this user's."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sandbox_kernel.plugins.qemu.codes import SnapshotCode
from tests.container.test_remedies import Place, said
from tests.support.remedies import only

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="a home in the place of the user's own takes a mount")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_snapshot_that_is_damaged_is_found_and_deleted(place: Place) -> None:
    make = (
        "import os; from sandbox_kernel.core.model import Settings\n"
        "from sandbox_kernel.plugins.qemu.snapshots.store import Store\n"
        "with Store.of(Settings()).begin('mine', 1 << 20) as draft:\n"
        "    os.write(draft.content, b'x'); draft.commit({'spec': {'image': 'a', 'engine': 'qemu'}})\n"
    )
    (place.work / "make.py").write_text(make)
    assert place.shell("python make.py").returncode == 0
    missing = place.shell("sandbox-kernel snapshots delete nine")
    assert missing.returncode == 1
    listed = place.shell(only(SnapshotCode.SNAPSHOT_MISSING.remedy))
    assert "mine" in listed.stdout
    deleted = place.shell(only(SnapshotCode.SNAPSHOT_DAMAGED.remedy).replace("NAME", "mine"))
    assert deleted.returncode == 0, said(deleted)
    assert place.shell("sandbox-kernel snapshots").stdout == "there is no snapshot\n"
