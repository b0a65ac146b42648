"""A value is read once, checked, and shown to nobody; what stands in its place looks like it and is worth nothing."""

from __future__ import annotations

import copy
import json
import os
import pickle
import re
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.network import secrets as placeholder
from sandbox_kernel.plugins.network.secret_value import MIN_BITS, SecretValue, bits, read
from sandbox_kernel.plugins.network.settings import SecretSource
from tests.support.cases import each
from tests.support.remedies import in_shell, only

KEY = "sk-live-8Jd02kQm3vXz71LpRt5W"


def source(kind: Literal["env", "file"], place: str) -> SecretSource:
    return SecretSource(name="API_KEY", kind=kind, place=place, hosts=("api.example.test",))


def of_variable(value: str) -> bytes:
    return read(source("env", "GIVEN"), {"GIVEN": value}).reveal()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "key"
    path.write_text(KEY + "\n")
    path.chmod(0o600)
    return path


def test_a_value_comes_from_a_variable_or_a_file(file: Path) -> None:
    assert of_variable(KEY) == KEY.encode()
    assert read(source("file", str(file)), {}).reveal() == KEY.encode()


@each(
    ("value", "why"),
    [
        ("", "empty value"),
        ("a\r\nX-Injected: 1", "no header can hold"),
        ("abcdefgh\n", "no header can hold"),
        ("abc\0defghijkl", "no header can hold"),
        ("clé-secrète-7Hq2", "no header can hold"),
        (" leading7Hq2xyz", "no header can hold"),
        ("7Hq2xyz", "too short"),
        ("7 H q - 2 : x", "too short"),
        ("123456789012", "guessing"),
        ("aaaaaaaaaaaaaaaaaaaaaaaa", "guessing"),
        ("7H" * 2100, "too long"),
    ],
)
def test_a_value_that_cannot_be_kept_is_refused_without_a_word_of_it(value: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=why) as raised:
        of_variable(value)
    assert raised.value.setting == "secrets"
    said = str(raised.value) + repr(raised.value)
    assert not value.strip() or value not in said


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigurationError, match="variable GIVEN, which is not set"):
        read(source("env", "GIVEN"), {})


@pytest.mark.parametrize("mode", [0o604, 0o620, 0o666, 0o602, 0o601])
def test_a_file_that_others_can_read_or_change_is_refused(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(ConfigurationError, match="others can read or change") as caught:
        read(source("file", str(file)), {})
    assert in_shell(only(str(caught.value))).returncode == 0
    assert read(source("file", str(file)), {}).reveal() == KEY.encode()


def test_control_a_file_of_a_group_is_read(file: Path) -> None:
    file.chmod(0o440)
    assert read(source("file", str(file)), {}).reveal() == KEY.encode()


def test_a_link_is_not_followed(file: Path) -> None:
    link = file.with_name("link")
    link.symlink_to(file)
    with pytest.raises(ConfigurationError, match="not opened"):
        read(source("file", str(link)), {})
    os.link(file, file.with_name("second"))
    with pytest.raises(ConfigurationError, match="not opened"):
        read(source("file", str(file)), {})


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened: No such file"):
        read(source("file", str(tmp_path / "none")), {})


def test_a_value_shows_nothing_of_itself() -> None:
    value = SecretValue(KEY.encode())
    assert repr(value) == str(value) == f"{value}" == "<the value of a secret>"
    for write in (pickle.dumps, copy.copy, json.dumps):
        with pytest.raises(TypeError) as raised:
            write(value)
        assert KEY not in str(raised.value)


@pytest.mark.parametrize(
    ("value", "like"),
    [
        ("sk-ant-api03-8Jd02kQm3vXz71LpRt5W", r"sk-ant-api03-[0-9A-Za-z]{20}"),
        ("ghp_8Jd02kQm3vXz71LpRt5W8Jd02kQm3vXz71Lp", r"ghp_[0-9A-Za-z]{36}"),
        ("ghp_8Jd02", r"[0-9A-Za-z]{9}"),
        ("deadbeef00c0ffee", r"[0-9a-f]{16}"),
        ("DEADBEEF00C0FFEE", r"[0-9A-F]{16}"),
        ("90417263548172635", r"[0-9]{17}"),
        ("1f0e8a52-77c1-4e0e-9d5b-3c2a1b0f9e8d", r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"),
        ("p/q+r&s<t> u%25", r"[0-9A-Za-z]{15}"),
    ],
)
def test_a_placeholder_looks_like_its_value(value: str, like: str) -> None:
    found = placeholder.like(value.encode())
    assert re.fullmatch(like, found)
    assert found != value
    assert placeholder.like(value.encode()) != found


@given(st.text([chr(code) for code in range(0x20, 0x7F)], min_size=8, max_size=60))
def test_a_placeholder_is_written_in_an_address_as_it_is(value: str) -> None:
    found = placeholder.like(value.encode())
    assert len(found) == len(value)
    assert re.fullmatch(r"[0-9A-Za-z._-]+", found)


def test_letters_count_once_for_both_cases() -> None:
    """A value is taken out in any case, so a guess need not have the right one."""
    assert bits(b"aBcDeFgH") > MIN_BITS > bits(b"abcdefgh")
    with pytest.raises(ConfigurationError, match="found by guessing"):
        of_variable("aBcDeFgH")


def test_bits_are_those_of_the_alphabet() -> None:
    assert 39 < bits(b"123456789012") < 40 < bits(b"1234567890123") < 44
    assert bits(b"abababababababababababab") < 14
