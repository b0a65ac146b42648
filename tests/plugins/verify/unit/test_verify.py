"""What `sandbox-kernel verify` makes of what it sees and hears: verdicts, and how they are shown."""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_kernel import cli
from sandbox_kernel.config.sources import changed
from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.model import Limits, Message, Settings
from sandbox_kernel.engines.inspectable import EngineInfo
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.verify import behaviour_probes, canaries, examination, examination_report, host_inspection
from sandbox_kernel.plugins.verify.attack_program import heard, table
from sandbox_kernel.plugins.verify.differences import DIFFERENCES
from sandbox_kernel.plugins.verify.host_inspection import UNLIMITED, SandboxProcess
from sandbox_kernel.plugins.verify.probes import BY_CODE, PROBES, QUESTIONS, ProbeGroup, Where, Word
from sandbox_kernel.plugins.verify.verdicts import (
    ProbeFinding,
    ProbeVerdict,
    complete,
    failed,
    not_applicable,
    of_attacks,
    passed,
)
from sandbox_kernel.sdk.execution import Execution, ExecutionError, Logs
from sandbox_kernel.sdk.values import NetworkDenial
from sandbox_kernel.setup.install import install, values_of
from tests.support.cases import each

AIMED_ELSEWHERE = {"broadcast", "dns_lookup", "metadata_service", "multicast", "tcp_over_ipv6"}
"""Attacks that would send something to a real address where a network is."""
VALIDATOR = jsonschema.Draft202012Validator(examination_report.schema())


# --- the table -------------------------------------------------------------------------------------------------------


def test_each_probe_has_a_code_and_attacks_or_a_look_of_the_host() -> None:
    assert len(BY_CODE) == len(PROBES) > 60
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)+", probe.code) for probe in PROBES)
    assert all((probe.where is Where.HOST) == (not probe.attacks) for probe in PROBES)
    assert {name for probe in PROBES for name in probe.attacks} <= set(table()) - AIMED_ELSEWHERE
    assert set(table()) >= AIMED_ELSEWHERE


def test_the_groups_stand_in_the_order_of_the_questions() -> None:
    order = list(dict.fromkeys(probe.group for probe in PROBES))
    assert order == list(ProbeGroup) == list(QUESTIONS)


# --- what the sandbox says -------------------------------------------------------------------------------------------


@given(st.text() | st.lists(st.recursive(st.text() | st.integers(), st.lists, max_leaves=5)).map(json.dumps))
def test_whatever_a_sandbox_says_is_read(text: str) -> None:
    found = heard(text + '\n["ping", "EPERM", "no"]\n["ping", "worked", "yes"]\n' + "[" * 5000, ["ping", "io_uring"])
    assert set(found) <= {"ping", "io_uring"}
    assert all(len(word) <= 40 and len(rest) <= 300 for word, rest in found.values())


def test_of_two_answers_the_first_counts() -> None:
    assert heard('["ping", "EPERM", "no"]\n["ping", "worked", "yes"]', ["ping"]) == {"ping": ("EPERM", "no")}


def answers(code: str, word: str | None = None) -> dict[str, tuple[str, str]]:
    """Return what a sandbox says of a probe's attacks: how each must end, or all of them `word`."""
    return {name: (word or min(table()[name].refused), "") for name in BY_CODE[code].attacks}


@each("code", [probe.code for probe in PROBES if probe.attacks])
@each("gvisor", [False, True])
def test_one_attack_that_gets_out_or_says_nothing_fails_its_probe(code: str, gvisor: bool) -> None:
    probe, said = BY_CODE[code], answers(code)
    assert of_attacks(probe, table(), said, gvisor=gvisor).verdict is ProbeVerdict.PASS
    for name in probe.attacks:
        if gvisor and DIFFERENCES.get(name) == "worked":
            continue
        for other in ({**said, name: ("worked", "it")}, {one: said[one] for one in said if one != name}):
            assert of_attacks(probe, table(), other, gvisor=gvisor).verdict is ProbeVerdict.FAIL, name


def test_what_only_gvisor_s_kernel_gives_is_no_pass_and_no_failure_there() -> None:
    code = "program-setuid"
    done = of_attacks(BY_CODE[code], table(), answers(code, "worked"), gvisor=True)
    assert (done.verdict, "gVisor" in done.happened) == (ProbeVerdict.NOT_APPLICABLE, True)
    assert of_attacks(BY_CODE[code], table(), answers(code, "worked"), gvisor=False).verdict is ProbeVerdict.FAIL


def test_what_the_host_saw_is_not_taken_back() -> None:
    code = "network-host-loopback"
    for order in (1, -1):
        both = [passed(code, "nothing"), failed(code, "somebody came")][::order]
        assert complete(both, [BY_CODE[code]])[0].verdict is ProbeVerdict.FAIL
    assert complete([], [BY_CODE[code]])[0].verdict is ProbeVerdict.FAIL


# --- what the host's kernel says -------------------------------------------------------------------------------------


def process(number: int, *, user: int = 300_000_000, **status: str) -> SandboxProcess:
    lines = {"Uid": "\t".join([str(user)] * 4), "Gid": "\t".join([str(user)] * 4), "NoNewPrivs": "1", "Seccomp": "2"}
    lines |= dict.fromkeys(("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"), "0" * 16) | status
    return SandboxProcess(
        number, lines, {kind: f"{kind}:[{number}]" for kind in host_inspection.SHARED}, 500, "/usr/bin/python", ""
    )


LIMITS = Limits()
MOUNTS: list[dict[str, object]] = [
    {"path": "/", "type": "overlay", "root": "/", "options": ["ro"]},
    {"path": "/tmp", "type": "tmpfs", "root": "/", "options": ["rw"]},
]
SEEN = host_inspection.ProcessInspection(
    [process(10)], ["lo"], [], MOUNTS, {"memory": LIMITS.memory, "pids": LIMITS.pids, "cpu": 200_000}
)
BESIDE = host_inspection.ProcessInspection([process(20, user=300_000_001)])
HOST = process(1, user=0)


def judged(seen: host_inspection.ProcessInspection, *, gvisor: bool = False) -> dict[str, ProbeFinding]:
    runtime = "runsc" if gvisor else None
    return {
        one.probe.code: one for one in host_inspection.judge(seen, BESIDE, HOST, LIMITS, gvisor=gvisor, runtime=runtime)
    }


def test_a_sandbox_as_it_is_to_be_passes_and_each_finding_is_the_host_s() -> None:
    found = judged(SEEN)
    assert set(found) == set(host_inspection.OF_PROCESSES)
    assert {one.word for one in found.values()} == {Word.HOST}
    verdicts = {code for code, one in found.items() if one.verdict is not ProbeVerdict.PASS}
    assert verdicts == {"technology-kernel"}
    assert found["technology-kernel"].verdict is ProbeVerdict.NOT_APPLICABLE


def with_process(**status: str) -> host_inspection.ProcessInspection:
    return replace(SEEN, processes=[process(10), process(10, user=300_000_000, **status)])


def sharing(kind: str, other: SandboxProcess) -> host_inspection.ProcessInspection:
    spaces = {**process(10).namespaces, kind: other.namespaces[kind]}
    return replace(SEEN, processes=[replace(process(10), namespaces=spaces)])


def limited(**limits: int) -> host_inspection.ProcessInspection:
    return replace(SEEN, limits={**(SEEN.limits or {}), **limits})


WEAKER: dict[str, tuple[host_inspection.ProcessInspection, set[str]]] = {
    "root": (replace(SEEN, processes=[process(10, user=0)]), {"rights-user-of-processes"}),
    "two users": (replace(SEEN, processes=[process(10), process(10, user=300_000_009)]), {"rights-user-of-processes"}),
    "the user beside": (
        replace(SEEN, processes=[process(10, user=300_000_001)]),
        {"neighbour-namespaces"},
    ),
    "a capability": (with_process(CapBnd="2000"), {"rights-capabilities-of-processes"}),
    "capabilities that are not said": (with_process(CapPrm="3fffffffff"), {"rights-capabilities-of-processes"}),
    "new privileges": (with_process(NoNewPrivs="0"), {"rights-new-privileges"}),
    "no filter": (with_process(Seccomp="0"), {"technology-filter"}),
    "the host's network": (sharing("net", HOST), {"technology-namespaces", "neighbour-namespaces"}),
    "the neighbour's processes": (sharing("pid", BESIDE.processes[0]), {"neighbour-namespaces"}),
    "an interface": (replace(SEEN, interfaces=["lo", "eth0"]), {"network-interfaces"}),
    "a route": (replace(SEEN, routes=["eth0 00000000"]), {"network-interfaces"}),
    "a writable root": (
        replace(SEEN, mounts=[{**MOUNTS[0], "options": ["rw"]}, MOUNTS[1]]),
        {"technology-writable"},
    ),
    "a folder of the host": (
        replace(SEEN, mounts=[*MOUNTS, {"path": "/srv", "type": "ext4", "root": "/srv", "options": ["ro"]}]),
        {"technology-writable"},
    ),
    "more memory": (limited(memory=UNLIMITED), {"limit-memory-set"}),
    "more processes": (limited(pids=LIMITS.pids + 1), {"limit-processes-set"}),
    "more processors": (limited(cpu=UNLIMITED), {"limit-processors-set"}),
    "spared": (replace(SEEN, processes=[replace(process(10), oom_score=0)]), {"limit-first-to-go"}),
}


@each("case", WEAKER)
def test_what_the_host_s_kernel_says_otherwise_fails(case: str) -> None:
    seen, codes = WEAKER[case]
    assert {code for code, one in judged(seen).items() if one.verdict is ProbeVerdict.FAIL} == codes


def test_what_cannot_be_seen_is_not_guessed() -> None:
    assert {one.verdict for one in judged(host_inspection.ProcessInspection(())).values()} == {
        ProbeVerdict.NOT_APPLICABLE
    }


def test_gvisor_by_name_only_has_no_kernel_of_its_own() -> None:
    assert judged(SEEN, gvisor=True)["technology-kernel"].verdict is ProbeVerdict.FAIL
    real = replace(SEEN, processes=[replace(process(10), program="/usr/local/bin/runsc")])
    assert judged(real, gvisor=True)["technology-kernel"].verdict is ProbeVerdict.PASS


# --- outputs and ends ------------------------------------------------------------------------------------------------


def message(kind: str, content: dict[str, Any], **header: str) -> Message:
    return Message(channel="iopub", header={"msg_type": kind, "msg_id": "1", **header}, content=content)


RAW = [
    message("stream", {"name": "stdout", "text": "\x1b]0;owned\x07 shown"}),
    message("display_data", {"data": {"text/plain": "shown", "application/javascript": "alert(1)"}}),
    message("display_data", {"data": {"text/html": '<img src="http://192.0.2.1/a" onerror=x>'}}),
    message("execute_reply", {"status": "ok", "payload": [{"source": "set_next_input"}]}),
    message("stream", {"name": "stdout", "text": behaviour_probes.FORGED}),
    message("shutdown_reply", {}),
]
CLEAN = [
    message("stream", {"name": "stdout", "text": "\x1b[31mshown\x1b[0m"}),
    message(
        "display_data",
        {
            "data": {
                "text/html": '<a href="https://x.test">x</a><iframe sandbox="allow-scripts" srcdoc="'
                "&lt;meta content=&quot;default-src 'none'&quot;&gt;&lt;script&gt;1&lt;/script&gt;\"></iframe>"
            }
        },
    ),
]


def test_outputs_as_a_kernel_sends_them_fail_and_clean_ones_pass() -> None:
    assert {one.verdict for one in behaviour_probes.of_outputs(RAW, "safe")} == {ProbeVerdict.FAIL}
    assert {one.verdict for one in behaviour_probes.of_outputs(CLEAN, "safe")} == {ProbeVerdict.PASS}
    assert {one.verdict for one in behaviour_probes.of_outputs([], "safe")} == {ProbeVerdict.FAIL}, "nothing was tried"


@pytest.mark.parametrize(
    "html",
    [
        "<script>1</script>", "<a href=' java\tscript:1'>x</a>", "<iframe srcdoc='x'></iframe>", "<b ONCLICK=1>x</b>",
        "<iframe sandbox='allow-scripts allow-same-origin' srcdoc='default-src &#39;none&#39;'></iframe>",
    ],
)  # fmt: skip
def test_html_that_acts_is_seen(html: str) -> None:
    shown = [CLEAN[0], message("display_data", {"data": {"text/html": html}})]
    found = {one.probe.code: one.verdict for one in behaviour_probes.of_outputs(shown, "safe")}
    assert found["output-script"] is ProbeVerdict.FAIL


def test_trusted_outputs_are_no_pass() -> None:
    found = {one.probe.code: one.verdict for one in behaviour_probes.of_outputs(CLEAN, "trusted")}
    assert found.pop("output-forged") is ProbeVerdict.PASS
    assert set(found.values()) == {ProbeVerdict.NOT_APPLICABLE}


def ended(code: EndCode | None = None, *, by_host: bool = True, said: str = "") -> Execution:
    error = ExecutionError(name="X", value="x", from_sandbox=by_host, code=code.code if code and by_host else None)
    return Execution(error=error if code else None, logs=Logs(stdout=[said]))


def test_only_the_host_s_reason_counts_as_an_end() -> None:
    """A cell can raise an error of any name."""
    wanted = EndCode.CELL_TIMEOUT
    assert behaviour_probes.of_end("end-time", ended(wanted), wanted).verdict is ProbeVerdict.PASS
    for other in (ended(), ended(EndCode.KERNEL_DIED), ended(wanted, by_host=False)):
        assert behaviour_probes.of_end("end-time", other, wanted).verdict is ProbeVerdict.FAIL


def test_processes_without_end_end_in_the_way_of_their_runtime() -> None:
    bounded, endless = (
        ended(said='["processes_without_end", "EAGAIN", ""]'),
        ended(said='["processes_without_end", "worked", ""]'),
    )
    assert behaviour_probes.of_processes(bounded, gvisor=False).verdict is ProbeVerdict.PASS
    assert behaviour_probes.of_processes(endless, gvisor=False).verdict is ProbeVerdict.FAIL
    assert behaviour_probes.of_processes(ended(EndCode.OUT_OF_MEMORY), gvisor=False).verdict is ProbeVerdict.FAIL
    assert (
        behaviour_probes.of_processes(ended(EndCode.OUT_OF_MEMORY), gvisor=True).verdict is ProbeVerdict.NOT_APPLICABLE
    )


def test_a_host_that_no_rule_names_has_to_be_denied_by_the_host() -> None:
    denied = NetworkDenial(code="no-rule", reason="", host="192.0.2.1", port=80)
    assert examination.of_denials(Execution(denied=[denied])).verdict is ProbeVerdict.PASS
    assert examination.of_denials(Execution(denied=[replace(denied, host="192.0.2.2")])).verdict is ProbeVerdict.FAIL


def test_what_comes_into_the_folder_of_results_is_looked_at(tmp_path: Path) -> None:
    def verdict() -> ProbeVerdict:
        return examination.results(tmp_path, "marker").verdict

    assert verdict() is ProbeVerdict.FAIL, "nothing was tried"
    (tmp_path / "plain.csv").write_text("x")
    assert verdict() is ProbeVerdict.PASS
    for make in (
        lambda path: path.symlink_to("/etc/passwd"),
        lambda path: (path.write_text("x"), path.chmod(0o755)),
        lambda path: (path.write_text("x"), path.chmod(0o4644)),
    ):
        path = tmp_path / "other"
        make(path)
        assert verdict() is ProbeVerdict.FAIL
        path.unlink()
    for name in (".bashrc", "a\nb"):
        (tmp_path / name).write_text("x")
        assert verdict() is ProbeVerdict.FAIL
        (tmp_path / name).unlink()


# --- how it is shown -------------------------------------------------------------------------------------------------

HOSTILE = "<script>alert(1)</script>\x1b]0;owned\x07 \u202e\"'&"


def done(*findings: ProbeFinding) -> examination.Examination:
    info = EngineInfo(
        version="1", api_version="1", architecture="x86_64", runtimes=frozenset(), default_runtime="runc",
        seccomp=True, limited=frozenset(), cgroup_version="2", memory_bytes=1, folder="",
    )  # fmt: skip
    return examination.Examination(Settings(), info, "unix:///x", list(findings), 1.25)


SHOWN = done(passed("network-tcp", HOSTILE), not_applicable("technology-kernel", "why"), failed("leak-file", HOSTILE))


def test_the_json_has_the_form_that_its_schema_says() -> None:
    document = examination_report.to_json(SHOWN)
    VALIDATOR.validate(document)
    assert json.loads(examination_report.as_json(SHOWN))["counts"] == {"pass": 1, "fail": 1, "not-applicable": 1}
    assert [one["stopped_by"] is None for one in document["findings"]] == [False, True, True]


@pytest.mark.parametrize(
    ("path", "value"), [("exit", "0"), ("version", 2), ("more", 1), ("ended", "now"), ("counts", {})]
)
def test_the_schema_refuses_what_it_does_not_describe(path: str, value: object) -> None:
    assert not VALIDATOR.is_valid({**examination_report.to_json(SHOWN), path: value})


def test_only_a_failure_is_one() -> None:
    assert examination_report.exit_code(SHOWN) == 1
    assert examination_report.exit_code(done(passed("network-tcp", ""), not_applicable("technology-kernel", ""))) == 0


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


def test_the_page_is_one_file_without_a_script_and_all_text_is_escaped() -> None:
    page, tags = examination_report.page(SHOWN), Tags()
    tags.feed(page)
    assert not tags.tags & {"script", "link", "img", "iframe", "a", "object"}
    assert tags.attributes == {"lang", "charset", "http-equiv", "content", "class"}
    assert "&lt;script&gt;" in page
    assert "default-src 'none'" in page
    assert "\x1b" not in page
    assert "\u202e" not in page


def test_the_table_drives_no_terminal_and_names_who_says_so() -> None:
    text = examination_report.table(SHOWN)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
    assert re.search(r"FAIL +leak-file", text)
    assert "[stopped by a network namespace with a loopback only; sandbox's word]" in text
    assert "1 passed (1 of them on the sandbox's own word), 1 failed, 1 not applicable" in text


# --- the command -----------------------------------------------------------------------------------------------------


def test_the_settings_of_an_installed_kernel_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install({"memory": "1G", "runtime": "runsc"}, name="other", prefix=str(tmp_path))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share" / "jupyter"))
    assert values_of("other") == {"memory": "1G", "runtime": "runsc"}
    seen: list[Settings] = []

    async def examine(settings: Settings) -> examination.Examination:
        seen.append(settings)
        return SHOWN

    monkeypatch.setattr(examination, "examine", examine)
    assert cli.main(["verify", "--name", "other", "--memory", "512M", "--format", "html"]) == 1
    assert (seen[0].runtime, seen[0].limits.memory) == ("runsc", 512 << 20)


def test_a_kernel_that_is_not_there_or_another_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "kernels" / "foreign"
    folder.mkdir(parents=True)
    (folder / "kernel.json").write_text(json.dumps({"argv": ["python", "-m", "ipykernel"], "display_name": "x"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    for name in ("no-such-kernel", "foreign", "../x"):
        with pytest.raises(ConfigurationError, match=r"the kernel|no kernel"):
            values_of(name)


WATCHED = changed(Settings(), {"screen": "block", "monitor": object(), "audit": "/z"})


def test_small_sandboxes_are_never_larger_than_the_settings() -> None:
    limits = Limits(memory=128 << 20, scratch_size=8 << 20, tmp_size=4 << 20, shm_size=4 << 20, pids=50)
    settings = replace(WATCHED, limits=limits, uploads="/x", downloads="/y")
    small = examination.small(changed(settings, {"network": ("a.test",)}))
    assert (small.limits.memory, small.limits.pids) == (128 << 20, 50)
    assert (small.uploads, small.downloads, small.of_plugins) == (None, None, ())
    assert examination.small(Settings()).limits.memory == 256 << 20


def test_the_walls_are_tried_and_not_what_screens_or_watches(tmp_path: Path) -> None:
    assert {one.name for one in index.services(WATCHED)} == {"screen", "monitor", "record"}
    for tried in (examination.small(WATCHED), examination.as_tried(WATCHED, tmp_path)):
        assert list(index.services(tried)) == []
    reaching = examination.as_tried(changed(WATCHED, {"network": ("a.test",)}), tmp_path)
    assert [one.name for one in index.services(reaching)] == ["network"]


# --- what lies in wait -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("word", "arrived"), [("", ()), ("GET / HTTP/1.1", ()), (None, ("tcp", "udp"))])
def test_only_who_knows_the_word_has_come_from_the_sandbox(tmp_path: Path, word: str | None, arrived: object) -> None:
    with canaries.laid("1234567890abcdef", tmp_path) as laid:
        tcp, udp = (("127.0.0.1", laid.given[name]) for name in ("tcp", "udp"))
        with contextlib.ExitStack() as stack:
            for said in ("", "someone else's", laid.given["session"] if word is None else word):
                stack.enter_context(socket.create_connection(tcp)).sendall(said.encode())
                stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)).sendto(said.encode(), udp)
            assert laid.arrived() == arrived


@pytest.mark.skipif(os.getuid() != 0, reason="only root makes folders of root's")
@pytest.mark.parametrize(("owner", "mode", "left"), [(0, 0o755, 0), (0, 0o777, 1), (65534, 0o755, 1)])
def test_a_group_that_is_writable_is_left_out_where_its_folder_is_roots(
    owner: int, mode: int, left: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Docker with userns-remap has such groups in view; whoever else could write to one is seen."""
    monkeypatch.setattr(host_inspection, "PROC", tmp_path)
    group = tmp_path / "7/root/sys/fs/cgroup/memory"
    group.mkdir(parents=True)
    group.chmod(mode)
    os.chown(group, owner, owner)
    line = "30 20 0:30 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"
    (tmp_path / "7/mountinfo").write_text(line)
    assert len(host_inspection.mounts(7) or []) == left
    (tmp_path / "7/mountinfo").write_text(line.replace("cgroup/memory rw", "cgroup/memory ro"))
    assert len(host_inspection.mounts(7) or []) == 1
