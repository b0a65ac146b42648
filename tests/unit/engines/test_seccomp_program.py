"""The filter that is handed to the kernel says the same as libseccomp's of the same rules, call by call."""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import tempfile
from functools import cache
from typing import Any

import pytest

from sandbox_kernel.engines import seccomp_program as system_calls
from sandbox_kernel.engines.seccomp import (
    EPERM,
    IOCTLS,
    NEW_NAMESPACES,
    PERSONALITIES,
    WATCHED,
    WATCHED_IN_PART,
    SyscallRule,
    rules,
    rules_of_the_agent,
)
from tests.support.cases import paired

ALLOW, ERRNO, KILL_PROCESS = 0x7FFF0000, 0x00050000, 0x80000000
TRACE, USER_NOTIF = 0x7FF00000, 0x7FC00000
ARCHES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SCMP_CMP_EQ, SCMP_CMP_MASKED_EQ = 4, 7

EDGES = sorted(
    {
        *range(70),
        *IOCTLS.values(),
        *PERSONALITIES,
        0x5412,
        0xFFFFFFFF,
        *(1 << bit for bit in range(64)),
        *(1 << 32 | value for value in (0, 1, 2, 10, 16, 0x5401, 0x5412)),
        *(NEW_NAMESPACES & 1 << bit for bit in range(32)),
        0x003D0F00,
    }
)
SECOND, THIRD = (0, 1, 1024, 1 << 32 | 1030, 0x5401, 0x100005401, 0xC0502100), (0, 1, 1 << 32)


@cache
def decoded(program: bytes) -> list[tuple[int, int, int, int]]:
    return list(struct.iter_unpack("=HBBI", program))


def judge(program: bytes, number: int, arguments: tuple[int, ...], architecture: int) -> int:
    """Run classic BPF over a call, as the kernel does."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, *arguments, *(0,) * (6 - len(arguments)))
    steps = decoded(program)
    at = value = 0
    while True:
        code, true, false, constant = steps[at]
        at += 1
        if code == 0x20:
            (value,) = struct.unpack_from("=I", data, constant)
        elif code == 0x54:
            value &= constant
        elif code == 0x06:
            return int(constant)
        elif code == 0x05:
            at += constant
        else:
            met = {0x15: value == constant, 0x25: value > constant, 0x35: value >= constant}[code]
            at += true if met else false


class Compared(ctypes.Structure):
    """struct scmp_arg_cmp."""

    _fields_ = [("arg", ctypes.c_uint), ("op", ctypes.c_int), ("a", ctypes.c_uint64), ("b", ctypes.c_uint64)]


@cache
def library() -> Any:
    try:
        found = ctypes.CDLL("libseccomp.so.2")
    except OSError:
        pytest.skip("libseccomp is not there to compare with")
    found.seccomp_init.restype = ctypes.c_void_p
    return found


def exported(wanted: tuple[SyscallRule, ...], machine: str) -> bytes:
    """Return libseccomp's program for the rules."""
    known = library()
    context = ctypes.c_void_p(known.seccomp_init(ctypes.c_uint32(ERRNO | EPERM)))
    assert known.seccomp_arch_add(context, ctypes.c_uint32(ARCHES[machine])) in {0, -17}
    for other in set(ARCHES) - {machine}:
        known.seccomp_arch_remove(context, ctypes.c_uint32(ARCHES[other]))
    for rule in wanted:
        action = TRACE if rule.watched else ALLOW if rule.error is None else ERRNO | rule.error
        for name in rule.names:
            if known.seccomp_syscall_resolve_name_arch(ctypes.c_uint32(ARCHES[machine]), name.encode()) < 0:
                continue
            number = known.seccomp_syscall_resolve_name(name.encode())  # this machine's; the library translates it
            conditions = (Compared * len(rule.conditions))(
                *(
                    Compared(one.argument, SCMP_CMP_EQ, one.value, 0)
                    if one.mask is None
                    else Compared(one.argument, SCMP_CMP_MASKED_EQ, one.mask, one.value)
                    for one in rule.conditions
                )
            )
            code = known.seccomp_rule_add_array(
                context, ctypes.c_uint32(action), number, len(rule.conditions), conditions
            )
            assert code == 0, (name, code)
    with tempfile.TemporaryFile() as file:
        assert known.seccomp_export_bpf(context, file.fileno()) == 0
        file.seek(0)
        return file.read()


@pytest.mark.parametrize("machine", ARCHES)
def test_every_number_is_the_architecture_s(machine: str) -> None:
    known = system_calls.numbers(machine)
    named = {name for rule in rules_of_the_agent() for name in rule.names}
    for name in named:
        number = library().seccomp_syscall_resolve_name_arch(ctypes.c_uint32(ARCHES[machine]), name.encode())
        if number >= 0:
            assert known.get(name) == number, name
    assert set(known) <= named
    assert len(known) > 240


def test_two_calls_have_never_one_number() -> None:
    for machine in ARCHES:
        known = system_calls.numbers(machine)
        assert len(set(known.values())) == len(known)


@pytest.mark.slow
@pytest.mark.parametrize(("machine", "shared", "watched"), paired(ARCHES, [False, True], [False, True]))
def test_it_says_what_libseccomp_says(machine: str, shared: bool, watched: bool) -> None:
    if os.uname().machine not in ARCHES:
        pytest.skip("libseccomp's native architecture is none of these")
    wanted = rules(shared=shared, watched=watched)
    ours, theirs = system_calls.program(wanted, machine), exported(wanted, machine)
    newer = {
        number
        for name, number in system_calls.numbers(machine).items()
        if library().seccomp_syscall_resolve_name_arch(ctypes.c_uint32(ARCHES[machine]), name.encode()) < 0
    }
    said = set()
    for number in {*range(600), 1 << 20} - newer:
        both = {judge(program, number, (), ARCHES[machine]) for program in (ours, theirs)}
        assert len(both) == 1, number
        said |= both
    assert said == {ALLOW, ERRNO | EPERM, ERRNO | 38} | ({TRACE} if watched else set())
    conditional = {name for rule in wanted if rule.conditions for name in rule.names}
    for name in conditional:
        number = system_calls.numbers(machine)[name]
        read = {one.argument for rule in wanted if name in rule.names for one in rule.conditions}
        tried = [
            values if read & places else (0, values[-1])  # one that no rule reads has two values
            for places, values in (({0, 5}, EDGES), ({1}, SECOND), ({2}, THIRD))
        ]
        for first, second, third in itertools.product(*tried):
            arguments = (first, second, third, 0, 0, first)
            assert judge(ours, number, arguments, ARCHES[machine]) == judge(
                theirs, number, arguments, ARCHES[machine]
            ), (name, arguments)


@pytest.mark.parametrize(
    ("name", "arguments", "verdict"),
    [
        ("ioctl", (0, 0x5412), ERRNO | EPERM),
        ("ioctl", (0, 0x1_0000_5412), ERRNO | EPERM),
        ("ioctl", (0, 0x5401), ALLOW),
        ("socket", (16, 3, 0), ERRNO | 22),
        ("socket", (1, 1, 0), ALLOW),
        ("socket", (1 << 32 | 1, 1, 0), ERRNO | EPERM),
        ("clone", (0x10000000,), ERRNO | EPERM),
        ("clone", (0x003D0F00,), ALLOW),
        ("clone3", (), ERRNO | 38),
        *(("fcntl", (3, command), ALLOW) for command in (0, 3, 4, 6, 7, 1030, 1031, 1033, 1 << 32 | 1030)),
        *(("fcntl", (3, command), ERRNO | EPERM) for command in (1024, 1026, 1 << 32 | 1024, 1039, 1040, 17, 1028)),
    ],
)
def test_what_is_known_of_some_calls(name: str, arguments: tuple[int, ...], verdict: int) -> None:
    for machine, architecture in ARCHES.items():
        number = system_calls.numbers(machine)[name]
        assert judge(system_calls.program(rules(), machine), number, arguments, architecture) == verdict


@pytest.mark.parametrize(
    ("name", "flags", "alone", "shared"),
    [
        ("inotify_init1", 0, ALLOW, ERRNO | 38),
        ("inotify_add_watch", 0, ALLOW, ERRNO | 38),
        ("mincore", 0, ALLOW, ERRNO | 38),
        ("cachestat", 0, ALLOW, ERRNO | 38),
        ("preadv2", 0, ALLOW, ALLOW),
        ("preadv2", 0x2, ALLOW, ALLOW),
        ("preadv2", 0x8, ALLOW, ERRNO | 95),
        ("preadv2", 0xA, ALLOW, ERRNO | 95),
    ],
)
def test_what_shows_the_uses_of_shared_files(name: str, flags: int, alone: int, shared: int) -> None:
    given = ((alone, rules()), (shared, rules(shared=True)))
    for machine, architecture in ARCHES.items():
        number = system_calls.numbers(machine)[name]
        for verdict, wanted in given:
            program = system_calls.program(wanted, machine)
            assert judge(program, number, (0, 0, 0, 0, 0, flags), architecture) == verdict


def test_another_architecture_s_call_ends_its_process() -> None:
    program = system_calls.program(rules(), "x86_64")
    read = system_calls.numbers("x86_64")["read"]
    assert judge(program, read, (), ARCHES["x86_64"]) == ALLOW
    assert judge(program, read, (), 0x40000003) == KILL_PROCESS
    assert judge(program, read | 0x40000000, (), ARCHES["x86_64"]) == KILL_PROCESS


def test_a_machine_whose_calls_are_not_known_is_refused() -> None:
    with pytest.raises(LookupError, match="riscv64"):
        system_calls.program(rules(), "riscv64")


SEEN: list[tuple[str, tuple[int, ...]]] = [
    *((name, ()) for name in WATCHED),
    ("clone", (0x10000000,)),
    ("clone", (0x00020011,)),
    ("socket", (17, 3, 768)),
    ("socket", (40, 1, 0)),
    ("socket", (2, 2, 1)),
    ("socket", (10, 0x80803, 255)),
]
BY_THE_AGENT_ALONE: list[tuple[str, tuple[int, ...]]] = [
    ("socket", (2, 3, 6)),
    ("mknod", (0, 0o020600, 0x101)),
    ("mknodat", (0, 0, 0o060600)),
    ("setuid", (0,)),
    ("setgid", (1 << 32,)),
]
USUAL: list[tuple[str, tuple[int, ...]]] = [
    ("clone", (0x003D0F00,)),
    ("socket", (2, 0x80001, 6)),
    ("socket", (1, 3, 0)),
    ("mknod", (0, 0o010600)),
    ("mknodat", (0, 0, 0o100600)),
    ("setuid", (1000,)),
    ("seccomp", (1, 0)),
    ("bind", ()),
]


@pytest.mark.parametrize("machine", ARCHES)
def test_what_is_watched_is_left_to_nobody_by_an_engine_and_asked_about_by_the_agent(machine: str) -> None:
    known, architecture = system_calls.numbers(machine), ARCHES[machine]
    engines = system_calls.program(rules(watched=True), machine)
    agents = system_calls.program(rules_of_the_agent(), machine, asks=True)

    def said(program: bytes, cases: list[tuple[str, tuple[int, ...]]]) -> dict[tuple[str, tuple[int, ...]], int]:
        return {one: judge(program, known[one[0]], one[1], architecture) for one in cases if one[0] in known}

    assert set(said(engines, SEEN).values()) == {TRACE}
    assert set(said(agents, SEEN + BY_THE_AGENT_ALONE).values()) == {USER_NOTIF | EPERM}
    assert set(said(engines, USUAL).values()) == set(said(agents, USUAL).values()) == {ALLOW}
    assert judge(agents, known["connect"], (), architecture) == USER_NOTIF
    assert judge(agents, known["seccomp"], (1, 8), architecture) == ERRNO | EPERM, "no cell listens in its place"


@pytest.mark.parametrize("machine", ARCHES)
def test_what_is_watched_changes_nothing_else(machine: str) -> None:
    known, architecture = system_calls.numbers(machine), ARCHES[machine]
    plain, engines = (system_calls.program(rules(watched=one), machine) for one in (False, True))
    agents = system_calls.program(rules_of_the_agent(), machine, asks=True)
    conditional = {name for rule in rules() if rule.conditions for name in rule.names}
    for name, number in known.items():
        if name in {*WATCHED, *WATCHED_IN_PART, "seccomp"}:
            continue
        edges = [(edge, edge) for edge in EDGES] if name in conditional else []
        for arguments in [(), *edges]:
            verdicts = {judge(one, number, arguments, architecture) for one in (plain, engines, agents)}
            listens = name == "ioctl" and arguments and arguments[1] in {0xC0502100, 0xC0182101, 0x40082102}
            assert len(verdicts) == 1 or listens, (name, arguments)
