"""What is no folder of data, and what a kernel's start does not wait for."""

from __future__ import annotations

import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.model import Attached, Limits, SandboxSpec
from sandbox_kernel.engines import attached
from sandbox_kernel.engines.attached import may_wait
from sandbox_kernel.engines.dataset_folder import UnfitFolderError, opened


def account(home: Path) -> pwd.struct_passwd:
    return pwd.struct_passwd(("somebody", "x", os.geteuid(), os.getegid(), "", str(home), "/bin/sh"))


def test_neither_a_home_nor_what_is_above_it_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "somebody"
    for folder in (home / "data", tmp_path / "home" / "some"):
        folder.mkdir(parents=True)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account(home))
    for folder in (home, home.parent, tmp_path, Path("/")):
        with pytest.raises(UnfitFolderError, match="is no folder of data"):
            opened(str(folder))
    for folder in (home / "data", tmp_path / "home" / "some"):  # the controls: below it, and beside it
        os.close(opened(str(folder)))


VOLUME = Attached(kind="volume", name="models")
DATASET = Attached(kind="dataset", name="sales", source="/srv/sales")


@pytest.mark.parametrize(
    ("changes", "waits"),
    [({}, False), ({"attached": (DATASET,)}, False), ({"attached": (DATASET, VOLUME)}, True), ({"disk": True}, True)],
    ids=["plain", "dataset", "volume", "disk"],
)
def test_what_takes_seconds_is_not_begun_before_the_sockets_are_there(changes: dict[str, Any], *, waits: bool) -> None:
    limits = Limits(scratch="disk") if changes.pop("disk", False) else Limits()
    spec = SandboxSpec(session_id="s", image="i", limits=limits, command=(), uid=1, **changes)
    assert may_wait(spec) is waits


def test_the_empty_folder_is_where_no_other_user_puts_anything(tmp_path: Path) -> None:
    """Below a dataset's, another folder's files would be the dataset's; in /tmp, others may have made it."""
    user = os.geteuid()

    def made(name: str) -> bool:
        fd = attached._made_folder(str(tmp_path / name / "empty"), user)  # noqa: SLF001 (for /tmp alone it is chosen)
        if fd is not None:
            os.close(fd)
        return fd is not None

    assert made("own")  # the control
    (tmp_path / "own" / "empty" / "file").touch()
    assert not made("own")

    assert made("open")
    (tmp_path / "open").chmod(0o777)
    assert not made("open")

    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(OSError, match="Not a directory"):
        made("link")

    if user == 0:
        assert made("theirs")
        os.chown(tmp_path / "theirs", 65534, 65534)
        assert not made("theirs")
