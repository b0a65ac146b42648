"""A cell against the agent of its own session, with everything real: proxy, agent, kernel, container."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.select import provider
from sandbox_kernel.plugins.bubblewrap import cgroups
from sandbox_kernel.plugins.verify.attack_program import LOAD, sources, table
from sandbox_kernel.plugins.verify.differences import DIFFERENCES
from tests.attacks.escape.tools import ON_BUBBLEWRAP, RUNTIMES, Outcomes
from tests.support.engines import IMAGE
from tests.support.roots import root_of_tests

Launch = Callable[..., Any]
ATTACKS = table()

_CELL = f"""{LOAD}
given = json.loads({{given!r}})
kit = load(given["modules"])
print(json.dumps({{{{name: kit.outcome(kit.ATTACKS[name].run) for name in given["names"]}}}}))
"""
ON_AGENT = {name: each for name, each in ATTACKS.items() if each.on_agent}


@pytest.fixture(scope="module", params=RUNTIMES)
def session(request: pytest.FixtureRequest, launch_kernel: Launch) -> Iterator[tuple[str, Any]]:
    if under := ON_BUBBLEWRAP.get(request.param):
        if why := under.absent():
            pytest.skip(why)
        limits = () if under.cgroup else ("--limits", "best-effort")
        kernel = launch_kernel("--engine", "bubblewrap", "--image", root_of_tests(), *limits)
        yield request.param, kernel
        kernel.close()
        return
    if request.param not in asyncio.run(DockerEngine().info()).runtimes:
        pytest.skip(f"the engine has no runtime {request.param!r}")
    kernel = launch_kernel("--image", IMAGE, "--runtime", request.param)
    yield request.param, kernel
    kernel.close()


def attack_from_a_cell(kernel: Any, names: list[str]) -> Any:
    return kernel.run(_CELL.format(given=json.dumps({"modules": sources(), "names": names})))


@pytest.fixture(scope="module")
def ended(session: tuple[str, Any]) -> Outcomes:
    """Return how the attacks ended; the kernel is asked for its arithmetic after them."""
    _, kernel = session
    result = attack_from_a_cell(kernel, sorted(ON_AGENT))
    found = {name: tuple(each) for name, each in json.loads(result.text()).items()}
    assert kernel.run("6 * 7").value == "42", "the session outlives the attacks"
    return found


@pytest.mark.parametrize("attack", [pytest.param(name, id=each.verdict) for name, each in ON_AGENT.items()])
def test_the_attack(session: tuple[str, Any], ended: Outcomes, attack: str) -> None:
    of_engine = provider("bubblewrap").differences if session[0] in ON_BUBBLEWRAP else {}
    different = (DIFFERENCES if session[0] == "runsc" else of_engine).get(attack)
    word, said = ended[attack]
    assert word in ({different} if different else ON_AGENT[attack].refused), said


def test_ending_every_process_one_can_costs_a_cell_its_kernel_only(session: tuple[str, Any]) -> None:
    _, kernel = session
    code = "import os, signal\ntry: os.kill(-1, 9)\nexcept OSError: pass\nos.kill(os.getpid(), 9)"
    assert kernel.run(code).ename == "KernelDied"
    assert kernel.run("6 * 7").value == "42"


@pytest.fixture
def gvisor() -> str:
    if "runsc" not in asyncio.run(DockerEngine().info()).runtimes:
        pytest.skip("the engine has no runtime 'runsc'")
    return "runsc"


def test_a_cell_that_speaks_as_its_agent_ends_its_session_only(start_kernel: Launch, gvisor: str) -> None:
    """Bytes that are no frames end the sandbox, with a reason; a forged answer has no question."""
    kernel = start_kernel("--runtime", gvisor)
    code = "import os; os.write(os.open('/proc/1/fd/1', os.O_WRONLY), b'\\xff' * 4096)\nwhile True: pass"
    assert kernel.run(code).ename == "SandboxDied"
    assert kernel.manager.is_alive()


def test_a_front_end_is_told_what_the_machine_enforces(session: tuple[str, Any]) -> None:
    """Not what was asked for: without a cgroup nothing holds memory, processes and processors."""
    runtime, kernel = session
    told = kernel.client.kernel_info(reply=True, timeout=30)["content"]
    held = runtime not in ON_BUBBLEWRAP or cgroups.available() is None
    assert told["sandbox"]["limits_held"] == held
    assert ("processors are not limited" in told["banner"]) == (not held)


OWN_SPEED = """
import os, psutil, resource, subprocess, threading
def own():
    for thread in (0, os.getpid(), threading.get_native_id()):
        os.sched_setaffinity(thread, os.sched_getaffinity(thread))
        os.sched_setscheduler(thread, os.SCHED_OTHER, os.sched_param(0))
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + 1)
files = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, files)
resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, files)
own()
thread = threading.Thread(target=own)
thread.start()
thread.join()
before = os.nice(0)
assert os.nice(2) == min(19, before + 2)
psutil.Process().nice(19)
psutil.Process().cpu_affinity(psutil.Process().cpu_affinity())
child = subprocess.Popen(["sleep", "60"])
os.setpriority(os.PRIO_PROCESS, child.pid, 19)
os.sched_setaffinity(child.pid, os.sched_getaffinity(0))
assert psutil.pid_exists(1)
child.terminate()
print("child", child.wait())
"""


def test_a_cell_sets_its_own_speed_and_limits_and_its_children_s(session: tuple[str, Any]) -> None:
    """What honest code does, by 0 and by number."""
    _, kernel = session
    result = kernel.run(OWN_SPEED)
    assert result.text() == "child -15\n", result


LINGERING = r"""
import array, contextlib, fcntl, os, socket, struct
def held():
    # The ends of what the agent reads: of control, so that nothing of the cell itself is in the way.
    copies = []
    for number in range(256):
        with contextlib.suppress(OSError):
            copies.append(fcntl.fcntl(number, fcntl.F_DUPFD, 256))
    for copy in copies:
        try:
            sock = socket.socket(fileno=copy)
            sock.getpeername()
        except OSError:
            continue
        if sock.family == socket.AF_UNIX and sock.getsockname().endswith("-4"):
            yield sock
        sock.detach()
server = socket.create_server(("127.0.0.1", 0))
def never_closed():
    near = socket.create_connection(server.getsockname())
    far = server.accept()[0]
    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 30000))
    near.setblocking(False)
    try:
        while True:
            near.send(bytes(65536))
    except BlockingIOError:
        return near.detach(), far.detach()
sent = 0
for sock in held():
    for _ in range(2):
        both = never_closed()
        sock.setblocking(True)
        sock.sendall(bytes(2) * 150000)  # empty frames keep the reader busy until the descriptors are closed here
        sock.sendmsg([bytes(1) + b"\x01x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", both))])
        for fd in both:
            os.close(fd)
        sent += 1
print(sent)
"""


def test_descriptors_that_are_sent_to_the_agent_do_not_hold_it_up(session: tuple[str, Any]) -> None:
    """It closes what it did not ask for; its control is that of `a_close_that_waits`."""
    _, kernel = session
    assert kernel.run(LINGERING).text() == "2\n"
    assert kernel.run("6 * 7").value == "42"


PLANT = r"""
import os, pathlib
folder = pathlib.Path.home() / ".ipython/profile_default/startup"
folder.mkdir(parents=True, exist_ok=True)
(folder / "bad.py").write_text("import os; os.write(2, b'\\x1b]0;owned\\x07\\x1b[2J\\r\\u202eforged'); os._exit(3)")
os._exit(3)
"""


def test_what_a_dying_kernel_writes_cannot_drive_a_terminal(start_kernel: Launch) -> None:
    """A cell makes every later kernel die with escapes as its last words, which are then part of an error's text."""
    kernel = start_kernel()
    kernel.run(PLANT)
    results = [kernel.run("1")]
    while results[-1].ename == "KernelDied" and len(results) < 10:
        results.append(kernel.run("1"))
    assert results[-1].ename == "SandboxDied", results[-1]
    assert "no kernel starts" in results[-1].reply["evalue"], "what a kernel wrote last is part of it"
    for result in results:
        for text in _texts([result.reply, *(message["content"] for message in result.messages)]):
            rest = re.sub(r"\x1b\[[0-9;]*m", "", text)  # colours pass, as in every output
            assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]", rest), repr(text)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from _texts(list(value.values()))
    elif isinstance(value, list):
        for each in value:
            yield from _texts(each)
