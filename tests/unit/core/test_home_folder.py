"""A home is what the machine's table says, and nothing else."""

from __future__ import annotations

import os
import pwd

import pytest

from sandbox_kernel.core.home_folder import home_folder


def test_it_is_the_tables_and_no_variable_s(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/tmp/other")
    assert home_folder() == pwd.getpwuid(os.geteuid()).pw_dir
    assert home_folder("root") == pwd.getpwnam("root").pw_dir


@pytest.mark.parametrize("says", ["/", "", "relative"])
def test_what_is_no_folder_of_a_user_is_no_home(says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = pwd.struct_passwd(("somebody", "x", os.geteuid(), os.getegid(), "", says, "/bin/sh"))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: row)
    assert home_folder() is None


def test_who_is_in_no_table_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: object) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    assert home_folder() is None
    assert home_folder("nobody of this name") is None
