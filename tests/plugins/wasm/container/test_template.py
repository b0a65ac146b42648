"""Sessions whose processes come from a template: they are as any other, and end with their owner and not with it."""

from __future__ import annotations

import os
import re
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxDied
from sandbox_kernel.plugins.wasm import template
from sandbox_kernel.plugins.wasm.engine import sessions
from tests.plugins.wasm.container.test_engine import there  # noqa: F401 (a fixture)
from tests.support.patience import until
from tests.support.processes import python

pytestmark = pytest.mark.xdist_group("wasm")
OWNER = """
import os, select
from sandbox_kernel import Sandbox
from sandbox_kernel.plugins.wasm import template
kept = []
for number in range(3):
    kept.append(Sandbox(engine="wasm"))
    kept[-1].run_code("1")
    if number == 1:
        (made,) = template.templates.values()
        select.select([made.end], [], [], 60)
print(made.pid, flush=True)
kept[-1].run_code("while True: pass")
"""


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def private(pid: int) -> int:
    """Return the bytes of a process that it shares with none."""
    said = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return int(re.search(r"^Private_Dirty:\s+(\d+)", said, re.MULTILINE)[1]) * 1024  # type: ignore[index]


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[Sandbox, int]]]:
    """Start a sandbox, as one of a process without a template at first; return it with its process."""
    monkeypatch.setattr(template, "templates", {})
    with ExitStack() as stack:

        def started() -> tuple[Sandbox, int]:
            before = {pid for pid, *_ in sessions()}
            sandbox = stack.enter_context(Sandbox(engine="wasm"))
            sandbox.run_code("1")
            (pid,) = [pid for pid, *_ in sessions() if pid not in before and is_own(pid)]
            return sandbox, pid

        yield started
    for one in template.templates.values():
        if one is not None:
            one.close()


def is_own(pid: int) -> bool:
    """Return whether a process is of this test: other workers may have some, too."""
    return parent(pid) == os.getpid() or parent(parent(pid)) == os.getpid()


def made() -> template.Template:
    """Return the template, once it has loaded."""
    (one,) = template.templates.values()
    assert one is not None
    assert select.select([one.end], [], [], 60)[0], "it is not ready after a minute"
    return one


def test_the_third_comes_from_a_template_and_is_as_the_first(start: Callable[[], tuple[Sandbox, int]]) -> None:
    _, first = start()
    assert list(template.templates.values()) == [None], "one session needs no template"
    start()
    of = made()
    (third, pid), (fourth, other) = start(), start()
    assert [parent(one) for one in (first, pid, other)] == [os.getpid(), of.pid, of.pid]
    assert of.pid not in {one for one, *_ in sessions()}
    assert {one.id for one in (third, fourth)} <= {session for _, session, _, _ in sessions()}
    assert len({len([*Path(f"/proc/{one}/fd").iterdir()]) for one in (first, pid)}) == 1
    status = [Path(f"/proc/{one}/status").read_text() for one in (first, pid)]
    for line in ("CapBnd", "CapEff", "NoNewPrivs", "Seccomp", "SigIgn", "SigBlk"):
        assert len({re.search(rf"^{line}:\s+(\S+)", one, re.MULTILINE)[1] for one in status}) == 1, line  # type: ignore[index]
    assert private(pid) < 0.7 * private(first)
    draw = "import random, secrets, numpy; (random.random(), secrets.token_hex(8), numpy.random.random())"
    drawn = [one.run_code(draw).text for one in (third, fourth)]
    assert drawn[0] != drawn[1]
    assert all(drawn)


def test_an_end_from_outside_is_named(start: Callable[[], tuple[Sandbox, int]]) -> None:
    alone, first = start()
    start(), made()
    sandbox, pid = start()
    said = []
    for one, killed in ((alone, first), (sandbox, pid)):
        os.kill(killed, signal.SIGKILL)
        error = one.run_code("1").error
        assert error is not None
        said.append((error.name, error.value, error.code))
    assert said[0] == said[1]
    assert said[0][0] == SandboxDied.__name__


def test_what_came_from_a_template_outlives_it_and_the_next_have_another(
    start: Callable[[], tuple[Sandbox, int]],
) -> None:
    start(), start()
    of = made()
    sandbox, _ = start()
    os.kill(of.pid, signal.SIGKILL)
    assert sandbox.run_code("6 * 7").text == "42"
    _, alone = start()
    assert parent(alone) == os.getpid()
    start(), start()
    assert made().pid != of.pid


async def test_sigkill_of_the_owner_leaves_neither_sessions_nor_the_template() -> None:
    with python(OWNER) as (owner, line):
        pid = int(line)
        own = [one for one, *_ in sessions() if parent(one) in (owner.pid, pid)]
        assert len(own) == 3
    await until(lambda: not any(Path(f"/proc/{one}").exists() for one in (pid, *own)))
