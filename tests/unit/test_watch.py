"""The agent's watch: shipped where a monitor asks for it, a filter that tells and refuses what it should, and bait."""

from __future__ import annotations

import ast
import struct
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import shield, watch
from sandbox_kernel.core.model import Limits, Monitoring, SandboxSpec, Settings
from sandbox_kernel.engines import seccomp, shipping
from sandbox_kernel.engines.hardening import protections
from tests.support.cases import each

ALLOW, TELL, REFUSE = 0x7FFF0000, 0x7FC00000, 0x00050001
X86, ARM = shield.ARCHITECTURES["x86_64"][0], shield.ARCHITECTURES["aarch64"][0]


def spec(monitor: Monitoring | None) -> SandboxSpec:
    return shipping.new_spec(Settings(monitor=monitor), "session")


def test_without_a_monitor_nothing_of_it_is_shipped_and_no_call_is_added() -> None:
    """Nor with one that looks from outside alone."""
    for monitor in (None, Monitoring((), inside=False)):
        made = spec(monitor)
        *_, program, config = made.command
        assert program == shipping.packed(shipping.agent_source(shipping.MODULES))
        assert "watch" not in ast.literal_eval(config)
        assert protections(made).system_calls == seccomp.rules()
    assert not set(shipping.MODULES) & set(shipping.MODULES_OF_A_WATCH)


def test_with_one_the_agent_may_listen_and_nothing_else_is_added() -> None:
    made = spec(Monitoring(()))
    *_, program, config = made.command
    assert program == shipping.packed(shipping.agent_source(shipping.MODULES + shipping.MODULES_OF_A_WATCH))
    assert ast.literal_eval(config)["watch"] is True
    added = set(protections(made).system_calls) - set(seccomp.rules())
    assert {rule.names for rule in added} == {("ioctl",)}
    assert {rule.conditions[0].value for rule in added} == set(seccomp.LISTENER_IOCTLS)
    assert set(seccomp.LISTENER_IOCTLS) == {watch.RECEIVE, watch.SEND, watch.STILL_THERE, watch.SET_FLAGS}


def test_both_sources_fit_into_one_argument() -> None:
    modules = shipping.MODULES + shipping.MODULES_OF_A_WAY_OUT + shipping.MODULES_OF_A_WATCH
    assert len(shipping.packed(shipping.agent_source(modules))) < shipping.MAX_SOURCE // 2
    assert "watch" in ast.literal_eval(shipping.agent_command(Limits(), watched=True)[-1])


def verdict(machine: str, architecture: int, number: int, second: int = 0, flags: tuple[int, int] = (0, 0)) -> int:
    """Run the filter as a kernel does, over one call with a second argument, a third and a fourth."""
    program = [struct.unpack("=HBBI", step) for step in struct_pieces(watch.filter_program(machine))]
    data = struct.pack("=iIQ6Q", number, architecture, 0, 0, second, *flags, 0, 0)
    place, accumulator = 0, 0
    while True:
        code, if_true, if_false, constant = program[place]
        place += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif code == 0x15:
            place += if_true if accumulator == constant else if_false
        elif code == 0x45:
            place += if_true if accumulator & constant else if_false
        else:
            assert code == 0x06
            return constant


def struct_pieces(program: bytes) -> list[bytes]:
    assert len(program) % 8 == 0
    return [program[at : at + 8] for at in range(0, len(program), 8)]


CALLS: dict[str, tuple[str, int, int, int, int]] = {
    "execve": ("x86_64", X86, 59, 0, TELL),
    "execveat": ("x86_64", X86, 322, 0, TELL),
    "connect": ("x86_64", X86, 42, 0, TELL),
    "read": ("x86_64", X86, 0, 0, ALLOW),
    "an ioctl of a terminal": ("x86_64", X86, 16, 0x5401, ALLOW),
    "an answer in the agent's place": ("x86_64", X86, 16, watch.SEND, REFUSE),
    "an answer, with bits that nobody reads": ("x86_64", X86, 16, watch.SEND | 1 << 40, REFUSE),
    "hearing in its place": ("x86_64", X86, 16, watch.RECEIVE, REFUSE),
    "an i386 call of the same number, which the shield refuses": ("x86_64", 0x40000003, 59, 0, ALLOW),
    "execve on aarch64": ("aarch64", ARM, 221, 0, TELL),
    "connect on aarch64": ("aarch64", ARM, 203, 0, TELL),
    "an answer on aarch64": ("aarch64", ARM, 29, watch.SEND, REFUSE),
    "what execve is elsewhere": ("aarch64", ARM, 59, 0, ALLOW),
}


@each("what", CALLS)
def test_the_filter_tells_of_a_few_calls_and_keeps_the_answers_to_the_agent(what: str) -> None:
    machine, architecture, number, second, expected = CALLS[what]
    assert verdict(machine, architecture, number, second) == expected


FAST, MORE = watch.MSG_FASTOPEN, 0x8000
SENDS: dict[str, tuple[str, int, int, tuple[int, int], int]] = {
    "sendto": ("x86_64", X86, 44, (1, FAST), TELL),
    "sendto, with other flags beside": ("x86_64", X86, 44, (1, FAST | MORE), TELL),
    "sendto without it": ("x86_64", X86, 44, (FAST, MORE), ALLOW),
    "sendmsg": ("x86_64", X86, 46, (FAST, 0), TELL),
    "sendmsg without it": ("x86_64", X86, 46, (MORE, FAST), ALLOW),
    "sendmmsg": ("x86_64", X86, 307, (1, FAST), TELL),
    "sendmmsg without it": ("x86_64", X86, 307, (FAST, 0), ALLOW),
    "what sends a file": ("x86_64", X86, 40, (FAST, FAST), ALLOW),
    "sendto on aarch64": ("aarch64", ARM, 206, (1, FAST), TELL),
    "sendmsg on aarch64": ("aarch64", ARM, 211, (FAST, 0), TELL),
    "sendmmsg on aarch64": ("aarch64", ARM, 269, (1, FAST), TELL),
    "what sendto is elsewhere": ("aarch64", ARM, 44, (1, FAST), ALLOW),
}


@each("what", SENDS)
def test_the_filter_tells_of_each_call_that_connects_by_itself(what: str) -> None:
    """TCP Fast Open has three calls and one flag; the option of a socket that asks for it leaves `connect` to be made.

    All else that a cell sends costs it no question.
    """
    machine, architecture, number, flags, expected = SENDS[what]
    assert verdict(machine, architecture, number, 0, flags) == expected


def test_a_machine_whose_calls_are_not_known_has_no_filter() -> None:
    with pytest.raises(LookupError):
        watch.filter_program("riscv64")


# --- bait ---


class Agent:
    def __init__(self) -> None:
        self.said: list[dict[str, Any]] = []

    def event(self, op: str, **fields: Any) -> None:
        self.said.append(fields)


def bare(home: Path) -> watch.Watch:
    """Return one without its thread and its files."""
    one = object.__new__(watch.Watch)
    names = {"home": str(home), "programs": 0, "dropped": 0, "outward": 0, "metadata": 0, "last": "", "bait_laid": 0}
    names |= {"bait": [0] * len(watch.BAIT), "listener": -1, "_told": {}, "_report_at": 0.0, "_baits": {}, "_files": -1}
    names |= {"_recent": []}
    for name, value in (names | {"_libc": Libc()}).items():
        setattr(one, name, value)
    return one


class Libc:
    """inotify_add_watch, as far as it is asked."""

    def __init__(self) -> None:
        self.paths: list[bytes] = []

    def inotify_add_watch(self, files: int, path: bytes, mask: int) -> int:
        self.paths.append(path)
        return len(self.paths)


def test_bait_is_laid_where_thieves_look_and_is_nobody_s(tmp_path: Path) -> None:
    one, two = bare(tmp_path / "a"), bare(tmp_path / "b")
    one.lay_bait()
    two.lay_bait()
    for name, _ in watch.BAIT:
        first, second = (tmp_path / "a" / name).read_text(), (tmp_path / "b" / name).read_text()
        assert first != second, "each sandbox has its own, so that one that turns up somewhere tells which"
        assert "{" not in first.replace('{"type', "")
        assert (tmp_path / "a" / name).stat().st_mode & 0o777 == 0o600
    assert one.bait_laid == len(watch.BAIT)


def test_a_file_that_is_there_already_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("OWN=1")
    (tmp_path / ".ssh").symlink_to("/nowhere")
    one = bare(tmp_path)
    one.lay_bait()
    assert (tmp_path / ".env").read_text() == "OWN=1"
    assert one.bait_laid == len(watch.BAIT) - 2


def test_what_is_seen_is_told_once_and_not_often(tmp_path: Path) -> None:
    one, agent = bare(tmp_path), Agent()
    for _ in range(100):
        one.report(agent)
        one.programs += 1
    assert [said["programs"] for said in agent.said] == [0]
