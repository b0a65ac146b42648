"""Programs that cells bring along are noticed as the host's kernel shows them, under whatever name they run."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.monitor.codes import MonitorCode
from tests.support.cases import some
from tests.support.kernels import eventually

pytestmark = pytest.mark.timeout(300)

RULES = {
    MonitorCode.DROPPED_PROGRAM.code: {"seconds": 0.6},
    MonitorCode.NOT_WATCHED.code: {"seconds": 1},
    **{code.code: {"level": "off"} for code in (MonitorCode.BUSY_IN_SILENCE, MonitorCode.BUSY_WITHOUT_CELL)},
}
"""With these, the host looks ten times a second: a busy machine then sees a program that runs for two seconds."""


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


def watched(folder: Path, image: str, **settings: Any) -> Watched:
    audit = folder / "audit.jsonl"
    table = {"level": "alert", "rules": RULES}
    return Watched(Sandbox(image=image, monitor=table, audit=str(audit), memory="512M", **settings), audit)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Watched]:
    found = watched(tmp_path_factory.mktemp("watched"), image)
    with found.sandbox:
        yield found


BROUGHT = """
import os, shutil, subprocess, time
def brought(path):
    shutil.copy("/bin/sleep", path); os.chmod(path, 0o755)
    return path
"""
LOADED = (
    BROUGHT
    + """
import glob
loader = os.path.realpath([*glob.glob("/lib64/ld-*"), *glob.glob("/lib/ld-*")][0])
os.chmod(brought("brought"), 0o644)
print(subprocess.run([loader, *%r]).returncode)
"""
)
DROPPED = {
    "one of the working folder": BROUGHT + "print(subprocess.run([brought('./miner'), '2']).returncode)",
    "one that the loader starts": LOADED % ["./brought", "2"],
    "one that the loader starts from a full path": LOADED % ["/mnt/data/../../mnt/data/brought", "2"],
    "one behind options of the loader": LOADED
    % ["--inhibit-rpath", "", "--library-path", "/usr/lib", "./brought", "2"],
    "a file in memory": BROUGHT
    + (
        "fd = os.memfd_create('x'); os.write(fd, open('/bin/sleep', 'rb').read())\n"
        "pid = os.fork()\nif not pid: os.execve(fd, ['sleep', '2'], {})\nprint(os.waitpid(pid, 0)[1])"
    ),
    "a path from a folder above": BROUGHT
    + "brought('/tmp/m2'); print(subprocess.run(['/usr/bin/../../tmp/./m2', '2']).returncode)",
    "one that is removed while it runs": BROUGHT
    + "left = subprocess.Popen([brought('./gone'), '2']); os.unlink('gone'); print(left.wait())",
    "one with the name of another": BROUGHT
    + "print(subprocess.run(['python3', '2'], executable=brought('/tmp/python3')).returncode)",
    "one behind a link": BROUGHT
    + "brought('/tmp/real'); os.path.lexists('ls') or os.symlink('/tmp/real', 'ls')\n"
    + "print(subprocess.run(['./ls', '2']).returncode)",
    "one that goes on after its cell": BROUGHT
    + "subprocess.Popen([brought(f'./sleeper{time.monotonic_ns()}'), '2'], start_new_session=True); print(0)",
}


@pytest.mark.parametrize("what", some(DROPPED, of=2))
def test_a_program_of_the_cells_own_is_seen_under_other_names(one: Watched, what: str) -> None:
    def noticed() -> bool:
        before = len(one.findings())
        assert one.run(DROPPED[what]) == "0\n"
        one.run("import time; time.sleep(1.1)")
        return "dropped-program" in {line["code"] for line in one.findings()[before:]}

    eventually(noticed, 20, "it is in the audit")


def test_a_program_of_the_image_is_no_dropped_one_by_its_loader_either(one: Watched) -> None:
    """The control of those that a loader starts, and of interpreters that run what cells wrote."""
    one.run("import time; time.sleep(1.1)")
    before = len(one.findings())
    assert one.run(LOADED % ["--library-path", "/usr/lib", "/bin/sleep", "2"]) == "0\n"
    script = "open('own.py', 'w').write('import time; time.sleep(2)')\nimport subprocess, sys\n"
    assert one.run(script + "print(subprocess.run([sys.executable, './own.py']).returncode)") == "0\n"
    assert one.findings()[before:] == []


def test_a_name_that_would_write_to_a_terminal_is_printable_and_short(one: Watched) -> None:
    name = "'./' + chr(27) + ']0;owned' + chr(7) + 'x' * 200"

    def noticed() -> list[str]:
        one.run(BROUGHT + f"print(subprocess.run([brought({name}), '2']).returncode)")
        return [line["reason"] for line in one.findings() if "owned" in line["reason"]]

    eventually(noticed, 20, "it is in the audit")
    (reason, *_) = noticed()
    assert reason.isprintable()
    assert len(reason) < 300


def test_one_among_hundreds_of_processes_is_seen_all_the_same(one: Watched) -> None:
    """A look takes as many as it may, by chance, so none of the others hides it for long."""
    crowd = (
        BROUGHT
        + """
crowd = [subprocess.Popen(["/bin/sleep", "60"]) for _ in range(150)]
left = subprocess.Popen([brought("./hidden"), "60"])
print(len(crowd))
"""
    )
    before = len(one.findings())
    assert one.run(crowd) == "150\n"
    eventually(
        lambda: any("/mnt/data/hidden" in line["reason"] for line in one.findings()[before:]), 30, "it is in the audit"
    )
    one.sandbox.restart()


def test_an_unseen_sandbox_is_said_to_be_one(tmp_path: Path, image: str, one: Watched) -> None:
    """Under gVisor, this machine has gVisor's processes and not those of the cells. The other one is the control."""
    found = watched(tmp_path, image, runtime="runsc")
    with found.sandbox:
        found.run(DROPPED["one of the working folder"])
        eventually(lambda: found.findings() != [], 20, "it is in the audit")
        assert {(line["code"], line["level"]) for line in found.findings()} == {("not-watched", "note")}
    assert "not-watched" not in {line["code"] for line in one.findings()}


def test_with_a_monitor_a_sandbox_is_the_one_that_it_is_without_but_for_a_thread(one: Watched, image: str) -> None:
    """The thread answers the calls that are watched; there are as many filters, and no file is planted."""
    look = "import os\nprint(os.path.exists('/tmp/home/.aws'), len(os.listdir('/proc/1/task')), " + (
        "[line.split()[1] for line in open('/proc/self/status') if line.startswith('Seccomp_filters')])"
    )
    with Sandbox(image=image, memory="512M") as plain:
        assert "".join(plain.run_code(look).logs.stdout) == "False 1 ['3']\n"
        assert one.run(look) == "False 2 ['3']\n"
