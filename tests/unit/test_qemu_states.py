"""States of machines as files: what is not this user's alone, has changed or is another one's is refused."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import anew
from sandbox_kernel.core.model import AgentOptions, Inside, Limits, SandboxSpec
from sandbox_kernel.engines import shipping
from sandbox_kernel.engines.qemu import places, ready, states
from sandbox_kernel.engines.qemu.engine import may_be_kept

KEY = "0123456789abcdef"
MADE = {"uid": 300_000_001, "machine": "1"}
SPEC = SandboxSpec(session_id="s", image="x", limits=Limits(), command=("a",), uid=300_000_002, made_of=AgentOptions())


def kept(folder: Path, key: str = KEY, data: bytes = b"state") -> Path:
    with states.making(folder, key) as scratch:
        assert scratch is not None
        path = scratch / states.STATE
        path.write_bytes(data)
        path.chmod(0o600)
        states.keep(folder, key, scratch, MADE)
    return folder / key


def test_a_state_is_found_as_it_was_kept(tmp_path: Path) -> None:
    place = kept(tmp_path / "states")
    assert (tmp_path / "states").stat().st_mode & 0o777 == 0o700
    assert place.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in place.iterdir()} == {0o600}
    found = states.find(place.parent, KEY)
    assert found is not None
    with os.fdopen(found.fd, "rb") as file:
        assert file.read() == b"state"
    assert found.facts == MADE
    assert sorted(path.name for path in place.parent.iterdir()) == [KEY]


def test_there_is_none_where_none_was_kept(tmp_path: Path) -> None:
    assert states.find(tmp_path, KEY) is None


def with_facts(**fields: object) -> Callable[[Path], object]:
    def change(place: Path) -> object:
        path = place / states.FACTS
        return path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))

    return change


def another_byte(place: Path) -> None:
    (place / states.STATE).write_bytes(b"stAte")


def of_another_inode(place: Path) -> None:
    (place / states.STATE).unlink()
    (place / states.STATE).write_bytes(b"other")
    (place / states.STATE).chmod(0o600)


def a_link(place: Path) -> None:
    (place / states.STATE).rename(place / "elsewhere")
    (place / states.STATE).symlink_to(place / "elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        another_byte,
        of_another_inode,
        a_link,
        lambda place: (place / states.STATE).chmod(0o640),
        lambda place: (place / states.FACTS).chmod(0o644),
        lambda place: (place / states.FACTS).write_text("no JSON"),
        with_facts(format=0),
        with_facts(key="another"),
        with_facts(made=None),
        with_facts(looked=[], digest="another"),
    ],
    ids=["a byte", "a file", "a link", "readable", "facts", "no JSON", "format", "key", "nothing said", "digest"],
)
def test_what_has_changed_is_refused(tmp_path: Path, change: Callable[[Path], object]) -> None:
    place = kept(tmp_path)
    change(place)
    with pytest.raises(states.ChangedState):
        states.find(tmp_path, KEY)
    states.remove(tmp_path, KEY)
    assert states.find(tmp_path, KEY) is None


def test_control_the_same_bytes_with_another_time_are_taken(tmp_path: Path) -> None:
    """The file looks as if it had changed, and its digest says that it has not."""
    place = kept(tmp_path)
    os.utime(place / states.STATE, ns=(1, 1))
    found = states.find(tmp_path, KEY)
    assert found is not None
    os.close(found.fd)


def test_only_one_process_makes_a_state(tmp_path: Path) -> None:
    with states.making(tmp_path, KEY) as mine, states.making(tmp_path, KEY) as other:
        assert mine is not None
        assert other is None
    assert list(tmp_path.iterdir()) == []


def test_there_are_never_more_than_a_few(tmp_path: Path) -> None:
    for number in range(states.KEPT + 3):
        place = kept(tmp_path, f"{number:016d}")
        os.utime(place, (number, number))
    assert len(list(tmp_path.iterdir())) == states.KEPT


def test_whatever_a_state_depends_on_makes_another_name() -> None:
    machine = places.Machine("/f", "sha256:0", "6.1", "1")
    asked: tuple[Any, ...] = (SPEC, machine, "/bin/sh", 1, ())
    name = states.key_of(*asked)
    others = [
        (replace(SPEC, command=("b",)), *asked[1:]),
        (replace(SPEC, limits=Limits(pids=99)), *asked[1:]),
        (replace(SPEC, environment={"A": "b"}), *asked[1:]),
        (SPEC, machine._replace(identity="2"), *asked[2:]),
        (*asked[:2], "/bin/cat", *asked[3:]),
        (*asked[:3], 2, ()),
        (*asked[:4], ("numpy",)),
    ]
    assert len({name, *(states.key_of(*other) for other in others)}) == len(others) + 1
    assert states.key_of(replace(SPEC, session_id="t", uid=300_000_003), *asked[1:]) == name


def test_what_a_state_is_taken_of_waits_and_begins_anew() -> None:
    own = ready.spec_of(SPEC, ("numpy",))
    assert (own.session_id, own.uid) != (SPEC.session_id, SPEC.uid)
    assert "'renew': " in own.command[-1]
    assert "'warm': True" in own.command[-1]
    assert "numpy" in own.command[-1]
    assert "'renew': " not in shipping.agent_command(Limits())[-1]
    with pytest.raises(ValueError, match="no agent"):
        ready.spec_of(replace(SPEC, made_of=None), ())


def test_two_that_begin_anew_from_one_state_draw_differently() -> None:
    before = random.getstate()
    try:
        drawn = []
        for _ in range(2):
            random.seed(1)
            anew.begin_here()
            drawn.append(random.random())
    finally:
        random.setstate(before)
    assert drawn[0] != drawn[1]


def test_what_a_crash_left_is_removed_and_what_another_process_makes_is_not(tmp_path: Path) -> None:
    other = KEY[::-1]
    for key in (KEY, other):
        (tmp_path / f"{states.MAKING}{key}-left").mkdir()
        (tmp_path / f"{states.MAKING}{key}-left" / states.STATE).write_bytes(b"large")
    with states.making(tmp_path, "f" * 16) as busy:
        assert busy is not None
        with states.making(tmp_path, KEY) as mine:
            assert mine is not None
            assert {path.name for path in tmp_path.glob(f"{states.MAKING}*")} == {busy.name, mine.name}
    assert list(tmp_path.iterdir()) == []


def test_no_state_is_taken_of_what_is_one_caller_s() -> None:
    inside = Inside(environment={}, lines=(), trust=None, certificates="")
    assert may_be_kept(SPEC)
    assert not may_be_kept(replace(SPEC, made_of=AgentOptions(variables=(("KEY", "secret"),))))
    assert not may_be_kept(replace(SPEC, made_of=AgentOptions(inside=inside)))
    assert not may_be_kept(replace(SPEC, made_of=None))
