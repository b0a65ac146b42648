"""jupyter_kernel_test's suite on a sandbox behind Jupyter's wire: the one that the kernel of a notebook passes."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import jupyter_kernel_test
import pytest

from tests.plugins.serve.container.conftest import TOKENS
from tests.plugins.serve.container.jupyter_client import address
from tests.plugins.serve.container.server import Server
from tests.support.kernel_suite import IPythonSamples, WebSocketKernelClient, connected


@pytest.fixture(scope="module", autouse=True)
def _kernel(server: Server) -> Iterator[None]:
    with httpx2.Client(base_url=f"{server.url}/jupyter", params={"token": TOKENS["ann"]}, timeout=30) as rest:
        kernel = rest.post("/api/kernels").json()["id"]
        with connected(address(server, kernel)) as TestServed.kc:
            yield
        assert rest.delete(f"/api/kernels/{kernel}").status_code == 204


class TestServed(IPythonSamples, jupyter_kernel_test.KernelTests):
    kc: WebSocketKernelClient

    @classmethod
    def setUpClass(cls) -> None:
        """Begin with the client that is there."""

    @classmethod
    def tearDownClass(cls) -> None:
        """Leave it to who made it."""
