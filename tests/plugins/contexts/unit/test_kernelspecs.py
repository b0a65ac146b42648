"""What a sandbox says of its kernels is of any kind and length, and what is offered of it is neither."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.contexts.contexts import MAX_KERNELSPECS, Contexts


async def offered(said: Any) -> list[str]:
    async def ready(*, fresh: bool) -> None: ...

    async def nested_kernelspecs() -> Any:
        return said

    session = SimpleNamespace(id="s", emit=lambda event: None, nested_kernelspecs=nested_kernelspecs)
    instance: Any = SimpleNamespace(session=session, settings=Settings(), ready=ready)
    return [one.language for one in await Contexts(instance).offered()]


def deep() -> Any:
    value: Any = []
    for _ in range(1_100):
        value = [value]
    return value


@pytest.mark.parametrize("language", [None, 5, {"a": 1}, deep(), "R" * 10_000], ids=["none", "5", "{}", "deep", "long"])
async def test_a_kernel_is_offered_whatever_its_language_is(language: Any) -> None:
    assert await offered([{"name": "ir", "language": language}, {"name": language}, language]) == ["python", "r"]


@pytest.mark.parametrize("said", [None, 5, "ir", {"name": "ir"}, []], ids=repr)
async def test_what_is_no_list_of_kernels_has_none(said: Any) -> None:
    assert await offered(said) == ["python"]


async def test_no_more_kernels_are_looked_at_than_an_image_has() -> None:
    assert len(await offered([{"name": f"k{number}"} for number in range(10_000)])) == 1 + MAX_KERNELSPECS
