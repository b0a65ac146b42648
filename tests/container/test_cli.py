"""The command line as people meet it: real processes, their exit codes and what they say."""

from __future__ import annotations

import json
import os
import pwd
import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox, __version__, cli
from sandbox_kernel.cli import help_text, subcommands
from sandbox_kernel.cli.program import parse, parser
from sandbox_kernel.config import sources as config
from sandbox_kernel.config.table import SETTINGS
from sandbox_kernel.core.model import SandboxSample
from sandbox_kernel.engines.docker import engine as documents
from sandbox_kernel.engines.inspectable import Listed
from sandbox_kernel.policy.safe_text import columns
from sandbox_kernel.setup.install import check
from tests.support.command_line import SCRIPT, run
from tests.support.kernels import eventually
from tests.support.roots import root_of_tests

NO_ENGINE = "--engine=unix:///nonexistent/engine.sock"


PROGRAMS = ([str(SCRIPT)], [sys.executable, "-m", "sandbox_kernel"])


def process(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a process of its own."""
    return subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS, ids=["sandbox-kernel", "python -m sandbox_kernel"])
def test_both_names_of_the_program(program: list[str]) -> None:
    """Both know their version, and what a command returns is the exit code of the process."""
    assert process(*program, "--version").stdout.strip() == f"sandbox-kernel {__version__}"
    done = process(*program, "ps", "--memroy", "1")
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean memory" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_the_first_page_of_help_is_enough_to_find_one_s_way() -> None:
    """Every command stands in its group with what it does; examples, settings and exit codes follow."""
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    parts = done.stdout.split("\n\n")
    titles = [part.partition(":\n")[0].strip() for part in parts if ":\n" in part]
    assert titles == [*help_text.GROUPS, "examples", "settings", "exit codes"]
    for title, names in parser().groups.items():
        [group] = [part for part in parts if part.lstrip().startswith(f"{title}:\n")]
        assert re.findall(r"^  ([\w-]+) +\S", group, re.MULTILINE) == list(names)
    assert help_text.SOURCES in " ".join(done.stdout.split())
    assert re.search(rf"^  3 +{help_text.EXIT_CODES['3']}$", done.stdout, re.MULTILINE)
    assert all(len(line) <= help_text.WIDTH for line in done.stdout.splitlines())


def test_every_command_is_in_one_group_and_has_an_example() -> None:
    grouped = [name for names in parser().groups.values() for name in names]
    assert sorted(grouped) == sorted(parser().commands)
    assert all(command.examples for command in parser().commands.values())
    assert {name for names in help_text.GROUPS.values() for name in names} == set(help_text.EXAMPLES)
    assert set(help_text.FIRST_STEPS) <= set(grouped)


@pytest.mark.parametrize("example", [line for one in parser().commands.values() for line in one.examples])
def test_an_example_of_the_help_works(example: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name and flags are known, and its settings pass the checks that they pass at installation."""
    monkeypatch.setattr("sandbox_kernel.setup.install.from_files", dict)
    [program, *words] = shlex.split(example.partition(" > ")[0])
    options = parse(words)
    assert program == "sandbox-kernel"
    assert example in parser().commands[options.command].examples
    check(options.values)


@pytest.mark.parametrize("name", parser().commands)
def test_the_page_of_a_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It explains every option and every setting that may be given, and shows examples and exit codes."""
    command = parser().commands[name]
    with pytest.raises(SystemExit):  # in this process; the page of all commands has one of its own
        cli.main([name, "--help"])
    shown = capsys.readouterr().out
    hidden = {setting.flag for setting in SETTINGS.values()}
    explained = [action for action in command.actions if action.help != "==SUPPRESS=="]
    assert all(action.help for action in explained)
    assert all(word in shown for action in explained for word in action.option_strings)
    assert re.search(r"^exit codes:\n  0 +\S", shown, re.MULTILINE)
    assert all(f"\n  {line}\n" in shown for line in command.examples)
    assert all(len(line) <= 120 for line in shown.splitlines())
    own = {word for action in explained for word in action.option_strings}
    if command.shown:  # what only asks an engine does not explain fifty settings
        assert {flag for flag in hidden if f"\n  {flag} " in shown} == {SETTINGS[one].flag for one in command.shown}
        assert len(shown.splitlines()) < 45
        return
    headings = {f"\n  {flag} " in shown for flag in hidden - (set() if command.takes_settings else own)}
    assert headings == {command.takes_settings}
    if command.takes_settings:
        assert "\n  --memory SIZE\n" in shown
        assert "(default: 2.0 GiB)" in shown
        assert "\n  --outputs safe|strict|trusted\n" in shown


USAGE = {
    "no command": ([], "required: COMMAND"),
    "an unknown command": (["instal"], "invalid choice"),
    "a misspelt option": (["run", "--inptu", "a.csv", "a.ipynb"], "run has no option --inptu (did you mean input?)"),
    "a bad value": (["settings", "--memory", "lots"], "memory is not a size"),
    "a setting where there are none": (["build", "--memory", "1G"], "build does not know the argument '--memory'"),
    "an abbreviated option": (["build", "--forc"], "does not know the argument"),
    "a name that no image can have": (["build", "--tag", "Bad Tag!"], "no name of an image"),
    "an empty prefix": (["install", "--prefix", ""], "an empty prefix is no folder"),
    "a kernel without a connection file": (["doctor", "-f"], "no value"),
}


@pytest.mark.parametrize("case", USAGE)
def test_usage_errors(case: str) -> None:
    """A wrong argument ends with exit code 2 and one paragraph that says what is wrong."""
    arguments, reason = USAGE[case]
    done = run(*arguments)
    assert done.returncode == 2
    assert reason in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["ps", "reap"])
def test_without_an_engine_it_is_the_platform_that_fails(command: str) -> None:
    """Exit code 3, and the socket that was tried."""
    done = run(command, NO_ENGINE)
    assert done.returncode == 3
    assert "/nonexistent/engine.sock" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


KERNEL_ERRORS = {
    "no connection file": (["--memory", "1G"], "needs -f and the connection file"),
    "a misspelt setting": (["-f", "/c.json", "--memroy", "1G"], "did you mean memory"),
    "a bad value": (["-f", "/c.json", "--memory", "lots"], "memory is not a size"),
    "a bare word": (["-f", "/c.json", "/d.json"], "is not a setting"),
}


@pytest.mark.parametrize("case", KERNEL_ERRORS)
def test_a_kernel_with_wrong_arguments_says_so_and_ends(case: str) -> None:
    """A front end's log shows one line, and the exit code is 2."""
    arguments, reason = KERNEL_ERRORS[case]
    done = process(sys.executable, "-m", "sandbox_kernel", *arguments)
    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_settings_shows_values_and_where_they_come_from() -> None:
    """What a kernel would start with can be seen, for people and as JSON."""
    rows = {row["name"]: row for row in json.loads(run("settings", "--json", "--memory", "1G").stdout)}
    assert rows["memory"]["value"] == "1G"
    assert rows["memory"]["from"] == "argument"
    assert rows["cell_timeout"]["value"] == "300 s"
    assert all(len(row["help"]) > 20 for row in rows.values())
    assert "memory = 1G  (argument)" in run("settings", "--memory=1G").stdout
    page = run("settings", "--markdown").stdout.splitlines()
    assert len([line for line in page if line.startswith("| `")]) == len(rows)


@pytest.mark.parametrize("command", ["settings", "ps", "reap"])
def test_folders_of_notebooks_in_a_config_file_stop_no_command(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A relative folder is one beside each notebook, and need not be there where a command runs."""
    (tmp_path / "jupyter_sandbox_kernel_config.py").write_text(
        "c.SandboxKernel.uploads = 'uploads'\nc.SandboxKernel.downloads = 'downloads'\nc.SandboxKernel.memory = '1G'\n"
    )
    monkeypatch.setattr(config, "config_path", lambda: [str(tmp_path)])
    monkeypatch.chdir(tmp_path)
    assert cli.main([command]) == 0
    if command == "settings":
        assert "uploads = uploads  (config file)" in capsys.readouterr().out


def test_ps_says_what_a_sandbox_uses_and_what_it_is_for(image: str) -> None:
    """Sandboxes of others may run meanwhile."""
    with Sandbox(image=image, memory="512M") as sandbox:
        sandbox.run_code("held = bytearray(100 << 20)")
        rows: list[dict[str, Any]] = []

        def seen() -> bool:
            done = run("ps", "--json")
            assert done.returncode == 0, done.stderr
            rows[:] = [row for row in json.loads(done.stdout) if row["session"] == sandbox.id]
            return bool(rows) and rows[0]["memory_used_bytes"] is not None

        eventually(seen, 20, "what it uses is said, which a busy machine may not do in time")
    (row,) = rows
    assert 100 << 20 < row["memory_used_bytes"] <= row["memory_bytes"] == 512 << 20
    assert 0 < row["cpu_seconds"] < 60
    assert row["user"] == pwd.getpwuid(os.getuid()).pw_name
    assert row["reaches_hosts"] is False
    assert row["owner_pid"] == os.getpid()
    assert row["work"]
    assert row["kernel"] == ""


def test_a_kernel_is_known_by_the_name_that_its_kernelspec_gives_it() -> None:
    words = ["-c", "input()", "-m", "sandbox_kernel", "-f", "file", "--memory=8G", "--display-name=Large one"]
    kernel = subprocess.Popen([sys.executable, *words], stdin=subprocess.PIPE)
    try:
        eventually(lambda: subcommands.name_of(kernel.pid) == "Large one", 20, "its name is seen")
        assert subcommands.work_of(kernel.pid) == f"a kernel in {Path.cwd()}"
    finally:
        kernel.communicate(b"\n")
    assert subcommands.name_of(kernel.pid) == subcommands.name_of(os.getpid()) == ""


def test_reap_leaves_living_sandboxes_alone_and_says_what_it_did() -> None:
    """With nothing to remove it is fine, and says so."""
    done = run("reap")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "nothing to remove" or done.stdout.startswith("removed ")


def test_the_table_of_ps_is_aligned_and_in_peoples_units() -> None:
    """Ages, sizes and owners are readable, and columns stand beneath their heads."""
    row = Listed(
        session="0123456789abcdef",
        container="0123456789ab",
        owner_pid=12,
        owner_alive=False,
        state="running",
        age_seconds=3723,
        image="sandbox-kernel:data",
        memory_bytes=1 << 30,
        version="1.0",
    )
    other = replace(row, owner_pid=4194304, owner_alive=True, age_seconds=61)
    head, first, second = columns(
        [
            subcommands.for_people(row, SandboxSample(cpu_seconds=1.25, memory_bytes=12 << 20)),
            subcommands.for_people(replace(other, user="ann", reaches_hosts=True), SandboxSample()),
        ]
    ).splitlines()
    assert first.split("  ")[0] == "0123456789ab"
    for name, left, right in (
        ("OWNER", "12 (gone)", "4194304"),
        ("AGE", "1 h 2 min", "1 min 1 s"),
        ("USER", "unknown", "ann"),
        ("MEMORY", "12.0 MiB of 1.0 GiB", "? of 1.0 GiB"),
        ("CPU", "1.2 s", "?"),
        ("NETWORK", "?", "some hosts"),
    ):
        at = head.index(name)
        assert first[at:].startswith(left)
        assert second[at:].startswith(right)


def test_ps_says_where_none_is_running(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(subcommands, "engine_call", lambda *_: [])
    assert cli.main(["ps", "--engine", "docker"]) == 0
    assert capsys.readouterr().out == "no sandbox is running\n"


def test_an_unexpected_error_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only errors made on purpose become a paragraph; a bug shows itself."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(subcommands, "from_files", broken)
    with pytest.raises(ZeroDivisionError):
        cli.main(["settings"])


def test_setup_without_an_engine_says_what_to_do(tmp_path: Path) -> None:
    """Without consent nothing is installed: exit code 3 and a remedy for this system."""
    done = run("setup", NO_ENGINE, "--prefix", str(tmp_path / "prefix"))
    assert done.returncode == 3
    assert "no container engine" in " ".join(done.stderr.split())
    assert not (tmp_path / "prefix").exists()


def test_setup_on_a_machine_that_has_everything(tmp_path: Path) -> None:
    """It leaves engine and image alone, installs the kernelspec, and ends with the doctor's summary."""
    done = run("setup", "--prefix", str(tmp_path), "--memory", "1G")
    assert done.returncode == 0, done.stdout + done.stderr
    path = tmp_path / "share" / "jupyter" / "kernels" / "sandbox-python" / "kernel.json"
    assert {"--uploads=uploads", "--downloads=downloads", "--memory=1G"} <= set(json.loads(path.read_text())["argv"])
    assert "everything a session needs is there" in done.stdout
    assert "Files: what lies in the folder 'uploads' beside a notebook" in done.stdout
    assert "building" not in done.stderr


def test_setup_with_bubblewrap_takes_a_root_and_checks_it(tmp_path: Path) -> None:
    """It needs neither an engine nor an image, and leaves both alone."""
    root = root_of_tests()
    done = run("setup", "--engine", "bubblewrap", "--image", root, "--prefix", str(tmp_path), "--limits", "best-effort")
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {line.split()[1]: line.split()[0] for line in done.stdout.splitlines() if line[:4] in {"ok  ", "note"}}
    assert rows["environment"] == rows["first"] == "ok"
    assert not [line for line in done.stdout.splitlines() if line.startswith(("image", "environment"))]
    argv = json.loads((tmp_path / "share/jupyter/kernels/sandbox-python/kernel.json").read_text())["argv"]
    assert {"--engine=bubblewrap", f"--image={root}", "--limits=best-effort"} <= set(argv)


def test_setup_says_which_command_makes_a_root_that_is_missing(tmp_path: Path) -> None:
    done = run("setup", "--engine", "bubblewrap", "--image", "nobody/made:this", "--prefix", str(tmp_path))
    assert done.returncode == 1
    said = " ".join(done.stdout.split())
    assert "WRONG environment nobody/made:this is missing" in said
    assert "sandbox-kernel build --engine bubblewrap --requirements FILE --tag nobody/made:this" in said


def test_a_reader_that_has_seen_enough_ends_a_command_without_a_word() -> None:
    """As `| head` may. The control reads to the end."""
    command = f"{shlex.quote(sys.executable)} -m sandbox_kernel settings"
    for reader, code in (("true", 141), ("cat", 0)):
        line = f"{command} | {reader} >/dev/null; exit ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (code, "")


def test_of_a_container_that_ends_while_it_is_asked_the_engine_has_nothing_to_say() -> None:
    """Its answer is `null` then."""
    assert documents.used(None) == SandboxSample()
    said = {
        "memory_stats": {"usage": 5, "stats": {"inactive_file": 2}},
        "cpu_stats": {"cpu_usage": {"total_usage": 2500000000}},
    }
    assert documents.used(said) == SandboxSample(cpu_seconds=2.5, memory_bytes=3)
