"""The attacks of `escape` in a guest, each as a cell: it calls no system, so what it has of each is an error.

The controls are those of `tests/attacks/escape`, where the same functions get out of what lacks a protection.
"""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.plugins.verify.attack_program import LOAD, sources, table
from sandbox_kernel.plugins.wasm.image import COMMAND, find

pytestmark = pytest.mark.xdist_group("wasm")
ATTACKS = [one.name for one in table().values() if not one.on_agent]
NO_EFFECT = {"other_rights_for_a_system_folder": "WASI has no rights of files: chmod returns, and changes nothing"}
"""What returns and is no way out."""
STUBS = """
import sys, types
class Lacking:
    def __init__(self, *_, **__): pass
    def __init_subclass__(cls, **__): pass
    def __class_getitem__(cls, _): return cls
    def __mul__(self, _): return self
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Lacking()
    def __call__(self, *_, **__): raise OSError(38, "a guest has no such calls")
class Stub(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"): raise AttributeError(name)
        return Lacking
sys.modules |= {name: Stub(name) for name in ("ctypes", "fcntl", "mmap", "resource")}
"""
"""In place of the modules that a guest lacks, so that the attacks can be read at all."""
ONE = """
try:
    word, said = "nothing", kit.ATTACKS[%r].run()
    word = "worked" if said else word
except BaseException as error:
    word, said = type(error).__name__, error
print(word, repr(said)[:300])
"""


@pytest.fixture(scope="module")
def ended() -> dict[str, tuple[str, str]]:
    """Return how each attack ended, and what it said."""
    pytest.importorskip("wasmtime", reason="the extra wasm is not installed: `make test-wasm` installs it")
    try:
        find("sandbox-kernel:data")
    except EngineError as error:
        pytest.skip(f"{error.message}; `make test-wasm` runs `{COMMAND}`")
    found = {}
    with Sandbox(engine="wasm", cell_timeout=60, scratch_size="64M", tmp_size="64M") as sandbox:
        limits = asdict(sandbox.settings.limits)
        given = json.dumps({"limits": limits, "seconds": 10, "modules": sources(), "open files": []})
        load = f"{STUBS}{LOAD}given = json.loads({given!r})\nkit = load(given['modules'])\n"
        assert sandbox.run_code(f"{load}kit.GIVEN.update(given)").error is None
        for name in ATTACKS:
            done = sandbox.run_code(ONE % name)
            word, _, said = (done.logs.stdout[0] if done.logs.stdout else f"{done.error}").partition(" ")
            found[name] = word, said
    return found


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_attack_gets_out(ended: dict[str, tuple[str, str]], attack: str) -> None:
    word, said = ended[attack]
    assert (word == "worked") == (attack in NO_EFFECT), said


def test_a_good_part_of_them_are_tried(ended: dict[str, tuple[str, str]]) -> None:
    """The others ask for modules or names that a guest has not."""
    words = [ended[name][0] for name in ATTACKS]
    assert sum(word in {"OSError", "FileNotFoundError", "PermissionError", "nothing"} for word in words) > 90
