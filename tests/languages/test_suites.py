"""The suite that Jupyter has for kernels, on R and Deno in a sandbox, by our kernel's name alone."""

from __future__ import annotations

import os
from collections.abc import Iterator

import jupyter_kernel_test
import pytest

from tests.languages.places import DENO, R, asked_for
from tests.support.kernels import install

pytestmark = asked_for


@pytest.fixture(scope="module", autouse=True)
def _kernels_by_name(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    folder = tmp_path_factory.mktemp("jupyter")
    for language in (R, DENO):
        name = f"sandbox-{language.kernel}"
        install(folder, "--image", language.image, "--kernel", language.kernel, "--cell-timeout", "60", name=name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "JUPYTER_PATH", str(folder / "share/jupyter"))
        yield


class TestR(jupyter_kernel_test.KernelTests):
    """IRkernel's own tests; it shows values as displays, and has no history."""

    kernel_name = "sandbox-ir"
    language_name = "R"
    file_extension = ".r"
    code_hello_world = "print('hello, world')"
    code_stderr = "message('test')"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]  # noqa: RUF012
    complete_code_samples = ["1", "print('hello, world')", "f <- function(x) {\n  x * 2\n}"]  # noqa: RUF012
    incomplete_code_samples = ["print('hello", "f <- function(x) {\n  x * 2"]  # noqa: RUF012
    invalid_code_samples = ["f <- ; 1"]  # noqa: RUF012
    code_generate_error = "raise"
    code_display_data = [  # noqa: RUF012
        {"code": "1 + 2", "mime": "text/plain"},
        {"code": "data.frame(a = 1)", "mime": "text/html"},
        {"code": "plot(1:3)", "mime": "image/png"},
    ]
    code_inspect_sample = "print"


class TestDeno(jupyter_kernel_test.KernelTests):
    """Deno inspects nothing, and has no history."""

    kernel_name = "sandbox-deno"
    language_name = "typescript"
    file_extension = ".ts"
    code_hello_world = "console.log('hello, world')"
    code_stderr = "console.error('test')"
    completion_samples = [{"text": "Deno.readTextF", "matches": {"readTextFile", "readTextFileSync"}}]  # noqa: RUF012
    complete_code_samples = ["1", "console.log('hello, world')", "function f(x: number) {\n  return x * 2\n}"]  # noqa: RUF012
    incomplete_code_samples = ["console.log('hello", "function f(x: number) {\n  return x * 2"]  # noqa: RUF012
    invalid_code_samples = ["f(]"]  # noqa: RUF012
    code_generate_error = "throw new Error('test')"
    code_execute_result = [  # noqa: RUF012
        {"code": "1 + 2 + 3", "result": "6"},
        {"code": "[1, 2, 3].map((n) => n * n)", "result": "[ 1, 4, 9 ]"},
    ]
    code_display_data = [  # noqa: RUF012
        {"code": "await Deno.jupyter.display({'text/html': '<b>test</b>'}, {raw: true})", "mime": "text/html"},
    ]
