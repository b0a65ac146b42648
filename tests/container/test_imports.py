"""Modules in a sandbox's kernel are what they are in any kernel."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox

PICKLED = """
import cloudpickle, decimal, pickle, ssl
def use(x): return decimal.Decimal(x), ssl.OP_ALL > 0
again = pickle.loads(cloudpickle.dumps(use))
print(again(1)[0] == 1, again(1)[1])
"""
PATCHED = """
import code
code.interact = lambda: "mine"
print(code.interact())
"""
SHADOWED = """
from pathlib import Path
Path("base64.py").write_text("raise RuntimeError('a file of a cell')")
import ssl
import dateutil.parser
print(ssl.create_default_context() is not None, dateutil.parser.parse("2024-01-01").year)
"""
KINDS = """
import pandas as pd, datetime
from dateutil.tz import tzlocal
from packaging.version import Version
print(isinstance(tzlocal(), tzlocal), isinstance(Version("1.0"), Version), issubclass(Version, object))
print(pd.Timestamp("2024-01-01", tz=tzlocal()).tz_convert("UTC").tz, pd.Timestamp("2024-01-01 1 PM").hour)
"""


def test_who_asks_what_something_is_an_instance_of_sees_classes() -> None:
    with Sandbox(image="sandbox-kernel:data") as sandbox:
        execution = sandbox.run_code(KINDS)
    assert execution.error is None
    assert "".join(execution.logs.stdout).split() == ["True", "True", "True", "UTC", "13"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (PICKLED, "True True"),
        (PATCHED, "mine"),
        (SHADOWED, "True 2024"),
    ],
    ids=["functions are pickled", "a patch stays", "files of cells take no places"],
)
def test_as_in_any_kernel(code: str, said: str) -> None:
    with Sandbox(image="sandbox-kernel:data") as sandbox:
        execution = sandbox.run_code(code)
    assert execution.error is None
    assert "".join(execution.logs.stdout).strip() == said
