"""What an image keeps of a kernel's start: it is what Python would have loaded, or it is not taken."""

from __future__ import annotations

import json
import marshal
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandbox_kernel.container.prepared import PREPARED
from sandbox_kernel.core.resources import PACKAGE, brought
from sandbox_kernel.engines import shipping

KERNEL, SOURCES = "kernel", "sources"
READER = PACKAGE / "container" / "prepared.py"
LOOK = f"""
import json, sys
if sys.path[0] == "":
    del sys.path[0]
reader = {{"__name__": "prepared"}}
exec(open({str(READER)!r}).read(), reader)
given = reader["given_by"](PLACE)
import re
found = [given is not None]
if given is not None:
    given.begin()
    before = len(given.index), len(given.expressions)
    import traitlets.config, IPython.core.inputtransformer2, zmq
    found += [before[0] > 200, before[0] > 50, len(given.loaders) > 50]
    given.end()
import traitlets.config, IPython.core.magic
finders = [type(each).__name__ for each in sys.meta_path]
found += [type(traitlets.config.__loader__).__name__, "Prepared" in finders, re._compiler.compile.__name__]
print(json.dumps(found))
"""
TAKEN = [True, True, True, True, "SourceFileLoader", False, "compile"]
TRIES = 5
LEFT = [False, "SourceFileLoader", False, "compile"]
pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="this host's `re` has no such place")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with both files, of this host's Python as if it were an image's."""
    return prepare(tmp_path_factory.mktemp("prepared"))


def prepare(folder: Path) -> Path:
    (folder / "home").mkdir()
    subprocess.run(
        [sys.executable, str(brought("images") / "prepare.py"), str(folder)],
        input=json.dumps(shipping.to_prepare()),
        env={**os.environ, "HOME": str(folder / "home")},
        text=True,
        check=True,
        timeout=120,
        capture_output=True,
    )
    return folder


def look(place: Path, *options: str, **environment: str) -> list[object]:
    code = LOOK.replace("PLACE", repr(str(place)))
    command = [sys.executable, *options, "-c", code]
    done = subprocess.run(
        command, env={**os.environ, **environment}, cwd="/", capture_output=True, text=True, check=True, timeout=60
    )
    found: list[object] = json.loads(done.stdout)
    return found


def test_what_is_loaded_by_it_looks_as_ever(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A checkout may be on this host's path, and other tests write to it: then what was made before counts no more."""
    for _ in range(TRIES):
        if (found := look(prepare(tmp_path_factory.mktemp("prepared")) / KERNEL)) != LEFT:
            break
    assert found == TAKEN


def test_another_path_takes_nothing_of_it(prepared: Path, tmp_path: Path) -> None:
    assert look(prepared / KERNEL, PYTHONPATH=str(tmp_path)) == LEFT


def test_another_kind_of_bytecode_is_not_taken(prepared: Path) -> None:
    assert look(prepared / KERNEL, "-O") == LEFT


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\xff" * 40, b"\4\0\0\0\0\0\0\0abcdefgh"])
def test_what_is_no_such_file_is_not_taken(tmp_path: Path, data: bytes) -> None:
    (tmp_path / KERNEL).write_bytes(data)
    assert look(tmp_path / KERNEL) == LEFT
    assert look(tmp_path / "nothing") == LEFT


SOURCE = """
import json, os, sys
reader = {"__name__": "prepared"}
exec(open(READER).read(), reader)
import changing
status = os.stat(changing.__file__)
del sys.modules["changing"]
reader["marshal"].loads = lambda data: compile("value = 'prepared'", "changing.py", "exec")
entry = [changing.__file__, int(status.st_mtime), status.st_size, False, 0, 9]
exec(CHANGE)
given = reader["Prepared"](memoryview(b"123456789"), {"changing": entry}, {})
given.begin()
import changing
print(changing.value)
"""


@pytest.mark.parametrize(
    ("change", "value"),
    [
        ("pass", "prepared"),
        ("open(changing.__file__, 'a').write('#')", "source"),
        ("os.utime(changing.__file__, (1, 1))", "source"),
        ("entry[0] = '/nowhere/changing.py'", "source"),
    ],
)
def test_a_module_that_has_changed_is_the_one_of_now(tmp_path: Path, change: str, value: str) -> None:
    (tmp_path / "changing.py").write_text("value = 'source'\n")
    code = SOURCE.replace("READER", repr(str(READER))).replace("CHANGE", repr(change))
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == value


FACTS = """open({place!r}, 'w').write(__import__('json').dumps([
    sorted(each.__class__.__name__ for each in __import__('sys').meta_path if each.__class__.__name__ == 'Prepared'),
    __import__('sys').modules['traitlets'].__loader__.__class__.__name__,
    __import__('linecache').getline(__import__('traitlets').__file__, 1)[:3],
    __import__('IPython').get_ipython().run_cell('6 * 7').result,
    {kept!r} in open('/proc/self/maps').read(),
])) and __import__('os')._exit(0)"""


def test_a_kernel_starts_with_it_and_lets_go_of_it(prepared: Path, tmp_path: Path) -> None:
    """The lines of a start run, too; a cell says what is so by then."""
    place, kept = tmp_path / "facts", str(prepared / KERNEL)
    connection = {"transport": "ipc", "ip": str(tmp_path / "s"), "key": "", "signature_scheme": "hmac-sha256"}
    ports = {f"{name}_port": number for number, name in enumerate(("shell", "iopub", "stdin", "control", "hb"), 1)}
    (tmp_path / "connection.json").write_text(json.dumps({**connection, **ports}))
    text = shipping.source_of(*shipping.LAUNCHER)
    assert PREPARED in text
    text = text.replace(PREPARED, kept).replace(
        "        gc.enable()\n", f"        gc.enable()\n        {facts(place, kept)}"
    )
    arguments = shipping.to_prepare()["kernel"]
    command = [sys.executable, "-c", text, *arguments[2:]]
    command = [each.replace("{connection_file}", str(tmp_path / "connection.json")) for each in command]
    subprocess.run(command, check=True, timeout=120, cwd=tmp_path, capture_output=True)
    assert json.loads(place.read_text()) == [[], "SourceFileLoader", '"""', 42, False]


def facts(place: Path, kept: str) -> str:
    return "\n".join(line.strip() for line in FACTS.format(place=str(place), kept=kept).splitlines()) + "\n"


CODES = """
{codes}
known = open({source!r}).read()
found = [codes() != {{}}, type(made(known)).__name__, type(made(known + "#")).__name__]
print(__import__("json").dumps(found))
"""


@pytest.mark.parametrize(("mine", "found"), [(True, [True, "code", "str"]), (False, [False, "str", "str"])])
def test_a_source_is_taken_as_this_python_compiled_it_and_no_other(
    prepared: Path, tmp_path: Path, mine: bool, found: list[object]
) -> None:
    module, place = PACKAGE / "container" / "agent.py", prepared / SOURCES
    if not mine:
        place = tmp_path / SOURCES
        place.write_bytes(marshal.dumps(("another Python", {module.read_text(encoding="utf-8"): b""})))
    codes = shipping.CODES.replace("/opt/sandbox/home/.prepared/sources", str(place))
    code = CODES.format(codes=codes, source=str(module))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert json.loads(done.stdout) == found
