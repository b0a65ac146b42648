"""Kernelspecs of a machine in sandboxes: with jupyter_client's managers, nbclient and a Jupyter Server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

from tests.plugins.provisioner.specs import NAME, leaves, manager, provisioned, spec
from tests.support.front_ends import Command, vs_code, zed
from tests.support.front_ends import started as front_end
from tests.support.jupyter_servers import EXTENSION, Server, asked, command, example_client, served
from tests.support.kernel_images import FAKE, image_with
from tests.support.kernels import ENGINE, Kernel, close_all, containers_of, eventually, install
from tests.support.pages import snippets

INSIDE = "import os; print(os.getcwd(), os.getpid() < 1000)"
BY_DEFAULT = "--KernelProvisionerFactory.default_provisioner_name=sandbox-kernel"
Start = Callable[..., Kernel]


@pytest.fixture
def start(tmp_path: Path, image: str) -> Iterator[Start]:
    """Start a plain kernelspec in a sandbox with settings; none may leave a container."""
    kernels: list[Kernel] = []

    def started(argv: tuple[str, ...] | None = None, options: dict[str, Any] | None = None, **config: Any) -> Kernel:
        metadata = provisioned(**{"image": image, "engine": ENGINE} | config)
        specs = spec(tmp_path, "plain", *([argv] if argv else []), metadata=metadata)
        found = manager(specs, "plain")
        found.start_kernel(**options or {})
        try:
            kernels.append(Kernel(found))
        except BaseException:
            found.shutdown_kernel(now=True)
            raise
        return kernels[-1]

    yield started
    close_all(kernels)


def test_a_plain_kernelspec_runs_in_a_sandbox(start: Start, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    kernel = start(leaves(mark))
    assert kernel.run(INSIDE).text() == "/mnt/data True\n"
    assert len(containers_of(kernel.pid)) == 1
    assert not mark.exists()


def test_interrupt_restart_and_shutdown_are_those_of_a_local_kernel(start: Start) -> None:
    kernel = start()
    message, begin = kernel.start("import time; open('f', 'w').close(); print(1); time.sleep(60)", until="stream")
    kernel.manager.interrupt_kernel()
    assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
    kernel.run("x = 1")
    kernel.restart()
    assert kernel.run("import os; print(os.listdir('.'), 'x' in globals())").text() == "['f'] False\n"
    pid = kernel.pid
    kernel.close()
    eventually(lambda: not containers_of(pid), 10, "its container is gone")
    assert not kernel.manager.has_kernel


def test_it_starts_in_the_folder_of_the_notebook(start: Start, tmp_path: Path) -> None:
    """Settings with relative paths begin there."""
    folder = tmp_path / "notebooks"
    (folder / "in").mkdir(parents=True)
    (folder / "in/a.txt").write_text("of the notebook")
    kernel = start(options={"cwd": str(folder)}, uploads="in")
    assert kernel.run("print(open('a.txt').read())").text() == "of the notebook\n"


def test_where_no_sandbox_can_start_no_cell_runs(start: Start, tmp_path: Path) -> None:
    """The kernel process is there and says why; what the kernelspec would have started is not."""
    mark, own = tmp_path / "ran", tmp_path / "cell"
    kernel = start(leaves(mark), image="there-is-no:such-image")
    assert kernel.run(f"open({str(own)!r}, 'w')").ename == "ImageMissing"
    assert not mark.exists()
    assert not own.exists()


def test_control_without_the_provisioner_the_cell_writes_to_this_machine(tmp_path: Path) -> None:
    mark, own = tmp_path / "ran", tmp_path / "cell"
    with closing(Kernel(started_plainly(tmp_path, mark))) as kernel:
        assert kernel.run(f"open({str(own)!r}, 'w')").reply["status"] == "ok"
    assert mark.exists()
    assert own.exists()


def started_plainly(folder: Path, mark: Path) -> KernelManager:
    found = manager(spec(folder, "plain", leaves(mark)), "plain")
    found.start_kernel()
    return found


def test_nbclient_runs_a_notebook_of_such_a_kernelspec(
    tmp_path: Path, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec(tmp_path, "plain", metadata=provisioned(image=image, engine=ENGINE))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    document = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "plain", "display_name": "plain"}})
    document.cells = [nbformat.v4.new_code_cell(INSIDE)]
    NotebookClient(document, timeout=60).execute()
    assert document.cells[0].outputs[0].text == "/mnt/data True\n"


@pytest.mark.long
def test_a_variable_puts_the_kernels_of_nbclient_into_sandboxes(tmp_path: Path) -> None:
    """The control is the same with jupyter_client's own."""
    mark = tmp_path / "ran"
    spec(tmp_path, "plain", leaves(mark))
    document = nbformat.v4.new_notebook(metadata={"kernelspec": {"name": "plain", "display_name": "plain"}})
    document.cells = [nbformat.v4.new_code_cell("import os; print(os.getcwd())")]
    nbformat.write(document, tmp_path / "a.ipynb")
    command = [sys.executable, "-c", "from nbclient.cli import main; main()", "--inplace", str(tmp_path / "a.ipynb")]
    environment = os.environ | {"JUPYTER_PATH": str(tmp_path)}
    for variable, where, ran in ((NAME, "/mnt/data\n", False), ("local-provisioner", f"{tmp_path}\n", True)):
        chosen = environment | {"JUPYTER_DEFAULT_PROVISIONER_NAME": variable}
        subprocess.run(command, env=chosen, cwd=tmp_path, check=True, capture_output=True, timeout=120)
        assert nbformat.read(tmp_path / "a.ipynb", 4).cells[0].outputs[0].text == where
        assert mark.exists() is ran


@pytest.mark.skipif(ENGINE != "docker", reason="it makes an image of Docker's")
def test_a_kernelspec_of_another_language_runs_that_kernel_of_the_image(tmp_path: Path, image: str) -> None:
    """The kernel inside is ipykernel by another name, which starts as the image's kernelspec says."""
    inside = FAKE | {"env": {"OF": "the image"}}
    mark, outside = tmp_path / "ran", {"OF": "the machine", "OF_THE_MACHINE": "1"}
    with image_with(image, {"fake/kernel.json": inside}) as tag:
        specs = spec(tmp_path, "fake", leaves(mark), language="fake", env=outside, metadata=provisioned(image=tag))
        found = manager(specs, "fake")
        found.start_kernel()
        kernels = []
        try:
            kernels.append(kernel := Kernel(found))
            code = "import os; print(os.getcwd(), os.environ['OF'], 'OF_THE_MACHINE' in os.environ)"
            assert kernel.run(code).text() == "/mnt/data the image False\n"
            message, begin = kernel.start("import time; print(1); time.sleep(60)", until="stream")
            found.interrupt_kernel()
            assert kernel.collect(message, begin).ename == "KeyboardInterrupt"
        finally:
            close_all(kernels) if kernels else found.shutdown_kernel(now=True)
    assert not mark.exists()


# --- front ends that know no provisioner ------------------------------------------------------------------------------


@pytest.mark.parametrize("command", [vs_code, zed])
def test_what_install_writes_is_a_sandbox_also_where_the_command_is_started_as_it_is(
    tmp_path: Path, image: str, command: Command
) -> None:
    specs = install(tmp_path, "--image", image, "--engine", ENGINE)
    written = specs.get_kernel_spec("sandbox-python").to_dict()
    (tmp_path / "of-the-machine").touch()
    look = f"import os; print(os.getcwd(), os.path.exists({str(tmp_path / 'of-the-machine')!r}))"
    with front_end(command, written, tmp_path) as (pid, run):
        assert run(look) == "/mnt/data False\n"
        assert len(containers_of(pid)) == 1
    eventually(lambda: not containers_of(pid), 10, "its container is gone")


@pytest.mark.parametrize("command", [vs_code, zed])
def test_the_kernelspec_of_the_page_runs_no_cell_here_where_its_image_is_missing(
    tmp_path: Path, command: Command
) -> None:
    [page] = [json.loads(one) for one in snippets("docs/jupyterlab.md", "json")]
    argv = [sys.executable, *page["argv"][1:], "--image=there-is-no:such-image", f"--engine={ENGINE}"]
    with front_end(command, page | {"argv": argv}, tmp_path) as (_, run):
        assert run(f"open({str(tmp_path / 'cell')!r}, 'w')").startswith("ImageMissing: ")
    assert not (tmp_path / "cell").exists()


@pytest.mark.parametrize("command", [vs_code, zed])
def test_control_another_command_beside_our_provisioner_runs_on_this_machine(tmp_path: Path, command: Command) -> None:
    bare = {"argv": list(leaves(tmp_path / "ran")), "language": "python", "metadata": provisioned()}
    with front_end(command, bare, tmp_path) as (_, run):
        assert run(f"open({str(tmp_path / 'cell')!r}, 'w').close()") == ""
    assert (tmp_path / "cell").exists()
    assert (tmp_path / "ran").exists()


# --- the operator's one line ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, image: str) -> Iterator[Server]:
    """A server with that line, a kernelspec of ours, and plain ones: ipykernel's own and two more."""
    folder = tmp_path_factory.mktemp("server")
    for name, language in (("plain", "python"), ("other", "other")):
        spec(folder / "prefix/share/jupyter", name, leaves(folder / "ran"), language=language)
    with served(folder, image, BY_DEFAULT) as found:
        yield found
    assert not (folder / "ran").exists()


def printed(kernel: Any, code: str) -> str:
    shown = [one for one in kernel.run(code) if one["header"]["msg_type"] == "stream"]
    return "".join(one["content"]["text"] for one in shown)


@pytest.mark.parametrize("name", ["python3", "plain", "sandbox-python"])
def test_all_kernels_of_a_server_run_in_sandboxes(server: Server, name: str) -> None:
    before = {process.pid for process in server.kernels()}
    with example_client().Kernel(server.url, server.token, name, patience=60) as kernel:
        [process] = [process for process in server.kernels() if process.pid not in before]
        assert process.cmdline().count("sandbox_kernel") == 1
        assert printed(kernel, INSIDE) == "/mnt/data True\n"
        assert len(containers_of(process.pid)) == 1
    eventually(lambda: not containers_of(process.pid), 10, "its container is gone")


def test_a_kernel_that_the_image_lacks_is_named_and_nothing_else_runs(server: Server) -> None:
    with example_client().Kernel(server.url, server.token, "other", patience=60) as kernel:
        [*_, reply] = kernel.run("print(1)")
        assert reply["content"]["ename"] == "ImageMissing"
        assert "has no kernel 'other'" in reply["content"]["evalue"]
        [process] = server.kernels()
        assert "--kernel=other" in process.cmdline()


@pytest.mark.long
def test_the_server_interrupts_restarts_and_revives_them(server: Server) -> None:
    module = example_client()
    with module.Kernel(server.url, server.token, "plain", patience=60) as kernel:
        cell = kernel.run("import time\nopen('f', 'w').close()\nprint(1)\ntime.sleep(60)")
        while next(cell)["header"]["msg_type"] != "stream":
            pass
        kernel.interrupt()
        assert list(cell)[-1]["content"]["ename"] == "KeyboardInterrupt"
        kernel.restart()
        assert printed(kernel, "import os; print(os.listdir('.'))") == "['f']\n"
        [process] = server.kernels()
        cell = kernel.run("import time\nprint(1)\ntime.sleep(50)")
        while next(cell)["header"]["msg_type"] != "stream":
            pass
        process.kill()
        with pytest.raises(module.KernelGone):
            list(cell)
        assert printed(kernel, INSIDE) == "/mnt/data True\n"
        [process] = server.kernels()
        assert process.cmdline().count("sandbox_kernel") == 1


def test_a_session_says_what_is_wrong_and_starts_nothing(tmp_path: Path, image: str) -> None:
    mark = tmp_path / "ran"
    spec(tmp_path / "prefix/share/jupyter", "wrong", leaves(mark), metadata=provisioned(memroy="1G"))
    body = {"path": "a.ipynb", "type": "notebook", "name": "", "kernel": {"name": "wrong"}}
    with served(tmp_path, image) as server:
        assert "wrong" in asked(server, "kernelspecs", {}, "GET")[1]["kernelspecs"]
        status, answer = asked(server, "sessions", body)
        assert status == 500
        assert "no setting 'memroy' (did you mean memory?), for the kernelspec wrong" in answer["message"]
        assert asked(server, "kernels", {"name": "wrong"})[0] == 500
        assert asked(server, "kernels", {}, "GET") == (200, [])
    assert not mark.exists()


def test_a_server_that_starts_sandboxes_only_may_name_such_kernelspecs(tmp_path: Path, image: str) -> None:
    """One that names another provisioner is none of them, though the operator has allowed its name."""
    mark = tmp_path / "ran"
    local = {"kernel_provisioner": {"provisioner_name": "local-provisioner"}}
    spec(tmp_path / "prefix/share/jupyter", "local", leaves(mark), metadata=local)
    words = [EXTENSION, BY_DEFAULT, "--SandboxKernels.allowed=python3", "--SandboxKernels.allowed=local"]
    with served(tmp_path, image, *words) as server:
        status, kernel = asked(server, "kernels", {})
        assert (status, kernel["name"]) == (201, "python3")
        [process] = [one for one in server.kernels() if kernel["id"] in " ".join(command(one))]
        assert "sandbox_kernel" in process.cmdline()
        status, answer = asked(server, "kernels", {"name": "local"})
        assert (status, "starts sandboxes only" in answer["message"]) == (403, True)
        assert asked(server, f"kernels/{kernel['id']}", {}, "DELETE")[0] == 204
    assert not mark.exists()


@pytest.mark.long
def test_a_server_culls_them(tmp_path: Path, image: str) -> None:
    words = [f"--MappingKernelManager.{name}=1" for name in ("cull_idle_timeout", "cull_interval")]
    with served(tmp_path, image, BY_DEFAULT, *words) as server:
        assert asked(server, "kernels", {"name": "python3"})[0] == 201
        [process] = [one for one in server.kernels() if "sandbox_kernel" in command(one)]
        eventually(lambda: asked(server, "kernels", {}, "GET") == (200, []), 30, "the kernel is culled")
        eventually(lambda: not containers_of(process.pid), 10, "its container is gone")
