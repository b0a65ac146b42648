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


FROM_ONE_FILE = """
import comm, inspect, sys
from ipykernel import kernelapp
loaders = [type(getattr(module, "__loader__", None)).__name__ for module in list(sys.modules.values())]
print(loaders.count("PreparedLoader") > 300, "PreparedBytecode" in [type(each).__name__ for each in sys.meta_path])
print(comm.__version__, "def " in inspect.getsource(kernelapp), __import__("importlib").reload(comm).__version__)
"""
OF_THE_USER = """
import comm, shutil, site
from pathlib import Path
own = shutil.copytree(Path(comm.__file__).parent, Path(site.getusersitepackages(), "comm"))
with Path(own, "__init__.py").open("a") as file:
    file.write("__version__ = 'the user s'")
"""


def test_a_kernel_s_start_finds_its_modules_in_one_file_and_the_user_s_before_them() -> None:
    with Sandbox(image="sandbox-kernel:data") as sandbox:
        found = "".join(sandbox.run_code(FROM_ONE_FILE).logs.stdout).split()
        assert found == ["True", "False", found[2], "True", found[2]]
        assert sandbox.run_code(OF_THE_USER).error is None
        sandbox.restart()
        lines = "".join(sandbox.run_code(FROM_ONE_FILE).logs.stdout).splitlines()
        assert lines == ["False False", "the user s True the user s"]
