"""What is tried in the machine, one step after the other: data. A step is a run of pytest, by a user.

The processor is emulated, so each step has what its machine can show that another's cannot: cgroup v2 with systemd as
its master, AppArmor, a current Docker, Podman, sessions of users. `LEFT_OUT` says what none of them tries.
"""

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
    engine: str = "docker"
    """What makes the sandboxes of kernels; tests of an engine take each that there is."""
    seconds: float = 2400
    """What it may take; the machine is started again after a step that takes longer."""
    each: float = 600
    """What one test of it may take; the first of a batch takes as long as all of it."""
    skips: tuple[str, ...] = field(
        default=("no runtime 'runsc'", "there is no 'runsc'", "only root can give", "ordinary user's", "of the tests")
    )
    """What a test may say when it is skipped: a part of the sentence. Any other skip fails the step."""


ENGINES = "tests/container/engines"
CONTRACT, BUBBLEWRAP = f"{ENGINES}/test_contract.py", "tests/plugins/bubblewrap/container/test_bubblewrap.py"
ESCAPES = "tests/attacks/escape/test_attacks.py"
ENDINGS = "tests/container/test_endings.py"

WALLS = "not plain and not best and not gvisor and not broker"
ENDS = "out_of_memory or kernel_died or fork_bomb or full_scratch or keeps_variables or (keeps_files and native)"
BATCH = 1800.0

STEPS = (
    Step("engines: what works, what is refused", ("tests/modern/rows.py",), each=BATCH),
    Step("contract: Docker, bubblewrap", (CONTRACT, f"{ENGINES}/test_limit_watch.py"), select=WALLS),
    Step(
        "contract: Docker, by a member of its group",
        (CONTRACT,),
        user="member",
        select="docker and not gvisor and not broker and (attest or come_out or memory or sigkill or cancelled_start)",
    ),
    Step(
        "contract: bubblewrap, by a person with a delegated cgroup",
        (CONTRACT, BUBBLEWRAP),
        user="person",
        delegated=True,
        select=f"{WALLS} and not docker",
    ),
    Step(
        "attestation: what is refused", (f"{ENGINES}/test_refusals.py", f"{ENGINES}/test_report.py"), select="not runsc"
    ),
    Step(
        "attestation: what is refused, by a member",
        (f"{ENGINES}/test_refusals.py",),
        user="member",
        select="not runsc and (honest or filter or network or memory or socket or groups or uid)",
    ),
    Step("escapes: Docker", (ESCAPES,), select="runc and not control", each=BATCH),
    Step("escapes: Docker, controls", (ESCAPES,), select="runc and control", each=BATCH),
    Step("escapes: Docker, by a member", (ESCAPES,), user="member", select="runc and not control", each=BATCH),
    Step("escapes: bubblewrap, with controls", (ESCAPES,), select="bubblewrap and not effort", each=BATCH),
    Step(
        "escapes: bubblewrap, by a person with a delegated cgroup",
        (ESCAPES,),
        user="person",
        delegated=True,
        select="bubblewrap and not effort and not control",
        each=BATCH,
    ),
    Step("ends: Docker", (ENDINGS,), select=f"{ENDS} or killed_container"),
    Step("ends: Docker, by a member", (ENDINGS,), user="member", select="out_of_memory or kernel_died or native"),
    Step("ends: bubblewrap", (ENDINGS,), select=ENDS, engine="bubblewrap"),
    Step(
        "ends: bubblewrap, by a person with a delegated cgroup",
        (ENDINGS,),
        user="person",
        delegated=True,
        select=ENDS,
        engine="bubblewrap",
    ),
)

LEFT_OUT = (
    "gVisor, brokers, and bubblewrap without a cgroup, which need nothing of this machine's; front ends; and for users "
    "who are not root, what the same steps of root's show"
)
