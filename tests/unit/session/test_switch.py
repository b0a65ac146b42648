"""Which plugin's service a connection of a cell is for."""

from __future__ import annotations

from typing import cast

import pytest

from sandbox_kernel.core.codes import UsageCode
from sandbox_kernel.core.errors import ConfigurationError
from sandbox_kernel.plugins.api import Cell, Stream, StreamService
from sandbox_kernel.session.plugin_parts import switch
from tests.support.gateway import Pieces


class Served:
    """A service that remembers what it was told."""

    def __init__(self, preamble: bytes) -> None:
        self.preamble = preamble
        self.got = b""

    async def serve(self, stream: Stream, cell: Cell) -> None:
        while data := await stream.receive():
            self.got += data


SERVICES = (b"\0one\n", b"\0one more\n", b"")


@pytest.mark.parametrize("cut", [1, 3, 100])
@pytest.mark.parametrize("preamble", SERVICES)
async def test_the_first_bytes_say_which_service_it_is_for(preamble: bytes, cut: int) -> None:
    services = {one: Served(one) for one in SERVICES}
    whole = preamble + b"CONNECT"
    found = switch(services.values(), 5.0)
    assert found is not None
    await found.serve(cast(Stream, Pieces(*(whole[at : at + cut] for at in range(0, len(whole), cut)))), Cell("1"))
    assert {one: service.got for one, service in services.items() if service.got} == {preamble: b"CONNECT"}


async def test_what_is_for_no_service_is_reset() -> None:
    found, pieces = switch([Served(b"\0one\n")], 5.0), Pieces(b"CONNECT")
    assert found is not None
    await found.serve(cast(Stream, pieces), Cell("1"))
    assert pieces.broken == "unserved"


def test_two_services_that_begin_alike_are_refused() -> None:
    with pytest.raises(ConfigurationError) as caught:
        switch(cast("list[StreamService]", [Served(b"x"), Served(b"x")]), 5.0)
    assert caught.value.code is UsageCode.PLUGIN_UNUSABLE
    assert switch([], 5.0) is None
