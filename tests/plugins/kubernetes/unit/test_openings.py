"""What attacks find in each pod is declared once: `verify` and the escape suite read the same table."""

from __future__ import annotations

from sandbox_kernel.engines.select import provider
from sandbox_kernel.plugins.kubernetes.plugin import KubernetesProvider
from sandbox_kernel.plugins.verify.attack_program import table
from sandbox_kernel.plugins.verify.probes import PROBES, Probe
from sandbox_kernel.plugins.verify.verdicts import ProbeVerdict, of_attacks
from tests.support.cases import each

OPENINGS = provider("kubernetes").openings
TOUCHED = [probe for probe in PROBES if set(probe.attacks) & set(OPENINGS)]


def found(probe: Probe) -> dict[str, tuple[str, str]]:
    """Return what a pod says of a probe's attacks: those that are declared find something, no other does."""
    return {name: ("worked" if name in OPENINGS else min(table()[name].refused), "") for name in probe.attacks}


def test_each_opening_is_an_attack() -> None:
    assert OPENINGS is KubernetesProvider.openings
    assert set(OPENINGS) <= set(table())
    assert len(TOUCHED) == 5


@each("probe", TOUCHED, ids=[probe.code for probe in TOUCHED])
def test_verify_leaves_out_what_is_declared_of_pods_and_says_why(probe: Probe) -> None:
    done = of_attacks(probe, table(), found(probe), gvisor=False, openings=OPENINGS)
    assert done.verdict is not ProbeVerdict.FAIL
    assert all(OPENINGS[name] in done.happened for name in set(probe.attacks) & set(OPENINGS))
    # The control: with an engine that declares nothing, and for another attack of the same probe.
    assert of_attacks(probe, table(), found(probe), gvisor=False).verdict is ProbeVerdict.FAIL
    for other in set(probe.attacks) - set(OPENINGS):
        said = {**found(probe), other: ("worked", "")}
        assert of_attacks(probe, table(), said, gvisor=False, openings=OPENINGS).verdict is ProbeVerdict.FAIL
