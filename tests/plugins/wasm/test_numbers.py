"""Integers in a guest are those that people know."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import EngineError

ANSWERS = {
    "(np.arange(100000) ** 2).sum()": "333328333350000",
    "np.array([70000, 70001]) * np.array([70000, 3])": "[4900000000     210003]",
    "np.zeros(1, int).dtype, np.dtype('int'), np.int_(1).dtype": "int64 int64 int64",
    "np.array([2**30] * 4, np.int32).sum()": "4294967296",
    "np.full(3, 200, np.uint8).cumprod()[-1].dtype": "uint64",
    "np.multiply(100000, 100000)": "10000000000",
    "np.bincount([1, 1, 3]) * 2**40": "[            0 2199023255552             0 1099511627776]",
    "np.unique([5, 5], return_counts=True)[1].dtype, np.where([True])[0].dtype": "int64 int64",
    "np.array([3, 1]).argsort().dtype, pd.Series([3, 1]).argsort().dtype": "int64 int64",
    "np.random.RandomState(7).randint(2**40)": "752595690692",
    "pd.Series([70000]).pow(2)[0], pd.Series([True] * 3).sum().dtype": "4900000000 int64",
    "repr(np.arange(2)), repr(np.arange(2, dtype='i4'))": "array([0, 1]) array([0, 1], dtype=int32)",
    "pd.crosstab(pd.Series([1, 2]), pd.Series([1, 2])).to_numpy().tolist()": "[[1, 0], [0, 1]]",
    "np.take([5, 6, 7], np.array([2, 0])), np.repeat([5, 6], np.array([1, 2]))": "[7 5] [5 6 6]",
    "sample_without_replacement(100, 5, random_state=0).tolist()": "[26, 86, 2, 55, 75]",
}

BEFORE = """
import numpy as np, pandas as pd
from sklearn.utils.random import sample_without_replacement
"""


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What a guest prints for each of them."""
    pytest.importorskip("wasmtime", reason="the extra wasm is not installed")
    lines = "\n".join(f"print({code})" for code in ANSWERS)
    try:
        with Sandbox(engine="wasm", limits="best-effort") as sandbox:
            done = sandbox.run_code(BEFORE + lines)
    except EngineError as error:
        pytest.skip(f"no guest begins: {error}")
    assert done.error is None, done.error
    return "".join(done.logs.stdout).splitlines()


@pytest.mark.parametrize("number", range(len(ANSWERS)), ids=list(ANSWERS))
def test_a_guest_computes_as_any_machine(printed: list[str], number: int) -> None:
    assert printed[number] == list(ANSWERS.values())[number]
