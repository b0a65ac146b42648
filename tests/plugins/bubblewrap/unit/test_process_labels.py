"""Sandboxes are found by a variable of their processes, which any process may set to anything."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from sandbox_kernel.plugins.bubblewrap.process_labels import mark_of, sandboxes
from tests.support.patience import Patience

VARIABLE = "SANDBOX_KERNEL_TEST_OF_MARKS"
PROPER = {"name": "n", "session": "s", "image": "i", "memory": 1, "version": "1", "pipe": 2}

ODD = {
    "no JSON": "x",
    "no object": "[]",
    "nothing": "null",
    "a part": json.dumps({"name": "n"}),
    "a number without an end": json.dumps(PROPER).replace("1,", "1e999,", 1),
    "a number that is none": json.dumps(PROPER).replace("1,", "NaN,", 1),
    "a deep tree": "[" * 50_000,
    "a tree for a number": json.dumps(PROPER | {"pipe": [[]]}),
}


def found(mark: str) -> list[str]:
    with subprocess.Popen(["sleep", "60"], env={**os.environ, VARIABLE: mark}) as process:
        try:
            patience = Patience()
            while mark_of(process.pid, VARIABLE) != mark:
                assert patience.count() < 10
            return [one.name for one in sandboxes(VARIABLE)]
        finally:
            process.kill()


@pytest.mark.parametrize("mark", ODD)
def test_a_process_that_is_marked_oddly_is_no_sandbox(mark: str) -> None:
    """One that raised hid all sandboxes of the machine: a list of them was none, and nothing was removed."""
    assert found(ODD[mark]) == []


def test_control_a_process_that_is_marked_is_one() -> None:
    assert found(json.dumps(PROPER)) == ["n"]
