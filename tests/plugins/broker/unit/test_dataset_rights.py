"""A dataset is opened with the rights of the user who asks, by a helper that becomes that user."""

from __future__ import annotations

import os
import pwd
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel.plugins.data import dataset_folder
from sandbox_kernel.plugins.data.dataset_folder import UnfitFolderError, opened, opened_as
from tests.support.kernels import eventually

NOBODY = 65534
GROUP = 64_999
"""That nobody else has."""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that each user can reach, where pytest's own is closed to others."""
    closed = [one for one in (tmp_path, *tmp_path.parents) if not one.stat().st_mode & 0o001]
    modes = [one.stat().st_mode for one in closed]
    for one, mode in zip(closed, modes, strict=True):
        one.chmod(mode | 0o001)
    yield tmp_path
    for one, mode in zip(closed, modes, strict=True):
        one.chmod(mode)


def a_folder(path: Path, mode: int = 0o755, group: int = 0) -> Path:
    path.mkdir()
    path.chmod(mode)
    os.chown(path, 0, group)
    return path


def held(fd: int) -> str:
    """Return which folder a descriptor is, and close it."""
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink())
    finally:
        os.close(fd)


def test_a_folder_within_one_that_is_closed_to_a_user_is_closed_to_its_sandboxes(place: Path) -> None:
    data = a_folder(a_folder(place / "closed", 0o700) / "data")
    assert held(opened(str(data))) == str(data)  # the control: this process may
    with pytest.raises(UnfitFolderError, match="Permission denied"):
        opened(str(data), NOBODY)
    (place / "closed").chmod(0o711)
    assert held(opened(str(data), NOBODY)) == str(data)


def test_a_group_of_the_user_opens_what_is_the_group_s(place: Path) -> None:
    data = a_folder(a_folder(place / "staff", 0o750, GROUP) / "data")
    assert held(opened_as(NOBODY, NOBODY, [NOBODY, GROUP], str(data))) == str(data)
    with pytest.raises(UnfitFolderError, match="Permission denied"):
        opened_as(NOBODY, NOBODY, [NOBODY], str(data))


def test_groups_are_those_of_the_account(place: Path) -> None:
    members = [(one, set(os.getgrouplist(one.pw_name, one.pw_gid)) - {one.pw_gid, 0}) for one in pwd.getpwall()]
    found = [(one.pw_uid, min(groups)) for one, groups in members if one.pw_uid and groups]
    if not found:
        pytest.skip("no account of this machine has a second group")
    uid, group = found[0]
    data = a_folder(a_folder(place / "staff", 0o750, group) / "data")
    assert held(opened(str(data), uid)) == str(data)
    with pytest.raises(UnfitFolderError, match="Permission denied"):
        opened(str(data), NOBODY)


def test_a_user_id_without_an_account_has_no_rights(place: Path) -> None:
    with pytest.raises(UnfitFolderError, match="is no account"):
        opened(str(a_folder(place / "data")), 54_321)


@pytest.mark.slow
def test_a_link_that_is_changed_meanwhile_leads_nowhere_that_the_user_could_not_go(place: Path) -> None:
    """Somebody swaps it all the time, between a folder for all and one for root."""
    free, secret = a_folder(place / "free"), a_folder(a_folder(place / "closed", 0o700) / "secret")
    link, other = place / "link", place / "other"
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            for target in (secret, free):
                other.symlink_to(target)
                other.replace(link)

    def meets_both() -> bool:
        seen.add(held(opened(str(link))))
        return len(seen) == 2

    link.symlink_to(free)
    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[str] = set()
    try:
        eventually(meets_both, 60, "the control: root's own process meets both")
        found, refused = set(), 0
        for _ in range(40):
            try:
                found.add(held(opened(str(link), NOBODY)))
            except UnfitFolderError:
                refused += 1
    finally:
        stop.set()
        swapping.join()
    assert seen == {str(free), str(secret)}
    assert found <= {str(free)}
    assert refused + len(found) > 0


def test_a_link_to_the_machine_s_own_folders_is_no_dataset(place: Path) -> None:
    for target in ("/", "/proc/self", "/sys/kernel", "/dev/shm", "/run"):
        link = place / target.replace("/", "_")
        link.symlink_to(target)
        for owner in (None, NOBODY):
            with pytest.raises(UnfitFolderError, match=r"is no folder of data|may not read"):
                opened(str(link), owner)


def test_the_helper_that_opens_it_has_no_right_of_root_s(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its program, with a look at itself in place of the folder."""
    program = place / "helper.py"
    source = Path(dataset_folder.__file__).read_text(encoding="utf-8")
    look = "raise UnfitFolderError(open('/proc/self/status').read())\n    "
    assert source.count("    try:\n        fd = os.open(path") == 1
    program.write_text(source.replace("try:\n        fd = os.open(path", look + "try:\n        fd = os.open(path"))
    monkeypatch.setattr(dataset_folder, "__file__", str(program))
    with pytest.raises(UnfitFolderError) as caught:
        opened_as(NOBODY, NOBODY, [GROUP], "/srv")
    lines = dict(line.split(":\t", 1) for line in str(caught.value).splitlines() if ":\t" in line)
    assert lines["Uid"].split() == lines["Gid"].split() == [str(NOBODY)] * 4
    assert lines["Groups"].split() == [str(GROUP)]
    assert {int(lines[name], 16) for name in ("CapPrm", "CapEff", "CapAmb")} == {0}
