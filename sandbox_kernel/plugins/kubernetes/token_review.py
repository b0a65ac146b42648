"""Whose bearer tokens are, as the cluster says: its TokenReview API, for one audience.

An answer is good for `KEPT_SECONDS`, so that a caller with several connections is asked about once; a token that is
revoked opens connections for as long. Only the token's SHA-256 is kept. Questions are bounded in number and time: what
strangers send costs the API server no more than that.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from typing import Any

from ...core.errors import EngineError
from ..api import TokenOwner
from .cluster_api import ClusterApi
from .codes import KubernetesCode
from .settings import KubernetesSettings

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
KEPT_SECONDS = 30.0
MAX_KEPT = 4096
AT_ONCE = 8
REVIEW_SECONDS = 5.0
"""For an answer, the wait for its turn among them."""
MAX_NAME, MAX_GROUPS = 300, 100
NOBODY = "a-token-of-nobody"
"""What the cluster is asked about first, to see whether it answers."""


class ClusterTokenReview:
    """One audience of one cluster."""

    def __init__(self, settings: KubernetesSettings, audience: str) -> None:
        self._settings, self._audience = settings, audience
        self._api: ClusterApi | None = None
        self._kept: OrderedDict[bytes, tuple[TokenOwner | None, float]] = OrderedDict()
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def open(self) -> None:
        self._api = await ClusterApi.connect(self._settings.kubernetes_context)
        try:
            await self._asked(NOBODY)
        except BaseException:
            await self.close()
            raise

    async def owner(self, token: str) -> TokenOwner | None:
        name = hashlib.sha256(token.encode()).digest()
        if (kept := self._answer(name)) is not None:
            return kept[0]  # it waits for no stranger
        try:
            async with asyncio.timeout(REVIEW_SECONDS), self._turn:
                if (kept := self._answer(name)) is not None:  # another connection of the same caller has asked
                    return kept[0]
                found = await self._asked(token)
        except TimeoutError as error:
            why = f"it says nothing of a token in {REVIEW_SECONDS:g} s"
            raise EngineError(KubernetesCode.CLUSTER_UNREACHABLE.note(why=why)) from error
        self._kept[name] = found, time.monotonic() + KEPT_SECONDS
        self._kept.move_to_end(name)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return found

    def _answer(self, name: bytes) -> tuple[TokenOwner | None, float] | None:
        """Return what is kept of a token and is still good."""
        kept = self._kept.get(name)
        return kept if kept is not None and time.monotonic() < kept[1] else None

    async def close(self) -> None:
        api, self._api = self._api, None
        if api is not None:
            await api.close()

    async def _asked(self, token: str) -> TokenOwner | None:
        if self._api is None:
            raise EngineError(KubernetesCode.CLUSTER_UNREACHABLE.note(why="it is asked no more"))
        question = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        return owner_in(await self._api.request("POST", PATH, question), self._audience)


def owner_in(answer: dict[str, Any], audience: str) -> TokenOwner | None:
    """Return whose a token is by the cluster's answer; None unless it says all of it. Pure."""
    status = answer.get("status")
    if not isinstance(status, dict) or status.get("authenticated") is not True or status.get("error"):
        return None
    audiences = status.get("audiences")
    if not isinstance(audiences, list) or audience not in audiences:
        return None  # what authenticated it knows no audiences: the token may be for anybody
    user = status.get("user")
    name = user.get("username") if isinstance(user, dict) else None
    groups = user.get("groups") or [] if isinstance(user, dict) else None
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME or not name.isprintable():
        return None
    if not isinstance(groups, list) or not all(isinstance(one, str) for one in groups):
        return None
    return TokenOwner(name, frozenset(groups[:MAX_GROUPS]))
