"""What E2B's clients ask of the network, within what the operator allows. The sandboxes are stand-ins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.model import Settings
from sandbox_kernel.plugins.serve import tenants as of_tenants
from sandbox_kernel.plugins.serve.lease_files import KeptLease, LeaseFiles
from sandbox_kernel.plugins.serve.tenants import MARK
from sandbox_kernel.sdk.values import SandboxInfo
from tests.plugins.serve.stand_ins import MINE, Served, StandIn

network = pytest.importorskip("sandbox_kernel.plugins.network.settings", reason="it has the rules")
packages = pytest.importorskip("sandbox_kernel.plugins.packages.settings", reason="they are from a network")
RULES = ("api.example.test", "*.wide.test", "db.example.test:8443")
ALL = "0.0.0.0/0"


class Networked(StandIn):
    is_detached = True

    def __init__(self, settings: Settings) -> None:
        super().__init__("0" * 32)
        self.settings = settings
        self.metadata: dict[str, str] = {}

    async def start(self) -> None: ...

    async def kill(self) -> bool:
        return True


def settings(*rules: str) -> Settings:
    return Settings().having(network.NetworkSettings(network=rules), packages.PackageSettings(packages=("*",)))


class Place(Served):
    """A server whose operator allows some hosts, and notes the sandboxes that it makes."""

    def __init__(self, folder: Path, *rules: str) -> None:
        self.files = LeaseFiles(folder)
        super().__init__(settings=settings(*rules), files=self.files, is_empty=True)

    async def made(self, **asked: Any) -> tuple[int, str, KeptLease | None]:
        answer = await self.ask(
            "POST", "/v2/sandboxes", headers={"X-API-Key": MINE}, json={"templateID": "base", **asked}
        )
        return answer.status_code, answer.text, self.files.all().get("0" * 32)

    @property
    def box(self) -> Any:
        return self.tenants.tenant("mine").leases["0" * 32].sandbox


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    monkeypatch.setattr(of_tenants, "AsyncSandbox", lambda settings, **_: Networked(settings))
    return Place(tmp_path / "sandboxes", *RULES)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "rules"),
    [
        ({"network": {"allowOut": ["api.example.test"]}}, ("api.example.test",)),
        ({"network": {"allowOut": ["a.wide.test", "db.example.test"]}}, ("a.wide.test", "db.example.test:8443")),
        ({"network": {"allowOut": ["a.wide.test"], "denyOut": [ALL]}}, ("a.wide.test",)),
        ({"network": {"allowOut": ["a.wide.test"], "denyOut": ["192.0.2.0/24"]}}, ("a.wide.test",)),
        ({"network": {"allowOut": ["a.wide.test"]}, "allow_internet_access": False}, ("a.wide.test",)),
        ({"network": {"denyOut": [ALL]}}, ()),
        ({"network": {"allowOut": [], "denyOut": [ALL]}}, ()),
        ({"allow_internet_access": False}, ()),
        ({"allow_internet_access": True, "network": {"allowOut": ["a.wide.test"]}}, ("a.wide.test",)),
        ({"network": {"allowOut": ["a.wide.test"], "allowPublicTraffic": True}}, ("a.wide.test",)),
        ({"network": {"denyOut": [ALL], "allowPublicTraffic": True}}, ()),
    ],
)
async def test_a_client_narrows_the_network(place: Place, asked: dict[str, Any], rules: tuple[str, ...]) -> None:
    status, said, kept = await place.made(**asked)
    assert status == 201, said
    assert kept is not None
    assert (place.box.settings.get("network", ()), place.box.settings.get("packages", ())) == (rules, ())
    assert (kept.offline, kept.hosts) == (not rules, asked.get("network", {}).get("allowOut") or [])


async def test_who_asks_for_nothing_has_what_the_operator_allows(place: Place) -> None:
    status, _, kept = await place.made(network={"allowOut": [], "allowPublicTraffic": False})
    assert (status, place.box.settings.get("network", ())) == (201, RULES)
    assert place.box.settings.get("packages", ()) == ("*",)
    assert kept is not None
    assert (kept.offline, kept.hosts) == (False, [])


@pytest.mark.parametrize(
    ("asked", "name"),
    [
        ({"network": {"allowOut": ["api.example.test", "other.test"]}}, "allowOut ('other.test')"),
        ({"network": {"allowOut": ["wide.test"]}}, "allowOut ('wide.test')"),
        ({"network": {"allowOut": [ALL]}}, f"allowOut ('{ALL}')"),
        ({"network": {"allowOut": ["1.1.1.1"], "denyOut": [ALL]}}, "allowOut ('1.1.1.1')"),
        ({"network": {"denyOut": ["192.0.2.0/24"]}}, "denyOut ('192.0.2.0/24'"),
        ({"network": {"rules": {"a.test": []}, "allowOut": ["api.example.test"]}}, "rules"),
    ],
)
async def test_what_the_operator_does_not_allow_is_refused_by_name(
    place: Place, asked: dict[str, Any], name: str
) -> None:
    status, said, kept = await place.made(**asked)
    assert (status, kept) == (400, None)
    assert "not-offered" in said
    assert name in said


@pytest.mark.parametrize("field", ["allowOut", "denyOut"])
@pytest.mark.parametrize("value", ["api.example.test", [1], {"a": 1}])
async def test_what_is_no_list_of_texts_is_refused(place: Place, field: str, value: object) -> None:
    status, said, kept = await place.made(network={field: value})
    assert (status, kept) == (400, None)
    assert field in said


@pytest.mark.parametrize(
    ("now", "rules"), [(RULES, ("a.wide.test",)), (("*.wide.test",), ("a.wide.test",)), (("api.example.test",), ())]
)
async def test_the_next_server_narrows_what_its_own_operator_allows(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: tuple[str, ...], rules: tuple[str, ...]
) -> None:
    assert (await place.made(network={"allowOut": ["a.wide.test"]}))[0] == 201
    place.files.close()
    after = Place(tmp_path / "sandboxes", *now)

    class Keeper:
        async def listed(self, _: object) -> list[SandboxInfo]:
            return [replace(place.box.info, metadata={MARK: after.files.mark})]

    class Connecting:
        @staticmethod
        async def connect(_: str, *, settings: Settings, **__: object) -> Networked:
            return Networked(settings)

    monkeypatch.setattr(of_tenants, "keeper", Keeper)
    monkeypatch.setattr(of_tenants, "AsyncSandbox", Connecting)
    assert await after.tenants.take_over({"mine"}) == 1
    assert after.box.settings.get("network", ()) == rules
    assert after.box.settings.get("packages", ()) == ()
