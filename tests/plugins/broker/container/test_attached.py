"""Datasets and disks of a broker's sandboxes: by the operator's list, and by the rights of the user who asks."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import AsyncSandbox
from sandbox_kernel.core.errors import ConfigurationError, EngineError, QuotaExceeded
from sandbox_kernel.core.model import MIB
from sandbox_kernel.plugins.broker.client import packets
from sandbox_kernel.plugins.broker.codes import BrokerCode
from sandbox_kernel.plugins.data import disk_images
from sandbox_kernel.plugins.data.codes import DataCode
from tests.plugins.broker.brokers import Daemon, a_broker
from tests.plugins.broker.container.test_broker import as_nobody, asking, spec
from tests.plugins.broker.container.test_detached_threats import ask
from tests.support.engines import IMAGE

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
DISKS = pytest.mark.skipif(disk_images.available() is not None, reason=str(disk_images.available()))

FILE = """\
[all]
images = ["IMAGE"]
scratch_size = "64M"
scratch_total = "100M"
datasets = { open = "FOLDER/open", closed = "FOLDER/private/closed", gone = "FOLDER/gone" }
volumes = 2
volumes_size = "48M"
[user.root]
takes = ["nobody"]
"""


@pytest.fixture(scope="module")
def folders() -> Iterator[Path]:
    """Two datasets: one for everybody, one within a folder that is root's alone."""
    place = Path(tempfile.mkdtemp(prefix="datasets-"))
    place.chmod(0o755)
    for name in ("open", "private/closed"):
        (place / name).mkdir(parents=True)
        (place / name / "word").write_text(name, encoding="utf-8")
    (place / "private").chmod(0o700)
    yield place
    shutil.rmtree(place)


@pytest.fixture(scope="module")
def for_all(folders: Path) -> Iterator[Daemon]:
    file = folders / "broker.toml"
    file.write_text(FILE.replace("FOLDER", str(folders)).replace("IMAGE", IMAGE), encoding="utf-8")
    with a_broker("--for-all", "--pool", "1", "--file", str(file), "--state", f"{folders}/state") as daemon:
        daemon.folder.chmod(0o755)
        yield daemon


def wanting(*names: str, source: str = "", **more: Any) -> dict[str, Any]:
    """Return a request for a sandbox with datasets of these names."""
    attached = [["dataset", name, source, False] for name in names]
    said: dict[str, Any] = json.loads(asking(spec={**packets.asked(spec()), "attached": attached}))
    return said | more


async def word(sandbox: AsyncSandbox, name: str) -> str:
    return "".join((await sandbox.run_code(f"print(open('/mnt/datasets/{name}/word').read())")).logs.stdout).strip()


async def test_a_user_names_a_dataset_that_the_operator_lists(for_all: Daemon) -> None:
    async with AsyncSandbox(engine=for_all.address, image=IMAGE, datasets=["open", "closed"]) as sandbox:
        assert (await word(sandbox, "open"), await word(sandbox, "closed")) == ("open", "private/closed")
    assert (await for_all.engine().status())["datasets"] == ["closed", "gone", "open"]


async def test_what_a_user_cannot_read_by_himself_his_sandbox_cannot_either(for_all: Daemon) -> None:
    """The operator lists it for all, and root reads it through the same broker (above): that is the control."""
    refused, made = await as_nobody(for_all, wanting("closed"), wanting("open"))
    assert refused["refused"]["code"] == "dataset-not-opened"
    assert "Permission denied" in refused["refused"]["message"]
    assert len(made["id"]) > 0


async def test_a_folder_that_others_may_not_read_says_how_to_open_it(for_all: Daemon, folders: Path) -> None:
    (folders / "open").chmod(0o700)
    try:
        with pytest.raises(ConfigurationError, match=r"chmod -R o\+rX"):
            async with AsyncSandbox(engine=for_all.address, image=IMAGE, datasets="open"):
                pass
    finally:
        (folders / "open").chmod(0o755)


@pytest.mark.parametrize(
    ("name", "source", "code"),
    [
        ("open", "/etc", "broker-no-paths"),
        ("open", "{0}/open", "broker-no-paths"),
        ("other", "", "broker-denied"),
        ("gone", "", "dataset-not-opened"),
        ("../../etc", "", "broker-improper"),
        ("open/..", "", "broker-improper"),
    ],
)
async def test_nobody_chooses_a_folder_of_the_host(
    for_all: Daemon, folders: Path, name: str, source: str, code: str
) -> None:
    [said] = await as_nobody(for_all, wanting(name, source=source.format(folders)))
    assert said["refused"]["code"] == code


async def test_a_broker_of_one_s_own_takes_folders(folders: Path) -> None:
    with a_broker() as daemon:
        datasets = {"mine": f"{folders}/private/closed"}
        async with AsyncSandbox(engine=daemon.address, image=IMAGE, datasets=datasets) as sandbox:
            assert await word(sandbox, "mine") == "private/closed"
            with pytest.raises(QuotaExceeded) as caught:
                await AsyncSandbox(engine=daemon.address, image=IMAGE, datasets="mine").start()
            assert caught.value.code is BrokerCode.BROKER_DENIED


async def test_a_sandbox_with_a_dataset_is_none_that_waited(for_all: Daemon) -> None:
    async with AsyncSandbox(engine=for_all.address, image=IMAGE):
        pass
    [waiting] = await for_all.waiting()
    async with AsyncSandbox(engine=for_all.address, image=IMAGE, datasets="open") as sandbox:
        assert await word(sandbox, "open") == "open"
        running = {row.container for row in await for_all.engine().list() if row.state == "running"}
        assert waiting not in running
    async with AsyncSandbox(engine=for_all.address, image=IMAGE):  # the control: it is given to one without
        running = {row.container for row in await for_all.engine().list() if row.state == "running"}
        assert waiting in running


@pytest.fixture
async def left(for_all: Daemon) -> AsyncIterator[str]:
    """A detached sandbox with a dataset, that its owner left."""
    sandbox = await AsyncSandbox.create(engine=for_all.address, image=IMAGE, datasets="open", detached=True)
    await sandbox.run_code("kept = 41")
    await sandbox.detach()
    yield sandbox.id
    await AsyncSandbox.kill_by_id(sandbox.id, engine=for_all.address)


async def test_a_detached_sandbox_keeps_its_datasets_over_its_owner(for_all: Daemon, left: str) -> None:
    sandbox = await AsyncSandbox.connect(left, engine=for_all.address)
    assert await word(sandbox, "open") == "open"
    assert (await sandbox.run_code("kept + 1")).text == "42"


@pytest.mark.parametrize("names", [["open"], []])
async def test_another_user_takes_no_sandbox_over_that_has_data(for_all: Daemon, names: list[str]) -> None:
    """Whom the operator's file names takes over one that has none: that is the control."""
    name = ("d" if names else "e") * 32
    kept = {"name": name, "seconds": 60.0, "metadata": {}, "settings": json.dumps({"image": IMAGE}), "prepared": {}}
    [made] = await as_nobody(for_all, wanting(*names, kept=kept))
    assert made["id"]
    try:
        said = await ask(for_all, op="connect", name=name, take=True)
        assert said.get("refused", {}).get("code") == ("detached-has-data" if names else None)
        assert ("id" in said) is not bool(names)
    finally:
        await AsyncSandbox.kill_by_id(name, engine=for_all.address)


@DISKS
async def test_disks_are_counted_for_each_user(for_all: Daemon) -> None:
    """One is no larger than the operator allows, nor are all of a user's together. One that is gone is free again."""
    disk: dict[str, Any] = {"engine": for_all.address, "image": IMAGE, "scratch": "disk"}
    with pytest.raises(QuotaExceeded) as caught:
        await AsyncSandbox(scratch_size=65 * MIB, **disk).start()
    assert (caught.value.setting, caught.value.limit) == ("scratch_size", "64.0 MiB")
    for _ in range(2):
        async with AsyncSandbox(scratch_size=60 * MIB, **disk) as one:
            look = "import os; s = os.statvfs('/mnt/data'); print(s.f_blocks * s.f_frsize <= 60 << 20)"
            assert "".join((await one.run_code(look)).logs.stdout) == "True\n"
            with pytest.raises(QuotaExceeded) as caught:
                await AsyncSandbox(scratch_size=60 * MIB, **disk).start()
            assert (caught.value.limit, caught.value.setting) == ("100.0 MiB", "scratch_size")
            assert caught.value.set_by.endswith("[all]")
        await for_all.until(yours=0)


# --- volumes ----------------------------------------------------------------------------------------------------------


def wanting_volume(name: str, *, writable: bool) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        asking(spec={**packets.asked(spec()), "attached": [["volume", name, "", writable]]})
    )
    return said


def volume_command(daemon: Daemon, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sandbox_kernel", "volumes", *words, "--engine", daemon.address]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@DISKS
async def test_a_volume_is_its_user_s_alone_within_the_quota_and_outlives_the_broker(folders: Path) -> None:
    file, state = folders / "volumes.toml", folders / "state"
    file.write_text(FILE.replace("FOLDER", str(folders)).replace("IMAGE", IMAGE), encoding="utf-8")
    options = ("--for-all", "--file", str(file), "--state", str(state))
    with a_broker(*options) as daemon:
        daemon.folder.chmod(0o755)
        async with AsyncSandbox(engine=daemon.address, image=IMAGE, volumes="models:rw") as sandbox:
            assert (await sandbox.run_code("open('/mnt/volumes/models/word', 'w').write('kept')")).text == "4"
            with pytest.raises(EngineError) as caught:  # somebody writes it
                await daemon.engine().remove_volume("models")
            assert caught.value.code is DataCode.VOLUME_IN_USE
            daemon.kill()
    with a_broker(*options) as daemon:
        daemon.folder.chmod(0o755)
        async with AsyncSandbox(engine=daemon.address, image=IMAGE, volumes="models:ro") as sandbox:
            assert (await sandbox.run_code("open('/mnt/volumes/models/word').read()")).text == "'kept'"
        shown = await asyncio.to_thread(volume_command, daemon, "ls")
        assert (shown.returncode, shown.stdout.split()[0]) == (0, "models")
        more = await asyncio.to_thread(volume_command, daemon, "create", "more", "--size", "16M")
        assert more.returncode != 0
        assert "48.0 MiB of all volumes" in more.stderr
        [row] = await daemon.engine().volumes()
        assert (row.name, row.size_bytes) == ("models", 48 * MIB)
        with pytest.raises(EngineError) as caught:
            await AsyncSandbox(engine=daemon.address, image=IMAGE, volumes="more:rw").start()
        assert (caught.value.code, caught.value.limit) == (DataCode.VOLUME_QUOTA, "48.0 MiB of all volumes")
        listed, read, removed, written, again = await as_nobody(
            daemon,
            {"op": "volumes"},
            wanting_volume("models", writable=False),
            {"op": "remove_volume", "name": "models"},
            wanting_volume("models", writable=True),
            {"op": "volumes"},
        )
        assert listed["rows"] == []
        assert read["refused"]["code"] == removed["refused"]["code"] == "volume-not-here"
        assert written["id"]  # one of its own, of the same name
        assert [row[0] for row in again["rows"]] == ["models"]
        assert sorted(path.name for path in (state / "volumes").iterdir()) == ["0", "65534"]
        gone = await asyncio.to_thread(volume_command, daemon, "rm", "models", "--yes")
        assert (gone.returncode, gone.stdout) == (0, "removed models\n")
        assert await daemon.engine().volumes() == ()
        assert [row.name for row in (state / "volumes" / "65534").glob("*.ext4")] == ["models.ext4"]


@pytest.mark.parametrize("name", ["../0/models", "/etc", "", ".", "a/b", "x" * 64])
async def test_a_name_of_a_volume_leads_out_of_no_folder(for_all: Daemon, name: str) -> None:
    removed, made = await as_nobody(
        for_all, {"op": "remove_volume", "name": name}, {"op": "create_volume", "name": name, "size": 16 * MIB}
    )
    for said in (removed, made):
        assert said["refused"]["code"] == "volume-not-opened"
