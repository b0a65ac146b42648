"""Files of any size in and out through the SDK: told how far, checked by hash, resumed, and in little memory."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel import FileRefused, Sandbox, SandboxDied
from sandbox_kernel.core.codes import EndCode, FileCode
from sandbox_kernel.files import scratch_files
from sandbox_kernel.files.file_rules import CHUNK_BYTES
from sandbox_kernel.sdk.file_copies import Progress
from tests.support.kernels import containers_of

MIB = 1 << 20
OLD_WALL = 256 * MIB


@pytest.fixture(scope="module")
def sandbox(image: str) -> Iterator[Sandbox]:
    with Sandbox(image=image, memory="2G", scratch_size="1G") as sandbox:
        yield sandbox


def made(path: Path, size: int) -> str:
    """Write a file whose pieces all differ, and return its hash."""
    digest, piece = hashlib.sha256(), os.urandom(4 * MIB)
    with path.open("wb") as file:
        for number in range(0, size, len(piece)):
            part = (number.to_bytes(8, "big") + piece)[: min(len(piece), size - number)]
            digest.update(part)
            file.write(part)
    return digest.hexdigest()


def peak() -> int:
    """Return the most memory of this process since it was last cleared, in bytes."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def measured(what: str, copy: Callable[[], object], size: int) -> tuple[float, int]:
    """Return the MB/s of a copy and how much memory this process grew by."""
    Path("/proc/self/clear_refs").write_text("5")
    before, begin = peak(), time.monotonic()
    copy()
    rate, grown = size / MIB / (time.monotonic() - begin), peak() - before
    print(f"{what}: {rate:.0f} MiB/s, {grown >> 20} MiB more")
    return rate, grown


def agent_peak(sandbox: Sandbox) -> int:
    """Return the most memory of process 1 of the sandbox, in bytes."""
    [line] = [line for line in sandbox.files.read("status").splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) << 10


def there_and_back(sandbox: Sandbox, folder: Path, size: int) -> None:
    source, copy = folder / "source", folder / "copy"
    digest = made(source, size)
    measured("cp", lambda: shutil.copyfile(source, copy), size)
    copy.unlink()
    told: list[Progress] = []
    grown = [measured("upload", lambda: sandbox.files.upload(source, "in", progress=told.append), size)[1]]
    assert told[-1] == Progress("in", size, size, digest)
    assert [one.done for one in told] == sorted(one.done for one in told)
    assert len(told) >= size // CHUNK_BYTES
    told.clear()
    grown.append(measured("download", lambda: sandbox.files.download("in", copy, progress=told.append), size)[1])
    assert told[-1] == Progress("in", size, size, digest)
    with copy.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert max(grown) < 64 * MIB
    sandbox.run_code("import shutil; shutil.copyfile('/proc/1/status', 'status')")
    assert agent_peak(sandbox) < 96 * MIB


def test_a_file_over_the_former_wall_goes_in_and_out_in_little_memory(sandbox: Sandbox, tmp_path: Path) -> None:
    there_and_back(sandbox, tmp_path, 300 * MIB)
    with pytest.raises(FileRefused, match="stream") as caught:
        sandbox.files.read("in", "bytes")
    assert caught.value.code is FileCode.LARGER_THAN_MEMORY
    with pytest.raises(FileRefused):
        sandbox.files.read_part("in", 5, OLD_WALL + 1)
    assert sum(map(len, sandbox.files.read("in", "stream"))) == 300 * MIB
    sandbox.files.remove("in")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a scratch on a disk needs root")
def test_three_gigabytes_go_in_and_out_in_little_memory(image: str, tmp_path: Path) -> None:
    with Sandbox(image=image, engine="docker", scratch="disk", scratch_size="8G") as sandbox:
        there_and_back(sandbox, tmp_path, 3 << 30)


def through_folders(image: str, folder: Path, size: int, **settings: Any) -> None:
    up, down = folder / "up", folder / "down"
    up.mkdir()
    down.mkdir()
    digest = made(up / "in", size)
    with Sandbox(image=image, uploads=str(up), downloads=str(down), **settings) as sandbox:
        sandbox.run_code("import os")
        Path("/proc/self/clear_refs").write_text("5")
        before, begin = peak(), time.monotonic()
        execution = sandbox.run_code("os.link('in', 'kept'); os.unlink('in'); os.rename('kept', 'out')")
        rate, grown = size / MIB / (time.monotonic() - begin), peak() - before
        print(f"downloads: {rate:.0f} MiB/s, {grown >> 20} MiB more")
    assert execution.error is None
    with (down / "out").open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == digest
    assert grown < 64 * MIB


@pytest.mark.long
def test_folders_carry_a_file_over_the_former_wall(image: str, tmp_path: Path) -> None:
    through_folders(image, tmp_path, 300 * MIB, memory="2G", scratch_size="1G")


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="a scratch on a disk needs root")
def test_folders_carry_three_gigabytes(image: str, tmp_path: Path) -> None:
    through_folders(image, tmp_path, 3 << 30, engine="docker", scratch="disk", scratch_size="8G")


def test_a_hash_that_is_another_one_leaves_no_file(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    digest = made(source, 3 * MIB + 1)
    wrong = "0" * 64
    for refused in (
        lambda: sandbox.files.upload(source, "hashed", sha256=wrong),
        lambda: sandbox.files.write("hashed", b"x", sha256=wrong),
    ):
        with pytest.raises(FileRefused) as caught:
            refused()
        assert caught.value.code is FileCode.HASH_DIFFERS
    assert not sandbox.files.exists("hashed")
    sandbox.files.upload(source, "hashed", sha256=digest.upper())
    with pytest.raises(FileRefused) as caught:
        sandbox.files.download("hashed", tmp_path / "out", sha256=wrong)
    assert caught.value.code is FileCode.HASH_DIFFERS
    assert [path.name for path in tmp_path.iterdir()] == ["source"]
    sandbox.files.download("hashed", tmp_path / "out", sha256=digest)
    assert (tmp_path / "out").read_bytes() == source.read_bytes()


def test_a_callback_that_raises_ends_a_copy_and_leaves_no_part(sandbox: Sandbox, tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(progress: Progress) -> None:
        if progress.done >= 2 * MIB:
            raise Enough

    source = tmp_path / "source"
    made(source, 9 * MIB)
    with pytest.raises(Enough):
        sandbox.files.upload(source, "stopped", progress=stop)
    assert not sandbox.files.exists("stopped")
    listed = sandbox.run_code("import os; [name for name in os.listdir() if name.startswith('.upload-')]")
    assert listed.text == "[]"
    sandbox.files.upload(source, "stopped")
    for resume in (False, True):
        with pytest.raises(Enough):
            sandbox.files.download("stopped", tmp_path / "out", progress=stop, resume=resume)
        assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_no_room_in_the_middle_of_a_file_leaves_no_part_of_it(image: str) -> None:
    class Unsized(io.BytesIO):
        """Content whose size nobody knows before its end, so that the agent cannot refuse it at once."""

    with Sandbox(image=image, memory="512M", scratch_size="8M") as sandbox:
        sandbox.files.write("first", bytes(4 * MIB))
        with pytest.raises(FileRefused) as caught:
            sandbox.files.write("second", Unsized(bytes(7 * MIB)))
        assert caught.value.code is FileCode.SCRATCH_FULL
        assert sandbox.run_code("import os; sorted(os.listdir())").text == "['first']"
        sandbox.files.write("second", Unsized(bytes(3 * MIB)))


@pytest.mark.parametrize("way", ["up", "down"])
def test_a_sandbox_that_dies_in_the_middle_ends_a_copy(image: str, tmp_path: Path, way: str) -> None:
    (tmp_path / "source").write_bytes(bytes(30 * MIB))
    with Sandbox(image=image, engine="docker", memory="512M") as sandbox:
        if way == "down":
            sandbox.files.upload(tmp_path / "source", "a")

        def kill(progress: Progress) -> None:
            if progress.done == 3 * MIB:
                [found] = [one for one in containers_of(os.getpid()) if one.session == sandbox.id]
                subprocess.run(["docker", "kill", found.container], check=True, capture_output=True)

        copies: dict[str, Callable[[], object]] = {
            "up": lambda: sandbox.files.upload(tmp_path / "source", "a", progress=kill),
            "down": lambda: sandbox.files.download("a", tmp_path / "out", progress=kill),
        }
        with pytest.raises(SandboxDied):
            copies[way]()
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_a_callback_may_use_the_sandbox(sandbox: Sandbox) -> None:
    seen = []
    sandbox.files.write("a", bytes(2 * MIB), progress=lambda one: seen.append(sandbox.files.exists("none")))
    assert seen == [False, False, False]


def test_an_upload_goes_on_where_it_was_cut_off(sandbox: Sandbox, tmp_path: Path) -> None:
    """A process that is killed says no more: the part of the file that it sent stays there."""
    source = tmp_path / "source"
    digest = made(source, 9 * MIB)
    with pytest.MonkeyPatch.context() as patch:

        async def silent(ask: object, token: str, place: object = None) -> None:
            pass

        def stop(progress: Progress) -> None:
            if progress.done >= 5 * MIB:
                raise KeyError

        patch.setattr(scratch_files, "discard", silent)
        with pytest.raises(KeyError):
            sandbox.files.upload(source, "cut", progress=stop, resume=True)
    told: list[Progress] = []
    sandbox.files.upload(source, "cut", progress=told.append, resume=True, sha256=digest)
    assert told[0].done > 5 * MIB
    assert told[-1] == Progress("cut", 9 * MIB, 9 * MIB, digest)
    assert hashlib.sha256(sandbox.files.read("cut", "bytes")).hexdigest() == digest


def test_an_upload_of_a_file_that_has_changed_begins_again(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    made(source, 3 * MIB)
    with pytest.MonkeyPatch.context() as patch:

        async def silent(ask: object, token: str, place: object = None) -> None:
            pass

        def stop(progress: Progress) -> None:
            raise KeyError

        patch.setattr(scratch_files, "discard", silent)
        with pytest.raises(KeyError):
            sandbox.files.upload(source, "again", progress=stop, resume=True)
    digest = made(source, 3 * MIB)
    told: list[Progress] = []
    sandbox.files.upload(source, "again", progress=told.append, resume=True)
    assert (told[0].done, told[-1].sha256) == (MIB, digest)


def test_a_download_goes_on_where_its_sandbox_was_lost(image: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with Sandbox(image=image, memory="512M") as sandbox:
        sandbox.files.write("a", os.urandom(9 * MIB))
        digest = hashlib.sha256(sandbox.files.read("a", "bytes")).hexdigest()
        read = scratch_files.call
        with pytest.MonkeyPatch.context() as patch:

            async def lost(ask: Any, op: str, data: bytes = b"", **fields: Any) -> Any:
                if fields["offset"] >= 4 * MIB:
                    raise SandboxDied(EndCode.SANDBOX_DIED)
                return await read(ask, op, data, **fields)

            patch.setattr(scratch_files, "call", lost)
            with pytest.raises(SandboxDied):
                sandbox.files.download("a", out, resume=True)
        [part] = tmp_path.iterdir()
        assert (part.name.endswith(".part"), part.stat().st_size) == (True, 4 * MIB)
        told: list[Progress] = []
        sandbox.files.download("a", out, resume=True, progress=told.append, sha256=digest)
        assert (told[0].done, [path.name for path in tmp_path.iterdir()]) == (5 * MIB, ["out"])
        assert hashlib.sha256(out.read_bytes()).hexdigest() == digest
