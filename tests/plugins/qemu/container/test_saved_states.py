"""Machines that begin from a state: each draws by itself, is attested again, and finds nothing of another one.

Emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.container import wire
from sandbox_kernel.core.errors import AttestationFailed, EngineError
from sandbox_kernel.core.model import SandboxSpec, Settings
from sandbox_kernel.engines import shipping
from sandbox_kernel.plugins.qemu import saved_states, state_capture
from sandbox_kernel.plugins.qemu.codes import QemuCode
from sandbox_kernel.plugins.qemu.container import QemuContainer
from sandbox_kernel.plugins.qemu.engine import QemuEngine
from tests.plugins.qemu.container.test_machines import machine_of
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.plugins.qemu.engine import machine_of_tests
from tests.support.engines import ONLY, SMALL, alive, receive_line

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(1200),
]
RESTORES = int(os.environ.get("SANDBOX_KERNEL_TEST_RESTORES", "100"))

DRAWS = """
import importlib.util, json, multiprocessing, os, random, secrets, sqlite3, ssl, tempfile, time, uuid
found = {
    "random": random.random(),
    "SystemRandom": random.SystemRandom().random(),
    "secrets": secrets.token_hex(),
    "urandom": os.urandom(16).hex(),
    "OpenSSL": ssl.RAND_bytes(16).hex(),
    "SQLite": sqlite3.connect(":memory:").execute("select hex(randomblob(16))").fetchone()[0],
    "uuid1": uuid.uuid1().hex,
    "uuid4": uuid.uuid4().hex,
    "tempfile": next(tempfile._get_candidate_names()),
    "authkey": bytes(multiprocessing.current_process().authkey).hex(),
    "session": get_ipython().kernel.session.session,
}
if importlib.util.find_spec("numpy"):
    import numpy
    found.update({"numpy": numpy.random.random(), "numpy's generator": numpy.random.default_rng().random()})
if importlib.util.find_spec("polars"):
    import polars, pyarrow.compute
    found["polars"] = polars.Series(range(10**6)).sample(3).to_list()
    found["pyarrow"] = pyarrow.compute.random(1).to_pylist()
print(json.dumps({"draws": found, "time": time.time()}))
"""


def agent_s_spec() -> SandboxSpec:
    return shipping.new_spec(Settings(engine="qemu", image=machine_of_tests(), limits=SMALL))


@pytest.fixture
async def engine(tmp_path_factory: pytest.TempPathFactory) -> QemuEngine:
    """An engine that has a state, which is taken once for all tests."""
    folder = tmp_path_factory.getbasetemp() / "states"
    made = QemuEngine(folder=folder, preload=("numpy",), ahead=False)
    await made.prepare(agent_s_spec())
    return made


async def said_by_a_cell(container: QemuContainer, code: str) -> dict[str, Any]:
    """Run a cell as a session does, and return the JSON document that it prints."""
    header = {"msg_id": os.urandom(8).hex(), "msg_type": "execute_request", "session": "test", "username": "test"}
    header |= {"version": "5.3", "date": "2026-01-31T00:00:00Z"}
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    parts = [json.dumps(part).encode() for part in (header, {}, {}, content)]
    await container.send(b"".join(wire.encode(wire.SHELL, parts)))
    decoder = wire.Decoder(1 << 22)
    while data := await container.receive():
        for kind, frame in decoder.feed(data):
            if kind == wire.IOPUB and json.loads(frame[0])["msg_type"] == "stream":
                said: dict[str, Any] = json.loads(json.loads(frame[3])["text"])
                return said
    raise AssertionError(await container.wait())


async def started(engine: QemuEngine) -> tuple[QemuContainer, SandboxSpec]:
    spec = agent_s_spec()
    container = await engine.start(spec)
    await state_capture.get_ready(container, spec)
    return container, spec


async def test_no_two_of_a_hundred_draw_alike(engine: QemuEngine) -> None:
    seen: dict[str, list[object]] = {}
    late = 0.0
    for _ in range(RESTORES):
        container, _ = await started(engine)
        try:
            said = await said_by_a_cell(container, DRAWS)
        finally:
            await container.kill()
        late = max(late, time.time() - said["time"])
        for name, value in said["draws"].items():
            seen.setdefault(name, []).append(str(value))
    print(f"{RESTORES} restores, {len(seen)} kinds of draws; the clock was at most {late:.2f} s late")
    assert {name: len(values) - len(set(values)) for name, values in seen.items()} == dict.fromkeys(seen, 0)
    assert {len(values) for values in seen.values()} == {RESTORES}
    assert late < 30


DRAWS_AT_IMPORT = "multiprocessing.process"
"""A module that draws when it is imported, and that nothing tells to draw again: each process has one key of it."""


async def drawn_by_two(folder: Path) -> tuple[QemuEngine, list[str]]:
    """Return which draws two copies have in common, of a state for which a module that draws was asked for."""
    engine = QemuEngine(folder=folder, preload=(DRAWS_AT_IMPORT,), ahead=False)
    assert await engine.prepare(agent_s_spec())
    drawn = []
    for _ in range(2):
        container, _ = await started(engine)
        try:
            drawn.append((await said_by_a_cell(container, DRAWS))["draws"])
        finally:
            await container.kill()
    return engine, [name for name, value in drawn[0].items() if value == drawn[1][name]]


async def test_a_module_that_draws_is_not_kept_in_a_state(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The class: whatever draws before a copy repeats in each copy, whichever library it is.

    So nothing may draw: the machine's kernel, which hands out every random number, sees who asks for one.
    """
    engine, alike = await drawn_by_two(tmp_path)
    assert alike == []
    assert f"{QemuCode.STATE_HAS_DRAWN.text}: {DRAWS_AT_IMPORT}. Setting: preload." in caplog.text
    container, _ = await started(engine)
    try:
        said = await said_by_a_cell(
            container, f"import json, sys; print(json.dumps({{'there': {DRAWS_AT_IMPORT!r} in sys.modules}}))"
        )
    finally:
        await container.kill()
    assert said == {"there": False}


async def test_control_copies_of_a_kernel_that_has_drawn_draw_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pass_over(self: QemuContainer, modules: Sequence[str]) -> set[str]:
        return set()

    monkeypatch.setattr(QemuContainer, "drawn", pass_over)
    _, alike = await drawn_by_two(tmp_path)
    assert alike == ["authkey"]


LOADED = """
import json, os, sys
from ipykernel import get_connection_file
folder, names = os.path.dirname(get_connection_file()), ("numpy", "pexpect", "IPython.core.magics.execution")
links = [os.path.realpath("/proc/self/fd/" + name) for name in os.listdir("/proc/self/fd")]
print(json.dumps({"loaded": [name in sys.modules for name in names], "count": get_ipython().execution_count,
    "names": [name for name in get_ipython().user_ns if "gate" in name], "beside": sorted(os.listdir(folder)),
    "open": [link for link in links if link.startswith(folder + "/") and not link.rsplit("/")[-1].startswith("s-")]}))
"""


async def test_a_copy_has_loaded_what_first_cells_load_and_its_gate_is_gone(engine: QemuEngine) -> None:
    container, _ = await started(engine)
    try:
        found = await said_by_a_cell(container, LOADED)
    finally:
        await container.kill()
    assert found.pop("beside") == ["connection.json", "s-1", "s-2", "s-3", "s-4", "s-5"]
    has_numpy = "data" in os.environ.get("SANDBOX_KERNEL_TEST_IMAGE", "")
    assert found == {"loaded": [has_numpy, True, True], "count": 1, "names": [], "open": []}


async def test_a_report_of_another_claim_is_refused(engine: QemuEngine) -> None:
    spec = agent_s_spec()
    async with alive(engine.start(spec)) as container:
        decoder = wire.Decoder(1 << 22)
        reports: list[dict[str, Any]] = []
        while not reports:
            for kind, parts in decoder.feed(await container.receive()):
                said = json.loads(parts[0]) if kind == wire.AGENT else {}
                reports += [said["report"]] if said.get("op") == "hello" else []
        await container.attest(reports[0], spec)
        for nonce in ("", "0" * 32, None):
            with pytest.raises(AttestationFailed, match="nonce"):
                await container.attest({**reports[0], "nonce": nonce}, spec)
        with pytest.raises(AttestationFailed, match="user ids"):
            await container.attest({**reports[0], "uids": [spec.uid] * 3}, spec)


async def test_a_state_that_was_changed_is_refused_and_made_anew(engine: QemuEngine) -> None:
    folder, key = engine.place(agent_s_spec())
    path = folder / key / saved_states.STATE
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))
    with pytest.raises(saved_states.ChangedState, match="digest"):
        saved_states.find(folder, key)
    container = await engine.start(agent_s_spec())  # from nothing
    await container.kill()
    assert not path.exists()
    assert await engine.prepare(agent_s_spec())
    state = saved_states.find(folder, key)
    assert state is not None
    os.close(state.fd)


async def test_two_of_one_state_do_not_find_each_other(engine: QemuEngine) -> None:
    (one, first), (other, second) = await started(engine), await started(engine)
    try:
        assert first.uid != second.uid
        await said_by_a_cell(one, "open('/mnt/data/mine', 'w').write('x'); mine = 1; print('{}')")
        found = "import os; print('{\"file\": %d, \"name\": %d}' % (os.path.exists('/mnt/data/mine'), 'mine' in dir()))"
        assert await said_by_a_cell(other, found) == {"file": 0, "name": 0}
        assert await said_by_a_cell(one, found) == {"file": 1, "name": 1}
        users = {machine_of(spec.session_id).uids().real for spec in (first, second)}
        assert users == ({first.uid, second.uid} if os.geteuid() == 0 else {os.geteuid()})
    finally:
        await one.kill()
        await other.kill()


COUNTER = "import sys, time\nfor number, _ in enumerate(sys.stdin): print(number, time.time(), flush=True)"


async def test_one_that_runs_is_written_down_and_copies_go_on_from_there(tmp_path: Path) -> None:
    engine, spec = QemuEngine(), QEMU.spec(COUNTER)
    container = await engine.start(spec)
    copies: list[QemuContainer] = []
    fd = os.open(tmp_path / "state", os.O_CREAT | os.O_RDWR, 0o600)
    try:
        await container.send(b"\n")
        assert (await receive_line(container)).split()[0] == b"0"
        facts = await container.save(fd)
        assert container.paused
        await container.resume()
        await container.send(b"\n")
        assert (await receive_line(container)).split()[0] == b"1"
        for other in ({"machine": "x"}, {"memory_bytes": 1}, {"uid": 0}, {"uid": "0"}):
            with pytest.raises(EngineError):
                await engine.restore(replace(spec, session_id="other"), fd, {**facts, **other})
        for number in range(2):
            os.lseek(fd, 0, os.SEEK_SET)
            copies.append(await engine.restore(replace(spec, session_id=f"copy{number}"), fd, facts))
        for copy in copies:
            await copy.send(b"\n")
            count, there = (await receive_line(copy)).split()
            assert count == b"1"
            assert abs(float(there) - time.time()) < 30
    finally:
        os.close(fd)
        for each in (container, *copies):
            await each.kill()
