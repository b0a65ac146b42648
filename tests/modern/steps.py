"""What is tried in the machine, one step after the other: data. A step is a run of pytest, by a user."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Step:
    """One run of pytest in the machine."""

    name: str
    tests: tuple[str, ...]
    user: str = "root"
    delegated: bool = False
    """Whether it runs in a cgroup that the user's systemd hands over."""
    select: str = ""
    """pytest's -k."""
    seconds: float = 3600
    before: tuple[str, ...] = ()
    """Lines for a shell of root's, to be run first; one that fails is the end of the step."""
    skips: tuple[str, ...] = field(default=("no runtime 'runsc'", "there is no 'runsc'"))
    """What a test may say when it is skipped: a part of the sentence. Any other skip fails the step."""


ENGINES = "tests/container/engines"

STEPS = (
    Step(
        "engines found and refused",
        ("tests/modern/rows.py",),
        select="as_it_is or podman or user_ids",
    ),
    Step(
        "contract: Docker, bubblewrap",
        (f"{ENGINES}/test_contract.py", f"{ENGINES}/test_limit_watch.py"),
        select="not plain and not best and not gvisor",
    ),
    Step(
        "contract: bubblewrap, delegated cgroup",
        (f"{ENGINES}/test_contract.py", f"{ENGINES}/test_bubblewrap.py"),
        user="person",
        delegated=True,
        select="not plain and not docker and not gvisor",
    ),
    Step(
        "contract: Docker as a member of its group",
        (f"{ENGINES}/test_contract.py",),
        user="member",
        select="docker and not gvisor and (attest or refused or come_out)",
    ),
    Step(
        "refusals of the attestation", (f"{ENGINES}/test_refusals.py", f"{ENGINES}/test_report.py"), select="not runsc"
    ),
    Step("escapes, with their controls", ("tests/attacks/escape/test_attacks.py",), select="not runsc and not effort"),
    Step(
        "ends",
        ("tests/container/test_endings.py",),
        select="out_of_memory or kernel_died or fork_bomb or full_scratch or killed_container or keeps_variables",
    ),
)
