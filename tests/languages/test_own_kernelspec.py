"""A kernelspec of a user's own: a wheel brings it, and `build --requirements` adds it to an image or a root."""

from __future__ import annotations

import json
import subprocess
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.plugins.bubblewrap import root_lookup
from sandbox_kernel.plugins.bubblewrap.roots import build as roots
from sandbox_kernel.plugins.bubblewrap.roots import exported_root, root_generations
from sandbox_kernel.setup import engine_setup, image_build
from tests.languages.places import ENGINES, asked_for, engine_is_here
from tests.support.roots import let_others_in

pytestmark = [asked_for, pytest.mark.timeout(600)]

NAME = "sandbox-kernel:test-languages-own"
KERNEL = '''
from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class Upper(Kernel):
    """A language of one rule: each cell is its text in capitals."""

    implementation, implementation_version, banner = "upper", "1.0", "Upper"
    language_info = {"name": "upper", "version": "1.0", "mimetype": "text/plain", "file_extension": ".upper"}

    def do_execute(self, code, silent, store_history=True, user_expressions=None, allow_stdin=False):
        content = {"execution_count": self.execution_count, "data": {"text/plain": code.upper()}, "metadata": {}}
        self.send_response(self.iopub_socket, "execute_result", content)
        return {"status": "ok", "execution_count": self.execution_count, "payload": [], "user_expressions": {}}


IPKernelApp.launch_instance(kernel_class=Upper)
'''
SPEC = {
    "argv": ["python3", "-m", "upper_kernel", "-f", "{connection_file}"],
    "display_name": "Upper",
    "language": "upper",
}


@pytest.fixture(scope="module")
def requirements(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A requirements file that names a wheel with a kernel and its kernelspec."""
    folder = tmp_path_factory.mktemp("own")
    path, data, meta = (
        folder / "upper_kernel-1.0-py3-none-any.whl",
        "upper_kernel-1.0.data/data",
        "upper_kernel-1.0.dist-info",
    )
    files = {
        "upper_kernel.py": KERNEL,
        f"{data}/share/jupyter/kernels/upper/kernel.json": json.dumps(SPEC),
        f"{meta}/METADATA": "Metadata-Version: 2.1\nName: upper-kernel\nVersion: 1.0\n",
        f"{meta}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{meta}/RECORD"] = "".join(f"{name},,\n" for name in (*files, f"{meta}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    file = folder / "requirements.txt"
    file.write_text(f"./{path.name}\n")
    return file


@contextmanager
def place_of_roots() -> Iterator[None]:
    """Have roots lie in a folder of the test's own, which every user may enter."""
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-root-") as folder, pytest.MonkeyPatch.context() as patch:
        let_others_in(Path(folder))
        patch.setattr(root_lookup, "folders", lambda: [folder])
        patch.setattr(root_generations, "root_folders", lambda: [folder])
        yield


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, requirements: Path) -> Iterator[str]:
    """An engine that has an image, or a root, with the kernelspec."""
    engine_is_here(request.param)
    if request.param == "docker":
        try:
            image_build.build("base", tag=NAME, requirements=requirements, progress=lambda _: None)
            yield request.param
        finally:
            from docker.errors import ImageNotFound

            host = engine_setup.require_engine().host
            with closing(engine_setup.connect(host, seconds=60)) as client, suppress(ImageNotFound):
                client.images.remove(NAME, force=True)
        return
    with place_of_roots():
        roots.build("base", tag=NAME, requirements=requirements, progress=lambda _: None)
        yield request.param


def test_cells_run_in_a_kernel_of_a_users_own(engine: str) -> None:
    with Sandbox(image=NAME, kernel="upper", engine=engine) as one:
        assert one.run_code("a cell\nof two lines").text == "A CELL\nOF TWO LINES"


def test_python_is_still_there(engine: str) -> None:
    with Sandbox(image=NAME, engine=engine) as one:
        assert one.run_code("1 + 1").text == "2"


def test_a_kernelspec_that_is_not_there_is_said_with_those_that_are(engine: str) -> None:
    with (
        pytest.raises(SandboxError, match="upper") as caught,
        Sandbox(image=NAME, kernel="lower", engine=engine) as one,
    ):
        one.run_code("x")
    assert "lower" in str(caught.value)


DERIVED = f"{NAME}-derived"
DOCKERFILE = """\
FROM sandbox-kernel:base
COPY upper_kernel.py /opt/upper/
COPY kernel.json /usr/local/share/jupyter/kernels/upper/
"""


@pytest.fixture(scope="module")
def derived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An image of a user's own Dockerfile."""
    folder = tmp_path_factory.mktemp("derived")
    (folder / "upper_kernel.py").write_text(KERNEL)
    argv = ["python3", "/opt/upper/upper_kernel.py", "-f", "{connection_file}"]
    (folder / "kernel.json").write_text(json.dumps({**SPEC, "argv": argv}))
    (folder / "Dockerfile").write_text(DOCKERFILE)
    command = ["docker", "build", "--quiet", "--network", "none", "--tag", DERIVED, str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    try:
        yield DERIVED
    finally:
        subprocess.run(["docker", "rmi", DERIVED], check=False, capture_output=True)


def test_an_image_of_ones_own_dockerfile_has_another_kernel(derived: str) -> None:
    with Sandbox(image=derived, kernel="upper") as one:
        assert one.run_code("a cell").text == "A CELL"


def test_a_root_of_that_image_has_it_too(derived: str) -> None:
    engine_is_here("bubblewrap")
    with place_of_roots():
        exported_root.build(derived, progress=lambda _: None)
        with Sandbox(image=derived, kernel="upper", engine="bubblewrap") as one:
            assert one.run_code("a cell").text == "A CELL"
