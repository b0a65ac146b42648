"""Snapshots and copies of sandboxes over E2B's wire: each tenant's own. The sandboxes and their store are stand-ins."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.qemu.settings import QemuSettings
from sandbox_kernel.plugins.serve.e2b import snapshots as e2b_snapshots
from sandbox_kernel.plugins.serve.lease_files import KeptLease
from sandbox_kernel.plugins.serve.tenants import Lease, ServeLimits, Tenants
from sandbox_kernel.sdk.client import AsyncSandbox
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served, StandIn
from tests.support.patience import within


@dataclass(frozen=True)
class Network:
    """The setting of a plugin that may be missing."""

    network: tuple[str, ...] = ()


@dataclass(frozen=True)
class Packages:
    """The same."""

    packages: tuple[str, ...] = ()


class Copied(StandIn):
    """A stand-in that can be written down and copied."""

    def __init__(self, identity: str, store: list[str]) -> None:
        super().__init__(identity)
        self._store = store

    async def start(self) -> None: ...

    async def kill(self) -> bool:
        return True

    async def snapshot(self, name: str) -> str:
        self._store.insert(0, name)
        return name

    async def fork(self, count: int, timeout: float) -> list[Any]:
        assert timeout >= 1
        return [Copied(f"{self.id}-{number}", self._store) for number in range(count)]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Give the names in the store, the newest first; somebody else's is there already."""
    names = ["own-of-the-operator"]

    async def delete(name: str) -> bool:
        names.remove(name)
        return True

    async def listed(settings: Settings) -> list[Any]:
        return [SimpleNamespace(name=name, bytes=1 << 30) for name in names]

    def prepared(name: str, settings: Settings, **given: Any) -> Any:
        assert name in names
        assert given["timeout"] > 0
        return Copied(f"from-{name}", names)

    monkeypatch.setattr(AsyncSandbox, "snapshots", listed)
    monkeypatch.setattr(AsyncSandbox, "delete_snapshot", delete)
    monkeypatch.setattr(AsyncSandbox, "prepared", prepared)
    return names


@pytest.fixture
def served(store: list[str]) -> Served:
    made = Served(sandboxes_per_tenant=3)
    for lease in (made.mine, made.theirs):
        lease.sandbox = Copied(lease.id, store)  # type: ignore[assignment]
    return made


async def ask(served: Served, method: str, path: str, key: str = MINE, **body: Any) -> tuple[int, Any]:
    content: dict[str, Any] = {} if method in {"GET", "DELETE"} else {"json": body}
    answer = await served.ask(method, path, headers={"X-API-Key": key}, **content)
    return answer.status_code, answer.json() if answer.content else None


async def test_a_snapshot_is_taken_listed_begun_from_and_removed_by_its_tenant_alone(
    served: Served, store: list[str]
) -> None:
    assert await ask(served, "POST", "/sandboxes/s1/snapshots", name="n") == (201, {"snapshotID": "n", "names": ["n"]})
    status, made = await ask(served, "POST", "/sandboxes/s1/snapshots")
    assert status == 201
    listed = [{"snapshotID": one, "names": [one]} for one in (made["snapshotID"], "n")]
    assert await ask(served, "GET", "/snapshots") == (200, listed)
    assert await ask(served, "GET", "/snapshots?sandboxID=s1&limit=1") == (200, listed[:1])
    assert await ask(served, "GET", "/snapshots?sandboxID=s9") == (200, [])
    assert await ask(served, "GET", "/snapshots?name=n") == (200, listed[1:])
    assert await ask(served, "GET", "/snapshots", THEIRS) == (200, [])
    status, begun = await ask(served, "POST", "/v2/sandboxes", templateID="n")
    assert (status, begun["templateID"], begun["sandboxID"]) == (201, "n", f"from-{store[1]}")
    for name in ("n", "own-of-the-operator", store[1]):
        for key in (THEIRS,) if name == "n" else (MINE, THEIRS):
            assert (await ask(served, "POST", "/sandboxes", key, templateID=name))[0] == 404
            assert (await ask(served, "DELETE", f"/templates/{name}", key))[0] == 404
    assert (await ask(served, "DELETE", "/templates/base"))[0] == 404
    assert (await ask(served, "DELETE", "/templates/n"))[0] == 204
    assert await ask(served, "GET", "/snapshots") == (200, listed[:1])
    assert "own-of-the-operator" in store


@pytest.mark.parametrize(
    ("body", "status"),
    [({"name": "base"}, 409), ({"name": "../x"}, 400), ({"name": "n" * 33}, 400), ({"memory": False}, 400)],
)
async def test_a_snapshot_that_cannot_be_is_refused(
    served: Served, store: list[str], body: dict[str, Any], status: int
) -> None:
    assert (await ask(served, "POST", "/sandboxes/s1/snapshots", **body))[0] == status
    assert store == ["own-of-the-operator"]
    await ask(served, "POST", "/sandboxes/s1/snapshots", name="n")
    assert (await ask(served, "POST", "/sandboxes/s1/snapshots", name="n"))[0] == 409
    assert (await ask(served, "POST", "/sandboxes", templateID="n", allow_internet_access="yes"))[0] == 400


async def test_two_snapshots_of_one_name_are_one(
    served: Served, store: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taking: asyncio.Queue[str] = asyncio.Queue()
    may_end = asyncio.Event()

    async def snapshot(sandbox: Copied, name: str) -> str:
        taking.put_nowait(name)
        await may_end.wait()
        store.insert(0, name)
        return name

    monkeypatch.setattr(Copied, "snapshot", snapshot)
    other = Copied("s1b", store)
    served.mine.tenant.leases["s1b"] = Lease(sandbox=other, tenant=served.mine.tenant, template="base")  # type: ignore[arg-type]
    paths = ("/sandboxes/s1/snapshots", "/sandboxes/s1b/snapshots")
    asked = [asyncio.create_task(ask(served, "POST", path, name="n")) for path in paths]
    await taking.get()
    with pytest.raises(TimeoutError):  # the other one waits, and does not begin
        async with within(0.3):
            await taking.get()
    may_end.set()
    assert sorted(status for status, _ in await asyncio.gather(*asked)) == [201, 409]
    assert len(store) == 2


async def test_a_tenant_fills_its_part_of_the_store(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(served.tenants.names) == {"mine", "theirs"}
    for lease in (served.mine, served.theirs):
        lease.sandbox.settings = Settings().having(QemuSettings(snapshots_size=3 << 30))
    for status in (201, 201, 429):  # of a gigabyte each, in a part of one and a half
        found = await ask(served, "POST", "/sandboxes/s1/snapshots")
        assert found[0] == status
    assert found[1]["error"] == "snapshot-no-room"
    assert "2,147,483,648 bytes" in found[1]["message"]
    assert (await ask(served, "POST", "/sandboxes/s2/snapshots", THEIRS))[0] == 201
    served.mine.sandbox.settings = Settings().having(QemuSettings(snapshots_size=3 << 40))
    monkeypatch.setattr(e2b_snapshots, "MAX_SNAPSHOTS", 3)
    assert [(await ask(served, "POST", "/sandboxes/s1/snapshots"))[0] for _ in range(2)] == [201, 429]


async def test_a_snapshot_s_network_is_not_kept_where_a_client_wants_none(served: Served) -> None:
    await ask(served, "POST", "/sandboxes/s1/snapshots", name="n")
    assert (await ask(served, "POST", "/sandboxes", templateID="n", allow_internet_access=False))[0] == 201
    network = Settings().having(Network(("example.org",)))
    served.tenants.templates = {"base": network}
    for value, error in ((False, "not-offered"), ("false", "wrong-argument")):
        status, said = await ask(served, "POST", "/sandboxes", templateID="n", allow_internet_access=value)
        assert (status, said["error"]) == (400, error)


async def test_copies_are_their_tenant_s_and_count_as_sandboxes(served: Served) -> None:
    served.mine.metadata["a.txt"] = {"author": "ann"}
    status, copies = await ask(served, "POST", "/sandboxes/s1/fork", count=2, timeout=60)
    assert (status, [one["sandbox"]["sandboxID"] for one in copies]) == (201, ["s1-0", "s1-1"])
    made = [served.mine.tenant.leases[one] for one in ("s1-0", "s1-1")]
    made[0].metadata["a.txt"]["author"] = "bob"
    assert [one.metadata["a.txt"]["author"] for one in (made[1], served.mine)] == ["ann"] * 2
    assert len((await ask(served, "GET", "/sandboxes"))[1]) == 3
    assert (await ask(served, "GET", "/sandboxes/s1-0", THEIRS))[0] == 404
    assert (await ask(served, "POST", "/sandboxes/s1/fork"))[0] == 429
    assert (await ask(served, "POST", "/sandboxes/s2/fork", THEIRS, count=3))[0] == 429
    for count in (0, 21, "1", True):
        assert (await ask(served, "POST", "/sandboxes/s2/fork", THEIRS, count=count))[0] == 400


async def test_nothing_loosens_the_network_of_a_sandbox(served: Served) -> None:
    path = "/sandboxes/s1/network"
    body: dict[str, Any]
    for body in ({}, {"denyOut": ["0.0.0.0/0"]}, {"allow_internet_access": False, "allowOut": []}):
        assert (await ask(served, "PUT", path, **body))[0] == 204
    for body in ({"allowOut": ["example.org"]}, {"allow_internet_access": True}, {"rules": {"a.b": []}}):
        status, said = await ask(served, "PUT", path, **body)
        assert (status, said["error"]) == (400, "not-offered")
        assert next(iter(body)) in said["message"]
    assert (await ask(served, "POST", "/sandboxes/s1/resume"))[0] == 409


@pytest.mark.parametrize("setting", [Network(("example.org",)), Packages(("numpy",))])
def test_a_sandbox_without_a_network_is_so_after_a_restart(served: Served, setting: object) -> None:
    written: list[KeptLease] = []
    kept: Any = SimpleNamespace(write=lambda _, lease: written.append(lease))
    tenants = Tenants({"base": Settings().having(setting)}, ServeLimits(), kept)
    for settings, offline in ((Settings().having(setting), False), (Settings(), True)):
        sandbox: Any = served.mine.sandbox
        sandbox.settings, sandbox.is_detached, sandbox.metadata = settings, True, {}
        tenants._write(Lease(sandbox=sandbox, tenant=served.mine.tenant, template="base"))  # noqa: SLF001
        assert written[-1].offline is offline
