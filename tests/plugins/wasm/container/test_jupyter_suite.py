"""jupyter_kernel_test on the kernel of a guest, with what that kernel refuses."""

from __future__ import annotations

from collections.abc import Iterator

import jupyter_kernel_test
import pytest

from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.wasm.codes import NUMBERS
from sandbox_kernel.plugins.wasm.image import COMMAND, find
from tests.support.kernel_suite import IPythonSamples
from tests.support.kernels import install

pytestmark = pytest.mark.xdist_group("wasm")


@pytest.fixture(scope="module", autouse=True)
def _kernel_by_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
    try:
        find("sandbox-kernel:data")
    except EngineError as error:
        pytest.skip(f"{error.message}; `make test-wasm` runs `{COMMAND}`")
    folder = tmp_path_factory.mktemp("jupyter")
    install(folder, "--engine", "wasm", "--cell-timeout", "60", name="sandbox-wasm")
    with pytest.MonkeyPatch.context() as changed:
        changed.setenv("JUPYTER_PATH", str(folder / "share/jupyter"))
        yield


class TestIPython(IPythonSamples, jupyter_kernel_test.KernelTests):
    kernel_name = "sandbox-wasm"
    supported_history_operations: tuple[str, ...] = ()
    """A history is a file, and no session of an image has open ones: the answer is empty (test_engine.py)."""

    def test_the_banner_says_what_is_to_be_known_of_numbers(self) -> None:
        reply = self.kc.kernel_info(reply=True, timeout=30)
        assert NUMBERS in reply["content"]["banner"]


class TestIopubWelcome(jupyter_kernel_test.IopubWelcomeTests):
    kernel_name = "sandbox-wasm"
    support_iopub_welcome = True
