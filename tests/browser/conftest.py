"""Three JupyterLabs for all tests: one in which nothing acts, one for the controls, and one behind the second wall.

Each test gets an empty page of one. What it has opened or started there ends with it, and is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium.webdriver import Chrome

from sandbox_kernel import Sandbox
from tests.browser.lab import Lab, chromium, install_all, running_lab
from tests.support.chromium import Evil, listening


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chrome]:
    with chromium(tmp_path_factory.mktemp("browser")) as browser:
        yield browser


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def kernels(tmp_path_factory: pytest.TempPathFactory, image: str) -> Path:
    return install_all(tmp_path_factory.mktemp("kernels"), image)


@pytest.fixture(scope="session")
def _one_lab(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab"), kernels) as running:
        yield running


@pytest.fixture(scope="session")
def _one_spoiled_lab(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("spoiled"), kernels) as running:
        yield running


@pytest.fixture(scope="session")
def _one_walled_lab(tmp_path_factory: pytest.TempPathFactory, kernels: Path) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("walled"), kernels, wall=True) as running:
        yield running


@pytest.fixture
def shared_lab(_one_lab: Lab) -> Iterator[Lab]:
    """A JupyterLab in which no attack may have worked."""
    yield _one_lab
    _one_lab.renew()


@pytest.fixture
def spoiled_lab(_one_spoiled_lab: Lab) -> Iterator[Lab]:
    """A JupyterLab for controls, in which attacks work: what they show is counted from an empty page on."""
    yield _one_spoiled_lab
    _one_spoiled_lab.renew()


@pytest.fixture
def walled_lab(_one_walled_lab: Lab) -> Iterator[Lab]:
    """A JupyterLab behind the second wall."""
    yield _one_walled_lab
    _one_walled_lab.renew()


@pytest.fixture
def evil() -> Iterator[Evil]:
    """What other origins hear."""
    with listening() as seen:
        yield seen
