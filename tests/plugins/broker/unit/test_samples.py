"""What this machine's kernel says of processes is the same through a broker."""

from __future__ import annotations

import json
from typing import Any

from sandbox_kernel.core.model import ProcessSample, SandboxSample
from sandbox_kernel.plugins.broker.client import packets
from tests.support.cases import each

FULL = SandboxSample(
    7, 1.5, tuple(ProcessSample(f"{number}-1", "\\x1b" * 30, 2.0, ("\\x1b" * 30,) * 4) for number in range(64)), 1 << 62
)


def test_the_largest_sample_fits_into_a_packet_and_is_read_as_it_was() -> None:
    assert packets.sample(packets.unpacked(packets.packed(FULL._asdict()))) == FULL
    assert packets.sample(json.loads(json.dumps(SandboxSample()._asdict()))) == SandboxSample()


LIES: tuple[dict[str, Any], ...] = (
    {},
    {"refused_processes": "7", "cpu_seconds": "x", "programs": 3, "memory_bytes": 1.5},
    {"programs": [["7-1", "x", 1.0]]},
    {"programs": [["7-1", 5, 1.0, []]]},
    {"programs": [["7-1", "x", "1.0", []]]},
    {"programs": [["7-1", "x", 1.0, [5]]]},
    {"programs": [5]},
    {"programs": [["7-1", "x", 1.0, []]] * 2000},
)


@each("said", LIES)
def test_what_is_no_sample_is_unknown(said: dict[str, Any]) -> None:
    assert packets.sample(said) == SandboxSample()


def test_a_sample_is_no_refusal_of_a_broker() -> None:
    assert "refused" not in SandboxSample._fields
