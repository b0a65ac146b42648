"""Hints in the words of a batch run."""

from __future__ import annotations

import pytest

from sandbox_kernel.plugins.batch.run import AUDIENCE
from tests.plugins.hints.unit.test_hints import MISSING, hint


@pytest.mark.parametrize("case", MISSING)
def test_a_file_that_is_not_there_comes_in_by_an_option(case: str) -> None:
    said = str(hint(*MISSING[case], audience=AUDIENCE))
    assert "--input" in said
    assert "folder `" not in str(hint(*MISSING["numpy"], audience=AUDIENCE))
