"""The engine wasm as far as it needs neither wasmtime nor the image."""

from __future__ import annotations

import asyncio
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError, EngineError, EngineUnavailable, ImageMissing
from sandbox_kernel.core.model import Inside, Limits, SandboxSpec, Settings
from sandbox_kernel.engines import select, shipping
from sandbox_kernel.plugins.wasm import engine, image
from sandbox_kernel.plugins.wasm.codes import WasmCode
from sandbox_kernel.plugins.wasm.host import Host, folder_size
from sandbox_kernel.plugins.wasm.versions import FAULTS, PINNED, faults
from tests.support import ROOT

IMAGE = image.Image("/x", "sha256:1", PINNED, "x86_64", 1 << 20, ((1, 1),), "2026-01-01", 1)


@pytest.fixture
def spec() -> SandboxSpec:
    return shipping.without_home(shipping.new_spec(Settings(engine="wasm")))


# --- versions -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", ["x86_64", "aarch64"])
def test_the_pinned_version_has_no_known_fault(machine: str) -> None:
    assert faults(PINNED, machine) == ()


def test_the_extra_installs_the_pinned_version_and_its_remedy_says_so() -> None:
    assert f'wasm = ["wasmtime=={PINNED}"]' in (ROOT / "pyproject.toml").read_text()
    assert f"`pip install wasmtime=={PINNED}`" in WasmCode.WASM_NOT_INSTALLED.remedy


@pytest.mark.skipif(find_spec("wasmtime") is not None, reason="wasmtime is installed")
def test_without_wasmtime_the_error_says_what_installs_it() -> None:
    with pytest.raises(EngineUnavailable, match=f"not installed: `pip install wasmtime=={re.escape(PINNED)}`"):
        engine.installed()


def test_the_page_has_each_fault() -> None:
    page = (ROOT / "docs" / "wasm.md").read_text()
    assert [one.advisory for one in FAULTS if f"| {one.advisory} | " not in page] == []


def test_the_version_before_has_an_escape_by_files_and_one_of_arm_s_alone() -> None:
    on = {machine: {one.advisory for one in faults("49.0.0", machine)} for machine in ("x86_64", "aarch64")}
    assert "GHSA-m9f7-9w4p-gv38" in on["x86_64"]
    assert on["aarch64"] - on["x86_64"] == {"GHSA-mghf-wjfp-p5xm"}


def test_a_version_that_cannot_be_read_has_all_faults() -> None:
    assert faults("dev", "x86_64") == FAULTS


def test_a_start_refuses_a_version_with_known_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "version", lambda name: "49.0.0")
    with pytest.raises(EngineUnavailable, match="GHSA-m9f7-9w4p-gv38"):
        engine.installed()
    monkeypatch.setattr(engine, "version", lambda name: PINNED)
    assert engine.installed() == PINNED


# --- the image ------------------------------------------------------------------------------------------------------


def an_image(folder: Path, **changed: Any) -> None:
    said = {"format": 1, "contents": "sha256:1", "wasmtime": PINNED, "machine": "x86_64", "memory_bytes": 65536}
    said |= {"bits": [[20000000, 1]], "made": "2026-01-01", "size_bytes": 1} | changed
    (folder / image.DESCRIPTION).write_text(json.dumps(said))
    for name in (image.MODULE, image.MEMORY):
        (folder / name).write_bytes(b"")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(image, "places", lambda: [str(tmp_path)])
    return tmp_path


def test_an_image_is_found_by_any_name_of_this_project_s(place: Path) -> None:
    an_image(place)
    assert image.find("sandbox-kernel:data") == image.find("sandbox-kernel:base")
    with pytest.raises(ImageMissing, match="mine"):
        image.find("mine")


def test_without_an_image_the_command_is_said(place: Path) -> None:
    with pytest.raises(ImageMissing, match="sandbox-kernel build --engine wasm"):
        image.find("sandbox-kernel:data")


@pytest.mark.parametrize("name", ["", image.DESCRIPTION, image.MODULE, image.MEMORY])
def test_an_image_that_others_could_have_changed_is_refused(place: Path, name: str) -> None:
    an_image(place)
    (place / name).chmod(0o777)
    with pytest.raises(EngineError, match="could have changed"):
        image.find("sandbox-kernel:data")


@pytest.mark.parametrize("changed", [{"format": 2}, {"bits": 7}, {"memory_bytes": None}])
def test_a_damaged_image_is_refused(place: Path, changed: dict[str, Any]) -> None:
    an_image(place, **changed)
    with pytest.raises(EngineError, match="--force"):
        image.find("sandbox-kernel:data")


# --- brokers --------------------------------------------------------------------------------------------------------


def test_a_broker_of_it_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="end with the process that started them") as refused:
        select.make_own_engine(Settings(engine="wasm"))
    assert (refused.value.code, refused.value.setting) == (UsageCode.NOT_TOGETHER, "engine")
    select.make_own_engine(Settings(engine="docker"))


# --- what no guest has ----------------------------------------------------------------------------------------------


def with_options(spec: SandboxSpec, **fields: Any) -> SandboxSpec:
    assert spec.made_of is not None
    return replace(spec, made_of=replace(spec.made_of, **fields))


def test_a_plain_session_is_taken(spec: SandboxSpec) -> None:
    engine.refuse(spec)
    assert engine.memory_of(spec) == 1 << 30


@pytest.mark.parametrize(
    ("setting", "change"),
    [
        ("runtime", lambda spec: replace(spec, runtime="runsc")),
        ("engine", lambda spec: replace(spec, command=("python3", "-c", "1"))),
        ("kernel", lambda spec: with_options(spec, kernel="bash")),
        ("network", lambda spec: with_options(spec, inside=Inside(lines=(), environment={}))),
        ("scratch", lambda spec: replace(spec, limits=Limits(scratch="disk"))),
        ("cpus", lambda spec: replace(spec, limits=Limits(cpus=0.5))),
        ("memory", lambda spec: replace(spec, limits=Limits(memory=256 << 20))),
    ],
)
def test_what_a_guest_cannot_have_is_refused_by_its_setting(spec: SandboxSpec, setting: str, change: Any) -> None:
    with pytest.raises(EngineError) as refused:
        engine.refuse(change(spec))
    assert refused.value.setting == setting


def test_auto_never_takes_it() -> None:
    assert "wasm" not in select.ORDER
    assert not select.provider("wasm").answers()


# --- what a session's process says -----------------------------------------------------------------------------------


def a_report(spec: SandboxSpec) -> dict[str, Any]:
    done = dict.fromkeys(("root of its own", "capabilities dropped", "no new privileges", "system call filter"), True)
    said = {"image": IMAGE.contents, "wasmtime": IMAGE.wasmtime, "memory": engine.memory_of(spec), "core": [0, 0]}
    size = spec.limits.scratch_size
    return {**done, **said, "scratch": size, "uids": [spec.uid] * 3, "groups": [], "environment": []}


def test_a_process_as_it_should_be_is_attested(spec: SandboxSpec) -> None:
    assert all(line.ok for line in engine.lines(a_report(spec), spec, IMAGE))


@pytest.mark.parametrize("name", ["root of its own", "system call filter", "memory", "image", "environment", "core"])
def test_what_is_missing_is_a_difference(spec: SandboxSpec, name: str) -> None:
    report = a_report(spec)
    report[name] = "none: Operation not permitted"
    assert not all(line.ok for line in engine.lines(report, spec, IMAGE))
    del report[name]
    assert not all(line.ok for line in engine.lines(report, spec, IMAGE))


def test_only_best_effort_accepts_that_nothing_stands_behind_webassembly(spec: SandboxSpec) -> None:
    report = a_report(spec) | {"root of its own": "none: Operation not permitted"}
    accepted = list(engine.lines(report, replace(spec, limits_kept="best-effort"), IMAGE))
    assert all(line.ok for line in accepted)
    assert [line.excuse for line in accepted if line.name == "root of its own"] == [engine.WEAKER]


CLOSED = """
import os, socket, sys
from sandbox_kernel.plugins.wasm import confine
def tried(what):
    try:
        what()
    except OSError as error:
        return error.errno
    return 0
def child():
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
tries = [child, lambda: socket.socket().close(), lambda: os.kill(os.getpid(), 0)]
before = [tried(one) for one in tries]
done = confine.give_up(bytes.fromhex(sys.argv[1]), 64, 1 << 20)
import threading
thread = threading.Thread(target=print, args=("a thread",)); thread.start(); thread.join()
print(before, [tried(one) for one in tries], all(done.values()))
"""


def test_a_session_s_process_starts_nothing_and_reaches_nobody() -> None:
    command = [sys.executable, "-c", CLOSED, engine.calls().hex()]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    assert said.splitlines() == ["a thread", "[0, 0, 0] [1, 1, 1] True"]


# --- what a guest sends ----------------------------------------------------------------------------------------------


class Heard(Host):
    """One that keeps what it would send."""

    def __init__(self, limit: int = 1 << 20) -> None:
        super().__init__({"max_frame": limit + 65536})
        self.sent: list[tuple[int, list[bytes]]] = []

    def send(self, kind: int, parts: list[bytes]) -> None:
        self.sent.append((kind, parts))


def a_frame(kind: int, *parts: bytes) -> bytes:
    return struct.pack(f"!BH{len(parts)}I", kind, len(parts), *map(len, parts)) + b"".join(parts)


def test_a_message_of_a_kernel_is_passed_on() -> None:
    host = Heard()
    assert host.door(b"S" + a_frame(wire.IOPUB, b"{}", b"{}", b"{}", b"{}")) == b""
    assert host.sent == [(wire.IOPUB, [b"{}"] * 4)]


@pytest.mark.parametrize(
    "frame",
    [
        a_frame(wire.AGENT, b'{"op": "kernel_exited"}', b"{}", b"{}", b"{}"),
        a_frame(wire.STREAM, b"x", b"x", b"x", b"x"),
        a_frame(wire.NESTED, b"x", b"x", b"x", b"x"),
        a_frame(99, b"{}", b"{}", b"{}", b"{}"),
        a_frame(wire.IOPUB, b"{}"),
        a_frame(wire.IOPUB, b"{}", b"{}", b"{}", b"{}")[:-1],
        a_frame(wire.IOPUB, b"{}", b"{}", b"{}", b"{}") + a_frame(wire.AGENT, b"{}"),
        struct.pack("!BH", wire.IOPUB, 65535),
        b"",
        b"\xff",
    ],
)
def test_all_else_is_dropped(frame: bytes) -> None:
    host = Heard()
    assert host.door(b"S" + frame) == b""
    assert host.sent == []


@pytest.mark.parametrize("size", [1 << 20, 1 << 24])
def test_what_is_too_large_is_told_and_not_sent(size: int) -> None:
    host = Heard(1 << 20)
    host.door(b"S" + a_frame(wire.IOPUB, b"{}", b"{}", b"{}", bytes(size)))
    ((kind, parts),) = host.sent
    assert (kind, json.loads(parts[0])["op"]) == (wire.AGENT, "oversized")


@pytest.mark.parametrize("request_", [{"path": "/etc/passwd"}, {"path": "a", "to": "/etc/x"}, {"path": "/"}])
def test_no_file_outside_of_scratch_is_served(request_: dict[str, str]) -> None:
    for op in ("file.read", "file.stat", "file.rename", "file.entries", "file.write", "file.remove"):
        reply, data = Heard().command(op, {**request_, "offset": 0, "size": 1, "depth": 1, "limit": 1}, b"")
        assert (reply["error"], data) == ("denied", b"")


def test_the_size_of_a_folder_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(8192))
    own = folder_size(str(tmp_path))
    (tmp_path / "link").symlink_to("/usr")
    assert 8192 <= own == folder_size(str(tmp_path))


# --- what is left ---------------------------------------------------------------------------------------------------


def test_what_a_killed_session_left_is_removed_and_a_living_one_keeps_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    dead = subprocess.Popen(["true"])
    dead.wait()
    left, living, other = (tmp_path / f"{engine.SPARE}{name}" for name in (dead.pid, os.getpid(), "x"))
    for folder in (left, living, other):
        (folder / "data").mkdir(parents=True)
    assert asyncio.run(engine.WasmEngine().reap()) == 1
    assert sorted(tmp_path.iterdir()) == sorted((living, other))
