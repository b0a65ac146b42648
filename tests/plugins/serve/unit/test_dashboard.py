"""What the page to look at is told, and by what it may be changed: by nothing."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Awaitable
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import SandboxDied
from sandbox_kernel.core.model import MIB, Limits, SandboxSample
from sandbox_kernel.engines.inspectable import CrowdInfo, CrowdUser, Listed
from sandbox_kernel.plugins.serve import dashboard, metrics
from sandbox_kernel.plugins.serve.dashboard import Rates, trouble, within
from sandbox_kernel.plugins.serve.dashboard_command import OfEngine
from sandbox_kernel.plugins.serve.tenants import Tenant
from sandbox_kernel.plugins.serve.token_file import METRICS, Tokens
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served
from tests.support.grafana import declared, figures

OPERATOR = "e2b_" + "c" * 40


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    one = Served(tokens=Tokens([("mine", MINE), ("theirs", THEIRS), (METRICS, OPERATOR)]))
    full = {"s1": SandboxSample(cpu_seconds=3.5, memory_bytes=Limits().memory), "s2": SandboxSample()}

    class Handle:
        def __init__(self, identity: str) -> None:
            self.session = self
            self.cells_begun = 7
            self._identity = identity

        async def sample(self) -> SandboxSample:
            return full[self._identity]

    monkeypatch.setattr(dashboard, "handle_of", lambda sandbox: Handle(sandbox.id))
    return one


async def data(served: Served, token: str) -> Any:
    answer = await served.ask("GET", "/dashboard/data", headers={"Authorization": f"Bearer {token}"})
    assert answer.headers["cache-control"] == "no-store"
    return answer.json()


async def test_a_token_opens_its_own_rows_and_the_operator_s_all(served: Served) -> None:
    served.theirs.tenant.figures.refused["sandboxes-of-tenant"] += 2
    for token, names in ((MINE, ["mine"]), (THEIRS, ["theirs"]), (OPERATOR, ["mine", "theirs"])):
        said = await data(served, token)
        assert [one["name"] for one in said["users"]] == names
        assert [one["user"] for one in said["sandboxes"]] == names
    said = await data(served, OPERATOR)
    mine, theirs = said["sandboxes"]
    assert (mine["id"], mine["cells"], mine["cpu_seconds"], mine["trouble"]) == ("s1", 7, 3.5, ["memory-high"])
    assert (theirs["memory_used"], theirs["cpu_percent"], theirs["trouble"]) == (None, None, [])
    assert [(one["refused"], one["refusals"]) for one in said["users"]] == [(0, {}), (2, {"sandboxes-of-tenant": 2})]
    assert ["requests without a token", "0"] in said["facts"]


async def test_what_a_name_that_is_gone_has_left_is_marked(served: Served) -> None:
    served.tenants.gone = frozenset({"theirs"})
    said = await data(served, OPERATOR)
    assert [(one["user"], one["trouble"]) for one in said["sandboxes"]] == [
        ("mine", ["memory-high"]),
        ("theirs", ["owner-gone"]),
    ]
    assert [one["trouble"] for one in said["users"]] == [True, True]


async def test_without_a_token_there_is_the_page_and_no_data(served: Served) -> None:
    assert (await served.ask("GET", "/dashboard/data")).status_code == 401
    front = await served.ask("GET", "/")
    assert (front.status_code, front.headers["location"]) == (307, "/dashboard")
    answer = await served.ask("GET", "/dashboard")
    assert answer.status_code == 200
    rules = answer.headers["content-security-policy"]
    for name in ("script", "style"):
        (text,) = re.findall(f"<{name}>(.*?)</{name}>", answer.text, re.DOTALL)
        assert f"{name}-src 'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'" in rules
    assert "default-src 'none'" in rules
    assert "frame-ancestors 'none'" in rules
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        for path in ("/dashboard", "/dashboard/data"):
            assert (await served.ask(method, path, headers={"X-API-Key": OPERATOR})).status_code == 405


def test_how_busy_a_sandbox_is_comes_from_two_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("sandbox_kernel.plugins.serve.dashboard.time.monotonic", lambda: now[0])
    rates = Rates()
    assert rates.percent("a", 10.0, 5.0) == 50.0
    now[0] += 2
    assert rates.percent("a", 12.0, 9.0) == 200.0
    assert rates.percent("b", 1.0, None) is None
    rates.forget(["b"])
    now[0] += 8
    assert rates.percent("a", 20.0, 5.0) == 25.0, "another one of that name is a new one"


@pytest.mark.parametrize(
    ("use", "percent", "found"),
    [
        (SandboxSample(memory_bytes=90 * MIB), 10.0, ("memory-high",)),
        (SandboxSample(memory_bytes=89 * MIB), 180.0, ("cpu-high",)),
        (SandboxSample(memory_bytes=89 * MIB), 179.0, ()),
        (SandboxSample(), None, ()),
    ],
)
def test_trouble_is_nine_tenths_of_a_limit(use: SandboxSample, percent: float | None, found: tuple[str, ...]) -> None:
    assert trouble(use, 100 * MIB, percent, 2.0) == found


async def test_a_sandbox_that_says_nothing_holds_the_page_up_for_a_moment_and_no_longer() -> None:
    async def one(kind: str) -> str:
        if kind == "silent":
            await asyncio.Event().wait()
        if kind == "dead":
            raise SandboxDied(EndCode.SANDBOX_DIED)
        return kind

    work: list[Awaitable[str]] = [one("a"), one("silent"), one("dead"), one("b")]
    assert await within(0.2, work, "nothing") == ["a", "nothing", "nothing", "b"]


class Broker:
    """An engine that lists two sandboxes, and has users."""

    address = "broker"

    async def list(self) -> tuple[Listed, ...]:
        row: dict[str, Any] = dict(  # noqa: C408 (as a call would be)
            owner_pid=None, owner_alive=None, state="running", age_seconds=10, image="i", memory_bytes=MIB, version="1"
        )
        return (
            Listed(session="one", container="c1", user="ann", reaches_hosts=True, **row),
            Listed(session="two", container="c2", user="bob", **row | {"owner_alive": False}),
        )

    async def used(self, container: str) -> SandboxSample:
        return SandboxSample(cpu_seconds=5.0, memory_bytes=MIB) if container == "c1" else SandboxSample()

    async def crowd(self) -> CrowdInfo:
        users = [
            CrowdUser(
                name=name,
                sandboxes=1,
                memory_promised=MIB,
                memory_used=0,
                cpu_seconds=1.0,
                started=3,
                refused=refused,
            )
            for name, refused in (("ann", 0), ("bob", 4))
        ]
        return CrowdInfo(ready=1, size=2, most=10, users=tuple(users))


async def test_a_broker_s_page_has_its_users_and_what_it_has_ready() -> None:
    board = await OfEngine(Broker()).read(Tenant(METRICS))  # type: ignore[arg-type]
    assert dict(board.facts) == {
        "sandboxes": "2 of 10",
        "ready": "1 of 2",
        "refused": "4",
        "memory in use": "1.0 MiB",
    }
    assert [(one.name, one.refused, one.trouble) for one in board.users] == [("ann", 0, True), ("bob", 4, True)]
    first, second = board.sandboxes
    assert (first.network, first.trouble, first.cpu_percent) == ("some hosts", ("memory-high",), 50.0)
    assert (second.network, second.trouble, second.memory_used) == ("?", ("owner-gone",), None)


def test_the_dashboard_of_grafana_asks_for_figures_that_there_are() -> None:
    asked = figures("sandbox_kernel_serve")
    assert len(asked) >= 6
    assert asked <= declared(metrics.page([], 0))
