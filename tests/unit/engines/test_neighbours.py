"""What the machine says of what sandboxes share, and settings that keep one off others' processors: refused or kept."""

from __future__ import annotations

import ctypes
import errno
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.config.forms import MAX_PROCESSORS, processors
from sandbox_kernel.core.codes import EndCode, NeighbourCode, UsageCode
from sandbox_kernel.core.errors import ConfigurationError, EngineError
from sandbox_kernel.core.model import Limits, SandboxSpec, Settings
from sandbox_kernel.engines import neighbours
from sandbox_kernel.engines.attestation import checks
from sandbox_kernel.engines.base import Inspection
from sandbox_kernel.engines.docker.arguments import container_arguments
from sandbox_kernel.engines.select import of_plugins, provider
from sandbox_kernel.engines.shipping import new_spec
from tests.support.cases import each

SPEC = SandboxSpec(session_id="0" * 32, image="i", limits=Limits(), command=("x",), uid=300_000_001, cpuset="0-1")
QUIET = {
    "devices/system/cpu/smt/active": "0",
    "devices/system/cpu/vulnerabilities/meltdown": "Not affected",
    "devices/system/cpu/vulnerabilities/spectre_v2": "Mitigation: Retpolines; BHI: Not affected",
    "kernel/mm/ksm/run": "0",
}
"""A machine with nothing to note but what every one has."""


def machine(monkeypatch: pytest.MonkeyPatch, folder: Path, files: dict[str, str], core: int = 0) -> dict[str, str]:
    """Return the code, or the state, of each fact on a machine with these files and this error of core scheduling."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(neighbours, "SYS", folder)
    monkeypatch.setattr(neighbours, "_prctl", lambda *_: OSError(core, os.strerror(core)) if core else None)
    return {one.name: str(one.code or one.state) for one in neighbours.facts()}


def test_a_machine_without_anything_to_note(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = machine(monkeypatch, tmp_path, QUIET)
    assert found == dict.fromkeys(found, "ok") | {"page cache": "page-cache-shared"}
    assert len(found) == len(NeighbourCode)


@pytest.mark.parametrize(("name", "text", "expected"), [
    ("devices/system/cpu/smt/active", "1", {"smt": "smt-on"}),
    ("devices/system/cpu/vulnerabilities/mds", "Vulnerable: no microcode", {"mitigations": "cpu-vulnerable"}),
    ("devices/system/cpu/vulnerabilities/mds", "Mitigation: Clear; SMT vulnerable", {"mitigations": "cpu-vulnerable"}),
    ("devices/system/cpu/vulnerabilities/mds", "Unknown: Dependent on hypervisor", {"mitigations": "cpu-vulnerable"}),
    ("kernel/mm/ksm/run", "1", {"same pages": "same-pages-merged"}),
    ("bus/virtio/drivers/virtio_balloon/virtio3", "", {"balloon": "memory-balloon"}),
])  # fmt: skip
def test_what_is_to_note_has_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, text: str, expected: dict[str, str]
) -> None:
    found = machine(monkeypatch, tmp_path, QUIET | {name: text})
    assert {one: said for one, said in found.items() if said not in {"ok", "page-cache-shared"}} == expected


@pytest.mark.parametrize(("number", "said"), [
    (errno.EINVAL, "no-core-scheduling"), (errno.ENODEV, "ok"), (errno.EPERM, "unknown"), (0, "ok"),
])  # fmt: skip
def test_core_scheduling_is_asked_of_the_kernel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int, said: str
) -> None:
    smt = {"devices/system/cpu/smt/active": "1"}
    assert machine(monkeypatch, tmp_path, QUIET | smt, number)["core scheduling"] == said
    assert machine(monkeypatch, tmp_path, QUIET, number)["core scheduling"] == "ok"  # nobody to keep off


def test_a_machine_that_says_nothing_is_unknown_and_not_well(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = machine(monkeypatch, tmp_path, {}, errno.ENOSYS)
    assert {found[name] for name in ("smt", "core scheduling", "mitigations", "same pages")} == {"unknown"}


def test_what_the_kernel_is_asked_in_the_words_of_its_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few kernels have it: this one does as admin-guide/hw-vuln/core-scheduling.rst says."""
    cookies: dict[int, int] = {}

    def prctl(*words: Any) -> int:
        option, what, pid, whom = (word.value for word in words[:4])
        assert option == 62
        if what == 1:  # PR_SCHED_CORE_CREATE takes no place
            assert (whom, words[4].value) == (1, 0)
            cookies[pid] = 0x5EED
        else:  # PR_SCHED_CORE_GET is of one thread
            assert (what, whom) == (0, 0)
            ctypes.cast(words[4], ctypes.POINTER(ctypes.c_uint64))[0] = cookies.get(pid, 0)
        return 0

    monkeypatch.setattr(ctypes, "CDLL", lambda *_, **__: SimpleNamespace(prctl=prctl))
    neighbours.keep_core(4711)
    assert (neighbours.core_of(4711), neighbours.core_of(1)) == (0x5EED, 0)


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENODEV, errno.EPERM])
def test_a_core_that_cannot_be_kept_is_a_refusal(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(neighbours, "_prctl", lambda *_: OSError(number, os.strerror(number)))
    with pytest.raises(EngineError) as refused:
        neighbours.keep_core(os.getpid())
    assert (refused.value.code, refused.value.setting) == (EndCode.ENGINE_LACKS_PROTECTION, "core_scheduling")
    assert neighbours.core_of(os.getpid()) == 0


@each("raw, read", [
    ("0-3,8", "0-3,8"), ("8, 1,0,2-3", "0-3,8"), (5, "5"), ("0,1", "0-1"), ("all", None), (None, None), ("", None),
])  # fmt: skip
def test_processors_are_written_as_the_kernel_writes_them(raw: object, read: str | None) -> None:
    assert processors("cpuset", raw) == read


@each("raw", ["3-1", "-1", "1-", "a", "1;2", "0,", f"0-{MAX_PROCESSORS}", "99999", True, 1.5, ["0"], "0-1\n/x"])
def test_what_names_no_processors(raw: object) -> None:
    with pytest.raises(ConfigurationError) as refused:
        processors("cpuset", raw)
    assert refused.value.setting == "cpuset"


def test_an_engine_that_cannot_is_refused_before_anything_starts() -> None:
    asked = {"cpuset": Settings(cpuset="0"), "core_scheduling": Settings(core_scheduling="on")}
    for engine in (provider("docker"), *of_plugins()):
        for name, settings in asked.items():
            chosen = replace(settings, engine=engine.name)
            if name in engine.keeps_apart:
                spec = new_spec(chosen)
                assert getattr(spec, name) == getattr(settings, name)
            else:
                with pytest.raises(ConfigurationError) as refused:
                    new_spec(chosen)
                assert (refused.value.code, refused.value.setting) == (UsageCode.NOT_TOGETHER, name)
    assert {one.name for one in of_plugins() if one.keeps_apart} <= {"bubblewrap", "podman"}


@each("found, ok", [("0-1", True), ("0-2", False), ("0", False), (None, False)])
def test_the_sandbox_s_word_is_compared(found: str | None, ok: bool) -> None:
    lines = [
        one for one in checks(SPEC, {"processors": found}, Inspection((), frozenset())) if one.name == "processors"
    ]
    assert [one.ok for one in lines] == [ok]
    gvisor = checks(replace(SPEC, runtime="runsc"), {"processors": found}, Inspection((), frozenset()))
    none = checks(replace(SPEC, cpuset=None), {"processors": found}, Inspection((), frozenset()))
    assert all(one.name != "processors" for one in (*none, *gvisor))


def test_docker_is_asked_for_them() -> None:
    assert container_arguments(SPEC)["HostConfig"]["CpusetCpus"] == "0-1"
    assert container_arguments(replace(SPEC, cpuset=None))["HostConfig"]["CpusetCpus"] == ""
