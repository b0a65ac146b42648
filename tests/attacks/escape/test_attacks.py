"""Every attack in a real sandbox, on every runtime; and the same attack where its protection is taken away.

All attacks of one runtime, or of one alteration, share a container and run one after the other, each in a process of
its own of which nothing is left. The attacks are in the package, the alterations in alterations.py. Attacks on
the agent run in test_agent.py; their controls here.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import pytest

from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.verify.differences import BUBBLEWRAP as DIFFERENCES_OF_BUBBLEWRAP
from sandbox_kernel.verify.differences import DIFFERENCES
from sandbox_kernel.verify.shipped import table
from tests.attacks.escape.alterations import ALTERATIONS
from tests.attacks.escape.tools import BUBBLEWRAP, Outcomes, run
from tests.support.turns import once

ATTACKS = table()
Batch = Callable[[str, str | None], Outcomes]


@pytest.fixture(scope="module")
def batch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Return how the attacks of a container ended: those of this run's tests, all at once at the first question.

    Several workers share the answers: each has all of the run's tests in its list, whoever runs them.
    """
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    found: dict[tuple[str, str | None], Outcomes] = {}
    wanted: dict[tuple[str, str | None], list[str]] = {}
    for item in request.session.items:
        if (parameters := getattr(item, "callspec", None)) and "attack" in parameters.params:
            name, runtime = parameters.params["attack"], parameters.params.get("runtime")
            key = (runtime, None) if runtime else ("runc", ATTACKS[name].control)
            wanted.setdefault(key, []).append(name)

    def ask(runtime: str, alteration: str | None) -> Outcomes:
        key = (runtime, alteration)
        if key not in found:
            found[key] = once(shared and shared / f"escape-{runtime}-{alteration}.json", lambda: all_of(*key))
        return found[key]

    def all_of(runtime: str, alteration: str | None) -> Outcomes:
        folder = tmp_path_factory.mktemp("host")
        for each in (folder, *list(folder.parents)[: 3 if shared else 2]):
            each.chmod(0o755)  # so that only the container is in the way
        return run(sorted(wanted[runtime, alteration]), runtime, alteration, folder)

    return ask


@pytest.fixture(scope="module")
def runtimes() -> set[str]:
    there = {BUBBLEWRAP.name} if BUBBLEWRAP.absent() is None else set()
    return set(asyncio.run(DockerEngine().info()).runtimes) | there


@pytest.mark.parametrize("runtime", ["runc", "runsc", "bubblewrap"])
@pytest.mark.parametrize(
    "attack", [pytest.param(name, id=each.verdict) for name, each in ATTACKS.items() if not each.on_agent]
)
def test_the_attack(batch: Batch, runtimes: set[str], attack: str, runtime: str) -> None:
    """It ends in a way that is expected of it: an error for that reason, a signal, or empty hands."""
    if runtime not in runtimes:
        pytest.skip(f"there is no {runtime!r}")
    ended, said = batch(runtime, None)[attack]
    different = {"runsc": DIFFERENCES, "bubblewrap": DIFFERENCES_OF_BUBBLEWRAP}.get(runtime, {}).get(attack)
    wanted = {different} if different else ATTACKS[attack].refused
    assert ended in wanted, said


@pytest.mark.parametrize(
    "attack",
    [pytest.param(name, id=f"{name}_works_without_it") for name, each in ATTACKS.items() if each.control is not None],
)
def test_control(batch: Batch, attack: str) -> None:
    """The same function gets out of a container that lacks the protection: the refusal above is the protection's."""
    ended, said = batch("runc", ATTACKS[attack].control)[attack]
    assert ended == "worked", f"{ATTACKS[attack].control}: {ended} {said}"


def test_the_tables_name_what_there_is() -> None:
    assert len(ATTACKS) > 60
    assert set(DIFFERENCES) | set(DIFFERENCES_OF_BUBBLEWRAP) <= set(ATTACKS)
    assert {each.control for each in ATTACKS.values()} - {None} == set(ALTERATIONS)
