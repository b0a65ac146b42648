"""Every route of every wire, as the server has them: no token opens one but a tenant's own, and no page another site's.

The sandboxes are stand-ins: nothing here starts one.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest
from starlette.routing import Route

from sandbox_kernel.plugins.serve.guard import Guarded
from sandbox_kernel.plugins.serve.metrics import WIRES, wire_of
from tests.plugins.serve.stand_ins import MINE, THEIRS, Served
from tests.support.cases import each

PARTS = {"sandbox_id": "s1", "port": "80", "path:path": "home/user/a"}
ROUTES = [
    (method, re.sub(r"{([^}]+)}", lambda part: PARTS.get(part[1], "V1StGXR8_Z5jdHi6B-myT"), route.path))
    for route in Served().app.routes
    if isinstance(route, Route) and isinstance(route.endpoint, Guarded) and route.endpoint.scheme == "token"
    for method in sorted(route.methods or ())
]
"""Those that the token of a tenant opens."""


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


def test_the_list_of_routes_has_those_of_each_wire() -> None:
    counts = Counter(wire_of(path) for _, path in ROUTES)
    assert counts.keys() == {"e2b", *WIRES}
    assert min(counts.values()) >= 3
    assert counts.total() > 90


@pytest.mark.slow
@each(("method", "path"), ROUTES)
async def test_no_token_opens_a_route_but_a_tenant_s_own(served: Served, method: str, path: str) -> None:
    lease = served.mine
    wrong: list[dict[str, str]] = [
        {},
        {"X-API-Key": ""},
        {"X-API-Key": MINE[:-1]},
        {"X-API-Key": MINE + "x"},
        {"X-API-Key": lease.access_token},
        {"Authorization": f"Bearer {lease.traffic_token}"},
        {"Authorization": "Bearer"},
        {"Authorization": f"Basic {MINE}"},
        {"Cookie": f"X-API-Key={MINE}"},
        {"Cookie": f"token={MINE}"},
    ]
    queries = [{"token": MINE[:-1]}, {"access_token": MINE}]
    if path.startswith("/jupyter/"):  # its clients may have the token in the address
        wrong += [{"Authorization": f"token {MINE}x"}]
        answer = await served.ask(method, path, headers={"Authorization": f"token {MINE}"}, params={"token": ""})
        assert answer.status_code == 401
    else:
        queries += [{"token": MINE}]
    for params, headers in [*(({}, headers) for headers in wrong), *((query, {}) for query in queries)]:
        answer = await served.ask(method, path, headers=headers, params=params)
        assert answer.status_code == 401, (params, headers)
        assert method == "HEAD" or "token-unknown" in answer.text
        assert MINE not in answer.text
        assert "mcp-session-id" not in answer.headers
    twice = [("X-API-Key", MINE), ("X-API-Key", THEIRS)]
    two = [("X-API-Key", MINE), ("Authorization", f"Bearer {THEIRS}")]
    for both in (twice, two):
        assert (await served.ask(method, path, headers=both)).status_code == 400


@each(("method", "path"), ROUTES)
async def test_no_page_of_another_site_reaches_a_route_even_with_the_token(
    served: Served, method: str, path: str
) -> None:
    """DNS rebinding: the name is the attacker's, the address is loopback. Which names pass is `test_place`."""
    key = {"X-API-Key": MINE}
    for url in ("http://evil.example", "http://localhost.evil.example:8809"):
        assert (await served.ask(method, path, url=url, headers=key)).status_code == 421
    for origin in ("http://evil.example", "null", "https://localhost.evil.example"):
        assert (await served.ask(method, path, headers={**key, "Origin": origin})).status_code == 403


OWN = ("/sandboxes", "/v2/sandboxes", "/sandboxes/s1", "/metrics", "/jupyter/api", "/jupyter/api/sessions")


@each("path", [*OWN, "/librechat/v1/files/V1StGXR8_Z5jdHi6B-myT"])
async def test_control_a_tenant_s_own_token_opens_them(served: Served, path: str) -> None:
    for headers in ({"X-API-Key": MINE}, {"Authorization": f"Bearer {MINE}", "Origin": "http://localhost:8809"}):
        answer = await served.ask("GET", path, headers=headers)
        assert answer.status_code == 200 or answer.json()["error"] == "file-not-kept"
