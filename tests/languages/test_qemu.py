"""R in a machine of its own: what is in the root of bubblewrap runs in QEMU as it is."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.engines.select import provider
from sandbox_kernel.plugins import index
from tests.languages.places import R, asked_for

pytestmark = [asked_for, pytest.mark.slow, pytest.mark.timeout(600)]


def test_r_runs_in_qemu() -> None:
    if not index.is_here("qemu"):
        pytest.skip("there is no plugin qemu")
    try:
        state = provider("qemu").state(R.image)
    except SandboxError as missing:
        pytest.skip(str(missing))
    if state is None or state[1] == "wrong":
        pytest.skip("there is no machine: sandbox-kernel build --engine qemu --kind r")
    with Sandbox(image=R.image, kernel=R.kernel, engine="qemu") as one:
        assert [result.text for result in one.run_code(R.value[0]).results] == [R.value[1]]
        assert "image/png" in one.run_code("plot(1:3)").results[0].data
        error = one.run_code(R.busy, timeout=2).error
        assert error is not None
        assert (error.name, error.kept) == ("CellTimeout", "variables-and-files")
