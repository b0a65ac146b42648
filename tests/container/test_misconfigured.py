"""Kernels that cannot have a sandbox: they live, answer, say why in the first cell and once, and start nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from tests.support.kernels import Kernel, containers_of, eventually, install

Start = Callable[..., Kernel]


@pytest.fixture
def start(tmp_path: Path, image: str) -> Iterator[Start]:
    """Start a kernel in a folder of its own, with words added to its kernel.json by hand."""
    kernels: list[Kernel] = []

    def start(*settings: str, by_hand: tuple[str, ...] = ()) -> Kernel:
        specs = install(tmp_path, "--image", image, *settings)
        write_arguments(tmp_path, *by_hand)
        (tmp_path / "work").mkdir()
        manager = KernelManager(kernel_name="sandbox-python", kernel_spec_manager=specs)
        manager.start_kernel(cwd=str(tmp_path / "work"))
        kernels.append(Kernel(manager))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.close()


def write_arguments(folder: Path, *words: str) -> None:
    path = folder / "share/jupyter/kernels/sandbox-python/kernel.json"
    spec = json.loads(path.read_text())
    spec["argv"] += words
    path.write_text(json.dumps(spec))


def restart(kernel: Kernel) -> None:
    kernel.restart()


def told(kernel: Kernel) -> str:
    """Run a cell, and return the one place in which it says what is wrong."""
    result = kernel.run("1 + 1")
    assert result.reply["status"] == "error"
    assert result.value == result.text("stdout") == result.text("stderr") == ""
    (error,) = (message["content"] for message in result.messages if message["msg_type"] == "error")
    assert error["ename"] == result.ename
    assert "\n".join(error["traceback"]).count(error["evalue"].partition(". ")[0]) == 1
    return f"{error['ename']}: {error['evalue']}"


def test_a_missing_folder_is_told_in_the_cell_and_made_good_by_a_restart(start: Start, tmp_path: Path) -> None:
    kernel = start("--uploads", "none/uploads")
    for _ in range(2):
        said = told(kernel)
        assert said.startswith("ConfigurationError: uploads is not a folder of this machine; make it first")
        assert "No sandbox is started; restart the kernel once this is mended." in said
        assert f"Given: '{tmp_path / 'work/none/uploads'}'. Setting to change: uploads." in said
    assert kernel.containers() == []
    (tmp_path / "work/none/uploads").mkdir(parents=True)
    (tmp_path / "work/none/uploads/sales.csv").write_text("a,b\n")
    restart(kernel)
    assert kernel.run("open('sales.csv').read()").value == "'a,b\\n'"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--memroy=1G",), "there is no setting 'memroy' (did you mean memory?)"),
        (("--outputs=trused",), "outputs is one of safe, strict, trusted (did you mean trusted?)"),
        (("--memory=1M",), "memory is too small"),
        (("--runtime",), "--runtime has no value"),
        (("lots",), "the argument 'lots' is not a setting"),
    ],
)
def test_arguments_that_cannot_work_start_no_sandbox(start: Start, words: tuple[str, ...], reason: str) -> None:
    kernel = start(by_hand=words)
    assert told(kernel).startswith(f"ConfigurationError: {reason}")
    assert kernel.containers() == []


def test_everything_else_is_answered_too(start: Start) -> None:
    """A front end asks for more than cells: a kernel that says nothing would look as if it hung."""
    kernel = start(by_hand=("--memroy=1G",))
    info = kernel.client.kernel_info(reply=True, timeout=30)["content"]
    assert info["language_info"]["name"] == "python"
    assert "no sandbox is running.\nConfigurationError: there is no setting 'memroy'" in info["banner"]
    assert set(info["sandbox"]) == {"problem", "state_message", "version"}  # limits would be those of no sandbox
    assert kernel.client.complete("pri", reply=True, timeout=30)["content"]["status"] == "error"
    assert kernel.client.inspect("print", reply=True, timeout=30)["content"]["status"] == "error"
    kernel.client.control_channel.send(kernel.client.session.msg("interrupt_request", {}))
    assert kernel.client.get_control_msg(timeout=30)["content"]["status"] == "ok"
    assert told(kernel).startswith("ConfigurationError")


def test_a_setting_that_breaks_before_a_restart_ends_the_old_sandbox(start: Start, tmp_path: Path) -> None:
    kernel = start()
    assert kernel.run("1 + 1").value == "2"
    (before,) = kernel.containers()
    owner = kernel.pid
    write_arguments(tmp_path, "--memroy=1G")
    kernel.manager._kernel_spec = None  # as a server does, which reads kernel.json for each start
    restart(kernel)
    assert told(kernel).startswith("ConfigurationError")
    eventually(lambda: not containers_of(owner) and not kernel.containers(), 10, f"{before.container} is gone")


def test_an_image_that_is_missing_is_told_once(start: Start) -> None:
    kernel = start("--image", "sandbox-kernel:none-such")
    assert told(kernel).startswith("ImageMissing: ")
    assert "ImageMissing" in kernel.client.kernel_info(reply=True, timeout=30)["content"]["banner"]


@pytest.mark.parametrize("levels", [300, 3])
def test_a_header_that_cannot_be_repeated_costs_only_its_own_request(start: Start, levels: int) -> None:
    """Every answer repeats it, and this one nests deeper than JSON is written here. The control is a shallow one."""
    kernel = start(by_hand=("--memroy=1G",))
    session, shell = kernel.client.session, kernel.client.shell_channel
    odd, good = (session.msg("execute_request", {"code": "1", "allow_stdin": False}) for _ in range(2))
    nested: object = 0
    for _ in range(levels):
        nested = [nested]
    odd["header"]["nested"] = nested
    shell.send(odd)
    shell.send(good)
    answered = []
    while good["header"]["msg_id"] not in answered:
        answered.append(kernel.client.get_shell_msg(timeout=30)["parent_header"]["msg_id"])
    assert (odd["header"]["msg_id"] in answered) is (levels < 254)
