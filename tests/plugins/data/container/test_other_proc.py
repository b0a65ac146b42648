"""Docker where it sees another /proc than this process: data is there, or refused by a code, and never mistaken."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox_kernel.core.codes import EndCode
from sandbox_kernel.core.errors import EngineError
from sandbox_kernel.core.model import MIB
from sandbox_kernel.engines.attachment import Attachment
from sandbox_kernel.engines.docker import engine as engine_module
from sandbox_kernel.engines.docker.ahead import ask_ahead
from sandbox_kernel.engines.docker.discovery import socket_path
from sandbox_kernel.engines.docker.engine import DockerEngine
from sandbox_kernel.plugins.data import disk_images
from sandbox_kernel.plugins.data.codes import DataCode
from sandbox_kernel.plugins.data.volumes import Volumes
from tests.support.containers import SOCKET, in_container
from tests.support.datasets import dataset
from tests.support.engines import IMAGE, alive, containers_of, new_spec, receive_line
from tests.support.processes import python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root makes these namespaces")
no_disks = pytest.mark.skipif(disk_images.available() is not None, reason=f"no disks: {disk_images.available()}")

INSIDE = """
import glob, json, os, sys
from sandbox_kernel import Sandbox
from sandbox_kernel.core.errors import SandboxError
from sandbox_kernel.plugins.data import volumes
settings, code, folder, space = json.loads(sys.argv[1])
volumes.default_folder = lambda: folder
try:
    with Sandbox(engine="docker", **settings) as sandbox:
        texts = [sandbox.run_code(code).text]
    with Sandbox(engine="docker", **settings) as sandbox:  # the engine is known by then
        print(json.dumps([*texts, sandbox.run_code(code).text]))
except SandboxError as error:
    print(json.dumps([str(error.code), error.message]))
if (own := os.stat("/proc/self/ns/pid").st_ino) != space:  # no other process uses its empty folder
    for path in glob.glob(f"/var/lib/sandbox-kernel/empty-*-{own}"):
        os.rmdir(path)
"""
NAMESPACES = {
    "of PIDs": ("unshare", "--pid", "--fork", "--kill-child", "--mount", "--mount-proc"),
    "of mounts": ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs -o mode=1777 none /tmp; exec "$@"', "sh"),
}
WRITES = "open('/mnt/volumes/models/a', 'a').write('kept')"
READS = "open('/mnt/datasets/sales/whose').read()"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with two datasets, `wanted` and `other`, where no namespace here has one of its own."""
    with tempfile.TemporaryDirectory(prefix="sandbox-kernel-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        for name in ("wanted", "other", "empty"):
            Path(folder, name).mkdir(mode=0o755)
        for name in ("wanted", "other"):
            Path(folder, name, "whose").write_text(name)
        yield Path(folder)


def asked(place: Path, code: str, **settings: Any) -> list[str]:
    """Return the program that starts sandboxes in another place."""
    space = Path("/proc/self/ns/pid").stat().st_ino
    return ["-c", INSIDE, json.dumps([{"image": IMAGE, **settings}, code, str(place / "volumes"), space])]


def answer(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("words", NAMESPACES.values(), ids=NAMESPACES)
@pytest.mark.parametrize(
    ("settings", "code", "text"),
    [
        pytest.param({"datasets": "sales={}/wanted"}, READS, "'wanted'", id="dataset"),
        pytest.param({"volumes": "models:rw"}, WRITES, "4", id="volume", marks=no_disks),
        pytest.param(
            {"scratch": "disk", "scratch_size": "64M"},
            "[line.split()[2] for line in open('/proc/mounts') if ' /mnt/data ' in line]",
            "['ext4']",
            id="disk",
            marks=no_disks,
        ),
    ],
)
def test_data_is_there_from_another_namespace(
    words: tuple[str, ...], settings: dict[str, str], code: str, text: str, place: Path
) -> None:
    settings = {name: value.format(place) for name, value in settings.items()}
    if "volumes" in settings:
        Volumes(str(place / "volumes")).create("models", 64 * MIB)
    done = subprocess.run(
        [*words, sys.executable, *asked(place, code, **settings)], capture_output=True, text=True, check=False
    )
    assert answer(done) == [text, text]


def test_a_dataset_is_there_in_a_container_that_has_the_folder_at_the_machine_s_path(place: Path) -> None:
    """What refuses one that has it not says the option that gives it."""
    program = asked(place, READS, datasets=f"sales={place}/wanted")
    bare = "import os, sys; os.makedirs(sys.argv.pop(2), 0o755); " + program.pop(1)
    code, why = answer(in_container(["-c", bare, *program[1:], f"{place}/wanted"], *SOCKET))
    assert code == EndCode.FOLDER_NOT_MOUNTED.code
    option = re.search(r"`(--volume \S+)`", why)
    assert option is not None
    program = asked(place, READS, datasets=f"sales={place}/wanted")
    assert answer(in_container(program, *SOCKET, *option[1].split())) == ["'wanted'", "'wanted'"]


@pytest.mark.parametrize(
    ("given", "at", "code"),
    [
        pytest.param("wanted", "elsewhere", EndCode.FOLDER_NOT_MOUNTED, id="which_the_engine_has_elsewhere"),
        pytest.param("wanted", "other", EndCode.ATTESTATION_FAILED, id="which_the_engine_has_as_another"),
    ],
)
def test_a_folder_of_a_container_s_is_refused(given: str, at: str, code: EndCode, place: Path) -> None:
    program = asked(place, READS, datasets=f"sales={place}/{at}")
    found, why = answer(in_container(program, *SOCKET, "--volume", f"{place}/{given}:{place}/{at}"))
    assert found == code.code
    assert f"{place}/{at}" in why or "which the engine has at its path" in why


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"scratch": "disk", "scratch_size": "64M"}, EndCode.DISK_NOT_MADE),
        ({"volumes": "models:rw"}, DataCode.VOLUMES_UNUSABLE),
    ],
    ids=["disk", "volume"],
)
def test_a_disk_in_a_container_without_devices_is_refused_with_what_brings_them(
    settings: dict[str, str], code: EndCode, place: Path
) -> None:
    found, why = answer(in_container(asked(place, "1", **settings), *SOCKET))
    assert found == code.code
    assert "`--privileged --volume /dev:/dev`" in why


@pytest.fixture
def unseen(monkeypatch: pytest.MonkeyPatch) -> list[Attachment]:
    """Have Docker find no process of this one's number, as in another PID namespace; return what is opened."""
    keep = Attachment.keep
    opened: list[Attachment] = []

    def renamed(held: Attachment, path: str, *what: Any) -> None:
        keep(held, path, *what)
        opened[:] = [*(one for one in opened if one is not held), held]
        held.names[path] = held.names[path].replace(f"/proc/{os.getpid()}/", "/proc/99999999/")

    monkeypatch.setattr(Attachment, "keep", renamed)
    monkeypatch.setattr(engine_module, "elsewhere", set())
    return opened


@pytest.mark.usefixtures("unseen")
async def test_a_start_that_was_asked_ahead_goes_on_by_paths(place: Path) -> None:
    spec = new_spec(f"import json; print(json.dumps({READS}))", attached=dataset(place / "wanted"))
    engine = DockerEngine(ahead=ask_ahead(socket_path(None), spec))
    async with alive(engine.start(spec)) as container:
        assert json.loads(await receive_line(container)) == "wanted"
        assert len(await containers_of(engine, spec.session_id)) == 1


@pytest.mark.parametrize("change", ["name", "reader"])
async def test_what_no_path_may_stand_for_is_refused_and_leaves_nothing(
    place: Path, unseen: list[Attachment], change: str
) -> None:
    folder, words = place / "wanted", "a folder for another user"
    if change == "name":
        folder, words = folder.rename(place / "a,upperdir=x"), "a comma, a colon or a backslash"
    spec = new_spec(READS, attached=dataset(folder), reader=65534 if change == "reader" else None)
    engine = DockerEngine()
    with pytest.raises(EngineError, match=words) as caught:
        await engine.start(spec)
    assert caught.value.code is EndCode.FOLDER_NOT_MOUNTED
    assert await containers_of(engine, spec.session_id) == []
    assert [held.identities() for held in unseen] == [{}]  # all is closed


# --- another process has this one's number there ---------------------------------------------------------------------

HOLDS = """
import os, sys
for fd in range(3, 200):
    os.dup2(os.open(sys.argv[1], os.O_PATH), fd)
for fd in range(200, 250):
    os.dup2(os.open(sys.argv[2], os.O_PATH), fd)
print("held", flush=True)
sys.stdin.read()
"""
WITH_NUMBER = """
import os, sys
number = int(sys.argv.pop(1))
with open("/proc/sys/kernel/ns_last_pid", "w") as file:
    file.write(str(number - 1))
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert os.getpid() == number
"""
UNNAMED = """
from sandbox_kernel.engines import attachment
keep = attachment.Attachment.keep
def unnamed(held, path, *what):
    keep(held, path, *what)
    held.names[path] = held.names[path] if path != attachment.EMPTY else f"/proc/{os.getpid()}/fd/249"
attachment.Attachment.keep = unnamed
from sandbox_kernel.engines.docker import arguments
import re
arguments._FOLDERS = re.compile("([a-z,]+,)lowerdir=.*")
"""
"""The control: the empty folder has no name that only the process's own place has."""


@pytest.mark.parametrize("named", [True, False], ids=["named", "control"])
def test_a_folder_of_another_process_with_the_same_number_is_never_mounted(place: Path, *, named: bool) -> None:
    """It has a folder open at each number that this process may use. The control is mounted, and only then refused."""
    with python(HOLDS, place / "other", place / "empty") as (holder, line):
        assert line == "held"
        [option, code, request] = asked(place, READS, datasets=f"sales={place}/wanted")
        program = WITH_NUMBER + ("" if named else UNNAMED) + code
        done = subprocess.run(
            [*NAMESPACES["of PIDs"], sys.executable, option, program, str(holder.pid), request],
            capture_output=True,
            text=True,
            check=False,
        )
    found = answer(done)
    if named:
        assert found == ["'wanted'", "'wanted'"]
    else:
        assert found[0] == EndCode.ATTESTATION_FAILED.code
        assert "another one, which the engine has" in found[1]
