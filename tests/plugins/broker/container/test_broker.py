"""A broker in front of a real engine: sandboxes that are ready, whose they are, and what hostile callers get."""

from __future__ import annotations

import array
import asyncio
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import AttestationFailed, EngineError, EngineUnavailable, QuotaExceeded
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.engines import broker_sockets
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.shipping import new_spec
from sandbox_kernel.plugins.broker.client import listener_trust, packets
from sandbox_kernel.plugins.broker.client.container import BrokerContainer
from sandbox_kernel.plugins.broker.client.engine import BrokerEngine
from sandbox_kernel.plugins.broker.codes import BrokerCode
from tests.plugins.broker.brokers import Daemon, a_broker, gone
from tests.support import ROOT
from tests.support.engines import IMAGE, alive
from tests.support.kernels import Kernel
from tests.support.patience import until, within
from tests.support.process_lines import check_kernels

DRAWS = """
import random, uuid, ssl, secrets
print(random.random(), uuid.uuid1(), uuid.uuid4(), ssl.RAND_bytes(8).hex(), secrets.token_hex(8), hash("x"))
"""


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One broker that keeps a sandbox ready."""
    with a_broker("--pool", "1", "--sessions", "3") as daemon:
        yield daemon


@pytest.fixture
def engine(daemon: Daemon) -> BrokerEngine:
    return daemon.engine()


def sandbox(daemon: Daemon, **settings: Any) -> AsyncSandbox:
    return AsyncSandbox(engine=daemon.address, image=IMAGE, **settings)


def spec() -> Any:
    return new_spec(Settings(image=IMAGE))


async def warm_one(daemon: Daemon, *, plain: bool = False) -> list[str]:
    """Have a sandbox made ahead, of the SDK's kind or of that of `spec`; return its container."""
    engine = daemon.engine()
    before = {row.container for row in await engine.list()}
    if plain:
        await (await engine.start(spec())).kill()
    else:
        async with sandbox(daemon):
            pass
    async with within(60):
        while not (waiting := await daemon.waiting()) or before & set(waiting):  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.05)
    return waiting


# --- sandboxes that are ready -----------------------------------------------------------------------------------------


async def test_the_second_sandbox_was_ready_and_is_like_the_first(daemon: Daemon, engine: BrokerEngine) -> None:
    seen = []
    async with sandbox(daemon) as cold:
        seen.append((await cold.run_code("print(sorted(dir()), In[-2:])")).text)
    waiting = await daemon.waiting()
    async with sandbox(daemon) as warm:
        assert [row.container for row in await engine.list() if row.state == "running"] == waiting
        seen.append((await warm.run_code("print(sorted(dir()), In[-2:])")).text)
    assert seen[0] == seen[1]
    await gone(*waiting)


async def test_words_of_processes_say_what_each_is_where_a_sandbox_waited(daemon: Daemon, engine: BrokerEngine) -> None:
    waiting = await warm_one(daemon)
    async with sandbox(daemon) as warm:
        assert {row.container for row in await engine.list() if row.state == "running"} == set(waiting)
        await check_kernels(warm)


async def test_two_claims_never_draw_alike(daemon: Daemon, engine: BrokerEngine) -> None:
    drawn: list[set[str]] = []
    for _ in range(2):
        waiting = await warm_one(daemon)
        async with sandbox(daemon) as warm:
            assert {row.container for row in await engine.list() if row.state == "running"} == set(waiting)
            drawn.append(set("".join((await warm.run_code(DRAWS)).logs.stdout).split()))
    assert len(drawn[0]) == len(drawn[1]) == 6
    assert not drawn[0] & drawn[1]


async def test_nothing_of_one_session_reaches_the_next(daemon: Daemon, engine: BrokerEngine) -> None:
    """A hostile cell in a sandbox that was ready: what it leaves ends with it, and the next one is another."""
    first = await warm_one(daemon)
    async with sandbox(daemon) as one:
        code = "left = [open(path, 'w').write('x') for path in ('/tmp/left', '/mnt/data/left')]"
        assert (await one.run_code(code)).error is None
        second = await daemon.waiting()
    async with sandbox(daemon) as other:
        look = "import os; print(os.path.exists('/tmp/left'), os.path.exists('/mnt/data/left'), 'left' in dir())"
        assert "".join((await other.run_code(look)).logs.stdout) == "False False False\n"
    assert not set(first) & set(second)
    await gone(*first, *second)


async def test_a_claim_is_attested_again_with_a_nonce_of_the_caller_s(daemon: Daemon, engine: BrokerEngine) -> None:
    """A report that was made before the claim, or for another one, is refused."""
    await warm_one(daemon, plain=True)
    wanted = spec()
    async with alive(engine.start(wanted)) as container:
        assert container.is_warm
        report = await hello(container)
        await container.attest(report, wanted)
        for stale in ({**report, "nonce": secrets.token_hex(16)}, {k: v for k, v in report.items() if k != "nonce"}):
            with pytest.raises(AttestationFailed, match="nonce of the claim"):
                await container.attest(stale, wanted)


async def hello(container: BrokerContainer) -> dict[str, Any]:
    """Return the report with which a sandbox introduces itself."""
    from sandbox_kernel.container import wire

    decoder = wire.Decoder(1 << 22)
    async with within(30):
        while True:
            for kind, parts in decoder.feed(await container.receive()):
                if kind == wire.AGENT and (said := json.loads(parts[0]))["op"] == "hello":
                    report: dict[str, Any] = said["report"]
                    return report


LOOK = """
print(sorted(dir()))
import matplotlib, numpy, pandas, matplotlib.pyplot as plt
print(matplotlib.get_backend(), plt.isinteractive(), plt.get_fignums(), len(pandas.describe_option(_print_desc=False)))
print({key: value for key, value in matplotlib.rcParams.items() if value != matplotlib.rcParamsDefault[key]})
print(pandas.get_option("display.max_rows"), pandas.get_option("plotting.backend"), numpy.get_printoptions())
print(sorted(get_ipython().magics_manager.magics["line"]), get_ipython().events.callbacks)
from dateutil.tz import tzlocal
from packaging.version import Version
print(isinstance(tzlocal(), tzlocal), isinstance(Version("1.0"), Version))
print(pandas.Timestamp("2024-01-01", tz=tzlocal()).tz_convert("UTC"), pandas.tseries.frequencies.to_offset("D"))
"""
AGAIN = """
import sys, importlib
for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
    del sys.modules[name]
import json, random, numpy
importlib.reload(json), importlib.reload(random)
print(numpy.random.random(), numpy.random.default_rng().random(), numpy.linalg.solve([[2.0]], [4.0])[0])
"""


async def test_a_kernel_that_has_imported_modules_behaves_as_one_that_has_not() -> None:
    """Nor do two of them draw alike."""
    names = ("numpy", "pandas", "matplotlib.pyplot", "no_such_module")
    said, drawn = [], []
    with a_broker("--pool", "1", "--preload", *names) as daemon:
        for step in range(2):
            async with AsyncSandbox(engine=daemon.address, image="sandbox-kernel:data") as one:
                before = await one.run_code("import sys; print('pandas' in sys.modules); del sys")
                assert "".join(before.logs.stdout) == f"{step > 0}\n"
                looked = await one.run_code(LOOK)
                said.append(re.sub(r"0x[0-9a-f]+", "0x", "".join(looked.logs.stdout)))
                assert looked.error is None
                again = await one.run_code(AGAIN)
                assert again.error is None
                drawn.append("".join(again.logs.stdout).split())
                plot = await one.run_code("%matplotlib inline\nplt.plot([1, 2]);")
                assert [result.png is not None for result in plot.results] == [True]
            if step < 1:
                await daemon.waiting()
    assert said[0] == said[1]
    assert [row[2] for row in drawn] == ["2.0"] * 2
    assert len({row[0] for row in drawn}) == len({row[1] for row in drawn}) == 2


async def test_a_restart_in_a_sandbox_that_was_ready_imports_nothing_again() -> None:
    """Its first kernel did while it waited. The next one has somebody who waits for it."""
    asked = "import sys; print('wave' in sys.modules)"
    with a_broker("--pool", "1", "--preload", "wave") as daemon:
        await warm_one(daemon)
        async with AsyncSandbox(engine=daemon.address, image=IMAGE) as one:
            assert "".join((await one.run_code(asked)).logs.stdout) == "True\n"
            await one.restart()
            assert "".join((await one.run_code(asked)).logs.stdout) == "False\n"


async def test_other_settings_are_a_cold_start_and_no_error(daemon: Daemon, engine: BrokerEngine) -> None:
    waiting = await warm_one(daemon)
    async with sandbox(daemon, memory="1G") as other:
        assert (await other.run_code("1 + 1")).text == "2"
        running = {row.container for row in await engine.list() if row.state == "running"}
    assert not running & set(waiting)


async def test_one_that_ended_while_it_waited_is_nobody_s(daemon: Daemon, engine: BrokerEngine) -> None:
    """A claim that fails falls back to a start."""
    waiting = await warm_one(daemon)
    await DockerEngine().request("POST", f"/containers/{waiting[0]}/kill?signal=KILL")
    async with sandbox(daemon) as other:
        assert (await other.run_code("1 + 1")).text == "2"


# --- ends -------------------------------------------------------------------------------------------------------------


async def test_a_broker_that_is_killed_takes_nobody_s_sandbox_along() -> None:
    """The session goes on, what was ready is gone, and the next start says what is wrong."""
    with a_broker("--pool", "1") as daemon:
        async with sandbox(daemon) as running:
            await running.run_code("kept = 41")
            waiting = await daemon.waiting()
            daemon.kill()
            begin = time.monotonic()
            await gone(*waiting)
            print(f"what was ready is gone after {time.monotonic() - begin:.2f} s")
            assert (await running.run_code("kept + 1")).text == "42"
            with pytest.raises(EngineUnavailable) as caught:
                await daemon.engine().start(spec())
            assert caught.value.code is BrokerCode.BROKER_UNAVAILABLE
            mine = [row for row in await DockerEngine().list() if row.owner_pid == os.getpid()]
            assert len(mine) == 1
        await gone(mine[0].container)


async def test_a_broker_that_stops_leaves_what_callers_have() -> None:
    with a_broker("--pool", "1") as daemon:
        async with sandbox(daemon) as running:
            await running.run_code("kept = 41")
            waiting = await daemon.waiting()
            daemon.process.terminate()
            assert await asyncio.to_thread(daemon.process.wait, 20) == 0
            await gone(*waiting)
            assert (await running.run_code("kept + 1")).text == "42"


def test_a_kernel_keeps_its_files_over_a_restart_and_leaves_nothing(
    daemon: Daemon, start_kernel: Callable[..., Kernel]
) -> None:
    """The pipe goes from one process to the next, and the broker learns whose it is."""
    kernel = start_kernel("--engine", daemon.address, "--image", IMAGE)
    kernel.run("open('kept', 'w').write('x'); gone = 1")
    [before] = [row for row in asyncio.run(daemon.engine().list()) if row.state == "running"]
    assert before.owner_pid == kernel.pid
    kernel.manager.restart_kernel()
    assert kernel.run("open('kept').read(), 'gone' in dir()").value == "('x', False)"
    [after] = [row for row in asyncio.run(daemon.engine().list()) if row.state == "running"]
    assert after.container == before.container
    assert after.owner_pid == kernel.pid != before.owner_pid
    os.kill(kernel.pid, signal.SIGKILL)
    asyncio.run(gone(after.container))


async def test_what_was_handed_over_can_be_paused_as_before(engine: BrokerEngine) -> None:
    given = (await engine.start(spec())).detach()
    async with alive(engine.adopt(given.fd, {**given.state, **given.beside})) as adopted:
        await adopted.pause()
        assert adopted.paused
        await adopted.resume()


async def test_the_first_session_starts_the_user_s_own_broker_and_all_share_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two that come at the same time get one; it is nobody's child, and answers only this user."""
    path = str(tmp_path / "state" / "broker.sock")
    monkeypatch.setattr(broker_sockets, "OPERATORS", str(tmp_path / "none"))
    monkeypatch.setattr(broker_sockets, "own", lambda: path)
    with pytest.raises(EngineUnavailable):  # a question starts nothing
        await BrokerEngine().status()
    try:
        one = AsyncSandbox(engine="broker", image=IMAGE)
        two = AsyncSandbox(engine="broker", image=IMAGE, limits="best-effort")  # its user's word, as without a broker
        async with one, two:
            assert (await one.run_code("1 + 1")).text == (await two.run_code("1 + 1")).text == "2"
            assert (await BrokerEngine().status())["yours"] == 2
            with connected(path) as sock:
                process = psutil.Process(listener_trust.peer(sock).pid)
            assert process.ppid() != os.getpid()
            assert Path(path).stat().st_mode & 0o777 == 0o600  # noqa: ASYNC240 (of a test)
    finally:
        with connected(path) as sock:
            process = psutil.Process(listener_trust.peer(sock).pid)
        process.terminate()
        await asyncio.to_thread(process.wait, 20)


async def test_a_line_of_ps_is_found_in_the_audit_of_whose_it_is(
    daemon: Daemon, engine: BrokerEngine, tmp_path: Path
) -> None:
    audit = tmp_path / "audit.jsonl"
    async with sandbox(daemon, audit=str(audit)) as one:
        await one.run_code("1 + 1")
        known = {row.container for row in await engine.list()}
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
    [attested] = [line for line in lines if line["event"] == "attested"]
    assert attested["session"] == one.id
    assert [name for name in known if name and attested["container"].startswith(name)]


# --- callers ----------------------------------------------------------------------------------------------------------


def connected(path: str) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.connect(path)  # it waits for its turn
    sock.settimeout(30)
    return sock


def asking(**fields: Any) -> bytes:
    wanted = spec()
    said = {
        "op": "start",
        "n": 1,
        "protocol": packets.VERSION,
        "agent": packets.digest(wanted),
        "spec": packets.asked(wanted),
    }
    return json.dumps({**said, **fields}).encode()


async def started(daemon: Daemon) -> tuple[socket.socket, dict[str, Any], int]:
    """Return a connection that has a sandbox, what was said of it, and its pipe."""
    sock = connected(daemon.path)
    sock.send(asking())
    data, fds, _, _ = await asyncio.to_thread(socket.recv_fds, sock, packets.MAX_BYTES, 1)
    return sock, json.loads(data), fds[0]


async def test_a_caller_over_its_ceiling_is_told_the_limit_and_who_set_it(daemon: Daemon, engine: BrokerEngine) -> None:
    """One that holds claims and never uses them stands in nobody's way but its own."""
    await daemon.until(all=0)
    held = [await engine.start(spec()) for _ in range(3)]
    try:
        with pytest.raises(QuotaExceeded, match="3 sandboxes at once") as caught:
            await engine.start(spec())
        assert caught.value.value == "3 are there"
        assert caught.value.set_by
    finally:
        for one in held:
            await one.kill()


async def test_garbage_is_hung_up_on_and_nobody_else_notices(daemon: Daemon, engine: BrokerEngine) -> None:
    for data in (
        b"\xff\x00",
        b"[]",
        b"{}",
        b"[" * 60_000,
        b'{"op": "start"}',
        b'{"op": ["start"], "n": 1}',
        b'{"op": "exec", "n": 1}',
        b'{"op": "start", "n": "1"}',
        b'{"op": "look", "n": true}',
        b"x" * (packets.MAX_BYTES + 1),
    ):
        with connected(daemon.path) as sock:
            sock.send(data)
            assert await asyncio.to_thread(sock.recv, packets.MAX_BYTES) == b""
    assert (await engine.status())["pool"] == 1


@pytest.mark.parametrize(
    "said",
    [
        {"spec": None},
        {"spec": {}},
        {"spec": {**packets.asked(spec()), "binds": ["/:/host"]}},
        {"agent": "x"},
        {"protocol": 99},
        {"op": "look"},
        {"op": "kill"},
        {"op": "adopt"},
        {"op": "image", "image": 3},
    ],
)
async def test_an_improper_request_is_answered_with_a_refusal(daemon: Daemon, said: dict[str, Any]) -> None:
    with connected(daemon.path) as sock:
        sock.send(asking(**said))
        answer = json.loads(await asyncio.to_thread(sock.recv, packets.MAX_BYTES))
        assert answer["refused"]["code"] in {
            "broker-improper",
            "broker-other-version",
            "image-missing",
        }


async def test_files_that_a_caller_sends_along_are_not_taken(daemon: Daemon) -> None:
    place = Path(f"/proc/{daemon.process.pid}/fd")
    before = len(os.listdir(place))  # noqa: PTH208 (descriptors, and not files)
    for _ in range(20):
        with connected(daemon.path) as sock:
            fds = array.array("i", [sock.fileno()] * 100)
            sock.sendmsg([asking(op="status")], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
            assert await asyncio.to_thread(sock.recv, packets.MAX_BYTES) == b""
    # A sandbox that is made ahead meanwhile has some; one of each that was sent would be twenty.
    await until(lambda: len(os.listdir(place)) <= before + 10, 10)  # noqa: PTH208 (as above)


async def test_a_thousand_connections_are_too_many_and_others_are_served_then(
    daemon: Daemon, engine: BrokerEngine
) -> None:
    held: list[socket.socket] = []
    try:
        held.extend(connected(daemon.path) for _ in range(1000))
        # Those that are served wait for a request; the others were told why they are not.
        refused = [json.loads(sock.recv(9999))["refused"]["code"] for sock in held[128:]]
        assert refused == ["broker-busy"] * (1000 - 128)
    finally:
        for sock in held:
            sock.close()
    async with within(10):
        while True:
            try:
                assert (await engine.status())["pool"] == 1
                break
            except EngineError:
                await asyncio.sleep(0.02)


@pytest.mark.parametrize("step", ["asked", "made", "told"])
async def test_a_caller_that_dies_in_the_midst_leaves_nothing(daemon: Daemon, engine: BrokerEngine, step: str) -> None:
    await daemon.until(all=0)
    sock = connected(daemon.path)
    with sock:
        sock.send(asking())
        if step == "asked":
            sock.close()
        elif step == "made":
            await daemon.until(yours=1)
        else:
            _, fds, _, _ = await asyncio.to_thread(socket.recv_fds, sock, packets.MAX_BYTES, 1)
            os.close(fds[0])
    await daemon.until(all=0)
    docker = DockerEngine()
    async with within(20):
        while any(row.owner_pid == os.getpid() for row in await docker.list()):  # noqa: ASYNC110 (as above)
            await asyncio.sleep(0.05)


async def test_a_caller_that_keeps_the_pipe_and_hangs_up_has_no_sandbox(daemon: Daemon, engine: BrokerEngine) -> None:
    sock, said, fd = await started(daemon)
    sock.close()
    try:
        await gone(said["id"])
    finally:
        os.close(fd)
    await daemon.until(all=0)


async def test_a_sandbox_is_adopted_by_who_was_given_its_connection_alone(daemon: Daemon) -> None:
    sock, said, fd = await started(daemon)
    with sock, connected(daemon.path) as other:
        other.send(json.dumps({"op": "adopt", "n": 1, "container": said["id"]}).encode())
        answer = json.loads(await asyncio.to_thread(other.recv, 9999))
        assert answer["refused"]["code"] == "broker-improper"
        code = """import os; os.write(0, b'{"op": "adopt", "n": 2}'); print(os.read(0, 9999).decode())"""
        sock.setblocking(True)
        command = [sys.executable, "-c", code]
        given = await asyncio.create_subprocess_exec(*command, stdin=sock.fileno(), stdout=subprocess.PIPE)
        assert json.loads((await given.communicate())[0]) == {"n": 2}
        [row] = [row for row in await daemon.engine().list() if row.container == said["id"]]
        assert row.owner_pid == given.pid != os.getpid()
    os.close(fd)
    await gone(said["id"])


# --- other users ------------------------------------------------------------------------------------------------------

STRANGER = """
import json, socket, sys
def ask(**said):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)
    sock.connect(sys.argv[1])
    sock.send(json.dumps({"n": 1, **said}).encode())
    return json.loads(sock.recv(1 << 17))
sent = json.loads(sys.argv[2])
print(json.dumps([ask(**said) for said in sent]))
"""
NOBODY = 65534

FILE = f"""\
[all]
images = ["{IMAGE}"]
sessions = 1
"""


@pytest.fixture
async def for_all(tmp_path: Path) -> AsyncIterator[Daemon]:
    """A broker for all users; its folder can be entered by them."""
    if os.geteuid():
        pytest.skip("only root can be another user")
    file = tmp_path / "broker.toml"
    file.write_text(FILE, encoding="utf-8")
    with a_broker("--for-all", "--file", str(file)) as daemon:
        daemon.folder.chmod(0o755)
        yield daemon


async def as_nobody(daemon: Daemon, *said: dict[str, Any]) -> list[dict[str, Any]]:
    command = [sys.executable, "-I", "-c", STRANGER, daemon.path, json.dumps(said)]
    command[0] = "/usr/bin/python3"

    def run() -> list[dict[str, Any]]:
        done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    return await asyncio.to_thread(run)


async def test_another_user_sees_ends_and_takes_no_sandbox_of_this_one(for_all: Daemon) -> None:
    sock, said, fd = await started(for_all)
    with sock:
        rows, adopted, image, one, other = await as_nobody(
            for_all,
            {"op": "list"},
            {"op": "adopt", "container": said["id"]},
            {"op": "image", "image": "sandbox-kernel:data"},
            json.loads(asking()),
            json.loads(asking(spec={**packets.asked(spec()), "image": "sandbox-kernel:data"})),
        )
        assert rows["rows"] == []
        assert adopted["refused"]["code"] == "broker-improper"
        assert image["refused"]["code"] == "image-missing"
        assert one["id"] != said["id"]  # the control: it has one of its own, under its own ceiling
        assert other["refused"]["code"] == "broker-denied"
        assert other["refused"]["set_by"].endswith("broker.toml, [all]")
        assert [row.container for row in await for_all.engine().list() if row.container == said["id"]] == [said["id"]]
    os.close(fd)


USER = """
import os, socket, sys
sys.path[:0] = sys.argv[2:]
from sandbox_kernel import QuotaExceeded, Sandbox
for path in ("/var/run/docker.sock", "/run/docker.sock"):
    try:
        socket.socket(socket.AF_UNIX).connect(path)
    except OSError:
        pass
    else:
        sys.exit("the engine answers this user")
with Sandbox(engine=sys.argv[1], image="%s") as sandbox:
    sandbox.files.write("/mnt/data/numbers.csv", "1,2,3")
    print(os.getuid(), sandbox.run_code("sum(map(int, open('numbers.csv').read().split(',')))").text)
    try:
        Sandbox(engine=sys.argv[1], image="%s").__enter__()
    except QuotaExceeded as error:
        print(error.limit, "|", error.set_by)
"""


async def test_a_user_without_any_right_to_the_engine_runs_code_under_a_quota(for_all: Daemon) -> None:
    """In the place of the engine's socket, which is root's; the rest of the package as it is."""
    folders = [str(ROOT), *(path for path in sys.path if path.endswith("site-packages"))]
    for python in (sys.executable, "/usr/bin/python3"):
        look = [python, "-c", f"import sys; sys.path[:0] = {folders!r}; import zmq, orjson, nh3; import sandbox_kernel"]
        try:
            found = await asyncio.to_thread(
                subprocess.run, look, user=NOBODY, group=NOBODY, capture_output=True, cwd="/"
            )
        except OSError:
            continue
        if found.returncode == 0:
            break
    else:
        pytest.skip("no Python that this package can be imported by is another user's to start")
    command = [python, "-c", USER % (IMAGE, IMAGE), for_all.address, *folders]
    home = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"}
    done = await asyncio.to_thread(
        subprocess.run, command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, cwd="/", env=home
    )
    first, second = done.stdout.decode().splitlines() or ["", done.stderr.decode()]
    assert first == f"{NOBODY} 6"
    assert second.startswith("1 sandboxes at once | ")
    assert second.endswith("broker.toml, [all]")


def test_a_wrong_file_leaves_the_one_before_in_force(tmp_path: Path) -> None:
    """Read again on SIGHUP, by the real command."""
    file, path = tmp_path / "broker.toml", str(tmp_path / "broker.sock")
    file.write_text("[all]\nsessions = 0\n", encoding="utf-8")
    options = ["--socket", path, "--file", str(file), "--pool", "0"]
    command = [sys.executable, "-m", "sandbox_kernel", "broker", *options]

    async def start() -> None:
        await (await BrokerEngine(f"broker://{path}").start(spec())).kill()

    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None

        def read_again(text: str) -> str:
            assert process.stderr is not None
            file.write_text(text, encoding="utf-8")
            process.send_signal(signal.SIGHUP)
            return process.stderr.readline()

        try:
            assert "listening" in process.stderr.readline()
            for text in ("[all]\nsessions = 3\nmemroy = 1\n", "[all]\nsessions = 'x'\n", "all = 3\n"):
                with pytest.raises(QuotaExceeded, match="0 sandboxes at once"):
                    asyncio.run(start())
                assert "line" in read_again(text)
            with pytest.raises(QuotaExceeded, match="0 sandboxes at once"):
                asyncio.run(start())
            assert "in force" in read_again("[all]\nsessions = 3\n")
            asyncio.run(start())
        finally:
            process.terminate()
            assert process.wait(20) == 0


async def test_the_operator_sees_what_goes_on(daemon: Daemon, engine: BrokerEngine) -> None:
    """As a page that Prometheus reads, by the daemon's own command."""
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        path, metrics = f"{folder}/broker.sock", f"{folder}/metrics.sock"
        options = ["--socket", path, "--metrics", metrics, "--pool", "0"]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "sandbox_kernel", "broker", *options, stderr=asyncio.subprocess.PIPE
        )
        assert process.stderr is not None
        try:
            assert b"listening" in await process.stderr.readline()
            container = await BrokerEngine(f"broker://{path}").start(spec())
            with pytest.raises(EngineError):
                await BrokerEngine(f"broker://{path}").start(new_spec(Settings(image="sandbox-kernel:never")))
            page = await fetched(metrics, "/metrics")
            for line in (
                'sandbox_kernel_broker_sandboxes{state="running"} 1',
                'sandbox_kernel_broker_claim_seconds_count{kind="cold"} 1',
                'sandbox_kernel_broker_claim_seconds_bucket{kind="cold",le="+Inf"} 1',
                'sandbox_kernel_broker_refusals_total{code="image-missing"} 1',
                f"sandbox_kernel_broker_memory_promised_bytes {Limits().memory}",
            ):
                assert line in page.splitlines()
            await container.kill()
            assert 'sandbox_kernel_broker_ends_total{reason="killed"} 1' in await fetched(metrics, "/metrics")
            assert "404" in await fetched(metrics, "/")
        finally:
            process.terminate()
            assert await process.wait() == 0


async def fetched(path: str, target: str) -> str:
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(f"GET {target} HTTP/1.1\r\nHost: broker\r\n\r\n".encode())
    data = await reader.read()
    writer.close()
    return data.decode()
