"""bubblewrap for an ordinary user, with and without a cgroup of their own: the contract, every escape, and the ends.

They are the suites that hold for root's sandboxes, in a process of a user who has no rights.
"""

from __future__ import annotations

import re

import pytest

from sandbox_kernel.plugins.bubblewrap import users
from tests.support import ordinary

ENGINES, ESCAPES = "tests/container/engines", "tests/attacks/escape"
OWN = "tests/plugins/bubblewrap/container/test_bubblewrap.py"
ONE_USER = "tests/plugins/bubblewrap/attacks/test_one_user.py"


@pytest.mark.parametrize(
    "delegated", [pytest.param(True, marks=pytest.mark.long), False], ids=["with_a_cgroup", "without"]
)
def test_all_of_it_holds_for_an_ordinary_user(delegated: bool) -> None:
    """What is printed are the times of ends: 0.2 s after the owner's, 0.3 s for fifty; others may be busy meanwhile."""
    if why := ordinary.absent():
        pytest.skip(why)
    wall = "bubblewrap and not effort and not broker" if delegated else "effort"
    fifty = "fifty and with_a_cgroup" if delegated else "fifty and without"
    tests = [*(f"{ENGINES}/test_{name}.py" for name in ("contract", "enforcement")), OWN, ESCAPES]
    select = f"((test_contract or test_enforcement or test_attacks or test_agent) and {wall}) or ({fifty})"
    ran = ordinary.run(tests, select, delegated=delegated)
    print("", *re.findall(r"[a-z ]+ after [\d.]+ s|\d+ passed.*", ran.stdout), sep="\n")
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]
    assert "SKIPPED" not in ran.stdout, ran.stdout[-3000:]


def test_with_subordinate_ids_each_sandbox_has_a_user_of_its_own() -> None:
    """It begins, is attested, is adopted by another process, is found, and ends, as one of the user's own does."""
    if why := ordinary.absent() or (None if users.programs() else "there is no newuidmap (package uidmap)"):
        pytest.skip(why)
    tests = [f"{ENGINES}/test_contract.py", OWN, ONE_USER]
    select = "subordinate or (restart and flight) or begun or reap or (test_contract and bubblewrap and not broker)"
    ran = ordinary.run(tests, select, delegated=True, with_ids=True)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]
    assert "SKIPPED" not in ran.stdout, ran.stdout[-3000:]


def test_sandboxes_of_one_user_are_no_way_to_each_other() -> None:
    """What root's sandboxes cannot do to each other for having users of their own. This user has no name."""
    if why := ordinary.absent():
        pytest.skip(why)
    tests, select = [ONE_USER], "not containers and not subordinate"
    ran = ordinary.run(tests, select, delegated=False, named=False)
    assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-1000:]
    assert "SKIPPED" not in ran.stdout, ran.stdout[-3000:]
