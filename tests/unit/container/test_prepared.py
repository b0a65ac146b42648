"""Bytecode of what the host ships, as an image is made with it: taken for the same text and the same Python alone."""

import json
import marshal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from images import warm
from sandbox_kernel.container import prepared
from sandbox_kernel.engines import shipping

SOURCE = "value = 'of its text'"
NOTHING_IS_COMPILED = """
import builtins
real = compile
def compiles(source, *more, **named):
    assert not source
    return real(source, *more, **named)
builtins.compile = compiles
from container import agent, start
print(start.Kernel.__name__, agent.Agent.__name__)
"""


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of an image that was made with one source."""
    monkeypatch.setattr(warm, "SHIPPED", tmp_path / "shipped.json")
    monkeypatch.setattr(warm, "BYTECODE", tmp_path / "kernel-bytecode")
    warm.SHIPPED.write_text(json.dumps([["module.py", SOURCE]]))
    warm.write_shipped()
    return tmp_path / "agent-bytecode"


def loaded(file: Path) -> dict[str, Any]:
    """Return the names of the module as it begins with this file."""
    text = Path(prepared.__file__).read_text(encoding="utf-8").replace(prepared.FILE, str(file))
    names: dict[str, Any] = {"__name__": "prepared"}
    exec(text, names)  # noqa: S102
    return names


def test_what_an_image_has_is_not_compiled_again(written: Path) -> None:
    python, codes = marshal.loads(written.read_bytes())  # noqa: S302
    codes["module.py", SOURCE] = marshal.dumps(compile("value = 'prepared'", "module.py", "exec"))
    written.write_bytes(marshal.dumps((python, codes)))
    names = loaded(written)
    seen: list[str] = []
    for source, name in ((SOURCE, "module.py"), (SOURCE + "\n", "module.py"), (SOURCE, "another.py")):
        code = names["compiled"](source, name)
        found: dict[str, Any] = {}
        exec(code, found)  # noqa: S102
        assert code.co_filename == name
        seen.append(found["value"])
    assert seen == ["prepared", "of its text", "of its text"]


@pytest.mark.parametrize("content", [b"", b"x", marshal.dumps(1), marshal.dumps((b"1234", {("a", "1"): b"?"}))])
def test_what_is_no_file_of_this_python_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    assert loaded(tmp_path / "file")["codes"] == loaded(tmp_path / "missing")["codes"] == {}


def test_an_image_has_all_that_is_compiled_inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that begins with such a file compiles nothing but its own first lines."""
    monkeypatch.setattr(warm, "SHIPPED", tmp_path / "shipped.json")
    monkeypatch.setattr(warm, "BYTECODE", tmp_path / "kernel-bytecode")
    warm.SHIPPED.write_text(json.dumps(shipping.sources()))
    warm.write_shipped()
    program = shipping.agent_source().replace(prepared.FILE, str(tmp_path / "agent-bytecode"))
    program = program.partition("from container import start")[0] + NOTHING_IS_COMPILED
    (tmp_path / "agent.py").write_text("CONFIG = {}\n" + program, encoding="utf-8")
    words = [sys.executable, "-I", "-S", str(tmp_path / "agent.py")]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stdout, done.stderr) == ("Kernel Agent\n", "")
