"""Schemathesis on our OpenAPI page: whatever is sent, the answer is one that the page has, and never our failure.

It sends to a server of its own on loopback. `make recipes` has the package.
"""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.server import Server

schemathesis = pytest.importorskip("schemathesis", reason="make recipes has it")
hypothesis = pytest.importorskip("hypothesis")

OF_THE_WIRE = {"no-such-sandbox", "port-not-served", "not-offered", "unimplemented"}
"""Codes of answers that are no failure: 502 where E2B's clients expect it, and 501 for what is not offered."""
BY_POLICY = pytest.importorskip("schemathesis.specs.openapi.checks").positive_data_acceptance
"""What a page cannot say: the operator refuses what has the right form."""
CELLS = ("/execute", "/contexts")


@pytest.fixture(scope="module")
def page(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json").exclude(path="/mcp")


@pytest.fixture(scope="module")
def headers(server: Server) -> dict[str, str]:
    """Return what opens a sandbox that is there."""
    key = {"X-API-Key": TOKENS["ann"]}
    asked = {"templateID": "base", "timeout": 3600}
    made = httpx2.post(f"{server.url}/sandboxes", json=asked, headers=key, timeout=30).json()
    return {
        "E2b-Sandbox-Id": made["sandboxID"],
        "X-Access-Token": made["envdAccessToken"],
        "E2B-Traffic-Access-Token": made["trafficAccessToken"],
    }


def test_no_call_makes_the_server_fail(page: Any, headers: dict[str, str]) -> None:
    tried = 0

    def call(case: Any) -> None:
        nonlocal tried
        tried += 1
        port = "49999" if case.path.startswith(CELLS) else "49983"
        given = {**headers, "E2b-Sandbox-Port": port, "Authorization": f"Bearer {TOKENS['ann']}"}
        response = case.call(headers=given, timeout=60)
        if response.status_code in {501, 502}:
            said = response.json()
            assert {said.get("error"), said.get("code")} & OF_THE_WIRE, said
        else:
            case.validate_response(response, excluded_checks=[BY_POLICY])

    many = hypothesis.settings(max_examples=25, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
    operations = [found.ok() for found in page.get_all_operations()]
    for operation in operations:
        many(hypothesis.given(operation.as_strategy())(call))()
    assert len(operations) > 60
    assert tried > 10 * len(operations)
