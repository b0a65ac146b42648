"""Modules that wait in a kernel until something is wanted of them."""

from __future__ import annotations

import pickle
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module, reload
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import pytest

from sandbox_kernel.container import later
from sandbox_kernel.container.later import load_later, settle

Write = Callable[[str, str], None]
GATE = """
import threading
begun, go = threading.Event(), threading.Event()
def wait():
    begun.set()
    assert go.wait(30)
"""


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Write a module where Python finds it; all of them are forgotten in the end."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(later, "waiting", {})

    def write(name: str, text: str) -> None:
        path = tmp_path.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text, encoding="utf-8")

    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def loaded(name: str) -> bool:
    return "RAN" in later.dictionary(sys.modules[name])


def test_a_module_waits_until_something_is_wanted_of_it(write: Write, tmp_path: Path) -> None:
    write("late_plain", '"""Said."""\nRAN = True\nvalue = 3\n')
    load_later("late_plain")
    module = import_module("late_plain")
    assert module.__name__ == "late_plain"
    assert module.__file__ == str(tmp_path / "late_plain.py")
    assert module.__spec__ is not None
    assert not hasattr(module, "__warningregistry__")
    assert not loaded("late_plain")
    assert module.value == 3
    assert type(module) is ModuleType
    assert module.__doc__ == "Said."
    with pytest.raises(AttributeError, match="module 'late_plain' has no attribute 'other'"):
        _ = module.other
    assert reload(module) is module


@pytest.mark.parametrize(
    "wanted",
    [
        "dir(module)",
        "vars(module)",
        "module.__doc__",
        "exec('from late_asked import *')",
        "hasattr(module, 'nothing')",
        "module.__all__",
    ],
)
def test_whoever_looks_sees_all_of_it(write: Write, wanted: str) -> None:
    write("late_asked", '"""Said."""\nRAN = True\n__all__ = ["RAN"]\n')
    load_later("late_asked")
    found = eval(wanted, {"module": import_module("late_asked")})  # noqa: S307 (ours, from above)
    assert loaded("late_asked")
    assert found in (["RAN"], "Said.", None, False) or "RAN" in found


def test_a_module_that_answers_by_itself_does_so_after_it(write: Write) -> None:
    write("late_own", "RAN = True\ndef __getattr__(name):\n return name * 2\ndef __dir__():\n return ['odd']\n")
    load_later("late_own")
    module = import_module("late_own")
    assert (module.ab, dir(module), module.cd) == ("abab", ["odd"], "cdcd")


def test_a_module_within_a_package_is_had_through_it_and_does_not_load_it(write: Write) -> None:
    write("late_package.__init__", "RAN = True\n")
    write("late_package.inner", "RAN = True\nvalue = 3\n")
    load_later("late_package.inner")
    assert "late_package" not in sys.modules
    settle()
    assert not loaded("late_package.inner")
    package = import_module("late_package")
    assert package.inner.value == 3
    assert package.inner is sys.modules["late_package.inner"]


@pytest.mark.parametrize(
    "line",
    [
        "import late_package.inner; found = late_package.inner",
        "import late_package; found = late_package.inner",
        "import late_package.inner as found",
        "from late_package import inner as found",
        "from late_package.inner import value; import late_package; found = late_package.inner",
        "import late_package.other; found = late_package.inner",
    ],
)
def test_each_form_of_an_import_finds_a_module_in_its_package(write: Write, line: str) -> None:
    write("late_package.__init__", "")
    write("late_package.inner", "RAN = True\nvalue = 3\n")
    write("late_package.other", "")
    load_later("late_package.inner")
    settle()
    names: dict[str, ModuleType] = {}
    exec(line, names)  # noqa: S102 (ours, from above)
    assert names["found"].value == 3


def test_a_module_of_a_package_that_fails_is_left_to_an_import(write: Write) -> None:
    write("late_failing.__init__", "raise ImportError('for a reason')\n")
    write("late_failing.inner", "RAN = True\n")
    load_later("late_failing.inner")
    settle()
    assert later.waiting == {}
    with pytest.raises(ImportError, match="for a reason"):
        import_module("late_failing.inner")


def test_what_is_promised_is_for_those_of_the_start(write: Write) -> None:
    """Nobody else gets a stand-in of something: another package may ask what it is an instance of."""
    write("late_promised", "RAN = True\nclass Thing: pass\n")
    load_later("late_promised", promised={"Thing": lambda: "promised"})
    module = import_module("late_promised")
    assert module.Thing == "promised"
    assert not loaded("late_promised")
    settle()
    assert module.Thing.__name__ == "Thing"
    assert loaded("late_promised")


def test_what_it_has_is_had_without_it(write: Write) -> None:
    write("late_had", "RAN = True\n")
    load_later("late_had", {"thing": lambda: "thing"})
    settle()
    assert import_module("late_had").thing == "thing"
    assert not loaded("late_had")


def test_modules_that_need_each_other_are_loaded_by_either(write: Write) -> None:
    write("late_one", "RAN = True\nimport late_two\nvalue = late_two.value\n")
    write("late_two", "RAN = True\nimport late_one\nvalue = 3\nearly = hasattr(late_one, 'value')\n")
    load_later("late_one")
    load_later("late_two")
    assert import_module("late_one").value == 3
    assert import_module("late_two").early is False


def test_what_fails_says_so_each_time_as_an_import_does(write: Write) -> None:
    write("late_broken", "RAN = True\nimport nothing_of_this_name\n")
    load_later("late_broken")
    for _ in range(2):
        with pytest.raises(ModuleNotFoundError, match="nothing_of_this_name"):
            _ = import_module("late_broken").value


def test_what_is_not_there_or_lacks_something_is_left_to_an_import(write: Write) -> None:
    write("late_needy", "RAN = True\n")
    load_later("late_needy", needs=["nothing_of_this_name"])
    load_later("late_package_nowhere.inner")
    load_later("nothing_of_this_name")
    assert later.waiting == {}
    assert import_module("late_needy").RAN


def test_what_is_there_already_stays(write: Write) -> None:
    write("late_there", "RAN = True\n")
    module = import_module("late_there")
    load_later("late_there")
    assert sys.modules["late_there"] is module
    assert later.waiting == {}


def test_something_is_done_when_it_is_there(write: Write) -> None:
    write("late_then", "value = 3\n")
    seen = []
    load_later("late_then", then=lambda: seen.append(sys.modules["late_then"].value))
    assert import_module("late_then").value == 3
    assert seen == [3]


def test_threads_that_want_it_at_once_all_see_the_whole(write: Write) -> None:
    write("late_threads", "RAN = True\nimport late_gate\nlate_gate.wait()\nvalue = 3\n")
    write("late_gate", GATE)
    load_later("late_threads")
    module, gate, seen = import_module("late_threads"), import_module("late_gate"), []
    threads = [threading.Thread(target=lambda: seen.append(module.value)) for _ in range(4)]
    threads[0].start()
    assert gate.begun.wait(30)
    for thread in threads[1:]:
        thread.start()
    gate.go.set()
    for thread in threads:
        thread.join(30)
    assert seen == [3] * 4


def test_what_is_set_before_it_is_there_stays(write: Write) -> None:
    write("late_patched", "RAN = True\nvalue = 3\ndef use():\n return value\n")
    load_later("late_patched")
    module: Any = import_module("late_patched")
    module.value = 4
    assert (module.value, module.use()) == (4, 4)


def test_what_fails_in_the_midst_leaves_no_half(write: Write) -> None:
    write("late_half", "first = 1\nimport late_switch\nlate_switch.maybe()\nsecond = 2\n")
    write("late_switch", "fails = True\ndef maybe():\n if fails:\n  raise KeyboardInterrupt\n")
    load_later("late_half")
    module, switch = import_module("late_half"), cast("Any", import_module("late_switch"))
    with pytest.raises(KeyboardInterrupt):
        _ = module.first
    switch.fails = False
    assert (module.first, module.second) == (1, 2)


def test_another_thread_sees_no_half(write: Write) -> None:
    write("late_slow", "def use():\n return LATE\nimport late_slow_gate\nlate_slow_gate.wait()\nLATE = 3\n")
    write("late_slow_gate", GATE)
    load_later("late_slow")
    module, gate, seen = import_module("late_slow"), import_module("late_slow_gate"), []
    loading = threading.Thread(target=lambda: module.LATE)
    loading.start()
    assert gate.begun.wait(30)
    other = threading.Thread(target=lambda: seen.append(module.use()))
    other.start()
    other.join(0.1)
    assert not seen
    gate.go.set()
    loading.join(30)
    other.join(30)
    assert seen == [3]


def test_picklers_of_functions_take_it_for_a_module(write: Write) -> None:
    write("late_pickled", "RAN = True\n")
    load_later("late_pickled")
    module = import_module("late_pickled")
    assert pickle.loads(pickle.dumps(module)) is module  # noqa: S301 (ours, from above)
    assert type(module).__name__ == "module"
