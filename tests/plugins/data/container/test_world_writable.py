"""A dataset that everybody on the host may write to is read in a sandbox, and not written to."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.engines.docker.engine import DockerEngine

WRITES = """
import errno, os
refused = []
for try_it in (lambda: open("/mnt/datasets/shared/new", "w"), lambda: open("/mnt/datasets/shared/there", "a"),
               lambda: os.unlink("/mnt/datasets/shared/there"), lambda: os.chmod("/mnt/datasets/shared/there", 0o600)):
    try:
        try_it()
    except OSError as error:
        refused.append(errno.errorcode[error.errno])
refused, open("/mnt/datasets/shared/there").read()
"""


@pytest.mark.parametrize("runtime", [None, "runsc"])
def test_a_folder_that_everybody_may_write_to_is_read_alone(tmp_path: Path, runtime: str | None) -> None:
    if runtime is not None and runtime not in asyncio.run(DockerEngine().info()).runtimes:
        pytest.skip("the engine has no runtime runsc: sandbox-kernel setup --gvisor")
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o1777)
    (folder / "there").write_text("as it was")
    (folder / "there").chmod(0o666)
    with Sandbox(image="sandbox-kernel:base", engine="docker", runtime=runtime, datasets={"shared": str(folder)}) as it:
        text = it.run_code(WRITES).text
    assert text is not None
    refused, content = eval(text)  # noqa: S307 (the sandbox is our own)
    assert len(refused) == 4
    assert set(refused) <= {"EROFS", "EPERM"}
    assert refused[:2] == ["EROFS"] * 2
    assert content == (folder / "there").read_text() == "as it was"
    assert [path.name for path in folder.iterdir()] == ["there"]
