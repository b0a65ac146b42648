"""What a start that failed is said to need."""

from __future__ import annotations

from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import Limits, Settings
from sandbox_kernel.plugins.doctor.doctor import start_remedy


@pytest.mark.parametrize(
    ("code", "given", "remedy"),
    [
        (
            EndCode.NO_KERNEL_STARTS,
            {"image": "python:3", "limits": Limits(memory=1 << 30, pids=40)},
            "python:3 has to bring Python 3.9 or newer and ipykernel; "
            "the sandbox had 1.0 GiB of memory and 40 processes",
        ),
        (EndCode.ENGINE_FAILED, {}, "the engine refuses it for the cause that it says; its log may say more"),
        (EndCode.NO_TIME_ZONE, {}, EndCode.NO_TIME_ZONE.remedy),
    ],
)
def test_a_start_that_failed_has_the_remedy_of_its_cause(code: EndCode, given: dict[str, Any], remedy: str) -> None:
    assert start_remedy(EngineError(code, "why"), Settings(**given)) == remedy
