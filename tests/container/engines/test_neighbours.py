"""A sandbox on processors of its own stays there, on each engine that says it can."""

from __future__ import annotations

import os
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import EngineError, SandboxError
from tests.support.engines import BUBBLEWRAP, Bubblewrap, Docker
from tests.support.roots import root_of_tests

LOOKS = """
import os
print(sorted(os.sched_getaffinity(0)))
try:
    os.sched_setaffinity(0, range(os.cpu_count()))
except OSError as error:
    print(error)
print(sorted(os.sched_getaffinity(0)))
"""
"""What is allowed, and what is after a cell has asked for all."""
ALL = os.sched_getaffinity(0)
ENGINES: list[Docker | Bubblewrap] = [Docker("runc", "runc"), *(one for one in BUBBLEWRAP if one.cgroup)]


def image_of(engine: Docker | Bubblewrap) -> dict[str, Any]:
    if (why := engine.absent()) is not None:
        pytest.skip(why)
    if len(ALL) < 2:
        pytest.skip("there is one processor")
    return {"engine": "docker"} if isinstance(engine, Docker) else {"engine": "bubblewrap", "image": root_of_tests()}


@pytest.mark.parametrize("engine", ENGINES, ids=[one.name for one in ENGINES])
def test_cells_run_on_these_processors_and_get_no_others(engine: Docker | Bubblewrap) -> None:
    image = image_of(engine)
    with Sandbox(**image, cpuset=str(max(ALL))) as kept, Sandbox(**image) as free:
        assert "".join(kept.run_code(LOOKS).logs.stdout) == f"[{max(ALL)}]\n[{max(ALL)}]\n"
        assert "".join(free.run_code(LOOKS).logs.stdout) == f"{sorted(ALL)}\n{sorted(ALL)}\n"  # the control


@pytest.mark.parametrize("engine", ENGINES, ids=[one.name for one in ENGINES])
def test_processors_that_the_machine_lacks_are_an_error(engine: Docker | Bubblewrap) -> None:
    image = image_of(engine)
    with pytest.raises(SandboxError, match=r"(?i)processors|cpus"), Sandbox(**image, cpuset="8190") as sandbox:
        sandbox.run_code("1")


def test_a_core_of_one_s_own_is_kept_or_refused() -> None:
    """By the kernel of this machine: nothing in between."""
    from sandbox_kernel.engines.neighbours import facts

    if not BUBBLEWRAP:
        pytest.skip("there is no bubblewrap")
    image = image_of(BUBBLEWRAP[0])
    there = next(one for one in facts() if one.name == "core scheduling").found.startswith("there")
    if there:
        with Sandbox(**image, core_scheduling="on") as sandbox:
            assert "".join(sandbox.run_code("print(1)").logs.stdout) == "1\n"
    else:
        with pytest.raises(EngineError, match="core scheduling"), Sandbox(**image, core_scheduling="on") as sandbox:
            sandbox.run_code("1")
