"""Contexts of several languages in one sandbox: how they are named, made and told variables."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.plugins.frameworks.e2b import InvalidArgumentException, Sandbox
from tests.languages.places import asked_for

pytestmark = [asked_for, pytest.mark.timeout(180)]
IMAGE = "sandbox-kernel:all"
HOSTILE = "it's \"a\\n$(echo ran)`echo ran`\n${HOME}\tü€\U0001f600 \\"
SHOWS = {
    "python": "import os; print(os.environ.get('{0}', 'none'))",
    "r": "cat(Sys.getenv('{0}', unset = 'none'), '\\n', sep = '')",
    "js": "console.log(Deno.env.get('{0}') ?? 'none')",
}
FAILS = {"python": "1 / 0", "r": "stop('no')", "js": "throw new Error('no')"}


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(image=IMAGE, pids=512, envs={"OWN": "given"}) as sandbox:
        yield sandbox


@pytest.mark.parametrize("language", SHOWS)
def test_variables_of_a_call_are_put_back(sandbox: Sandbox, language: str) -> None:
    def shown(name: str, **named: object) -> str:
        found = sandbox.run_code(SHOWS[language].format(name), language, **named)
        assert found.error is None
        return "".join(found.logs.stdout).removesuffix("\n")

    assert shown("FOO", envs={"FOO": HOSTILE, "TRUE": "1", "__proto__": "2"}) == HOSTILE
    assert shown("__proto__", envs={"__proto__": "2"}) == "2"
    assert shown("OWN", envs={"OWN": "other"}) == "other"
    assert [shown(name) for name in ("FOO", "TRUE", "__proto__", "OWN")] == ["none", "none", "none", "given"]
    failed = sandbox.run_code(FAILS[language], language, envs={"OWN": "other"}, stop_on_error=True)
    assert failed.error is not None
    assert shown("OWN") == "given"


def test_a_context_has_the_name_by_which_its_language_was_asked_for(sandbox: Sandbox) -> None:
    for asked, name in (("js", "javascript"), ("JavaScript", "javascript"), ("ts", "typescript"), ("R", "r")):
        made = sandbox.create_code_context(language=asked)
        assert made.language == name
        sandbox.remove_code_context(made)
    with pytest.raises(InvalidArgumentException):
        sandbox.create_code_context(language="java")


def test_calls_that_begin_together_make_one_context() -> None:
    async def run() -> tuple[list[str | None], int]:
        async with AsyncSandbox(image=IMAGE, pids=512) as sandbox:
            cells = await asyncio.gather(*(sandbox.run_code(f"{i} + 1", language="r") for i in range(3)))
            return [cell.results[0].text for cell in cells], len(await sandbox.list_contexts())

    assert asyncio.run(run()) == (["[1] 1", "[1] 2", "[1] 3"], 2)
