"""What a process that is forked has of its parent's pods: no connection, and no number that somebody else closes."""

from __future__ import annotations

import os
from pathlib import Path

from sandbox_kernel.plugins.kubernetes.engine import KubernetesEngine
from tests.plugins.kubernetes.scripted_api import ScriptedApi
from tests.plugins.kubernetes.unit.test_ends import a_spec


def seen_by_a_child(number: int) -> str:
    """Fork, and return what the child has at a number."""
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        try:
            os.write(writing, str(Path(f"/proc/self/fd/{number}").readlink()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    with open(reading, "rb") as found:  # noqa: PTH123 (a number)
        return found.read().decode()


async def test_a_child_has_no_connection_and_keeps_its_numbers(api: ScriptedApi) -> None:
    """Were the number free, the child's next file would get it, and the parent's transport would close that."""
    container = await KubernetesEngine().start(a_spec())
    wire = container._wire._number()  # noqa: SLF001
    assert seen_by_a_child(wire) == "/dev/null"
    assert os.readlink(f"/proc/self/fd/{wire}").startswith("socket:"), "the control"  # noqa: PTH115
    await container.kill()
