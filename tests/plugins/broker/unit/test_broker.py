"""What a broker reads, allows and counts: pure parts, without an engine."""

from __future__ import annotations

import configparser
import json
import os
import pwd
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import __version__
from sandbox_kernel.cli.program import parse
from sandbox_kernel.config.sources import from_keywords
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import (
    ConfigurationError,
    EngineError,
    EngineUnavailable,
    ImageMissing,
    QuotaExceeded,
    SandboxError,
)
from sandbox_kernel.core.model import GIB, Settings
from sandbox_kernel.core.package_files import installation
from sandbox_kernel.engines import broker_sockets, select
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.engines.user_ids import UID_RANGE
from sandbox_kernel.plugins.broker import create_request
from sandbox_kernel.plugins.broker.ceilings import OWN, Ceiling, Policy, load
from sandbox_kernel.plugins.broker.client import listener_trust, packets
from sandbox_kernel.plugins.broker.client.container import Given
from sandbox_kernel.plugins.broker.client.listener_trust import require_own_ground
from sandbox_kernel.plugins.broker.client.packets import digest
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.broker.usage_counters import HOUR, UsageCounters
from tests.plugins.broker.brokers import a_request, answering
from tests.support import ROOT
from tests.support.cases import each
from tests.support.kernels import eventually


def asked(**fields: Any) -> dict[str, Any]:
    """Return what a caller sends for its settings, with `fields` in place of its own."""
    sent: dict[str, Any] = json.loads(packets.packed(packets.asked(new_spec(Settings(time_zone=None)))))
    return {**sent, **fields}


# --- a request ------------------------------------------------------------------------------------------------------


def test_a_broker_makes_of_a_request_what_its_caller_would_have_made() -> None:
    """Only then is it of the same version; the number and the user id are the broker's own."""
    mine = new_spec(Settings(time_zone=None, environment=(("A", "1"),), charts=True))
    theirs = create_request.read(json.loads(packets.packed(packets.asked(mine)))).spec()
    assert digest(theirs) == digest(mine)
    assert theirs.session_id != mine.session_id
    assert theirs.uid != mine.uid
    assert UID_RANGE[0] <= theirs.uid < UID_RANGE[1]


def test_a_request_has_no_word_for_an_option_of_a_container() -> None:
    """Whatever a proper request says, of the engine's document only names and numbers that it may choose differ."""
    spec = create_request.read(asked(image="other:tag", runtime="runsc", variables=[["X", "$(id)"]])).spec()
    plain = create_request.read(asked()).spec()
    one, other = container_arguments(spec), container_arguments(plain)
    assert {name for name in one if one[name] != other[name]} <= {"Image", "User", "Entrypoint", "Labels", "HostConfig"}
    assert {name for name in one["HostConfig"] if one["HostConfig"][name] != other["HostConfig"].get(name)} <= {
        "Runtime",
        "Tmpfs",
    }


LIMITS = a_request()["limits"]
NUMBERS = sorted(set(LIMITS) - {"scratch"})


@each(
    "said",
    [
        None,
        [],
        {},
        a_request(extra=1),
        a_request(binds=["/:/host"]),
        a_request(limits={}),
        a_request(limits={**LIMITS, "swap_bytes": 1}),
        a_request(limits={**LIMITS, "pids": "256"}),
        a_request(limits={**LIMITS, "pids": True}),
        a_request(limits={**LIMITS, "memory": -1}),
        a_request(limits={**LIMITS, "memory": 1 << 60}),
        a_request(limits={**LIMITS, "cpus": float("nan")}),
        a_request(limits={**LIMITS, "cpus": 1e300}),
        a_request(limits_kept="off"),
        a_request(limits_kept=["enforced"]),
        a_request(charts="yes"),
        a_request(zone="../../etc/passwd"),
        a_request(zone=":/etc/passwd"),
        a_request(kernel="../../etc"),
        a_request(kernel=None),
        a_request(image="-v"),
        a_request(image="a b"),
        a_request(image="../x"),
        a_request(image="x" * 5000),
        a_request(image=3),
        a_request(runtime="../runc"),
        a_request(runtime=["runc"]),
        a_request(variables=[["A"]]),
        a_request(variables={"A": "1"}),
        a_request(variables=[["A", "1\0"]]),
        a_request(variables=[["A", "1"]] * 2000),
        a_request(inside={"environment": []}),
        a_request(inside=[1]),
        a_request(attached={}),
        a_request(attached=[["dataset", "a", ""]]),
        a_request(attached=[["bind", "a", "", False]]),
        a_request(attached=[["dataset", "../a", "", False]]),
        a_request(attached=[["dataset", "a/b", "", False]]),
        a_request(attached=[["dataset", "a\n", "", False]]),
        a_request(attached=[["dataset", "a", "", True]]),
        a_request(attached=[["dataset", "a", 3, False]]),
        a_request(attached=[["dataset", "a", "/a\0", False]]),
        a_request(attached=[["volume", "a", "/srv", True]]),
        a_request(attached=[["volume", "a", "", "rw"]]),
        a_request(attached=[["dataset", "a", "", False], ["dataset", "A", "", False]]),
        a_request(attached=[["dataset", f"a{number}", "", False] for number in range(33)]),
    ],
)
def test_an_improper_request_is_refused(said: object) -> None:
    with pytest.raises(SandboxError):
        create_request.read(said)


def test_a_proper_request_is_read() -> None:
    """The control of the refusals above."""
    assert create_request.read(a_request()).image == "sandbox-kernel:base"


def test_whatever_is_in_a_sandbox_is_in_the_key_of_those_that_wait() -> None:
    kinds: tuple[tuple[dict[str, Any], tuple[str, ...]], ...] = (
        ({}, ()),
        ({}, ("numpy",)),
        ({"image": "other"}, ()),
        ({"runtime": "runsc"}, ()),
        ({"charts": True}, ()),
        ({"zone": "Europe/Berlin"}, ()),
        ({"kernel": "bash"}, ()),
        ({"watch": True}, ()),
        ({"limits_kept": "best-effort"}, ()),
        *(({"limits": {**LIMITS, name: LIMITS[name] * 2, "memory": 8 * GIB}}, ()) for name in NUMBERS),
        ({"limits": {**LIMITS, "scratch": "disk"}}, ()),
    )
    keys = [create_request.read(asked(**fields)).key(preload) for fields, preload in kinds]
    assert len(set(keys)) == len(keys)
    assert create_request.read(asked()).key(()) == create_request.read(asked()).key(())


def test_what_is_for_one_session_alone_is_never_made_ahead() -> None:
    assert create_request.read(asked()).is_plain
    assert not create_request.read(asked(variables=[["TOKEN", "x"]])).is_plain
    inside: dict[str, list[str]] = {"environment": [], "lines": []}
    assert not create_request.read(asked(inside=inside)).is_plain


def test_a_packet_has_an_end() -> None:
    with pytest.raises(EngineError, match="bytes of a request"):
        packets.packed({"x": "x" * packets.MAX_BYTES})
    for data in (b"[]", b"\xff", b"{", b"[" * 100_000, b"3"):
        with pytest.raises(ValueError, match=r".*"):
            packets.unpacked(data)


# --- errors as data -------------------------------------------------------------------------------------------------


@each(
    "error",
    [
        EngineError(EndCode.ENGINE_LACKS_RUNTIME, "no runtime 'x'", setting="runtime"),
        ImageMissing(EndCode.IMAGE_MISSING, "there is no image 'x'"),
        EngineUnavailable(EndCode.ENGINE_UNAVAILABLE),
        QuotaExceeded(EndCode.QUOTA_EXCEEDED, limit="2 at once", value="2 are there", set_by="file, [all]"),
    ],
)
def test_a_caller_is_told_the_error_that_the_broker_met(error: SandboxError) -> None:
    told = packets.raised(json.loads(json.dumps(packets.refusal(error))))
    assert type(told) is type(error)
    assert str(told) == str(error)
    assert told.code is error.code


@each("said", [None, 3, {}, {"code": "no-such"}, {"code": 3, "error": "SystemExit"}])
def test_a_refusal_that_cannot_be_read_is_an_error_of_the_broker_s(said: object) -> None:
    assert packets.raised(said).code is BrokerCode.BROKER_IMPROPER


@each("uid", [0, 1000, -5, "300000001", None, 2_000_000_000, True])
def test_a_sandbox_under_a_user_s_own_number_is_not_taken(uid: object) -> None:
    said = {"id": "a", "session": "b", "uid": uid}
    with pytest.raises(ValueError, match="uid"):
        Given.read(said)


# --- ceilings -------------------------------------------------------------------------------------------------------


@each(
    ("ceiling", "fields", "setting"),
    [
        (Ceiling(images=("a:1",)), {}, "image"),
        (Ceiling(), {"image": "/some/folder"}, "image"),
        (Ceiling(runtimes=("default",)), {"runtime": "runsc"}, "runtime"),
        (Ceiling(memory=GIB), {}, "memory"),
        (Ceiling(cpus=1.0), {}, "cpus"),
        (Ceiling(pids=64), {}, "pids"),
        (Ceiling(), {"limits_kept": "best-effort"}, "limits"),
    ],
)
def test_what_is_over_a_ceiling_is_refused_with_its_setting(
    ceiling: Ceiling, fields: dict[str, Any], setting: str
) -> None:
    wanted = create_request.read(a_request(**fields))
    with pytest.raises(QuotaExceeded, match="Set by") as caught:
        ceiling.check(wanted)
    assert caught.value.setting == setting
    Ceiling(own=True, limits="best-effort").check(wanted)  # nothing but the ceiling refuses it


FILE = """\
[all]
memory = "1G"
sessions = 2

[total]
sessions = 10

[user.root]
sessions = 5
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "broker.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    return path


def test_a_user_s_table_wins_over_that_of_all(tmp_path: Path) -> None:
    policy = load(written(tmp_path, FILE))
    root, other = policy.of(0), policy.of(4_000_000_000)
    assert (root.sessions, root.memory) == (5, GIB)
    assert (other.sessions, other.memory) == (2, GIB)
    assert policy.sessions == 10
    assert root.by("sessions").endswith("[user.root]")
    assert root.by("memory").endswith("[all]")


def test_an_operator_says_how_many_are_detached_how_long_and_whose(tmp_path: Path) -> None:
    me = pwd.getpwuid(os.getuid()).pw_name
    text = f'[all]\ndetached = 2\nlifetime = "2h"\n[user.{me}]\ntakes = ["nobody"]\n'
    found = load(written(tmp_path, text)).of(os.getuid())
    assert (found.detached, found.lifetime, found.takes) == (2, 7200.0, ("nobody",))
    assert found.by("lifetime").endswith("broker.toml, [all]")
    assert load(written(tmp_path, "")).of(os.getuid()).takes == ()


@pytest.mark.parametrize(
    ("line", "number", "why"),
    [
        ('memory = "lots"', 2, "memory"),
        ("memroy = 3", 2, "memroy"),
        ('images = "a"', 2, "images"),
        ("cpus = 0", 2, "cpus"),
        ("sessions = -1", 2, "sessions"),
        ("sessions = true", 2, "sessions"),
        ('limits = "off"', 2, "limits"),
        ("own = true", 2, "own"),
        ('scratch_size = "much"', 2, "scratch_size"),
        ("scratch_total = -1", 2, "scratch_total"),
        ('datasets = ["sales"]', 2, "datasets"),
        ('datasets = { sales = "srv" }', 2, "datasets"),
        ('datasets = { "../a" = "/srv" }', 2, "datasets"),
        ("datasets = { sales = 3 }", 2, "datasets"),
        ('lifetime = "x"', 2, "lifetime"),
        ("lifetime = -1", 2, "lifetime"),
        ('lifetime = "1000h"', 2, "lifetime"),
        ("detached = -1", 2, "detached"),
        ('takes = "nobody"', 2, "takes"),
        ('takes = ["no such"]', 2, "takes"),
        ("x 3", 2, "Expected"),
        ("\n[user.no-such-user-here]\nsessions = 3", 3, "no-such-user-here"),
        ("\n[alll]\nsessions = 3", 3, "alll"),
    ],
)
def test_a_wrong_line_refuses_the_whole_file_and_is_named(tmp_path: Path, line: str, number: int, why: str) -> None:
    path = written(tmp_path, f"[all]\n{line}\n")
    with pytest.raises(ConfigurationError, match=why) as caught:
        load(path)
    assert f"line {number}" in str(caught.value)
    assert str(path) in str(caught.value)


def test_a_file_that_nests_too_deep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="the operator's file is refused"):
        load(written(tmp_path, "a = " + "[" * 20_000))


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, FILE)
    load(path)
    path.chmod(0o666)
    with pytest.raises(ConfigurationError, match="others may write"):
        load(path)


def test_a_user_s_own_broker_serves_nobody_else() -> None:
    policy = Policy(only=1000)
    policy.of(1000).check(create_request.read(a_request()))
    with pytest.raises(QuotaExceeded, match="whose own it is"):
        policy.of(1001).check(create_request.read(a_request()))


# --- counting -------------------------------------------------------------------------------------------------------


def test_sandboxes_at_once_are_counted_by_user() -> None:
    tally, policy = UsageCounters(), Policy(everybody=Ceiling(sessions=2, set_by={"sessions": "the file"}))
    tally.take(policy, 1, 0)
    tally.take(policy, 1, 0)
    with pytest.raises(QuotaExceeded, match="2 sandboxes at once") as caught:
        tally.take(policy, 1, 0)
    assert caught.value.set_by == "the file"
    tally.take(policy, 2, 0)
    tally.give_back(1)
    tally.take(policy, 1, 0)


def test_all_users_together_have_an_end() -> None:
    tally, policy = UsageCounters(), Policy(sessions=2)
    tally.take(policy, 1, 0)
    tally.take(policy, 2, 0)
    with pytest.raises(QuotaExceeded, match="of all users"):
        tally.take(policy, 3, 0)


def test_sandboxes_within_an_hour_are_counted() -> None:
    tally, policy = UsageCounters(), Policy(everybody=Ceiling(hourly=2))
    for now in (0.0, 10.0):
        tally.take(policy, 1, now)
        tally.give_back(1)
    with pytest.raises(QuotaExceeded, match="an hour"):
        tally.take(policy, 1, HOUR - 1)
    tally.take(policy, 1, HOUR + 1)


def test_a_clock_that_jumps_moves_nothing() -> None:
    """No module of the broker, nor of its caller's end, asks the clock that somebody can set."""
    for folder in ("broker", "engines/broker"):
        for path in (ROOT / "sandbox_kernel" / folder).glob("*.py"):
            assert "time.time" not in path.read_text(encoding="utf-8")


# --- who listens ----------------------------------------------------------------------------------------------------


def test_a_broker_in_a_folder_in_which_others_may_write_is_not_believed(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    path = str(tmp_path / "broker.sock")
    require_own_ground(path, os.geteuid())
    tmp_path.chmod(0o777)
    with pytest.raises(EngineUnavailable, match="others may write"):
        require_own_ground(path, os.geteuid())


def test_another_user_who_listens_in_a_folder_of_this_one_is_not_believed(tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="another user"):
        require_own_ground(str(tmp_path / "broker.sock"), 4321)


DOCKERS = "unix:///the/engine.sock"


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes | None]]:
    """What this user's own broker answers to one question after another: None is a connection that ends."""
    tmp_path.chmod(0o700)
    path, answers = str(tmp_path / "own.sock"), list[bytes | None]()
    monkeypatch.setattr(broker_sockets, "own", lambda: path)
    monkeypatch.setattr(broker_sockets, "OPERATORS", str(tmp_path / "none"))
    monkeypatch.setattr("sandbox_kernel.engines.docker.discovery.answers", lambda: True)
    monkeypatch.setattr(
        "sandbox_kernel.engines.docker.discovery.socket_path", lambda url: DOCKERS.removeprefix("unix://")
    )

    def answer(asked: bytes) -> bytes | None:
        return answers.pop(0) if packets.unpacked(asked)["op"] == "status" else None

    with answering(path, answer):
        yield answers


def says(**fields: Any) -> bytes:
    return packets.packed({"n": 1, "version": __version__, "engine": DOCKERS, **fields})


def test_a_session_takes_the_user_s_own_broker_where_it_has_the_same_engine(own: list[bytes | None]) -> None:
    auto = Settings()
    own += [says(package=installation())] * 2
    assert select.of_session(auto).engine == f"broker://{broker_sockets.own()}"
    assert "this user's own" in select.explained(auto)
    for named in ("docker", "bubblewrap", "qemu", "unix:///x.sock", "broker"):  # nobody is asked
        assert select.of_session(Settings(engine=named)).engine == named
    assert select.chosen(auto) == "docker"  # what people look after
    assert not own


STRANGE: dict[str, bytes | None] = {
    "another version": says(version="0.0.1"),
    "another installation": says(package="0" * 64),
    "another engine": says(engine="bubblewrap"),
    "no engine": packets.packed({"n": 1, "version": __version__}),
    "an end": None,
    "nothing": b"",
    "no JSON": b"\xff{",
    "no object": b"[1]",
    "depth": b"[" * 60_000,
    "more than a packet": b" " * (packets.MAX_BYTES + 1000) + says(),
}


@pytest.mark.parametrize("answer", STRANGE)
def test_an_own_broker_that_does_not_fit_is_not_taken(own: list[bytes | None], answer: str) -> None:
    own += [STRANGE[answer], *[says()] * 50]
    begin = time.monotonic()
    assert select.of_session(Settings()).engine == "auto"
    assert time.monotonic() - begin < 5  # it is not waited for
    # The control: it is asked again, and taken as soon as it answers in time, which it may not where much else runs.
    eventually(lambda: select.of_session(Settings()).engine != "auto", 20, "the next answer is taken")


def test_an_own_broker_that_has_gone_or_lies_open_to_others_is_not_taken(
    tmp_path: Path, own: list[bytes | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    own.append(says())
    tmp_path.chmod(0o777)
    assert select.of_session(Settings()).engine == "auto"
    tmp_path.chmod(0o700)
    assert select.of_session(Settings()).engine != "auto"  # control
    (left := tmp_path / "left.sock").touch()
    monkeypatch.setattr(broker_sockets, "own", lambda: str(left))
    assert select.of_session(Settings()).engine == "auto"
    monkeypatch.setattr(broker_sockets, "own", lambda: str(tmp_path / "none.sock"))
    assert select.of_session(Settings()).engine == "auto"


def test_auto_takes_the_operator_s_broker_where_it_answers_and_a_broker_takes_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for answers, taken in ((True, {"broker"}), (False, {"docker", "bubblewrap"})):
        monkeypatch.setattr(broker_sockets, "operators_is_there", lambda: True)
        monkeypatch.setattr(listener_trust, "operators_answers", lambda answers=answers: answers)
        assert select.chosen(Settings()) in taken
        assert select.chosen(Settings(engine="docker")) == "docker"
        assert not select.make_own_engine(Settings()).address.startswith("broker")
    with pytest.raises(ConfigurationError, match="an engine of its own"):
        select.make_own_engine(Settings(engine="broker"))


def test_a_broker_has_an_engine_of_its_machine_and_is_asked_there() -> None:
    with pytest.raises(ConfigurationError, match="an engine of its machine"):
        select.make_own_engine(Settings(engine="kubernetes"))
    with pytest.raises(ConfigurationError, match="engine is not"):
        from_keywords(engine="broker://localhost:7443")
    assert from_keywords(engine="broker:///run/broker.sock").engine == "broker:///run/broker.sock"


# --- datasets and disks -----------------------------------------------------------------------------------------------


def test_datasets_are_those_of_the_table_that_wins(tmp_path: Path) -> None:
    text = '[all]\ndatasets = { a = "/srv/a" }\n[user.root.datasets]\nb = "/srv/b"\n'
    policy = load(written(tmp_path, text))
    root, other = policy.of(0), policy.of(4_000_000_000)
    of_a, of_b = (create_request.read(a_request(attached=[["dataset", name, "", False]])) for name in "ab")
    assert [one.source for one in other.grant(of_a, 7).attached] == ["/srv/a"]
    assert [one.source for one in root.grant(of_b, 0).attached] == ["/srv/b"]
    assert other.grant(of_a, 7).spec().reader == 7
    for ceiling, order, table in ((other, of_b, "[all]"), (root, of_a, "[user.root]")):
        with pytest.raises(QuotaExceeded) as caught:
            ceiling.grant(order, 7)
        assert (caught.value.code, caught.value.setting) == (BrokerCode.BROKER_DENIED, "datasets")
        assert caught.value.set_by.endswith(table)


@pytest.mark.parametrize("source", ["/srv/a", "/etc"])
def test_a_folder_is_refused_by_a_code_unless_the_broker_is_one_s_own(tmp_path: Path, source: str) -> None:
    order = create_request.read(a_request(attached=[["dataset", "a", source, False]]))
    policy = load(written(tmp_path, '[all]\ndatasets = { a = "/srv/a" }\n'))
    for uid in (0, 4_000_000_000):
        with pytest.raises(QuotaExceeded) as caught:
            policy.of(uid).grant(order, uid)
        assert caught.value.code is BrokerCode.BROKER_NO_PATHS
    assert [one.source for one in OWN.grant(order, 7).attached] == [source]


def test_a_file_that_says_nothing_allows_no_disk_no_dataset_and_no_volume(tmp_path: Path) -> None:
    ceiling = load(written(tmp_path, "[all]\nsessions = 3\n")).everybody
    wanted: tuple[dict[str, Any], ...] = (
        {"limits": {**LIMITS, "scratch": "disk"}},
        *({"attached": [[kind, "a", "", False]]} for kind in KINDS),
    )
    for said in wanted:
        with pytest.raises(QuotaExceeded) as caught:
            ceiling.grant(create_request.read(a_request(**said)), 7)
        assert caught.value.code is BrokerCode.BROKER_DENIED


KINDS = ("dataset", "volume")


def test_a_sandbox_with_data_is_not_made_ahead_and_one_with_a_disk_may_be() -> None:
    with_disk, without = (
        create_request.read(a_request(limits={**LIMITS, "scratch": one})) for one in ("disk", "memory")
    )
    assert (with_disk.is_plain, without.is_plain) == (True, True)
    assert with_disk.key(()) != without.key(())
    for kind in KINDS:
        assert not create_request.read(a_request(attached=[[kind, "a", "", False]])).is_plain


# --- what an operator installs ----------------------------------------------------------------------------------------


def test_the_file_that_is_shipped_is_in_order(tmp_path: Path) -> None:
    shipped = (ROOT / "system" / "broker.toml").read_text(encoding="utf-8")
    policy = load(written(tmp_path, shipped))
    policy.of(4_000_000_000).check(create_request.read(a_request(image="sandbox-kernel:data")))
    with pytest.raises(QuotaExceeded):
        policy.of(4_000_000_000).check(create_request.read(a_request(image="other:1")))


def test_the_unit_that_is_shipped_takes_every_right_it_can_do_without() -> None:
    """And starts the command that there is, and leaves alone what outlives the broker."""
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(ROOT / "system" / "sandbox-kernel-broker.service")
    service = unit["Service"]
    for name in ("ExecStart", "ExecStartPre"):
        program, *words = service[name].split()
        assert program.endswith("/sandbox-kernel")
        assert parse(words).command == "broker"
    assert service["KillMode"] == "process"
    assert service["User"] == "sandbox-kernel"
    for name in ("NoNewPrivileges", "ProtectHome", "PrivateTmp", "PrivateDevices", "ProtectKernelTunables"):
        assert service[name] == "yes"
    assert service["CapabilityBoundingSet"] == ""
    assert service["RestrictAddressFamilies"] == "AF_UNIX"
    folder = broker_sockets.OPERATORS.rpartition("/")[0]
    assert service["ReadWritePaths"] == folder
    assert f"d {folder} 0755 sandbox-kernel" in (ROOT / "system" / "sandbox-kernel.tmpfiles.conf").read_text()
