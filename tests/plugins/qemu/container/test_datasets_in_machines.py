"""Folders of the host's in a machine: what is read of them, and that nothing else comes of them.

Emulated, so only `make test-qemu` runs these.
"""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import AbilityMissing
from sandbox_kernel.core.model import SandboxSpec
from sandbox_kernel.engines.abilities import Ability, demand
from sandbox_kernel.plugins.bubblewrap import arguments as bubblewrap
from sandbox_kernel.plugins.qemu import hardware
from sandbox_kernel.plugins.qemu.codes import SnapshotCode
from tests.plugins.qemu.container.test_hostile_guest import hostile  # noqa: F401 (a fixture)
from tests.plugins.qemu.engine import UNDER_TEST as QEMU
from tests.plugins.qemu.engine import machine_of_tests
from tests.support.datasets import a_folder, dataset
from tests.support.engines import ONLY, REPORT, alive, receive_line, report_sources

pytestmark = [
    pytest.mark.skipif(QEMU.name != ONLY, reason="machines are emulated: make test-qemu"),
    pytest.mark.timeout(300),
]

DEEDS = """
import errno, json, os, shutil, sys
os.chdir("/mnt/datasets/d")
said = {}
def attempt(name, deed):
    try:
        said[name] = deed()
    except OSError as error:
        said[name] = errno.errorcode[error.errno]
def read(path):
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        return os.read(fd, 100).decode()
    finally:
        os.close(fd)
for name in ("sub/a", "inside", "outside", "fifo", "socket", "null", "closed"):
    attempt("read " + name, lambda: read(name))
os.mkdir("/mnt/data/sub")
for top, kind in (("", "dataset"), ("/mnt/data/", "scratch")):
    attempt(kind + " create", lambda: bool(open(top + "new", "x")))
    attempt(kind + " change", lambda: open(top + "sub/a", "a").write("x"))
    attempt(kind + " mkdir", lambda: os.mkdir(top + "y"))
    attempt(kind + " link", lambda: os.symlink("sub/a", top + "z"))
    attempt(kind + " fifo", lambda: os.mkfifo(top + "w"))
    attempt(kind + " mode", lambda: os.chmod(top + "sub/a", 0o777))
    attempt(kind + " rename", lambda: os.rename(top + "sub", top + "bus"))
attempt("copy", lambda: os.path.basename(shutil.copy2("sub/a", "/mnt/data/copy")))
files = [os.open("sub/a", os.O_RDONLY) for _ in range(600)]
said["of many"] = {os.pread(fd, 5, 0).decode() for fd in files} == {"hello"}
said["names"] = sorted(os.listdir("."))
print(json.dumps(said), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder that others may read, and write to, with one of each kind of file."""
    with a_folder() as folder:
        (folder / "sub").mkdir()
        (folder / "sub" / "a").write_text("hello")
        (folder / "closed").write_text("not for others")
        (folder / "closed").chmod(0o600)
        (folder.parent / "beside").write_text("the host's")
        (folder / "inside").symlink_to("sub/a")
        (folder / "outside").symlink_to(folder.parent / "beside")
        os.mkfifo(folder / "fifo")
        if os.geteuid() == 0:
            os.mknod(folder / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
            (folder / "null").chmod(0o666)
        with socket.socket(socket.AF_UNIX) as sock:
            sock.bind(str(folder / "socket"))
        for each in (folder, folder / "sub", folder / "sub" / "a", folder.parent / "beside"):
            each.chmod(0o777)
        yield folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def spec_of(folder: Path, code: str, *arguments: str, **fields: Any) -> SandboxSpec:
    return QEMU.spec(code, *arguments, attached=dataset(folder, "d"), **fields)


async def test_what_others_may_read_is_read_and_nothing_is_written(folder: Path) -> None:
    async with alive(QEMU.make().start(spec_of(folder, DEEDS))) as container:
        said = json.loads(await receive_line(container))
        with pytest.raises(AbilityMissing) as raised:
            demand(Ability.SNAPSHOT, container)
        assert raised.value.code is SnapshotCode.SNAPSHOT_NOT_WHOLE
    read = {name: said[f"read {name}"] for name in ("sub/a", "inside", "outside", "fifo", "socket", "closed")}
    assert read == {
        "sub/a": "hello",
        "inside": "hello",
        "outside": "ENOENT",
        "fifo": "",
        "socket": "ENXIO",
        "closed": "EACCES",
    }
    assert said["read null"] == ("EACCES" if os.geteuid() == 0 else "ENOENT")
    deeds = ("create", "change", "mkdir", "link", "fifo", "mode", "rename")
    assert {said[f"dataset {deed}"] for deed in deeds} == {"EROFS"}
    assert "EROFS" not in {str(said[f"scratch {deed}"]) for deed in deeds}  # the control
    assert said["copy"] == "copy"
    assert said["of many"]
    assert said["names"] == names_in(folder)


async def test_the_folder_is_attested_from_both_sides(folder: Path) -> None:
    spec = spec_of(folder, REPORT, *report_sources())
    async with alive(QEMU.make().start(spec)) as container:
        report = json.loads(await receive_line(container))
        await container.attest(report, spec)
        (mount,) = [each for each in report["mounts"] if each["path"] == "/mnt/datasets/d"]
        assert {"ro", "nosuid", "nodev", "noexec"} <= set(mount["options"])
        for change in ({"identity": 0}, {"identity": None}, {"options": ["ro", "nodev"]}, {"type": "ext4"}):
            changed = [each | change if each is mount else each for each in report["mounts"]]
            assert not all(line.ok for line in await container.compare(report | {"mounts": changed}, spec))
        other = replace(spec, attached=())
        assert not all(line.ok for line in await container.compare(report, other))


@pytest.mark.skipif(os.geteuid() != 0, reason="the kernel tells root alone what is opened")
def test_each_cell_is_recorded_with_the_files_that_the_machine_had_opened(folder: Path, tmp_path: Path) -> None:
    audit, key = tmp_path / "audit.jsonl", tmp_path / "audit.key"
    settings: dict[str, Any] = {"audit": str(audit), "audit_key": str(key), "datasets": {"d": str(folder)}}
    with Sandbox(engine="qemu", image=machine_of_tests(), memory="512M", **settings) as sandbox:
        for code in ("open('/mnt/datasets/d/sub/a').read()", "1 + 1"):
            assert sandbox.run_code(code).error is None
    lines = [json.loads(line) for line in audit.read_text(encoding="utf-8").splitlines()]
    first, second = (line["id"] for line in lines if line["event"] == "cell")
    found = {
        cell: [one["path"] for one in line["files"]]
        for line in lines
        if line["event"] == "reads"
        for cell in line["cells"]
    }
    assert found.get(first) == ["d/sub/a"]
    assert second not in found


WITH_ALL_RIGHTS = """
began()
import errno, json
from container.confinement import mount
os.mkdir("/run/h")
mount("datasets", "/run/h", "9p", 0, "trans=virtio,version=9p2000.u,nodevmap,access=any")
said = {}
def attempt(name, deed):
    try:
        said[name] = deed()
    except OSError as error:
        said[name] = errno.errorcode[error.errno]
def read(path):
    with open("/run/h/d/" + path, "rb", buffering=0) as file:
        return file.read(100).decode()
attempt("fifo", lambda: read("fifo"))
attempt("null", lambda: read("null"))
attempt("closed", lambda: read("closed"))
attempt("above", lambda: sorted(os.listdir("/run/h")))
attempt("write", lambda: os.write(os.open("/run/h/d/sub/a", os.O_WRONLY), b"HELLO"))
attempt("after", lambda: read("sub/a"))
carry(json.dumps(said).encode() + b"\\n")
for_ever()
"""
"""With a dialect in which the machine's kernel takes a FIFO and a device for files, and has QEMU open them."""


@pytest.mark.parametrize("left", ["both", "the layer", "the device", "neither"])
async def test_a_machine_with_all_rights_writes_nothing_and_opens_no_special_file(
    left: str, folder: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Either of what keeps it from writing does so alone; without both, which is the control, it writes."""
    if left not in {"both", "the layer"}:

        def bound(wanted: Any, opened: Any) -> list[str]:
            paths = [one.path for one in wanted.attached]
            return [word for path in paths for word in ("--bind", opened[path], path)]

        monkeypatch.setattr(bubblewrap, "_datasets", bound)
    if left not in {"both", "the device"}:
        words = hardware.words

        def writing(*asked: Any, **more: Any) -> tuple[str, ...]:
            return tuple(
                word.replace("readonly=on,", "") if "id=datasets" in word else word for word in words(*asked, **more)
            )

        monkeypatch.setattr(hardware, "words", writing)
    container = await QEMU.make().start(
        spec_of(folder, DEEDS, image=request.getfixturevalue("hostile")(WITH_ALL_RIGHTS))
    )
    try:
        said = json.loads(await receive_line(container))
    finally:
        await container.kill()
    assert (said["fifo"] in {"ENXIO", ""}, said["above"]) == (True, ["d"])
    written = said["write"] == len("HELLO")
    assert written is (left == "neither")
    assert (folder / "sub" / "a").read_text() == said["after"] == ("HELLO" if written else "hello")
    if os.geteuid() == 0:  # else QEMU is this user, who may read it
        assert said["closed"] == "EACCES"
        assert said["null"] in {"ENXIO", "EACCES"}
