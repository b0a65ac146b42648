"""Cells are read as IPython would run them, which its own transformer judges, and with the cells before them."""

from __future__ import annotations

import ast
import warnings

import pytest
from hypothesis import given
from hypothesis import strategies as st
from IPython.core.inputtransformer2 import TransformerManager

from sandbox_kernel.plugins.screen import ipython_syntax
from sandbox_kernel.plugins.screen.rule_index import Changes, RuleIndex, default
from sandbox_kernel.plugins.screen.screen import CellScreen
from tests.plugins.screen.corpora import attacks, honest
from tests.support.cases import each
from tests.support.examples import examples

CELLS = (
    *("x = 1\n!ls -l\n", "a = !ls\nprint(a)", "%time x=1\n%matplotlib inline", "?print", "print?", "print??", "np.a?"),
    *("x = %timeit -o f()\ny=2", "!!ls", "if 1:\n    !ls {x}\n    %cd /\n", "!ls \\\n -l \\\n /etc\nx=1", "%foo?"),
    *("s='''\n!ls\n%foo\n'''\nprint(s)", "(1 +\n2)\n!ls", "f(a,\n b=3)\n%pwd", "  x=1\n  y=2", "  !ls\n  x=1"),
    *(">>> x=1\n>>> !ls\n... ", ">>> def f():\n...     return 1\n", "In [1]: x=1\n   ...: !ls", "In [3]: x"),
    *(
        "x = [1,\n 2]\ny = !cat a\nz=3",
        "/print 1 2",
        ",print a b",
        ";print a b",
        "a, b = !ls",
        "a = b = 3",
        "f(a=3)\n!ls",
    ),
    *("x='!ls' # !foo\n# %foo\n!pip install x # y", "%%time\n!ls", "\n\n%%bash\nls -l\n", "x == !ls", "d['a=b'] = !ls"),
    *("x: int = %foo bar", "def f(a=3): return 1\n!ls", "'''a''' + \"b\"\n%foo", '"unclosed\n!ls', "'''unclosed\n!ls"),
    *(
        "x = 3 \\\n + 4\n!ls",
        "async def f():\n  !ls\n  await x",
        "for i in range(3):\n    out = !echo {i}\n",
        "x?\ny=1",
    ),
    *(
        "a=1;b=2\n!ls",
        "%%foo?",
        "% foo",
        "! ls",
        "x = ! ls",
        "# comment\n!ls",
        "''' '''\n!ls",
        "\\\n!ls",
        "@dec\ndef f():\n  %foo",
    ),
    *("print(f'{x!r}')\n!ls", "f'{a}' 'x'\n%a b", "a['x']?", "%timeit x = 3", '!export X=3; echo "$X"'),
)


def as_ipython(code: str) -> str | None:
    """Return the tree of what IPython runs, None for what it runs nothing of."""
    try:
        return tree(TransformerManager().transform_cell(code))
    except SyntaxError:
        return None


def tree(code: str) -> str | None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.dump(ast.parse(code))
        except (SyntaxError, ValueError):
            return None


def as_ours(code: str) -> str | None:
    found = ipython_syntax.read(code, frozenset(ipython_syntax._ALIASES | ipython_syntax._MAGICS))  # noqa: SLF001 (what one line means comes later)
    if found.magic is None:
        return tree(found.python)
    return tree(f"get_ipython().run_cell_magic({found.magic!r}, {found.arguments!r}, {found.body!r})\n")


@each("code", CELLS)
def test_a_cell_is_what_ipython_makes_of_it(code: str) -> None:
    assert as_ours(code) == as_ipython(code)


@each("code", [code for _, code in (*attacks(), *honest()) if as_ipython(code) is not None])
def test_the_corpora_are_what_ipython_makes_of_them(code: str) -> None:
    assert as_ours(code) == as_ipython(code)


@examples(300)
@given(
    st.lists(
        st.sampled_from(["!ls", "x = !ls", "%a b", "x=1", "'''", '"', "(", ")", "if x:", "  y", "#", "\\", "?", "f?"]),
        max_size=6,
    )
)
def test_nothing_that_ipython_would_run_is_read_as_something_else(lines: list[str]) -> None:
    """Where IPython finds Python in lines of all kinds, the screen finds the same, or reads the parts apart."""
    code = "\n".join(lines)
    wanted, found = as_ipython(code), as_ours(code)
    assert wanted is None or found is None or found == wanted


def test_lines_are_those_of_the_cell() -> None:
    """A command that goes over several lines, or a cell magic, does not move what follows."""
    found = CellScreen().look("x = 1\n!ls \\\n  -l\n\nimport os\nos.fork()")
    assert {one.code: one.line for one in found.findings}["process-replace"] == 6
    found = CellScreen().look("\n%%bash\necho\n\nuseradd x")
    assert [(one.code, one.line) for one in found.findings] == [("persist-account", 5)]


def test_a_line_is_a_command_unless_its_word_is_a_name() -> None:
    """IPython runs `cat file` where `cat` is no variable."""
    screen = CellScreen()
    assert screen.look("cat /etc/shadow").score >= 60
    screen.look("rm = 1")
    assert screen.look("rm - rm").findings == ()


def test_names_are_followed_from_cell_to_cell() -> None:
    screen = CellScreen()
    assert screen.look("from os import system as go\nword = 'i' + 'd'").score < 60
    assert "process-shell" in [one.code for one in screen.look("go(word)").findings]
    screen.forget()
    assert screen.look("go(word)").findings == ()


def test_all_names_of_a_module_are_known_by_the_rules() -> None:
    found = CellScreen().look("from os import *\nsystem(word)").findings
    assert "process-shell" in [one.code for one in found]


def test_what_is_made_of_a_decoded_text_is_not_decoded_again() -> None:
    """The receiver of a method is not given to it, and an argument is."""
    codes = [one.code for one in CellScreen().look("import base64\nbase64.b64decode(x).decode()").findings]
    assert "nested-decoders" not in codes
    codes = [one.code for one in CellScreen().look("import base64\nbase64.b64decode(base64.b64decode(x))").findings]
    assert "nested-decoders" in codes


def test_a_cell_that_does_not_run_leaves_no_names() -> None:
    screen = CellScreen()
    screen.look("f = eval", runs=False)
    assert screen.look("f(input())").findings == ()
    screen.look("f = eval", runs=False)
    screen.ran("f = eval")
    assert screen.look("f(input())").findings


def test_a_cell_that_comes_again_is_read_with_the_names_that_it_has_now() -> None:
    """What was found before is kept, and not used where a name means something else by now."""
    screen = CellScreen()
    screen.look("f = print")
    assert screen.look("f(x)").findings == ()
    screen.look("f = eval")
    assert screen.look("f(x)").findings
    screen.look("f = print")
    assert screen.look("f(x)").findings == ()


@pytest.mark.parametrize("dash", ["—", "–", "--", "-"])  # noqa: RUF001 (people's dashes)
def test_a_comment_allows_a_finding_and_says_why(dash: str) -> None:
    code = f"# sandbox: allow process-shell, machine-information {dash} the demo\nimport os\nos.system('id')\neval(x)"
    found = CellScreen().look(code)
    assert {one.code: one.allowed for one in found.findings} == {
        "process-shell": "the demo",
        "machine-information": "the demo",
        "dynamic-execution": None,
    }
    assert found.score == 40
    assert CellScreen(overrides=False).look(code).score == 100


@pytest.mark.parametrize(
    "comment",
    [
        "# sandbox: allow process-shell",
        "# sandbox: allow process-shell --",
        "# sandbox: allow process-shell -- ",
        "# sandbox: allow * - x",
        "# sandbox: allow - x",
    ],
)
def test_a_comment_without_a_reason_or_a_code_allows_nothing(comment: str) -> None:
    assert CellScreen().look(f"{comment}\nimport os\nos.system(x)").counted


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("import logging\nlogging.raiseExceptions = False", []),
        ("import os\nos.environ['API_TOKEN'] = 'x'", []),
        ("import os\nos.getcwd = lambda: '/'", ["persist-patch"]),
        ("import os\nsetattr(os, 'getcwd', other)", ["persist-patch"]),
        ("import sys\nsys.modules['json'] = other", ["persist-patch"]),
    ],
)
def test_a_setting_of_a_module_is_no_patch_of_it(code: str, found: list[str]) -> None:
    assert [one.code for one in CellScreen().look(code).findings] == found


def test_expressions_that_come_with_a_cell_are_read_too() -> None:
    assert CellScreen().look("x = 1", ("__import__('os').system('id')",)).score >= 60


def test_an_operator_changes_weights_and_rules() -> None:
    from sandbox_kernel.plugins.screen.rule_index import RuleRow

    row = RuleRow("own-ledger", "own", 60, None, "it asks the ledger", "Do not.")
    own = row, (("name", "ledger.*"), ("text", "ledger\\.example\\.test"))
    book = RuleIndex(
        Changes(weights={"process-shell": 80, "dynamic-execution": 0}, own=(own,), denied=frozenset({"ledger"}))
    )
    assert CellScreen(book).look("import os\nos.system(x)").score == 80
    assert CellScreen(book).look("eval(x)").findings == ()
    assert [
        one.code for one in CellScreen(book).look("import ledger\nledger.open('ledger.example.test')").findings
    ] == [
        "import-not-allowed",
        "own-ledger",
    ]


def test_a_list_of_imports_allows_what_is_on_it_only() -> None:
    screen = CellScreen(RuleIndex(Changes(imports=frozenset({"pandas", "numpy"}))))
    assert screen.look("import pandas as pd\nfrom numpy.linalg import inv").findings == ()
    assert [one.code for one in screen.look("import os.path\nfrom sys import path").findings] == ["import-not-allowed"]


def test_the_score_adds_up_and_ends_at_a_hundred() -> None:
    assert CellScreen().look("import os\nos.remove(x)").score == 20
    assert CellScreen().look("import os\nos.remove(x)\neval(x)").score == 60
    assert CellScreen().look("import os\nos.system('rm -rf /')").score == 100


def test_each_rule_has_a_reason_and_what_to_do_instead() -> None:
    rows = default().rows.values()
    assert all(row.reason and row.remedy and row.weight in (20, 40, 60, 80) for row in rows)
    assert sum(row.cwe is not None for row in rows) / len(rows) > 0.8
