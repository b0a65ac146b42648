"""Modules that wait in a sandbox's kernel: to each form of an import they are there, as in any kernel."""

from __future__ import annotations

import json

import pytest

from sandbox_kernel import Sandbox

LOOK = """
import json, os, sys
from types import ModuleType
waiting = sorted(name for name, module in [*sys.modules.items()] if "__reduce_ex__" in vars(type(module)))
forms = {
    "with its package": "import {name}; found = {name}",
    "its package alone": "import {package}; found = {name}",
    "by another name": "import {name} as found",
    "from its package": "from {package} import {last} as found",
    "something of it": "from {name} import __name__ as said; import {package}; found = {name}",
    "by its name": "import importlib; found = importlib.import_module({name!r})",
}
said = {}
for name in waiting:
    package, _, last = name.rpartition(".")
    for form, line in forms.items():
        if not package and "{package}" in line:
            continue
        reading, writing = os.pipe()
        if os.fork() == 0:
            try:
                names = {}
                exec(line.format(name=name, package=package, last=last), names)
                public = [each for each in dir(names["found"]) if not each.startswith("_")]
                answer = "module" if public and type(names["found"]) is ModuleType else "it is none, or empty"
            except BaseException as error:
                answer = repr(error)
            os.write(writing, answer.encode())
            os._exit(0)
        os.close(writing)
        with open(reading) as file:
            said[f"{name}, {form}"] = file.read()
        os.wait()
print(json.dumps(said))
"""
PICKLED = """
import cloudpickle, decimal, json, pickle, ssl, sys
def use(x): return decimal.Decimal(x), ssl.OP_ALL > 0
assert "__reduce_ex__" in vars(type(decimal)), "it does not wait"
again = pickle.loads(cloudpickle.dumps(use))
print(again(1)[0] == 1, again(1)[1])
"""
PATCHED = """
import code
code.interact = lambda: "mine"
code.InteractiveConsole  # by which it is there, at the latest
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


@pytest.fixture(scope="module")
def said() -> dict[str, str]:
    with Sandbox(image="sandbox-kernel:data") as sandbox:
        execution = sandbox.run_code(LOOK)
    assert execution.error is None
    found: dict[str, str] = json.loads("".join(execution.logs.stdout))
    return found


def test_each_is_found_by_each_form_of_an_import(said: dict[str, str]) -> None:
    assert {form: answer for form, answer in said.items() if answer != "module"} == {}


def test_some_wait_among_them_modules_of_packages(said: dict[str, str]) -> None:
    names = {form.partition(",")[0] for form in said}
    assert {"decimal", "packaging.version", "dateutil.tz", "IPython.core.debugger"} <= names


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
