"""Every attack in a real sandbox, on every runtime; and the same attack where its protection is taken away.

All attacks of one runtime, or of one alteration, share a container and run one after the other, each in a process of
its own of which nothing is left. The attacks are in the package, the alterations in alterations.py, those of bubblewrap
in weaker.py. Attacks on the agent run in test_agent.py; their controls here.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Collection
from functools import cache

import pytest

from sandbox_kernel.core.errors import EngineUnavailable
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.engines.select import provider
from sandbox_kernel.plugins.verify.attack_program import table
from sandbox_kernel.plugins.verify.differences import DIFFERENCES
from tests.attacks.escape import tools
from tests.attacks.escape.alterations import ALTERATIONS
from tests.attacks.escape.tools import BESIDE, BUBBLEWRAP, ON_BUBBLEWRAP, RUNTIMES, WITHOUT_A_CGROUP, Outcomes, run
from tests.attacks.escape.weaker import BEST_EFFORT, NOT_WITHOUT_A_CGROUP, SEEN_LATE, WEAKER, WITHOUT
from tests.support.engines import OTHER_DAEMONS, Podman
from tests.support.turns import once

ATTACKS = table()
Batch = Callable[..., Outcomes]


def _declared(engine: str) -> dict[str, frozenset[str]]:
    found = provider(engine)
    ends = {**dict.fromkeys(found.openings, "worked"), **found.differences}
    return {name: frozenset({word}) for name, word in ends.items()}


DIFFERENT: dict[str, dict[str, frozenset[str]]] = {
    "runsc": {name: frozenset({word}) for name, word in DIFFERENCES.items()},
    **{name: _declared("bubblewrap") for name in (BUBBLEWRAP.name, tools.BEST_EFFORT.name)},
    **{each.name: _declared("podman") for each in OTHER_DAEMONS if isinstance(each, Podman)},
    **{
        name: {
            attack: frozenset({word}) | (ATTACKS[attack].refused if attack in NOT_WITHOUT_A_CGROUP else frozenset())
            for attack, word in getattr(each, "escapes", {}).items()
        }
        for name, each in ON_BUBBLEWRAP.items()
        if name not in {BUBBLEWRAP.name, *WITHOUT_A_CGROUP}
    },
}
"""For each runtime, the attacks that end there otherwise than with runc, and how."""


@pytest.fixture(scope="module")
def batch(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Return how the attacks of a container ended: those of this run's tests, all at once at the first question.

    Several workers share the answers: each has all of the run's tests in its list, whoever runs them. One that is not
    what it should be is forgotten, so that a second try of its test asks again, alone.
    """
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    found: dict[tuple[str, str | None], Outcomes] = {}
    wanted: dict[tuple[str, str | None], list[str]] = {}
    tries = Counter[tuple[str, str | None]]()
    for item in request.session.items:
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        if parameters.get("attack") in ATTACKS and "runtime" in parameters:  # else there is none of a kind in this run
            name, runtime = parameters["attack"], parameters["runtime"]
            lacking = ATTACKS[name].control if item.name.startswith("test_control") else None
            wanted.setdefault((runtime, lacking), []).append(name)

    def ask(runtime: str, alteration: str | None, *, forget: bool = False) -> Outcomes:
        key = (runtime, alteration)
        if forget:
            tries[key] += 1
            return found.pop(key)
        if key not in found:
            name = f"escape-{runtime}-{alteration}-{tries[key]}.json"
            found[key] = once(shared and shared / name, lambda: all_of(*key))
        return found[key]

    def all_of(runtime: str, alteration: str | None) -> Outcomes:
        folder = tmp_path_factory.mktemp("host")
        for each in (folder, *list(folder.parents)[: 3 if shared else 2]):
            each.chmod(0o755)  # so that only the container is in the way
        late = BEST_EFFORT if runtime in WITHOUT_A_CGROUP else frozenset[str]()  # the end may come to a later one
        names = sorted(wanted[runtime, alteration], key=lambda name: (name in late, name))
        return run(names, runtime, alteration, folder)

    return ask


@pytest.fixture(scope="module")
def absent() -> Callable[[str], str | None]:
    """Return why a runtime is not to be had here."""

    @cache
    def docker() -> Collection[str]:
        try:
            return asyncio.run(DockerEngine().info()).runtimes
        except EngineUnavailable:
            if os.geteuid() == 0:
                raise
            return ()  # an ordinary user's, who may not ask it

    def why(runtime: str) -> str | None:
        if under := BESIDE.get(runtime):
            return under.absent()
        return None if runtime in docker() else f"there is no {runtime!r}"

    return why


@pytest.mark.parametrize(
    ("runtime", "attack"),
    [
        pytest.param(runtime, name, id=f"{each.verdict}-{runtime}")
        for runtime in RUNTIMES
        for name, each in ATTACKS.items()
        if not each.on_agent and not (runtime in WITHOUT_A_CGROUP and name in NOT_WITHOUT_A_CGROUP)
    ],
)
def test_the_attack(batch: Batch, absent: Callable[[str], str | None], attack: str, runtime: str) -> None:
    """It ends in a way that is expected of it: an error for that reason, a signal, or empty hands."""
    if reason := absent(runtime):
        pytest.skip(reason)
    ended, said = batch(runtime, None)[attack]
    wanted = DIFFERENT.get(runtime, {}).get(attack, ATTACKS[attack].refused)
    if runtime in WITHOUT_A_CGROUP and attack in BEST_EFFORT:
        wanted = ATTACKS[attack].refused | SEEN_LATE
    if ended not in wanted:
        batch(runtime, None, forget=True)
    assert ended in wanted, said


@pytest.mark.parametrize(
    ("runtime", "attack"),
    [
        pytest.param(runtime, name, id=f"{name}_works_without_it-{runtime}")
        for runtime in ("runc", BUBBLEWRAP.name)
        if runtime in RUNTIMES
        for name, each in ATTACKS.items()
        if each.control is not None and not (runtime == BUBBLEWRAP.name and name in WITHOUT)
    ],
)
def test_control(batch: Batch, absent: Callable[[str], str | None], attack: str, runtime: str) -> None:
    """The same function gets out of a sandbox that lacks the protection: the refusal above is the protection's."""
    if reason := absent(runtime):
        pytest.skip(reason)
    ended, said = batch(runtime, ATTACKS[attack].control)[attack]
    if ended != "worked":
        batch(runtime, ATTACKS[attack].control, forget=True)
    assert ended == "worked", f"{ATTACKS[attack].control}: {ended} {said}"


def test_the_tables_name_what_there_is() -> None:
    assert len(ATTACKS) > 60
    assert {name for each in DIFFERENT.values() for name in each} | set(WITHOUT) <= set(ATTACKS)
    assert {each.control for each in ATTACKS.values()} - {None} == set(ALTERATIONS)
    assert {each.control for each in ATTACKS.values() if each.name not in WITHOUT} - {None} <= set(WEAKER)
    assert set(WEAKER) <= set(ALTERATIONS)
