"""Whose tokens are, as an API server says that a test writes the answers of: real HTTP, and a broker behind it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sandbox_kernel.core.errors import EngineError, EngineUnavailable
from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins import index
from sandbox_kernel.plugins.api import TokenOwner
from sandbox_kernel.plugins.broker.ceilings import Ceiling, Policy
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.kubernetes import cluster_api, token_review
from sandbox_kernel.plugins.kubernetes.codes import KubernetesCode
from sandbox_kernel.plugins.kubernetes.settings import KubernetesSettings
from sandbox_kernel.plugins.kubernetes.token_review import ClusterTokenReview, owner_in
from tests.plugins.broker.network import a_listener
from tests.plugins.kubernetes.scripted_api import ScriptedApi, refusing, scripted_api
from tests.support.patience import within

AUDIENCE = "sandbox-kernel"
ALICE = "system:serviceaccount:hub:alice"
HUB = "system:serviceaccounts:hub"


def of(name: str = ALICE, *audiences: str) -> dict[str, Any]:
    user = {"username": name, "groups": ["system:serviceaccounts", HUB]}
    return {"authenticated": True, "user": user, "audiences": list(audiences or (AUDIENCE,))}


async def a_review(api: ScriptedApi) -> ClusterTokenReview:
    found = ClusterTokenReview(KubernetesSettings(), AUDIENCE)
    await found.open()
    api.seen["review"] = 0
    return found


TOKENS = {
    "good": (of(), None),
    "for another audience": (of(ALICE, "https://kubernetes.default.svc"), BrokerCode.BROKER_UNKNOWN_CALLER),
    "whose time is over": (
        {"authenticated": False, "error": "token has expired"},
        BrokerCode.BROKER_UNKNOWN_CALLER,
    ),
    "of somebody else": (of("system:serviceaccount:hub:mallory"), BrokerCode.BROKER_DENIED),
}


@pytest.mark.parametrize(("status", "code"), TOKENS.values(), ids=TOKENS)
async def test_a_broker_serves_whom_the_cluster_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: dict[str, Any], code: BrokerCode | None
) -> None:
    policy = Policy(everybody=Ceiling(denied=True), callers={ALICE: Ceiling(set_by={"denied": "the file"})})
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        api.tokens["a.b.c"] = status
        (file := tmp_path / "token").write_text("a.b.c")
        review = await a_review(api)
        async with a_listener(tmp_path, review=review, certificates=False, policy=policy) as (_, place):
            engine = place.engine(place.settings(broker_token=str(file)))
            if code is None:
                assert (await engine.status())["yours"] == 0
            else:
                with pytest.raises(EngineError) as caught:
                    await engine.status()
                assert caught.value.code is code
    assert api.seen["review"] == 1


async def test_a_group_of_the_cluster_has_a_ceiling(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = Policy(everybody=Ceiling(denied=True), caller_groups={HUB: Ceiling(sessions=3)})
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        api.tokens["a.b.c"] = of()
        (file := tmp_path / "token").write_text("a.b.c")
        review = await a_review(api)
        async with a_listener(tmp_path, review=review, certificates=False, policy=policy) as (_, place):
            assert (await place.engine(place.settings(broker_token=str(file))).status())["sessions"] == 3


async def test_an_answer_is_good_for_a_while_and_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token that is revoked works on for that time; of the token only a digest is kept."""
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        api.tokens["a.b.c"] = of()
        review = await a_review(api)
        try:
            assert await review.owner("a.b.c") == TokenOwner(ALICE, frozenset({"system:serviceaccounts", HUB}))
            api.tokens.clear()
            assert await review.owner("a.b.c") is not None
            assert api.seen["review"] == 1
            assert "a.b.c" not in repr(vars(review))
            monkeypatch.setattr(token_review, "KEPT_SECONDS", 0)
            api.tokens["d.e.f"] = of()
            assert await review.owner("d.e.f") is not None
            api.tokens.clear()
            assert await review.owner("d.e.f") is None
            assert api.seen["review"] == 3
        finally:
            await review.close()


async def test_a_token_that_is_kept_waits_for_no_stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "REVIEW_SECONDS", 600.0)
    monkeypatch.setattr(cluster_api, "REQUEST_SECONDS", 600.0)
    hold = asyncio.Event()

    async def silent(request: web.Request) -> web.StreamResponse | None:
        await hold.wait()
        return None

    async with scripted_api(tmp_path, monkeypatch) as api:
        api.tokens["a.b.c"] = of()
        review = await a_review(api)
        strangers: list[asyncio.Task[TokenOwner | None]] = []
        try:
            assert await review.owner("a.b.c") is not None
            api.faults["review"] = silent
            strangers = [
                asyncio.create_task(review.owner(f"stranger {number}")) for number in range(token_review.AT_ONCE)
            ]
            async with within(5):
                await api.until("review", 1 + token_review.AT_ONCE)
                assert await review.owner("a.b.c") is not None
        finally:
            hold.set()
            await asyncio.gather(*strangers, return_exceptions=True)
            await review.close()


async def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_review, "MAX_KEPT", 2)
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        review = await a_review(api)
        try:
            for token in ("a", "b", "c", "c", "a"):
                assert await review.owner(token) is None
            assert api.seen["review"] == 4
        finally:
            await review.close()


async def test_a_broker_that_may_not_ask_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        api.faults["review"] = refusing(403, "cannot create resource tokenreviews")
        make = index.token_review("token-review").token_review
        assert make is not None
        with pytest.raises(EngineError) as caught:
            await make(Settings(), AUDIENCE).open()
    assert caught.value.code is KubernetesCode.CLUSTER_FORBIDS


async def test_a_cluster_that_is_away_lets_nobody_in_and_is_not_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with scripted_api(tmp_path, monkeypatch) as api, within(30):
        (file := tmp_path / "token").write_text("a.b.c")
        review = await a_review(api)
        api.faults["review"] = refusing(500, "an address of the inside")
        async with a_listener(tmp_path, review=review, certificates=False) as (_, place):
            with pytest.raises(EngineError, match="could not ask") as caught:
                await place.engine(place.settings(broker_token=str(file))).status()
    assert not isinstance(caught.value, EngineUnavailable)
    assert "inside" not in str(caught.value)


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"status": None},
        {"status": {**of(), "authenticated": "true"}},
        {"status": {**of(), "audiences": None}},
        {"status": {**of(), "audiences": AUDIENCE}},
        {"status": {**of(), "error": "it could not be looked at"}},
        {"status": {**of(), "user": {}}},
        {"status": of("")},
        {"status": of("a\nb")},
        {"status": of("x" * 301)},
        {"status": {**of(), "user": {"username": ALICE, "groups": [1]}}},
    ],
)
def test_an_answer_that_says_less_is_nobody_s(answer: dict[str, Any]) -> None:
    assert owner_in({"status": of()}, AUDIENCE) is not None
    assert owner_in(answer, AUDIENCE) is None
