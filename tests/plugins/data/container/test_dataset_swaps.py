"""A dataset is the folder that was opened: whatever takes its place or its descriptor's is refused, or not seen."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.errors import AttestationFailed
from sandbox_kernel.engines import attachment
from sandbox_kernel.engines.base import Container
from sandbox_kernel.plugins.bubblewrap import launch
from tests.plugins.data.container.test_dataset_threats import WALLS
from tests.support.datasets import a_folder, dataset
from tests.support.engines import REPORT, alive, receive_line, report_sources

READS = "import json; print(json.dumps(open('/mnt/datasets/sales/whose').read()))"


@pytest.fixture(params=WALLS)
def wall(request: pytest.FixtureRequest) -> str:
    """Return the name of each kind of sandbox that is to be had here."""
    if why := WALLS[request.param].absent():
        pytest.skip(why)
    return str(request.param)


def change_names(monkeypatch: pytest.MonkeyPatch, wall: str, change: Callable[[dict[str, str]], None]) -> None:
    """Have an engine mount something else than what was opened, from the last moment before it mounts on."""
    if wall == "bubblewrap":
        machine = launch.machine

        def with_another(group: Any, layers: Any, space: Any, opened: dict[str, str]) -> Any:
            change(opened)
            return machine(group, layers, space, opened)

        monkeypatch.setattr(launch, "machine", with_another)
        return
    hold = attachment.hold

    def other(spec: Any, **which: bool) -> attachment.Attachment:
        held = hold(spec, **which)
        change(held.names)
        return held

    monkeypatch.setattr(attachment, "hold", other)


async def _attested(wall: str, folder: Path) -> None:
    spec = WALLS[wall].spec(REPORT, *report_sources(), environment={"TZ": "UTC"}, attached=dataset(folder))
    async with alive(WALLS[wall].make().start(spec)) as container:
        await container.attest(json.loads(await receive_line(container)), spec)


async def test_another_folder_is_never_taken_for_a_dataset(monkeypatch: pytest.MonkeyPatch, wall: str) -> None:
    """As where the engine is another machine's, or in another namespace: /proc/PID/fd/N is another process's there."""
    with a_folder("wanted") as folder, a_folder("other") as other, contextlib.ExitStack() as stack:
        (folder / "whose").write_text("wanted")
        while other.stat().st_ctime_ns == folder.stat().st_ctime_ns:
            os.utime(other)  # folders that were changed in one tick of the clock are not told apart
        await _attested(wall, folder)
        stack.callback(os.close, wrong := os.open(other, os.O_PATH))

        def change(names: dict[str, str]) -> None:
            names["/mnt/datasets/sales"] = str(other) if wall == "bubblewrap" else f"/proc/{os.getpid()}/fd/{wrong}"
            (folder / "more").touch()  # so that the folder itself is changed meanwhile, too

        change_names(monkeypatch, wall, change)
        with pytest.raises(AttestationFailed, match="folder of the dataset sales"):
            await _attested(wall, folder)


async def test_a_folder_that_is_swapped_before_the_mount_is_still_the_one(
    monkeypatch: pytest.MonkeyPatch, wall: str
) -> None:
    """What was opened is mounted, although its name leads to another folder by then."""
    with a_folder("wanted") as folder, a_folder("private") as private:
        (folder / "whose").write_text("wanted")
        (private / "whose").write_text("private")
        hold = attachment.hold

        def swapped(spec: Any, **which: bool) -> attachment.Attachment:
            held = hold(spec, **which)
            folder.rename(folder.parent / "moved")
            folder.symlink_to(private)
            return held

        monkeypatch.setattr(attachment, "hold", swapped)
        container: Container = await WALLS[wall].make().start(WALLS[wall].spec(READS, attached=dataset(folder)))
        try:
            assert json.loads(await receive_line(container)) == "wanted"
        finally:
            await container.kill()
        assert (folder / "whose").read_text() == "private"
