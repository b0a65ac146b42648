"""The guarded way out: each spelling of a host, each rule and each address is decided as its sentence says."""

from __future__ import annotations

import pytest

from sandbox_kernel.plugins.network.policy import NetworkPolicy, RefusedConnection, Target
from tests.support.cases import each
from tests.support.policy.network import REFUSED, SAME


def target(host: bytes | str, port: int | None = 443) -> Target:
    return NetworkPolicy([]).target(host, port, default_port=None)


def refused_host(host: bytes | str) -> RefusedConnection:
    with pytest.raises(RefusedConnection) as caught:
        target(host)
    return caught.value


# --- hosts as they are written ---------------------------------------------------------------------------------------


@each("sentence", SAME)
def test_a_host_has_one_form(sentence: str) -> None:
    raw, form = SAME[sentence]
    found = target(raw)
    assert found.host == form
    assert target(found.host) == found


@each("sentence", REFUSED)
def test_a_host_that_can_be_read_in_two_ways_is_refused(sentence: str) -> None:
    raw, code = REFUSED[sentence]
    error = refused_host(raw)
    assert error.code is code, error
    assert str(error).isprintable()
    assert str(error).isascii()
    assert len(str(error)) < 600


def test_a_letter_of_another_script_is_another_name() -> None:
    policy = NetworkPolicy(["apple.example"])
    lookalike = target("\u0430pple.example")
    assert lookalike.host == "xn--pple-43d.example"
    with pytest.raises(RefusedConnection) as caught:
        policy.allow(lookalike, None)
    assert caught.value.rule == "xn--pple-43d.example"
    assert policy.allow(target("apple.example"), None)
