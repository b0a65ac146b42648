"""Each row of the table, in each image that is built: it works, or the error names what is missing and who has it."""

from __future__ import annotations

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.engines.image_names import FULL, FULL_MODULES, FULL_PROGRAMS
from tests.container.formats import rows
from tests.container.formats.rows import Row
from tests.support import ROOT


@pytest.mark.parametrize("row", rows.ROWS, ids=lambda row: row.name)
def test_a_row(room: tuple[str, Sandbox], row: Row) -> None:
    image, sandbox = room
    result = sandbox.run_code(row.code)
    if image == FULL or not row.missing:
        assert result.error is None, result.error
        assert "".join(result.logs.stdout).strip() == row.answer
        return
    assert result.error is not None
    assert row.missing in result.error.value
    if row.missing in {*FULL_MODULES.values(), *FULL_PROGRAMS}:
        assert f"The image {FULL} has {row.missing}" in "".join(result.logs.stderr), result


def test_the_names_in_hints_are_those_that_the_image_has(room: tuple[str, Sandbox]) -> None:
    """Each is in `full`, and none in the default image."""
    image, sandbox = room
    code = f"""
import importlib.util, shutil
there = [name for name in {sorted({*FULL_MODULES.values()})} if importlib.util.find_spec(name)]
there += [name for name in {sorted(FULL_PROGRAMS)} if shutil.which(name)]
print(*there)
"""
    there = set("".join(sandbox.run_code(code).logs.stdout).split())
    names = {*FULL_MODULES.values(), *FULL_PROGRAMS}
    assert there == (names if image == FULL else set())


def test_a_shell_line_that_finds_no_program_says_which_image_has_it(room: tuple[str, Sandbox]) -> None:
    image, sandbox = room
    for code in ("!soffice --version", "%%bash\nsoffice --version"):
        result = sandbox.run_code(code)
        said = f"The image {FULL} has soffice" in "".join(result.logs.stderr)
        assert said == (image != FULL), result


def test_the_page_has_the_table() -> None:
    assert rows.as_markdown() in (ROOT / "docs" / "images.md").read_text(encoding="utf-8")
