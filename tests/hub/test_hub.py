"""Two people on a JupyterHub, neither of whom may use Docker: kernels for both, ceilings, and walls between them.

All of it is real: the hub with PAM and its local spawner, its proxy, the operator's broker as a user of its own, and
the sandboxes. What root sees from outside is looked at as root.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import psutil
import pytest

from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.broker.pool import under_pressure
from tests.hub import hub as hubs
from tests.hub import places
from tests.hub.hub import Hub, Member
from tests.hub.users import Machine, User, machine, users
from tests.support import ROOT
from tests.support.kernels import eventually

GROUP, ANN, BEN, BROKER = "sk-hub", "sk-hub-ann", "sk-hub-ben", "sk-hub-broker"
IMAGE = "sandbox-kernel:data"
SESSIONS = 2
FILE = f"""\
[all]
denied = true

[group.{GROUP}]
denied = false
images = ["{IMAGE}"]
sessions = {SESSIONS}
memory = "2G"
"""
READY_SECONDS = 15.0
COMMAND = str(places.HUB / "venv/bin/sandbox-kernel")
ADDRESS = "/run/sandbox-kernel/broker.sock"
ASK = """
import json, socket, sys
def ask(said):
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)
    sock.connect(sys.argv[1])
    sock.send(json.dumps({"n": 1, **said}).encode())
    return json.loads(sock.recv(1 << 17))
print(json.dumps([ask(said) for said in json.loads(sys.argv[2])]))
"""
LOOK = """
import errno, json, os, signal, socket, sys
found = {}
def tried(name, what):
    try:
        what()
        found[name] = "done"
    except OSError as error:
        found[name] = errno.errorcode[error.errno]
def connected(path, kind=socket.SOCK_STREAM):
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.connect(path)
for pid in map(int, sys.argv[1].split(",")):
    for name in ("environ", "mem", "maps", "io"):
        tried(f"{name} of {pid}", lambda: open(f"/proc/{pid}/{name}", "rb").read(1))
    for name in ("fd", "root/", "cwd/", "map_files"):
        tried(f"{name} of {pid}", lambda: os.listdir(f"/proc/{pid}/{name}"))
    tried(f"signal to {pid}", lambda: os.kill(pid, 0))
for path in sys.argv[2].split(","):
    tried(path, lambda: os.stat(path) if os.path.isdir(path) and os.listdir(path) is None else open(path, "rb").read(1))
tried("docker", lambda: connected("/var/run/docker.sock"))
tried("metrics", lambda: connected("/run/sandbox-kernel/metrics.sock"))
tried("another socket in the broker's place", lambda: open("/run/sandbox-kernel/x", "wb"))
tried("the broker's socket is removed", lambda: os.unlink("/run/sandbox-kernel/broker.sock"))
tried("the broker", lambda: connected("/run/sandbox-kernel/broker.sock", socket.SOCK_SEQPACKET))
print(json.dumps(found))
"""

pytestmark = [pytest.mark.skipif(places.absent() is not None, reason=str(places.absent())), pytest.mark.timeout(400)]


def example() -> ModuleType:
    """docs/examples/server_client.py: a hub's servers are Jupyter Servers, and the recipe for those does for them."""
    spec = importlib.util.spec_from_file_location("server_client", ROOT / "docs/examples/server_client.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["server_client"] = module
    spec.loader.exec_module(module)
    return module


client = example()


@dataclass(frozen=True)
class Site:
    """A machine with a hub, a broker, and two people."""

    machine: Machine
    hub: Hub
    broker: psutil.Process
    people: tuple[Member, Member]
    folder: Path

    def rows(self, user: User | None = None) -> list[dict[str, Any]]:
        """Return what `ps` shows a user; root, without one."""
        found: list[dict[str, Any]] = json.loads(self.machine.run([COMMAND, "ps", "--json"], user))
        return found

    def asked(self, user: User, *said: dict[str, Any]) -> list[dict[str, Any]]:
        """Return what the broker answers this user, in the broker's own language."""
        words = [str(places.PYTHON), "-I", "-c", ASK, ADDRESS, json.dumps(said)]
        found: list[dict[str, Any]] = json.loads(self.machine.run(words, user))
        return found


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    folder = Path(tempfile.mkdtemp(prefix="sandbox-kernel-hub-"))
    folder.chmod(0o711)
    (own := folder / "root").mkdir(mode=0o700)
    (kernels := folder / "kernels").mkdir(mode=0o755)
    (file := folder / "broker.toml").write_text(FILE, encoding="utf-8")
    install = [COMMAND, "install", "--prefix", str(kernels), "--uploads", "uploads", "--downloads", "downloads"]
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        ann, ben, owner = stack.enter_context(users(folder, [ANN, BEN, BROKER], GROUP))
        subprocess.run(["gpasswd", "-d", BROKER, GROUP], check=True, capture_output=True, timeout=30)
        where = stack.enter_context(machine(owner))
        where.run([*install, "--audit", "~/audit.jsonl", "--engine", f"broker://{ADDRESS}"])
        broker = stack.enter_context(hubs.a_broker(where, owner, file))
        hub = stack.enter_context(hubs.a_hub(where, own, kernels, [ann, ben]))
        people = hub.login(ann), hub.login(ben)
        yield Site(where, hub, psutil.Process(broker.pid), people, folder)


@pytest.fixture
def people(site: Site) -> Iterator[tuple[Member, Member]]:
    """Both, with a server of their own each, on which no kernel runs; nor does one afterwards."""
    for one in site.people:
        if not one.is_served:
            one.start_server()
    yield site.people
    for one in site.people:
        if one.is_served:
            for kernel in one.ask("GET", f"/user/{one.user.name}/api/kernels")[1]:
                one.ask("DELETE", f"/user/{one.user.name}/api/kernels/{kernel['id']}")
    eventually(lambda: not running(site), 30, "no sandbox is left")


def running(site: Site) -> list[dict[str, Any]]:
    return [row for row in site.rows() if row["state"] != "ready"]


def said(kernel: Any, code: str) -> str:
    """Return what a cell shows: its text, and the name and the words of its error."""
    parts = []
    for message in kernel.run(code):
        content = message["content"]
        match message["header"]["msg_type"]:
            case "stream":
                parts.append(content["text"])
            case "execute_result" | "display_data":
                parts.append(
                    " ".join(content["data"]) if "image/png" in content["data"] else content["data"]["text/plain"]
                )
            case "error":
                parts.append(f"{content['ename']}: {content['evalue']}")
    return "".join(parts)


def kernel_of(member: Member) -> Any:
    return client.Kernel(member.server, member.token, patience=120)


def kernel_processes(member: Member) -> list[psutil.Process]:
    found = []
    for one in member.user.processes():
        with contextlib.suppress(psutil.NoSuchProcess):
            if any("sandbox_kernel" in word for word in one.cmdline()):
                found.append(one)
    return found


def test_both_have_kernels_and_neither_has_docker(site: Site, people: tuple[Member, Member]) -> None:
    """By the real front door: a login, a server, a kernel, a plot; and another person's token opens none of it."""
    for one, other in (people, people[::-1]):
        assert "docker" not in site.machine.run(["id", "-Gn"], one.user).split()
        with kernel_of(one) as kernel:
            assert said(kernel, f"import os; os.getuid() != {one.user.uid} and 6 * 7") == "42"
            plot = "%matplotlib inline\nimport matplotlib.pyplot as plt; plt.plot([1, 4, 9]);"
            assert "image/png" in said(kernel, plot)
            assert kernel.info()["sandbox"]["limits"]["memory"] == 2 << 30
            assert other.ask("GET", f"/user/{one.user.name}/api/kernels/{kernel.id}")[0] in {403, 404}
            assert one.ask("GET", f"/user/{one.user.name}/api/kernels/{kernel.id}")[0] == 200  # the control
            assert other.ask("DELETE", f"/hub/api/users/{one.user.name}/server")[0] in {403, 404}
            assert one.ask("POST", f"/user/{one.user.name}/api/kernels", {"name": "python3"})[0] == 403


def test_a_kernel_too_many_says_in_the_notebook_what_the_limit_is_and_who_set_it(
    site: Site, people: tuple[Member, Member]
) -> None:
    ann, ben = people
    with contextlib.ExitStack() as stack:
        for _ in range(SESSIONS):
            assert said(stack.enter_context(kernel_of(ann)), "1 + 1") == "2"
        one_more = stack.enter_context(kernel_of(ann))
        words = said(one_more, "1 + 1")
        print(words)
        assert words.startswith("QuotaExceeded: ")
        assert f"{SESSIONS} sandboxes at once" in words
        assert f"{site.folder}/broker.toml, [group.{GROUP}]" in words
        assert said(stack.enter_context(kernel_of(ben)), "1 + 1") == "2"  # another person's are not among them
        assert metrics_of(site)['refusals_total{code="quota-exceeded"}'] >= 1
    with kernel_of(ann) as kernel:  # the control: once these have ended
        eventually(lambda: said(kernel, "1 + 1") == "2", 30, "there is room again")


def metrics_of(site: Site) -> dict[str, float]:
    return hubs.metrics(site.machine)


def test_nobody_sees_or_ends_another_s_sandbox(site: Site, people: tuple[Member, Member]) -> None:
    ann, ben = people
    with kernel_of(ann) as hers, kernel_of(ben) as his:
        assert said(hers, "kept = 41") == said(his, "kept = 1") == ""
        mine = {one.user.name: site.rows(one.user) for one in people}
        pids = {one.user.name: kernel_processes(one)[0].pid for one in people}
        assert [[row["owner_pid"] for row in rows] for rows in mine.values()] == [[pids[ANN]], [pids[BEN]]]
        assert {row["container"] for row in running(site)} == {
            row["container"] for rows in mine.values() for row in rows
        }
        [row] = mine[ANN]

        for command in ("reap", "ps"):
            site.machine.run([COMMAND, command], ben.user)
        shown, control, adopted, killed, listed = site.asked(
            ben.user,
            {"op": "shown", "container": row["container"]},
            {"op": "status"},
            {"op": "adopt", "container": row["container"]},
            {"op": "kill", "container": row["container"]},
            {"op": "list", "uid": ann.user.uid},
        )
        assert not any(shown["shown"][name] for name in ("inside", "own", "mounts"))
        assert (control["yours"], control["all"]) == (1, 2)
        assert adopted["refused"]["code"] == killed["refused"]["code"] == "broker-improper"
        assert [one["container"] for one in listed["rows"]] == [one["container"] for one in mine[BEN]]

        for name in ("docker", "kill"):  # nor by the engine's own program, or by a signal
            words = {"docker": ["docker", "rm", "-f", row["container"]], "kill": ["kill", "-9", str(pids[ANN])]}[name]
            assert site.machine.run_as(words, ben.user).returncode != 0
        assert said(hers, "kept + 1") == "42"


def test_sockets_and_proc_say_nothing_to_others(site: Site, people: tuple[Member, Member]) -> None:
    ann, ben = people
    with kernel_of(ann) as hers:
        assert said(hers, "open('secret', 'w').write('x')") == "1"
        processes = [*ann.user.processes(), site.broker, *site.broker.children(), *inside(site, ann)]
        pids = [one.pid for one in processes]
        [process] = kernel_processes(ann)
        file = next(Path(word) for word in process.cmdline() if word.endswith(".json"))
        paths = [ann.user.home, file, ann.user.home / "audit.jsonl"]
        words = [str(places.PYTHON), "-I", "-c", LOOK, ",".join(map(str, pids)), ",".join(map(str, paths))]
        found = json.loads(site.machine.run(words, ben.user))
        open_to_him = {name for name, end in found.items() if end == "done"}
        assert open_to_him == {"the broker"}, found
        assert len(found) == 9 * len(pids) + len(paths) + 5

        # The control: the same, by her, who may look at what is hers.
        own = json.loads(site.machine.run(words, ann.user))
        assert own[f"environ of {process.pid}"] == own[f"signal to {process.pid}"] == own[str(file)] == "done"
        assert own["docker"] == own["metrics"] == "EACCES"

        # What all users see of each other's processes are the words of their command lines.
        key = json.loads(file.read_text(encoding="utf-8"))["key"]
        lines = " ".join(" ".join(one.cmdline()) for one in processes)
        assert "sandbox_kernel" in lines
        assert key not in lines
        assert ann.token not in lines


def inside(site: Site, member: Member) -> list[psutil.Process]:
    """Return the processes of a person's sandboxes, as root sees them."""
    [row] = site.rows(member.user)
    found = []
    for one in psutil.process_iter():
        with contextlib.suppress(OSError):
            if row["container"] in Path(f"/proc/{one.pid}/cgroup").read_text(encoding="utf-8"):
                found.append(one)
    assert found
    return found


def test_files_and_the_audit_are_each_one_s_own(site: Site, people: tuple[Member, Member]) -> None:
    _, ben = people
    for one in people:
        (uploads := one.user.home / "uploads").mkdir(exist_ok=True)
        (uploads / "whose.txt").write_text(one.user.name)
        for path in (uploads, uploads / "whose.txt"):
            os.chown(path, one.user.uid, one.user.gid)
    sessions: dict[str, set[str]] = {}
    for one in people:
        with kernel_of(one) as kernel:
            assert said(kernel, "import os; open('whose.txt').read()") == repr(one.user.name)
            assert said(kernel, f"open('made-by-{one.user.name}', 'w').write('x')") == "1"
            assert said(kernel, f"os.path.exists({str(ben.user.home)!r}), os.path.exists('/home')").startswith("(False")
        made = one.user.home / "downloads" / f"made-by-{one.user.name}"
        assert made.stat().st_uid == one.user.uid
    for one, other in (people, people[::-1]):
        assert not list(one.user.home.glob(f"downloads/*{other.user.name}"))
        audit = one.user.home / "audit.jsonl"
        assert (audit.stat().st_uid, audit.stat().st_mode & 0o077) == (one.user.uid, 0)
        assert site.machine.run([COMMAND, "audit", "verify", str(audit)], one.user)
        denied = site.machine.run_as([COMMAND, "audit", "verify", str(audit)], other.user)
        assert denied.returncode != 0
        lines = audit.read_text(encoding="utf-8").splitlines()
        sessions[one.user.name] = {str(json.loads(line).get("session")) for line in lines} - {"None"}
    assert all(sessions.values())
    assert not set.intersection(*sessions.values())


@pytest.mark.parametrize("how", ["stopped", "killed"])
def test_a_server_that_has_ended_leaves_nothing(site: Site, people: tuple[Member, Member], how: str) -> None:
    """By the hub's own button, or with SIGKILL for the server and its kernels; the other person notices nothing."""
    ann, ben = people
    hers, his = [kernel_of(ann) for _ in range(SESSIONS)], kernel_of(ben)
    with his:
        for one in (*hers, his):
            assert said(one, "kept = 41") == ""
        gone = {row["container"][:12] for row in site.rows(ann.user)}
        assert len(gone & containers()) == SESSIONS
        if how == "stopped":
            ann.stop_server()
        else:
            for process in ann.user.processes():
                process.send_signal(signal.SIGKILL)
        seconds = hubs.nothing_more_of(ann.user)
        left = eventually(lambda: not containers() & gone, 10, "no container is left")
        print(f"{how}: no process after {seconds:.1f} s, no container {left:.1f} s later")
        eventually(lambda: site.rows(ann.user) == [], 10, "the broker has noticed")
        assert said(his, "kept + 1") == "42"
        eventually(lambda: not ann.is_served, 60, "the hub has noticed")


def containers() -> set[str]:
    """Return what the engine itself has; its list has the beginnings of their numbers."""
    return {row.container for row in asyncio.run(DockerEngine().list())}


def test_what_was_ready_is_claimed(site: Site, people: tuple[Member, Member]) -> None:
    """A person of a hub has the sandbox that was made ahead for whoever comes."""
    ann, _ = people
    with kernel_of(ann) as first:
        assert said(first, "1 + 1") == "2"
    before = metrics_of(site)
    try:
        eventually(lambda: metrics_of(site)['sandboxes{state="ready"}'] == 1, READY_SECONDS, "one is ready")
    except AssertionError:
        if metrics_of(site)["pool_lost_total"] > before["pool_lost_total"] or not under_pressure():
            raise
        pytest.skip("others are busy on this machine: nothing is made ahead")
    with kernel_of(ann) as second:
        assert said(second, "1 + 1") == "2"
    name = 'claim_seconds_count{kind="warm"}'
    assert metrics_of(site)[name] == before[name] + 1


def test_the_readme_works_for_a_person_of_the_hub(site: Site, people: tuple[Member, Member]) -> None:
    """Without Docker's group: setup, doctor, and the notebook of `make demo` with its plots."""
    ann, _ = people
    printed = site.machine.run([COMMAND, "setup", "--yes", "--user"], ann.user, seconds=180)
    print(printed)
    assert "the operator's" in printed
    folder = ann.user.home / "project"
    shutil.copytree(ROOT / "notebooks", folder / "notebooks")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, ann.user.uid, ann.user.gid)
    demo = [str(places.PYTHON), str(folder / "notebooks/demo.py"), "--output", str(folder / "output")]
    printed = site.machine.run(demo, ann.user, seconds=240)
    print(printed)
    [notebook] = (folder / "output").rglob("*.ipynb")
    assert notebook.read_text(encoding="utf-8").count('"image/png"') == 2


def test_a_hub_that_ends_takes_all_servers_along_and_the_broker_leaves_nothing(site: Site) -> None:
    """On a hub of its own beside the other: what ends with it are the servers that it started."""
    ann, ben = site.people
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-hub-") as name:
        for one in (ann, ben):
            if one.is_served:
                one.stop_server()
        with hubs.a_hub(site.machine, Path(name), site.folder / "kernels", [ann.user]) as other:
            member = other.login(ann.user)
            member.start_server()
            assert said(kernel_of(member), "1 + 1") == "2"
            gone = {row["container"][:12] for row in site.rows(ann.user)}
            assert len(gone & containers()) == 1
            other.stop()
        hubs.nothing_more_of(ann.user)
        eventually(lambda: not containers() & gone, 10, "no container is left")
