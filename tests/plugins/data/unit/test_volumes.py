"""The volumes of one owner: their names, their folder, their locks, and what a crash leaves."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from sandbox_kernel.core.codes import Code
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB, Attached, Limits, SandboxSpec
from sandbox_kernel.engines.attachment import Quota, hold
from sandbox_kernel.engines.user_ids import UID_RANGE, new_uid
from sandbox_kernel.plugins.data import disk_images
from sandbox_kernel.plugins.data import volumes as volumes_module
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support.kernels import eventually
from tests.support.remedies import in_shell, only

SIZE = 32 * MIB

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices and mounts")


@pytest.fixture
def volumes(tmp_path: Path) -> Volumes:
    return Volumes(str(tmp_path / "volumes"))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder where a test mounts a device; nothing is mounted there afterwards."""
    found = tmp_path / "mounted"
    found.mkdir()
    yield found
    while os.path.ismount(found):
        subprocess.run(["umount", found], check=True)


def mount(device: disk_images.Device, place: Path, mode: str) -> None:
    subprocess.run(["mount", "-t", "ext4", "-o", mode, device.path, place], check=True)
    os.close(device.fd)


def files_of(volumes: Volumes) -> list[str]:
    return sorted(one.name for one in Path(volumes.folder).iterdir())


def refusal(code: DataCode, call: object, *arguments: object, **named: object) -> EngineError:
    with pytest.raises(EngineError) as caught:
        call(*arguments, **named)  # type: ignore[operator]
    assert caught.value.code is code, caught.value
    return caught.value


def test_a_sandbox_of_a_broker_s_user_makes_none_that_no_quota_has_seen(volumes: Volumes) -> None:
    one = Attached(kind="volume", name="models", source=volumes.folder, writable=True)
    refusal(DataCode.VOLUME_NOT_HERE, hold, spec_with(one, volumes.uid()))
    assert not volumes.list()
    volumes.create("models", SIZE, quota=Quota(1, SIZE))  # the control: what was made within it is opened
    hold(spec_with(one, volumes.uid())).close()


def spec_with(one: Attached, uid: int) -> SandboxSpec:
    return SandboxSpec(session_id="s", image="i", limits=Limits(), command=(), uid=uid, attached=(one,))


def test_what_one_writes_the_next_reads_and_nothing_else_is_left(volumes: Volumes, place: Path) -> None:
    volumes.create("models", SIZE)
    mount(volumes.attach("models", writable=True), place, "rw")
    (place / "weights").write_bytes(b"w" * MIB)
    assert place.stat().st_uid == volumes.uid()
    subprocess.run(["umount", place], check=True)

    mount(volumes.attach("models", writable=False), place, "ro")
    assert (place / "weights").read_bytes() == b"w" * MIB
    with pytest.raises(OSError, match="Read-only"):
        (place / "more").touch()
    subprocess.run(["umount", place], check=True)
    (one,) = volumes.list()
    assert (one.name, one.size_bytes, one.used_by) == ("models", SIZE, "")
    assert MIB <= (one.used_bytes or 0) < 2 * MIB
    assert files_of(volumes) == ["models.ext4", "owner"]


def test_one_writes_or_many_read(volumes: Volumes) -> None:
    volumes.create("models", SIZE)
    writer = volumes.attach("models", writable=True)
    for writable in (True, False):
        error = refusal(DataCode.VOLUME_IN_USE, volumes.attach, "models", writable=writable)
        assert f"written to by a sandbox of process {os.getpid()}" in error.message
    refusal(DataCode.VOLUME_IN_USE, volumes.remove, "models")
    os.close(writer.fd)

    readers = [volumes.attach("models", writable=False) for _ in range(3)]
    assert "read by 3" in refusal(DataCode.VOLUME_IN_USE, volumes.attach, "models", writable=True).message
    assert volumes.list()[0].used_by.startswith("read by 3")
    refusal(DataCode.VOLUME_IN_USE, volumes.remove, "models")
    for reader in readers:
        os.close(reader.fd)
    volumes.remove("models")
    assert volumes.list() == ()


def test_of_a_hundred_readers_and_a_writer_either_all_of_one_kind_have_it(volumes: Volumes) -> None:
    volumes.create("models", SIZE)

    def attach(number: int) -> disk_images.Device | Code:
        try:
            return volumes.attach("models", writable=number == 50)
        except EngineError as error:
            return error.code

    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(attach, range(101)))
    devices = [one for one in found if isinstance(one, disk_images.Device)]
    for one in devices:
        os.close(one.fd)
    assert {one for one in found if isinstance(one, Code)} <= {DataCode.VOLUME_IN_USE}
    writes = isinstance(found[50], disk_images.Device)
    assert len(devices) == (1 if writes else 100)


def test_a_lock_lasts_as_long_as_the_mount_and_not_as_the_process(volumes: Volumes, place: Path) -> None:
    volumes.create("models", SIZE)
    mount(volumes.attach("models", writable=True), place, "rw")  # and closes the descriptor
    refusal(DataCode.VOLUME_IN_USE, volumes.attach, "models", writable=False)
    subprocess.run(["umount", place], check=True)

    def attached() -> bool:
        with contextlib.suppress(EngineError):
            os.close(volumes.attach("models", writable=False).fd)
            return True
        return False

    # Whoever made a namespace of mounts meanwhile has that mount for a moment, too.
    eventually(attached, 20, "the mount is gone")


@pytest.mark.parametrize("writable", [True, False])
def test_a_volume_that_was_cut_off_in_mid_write_is_repaired_first(
    volumes: Volumes, place: Path, *, writable: bool
) -> None:
    """A copy of the file while it is mounted is what a crash of the machine leaves."""
    volumes.create("models", SIZE)
    mount(volumes.attach("models", writable=True), place, "rw")
    (place / "kept").write_text("synced")
    os.sync()
    fd = os.open(place / "growing", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * MIB)
    os.fsync(fd)
    file = Path(volumes.folder, "models.ext4")
    shutil.copyfile(file, file.with_name("crashed.ext4"))
    file.with_name("crashed.ext4").chmod(0o600)
    os.close(fd)
    subprocess.run(["umount", place], check=True)

    # The control: as it is, a device that cannot be written to is not mounted.
    raw = os.open(file.with_name("crashed.ext4"), os.O_RDONLY)
    device = disk_images.attach(raw, writable=False)
    os.close(raw)
    refused = subprocess.run(["mount", "-t", "ext4", "-o", "ro", device.path, place], capture_output=True, check=False)
    os.close(device.fd)
    assert refused.returncode != 0

    mount(volumes.attach("crashed", writable=writable), place, "rw" if writable else "ro")
    assert (place / "kept").read_text() == "synced"
    assert (place / "growing").read_bytes() == b"x" * MIB


def test_a_file_system_that_cannot_be_repaired_is_not_mounted(volumes: Volumes) -> None:
    volumes.create("models", SIZE)
    with Path(volumes.folder, "models.ext4").open("r+b") as file:
        file.write(os.urandom(8 * MIB))
    refused = refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=True)
    assert only(refused.message) == f"e2fsck -f {volumes.folder}/models.ext4"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "../models", "a/b", "/etc/passwd", "-x", ".hidden", "a\n", "é", "a" * 64]
)
def test_names_lead_nowhere(volumes: Volumes, name: str) -> None:
    for call in (volumes.create, volumes.size, volumes.remove):
        assert "a name has letters" in refusal(DataCode.VOLUME_NOT_OPENED, call, name).message


def test_a_volume_gets_no_name_that_another_has(volumes: Volumes) -> None:
    for name in ("models", "other"):
        volumes.create(name, SIZE)
    refusal(DataCode.VOLUME_EXISTS, volumes.rename, "models", "Other")
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.rename, "models", "../models")
    refusal(DataCode.VOLUME_NOT_HERE, volumes.rename, "nobody", "new")
    volumes.rename("models", "new")
    assert [one.name for one in volumes.list()] == ["new", "other"]


def test_what_says_whose_volumes_they_are_is_written_before_it_has_its_name(
    volumes: Volumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that loses power in between is to have all of it or nothing."""
    steps: list[str] = []
    fsync, rename = os.fsync, os.rename

    def noting(fd: int) -> None:
        status = os.fstat(fd)
        steps.append("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        fsync(fd)

    def renaming(old: str, new: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append("rename")
        rename(old, new, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", renaming)
    uid = volumes.uid()
    assert steps == [f"{len(str(uid)) + 1} bytes", "rename", "folder"]
    assert volumes.uid() == uid


@pytest.mark.parametrize("name", ["\uff4dodels", "model\u017f", "models\u200b", "m\u043edels", "models\u0663"])
def test_no_name_looks_like_another_s(volumes: Volumes, name: str) -> None:
    volumes.create("models", SIZE)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.create, name, SIZE)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.rename, "models", name)
    assert [one.name for one in volumes.list()] == ["models"]


def test_names_differ_in_more_than_the_case(volumes: Volumes) -> None:
    volumes.create("models", SIZE)
    assert "models" in refusal(DataCode.VOLUME_EXISTS, volumes.create, "Models", SIZE).message
    refusal(DataCode.VOLUME_EXISTS, volumes.attach, "MODELS", writable=True)
    refusal(DataCode.VOLUME_NOT_HERE, volumes.attach, "Models", writable=False)


def test_a_link_in_the_folder_is_no_volume(volumes: Volumes, tmp_path: Path) -> None:
    volumes.create("models", SIZE)
    file = Path(volumes.folder, "models.ext4")
    elsewhere = tmp_path / "elsewhere.ext4"
    os.close(volumes.attach("models", writable=False).fd)  # the control
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=False)
    file.unlink()
    file.hardlink_to(elsewhere)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=False)
    file.unlink()
    os.mkfifo(file, 0o600)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=False)
    file.unlink()
    elsewhere.rename(file)
    file.chmod(0o640)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=False)
    file.chmod(0o600)
    os.chown(file, 1, 1)
    refusal(DataCode.VOLUME_NOT_OPENED, volumes.attach, "models", writable=False)


def test_a_folder_that_others_may_open_is_not_used(volumes: Volumes, tmp_path: Path) -> None:
    volumes.create("models", SIZE)
    Path(volumes.folder).chmod(0o710)
    refusal(DataCode.VOLUMES_UNUSABLE, volumes.attach, "models", writable=False)
    refused = refusal(DataCode.VOLUMES_UNUSABLE, volumes.create, "others", SIZE)
    assert in_shell(only(refused.message)).returncode == 0
    linked = tmp_path / "linked"
    linked.symlink_to(volumes.folder)
    refusal(DataCode.VOLUMES_UNUSABLE, Volumes(str(linked)).size, "models")
    assert Volumes(volumes.folder).size("models") == SIZE


def test_owners_have_folders_and_user_ids_of_their_own(tmp_path: Path) -> None:
    first, second = (Volumes(f"{tmp_path}/volumes/{owner}") for owner in (1001, 1002))
    first.create("models", SIZE)
    assert [one.name for one in first.list()] == ["models"]
    assert second.list() == ()
    refusal(DataCode.VOLUME_NOT_HERE, second.attach, "models", writable=False)
    low, high = UID_RANGE
    assert first.uid() == first.uid() != second.uid()
    assert all(low <= one.uid() < high for one in (first, second))


def test_an_owner_file_with_another_user_id_is_refused(volumes: Volumes) -> None:
    volumes.create("models", SIZE)
    Path(volumes.folder, "owner").write_text("0\n")
    refusal(DataCode.VOLUMES_UNUSABLE, volumes.attach, "models", writable=True)


def test_a_quota_counts_largest_sizes_and_numbers(volumes: Volumes) -> None:
    quota = Quota(volumes=2, total_bytes=3 * SIZE)
    volumes.create("a", SIZE, quota=quota)
    error = refusal(DataCode.VOLUME_QUOTA, volumes.create, "b", 2 * SIZE + 4096, quota=quota)
    assert (error.limit, error.setting) == ("96.0 MiB of all volumes", "volumes")
    volumes.create("b", SIZE, quota=quota)
    assert refusal(DataCode.VOLUME_QUOTA, volumes.create, "c", SIZE, quota=quota).limit == "2 volumes"
    volumes.remove("a")
    volumes.create("c", SIZE, quota=quota)


def test_what_cannot_be_made_leaves_nothing(volumes: Volumes) -> None:
    error = refusal(DataCode.VOLUME_NOT_MADE, volumes.create, "models", 1 << 60)
    assert error.setting == "volumes"
    refusal(DataCode.VOLUME_NOT_MADE, volumes.create, "models", 4096)
    assert files_of(volumes) == ["owner"]
    Path(volumes.folder, ".new").write_text("of a process that was killed")
    volumes.create("models", SIZE)
    assert files_of(volumes) == ["models.ext4", "owner"]


def test_a_volume_that_is_not_there_is_made_to_be_written_to_and_not_to_be_read(
    volumes: Volumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sandbox_kernel.plugins.data.volumes.DEFAULT_BYTES", SIZE)
    refusal(DataCode.VOLUME_NOT_HERE, volumes.attach, "models", writable=False)
    assert not Path(volumes.folder).exists()
    os.close(volumes.attach("models", writable=True).fd)
    assert volumes.size("models") == SIZE


READ_ONLY = """
import subprocess, sys
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.data.volumes import Volumes
mine = Volumes(sys.argv[1])
subprocess.run(["mount", "--bind", mine.folder, mine.folder], check=True)
subprocess.run(["mount", "-o", f"remount,bind,{sys.argv[2]}", mine.folder], check=True)
for name, call in {
    "create": lambda: mine.create("other", 32 << 20),
    "read": lambda: mine.attach("models", writable=False),
    "write": lambda: mine.attach("spare", writable=True),
    "repair": lambda: mine.repair("models"),
    "rename": lambda: mine.rename("spare", "last"),
    "remove": lambda: mine.remove("other"),
}.items():
    try:
        call()
        print(name, "done")
    except EngineError as error:
        print(name, error.code.name, error.setting, error.message)
"""


@pytest.mark.parametrize("how", ["ro", "rw"], ids=["read-only", "control"])
def test_a_read_only_folder_is_said_to_be_one(volumes: Volumes, how: str) -> None:
    for name in ("models", "spare"):
        volumes.create(name, SIZE)
    words = ["unshare", "--mount", sys.executable, "-c", READ_ONLY, volumes.folder, how]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    said = f"VOLUMES_UNUSABLE volumes no volumes can be used here: {volumes.folder}: Read-only file system"
    names = ("create", "read", "write", "repair", "rename", "remove")
    assert done.stdout.splitlines() == [f"{name} {said if how == 'ro' else 'done'}" for name in names], done.stderr
    assert [one.name for one in volumes.list()] == ["models", "spare"] if how == "ro" else ["last", "models"]


@pytest.mark.parametrize("kind", ["link", "folder", "control"])
def test_an_owner_that_is_no_file_is_refused_with_the_folder_s_name(volumes: Volumes, kind: str) -> None:
    Path(volumes.folder).mkdir(mode=0o700)
    owner = Path(volumes.folder, "owner")
    if kind == "control":
        volumes.create("models", SIZE)
        return
    owner.symlink_to("elsewhere") if kind == "link" else owner.mkdir()
    for call in (volumes.uid, lambda: volumes.attach("models", writable=True)):
        assert f"{volumes.folder}: " in refusal(DataCode.VOLUMES_UNUSABLE, call).message
    refusal(DataCode.VOLUMES_UNUSABLE, volumes.create, "models", SIZE)
    assert files_of(volumes) == ["owner"]


def test_two_threads_that_choose_a_user_id_at_once_have_the_same(
    volumes: Volumes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second comes when the first has begun; it ends, or waits for its turn, before the first goes on."""
    lock = volumes_module._locked  # noqa: SLF001 (where the second waits)
    first, met = threading.get_ident(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        second: list[Future[int]] = []

        def chosen() -> int:
            if threading.get_ident() == first:
                second.append(pool.submit(volumes.uid))
                second[0].add_done_callback(lambda _: met.set())
                assert met.wait(60)
            return new_uid()

        def locked(fd: int, how: int, seconds: float = 0.0) -> bool:
            if threading.get_ident() != first:
                met.set()
            return lock(fd, how, seconds)

        monkeypatch.setattr(volumes_module, "new_uid", chosen)
        monkeypatch.setattr(volumes_module, "_locked", locked)
        assert volumes.uid() == second[0].result(60)
    assert files_of(volumes) == ["owner"]
