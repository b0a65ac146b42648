"""These tests need a cluster: `make test-kubernetes` has it."""

from __future__ import annotations

import os

import pytest

from tests.plugins.kubernetes.engine import UNDER_TEST


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if "KUBECONFIG" not in os.environ and os.environ.get("SANDBOX_KERNEL_TEST_ENGINE") != UNDER_TEST.name:
        pytest.skip("make test-kubernetes has it")
    if (why := UNDER_TEST.absent()) is not None:
        pytest.fail(why)
