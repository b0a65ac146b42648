"""Subordinate ids: which are this user's, and what is said where there are none."""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

import pytest

from sandbox_kernel.container import start
from sandbox_kernel.plugins.bubblewrap import users
from sandbox_kernel.plugins.bubblewrap.process_labels import may_hold
from tests.support.kernels import eventually


@pytest.mark.parametrize(
    ("uids", "gids", "found"),
    [
        ("{name}:100000:65536\n", "{name}:100000:65536\n", range(100000, 165536)),
        ("{uid}:100000:65536\n", "{name}:100000:65536\n", range(100000, 165536)),
        ("somebody:1:9999\n{uid}:5000:1000\n{name}:7000:2000\n", "{name}:8000:2000\n", range(8000, 9000)),
        ("{name}:100000:65536\n", "{name}:300000:65536\n", range(0)),
        ("somebody:100000:65536\n", "{name}:100000:65536\n", range(0)),
        ("{name}:ten:65536\n", "{name}:100000:65536\n", range(0)),
        ("{name}:100000\n", "{name}:100000:65536\n", range(0)),
        ("{name}:100000:65536\n", "", range(0)),
    ],
)
def test_the_numbers_of_both_tables_are_this_user_s(tmp_path: Path, uids: str, gids: str, found: range) -> None:
    said = {"name": pwd.getpwuid(os.getuid()).pw_name, "uid": os.getuid()}
    for name, table in {"subuid": uids, "subgid": gids}.items():
        (tmp_path / name).write_text(table.format(**said))
    assert users.ids(str(tmp_path)) == found


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "programs", lambda: None)
    assert "uidmap" in str(users.absent(str(tmp_path)))
    monkeypatch.setattr(users, "programs", lambda: users.UserPrograms("/bin/a", "/bin/b", "/bin/c"))
    assert "subuid and subgid" in str(users.absent(str(tmp_path)))
    (tmp_path / "subuid").write_text(f"{os.getuid()}:100000:65536\n")
    assert "in common" in str(users.absent(str(tmp_path)))
    (tmp_path / "subgid").write_text(f"{os.getuid()}:100000:65536\n")
    assert users.absent(str(tmp_path)) is None


def test_an_id_that_a_process_has_is_not_given_to_another() -> None:
    assert users.free(range(os.getuid(), os.getuid() + 1)) is None
    one = users.free(range(1_700_000_000, 1_700_000_001))
    assert one == 1_700_000_000


def test_the_agent_closes_what_bubblewrap_leaves_open_of_the_namespace() -> None:
    left, other = os.open("/proc/self/ns/user", os.O_RDONLY), os.open("/proc/self/ns/net", os.O_RDONLY)
    try:
        start.close_namespaces()
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(left)
        os.fstat(other)
    finally:
        os.close(other)


def test_a_process_that_has_ended_and_was_not_waited_for_holds_nothing() -> None:
    """Nobody but root may see that it has no files; and `reap` ends nothing while somebody may have the pipe."""
    with subprocess.Popen(["/bin/cat"], stdin=subprocess.PIPE) as process:
        name = str(process.pid)
        assert may_hold(name)
        process.kill()
        eventually(lambda: Path("/proc", name, "stat").read_text().rpartition(") ")[2][0] == "Z", 5, "it has ended")
        assert not may_hold(name)
