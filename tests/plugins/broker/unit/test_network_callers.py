"""Who may ask a broker over the network, and what those get who may not: real TLS on loopback, without an engine."""

from __future__ import annotations

from pathlib import Path

from tests.plugins.broker.network import a_listener
from tests.support.patience import within


async def test_a_caller_with_a_certificate_of_the_authority_is_answered(tmp_path: Path) -> None:
    async with a_listener(tmp_path) as (_, place), within(20):
        status = await place.engine(place.certified("alice")).status()
    assert status["yours"] == 0
