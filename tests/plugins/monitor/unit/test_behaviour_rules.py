"""The rules of the monitor: what counts, when a rule is met, and what an operator's table changes. Nothing runs."""

from __future__ import annotations

import gzip
import random
import tomllib
from collections.abc import Mapping

import pytest

from benchmarks.monitor import ATTACKS
from sandbox_kernel.core.codes import EndCode, FileCode, MessageCode, OutputCode
from sandbox_kernel.core.events import (
    CallsWatched,
    CallTried,
    CellRecorded,
    ConnectionEnded,
    FileNotTransferred,
    KernelEnded,
    KernelReplaced,
    MessageDropped,
    OutputRemoved,
    RequestCondemned,
    RuleMet,
    SandboxEnded,
    SessionEvent,
)
from sandbox_kernel.core.model import ProcessSample
from sandbox_kernel.plugins.monitor.behaviour_rules import (
    RULES,
    BadTable,
    Monitoring,
    MonitorRule,
    Signal,
    of_table,
)
from sandbox_kernel.plugins.monitor.codes import MonitorCode
from sandbox_kernel.plugins.monitor.monitor import (
    MAX_FINDINGS,
    MAX_KEPT,
    MAX_KNOWN,
    Pulse,
    SeenPrograms,
    Targets,
    Windows,
    heard,
)
from sandbox_kernel.plugins.monitor.ransomware import MIN_BYTES, RansomwareDetector, bits, noise
from sandbox_kernel.plugins.network.codes import NetworkCode
from tests.support.cases import each
from tests.support.events import an
from tests.support.pages import snippets

CODE = MonitorCode.MANY_DENIALS
EVENTS: dict[str, tuple[SessionEvent, set[MonitorCode]]] = {
    "a refused connection": (
        an(ConnectionEnded, code=NetworkCode.HOST_NOT_ALLOWED, host="a.test"),
        {MonitorCode.MANY_DENIALS},
    ),
    "one to a metadata service": (
        an(ConnectionEnded, code=NetworkCode.METADATA_SERVICE, host="169.254.169.254"),
        {MonitorCode.MANY_DENIALS, MonitorCode.METADATA_SOUGHT},
    ),
    "one that was allowed": (an(ConnectionEnded, code=NetworkCode.CONNECTED, host="a.test"), set()),
    "one that the host could not make": (an(ConnectionEnded, code=NetworkCode.DIAL_FAILED), set()),
    "a script that was taken out": (an(OutputRemoved, code=OutputCode.JAVASCRIPT), {MonitorCode.REMOVED_OUTPUTS}),
    "a type that is not shown": (an(OutputRemoved, code=OutputCode.TYPE_NOT_SHOWN), set()),
    "a forged parent": (an(MessageDropped, code=MessageCode.UNKNOWN_PARENT), {MonitorCode.FORGED_MESSAGES}),
    "what a dying kernel says": (an(MessageDropped, code=MessageCode.NO_KERNEL_READY), set()),
    "a late print": (an(MessageDropped, code=MessageCode.CELL_HAS_ENDED), set()),
    "a name that tools act upon": (
        an(FileNotTransferred, op="download", code=FileCode.NAME_OF_ANOTHER),
        {MonitorCode.UNFIT_FILES} if FileCode.NAME_OF_ANOTHER.severity == "violation" else set(),
    ),
    "an upload that is refused": (an(FileNotTransferred, op="upload", code=FileCode.NAME_OF_ANOTHER), set()),
    "a time limit": (an(RequestCondemned, code=EndCode.CELL_TIMEOUT), {MonitorCode.MANY_LIMITS}),
    "a cell that nobody waits for": (an(RequestCondemned, code=EndCode.CALL_CANCELLED), set()),
    "no memory": (
        an(KernelEnded, code=EndCode.OUT_OF_MEMORY),
        {MonitorCode.MANY_KERNELS, MonitorCode.MANY_LIMITS},
    ),
    "a crash": (
        an(KernelEnded, code=EndCode.KERNEL_DIED),
        {MonitorCode.MANY_KERNELS, MonitorCode.KERNELS_DIE_YOUNG},
    ),
    "a restart that was asked for": (an(KernelEnded, code=EndCode.KERNEL_RESTARTED), set()),
    "a restart": (KernelReplaced(), {MonitorCode.MANY_KERNELS}),
    "garbage": (an(SandboxEnded, code=EndCode.NOT_FRAMES), {MonitorCode.WIRE_GARBAGE}),
    "no kernel starts": (an(SandboxEnded, code=EndCode.NO_KERNEL_STARTS), {MonitorCode.KERNELS_DIE_YOUNG}),
    "idleness": (an(SandboxEnded, code=EndCode.SANDBOX_IDLE), set()),
    "a sandbox that cannot see its calls": (CallsWatched(watching=False), {MonitorCode.NOT_WATCHED}),
    "one that can": (CallsWatched(watching=True), set()),
    "a mount": (an(CallTried, call="mount", count=1), {MonitorCode.ESCAPE_TRIED}),
    "a look for passwords": (an(CallTried, call="secret", target="x", count=1), {MonitorCode.SECRET_SOUGHT}),
    "a program": (an(CallTried, call="program", target="git", count=99), set()),
    "a connection": (an(CallTried, call="connect", target="10.0.0.1:22", count=1), set()),
    "a cell": (CellRecorded(about={"status": "ok"}), set()),
    "the monitor's own word": (an(RuleMet, code=CODE), set()),
}


@each("what", EVENTS)
def test_an_event_counts_for_the_rules_that_it_is_a_sign_of(what: str) -> None:
    event, expected = EVENTS[what]
    assert {signal.code for signal in heard(event)} == expected


def test_a_host_that_a_cell_names_cannot_write_to_a_terminal() -> None:
    host = "\x1b]0;owned\x07" + "x" * 1000
    (signal,) = heard(an(ConnectionEnded, code=NetworkCode.HOST_NOT_ALLOWED, host=host))
    assert signal.what.isprintable()
    assert len(signal.what) < 200


def test_each_address_and_port_counts_once_in_the_time_of_the_rule() -> None:
    targets = Targets(60)

    def weight(target: str, now: float, count: int = 1) -> int:
        event = an(CallTried, call="connect", target=target, count=count)
        return sum(signal.weight for signal in targets.look(event, now))

    assert [weight(f"10.0.0.{number}:22", 0) for number in range(5)] == [1] * 5
    assert weight("10.0.0.1:22", 59, 1000) == 0
    assert weight("10.0.0.1:23", 59) == 1
    assert weight("10.0.0.1:22", 60) == 1
    assert weight("?", 60, 7) == 7, "each may be another one"
    targets.forget()
    assert weight("10.0.0.1:22", 61) == 1, "the next scan has the same ones"


def test_addresses_without_end_take_no_memory_without_end() -> None:
    targets = Targets(60)
    for number in range(3 * MAX_KNOWN):
        assert len(list(targets.look(an(CallTried, call="connect", target=f"x:{number}", count=1), 0))) == 1
    assert len(targets._at) <= MAX_KNOWN  # noqa: SLF001 (what is bounded is inside)


# --- the table ---


def levels(monitoring: Monitoring) -> dict[str, str]:
    return {rule.code: rule.level for rule in monitoring.rules}


def test_a_level_is_the_most_that_comes_of_any_rule() -> None:
    assert set(levels(of_table({"level": "note"})).values()) == {"note"}
    assert "kill" not in levels(of_table({"level": "alert"})).values()
    assert levels(of_table({"level": "kill"})) == {row.code.code: row.level for row in RULES}
    assert levels(of_table({"level": "off"})) == {}


def test_a_table_weighs_a_rule_and_switches_one_off() -> None:
    change = {"level": "kill", "count": 2, "seconds": 5}
    found = of_table({"level": "kill", "rules": {"many-denials": change, "many-kernels": {"level": "off"}}})
    assert MonitorRule("many-denials", "kill", 2, 5.0) in found.rules
    assert "many-kernels" not in levels(found)


BAD: dict[str, Mapping[str, object]] = {
    "has 'rule'": {"rule": {}},
    "has 'inside'": {"inside": True},
    "has '1'": {"level": "kill", 1: 2, "x": 3},  # type: ignore[dict-item]  # as a caller may write it
    "has '2' in rules.many-denials": {"rules": {"many-denials": {2: 1, "x": 2}}},
    "has level, which is none of": {"level": "loud"},
    "has rules that are no table": {"rules": []},
    "has a rule 'many-denial'": {"rules": {"many-denial": {}}},
    "has rules.many-denials, which is no table": {"rules": {"many-denials": 3}},
    "has 'weight' in rules.many-denials": {"rules": {"many-denials": {"weight": 1}}},
    "has rules.many-denials.count": {"rules": {"many-denials": {"count": True}}},
    "has rules.many-denials.seconds": {"rules": {"many-denials": {"seconds": float("nan")}}},
    "has rules.many-denials.level": {"rules": {"many-denials": {"level": None}}},
}


@pytest.mark.parametrize("why", BAD)
def test_a_table_that_is_none_says_where(why: str) -> None:
    with pytest.raises(BadTable) as caught:
        of_table(BAD[why])
    assert str(caught.value).startswith(why)


# --- counting ---


def windows(count: int = 3, seconds: float = 10.0) -> Windows:
    return Windows(Monitoring((MonitorRule(CODE.code, "alert", count, seconds),)))


def test_a_rule_is_met_by_so_much_within_its_seconds() -> None:
    many = windows()
    assert [many.take(Signal(CODE), now) is not None for now in (0, 5, 9)] == [False, False, True]


def test_what_is_further_apart_meets_no_rule() -> None:
    many = windows()
    assert not any(many.take(Signal(CODE), now) for now in range(0, 600, 5))


def test_a_rule_that_was_met_is_quiet_for_its_seconds() -> None:
    many = windows(count=1)
    found = [many.take(Signal(CODE), now) for now in (0, 1, 9, 10)]
    assert [one and one.quiet for one in found] == [False, True, True, False]


def test_a_weight_counts_as_much_as_so_many() -> None:
    finding = windows().take(Signal(CODE, 7, "x"), 0)
    assert finding is not None
    assert (finding.amount, finding.note.code) == (7, CODE)
    assert "7 refused connections in 10 s; x" in finding.note.text


def test_a_rule_that_is_off_is_never_met() -> None:
    assert windows().take(Signal(MonitorCode.MANY_LIMITS, 1000), 0) is None


def test_a_flood_of_signals_is_counted_in_bounded_memory_and_said_a_bounded_number_of_times() -> None:
    many, met = windows(count=2, seconds=1), 0
    for step in range(3 * MAX_FINDINGS):
        for _ in range(MAX_KEPT):
            finding = many.take(Signal(CODE), float(step))
            met += finding is not None and not finding.quiet
    assert met == MAX_FINDINGS


def test_signals_that_are_taken_together_are_not_forgotten_early() -> None:
    many = windows(count=10_000, seconds=1e6)
    found = [many.take(Signal(CODE), float(now)) for now in range(10_000)]
    assert [one is not None for one in found] == [False] * 9_999 + [True]


# --- processors ---


def pulse(seconds: float = 60.0) -> Pulse:
    silent, idle = MonitorCode.BUSY_IN_SILENCE.code, MonitorCode.BUSY_WITHOUT_CELL.code
    return Pulse(MonitorRule(silent, "note", 80, seconds), MonitorRule(idle, "alert", 50, seconds), 2.0)


def looks(share: float, *, running: bool, steps: int = 12, shown: int = 0) -> list[Signal]:
    """Look every 10 s at processors of which a share is busy, each look after so many more messages."""
    heart = pulse()
    found = (heart.look(10.0 * step, 20.0 * share * step, running=running, shown=shown * step) for step in range(steps))
    return [one for one in found if one is not None]


def test_a_miner_in_a_cell_and_one_that_stays_behind_are_noticed() -> None:
    assert [one.code for one in looks(1.0, running=True)] == [MonitorCode.BUSY_IN_SILENCE]
    assert [one.code for one in looks(1.0, running=False)] == [MonitorCode.BUSY_WITHOUT_CELL]


@pytest.mark.parametrize(
    ("share", "running", "shown"),
    [(0.5, True, 0), (1.0, True, 1), (0.2, False, 0)],
    ids=["one processor of two", "a cell that shows its progress", "a little between cells"],
)
def test_honest_work_is_not(share: float, running: bool, shown: int) -> None:
    assert looks(share, running=running, shown=shown) == []


def test_a_pause_begins_anew_and_an_unknown_figure_is_none() -> None:
    heart, found = pulse(), []
    used = 0.0
    for step in range(60):
        used += 0.0 if step % 5 == 0 else 20.0
        found.append(heart.look(10.0 * step, None if step % 7 == 0 else used, running=True, shown=0))
    assert found == [None] * 60


# --- files ---

TEXT = b"region,product,units\n" * 500
RANDOM = random.Random(5).randbytes(20_000)


def scramble() -> RansomwareDetector:
    given = RansomwareDetector()
    assert [given.given(f"{name}.csv", TEXT) for name in "abcd"] == [0] * 4
    return given


def test_inputs_that_are_written_over_with_noise_are_counted_once() -> None:
    files = scramble()
    assert [files.taken(f"{name}.csv", RANDOM) for name in "aabc"] == [1, 0, 1, 1]


def test_a_question_for_the_size_of_a_file_changes_nothing() -> None:
    files = scramble()
    assert files.taken("a.csv", RANDOM) == 1
    assert files.taken("a.csv", b"") == 0
    assert [files.taken(f"{name}.csv", RANDOM) for name in "bc"] == [1, 1]


def test_inputs_that_are_gone_with_noise_beside_them_are_counted() -> None:
    files = scramble()
    assert files.listed({"d.csv", "1.locked", "2.locked", "3.locked"}) == 0
    assert [files.taken(f"{number}.locked", RANDOM) for number in (1, 2, 3)] == [1, 1, 1]


HONEST: dict[str, bytes] = {
    "text": TEXT,
    "gzip": gzip.compress(RANDOM),
    "a PNG": b"\x89PNG\r\n\x1a\n" + RANDOM,
    "a film": b"\x00\x00\x00\x20ftypmp42" + RANDOM,
    "small": RANDOM[: MIN_BYTES - 1],
    "Base64-like": bytes(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ012345"[byte % 32] for byte in RANDOM),
}


@pytest.mark.parametrize("what", HONEST)
def test_what_honest_code_writes_is_no_noise(what: str) -> None:
    files = scramble()
    assert [files.taken(f"{name}.csv", HONEST[what]) for name in "abcd"] == [0] * 4
    assert files.listed({f"{name}.new" for name in "abcd"}) == 0
    assert [files.taken(f"{name}.new", HONEST[what]) for name in "abcd"] == [0] * 4


def test_noise_beside_the_inputs_and_inputs_that_are_removed_are_honest() -> None:
    files = scramble()
    assert files.taken("sample.bin", RANDOM) == 0
    assert files.removed("a.csv") == 0
    assert files.listed({"b.csv", "c.csv", "d.csv", "sample.bin"}) == 0


def test_an_input_that_was_noise_before_is_of_no_account() -> None:
    files = RansomwareDetector()
    files.given("key.bin", RANDOM)
    assert files.taken("key.bin", RANDOM[::-1]) == 0


@pytest.mark.parametrize("size", [MIN_BYTES, 4096, 20_000])
def test_random_bytes_are_noise_at_each_size_that_is_looked_at(size: int) -> None:
    assert all(noise(random.Random(seed).randbytes(size)) for seed in range(50))
    assert bits(TEXT) < 5


# --- what runs, as samples of the processes say ---


def process(identity: str = "7-1", *files: str, seconds: float = 0.0, name: str = "sleep") -> ProcessSample:
    return ProcessSample(identity, name, seconds, files)


def dropped(programs: SeenPrograms, *sample: ProcessSample) -> list[str]:
    signals = list(programs.look(sample))
    assert {signal.code for signal in signals} <= {MonitorCode.DROPPED_PROGRAM}
    return [signal.what for signal in signals]


@pytest.mark.parametrize(
    "file",
    ["/mnt/data/miner", "/home/user/miner", "/tmp/m", "/dev/shm/m", "/memfd:x (deleted)", "/mnt/data/miner (deleted)"],
)
def test_a_program_that_lies_where_cells_write_is_a_dropped_one(file: str) -> None:
    assert dropped(SeenPrograms(), process("7-1", file)) == [file]


@pytest.mark.parametrize("file", ["/usr/bin/python3.11", "/mnt/database/x", "/usr/mnt/data/x", "/tmpfs", "/"])
def test_one_of_the_image_is_none(file: str) -> None:
    assert dropped(SeenPrograms(), process("7-1", file), process("8-1")) == []


def test_what_a_loader_has_mapped_counts_as_its_program() -> None:
    assert dropped(SeenPrograms(), process("7-1", "/lib/ld-2.36.so", "/usr/lib/libc.so.6", "/tmp/m")) == ["/tmp/m"]


def test_a_program_is_said_once_and_a_later_one_of_its_number_again() -> None:
    programs = SeenPrograms()
    assert [dropped(programs, process("7-1", "/tmp/m")) for _ in range(3)] == [["/tmp/m"], [], []]
    assert dropped(programs, process("7-2", "/tmp/m")) == ["/tmp/m"]
    assert dropped(programs, process("7-2", "/tmp/n")) == ["/tmp/n"], "a process that starts another program"


def test_what_is_remembered_is_bounded() -> None:
    programs = SeenPrograms()
    for number in range(3 * MAX_KNOWN):
        assert dropped(programs, process(f"{number}-1", "/tmp/m")) == ["/tmp/m"]
    assert dropped(programs, process("0-1", "/tmp/m")) == ["/tmp/m"], "the first is forgotten"


def test_a_sandbox_whose_processes_stay_unseen_is_a_finding_once() -> None:
    programs = SeenPrograms()
    looks = [[signal.code for signal in programs.look(None)] for _ in range(5)]
    assert looks == [[], [MonitorCode.NOT_WATCHED], [], [], []]
    assert dropped(programs, process("7-1", "/usr/bin/sleep")) == []
    assert not list(programs.look(None)), "one look may fall between two kernels"
    assert [signal.code for signal in programs.look(None)] == [MonitorCode.NOT_WATCHED]


def test_those_that_used_the_processors_are_named() -> None:
    programs = SeenPrograms()
    before = [process(f"{number}-1", seconds=100.0, name=f"p{number}") for number in range(6)]
    list(programs.look(before))
    list(programs.look([one._replace(cpu_seconds=100.0 + number) for number, one in enumerate(before)]))
    assert programs.busiest == "p5, p4, p3"


def test_each_rule_has_an_attack_whose_time_is_measured() -> None:
    """`python -m benchmarks.monitor --alerts` prints it."""
    assert {attack.code for attack in ATTACKS} == {row.code.code for row in RULES}


def test_the_example_of_an_operator_s_file_is_one() -> None:
    [source] = snippets("docs/monitor.md", "toml")
    assert of_table(tomllib.loads(source)) != of_table({})
