"""The store of snapshots: whole or not there, of this user alone, bounded; what was changed there is refused."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from sandbox_kernel.core.errors import FileNotThere, FileRefused
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.qemu.snapshots import store_parts
from sandbox_kernel.plugins.qemu.snapshots.store import Store, usual_folder
from tests.support import ROOT

DAY = 86400.0
CONTENT = os.urandom(3 * MIB)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(20 * MIB, DAY, str(tmp_path / "data" / "snapshots"))


def take(store: Store, name: str, content: bytes = CONTENT, most: int = 4 * MIB) -> None:
    with store.begin(name, most) as draft:
        os.write(draft.content, content)
        draft.commit({"spec": {"image": "x"}})


def read(store: Store, name: str) -> bytes:
    with store.open(name) as saved:
        return os.read(saved.content, 10 * MIB)


def there(store: Store) -> list[str]:
    return sorted(path.name for path in Path(store.path).iterdir())


def code_of(call: Callable[[], object]) -> str:
    with pytest.raises(FileRefused) as caught:
        call()
    return caught.value.code.code


def test_what_goes_in_comes_out(store: Store) -> None:
    take(store, "one")
    with store.open("one") as saved:
        assert os.read(saved.content, 10 * MIB) == CONTENT
        assert dict(saved.head.about) == {"spec": {"image": "x"}}
    (found,) = store.list()
    assert (found.name, found.bytes) == ("one", len(CONTENT))
    assert abs(found.made - time.time()) < 60


def test_it_is_this_user_s_alone(store: Store) -> None:
    take(store, "one")
    folder = Path(store.path)
    assert stat.S_IMODE(folder.stat().st_mode) == stat.S_IMODE((folder / "one").stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in (folder / "one").iterdir()} == {0o600}
    folder.chmod(0o755)
    store.list()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_it_lies_in_the_user_s_data_folder_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    before = usual_folder()
    for name in ("HOME", "XDG_DATA_HOME", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, "/elsewhere")
    assert usual_folder() == before
    assert before.endswith("/.local/share/sandbox-kernel/snapshots")


def test_nothing_is_made_by_looking(store: Store) -> None:
    assert store.list() == ()
    assert store.tidy() == 0
    assert not store.delete("one")
    assert code_of(lambda: store.open("one")) == "snapshot-missing"
    assert not Path(store.path).exists()


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".new-x", "a/b", "/a", "a\0b", "-a", "_a", "ä", "a" * 65, "a\n", "a b"]
)
def test_a_name_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    store = Store(20 * MIB, DAY, str(tmp_path / "snapshots"))
    for call in (lambda: store.begin(name, 1), lambda: store.open(name), lambda: store.delete(name)):
        assert code_of(call) == "snapshot-name-unfit"
    assert not (tmp_path / "snapshots").exists()


def test_a_name_is_taken_once(store: Store) -> None:
    take(store, "one", b"first")
    assert code_of(lambda: store.begin("one", 1)) == "snapshot-exists"
    assert read(store, "one") == b"first"


def test_two_at_once_under_one_name_the_first_that_is_whole_has_it(store: Store) -> None:
    with store.begin("one", MIB) as first, store.begin("one", MIB) as second:
        os.write(first.content, b"first")
        os.write(second.content, b"second")
        second.commit({})
        assert code_of(lambda: first.commit({})) == "snapshot-exists"
    assert read(store, "one") == b"second"
    assert there(store) == [".lock", "one"]


def test_many_at_once_are_all_there(store: Store) -> None:
    threads = [threading.Thread(target=take, args=(store, f"n{number}", b"x" * number, 1000)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(one.name for one in store.list()) == [f"n{number}" for number in range(8)]
    assert read(store, "n5") == b"xxxxx"


# --- what was changed there ---


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def rehead(folder: Path, **fields: object) -> None:
    """Write a head with other fields, whose digest is in order."""
    import hashlib

    _, _, text = (folder / "head").read_bytes().partition(b"\n")
    said = json.dumps(json.loads(text) | fields, sort_keys=True).encode()
    (folder / "head").write_bytes(hashlib.sha256(said).hexdigest().encode() + b"\n" + said)


def replaced_by_link(folder: Path, file: str) -> None:
    (folder / file).rename(folder.parent.parent / file)
    (folder / file).symlink_to(folder.parent.parent / file)


def folder_by_link(folder: Path) -> None:
    folder.rename(folder.parent.parent / "real")
    folder.symlink_to(folder.parent.parent / "real")


def fifo(folder: Path) -> None:
    (folder / "content").unlink()
    os.mkfifo(folder / "content", 0o600)


CHANGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a byte of its content": (lambda at: flip(at / "content", 1_000_000), "snapshot-damaged"),
    "the first byte of its content": (lambda at: flip(at / "content", 0), "snapshot-damaged"),
    "its content cut short": (lambda at: os.truncate(at / "content", len(CONTENT) - 1), "snapshot-damaged"),
    "its content made longer": (lambda at: os.truncate(at / "content", len(CONTENT) + 1), "snapshot-damaged"),
    "no content": (lambda at: (at / "content").unlink(), "snapshot-damaged"),
    "no head": (lambda at: (at / "head").unlink(), "snapshot-damaged"),
    "a byte of its head": (lambda at: flip(at / "head", 90), "snapshot-damaged"),
    "its head cut short": (lambda at: os.truncate(at / "head", 70), "snapshot-damaged"),
    "an empty head": (lambda at: os.truncate(at / "head", 0), "snapshot-damaged"),
    "a head that never ends": (lambda at: os.truncate(at / "head", 1 << 30), "snapshot-damaged"),
    "a head that is no mapping": (lambda at: rehead(at, about=7), "snapshot-damaged"),
    "another version": (lambda at: rehead(at, version=2), "snapshot-unfit"),
    "another name": (lambda at: rehead(at, name="two"), "snapshot-not-own"),
    "another user in its head": (lambda at: rehead(at, owner=12345), "snapshot-not-own"),
    "another size in its head": (lambda at: rehead(at, bytes=5), "snapshot-damaged"),
    "a content that others may read": (lambda at: (at / "content").chmod(0o644), "snapshot-not-own"),
    "a head that others may write": (lambda at: (at / "head").chmod(0o622), "snapshot-not-own"),
    "a folder that others may enter": (lambda at: at.chmod(0o755), "snapshot-not-own"),
    "a content with another name": (lambda at: os.link(at / "content", at.parent.parent / "other"), "snapshot-not-own"),
    "a link for its content": (lambda at: replaced_by_link(at, "content"), "snapshot-not-own"),
    "a link for its head": (lambda at: replaced_by_link(at, "head"), "snapshot-not-own"),
    "a link for its folder": (folder_by_link, "snapshot-not-own"),
    "a pipe for its content": (fifo, "snapshot-not-own"),
}
if os.geteuid() == 0:
    CHANGES |= {
        "a content of another user's": (lambda at: os.chown(at / "content", 65534, 65534), "snapshot-not-own"),
        "a head of another user's": (lambda at: os.chown(at / "head", 65534, 65534), "snapshot-not-own"),
        "a folder of another user's": (lambda at: os.chown(at, 65534, 65534), "snapshot-not-own"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_was_changed_is_refused(change: str, store: Store) -> None:
    make, code = CHANGES[change]
    take(store, "one")
    assert read(store, "one") == CONTENT, "the control"
    make(Path(store.path, "one"))
    assert code_of(lambda: store.open("one")) == code
    assert store.delete("one"), "it can be removed all the same"
    assert store.list() == ()


def test_a_link_is_removed_and_not_what_it_leads_to(store: Store, tmp_path: Path) -> None:
    take(store, "one")
    folder_by_link(Path(store.path, "one"))
    assert store.delete("one")
    assert sorted(path.name for path in (tmp_path / "data" / "real").iterdir()) == ["content", "head"]


@pytest.mark.parametrize("old", [False, True])
def test_a_foreign_file_in_a_snapshot_does_not_spoil_the_store(store: Store, old: bool) -> None:
    """Neither where somebody removes it, nor where it is removed for its age by whoever looks next."""
    take(store, "one")
    take(store, "two")
    foreign = Path(store.path, "one", "foreign")
    foreign.write_bytes(b"x")
    if old:
        draft = Path(store.path, f"{store_parts.NEW}0-1")
        draft.mkdir()
        (draft / "foreign").write_bytes(b"x")
        assert Store(20 * MIB, 0.0, store.path).list() == ()
    else:
        assert store.delete("one")
        assert [one.name for one in store.list()] == ["two"]
        assert read(store, "two") == CONTENT
    assert foreign.read_bytes() == b"x", "it is not ours"
    assert {path.name for path in foreign.parent.iterdir()} == {"foreign"}, "and ours are gone"
    assert not store.delete("one"), "there was none any more"
    assert code_of(lambda: store.begin("one", 1)) == "snapshot-exists"


def test_a_store_behind_a_link_is_not_used(store: Store, tmp_path: Path) -> None:
    take(store, "one")
    Path(store.path).rename(tmp_path / "elsewhere")
    Path(store.path).symlink_to(tmp_path / "elsewhere")
    for call in (lambda: store.open("one"), lambda: store.begin("two", 1), store.list):
        assert code_of(call) == "link-not-followed"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_store_of_another_user_s_is_not_used(store: Store) -> None:
    take(store, "one")
    os.chown(store.path, 65534, 65534)
    assert code_of(lambda: store.open("one")) == "snapshots-unfit"


# --- bounds ---


def test_all_together_take_no_more_than_the_setting(store: Store) -> None:
    for number in range(6):
        take(store, f"n{number}")  # 18 of 20 MiB
    with pytest.raises(FileRefused) as caught:
        store.begin("more", 3 * MIB)
    assert (caught.value.code.code, caught.value.setting) == ("snapshot-no-room", "snapshots_size")
    store.delete("n0")
    take(store, "more", most=3 * MIB)


def test_what_is_being_taken_counts_with_what_it_may_come_to(store: Store) -> None:
    with store.begin("one", 15 * MIB):
        assert code_of(lambda: store.begin("two", 6 * MIB)) == "snapshot-no-room"
        with store.begin("three", 4 * MIB):
            pass
    with store.begin("two", 6 * MIB):
        pass


def test_one_that_is_too_old_is_gone(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    take(store, "old")
    now = time.time()
    monkeypatch.setattr(time, "time", lambda: now + DAY / 2)
    take(store, "young")
    monkeypatch.setattr(time, "time", lambda: now + DAY + 60)
    assert code_of(lambda: store.open("old")) == "snapshot-missing"
    assert [one.name for one in store.list()] == ["young"]
    assert there(store) == [".lock", "young"]


def test_a_full_disk_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.fstatvfs

    def full(handle: int) -> os.statvfs_result:
        given = list(real(handle))
        given[4] = 1  # blocks that are free
        return os.statvfs_result(given)

    monkeypatch.setattr(os, "fstatvfs", full)
    assert code_of(lambda: store.begin("one", MIB)) == "snapshot-no-room"
    assert there(store) == [".lock"]


PROGRAM = """
import os, resource, sys
from sandbox_kernel.core.errors import FileRefused
from sandbox_kernel.plugins.qemu.snapshots.store import Store
store = Store(20 << 20, 86400.0, sys.argv[1])
{body}
"""


def program(store: Store, body: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", PROGRAM.format(body=body), store.path]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_head_that_does_not_fit_on_the_disk_leaves_nothing(store: Store) -> None:
    """A limit on the size of files is met as a full disk is: the write of the head fails in the middle."""
    body = """
with store.begin("one", 1 << 20) as draft:
    os.write(draft.content, b"x" * 1000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
    try:
        draft.commit({"more": "y" * 100_000})
    except FileRefused as error:
        print(error.code.code)
"""
    with program(store, body) as process:
        said, _ = process.communicate(timeout=60)
    assert said.split() == ["snapshot-no-room"]
    assert there(store) == [".lock"]


def test_a_crash_in_the_middle_leaves_nothing_that_counts(store: Store) -> None:
    body = """
draft = store.begin("one", 15 << 20)
os.write(draft.content, b"x" * 1000)
print("there", flush=True)
sys.stdin.read()
"""
    with program(store, body) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        assert store.list() == ()
        assert store.tidy() == 0, "somebody is at it"
        assert code_of(lambda: store.begin("two", 6 * MIB)) == "snapshot-no-room"
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert store.tidy() == 1
    assert code_of(lambda: store.open("one")) == "snapshot-missing"
    assert there(store) == [".lock"]
    take(store, "one", most=15 * MIB)


def test_a_crash_between_head_and_name_leaves_nothing_that_counts(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", crash)
        draft = store.begin("one", MIB)
        with pytest.raises(KeyboardInterrupt):
            draft.commit({})
    os.close(draft.content)  # as the end of the process does
    draft.content = -1
    assert store.tidy() == 1
    assert store.list() == ()


def test_a_lock_that_somebody_keeps_is_waited_for_in_bounded_time(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(store, "one")
    monkeypatch.setattr(store_parts, "LOCK_SECONDS", 0.1)
    body = """
import fcntl
handle = os.open(f"{sys.argv[1]}/.lock", os.O_RDWR)
fcntl.flock(handle, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""
    with program(store, body) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert code_of(store.list) == "snapshot-busy"
        process.kill()
    assert [one.name for one in store.list()] == ["one"]


def test_a_file_without_a_name_is_gone_with_its_handle(store: Store) -> None:
    handle = store.scratch(MIB)
    try:
        os.write(handle, b"x")
        assert os.fstat(handle).st_nlink == 0
        assert store.list() == ()
        assert code_of(lambda: store.scratch(21 * MIB)) == "snapshot-no-room"
    finally:
        os.close(handle)


def test_what_is_missing_is_an_error_of_its_own(store: Store) -> None:
    take(store, "one")
    with pytest.raises(FileNotThere, match="two"):
        store.open("two")


def test_what_somebody_else_put_there_is_left_alone_by_lists(store: Store) -> None:
    take(store, "one")
    Path(store.path, "notes.txt").write_text("x")
    Path(store.path, "empty").mkdir()
    assert [one.name for one in store.list()] == ["one"]
    assert store.tidy() == 0
