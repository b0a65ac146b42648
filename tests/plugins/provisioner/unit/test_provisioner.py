"""What is started in place of a kernelspec's command: real managers of jupyter_client, and no engine."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory

from sandbox_kernel.config.sources import read_argv
from sandbox_kernel.core.codes import Code, EndCode, UsageCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.core.kernel_command import is_own
from sandbox_kernel.plugins.browser_policy.extension import is_sandbox
from sandbox_kernel.plugins.doctor.doctor import promise_rows
from sandbox_kernel.plugins.provisioner.provisioner import SandboxProvisioner
from tests.plugins.provisioner.specs import IPYKERNEL, NAME, leaves, manager, provisioned, spec
from tests.support import ROOT
from tests.support.front_ends import Command, vs_code, zed
from tests.support.front_ends import started as front_end
from tests.support.kernels import eventually, install
from tests.support.pages import snippets

FLAGS = {"-I", "-E", "-P"}


@pytest.fixture
def by_default() -> Iterator[None]:
    """The operator's one line."""
    factory = KernelProvisionerFactory.instance()
    before, factory.default_provisioner_name = factory.default_provisioner_name, NAME
    yield
    factory.default_provisioner_name = before


def started(found: KernelManager, **options: Any) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the settings that a manager would start a kernel of ours with, and its environment."""
    command, launch = found.pre_start_kernel(**options)
    at = command.index("-m")
    assert command[0] == sys.executable
    assert set(command[1:at]) <= FLAGS
    assert command[1:at]
    assert command[at + 1] == "sandbox_kernel"
    connection_file, values = read_argv(command[at + 2 :])
    assert connection_file == os.path.realpath(found.connection_file)
    assert found.kernel_spec is not None
    assert values.pop("display_name", "") == found.kernel_spec.display_name
    return values, launch["env"]


def test_a_name_that_no_setting_can_be_is_left_out(tmp_path: Path) -> None:
    specs = spec(tmp_path, "mine", display_name="a\nb", metadata=provisioned())
    command, _ = manager(specs, "mine").pre_start_kernel()
    assert not [word for word in command if word.startswith("--display-name")]


def test_jupyter_finds_it_by_its_name() -> None:
    [found] = entry_points(group="jupyter_client.kernel_provisioners", name=NAME)
    assert found.load() is SandboxProvisioner


def test_a_kernelspec_that_names_it_is_started_in_a_sandbox(tmp_path: Path) -> None:
    specs = spec(
        tmp_path, "mine", metadata=provisioned(memory="1G", network=["b.example", "a.example"], cell_timeout=30)
    )
    values, _ = started(manager(specs, "mine"))
    assert values == {"memory": "1G", "network": ["b.example", "a.example"], "cell_timeout": "30"}


def test_control_without_it_the_command_of_the_kernelspec_is_started(tmp_path: Path) -> None:
    command, launch = manager(spec(tmp_path, "mine", env={"A": "b"}), "mine").pre_start_kernel()
    assert command[:3] == list(IPYKERNEL[:3])
    assert launch["env"]["A"] == "b"


@pytest.mark.usefixtures("by_default")
def test_the_operators_line_is_for_all_kernelspecs(tmp_path: Path) -> None:
    assert started(manager(spec(tmp_path, "python3"), "python3"))[0] == {}
    assert started(manager(spec(tmp_path, "named", language="Python"), "named"))[0] == {}


R = ("R", "--slave", "-e", "IRkernel::main()", "--args", "{connection_file}")


@pytest.mark.usefixtures("by_default")
def test_another_language_is_the_kernel_of_that_name_in_the_image(tmp_path: Path) -> None:
    assert started(manager(spec(tmp_path, "ir", R, language="R"), "ir"))[0] == {"kernel": "ir"}


def test_a_kernelspec_may_say_which_kernel_of_which_image(tmp_path: Path) -> None:
    named = {"kernel": "ir", "image": "sandbox-kernel:r"}
    specs = spec(tmp_path, "R-4", R, language="R", metadata=provisioned(**named))
    assert started(manager(specs, "R-4"))[0] == named
    spec(tmp_path, "py", language="python", metadata=provisioned(kernel="bash"))
    assert started(manager(specs, "py"))[0] == {"kernel": "bash"}
    spec(tmp_path, "sage", language="sage", metadata=provisioned(kernel="python3"))
    assert started(manager(specs, "sage"))[0] == {"kernel": "python3"}


@pytest.mark.usefixtures("by_default")
def test_a_kernel_of_ours_for_another_language_keeps_its_name(tmp_path: Path) -> None:
    argv = (sys.executable, "-I", "-m", "sandbox_kernel", "-f", "{connection_file}", "--kernel=ir", "--memory=1G")
    assert started(manager(spec(tmp_path, "sandbox-ir", argv, language="R"), "sandbox-ir"))[0] == {
        "kernel": "ir",
        "memory": "1G",
    }


@pytest.mark.usefixtures("by_default")
def test_a_kernel_that_is_ours_already_keeps_its_settings_and_is_one_kernel(tmp_path: Path) -> None:
    found = manager(install(tmp_path, "--memory", "1G", "--network", "b.example"), "sandbox-python")
    values, environment = started(found)
    assert values == {"memory": "1G", "network": ["b.example"]}
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


@pytest.mark.usefixtures("by_default")
def test_what_only_looks_like_ours_gives_its_settings_and_is_not_started(tmp_path: Path) -> None:
    argv = ("/bin/sh", "-c", "evil", "sandbox_kernel", "-f", "{connection_file}", "--memory", "1G")
    assert started(manager(spec(tmp_path, "alike", argv), "alike"))[0] == {"memory": "1G"}


def test_variables_of_a_kernelspec_do_not_reach_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OF_THE_SERVER", "1")
    variables = {"PYTHONPATH": "/evil", "LD_PRELOAD": "/evil.so", "DOCKER_HOST": "tcp://evil", "PATH": "/evil:${PATH}"}
    found = manager(spec(tmp_path, "mine", env=variables, metadata=provisioned()), "mine")
    _, environment = started(found)
    assert {name: environment.get(name) for name in variables} == {name: os.environ.get(name) for name in variables}
    assert environment["OF_THE_SERVER"] == "1"
    assert environment["GLIBC_TUNABLES"] == "glibc.malloc.hugetlb=1"


def test_an_interrupt_is_a_message_whatever_the_kernelspec_says(tmp_path: Path) -> None:
    found = manager(spec(tmp_path, "mine", interrupt_mode="signal", metadata=provisioned()), "mine")
    started(found)
    assert found.kernel_spec is not None
    assert found.kernel_spec.interrupt_mode == "message"


@pytest.mark.parametrize(("metadata", "keys"), [(provisioned(), True), ({}, False)])
def test_connections_are_encrypted_as_with_an_installed_kernel(
    tmp_path: Path, metadata: dict[str, Any], keys: bool
) -> None:
    """The control is the kernelspec as it is, which does not say that its kernel can."""
    found = manager(spec(tmp_path, "mine", metadata=metadata), "mine")
    found.pre_start_kernel(transport_encryption="auto")
    assert ("curve_publickey" in json.loads(Path(found.connection_file).read_text())) is keys


def test_a_restart_starts_the_same(tmp_path: Path) -> None:
    found = manager(spec(tmp_path, "mine", metadata=provisioned(memory="1G")), "mine")
    assert started(found)[0] == {"memory": "1G"}
    assert started(found)[0] == {"memory": "1G"}


def test_arguments_of_a_start_come_after_the_settings(tmp_path: Path) -> None:
    """A client such as nbclient gives some to each kernel that it takes for ipykernel."""
    found = manager(spec(tmp_path, "mine", metadata=provisioned(memory="1G")), "mine")
    command, _ = found.pre_start_kernel(extra_arguments=["--HistoryManager.hist_file=:memory:"])
    assert command[-1] == "--HistoryManager.hist_file=:memory:"
    assert "--memory=1G" in command


WRONG: dict[str, tuple[dict[str, Any], Code, str]] = {
    "unknown": ({"colour": "red"}, UsageCode.UNKNOWN_SETTING, "colour"),
    "mistyped": ({"memroy": "1G"}, UsageCode.UNKNOWN_SETTING, "memroy"),
    "of traitlets": ({"config": {}}, UsageCode.UNKNOWN_SETTING, "config"),
    "value": ({"memory": "lots"}, EndCode.WRONG_SETTING, "memory"),
    "number": ({"cell_timeout": -1}, EndCode.WRONG_SETTING, "cell_timeout"),
    "list": ({"image": ["a", "b"]}, EndCode.WRONG_SETTING, "image"),
    "kernel": ({"kernel": "../ir"}, EndCode.WRONG_SETTING, "kernel"),
    "python alone": ({"kernel": "ir", "packages": ["a"]}, UsageCode.PYTHON_ALONE, "kernel"),
    "argument": ({"image": "x --memory 9G"}, EndCode.WRONG_SETTING, "image"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_settings_start_nothing(tmp_path: Path, case: str) -> None:
    config, code, setting = WRONG[case]
    mark = tmp_path / "ran"
    found = manager(spec(tmp_path, "mine", leaves(mark), metadata=provisioned(**config)), "mine")
    with pytest.raises(ConfigurationError, match="for the kernelspec mine") as raised:
        found.start_kernel()
    assert (raised.value.code, raised.value.setting) == (code, setting)
    with pytest.raises(ConfigurationError):  # as a front end tries again
        found.start_kernel()
    assert not found.has_kernel
    assert not mark.exists()


def test_names_that_are_no_settings_but_jupyters_start_nothing(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    found = manager(spec(tmp_path, "mine", leaves(mark), metadata=provisioned(parent=None)), "mine")
    with pytest.raises(TypeError):
        found.start_kernel()
    assert not found.has_kernel
    assert not mark.exists()


def test_a_provisioner_that_cannot_be_loaded_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mark = tmp_path / "ran"
    monkeypatch.setitem(sys.modules, "sandbox_kernel.plugins.provisioner.provisioner", None)
    found = manager(spec(tmp_path, "mine", leaves(mark), metadata=provisioned()), "mine")
    with pytest.raises(ImportError):
        found.start_kernel()
    assert not found.has_kernel
    assert not mark.exists()


def test_control_the_same_kernelspec_without_a_provisioner_runs_its_command(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    found = manager(spec(tmp_path, "mine", leaves(mark)), "mine")
    found.start_kernel()
    try:
        eventually(mark.exists, 30, "the command ran")
    finally:
        found.shutdown_kernel(now=True)


# --- front ends that know no provisioner ------------------------------------------------------------------------------

OWN = (sys.executable, "-I", "-m", "sandbox_kernel", "-f", "{connection_file}")


def of_the_page() -> dict[str, Any]:
    """Return the kernelspec that the page shows."""
    [found] = [json.loads(one) for one in snippets("docs/jupyterlab.md", "json")]
    assert found["metadata"] == {"kernel_provisioner": {"provisioner_name": NAME}}
    return dict(found)


def test_the_kernelspec_of_the_page_has_our_command_and_its_settings(tmp_path: Path) -> None:
    """Whoever ignores the metadata starts the same kernel with the same settings."""
    page = of_the_page()
    assert is_own(page["argv"])
    assert page["interrupt_mode"] == "message"
    values, _ = started(manager(spec(tmp_path, "R", **page), "R"))
    assert values == {"kernel": "ir", "image": "sandbox-kernel:r", "memory": "4G"}
    for command in (vs_code, zed):
        argv = command(page, "/a/c.json")
        assert read_argv(argv[argv.index("sandbox_kernel") + 1 :]) == ("/a/c.json", values)


def test_no_page_shows_another_command_beside_our_provisioner() -> None:
    shown = [one for page in sorted((ROOT / "docs").rglob("*.md")) for one in snippets(str(page), "json")]
    specs = [json.loads(one) for one in shown if NAME in one and "kernel_provisioner" in one]
    assert specs == [of_the_page()]


def test_a_start_warns_of_another_command(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The control is our own command, and one that promises nothing."""
    for name, argv, metadata, warned in (
        ("bare", IPYKERNEL, provisioned(), True),
        ("own", OWN, provisioned(), False),
        ("silent", IPYKERNEL, {}, False),
    ):
        caplog.clear()
        manager(spec(tmp_path, name, argv, metadata=metadata), name).pre_start_kernel()
        said = [one.getMessage() for one in caplog.records if "without a sandbox" in one.getMessage()]
        assert [one.partition(":")[0] for one in said] == [f"the kernelspec {name} has a command of its own"] * warned


def rows(folder: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, str]]:
    """Return what the doctor says of the kernelspecs in `folder`: by the last part of their path."""
    monkeypatch.setenv("JUPYTER_PATH", str(folder))
    (folder / "home").mkdir()
    monkeypatch.setenv("HOME", str(folder / "home"))
    found = [row for row in promise_rows() if str(folder) in row.found]
    return {row.found.split(":")[0].rpartition("/")[2]: (row.status, row.found) for row in found}


def test_the_doctor_names_kernelspecs_that_promise_a_sandbox_and_start_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    likeness = ("/bin/sh", "-c", "evil", "-m", "sandbox_kernel", "-f", "{connection_file}")
    unsafe = (sys.executable, "-m", "sandbox_kernel", "-f", "{connection_file}")
    about = {"sandbox_kernel": {"image": "sandbox-kernel:data"}}
    for name, argv, metadata in (
        ("bare", R, provisioned()),
        ("likeness", likeness, provisioned()),
        ("unisolated", unsafe, provisioned()),
        ("changed", IPYKERNEL, about),
        ("config", OWN, provisioned(outputs="strict", memory="1G")),
        ("said-twice", (*OWN, "--outputs=strict"), provisioned(outputs="strict")),
        ("own", OWN, provisioned()),
        ("plain", IPYKERNEL, {}),
        ("another", IPYKERNEL, {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}),
    ):
        spec(tmp_path, name, argv, metadata=metadata)
    (tmp_path / "kernels/broken").mkdir()
    (tmp_path / "kernels/broken/kernel.json").write_text('{"argv": 7, "metadata": []}')
    found = rows(tmp_path, monkeypatch)
    assert {name: status for name, (status, _) in found.items()} == {
        "bare": "wrong",
        "likeness": "wrong",
        "unisolated": "wrong",
        "changed": "wrong",
        "config": "note",
    }
    assert "VS Code and Zed start R --slave ... on this machine" in found["bare"][1]
    assert found["config"][1].endswith("config: memory, outputs")


def test_the_doctor_looks_where_vs_code_does_though_a_variable_leads_jupyter_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec(tmp_path / "home/.local/share/jupyter", "bare", R, metadata=provisioned())
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert [row.status for row in promise_rows() if str(tmp_path) in row.found] == ["wrong"]


@pytest.mark.usefixtures("by_default")
def test_the_doctor_notes_what_the_operators_line_alone_puts_into_a_sandbox(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec(tmp_path, "plain")
    spec(tmp_path, "own", OWN)
    assert {name: status for name, (status, _) in rows(tmp_path, monkeypatch).items()} == {"plain": "note"}


@pytest.mark.slow
@pytest.mark.parametrize("command", [vs_code, zed])
def test_a_setting_that_is_wrong_is_told_in_the_cell_whoever_starts_it(tmp_path: Path, command: Command) -> None:
    """The kernel finds its connection file though another argument is wrong."""
    wrong = {"argv": [*OWN, "--memroy=1G"], "language": "python"}
    with front_end(command, wrong, tmp_path) as (_, run):
        assert run("1").startswith("ConfigurationError: there is no setting 'memroy'")


# --- a server that starts sandboxes only ------------------------------------------------------------------------------


def test_a_kernelspec_that_names_it_is_a_sandbox(tmp_path: Path) -> None:
    assert is_sandbox(spec(tmp_path, "mine", metadata=provisioned()), "mine")


def test_control_one_that_names_nothing_is_none(tmp_path: Path) -> None:
    assert not is_sandbox(spec(tmp_path, "mine"), "mine")


@pytest.mark.usefixtures("by_default")
def test_by_default_all_are_sandboxes_but_those_that_name_another_provisioner(tmp_path: Path) -> None:
    specs = spec(tmp_path, "mine")
    spec(tmp_path, "local", metadata={"kernel_provisioner": {"provisioner_name": "local-provisioner"}})
    assert is_sandbox(specs, "mine")
    assert not is_sandbox(specs, "local")
