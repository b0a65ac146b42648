"""Subordinate ids: which are this user's, and what is said where there are none."""

from __future__ import annotations

import os
import pwd
from pathlib import Path

import pytest

from sandbox_kernel.engines.bubblewrap import users


@pytest.mark.parametrize(
    ("table", "found"),
    [
        ("{name}:100000:65536\n", range(100000, 165536)),
        ("{uid}:100000:65536\n", range(100000, 165536)),
        ("somebody:1:9999\n{uid}:5000:1000\n{name}:7000:2000\n", range(7000, 9000)),
        ("{name}:100000:999\n", None),
        ("somebody:100000:65536\n", None),
        ("{name}:ten:65536\n", None),
        ("{name}:100000\n", None),
        ("", None),
    ],
)
def test_the_longest_range_of_this_user_is_taken(tmp_path: Path, table: str, found: range | None) -> None:
    file = tmp_path / "subuid"
    file.write_text(table.format(name=pwd.getpwuid(os.getuid()).pw_name, uid=os.getuid()))
    assert users.ids(str(file)) == found


def test_what_is_missing_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(users, "programs", lambda: None)
    assert "uidmap" in str(users.absent(str(tmp_path)))
    monkeypatch.setattr(users, "programs", lambda: users.Programs("/bin/a", "/bin/b", "/bin/c"))
    assert "subuid" in str(users.absent(str(tmp_path)))
    (tmp_path / "subuid").write_text(f"{os.getuid()}:100000:65536\n")
    assert "subgid" in str(users.absent(str(tmp_path)))
    (tmp_path / "subgid").write_text(f"{os.getuid()}:100000:65536\n")
    assert users.absent(str(tmp_path)) is None


def test_an_id_that_a_process_has_is_not_given_to_another() -> None:
    assert users.free(range(os.getuid(), os.getuid() + 1)) is None
    one = users.free(range(1_700_000_000, 1_700_000_001))
    assert one == 1_700_000_000
