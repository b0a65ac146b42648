"""What the agent notices: real programs, connections and thefts; and that its watch changes and delays no call."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.monitor import system
from sandbox_kernel import Sandbox
from sandbox_kernel.core.codes import MonitorCode
from tests.support.kernels import eventually

pytestmark = pytest.mark.timeout(300)

QUICK = {
    MonitorCode.PROGRAMS_STARTED: {"count": 10, "seconds": 1},
    MonitorCode.MANY_PROGRAMS: {"count": 200, "seconds": 10},
    MonitorCode.DROPPED_PROGRAM: {"seconds": 1},
    MonitorCode.OUTWARD_CONNECTIONS: {"count": 3, "seconds": 1},
    MonitorCode.METADATA_SOUGHT: {"level": "alert", "seconds": 1},
    MonitorCode.BAIT_OPENED: {"seconds": 1},
}


class Watched(NamedTuple):
    sandbox: Sandbox
    audit: Path

    def findings(self) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.audit.read_text().splitlines()]
        return [line for line in lines if line["event"] == "monitor"]

    def run(self, code: str) -> str:
        """Run a cell that succeeds; return what it printed."""
        execution = self.sandbox.run_code(code)
        assert execution.error is None, execution.error
        return "".join(execution.logs.stdout)


def watched(folder: Path, image: str, runtime: str | None = None) -> Watched:
    audit = folder / "audit.jsonl"
    rules = {code.code: changes for code, changes in QUICK.items()}
    table = {"level": "alert", "rules": rules}
    return Watched(Sandbox(image=image, runtime=runtime, monitor=table, audit=str(audit), memory="512M"), audit)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Watched]:
    found = watched(tmp_path_factory.mktemp("watched"), image)
    with found.sandbox:
        yield found


CONNECT = """
import socket
def attempt(host, port=80):
    with socket.socket() as sock:
        sock.settimeout(1)
        try: sock.connect((host, port))
        except OSError as error: return error.errno
"""
LATER = "import time; time.sleep(1.2)\n"
"""By then the agent has told of what earlier cells started: of each report's programs it reads three paths."""
ATTACKS: dict[MonitorCode, str] = {
    MonitorCode.PROGRAMS_STARTED: "import subprocess\nfor _ in range(10): subprocess.run(['/bin/true'])",
    MonitorCode.MANY_PROGRAMS: "import subprocess\nfor _ in range(200): subprocess.run(['/bin/true'])",
    MonitorCode.DROPPED_PROGRAM: LATER
    + (
        "import os, shutil, subprocess\nshutil.copy('/bin/true', 'miner'); os.chmod('miner', 0o755)\n"
        "subprocess.run(['./miner'])"
    ),
    MonitorCode.OUTWARD_CONNECTIONS: CONNECT + "print([attempt('192.0.2.1', port) for port in (22, 80, 443)])",
    MonitorCode.METADATA_SOUGHT: CONNECT + "print(attempt('169.254.169.254'))",
    MonitorCode.BAIT_OPENED: "import pathlib; print(len((pathlib.Path.home() / '.aws/credentials').read_text()))",
}


@pytest.mark.parametrize("code", ATTACKS, ids=lambda code: code.code)
def test_what_the_agent_sees_is_noticed(one: Watched, code: MonitorCode) -> None:
    before = len(one.findings())

    def noticed() -> bool:
        one.run(ATTACKS[code])  # anew: a rule that a test before this one has met is quiet for a second
        one.run(LATER)
        return code.code in {line["code"] for line in one.findings()[before:]}

    eventually(noticed, 15, "it is in the audit")


OUTWARD = """
import ctypes, socket, struct
FAST = 0x20000000
def attempt(call, family, host, port):
    with socket.socket(family) as one:
        one.settimeout(1)
        try:
            if call == "sendto": one.sendto(b"x", FAST, (host, port))
            elif call == "sendmsg": one.sendmsg([b"x"], [], FAST, (host, port))
            elif call == "option":
                one.setsockopt(socket.IPPROTO_TCP, 30, 1)
                one.connect((host, port))
            else:
                name = ctypes.create_string_buffer(
                    struct.pack("=HHI16sI", family, socket.htons(port), 0, socket.inet_pton(family, host), 0)
                    if family == socket.AF_INET6 else struct.pack("=H", family) + struct.pack("!H", port)
                    + socket.inet_aton(host) + bytes(8), 28 if family == socket.AF_INET6 else 16)
                text = ctypes.create_string_buffer(b"x")
                vector = ctypes.create_string_buffer(struct.pack("=QQ", ctypes.addressof(text), 1), 16)
                places = ctypes.addressof(name), len(name), ctypes.addressof(vector), 1
                head = struct.pack("=QIxxxxQQQQixxxx", *places, 0, 0, 0)
                message = ctypes.create_string_buffer(head + bytes(8), 64)
                libc = ctypes.CDLL(None, use_errno=True)
                assert libc.sendmmsg(one.fileno(), message, 1, FAST) == -1
                raise OSError(ctypes.get_errno(), "")
        except OSError as error: return error.errno
for port in (22, 80, 443): print(attempt(%r, %s, %r, port))
"""


@pytest.mark.parametrize(("family", "host"), [("socket.AF_INET", "192.0.2.1"), ("socket.AF_INET6", "2001:db8::1")])
@pytest.mark.parametrize("call", ["sendto", "sendmsg", "sendmmsg", "option"])
def test_a_connection_is_seen_whichever_call_makes_it(one: Watched, call: str, family: str, host: str) -> None:
    """TCP Fast Open sends and connects in one: three calls with a flag, or an option of the socket before `connect`."""

    def noticed() -> bool:
        before = len(one.findings())
        assert set(one.run(OUTWARD % (call, family, host)).split()) <= {"101", "99"}  # no way out, no address
        one.run(LATER)
        return "outward-connections" in {line["code"] for line in one.findings()[before:]}

    eventually(noticed, 15, "it is in the audit")


def test_what_is_sent_without_connecting_is_no_connection(one: Watched) -> None:
    """The control: the same calls without the flag, and with it to the sandbox itself."""
    one.run(LATER)
    before = len(one.findings())
    one.run(OUTWARD.replace("0x20000000", "0") % ("sendto", "socket.AF_INET", "192.0.2.1"))
    one.run(OUTWARD % ("sendto", "socket.AF_INET", "127.0.0.1"))
    one.run(LATER)
    assert "outward-connections" not in {line["code"] for line in one.findings()[before:]}


LOADED = """
import glob, os, shutil, subprocess
loader = os.path.realpath([*glob.glob("/lib64/ld-*"), *glob.glob("/lib/ld-*")][0])
shutil.copy("/bin/true", "brought"); os.chmod("brought", 0o644)
print(subprocess.run([loader, *%r]).returncode)
"""
DROPPED = {
    "one that the loader starts": LATER + LOADED % ["./brought"],
    "one that the loader starts from a full path": LATER + LOADED % ["/mnt/data/../../mnt/data/brought", "x"],
    "one behind options of the loader": LATER
    + LOADED % ["--inhibit-rpath", "", "--library-path", "/usr/lib", "./brought"],
    "a file in memory": LATER
    + (
        "import os\nfd = os.memfd_create('x'); os.write(fd, open('/bin/true', 'rb').read())\n"
        "pid = os.fork()\nif not pid: os.execve(fd, ['true'], {})\nprint(os.waitpid(pid, 0)[1])"
    ),
    "a path from a folder above": LATER
    + (
        "import os, shutil, subprocess\nshutil.copy('/bin/true', '/tmp/m2'); os.chmod('/tmp/m2', 0o755)\n"
        "print(subprocess.run(['/usr/bin/../../tmp/./m2']).returncode)"
    ),
    "one that others hide, but that goes on": (
        "import os, shutil, subprocess, time\nname = f'./sleeper{time.monotonic_ns()}'\n"
        "shutil.copy('/bin/sleep', name); os.chmod(name, 0o755)\n"
        "for _ in range(10): subprocess.run(['/bin/true'])\nsubprocess.Popen([name, '4']); print(0)"
    ),
}


@pytest.mark.parametrize("what", DROPPED)
def test_a_program_of_the_cells_own_is_seen_under_other_names(one: Watched, what: str) -> None:
    def noticed() -> bool:
        before = len(one.findings())
        assert one.run(DROPPED[what]) == "0\n"
        one.run("import time; time.sleep(1.1)")
        return "dropped-program" in {line["code"] for line in one.findings()[before:]}

    eventually(noticed, 15, "it is in the audit")


def test_a_program_of_the_image_is_no_dropped_one_by_its_loader_either(one: Watched) -> None:
    """The control of those that a loader starts."""
    one.run(LATER)
    before = len(one.findings())
    assert one.run(LOADED % ["--library-path", "/usr/lib", "/bin/true", "an argument"]) == "0\n"
    one.run(LATER)
    assert "dropped-program" not in {line["code"] for line in one.findings()[before:]}


# --- no call is changed ---

SAME = (
    CONNECT
    + """
import ctypes, errno, os, subprocess
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    return 0 if libc.syscall(*arguments) >= 0 else errno.errorcode[ctypes.get_errno()]
def started(*argv):
    try: return subprocess.run(argv, capture_output=True).returncode
    except OSError as error: return errno.errorcode[error.errno]
with socket.create_server(("127.0.0.1", 0)) as server:
    print("connect", attempt(*server.getsockname()))
print("nobody there", errno.errorcode[attempt("127.0.0.1", 1)])
print("a pointer to nothing", call(59, 8, 8, 8), call(42, 0, 8, 16))
print("programs", started("/bin/true"), started("/bin/false"), started("/no/such"), started("/etc/passwd"))
print("denied by the engine", call(165, 0, 0, 0, 0, 0), call(272, 0x10000000), call(101, 16, 1, 0, 0), call(321, 0))
print("denied by the shield", call(62, 1, 19), call(234, 1, 1, 19))
left, right = socket.socketpair()
path = "/tmp/same.sock"
with socket.socket(socket.AF_UNIX) as server:
    server.bind(path); server.listen()
    with socket.socket(socket.AF_UNIX) as client:
        print("unix", client.connect(path))
os.unlink(path)
print("many", sum(started("/bin/true") for _ in range(20)))
"""
)


def test_each_call_comes_to_what_it_comes_to_without_a_watch(one: Watched, plain: Sandbox) -> None:
    said = "".join(plain.run_code(SAME).logs.stdout)
    assert said.splitlines()[-1] == "many 0"
    assert one.run(SAME) == said


def test_a_call_that_waits_for_an_answer_can_be_interrupted_and_killed(one: Watched) -> None:
    code = """
import signal, subprocess, time
hits = []
signal.signal(signal.SIGALRM, lambda *_: hits.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
codes = [subprocess.run(["/bin/true"]).returncode for _ in range(50)]
signal.setitimer(signal.ITIMER_REAL, 0)
for _ in range(50):
    process = subprocess.Popen(["/bin/sleep", "100"]); process.kill(); codes.append(process.wait() + 9)
print(set(codes), len(hits) > 0)
"""
    assert one.run(code) == "{0} True\n"


# --- nobody gets in its way ---


def test_no_thread_of_the_agent_can_be_stopped_slowed_or_limited(one: Watched) -> None:
    code = """
import os, signal, resource
refused = []
threads = os.listdir("/proc/1/task")
for tid in map(int, threads):
    for action in (lambda: os.kill(tid, signal.SIGSTOP), lambda: os.setpriority(os.PRIO_PROCESS, tid, 19),
                   lambda: os.sched_setaffinity(tid, [0]), lambda: os.pidfd_open(tid),
                   lambda: resource.prlimit(tid, resource.RLIMIT_CPU, (1, 1))):
        try: action()
        except OSError as error: refused.append(error.errno)
        else: refused.append(0)
print(len(threads), set(refused))
"""
    threads, refused = one.run(code).split(" ", 1)
    assert int(threads) >= 2, "the loop and the watch"
    assert refused == "{1}\n"


def test_no_cell_can_answer_in_its_place_or_have_a_watch_of_its_own(one: Watched) -> None:
    code = """
import ctypes, fcntl, struct
libc = ctypes.CDLL(None, use_errno=True)
program = struct.pack("=HBBI", 6, 0, 0, 0x7FFF0000)
buffer = ctypes.create_string_buffer(program, 8)
made = libc.syscall(317, 1, 8, struct.pack("HxxxxxxP", 1, ctypes.addressof(buffer)))
refused = [ctypes.get_errno()]
for number in (0xC0502100, 0xC0182101, 0x40082102, 0x40082104):
    try: fcntl.ioctl(0, number, bytearray(80))
    except OSError as error: refused.append(error.errno)
print(made, refused)
"""
    assert one.run(code) == "-1 [16, 1, 1, 1, 1]\n"


def test_a_flood_of_programs_and_connections_ends_and_is_counted_in_few_words(one: Watched) -> None:
    before = len(one.findings())
    flood = (
        CONNECT
        + """
import threading, time
end, counts = time.monotonic() + 2, [0] * 8
def work(number):
    while time.monotonic() < end:
        attempt("127.0.0.1", 1); counts[number] += 1
threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
[thread.start() for thread in threads]; [thread.join() for thread in threads]
print(sum(counts) > 500)
"""
    )
    assert one.run(flood) == "True\n"
    assert one.run("print(1 + 1)") == "2\n"
    assert len(one.findings()) - before < 20


def test_a_new_kernel_and_a_restart_are_watched_as_well(one: Watched) -> None:
    assert one.sandbox.run_code("import os; os._exit(1)").error is not None
    before = len(one.findings())
    one.run(ATTACKS[MonitorCode.MANY_PROGRAMS].replace("200", "20"))
    eventually(lambda: "programs-started" in {line["code"] for line in one.findings()[before:]}, 10, "it is seen")


# --- where there is no such thing ---


def test_on_a_system_that_cannot_tell_of_calls_it_is_said_that_nobody_watches_them(
    tmp_path: Path, image: str, one: Watched
) -> None:
    """Bait is watched even so. The control is the sandbox of the other tests."""
    with system(deaf=True):
        found = watched(tmp_path, image)
        with found.sandbox:
            found.run(ATTACKS[MonitorCode.PROGRAMS_STARTED] + "\n" + ATTACKS[MonitorCode.BAIT_OPENED])
            eventually(lambda: len(found.findings()) > 1, 10, "both are in the audit")
            assert {line["code"] for line in found.findings()} == {"not-watched", "bait-opened"}
    assert "not-watched" not in {line["code"] for line in one.findings()}


def test_on_gvisor_bait_is_watched_and_calls_are_not(tmp_path: Path, image: str) -> None:
    """The table of docs/monitor.md is true: the runtime has no user notification, and that is no finding there."""
    found = watched(tmp_path, image, "runsc")
    with found.sandbox:
        found.run(ATTACKS[MonitorCode.PROGRAMS_STARTED] + "\n" + ATTACKS[MonitorCode.BAIT_OPENED])
        eventually(lambda: found.findings(), 10, "the theft is in the audit")  # noqa: PLW0108 (asked anew)
        assert {line["code"] for line in found.findings()} == {"bait-opened"}


STRICTER = """
import ctypes, os, signal, struct
libc = ctypes.CDLL(None, use_errno=True)
seccomp, mount, getpid = (317, 165, 39) if os.uname().machine == "x86_64" else (277, 40, 172)
def told(number):
    # a child that has itself told of a call, which nobody answers: it waits until its alarm, or was refused before
    pid = os.fork()
    if pid == 0:
        steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (6, 0, 0, 0x7FC00000), (6, 0, 0, 0x7FFF0000)]
        code = b"".join(struct.pack("=HBBI", *step) for step in steps)
        buffer = ctypes.create_string_buffer(code, len(code))
        if libc.syscall(seccomp, 1, 8, struct.pack("HxxxxxxP", 4, ctypes.addressof(buffer))) < 0:
            os._exit(99)
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        libc.syscall(number, 0, 0, 0, 0, 0)
        os._exit(ctypes.get_errno())
    status = os.waitpid(pid, 0)[1]
    return os.WTERMSIG(status) or os.WEXITSTATUS(status)
print(told(mount), told(getpid))
"""


@pytest.fixture(scope="module")
def plain(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="512M") as sandbox:
        yield sandbox


def test_what_the_engine_s_filter_denies_nobody_in_the_sandbox_is_told_of(plain: Sandbox) -> None:
    """Why the table has no such rule: an error is stricter than telling. The second call is the control: it waits."""
    assert "".join(plain.run_code(STRICTER).logs.stdout) == "1 14\n"


def test_without_a_monitor_nothing_is_laid_out_or_watched(plain: Sandbox) -> None:
    """The control of all of them."""
    look = "import os\nprint(os.path.exists('/tmp/home/.aws'), len(os.listdir('/proc/1/task')), " + (
        "[line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp_filters')])"
    )
    assert "".join(plain.run_code(look).logs.stdout) == "False 1 ['3']\n"
