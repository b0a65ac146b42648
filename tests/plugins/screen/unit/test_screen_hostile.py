"""A hostile cell costs the host little, whatever is in it, and what cannot be read is a finding of its own."""

from __future__ import annotations

import time
import tracemalloc

import pytest

from sandbox_kernel.plugins.screen.screen import CellScreen
from tests.support.cases import some

MAX_SECONDS = 3.0
"""Of processor time; without the bounds, most of these take minutes or end the process."""

LONG = f"x = '{'a' * 6000}'\nx = x + x + x + x + x + x + x + x + x + x\ny = q + x\n"
"""A text of 60,000 characters, and one of which the beginning is not known."""
HOSTILE = {
    "2 MB of statements": "x = 1\n" * 340_000,
    "2 MB of text": "x = '" + "a" * 2_000_000 + "'",
    "very many names": ";".join(f"a{number}" for number in range(200_000)),
    "many names": "x = [" + "a," * 50_000 + "]",
    "brackets": "(" * 100_000,
    "closed brackets": "[" * 190 + "]" * 190,
    "braces": "{" * 199,
    "calls within calls": "f(" * 140 + ")" * 140,
    "signs": "-" * 60_000 + "1",
    "attributes": "a" + ".b" * 50_000,
    "a chain of calls": "a" + ".b(1)" * 90,
    "a chain of unknown calls": "a()" + ".b(x.y)[0]" * 60,
    "subscripts": "a" + "[0]" * 30_000,
    "a long sum": "+".join(["a"] * 40_000),
    "texts that grow": "a = 'x' * 4096\n" + "a = a + a\n" * 5000,
    "products": "9**9**9**9",
    "shifts": "1 << 10**9",
    "lists within lists": "x = " + "[" * 140 + "]" * 140,
    "lambdas": "lambda: " * 5000 + "1",
    "conditions": "1 if 1 else " * 5000 + "1",
    "elifs": "if 1:\n pass\n" + "elif 1:\n pass\n" * 5000,
    "indents": "\n".join(" " * depth + "if 1:" for depth in range(99)) + "\n" + " " * 99 + "pass",
    "exec in exec": "exec(" * 90 + "'1'" + ")" * 90,
    "code in code": "exec('exec(\"exec(\\'exec(chr(49))\\')\")')",
    "commands": "!" + ";".join(["rm x"] * 5000),
    "substitutions": "!" + "$(" * 5000,
    "backticks": "!" + "`ls` " * 5000,
    "quotes": "!" + "\"'" * 10_000,
    "shells in shells": "!" + 'bash -c "' * 200,
    "documents": "%%bash\n" + "cat <<A\n" * 3000,
    "encoded": "x = '" + "QUJD" * 20_000 + "'",
    "almost encoded": "x = '" + "QUJD" * 20_000 + "!'",
    "spaces": "x = '" + " " * 100_000 + "'",
    "dots": "x = '" + "../" * 30_000 + "'",
    "slashes": "x = '" + "/" * 100_000 + "'",
    "words": "x = '" + "curl " * 20_000 + "'",
    "alphabet": "!" + "curl wget nc bash " * 1500,
    "quotes of three": "'''" * 20_000,
    "prompts": ">>> x\n" * 10_000,
    "magics": "%a b\n" * 5000,
    "continued": "!ls \\\n" * 10_000,
    "NUL": "x = 1\0",
    "surrogate": "x = '\ud800'",
    "letters": "é" * 60_000,
    "numbers": "x = " + "9" * 60_000,
    "comprehensions": "[[[x for x in 'a' * 1000] for y in 'a' * 1000] for z in 'a' * 1000]",
    "decorators": "@a\n" * 5000 + "def f(): pass",
    "f-strings": "f'" + "{x}" * 20_000 + "'",
    "stars": "!" + "*" * 30_000,
    "a question after a long word": "a" * 60_000 + " b?",
    "a question after a long name": "x.y" * 30_000 + "!?",
    "a question after many indices": "a[1]" * 20_000 + "!?",
    "a long option": "%timeit -" + "1" * 60_000,
    "long options": "%timeit " + "-1 1" * 20_000,
    "a long word that is no Python": "def (\n" + "w" * 60_000,
    "spaces that are no Python": "def (\n" + "w " * 30_000,
    "escaped quotes that are no Python": "def (\n" + '".\\' * 20_000,
    "open quotes that are no Python": "def (\n" + "'\\\"" * 20_000,
    "unparsed": "def (\n" * 10_000,
    "2 MB of commands": "%%bash\n" + "ls;\n" * 500_000,
    "2 MB of one command": "!" + "a" * 2_000_000,
    "2 MB of brackets": "(" * 2_000_000,
    "2 MB of quotes": '"' * 2_000_000,
    "2 MB of ends": "\n" * 2_000_000,
    "2 MB of names": "a," * 1_000_000,
    "2 MB encoded": "x = '" + "QUJD" * 500_000 + "'",
    "2 MB of continued lines": "\\\n" * 1_000_000,
    "much code in code": "exec('x=1')\n" * 9000,
    "imports": "import a.b.c as d\n" * 7000,
    "all names of a module": "from os import *\n" * 7000,
    "all names of many modules": "".join(f"from a{number} import *\n" for number in range(6000)),
    "calls within calls that run code": "exec(" * 140 + "x" + ")" * 140,
    "comparisons": "a<" * 40_000 + "a",
    "functions": "def f(): pass\n" * 9000,
    "a long text in many paths": f"{LONG}import os\n" + "open(y + y)\n" * 6000,
    "a path that grows": f"{LONG}from pathlib import Path\np = Path(x)\n" + "p = p / x\n" * 12_000,
    "a long text in many commands": f"{LONG}import os\n" + "os.system(x)\n" * 6000,
    "a module of many dots": "x = '../' * 1300\nx = x + x + x + x + x + x + x + x + x + x\n" + "__import__(x)\n" * 2500,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", some(HOSTILE, of=3))
def test_a_hostile_cell_is_read_in_bounded_time(name: str) -> None:
    start = time.process_time()
    found = CellScreen().look(HOSTILE[name])
    assert time.process_time() - start < MAX_SECONDS
    assert len(found.findings) < 50


MANY = 4000
COMPOSED = {
    "an f-string": "f'" + "{x}" * MANY + "'",
    "a template": "'" + "{}" * MANY + "'.format(" + "x," * MANY + ")",
    "a template of old": "'" + "%s" * MANY + "' % (" + "x," * MANY + ")",
    "a path": "import os\nos.path.join(" + "x," * MANY + ")",
    "a path of which parts are not known": "import os\nos.path.join(q, " + "x," * MANY + ")",
    "a command": "import subprocess\nsubprocess.run([q, " + "x," * 1900 + "])",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPOSED)
def test_a_text_that_would_be_huge_is_not_put_together(name: str) -> None:
    """A quarter of a gigabyte and more of the host's memory, for a cell of 50 kB."""
    tracemalloc.start()
    try:
        CellScreen().look(LONG + COMPOSED[name])
        assert tracemalloc.get_traced_memory()[1] < 64 * 1024 * 1024
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["2 MB of statements", "2 MB of text", "very many names"])
def test_what_is_too_large_is_a_finding(name: str) -> None:
    found = CellScreen().look(HOSTILE[name])
    assert (found.findings[0].code, found.score >= 60) == ("cell-too-large", True)


@pytest.mark.parametrize("name", ["brackets", "signs", "attributes", "many names", "lambdas"])
def test_what_is_too_intricate_is_a_finding(name: str) -> None:
    found = CellScreen().look(HOSTILE[name])
    assert ("cell-too-deep" in [one.code for one in found.findings], found.score >= 60) == (True, True)


@pytest.mark.slow
def test_what_stands_in_a_cell_that_is_too_large_is_searched_all_the_same() -> None:
    found = CellScreen().look("x = 'stratum+tcp://pool.example.test'\n" + HOSTILE["2 MB of statements"])
    assert "miner-pool" in [one.code for one in found.findings]


@pytest.mark.slow
def test_a_session_remembers_a_bounded_number_of_names() -> None:
    screen = CellScreen()
    screen.look("go = __import__('os').system")
    for part in range(40):
        screen.look("\n".join(f"a{part}_{number} = {number}" for number in range(500)))
    assert len(screen.names) <= 3000
    assert screen.look("go('x')").findings, "what is worth knowing is forgotten last"


def test_no_code_of_a_cell_runs() -> None:
    """Texts are put together by the reader, and nothing of the cell is called."""
    marks: list[int] = []
    code = "class A(str):\n def __add__(self, b): marks.append(1)\nx = A('a') + 'b'\n[marks.append(2) for _ in 'ab']"
    CellScreen().look(code)
    assert marks == []


def test_newer_python_than_the_host_s_is_read_in_parts() -> None:
    found = CellScreen().look("type X[T] = list[T]\nimport os\nos.system('rm -rf /')\nmatch = t'{x}'")
    assert {"cell-unparsed", "file-delete-system"} <= {one.code for one in found.findings}
