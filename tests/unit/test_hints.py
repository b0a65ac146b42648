"""One line for a person who meets a wall of the sandbox; with a way out, another one where there is no network."""

from __future__ import annotations

import pytest

from sandbox_kernel.core.model import Limits
from sandbox_kernel.session.hints import hint

LOST = {
    "urllib, requests": ("URLError", "<urlopen error [Errno -3] Temporary failure in name resolution>"),
    "gVisor": ("gaierror", "[Errno -2] Name or service not known"),
    "gVisor, an address": ("OSError", "[Errno 113] No route to host"),
    "an address": ("OSError", "[Errno 101] Network is unreachable"),
    "curl": ("CalledProcessError", "curl: (6) Could not resolve host: a.test"),
}


@pytest.mark.parametrize("case", LOST)
def test_who_meets_no_network_is_told_so(case: str) -> None:
    assert "the sandbox has no network" in str(hint(*LOST[case], Limits()))
    said = str(hint(*LOST[case], Limits(), way_out=True))
    assert "went past the way out" in said
    assert "trust_env=True" in said


def test_what_has_nothing_to_do_with_it_gets_no_hint() -> None:
    assert hint("ValueError", "Network is a nice word", Limits(), way_out=True) is None
    assert "no more files open" in str(hint("OSError", "[Errno 24] Too many open files", Limits(), way_out=True))


def test_nothing_of_what_the_cell_says_is_in_a_hint() -> None:
    said = hint("gaierror", "Name or service not known FORGED", Limits(), way_out=True)
    assert said is not None
    assert "FORGED" not in said
