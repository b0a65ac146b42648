"""bubblewrap within a container, as in a pod: Linux mounts no new /proc there, for a part of its own is masked."""

from __future__ import annotations

import pytest

from tests.support import ordinary, pods
from tests.support.roots import root_of_tests

ENGINES, ESCAPES = "tests/container/engines", "tests/attacks/escape"

SESSION = """
import os
from sandbox_kernel import Sandbox, SandboxError
with Sandbox(engine="bubblewrap", limits="best-effort", image=os.environ["SANDBOX_KERNEL_TEST_ROOT"]) as sandbox:
    print(sandbox.run_code("import os; sorted(name for name in os.listdir('/proc') if name.isdigit())").text)
    print(sandbox.run_code("open('/proc/1/environ').read()").error.name)
    print(sandbox.files.read("/proc/meminfo")[:9], sandbox.commands.run("echo out").stdout)
    print(sandbox.run_code("while True: pass", timeout=0.5).error.kept)
    try:
        sandbox.create_context()
    except SandboxError as error:
        print(error.code, error)
"""
"""A kernel, its files, a command, a cell that is stopped, and what does not go."""
QUICKSTART = "from sandbox_kernel import Sandbox\nwith Sandbox(image={!r}{}): pass"


@pytest.fixture(autouse=True)
def _can_be_tried() -> None:
    if why := ordinary.absent():
        pytest.skip(why)


def test_a_session_sees_no_process_but_its_agent() -> None:
    ran = pods.run(pods.NUMBER_ALONE, ["-c", SESSION], seconds=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    seen, environment, files, _, kept, refused = ran.stdout.splitlines()
    assert (seen, environment, files, kept) == ("['1']", "PermissionError", "MemTotal: out", "variables-and-files")
    assert "no /proc of its own" in refused


def test_root_has_to_see_the_processes_of_its_sandboxes() -> None:
    words = QUICKSTART.format(root_of_tests(), ", engine='bubblewrap', limits='best-effort'")
    options = ("--security-opt", "seccomp=unconfined")
    ran = pods.run(options, ["-c", words], seconds=60)
    assert "with --cap-add SYS_PTRACE" in ran.stderr.splitlines()[-1]
    ran = pods.run((*options, "--cap-add", "SYS_PTRACE"), ["-c", words], seconds=60)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.long
def test_the_contract_and_what_the_page_says_hold() -> None:
    """But for a folder in the place of a disk: a container's own files are on no disk that the engine knows."""
    tests = [f"{ENGINES}/test_contract.py", f"{ENGINES}/test_enforcement.py"]
    ran = pods.run_tests(tests, "effort and not broker and not disk", seconds=100)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]


@pytest.mark.long
def test_every_attack_is_refused() -> None:
    select = "(test_attacks or test_agent) and effort and not broker and not its_own_speed"  # which goes by psutil
    ran = pods.run_tests([ESCAPES], select, seconds=240)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]


@pytest.mark.parametrize("arguments", ["", ", engine='bubblewrap', limits='best-effort'"])
def test_with_docker_s_own_profile_one_sentence_says_what_to_do(arguments: str) -> None:
    ran = pods.run([], ["-c", QUICKSTART.format(root_of_tests(), arguments)], seconds=60)
    assert ran.returncode != 0
    assert "start that with `--user 1000 --security-opt seccomp=unconfined`" in ran.stderr.splitlines()[-1]
