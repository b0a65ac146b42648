"""What is no folder of data, and what a kernel's start does not wait for."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.model import Attached, Limits, SandboxSpec
from sandbox_kernel.engines.attachment import may_wait
from sandbox_kernel.plugins.data import attached
from sandbox_kernel.plugins.data.dataset_folder import UnfitFolderError, opened, opened_as


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


@pytest.mark.parametrize("link", ["home", "home/somebody"], ids=["above", "itself"])
def test_a_home_that_is_named_through_a_link_is_none_either(
    link: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = tmp_path / "var" / link
    named = tmp_path / link
    home = tmp_path / "home" / "somebody"
    for folder in (real, named.parent):
        folder.mkdir(parents=True, exist_ok=True)
    named.symlink_to(real)
    (home / "data").mkdir(parents=True)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account(home))
    for folder in (home, home.resolve(), home.parent, home.resolve().parent, tmp_path / "var", tmp_path):
        with pytest.raises(UnfitFolderError, match="is no folder of data"):
            opened(str(folder))
    os.close(opened(str(home / "data")))  # the control


MOUNTED = """
import os, pwd, subprocess, sys
from sandbox_kernel.plugins.data.dataset_folder import UnfitFolderError, opened
place = sys.argv[1]
home = f"{place}/home/somebody"
account = pwd.struct_passwd(("somebody", "x", os.geteuid(), os.getegid(), "", home, "/bin/sh"))
pwd.getpwuid = lambda _: account
for source, target in (("home/somebody", "one"), ("home", "above"), ("other", "control")):
    subprocess.run(["mount", "--bind", f"{place}/{source}", f"{place}/{target}"], check=True)
    try:
        os.close(opened(f"{place}/{target}"))
        print(target, "opened")
    except UnfitFolderError as error:
        print(target, "refused" if "no folder of data" in str(error) else error)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_a_home_that_is_mounted_once_more_is_none_there_either(tmp_path: Path) -> None:
    for name in ("home/somebody", "other", "one", "above", "control"):
        (tmp_path / name).mkdir(parents=True)
    words = ["unshare", "--mount", sys.executable, "-c", MOUNTED, str(tmp_path)]
    if subprocess.run([*words[:2], "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this root has no mount namespaces")
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["one refused", "above refused", "control opened"], done.stderr


def test_what_may_be_a_home_that_cannot_be_looked_at_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, data = tmp_path / "home", tmp_path / "data"
    data.mkdir()
    monkeypatch.setattr(pwd, "getpwuid", lambda _: account(home))
    os.close(opened(str(data)))  # the control: it is not there
    home.symlink_to(home)
    with pytest.raises(UnfitFolderError, match=r"whether .* is the home .* is not known: Too many levels"):
        opened(str(data))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user, to whom a home is closed")
def test_a_home_that_is_hidden_refuses_nothing_on_another_device(tmp_path: Path) -> None:
    """So a service from which homes are hidden has datasets."""
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    assert closed.stat().st_dev != Path("/dev/shm").stat().st_dev
    os.close(opened_as(65534, 65534, [], "/dev/shm", str(closed / "home")))


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
        fd = attached._made_folder(str(tmp_path / name), user)  # noqa: SLF001 (for /tmp alone it is chosen)
        if fd is not None:
            os.close(fd)
        return fd is not None

    assert made("own")  # the control
    assert made("own")
    [folder] = (tmp_path / "own").iterdir()
    (folder / "file").touch()
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
