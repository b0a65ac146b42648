"""One sandbox of each image, with the files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import ImageMissing
from sandbox_kernel.engines.image_names import DEFAULT, FULL

FILES = Path(__file__).with_name("files")


@pytest.fixture(scope="module", params=[f"sandbox-kernel:{DEFAULT}", FULL])
def room(request: pytest.FixtureRequest) -> Iterator[tuple[str, Sandbox]]:
    """A sandbox for all tests of a module, which share no state but files."""
    made = Sandbox(image=request.param, memory="3G", cell_timeout=120)
    try:
        made.start()
    except ImageMissing:
        if request.param != FULL:
            raise
        pytest.skip(f"{FULL} is not built: `sandbox-kernel build --kind full`")
    with made:
        for path in FILES.iterdir():
            if path.suffix != ".py":
                made.files.write(path.name, path.read_bytes())
        yield request.param, made
