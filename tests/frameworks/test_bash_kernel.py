"""The Bash kernel of an image, on this machine: jupyter_kernel_test's suite, and what a shell is expected to do."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import jupyter_kernel_test
import psutil
import pytest

from sandbox_kernel.core.package_files import brought
from tests.support.image_kernels import HostKernel, install
from tests.support.kernels import eventually

INTERRUPTED = ("KeyboardInterrupt", "")
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module", autouse=True)
def _by_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("jupyter")
    install("bash", folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder))
        yield


class TestSuite(jupyter_kernel_test.KernelTests):
    kernel_name = "host-bash"
    language_name = "bash"
    file_extension = ".sh"
    code_hello_world = "echo hello, world"
    code_stderr = "echo test >&2"
    completion_samples = [{"text": "unal", "matches": {"unalias"}}]  # noqa: RUF012
    complete_code_samples = ["echo 1", "f() {\n  echo 2\n}", "cat <<E\nx\nE"]  # noqa: RUF012
    incomplete_code_samples = ["for x in 1; do", "echo 'a", "cat <<E\nx", "echo \\"]  # noqa: RUF012
    invalid_code_samples = ["fi", "echo )"]  # noqa: RUF012
    code_generate_error = "false"
    code_inspect_sample = "cd"


class TestIopubWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "host-bash"
    support_iopub_welcome = True


SUBSCRIBED_MEANWHILE = """
import json, sys, zmq
from kernel_base import Kernel
ports = {f"{name}_port": n for n, name in enumerate(("shell", "control", "stdin", "iopub", "hb"), 1)}
with open("connection.json", "w") as file:
    json.dump({"transport": "ipc", "ip": "k", "key": "", "signature_scheme": "hmac-sha256", **ports}, file)
kernel = Kernel("connection.json")
client = kernel.context.socket(zmq.SUB)
client.rcvtimeo = 10_000
client.subscribe(b"")
client.connect("ipc://k-4")
assert kernel.iopub.poll(10_000), "the kernel has not seen it, and the socket has"
kernel.publish("status", {"execution_state": "busy"}, {})
for _ in range(2):
    print(client.recv_multipart()[0].rsplit(b".", 1)[-1].decode(), flush=True)
client.close()
kernel.context.destroy(linger=0)
"""


def test_who_subscribes_while_something_is_published_hears_the_welcome_first(tmp_path: Path) -> None:
    environment = dict(os.environ, PYTHONPATH=str(brought("images") / "kernels"))
    command = [sys.executable, "-c", SUBSCRIBED_MEANWHILE]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (ran.stdout, ran.returncode) == ("iopub_welcome\nstatus\n", 0), ran.stderr


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostKernel]:
    kernel = HostKernel("bash", tmp_path_factory.mktemp("bash"))
    yield kernel
    kernel.close()


@pytest.fixture
def bash(shared: HostKernel) -> HostKernel:
    """The kernel, with a shell that is new."""
    shared.run("exit")
    return shared


def test_cells_share_variables_functions_aliases_options_and_the_folder(bash: HostKernel) -> None:
    bash.run("x='a  b'; list=(1 2 3); export Y=y\nmkdir -p sub && cd sub\nf() { echo \"f:$1\"; }\nalias hey='echo hey'")
    bash.run("shopt -s extglob; set -o pipefail")
    ran = bash.run('echo "$x" ${list[2]} "$PWD"; f 1; hey; sh -c \'echo $Y\'; echo @(no|yes); false | true')
    assert ran.text() == f"a  b 3 {bash.folder}/sub\nf:1\nhey\ny\n@(no|yes)\n"
    assert ran.error == ("ExitCode", "1")


@pytest.mark.parametrize(
    ("code", "status"),
    [("false", 1), ("(exit 7)", 7), ("true; false", 1), ("no-such-command", 127), ("sh -c 'kill -9 $$'", 137)],
)
def test_a_cell_fails_with_the_exit_code_of_its_last_command(code: str, status: int, bash: HostKernel) -> None:
    assert bash.run(code).error == ("ExitCode", str(status))
    assert bash.run("false; true").error is None


@pytest.mark.parametrize(
    "code",
    [
        *("echo 'a", 'echo "a', "echo $(", "echo `a", "((1+", "[[ a", "${", "x=(1 2", "case a in", "f() {", "if", "}"),
        *("fi", ")", ";;", "&", "| cat", "cat <<E\nx", "echo \\", "for", "a=$((", "<(", "coproc {", "!", "time", "{"),
    ],
)
def test_a_syntax_error_ends_its_cell_alone(code: str, bash: HostKernel) -> None:
    bash.run("kept=1")
    bash.run(code)
    after = bash.run("echo $kept")
    assert (after.text(), after.error) == ("1\n", None)


def test_outputs_are_apart_and_in_the_order_of_time(bash: HostKernel) -> None:
    ran = bash.run("echo a; sleep 0.1; echo b >&2; sleep 0.1; echo c")
    assert ran.outputs == [("stdout", "a\n"), ("stderr", "b\n"), ("stdout", "c\n")]


def test_a_cell_sees_a_terminal_of_80_columns_and_bytes_are_not_changed(bash: HostKernel) -> None:
    ran = bash.run(
        "[[ -t 1 && -t 2 ]] && tput cols; printf 'a\\tb\\r\\nü\\e]0;title\\a\\e[31m\\0\\e[2J'; printf '\\xff\\xc3'"
    )
    assert ran.text() == "80\na\tb\r\nü\x1b]0;title\a\x1b[31m\0\x1b[2J\ufffd\ufffd"
    assert bash.run("echo next").text() == "next\n"


def test_no_descriptor_of_the_kernel_is_in_a_command(bash: HostKernel) -> None:
    """But those of `display`; a command cannot write an exit code."""
    found = bash.run("echo /proc/self/fd/*; ls /proc/self/fd | tr '\\n' ' '").text().split("\n")[1].split()
    assert {name for name in found if int(name) > 3} <= {"42", "43", "251"}


def test_outputs_come_while_the_cell_runs(bash: HostKernel) -> None:
    """The interrupt comes after the first output, which came long before the end."""
    ran = bash.run("echo first; sleep 60; echo last", interrupt_after="first")
    assert (ran.text(), ran.error) == ("first\n", INTERRUPTED)


@pytest.mark.parametrize(
    "code",
    [
        *("sleep 60", "while true; do :; done", "sleep 60 | cat", "(sleep 60)", "x=$(sleep 60)", "bash -c 'sleep 60'"),
        *("for x in 1 2 3; do sleep 60; done", "python3 -c 'import time; time.sleep(60)'", "wait $background"),
        *("read x < <(sleep 60)", "{ trap 'true' INT; sleep 60; false; }", "f() { sleep 60; }; f"),
    ],
)
def test_an_interrupt_ends_what_runs_and_leaves_the_shell(code: str, bash: HostKernel) -> None:
    bash.run("kept=1; sleep 60 & background=$!")
    ran = bash.run(f"echo go\n{code}\necho next", interrupt_after="go")
    assert (ran.text().split(), ran.error) == ((["go", "next"], None) if "trap" in code else (["go"], INTERRUPTED))
    after = bash.run("echo $kept; kill -0 $background")
    assert (after.text(), after.error) == ("1\n", None)
    bash.run("kill $background")


def test_an_interrupt_between_cells_does_nothing(bash: HostKernel) -> None:
    bash.run("x=1")
    for _ in range(3):
        bash.interrupt()
    assert bash.run("echo $x").text() == "1\n"


def test_a_second_interrupt_kills_what_ignores_the_first(bash: HostKernel) -> None:
    import threading

    timer = threading.Timer(1.5, bash.interrupt)
    timer.start()
    ran = bash.run("kept=1; (trap '' INT; echo go; while true; do sleep 1; done)", interrupt_after="go")
    assert ran.error == INTERRUPTED
    assert bash.run("echo $kept").text() == "1\n"


@pytest.mark.parametrize(
    "code", ["exit 3", "enable -n printf", "kill -9 $$", "exec false", "set -e; false; echo no", "exec true"]
)
def test_a_cell_that_ends_the_shell_says_so_and_the_next_has_a_new_one(code: str, bash: HostKernel) -> None:
    bash.run("x=1; cd /")
    ran = bash.run(f"echo before; {code}")
    assert ran.text() == "before\n"
    assert ran.error is not None
    assert ran.error[0] == "ShellEnded"
    assert "the next cell has a new one" in ran.reply["traceback"][0]
    after = bash.run("echo [$x] $PWD")
    assert (after.text(), after.error) == (f"[] {bash.folder}\n", None)


def test_a_shell_that_is_killed_between_cells_is_replaced_and_that_is_said(bash: HostKernel) -> None:
    pid = int(bash.run("echo $$").text())
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE, 10, "end")
    ran = bash.run("echo new")
    assert ran.text() == "new\n"
    assert "SIGKILL" in ran.text("stderr")


def test_jobs_in_the_background_live_on_and_their_output_comes_with_a_later_cell(bash: HostKernel) -> None:
    bash.run("(while [[ ! -e go ]]; do sleep 0.02; done; echo late) &")
    ran = bash.run("touch go; wait")
    assert "late\n" in ran.text()


def test_a_command_that_reads_has_no_input_where_none_is_allowed(bash: HostKernel) -> None:
    ran = bash.run("read x; echo $?; cat; cat /dev/tty; python3 -c 'input()' 2>&1 | tail -1; echo end")
    assert ran.text() == "1\nEOFError: EOF when reading a line\nend\n"


def test_a_command_that_reads_asks_the_front_end(bash: HostKernel) -> None:
    code = "read -p 'name: ' x; echo \"<$x>\"; head -1; python3 -c 'print(input(), \"!\")'; read -s -p 'Password: ' p"
    ran = bash.run(f"{code}; echo $p", inputs=["a b", "line", "ü", "secret"])
    assert ran.text() == "<a b>\nline\nü !\nsecret\n"
    assert [asked["password"] for asked in ran.asked] == [False, False, False, True]


def test_an_end_of_file_is_an_input_too(bash: HostKernel) -> None:
    ran = bash.run("cat; echo end", inputs=["one", "\x04"])
    assert ran.text() == "one\nend\n"


def test_an_interrupt_ends_a_question(bash: HostKernel) -> None:
    import threading

    bash.client.execute("read x", allow_stdin=True)
    assert bash.client.get_stdin_msg(timeout=30)["msg_type"] == "input_request"
    threading.Timer(0.0, bash.interrupt).start()
    assert bash.client.get_shell_msg(timeout=30)["content"]["ename"] == "KeyboardInterrupt"
    assert bash.run("echo on").text() == "on\n"


def test_display_shows_files_in_their_place(bash: HostKernel) -> None:
    (bash.folder / "a.png").write_bytes(PIXEL)
    (bash.folder / "b.json").write_text('{"x": [1]}')
    ran = bash.run(
        "echo 1; display a.png; rm a.png; echo 2; display b.json; echo '<b>x</b>' > c; display -t text/html c"
    )
    assert ran.text("stderr") == ""
    assert [kind for kind, _ in ran.outputs] == ["stdout", "display_data", "stdout", "display_data", "display_data"]
    assert [list(data) for data in ran.shown] == [["image/png"], ["application/json"], ["text/html"]]
    assert base64.b64decode(ran.shown[0]["image/png"]) == PIXEL
    assert ran.shown[1]["application/json"] == {"x": [1]}


@pytest.mark.parametrize(
    ("make", "name", "says"),
    [
        ("", "none.png", "No such file"),
        ("touch a.exe", "a.exe", "cannot be shown"),
        ("mkfifo p.png", "p.png", "no regular file"),
        ("mkdir d.png", "d.png", "directory"),
        ("echo '{' > bad.json", "bad.json", "Expecting"),
        ("truncate -s 11M big.png", "big.png", "10 MiB"),
    ],
)
def test_display_says_what_it_cannot_show(make: str, name: str, says: str, bash: HostKernel) -> None:
    bash.run(make)
    ran = bash.run(f"display {name}")
    assert (ran.error, ran.shown) == (("ExitCode", "1"), [])
    assert says in ran.text("stderr")


@pytest.mark.slow
def test_a_flood_passes_whole_and_in_bounded_memory(bash: HostKernel) -> None:
    process = psutil.Process(bash.pid)
    before = process.memory_info().rss
    ran = bash.run("seq 3000000")
    assert ran.text() == "".join(f"{number}\n" for number in range(1, 3_000_001))
    assert process.memory_info().rss < before + (64 << 20)


def test_each_output_comes_before_the_end_of_its_cell(bash: HostKernel) -> None:
    for number in range(200):
        assert bash.run(f"echo {number}").outputs == [("stdout", f"{number}\n")]


def test_a_long_line_and_a_long_cell(bash: HostKernel) -> None:
    assert len(bash.run("head -c 1000000 /dev/zero | tr '\\0' x").text()) == 1_000_000
    text = "é'\"\\$`!\n" * 40_000
    assert bash.run(f"cat <<'END'\n{text}END").text() == text
    assert bash.run("echo a\0b").error == ("ValueError", "a cell of Bash cannot have a null character")


def test_a_cell_that_breaks_its_shell_can_be_interrupted(bash: HostKernel) -> None:
    import threading

    timer = threading.Timer(1.5, bash.interrupt)
    timer.start()
    ran = bash.run("builtin() { :; }; printf() { :; }; echo go; kill -STOP $$", interrupt_after="go")
    timer.join()
    assert ran.error is not None
    assert bash.run("echo new").text() == "new\n"


def test_completions_and_help_know_the_live_shell(bash: HostKernel) -> None:
    bash.run("my_function() { :; }; my_variable=17; touch 'my file' my_data.csv; mkdir my_folder")
    assert bash.ask("complete", "my_f", 4)["matches"] == ["my_function"]
    assert bash.ask("complete", "echo $my_v", 10)["matches"] == ["$my_variable"]
    assert bash.ask("complete", "cat my_", 7)["matches"] == ["my_data.csv", "my_folder/"]
    assert "17" in bash.ask("inspect", "echo $my_variable", 8)["data"]["text/plain"]
    assert "is a function" in bash.ask("inspect", "my_function", 3)["data"]["text/plain"]
    assert bash.ask("inspect", "no_such_thing", 3)["found"] is False


def test_a_restart_ends_the_shell(tmp_path: Path) -> None:
    with closing(HostKernel("bash", tmp_path)) as kernel:
        pid = int(kernel.run("trap '' HUP TERM; sleep 1000 & echo $$").text())
        kernel.manager.restart_kernel()
        kernel.client.wait_for_ready(timeout=30)
        eventually(lambda: not psutil.pid_exists(pid), 10, "the end of the shell")
        assert kernel.run("echo new").text() == "new\n"
