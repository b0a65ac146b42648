"""Volumes in real sandboxes: who may use one, what it keeps, what it has of the host, and its archives."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tarfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import pytest

from sandbox_kernel import Sandbox
from sandbox_kernel.cli.program import main
from sandbox_kernel.core.errors import EngineError, SandboxError
from sandbox_kernel.core.model import MIB, SCRATCH, Attached, Limits, SandboxSpec
from sandbox_kernel.engines import attachment
from sandbox_kernel.engines.base import AttestationCheck
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.bubblewrap.discovery import bubblewrap_program
from sandbox_kernel.plugins.data import volume_command, volumes
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support.engines import IMAGE, REPORT, alive, new_spec, receive_line, report_sources
from tests.support.kernels import eventually
from tests.support.remedies import only
from tests.support.roots import root_of_tests

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has loop devices and mounts")

NO_GVISOR = "runsc" not in asyncio.run(DockerEngine().info()).runtimes
WALLS = [
    "docker",
    pytest.param("runsc", marks=pytest.mark.skipif(NO_GVISOR, reason="the engine has no runtime runsc")),
    pytest.param("bubblewrap", marks=pytest.mark.skipif(bubblewrap_program() is None, reason="there is no bubblewrap")),
]


@pytest.fixture(autouse=True)
def owned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Volumes:
    """The volumes of the tests' user, with one of 64 MiB."""
    monkeypatch.setattr(volumes, "default_folder", lambda: str(tmp_path / "volumes"))
    found = volumes.of_user()
    found.create("models", 64 * MIB)
    return found


def sandbox(mode: str, engine: str = "docker", runtime: str | None = None) -> Sandbox:
    image = root_of_tests() if engine == "bubblewrap" else IMAGE
    return Sandbox(engine=engine, image=image, volumes={"models": mode}, runtime=runtime)


@pytest.mark.parametrize("wall", WALLS)
def test_what_one_session_writes_others_read_and_do_not_change(wall: str, owned: Volumes) -> None:
    engine, runtime = ("docker", wall) if wall == "runsc" else (wall, None)
    with sandbox("rw", engine, runtime=runtime) as one:
        done = one.run_code("import os; open('/mnt/volumes/models/a', 'w').write('kept'); os.getuid()")
        assert done.text == str(owned.uid())
        for mode in ("rw", "ro"):
            with pytest.raises(SandboxError) as caught, sandbox(mode, engine, runtime=runtime) as other:
                other.run_code("1")
            assert caught.value.code is DataCode.VOLUME_IN_USE
    with sandbox("ro", engine, runtime=runtime) as one, sandbox("ro", engine, runtime=runtime) as two:
        for each in (one, two):
            assert each.run_code("open('/mnt/volumes/models/a').read()").text == "'kept'"
            done = each.run_code("open('/mnt/volumes/models/b', 'w')")
            assert done.error is not None
            assert "Read-only" in done.error.value
    assert owned.list()[0].used_by == ""


def test_setuid_files_devices_and_more_than_its_size_do_not_fit(owned: Volumes) -> None:
    with sandbox("rw") as one:
        one.run_code("import os; path = '/mnt/volumes/models/'")
        options = one.run_code(
            "[l.split()[5] for l in open('/proc/self/mountinfo') if ' /mnt/volumes/models ' in l][0]"
        )
        assert {"rw", "nosuid", "nodev"} <= set(str(options.text).strip("'").split(","))
        assert one.run_code("os.mknod(path + 'null', 0o20666, os.makedev(1, 3))").error is not None
        full = one.run_code("open(path + 'big', 'wb').write(bytes(80 << 20))")
        assert full.error is not None
        assert "No space left" in full.error.value
    assert owned.list()[0].size_bytes == 64 * MIB


def test_an_archive_goes_out_and_in_and_its_names_are_never_the_hosts(tmp_path: Path, owned: Volumes) -> None:
    escape, archive = tmp_path / "escaped", tmp_path / "hostile.tar"
    with tarfile.open(archive, "w") as tar:
        for name, text in (("deep/file", b"content"), ("big", bytes(20 * MIB))):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text))
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert main(["volumes", "import", "copy", str(archive), "--size", "64M", "--engine", "docker"]) == 0
    assert main(["volumes", "export", "copy", str(tmp_path / "out.tar"), "--engine", "docker"]) == 0
    with tarfile.open(tmp_path / "out.tar") as tar:
        assert sorted(tar.getnames()) == ["big", "deep", "deep/file", "link"]
        file = tar.extractfile("deep/file")
        assert file is not None
        assert file.read() == b"content"
        assert tar.getmember("link").linkname == "/etc/passwd"
        assert tar.getmember("big").size == 20 * MIB

    with tarfile.open(archive, "w") as tar:
        member = tarfile.TarInfo(f"../../..{escape}")
        tar.addfile(member, io.BytesIO())
    assert main(["volumes", "import", "other", str(archive), "--size", "64M", "--engine", "docker"]) != 0
    assert not escape.exists()
    assert [one.name for one in owned.list()] == ["copy", "models"]


def test_a_file_with_a_hole_does_not_make_an_archive_without_an_end(tmp_path: Path) -> None:
    with sandbox("rw") as one:
        assert one.run_code("open('/mnt/volumes/models/hole', 'wb').truncate(1 << 40)").error is None
    assert main(["volumes", "export", "models", str(tmp_path / "out.tar"), "--engine", "docker"]) != 0
    assert not (tmp_path / "out.tar").exists()


def test_files_that_are_not_to_be_exported_keep_no_other_from_an_archive(
    tmp_path: Path, owned: Volumes, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each of them is a cell's to make; without them in the archive, the rest goes out and in."""
    with sandbox("rw") as one:
        done = one.run_code(HOSTILE_FILES)
        assert done.error is None
    out = tmp_path / "out.tar"
    assert main(["volumes", "export", "models", str(out), "--engine", "docker"]) == 1
    assert "its path is too long" in capsys.readouterr().err
    assert main(["volumes", "import", "copy", str(out), "--size", "64M", "--engine", "docker"]) == 0
    with tarfile.open(out) as tar:
        names = set(tar.getnames())
    assert {"kept", "a\nb", "\udcff\udcfe", "open", "open too"} <= names
    assert not {"closed", "closed too"} & names


HOSTILE_FILES = """
import os, tarfile

os.chdir("/mnt/volumes/models")
for name in (b"kept", b"a\\nb", b"\\xff\\xfe", b"open", b"closed"):
    open(name, "w").close()
for name in ("open", "closed"):
    os.link(name, name + " too")
os.chmod("closed", 0)
folder = os.open(".", os.O_RDONLY)
for _ in range(25):
    os.mkdir("n" * 200, dir_fd=folder)
    folder = os.open("n" * 200, os.O_RDONLY, dir_fd=folder)
"""


def test_what_has_content_is_removed_with_yes_and_not_while_it_is_used(
    owned: Volumes, capsys: pytest.CaptureFixture[str]
) -> None:
    with sandbox("rw") as one:
        one.run_code("open('/mnt/volumes/models/a', 'wb').write(bytes(1 << 20))")
        assert main(["volumes", "rm", "models", "--yes"]) != 0
        assert "is in use" in capsys.readouterr().err
    assert main(["volumes", "rm", "models"]) != 0
    assert "has content" in capsys.readouterr().err
    removes = shlex.split(only(DataCode.VOLUME_NOT_EMPTY.remedy).replace("NAME", "models"))
    assert main(["volumes", "ls"]) == 0
    assert capsys.readouterr().out.startswith("models  1.0 MiB of 64.0 MiB  not in use")
    assert main(removes[1:]) == 0
    assert owned.list() == ()


def test_what_a_refusal_of_a_volume_says_is_done(owned: Volumes, capsys: pytest.CaptureFixture[str]) -> None:
    """The one that is missing is made, those that are there are listed, and one is removed."""
    owned.remove("models")
    with pytest.raises(EngineError) as caught, sandbox("ro"):
        pass
    assert caught.value.code is DataCode.VOLUME_NOT_HERE
    for code, name in ((DataCode.VOLUME_NOT_HERE, "models"), (DataCode.VOLUME_NOT_MADE, "small")):
        assert main(shlex.split(only(code.remedy).replace("NAME", name))[1:]) == 0
    with sandbox("ro") as one:
        assert one.run_code("print(6 * 7)").logs.stdout == ["42\n"]
    assert main(shlex.split(only(DataCode.VOLUME_NOT_OPENED.remedy))[1:]) == 0
    assert capsys.readouterr().out.count("not in use") == 2
    assert main(shlex.split(only(DataCode.VOLUME_QUOTA.remedy).replace("NAME", "small"))[1:]) == 0
    assert [one.name for one in owned.list()] == ["models"]


def part_of(owned: Volumes) -> str:
    """Return the name of what an import fills just now."""
    eventually(lambda: len(owned.list()) > 1 and owned.list()[0].used_by, 30, "a sandbox has it")
    return owned.list()[0].name


def device_of(owned: Volumes, name: str) -> str:
    for one in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # it ends just now
            if one.read_text(encoding="utf-8").strip() == f"{owned.folder}/{name}.ext4":
                return f"/dev/{one.parts[3]}"
    return ""


@pytest.mark.parametrize("let_go", [True, False], ids=["for_a_moment", "for_longer"])
def test_an_import_that_fails_while_its_device_lingers_makes_no_volume(
    let_go: bool, tmp_path: Path, owned: Volumes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lingers: list[int] = []
    remove = Volumes.remove

    def refused_once(self: Volumes, name: str) -> None:
        try:
            remove(self, name)
        except EngineError:
            if let_go and lingers:
                os.close(lingers.pop())
            raise

    monkeypatch.setattr(Volumes, "remove", refused_once)
    monkeypatch.setattr(volume_command, "LINGER_SECONDS", 30.0 if let_go else 0.0)
    os.mkfifo(tmp_path / "archive")
    words = ["volumes", "import", "copy", str(tmp_path / "archive"), "--size", "64M", "--engine", "docker"]
    with ThreadPoolExecutor(1) as thread:
        importing = thread.submit(main, words)
        with (tmp_path / "archive").open("wb", buffering=0) as archive:
            part = part_of(owned)
            eventually(lambda: device_of(owned, part), 30, "its device is there, a moment after its lock")
            lingers.append(os.open(device_of(owned, part), os.O_RDONLY))
            archive.write(b"no archive" * 1000)
        assert importing.result() != 0
    assert [one.name for one in owned.list()] == (["models"] if let_go else [part, "models"])
    assert bool(lingers) is not let_go
    said = capsys.readouterr().err
    if let_go:
        assert "which is not made: ReadError: " in said
        return
    assert f"is left as {part}" in said
    os.close(lingers.pop())
    with pytest.raises(SandboxError) as caught, Sandbox(engine="docker", image=IMAGE, volumes={"copy": "ro"}) as one:
        one.run_code("1")
    assert caught.value.code is DataCode.VOLUME_NOT_HERE
    assert main(["volumes", "rm", part, "--yes"]) == 0


def test_an_import_that_is_killed_leaves_nothing_of_that_name(tmp_path: Path, owned: Volumes) -> None:
    os.mkfifo(tmp_path / "archive")
    code = (
        "import sys; from sandbox_kernel.cli.program import main; from sandbox_kernel.plugins.data import volumes\n"
        "volumes.default_folder = lambda: sys.argv[1]\n"
        "main(['volumes', 'import', 'copy', sys.argv[2], '--size', '64M', '--engine', 'docker'])"
    )
    words = [sys.executable, "-c", code, owned.folder, str(tmp_path / "archive")]
    with subprocess.Popen(words) as importing, (tmp_path / "archive").open("wb", buffering=0):
        part = part_of(owned)
        importing.kill()
    eventually(lambda: not owned.list()[0].used_by, 30, "its sandbox has ended")
    assert [one.name for one in owned.list()] == [part, "models"]
    assert part.startswith("copy.part-")
    owned.rename(part, "copy")  # as a whole one is at last
    assert [one.name for one in owned.list()] == ["copy", "models"]


@pytest.mark.parametrize("wall", WALLS[:2])
@pytest.mark.parametrize("scratch", ["memory", "disk"])
async def test_a_disk_of_another_name_is_refused_on_docker(
    owned: Volumes, monkeypatch: pytest.MonkeyPatch, scratch: Literal["memory", "disk"], wall: str
) -> None:
    """As where the engine is another machine's: /dev/loopN is another disk there."""
    place, name = SCRATCH, "disk of scratch"
    attached: tuple[Attached, ...] = ()
    if scratch == "memory":
        place, name = "/mnt/volumes/models", "folder of the volume models"
        attached = (Attached(kind="volume", name="models", source=owned.folder, writable=True),)
    owned.create("other", 64 * MIB)
    limits, runtime = Limits(scratch=scratch, scratch_size=64 * MIB), None
    if wall == "runsc":
        runtime, name = wall, f"engine: disk at {place}"
    what = {"limits": limits, "uid": owned.uid(), "attached": attached, "runtime": runtime}
    spec = new_spec(REPORT, *report_sources(), **what)
    hold = attachment.hold

    async def lines() -> list[AttestationCheck]:
        async with alive(DockerEngine().start(spec)) as container:
            return [
                one
                for one in await container.compare(json.loads(await receive_line(container)), spec)
                if one.name == name
            ]

    assert [one.ok for one in await lines()] == [True]
    other = owned.attach("other", writable=True)

    def another(spec: SandboxSpec) -> attachment.Attachment:
        held = hold(spec)
        held.names[place] = other.path
        return held

    monkeypatch.setattr(attachment, "hold", another)
    try:
        assert [one.ok for one in await lines()] == [False]
    finally:
        os.close(other.fd)
