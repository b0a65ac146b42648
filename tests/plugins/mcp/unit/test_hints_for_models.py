"""Hints in the words of the MCP server."""

from __future__ import annotations

import pytest

from sandbox_kernel.plugins.mcp.clients import AUDIENCE
from tests.plugins.hints.unit.test_hints import FETCHES, INSTALLS, MISSING, hint, hints_of


@pytest.mark.parametrize("case", MISSING)
def test_a_file_that_is_not_there_comes_in_by_a_tool(case: str) -> None:
    assert "Bring a file in with the tool upload_file." in str(hint(*MISSING[case], audience=AUDIENCE))


def test_a_model_is_told_of_an_upload_folder_only_where_there_is_one() -> None:
    assert "folder `" not in str(hint(*MISSING["numpy"], audience=AUDIENCE))
    assert "upload folder" not in str(hint(*MISSING["numpy"], audience=AUDIENCE))
    assert "upload folder" in str(hint(*MISSING["numpy"], audience=AUDIENCE, uploads="in"))


@pytest.mark.parametrize("code", INSTALLS)
def test_packages_come_in_by_the_operator(code: str) -> None:
    assert "The operator of this server" in hints_of(audience=AUDIENCE).of_code(code)[0]


@pytest.mark.parametrize("code", FETCHES)
def test_files_that_are_fetched_come_in_by_a_tool(code: str) -> None:
    (said,) = hints_of(audience=AUDIENCE).of_code(code)
    assert "upload_file" in said
