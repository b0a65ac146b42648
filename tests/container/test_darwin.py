"""The package on a simulated macOS: real sandboxes, without what Python lacks there; see tests/support/darwin."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import nbformat
import pytest

from sandbox_kernel.plugins import index
from tests.support.command_line import SCRIPT
from tests.support.darwin.machine import Darwin
from tests.support.kernels import ENGINE

COMMAND = str(SCRIPT)
NOBODY = 65534
pytestmark = pytest.mark.skipif(ENGINE != "docker", reason="on macOS, Docker is the engine")


@pytest.fixture(scope="module")
def darwin() -> Iterator[Darwin]:
    folder = Path(tempfile.mkdtemp(prefix="mac-", dir="/tmp"))  # the paths of sockets have 103 bytes
    machine = Darwin(folder)
    try:
        if reason := machine.why_not():
            pytest.skip(reason)
        yield machine
    finally:
        shutil.rmtree(folder)


def done(found: subprocess.CompletedProcess[str]) -> str:
    """Return what a program printed that ended well."""
    assert found.returncode == 0, found.stdout[-2000:] + found.stderr[-4000:]
    return found.stdout


# --- the simulation itself ---


THERE = """
import os, select, socket, sys
print(sys.platform)
for module, name in (os, "O_PATH"), (os, "memfd_create"), (socket, "SOCK_CLOEXEC"), (select, "epoll"):
    print(name, hasattr(module, name))
"""


@pytest.mark.parametrize("switches", [(), ("-I", "-S")], ids=["usual", "as helpers are started"])
def test_control_what_linux_alone_has_is_not_there(darwin: Darwin, switches: tuple[str, ...]) -> None:
    lacking = [f"{name} False" for name in ("O_PATH", "memfd_create", "SOCK_CLOEXEC", "epoll")]
    assert done(darwin.run(sys.executable, *switches, "-c", THERE)).splitlines() == ["darwin", *lacking]
    here = subprocess.run([sys.executable, *switches, "-c", THERE], check=True, capture_output=True, text=True)
    assert here.stdout.count("True") == len(lacking)


def test_control_there_is_no_proc_and_what_acts_otherwise_does(darwin: Darwin) -> None:
    code = """
import os, resource, socket
print([os.path.exists(path) for path in ("/proc", "/sys", "/dev/shm", "/etc", "/dev/null", "/dev/fd")])
def tried(what):
    try:
        what()
    except (OSError, ValueError):
        return "refused"
ours, its = socket.socketpair()
print(tried(lambda: socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)))
print(tried(lambda: os.fchmod(ours.fileno(), 0o600)))
print(tried(lambda: ours.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)))
print(tried(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (10_241, resource.RLIM_INFINITY))))
print(tried(lambda: ours.bind("x" * 104)), tried(lambda: ours.bind(chr(0) + "abstract")))
"""
    assert done(darwin.python(code)).splitlines() == [
        str([False, False, False, True, True, True]),
        *("refused", "refused", "refused", "refused", "refused refused"),
    ]


# --- the package ---


def test_a_sandbox_runs_cells_and_moves_files(darwin: Darwin, image: str) -> None:
    code = """
import pathlib, sys
from sandbox_kernel import Sandbox
for name in ("in", "out"):
    pathlib.Path(name).mkdir()
pathlib.Path("in/data.txt").write_text("data")
pathlib.Path("in/link.txt").symlink_to("/etc/hostname")
with Sandbox(image=sys.argv[1], uploads="in", downloads="out", cell_timeout=2) as sandbox:
    sandbox.files.write("more.txt", "more")
    print(sandbox.run_code("import os; sorted(os.listdir()), open('data.txt').read()").text)
    print(sandbox.run_code("open('result.txt', 'w').write('result')").error, sorted(pathlib.Path("out").iterdir()))
    print(sandbox.files.read("result.txt"), sandbox.run_code("while True: pass").error.name)
    sandbox.restart()
    print(sandbox.run_code("'data.txt' in os.listdir()").error.name, sandbox.run_code("open('more.txt').read()").text)
"""
    assert done(darwin.python(code, image)).splitlines() == [
        "(['data.txt', 'more.txt'], 'data')",
        "None [PosixPath('out/result.txt')]",
        "result CellTimeout",
        "NameError 'more'",
    ]


STARTED = """
import sys
from jupyter_client.manager import KernelManager
manager = KernelManager(kernel_name=sys.argv[1], transport=sys.argv[2])
manager.start_kernel()
client = manager.blocking_client()
client.start_channels()
client.wait_for_ready(timeout=60)
def run(code):
    said = []
    client.execute_interactive(code, timeout=60, output_hook=lambda one: said.append(one["content"].get("text", "")))
    return "".join(said).strip()
"""


@pytest.fixture(scope="module")
def kernelspec(darwin: Darwin, image: str) -> None:
    done(darwin.run(COMMAND, "install", "--user", "--image", image))


RESTARTED = """
run("open('kept.txt', 'w').write('kept')")
manager.restart_kernel()
client.wait_for_ready(timeout=60)
print(run("import os; print(os.listdir())"))
client.stop_channels()
manager.shutdown_kernel()
"""


@pytest.mark.usefixtures("kernelspec")
def test_a_kernel_of_a_front_end_keeps_its_files_when_it_is_restarted(darwin: Darwin) -> None:
    assert done(darwin.python(STARTED + RESTARTED, "sandbox-python", "tcp")) == "['kept.txt']\n"


def test_a_key_of_a_session_is_written_to_no_disk_for_that(darwin: Darwin, image: str) -> None:
    """No file is in memory alone on macOS: a sandbox with secrets ends with its kernel process."""
    pytest.importorskip("sandbox_kernel.plugins.network.plugin")
    (darwin.home / "token").write_text("0123456789abcdef")
    (darwin.home / "token").chmod(0o600)
    secret = ["--secret", f"TOKEN=file:{darwin.home}/token@example.org", "--network", "example.org"]
    done(darwin.run(COMMAND, "install", "--user", "--name", "with-secret", "--image", image, *secret))
    assert done(darwin.python(STARTED + RESTARTED, "with-secret", "tcp")) == "[]\n"


PROVISIONED = """
import json, pathlib, sys, threading
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
folder = pathlib.Path("specs/any")
folder.mkdir(parents=True)
ours = {"provisioner_name": "sandbox-kernel", "config": {"image": sys.argv[1]}}
spec = {"argv": ["python3"], "display_name": "any", "language": "python", "metadata": {"kernel_provisioner": ours}}
(folder / "kernel.json").write_text(json.dumps(spec))
specs = KernelSpecManager(kernel_dirs=["specs"], ensure_native_kernel=False)
manager = KernelManager(kernel_name="any", kernel_spec_manager=specs)
manager.start_kernel()
print(type(manager.provisioner).__name__, any(isinstance(one, threading.Timer) for one in threading.enumerate()))
manager.shutdown_kernel(now=True)
"""


def test_no_fork_server_is_begun_for_a_provisioned_kernel(darwin: Darwin, image: str, tmp_path: Path) -> None:
    """What begins one is a timer. The control is the same program on this machine as it is."""
    pytest.importorskip("sandbox_kernel.plugins.provisioner.plugin")
    assert done(darwin.python(PROVISIONED, image)) == "SandboxProvisioner False\n"
    command = [sys.executable, "-c", PROVISIONED, image]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done(found) == "SandboxProvisioner True\n"


@pytest.mark.usefixtures("kernelspec")
@pytest.mark.parametrize("transport", ["tcp", "ipc"])
def test_another_user_may_not_connect_to_a_kernel(darwin: Darwin, transport: str) -> None:
    """What ZMQ says first is all that one gets; the control, of the kernel's own user, stays connected."""
    code = """
import os, socket
place = f"{manager.ip}-{manager.shell_port}"
if os.path.exists(place):
    os.chmod(place, 0o777)  # and the folders above it, for everybody
    os.chmod(".", 0o755), os.chmod("..", 0o755), os.chmod(os.path.dirname(place) or ".", 0o755)
for uid in (os.getuid(), 65534):
    if not (pid := os.fork()):
        os.setuid(uid)
        tcp = manager.transport == "tcp"
        peer = socket.socket(socket.AF_INET if tcp else socket.AF_UNIX)
        peer.settimeout(5)
        peer.connect(("127.0.0.1", manager.shell_port) if tcp else place)
        peer.settimeout(2)
        try:
            while peer.recv(100):
                pass
        except ConnectionError:
            pass
        except TimeoutError:
            os._exit(0)
        os._exit(3)
    print({0: "open", 3 << 8: "closed"}.get(os.waitpid(pid, 0)[1], "?"))
print(run("print(1 + 1)"))
client.stop_channels()
manager.shutdown_kernel()
"""
    found = darwin.python(STARTED + code, "sandbox-python", transport)
    assert done(found).split() == ["open", "closed", "2"]
    assert "sandbox-kernel: refused a connection of another user" in found.stderr


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("lsof"), reason="it takes root and lsof")
def test_what_this_user_may_not_look_at_belongs_to_nobody() -> None:
    """`lsof` shows an ordinary user its own connections alone: here, with this machine's own."""
    code = f"""
import ctypes, os, socket, sys
sys.platform = "darwin"
from sandbox_kernel.kernel import peer_check
def pair(address):
    listener = socket.create_server((address, 0), family=socket.AF_INET6 if ":" in address else socket.AF_INET)
    client = socket.create_connection(listener.getsockname()[:2])
    return client, listener.accept()[0], listener
roots = pair("127.0.0.1")
print(peer_check.why_not(roots[1]), flush=True)
if child := os.fork():
    sys.exit(os.waitpid(child, 0)[1])
roots[0].close()  # root's is left
os.setgroups([]); os.setgid({NOBODY}); os.setuid({NOBODY})
ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: else Linux shows what was root's to root alone
own, wide, closed = (pair(address) for address in ("127.0.0.1", "::1", "127.0.0.1"))
closed[0].close()
print(peer_check.why_not(own[1]), peer_check.why_not(wide[1]))
print(peer_check.why_not(closed[1]))
print(peer_check.why_not(roots[1]))
"""
    refused = "a connection that was closed at once, or is of another user"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done(found).splitlines() == ["None", "None None", refused, refused]


def test_an_owner_is_told_from_a_later_process_of_its_number(darwin: Darwin) -> None:
    code = """
import subprocess, sys
from sandbox_kernel.engines.owner_process import UNKNOWN_HOST, OwnerProcess, host_name, start_ticks
with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE) as other:
    owner = OwnerProcess.parse(OwnerProcess.of(other.pid).container_name("session"))
    print(owner.alive(), OwnerProcess(owner.pid, owner.started + 1).alive(), owner.started > 20260000000000)
    other.kill()
    while owner.alive():
        pass
    print("a zombie is dead")
print(owner.alive(), start_ticks(other.pid), start_ticks(1) > 20000000000000, host_name() == UNKNOWN_HOST)
"""
    assert done(darwin.python(code)).splitlines() == ["True False True", "a zombie is dead", "False 0 True False"]


def test_a_notebook_and_a_script_are_run(darwin: Darwin, image: str) -> None:
    pytest.importorskip("sandbox_kernel.plugins.batch.plugin")
    cell = nbformat.v4.new_code_cell("print(6 * 7)")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), darwin.home / "n.ipynb")
    done(darwin.run(COMMAND, "run", "n.ipynb", "--image", image, "--output", "executed"))
    [written] = (darwin.home / "executed").rglob("n*.ipynb")
    assert nbformat.read(written, 4).cells[0].outputs[0].text == "42\n"


async def test_mcp_answers_a_call(darwin: Darwin, image: str) -> None:
    pytest.importorskip("sandbox_kernel.plugins.mcp.plugin")
    from mcp import Client, StdioServerParameters

    from tests.support.mcp_hosts import run, text_of

    command, *arguments = darwin.command(sys.executable, "-m", "sandbox_kernel", "mcp", "--image", image)
    async with Client(StdioServerParameters(command=command, args=arguments, env=darwin.environment)) as client:
        assert "42" in text_of(await run(client, "print(6 * 7)"))


@pytest.mark.usefixtures("kernelspec")
def test_the_doctor_finds_all_in_order(darwin: Darwin, image: str) -> None:
    rows = json.loads(done(darwin.run(COMMAND, "doctor", "--json", "--image", image)))
    found = {row["name"]: row["status"] for row in rows["checks"]}
    assert {found["engine"], found["attestation"], found["first cell"]} == {"ok"}
    assert "wrong" not in found.values()


@pytest.mark.long
@pytest.mark.slow
def test_verify_finds_no_way_out(darwin: Darwin, image: str) -> None:
    """What the machine's own kernel would say is not seen from macOS, and so is no pass."""
    pytest.importorskip("sandbox_kernel.plugins.verify.plugin")
    report = json.loads(done(darwin.run(COMMAND, "verify", "--format", "json", "--image", image)))
    verdicts = {one["code"]: one["verdict"] for one in report["findings"]}
    assert "fail" not in verdicts.values()
    assert verdicts["end-owner"] == verdicts["network-host-loopback"] == "pass"
    assert verdicts["limit-memory-set"] == verdicts["end-processes"] == "not-applicable"


def test_sandboxes_are_listed(darwin: Darwin, image: str) -> None:
    code = """
import json, subprocess, sys
from sandbox_kernel import Sandbox
with Sandbox(image=sys.argv[1]) as sandbox:
    sandbox.run_code("1")
    rows = json.loads(subprocess.run([sys.argv[2], "ps", "--json"], check=True, capture_output=True).stdout)
    import os
    print([(row["owner_alive"], row["state"]) for row in rows if row["owner_pid"] == os.getpid()])
"""
    assert done(darwin.python(code, image, COMMAND)) == "[(True, 'running')]\n"


@pytest.mark.parametrize(
    "setting",
    [
        *("engine='bubblewrap'", "engine='qemu'", "engine='broker'", "engine='shared'", "engine='wasm'"),
        *("scratch='disk'", "datasets=['a=/srv']", "volumes=['a']"),
    ],
)
def test_what_needs_linux_here_is_refused_by_a_code(darwin: Darwin, setting: str) -> None:
    code = f"""
from sandbox_kernel import ConfigurationError, Sandbox
try:
    Sandbox({setting}).__enter__()
except ConfigurationError as error:
    print(error.code, error.message)
"""
    said = done(darwin.python(code))
    assert said.startswith("plugin-missing the plugin ")
    assert said.endswith("needs a machine with Linux\n")


def test_no_plugin_is_missing_but_those(darwin: Darwin) -> None:
    code = "from sandbox_kernel.plugins import index; print(*[name for name in index.COMMANDS if index.is_here(name)])"
    missing = {name for name in index.COMMANDS if index.is_here(name)} - {*done(darwin.python(code)).split()}
    assert missing == {*index.LINUX, "shared"} & {name for name in index.COMMANDS if index.is_here(name)}
