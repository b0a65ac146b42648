"""Making what machines start from, beside a root: a kernel and its first files of the distribution's, and a disk.

The packages are fetched through apt, which knows whom it trusts, by whoever builds; nothing of them is installed, and
nothing of them runs here. The same packages and the same root make the same first files.
"""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import lzma
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from ...core.codes import EndCode
from ...core.errors import EngineError, SandboxError
from ...core.model import Settings, format_bytes
from ...core.remedies import install_words, of_system
from ...engines.abilities import Preparing
from ...engines.image_names import BY_NAME
from ...engines.select import make_engine
from ...engines.shipping import new_spec
from ...setup.build_lock import alone
from ...setup.command_steps import Say, Steps, step, tail
from ..bubblewrap.interface import Root, bubblewrap_program, find_root, program_in
from ..bubblewrap.roots.build import RootState
from ..bubblewrap.roots.build import state as root_state
from .artifacts import BUILD
from .build_format import (
    DESCRIPTION,
    DISK,
    FILES,
    FIRST,
    FOLDER,
    FORMAT,
    INITRD,
    KERNEL,
    MODULES,
    guest_digest,
    guest_sources,
)

ENTRY_POINTS = {"kernels": False, "the SDK and what builds on it": True}
"""Each entry point, and whether figures bring their data along."""
META = "linux-image-amd64"
"""Not the smaller one for clouds, which cannot mount folders of the host's (9p)."""
BUSYBOX = "busybox-static"
MAX_KERNEL_BYTES = 256 << 20
STEP_SECONDS = 900.0
ENVIRONMENT = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8"}
FOLDERS = ("bin", "dev", "guest", "guest/container", "modules", "new", "proc", "sys")
EMPTY = ("proc", "sys/fs/cgroup", "dev", "tmp", "run", "mnt/data", "mnt/datasets", "home")
"""Folders of the disk on which the machine mounts something, and those that every image has."""
ETC = ("passwd", "group", "hosts", "hostname", "nsswitch.conf", "resolv.conf")


def build(name: str, *, force: bool = False, state: bool = True, progress: Say = print) -> str:
    """Make what machines of a root start from, unless it is there and current. Returns the root's name.

    With `state`, one is started as the settings have it by default, and written down for those to come.

    Raises `EngineError`, and `ImageMissing` where there is no such root.
    """
    root = find_root(name)
    steps = Steps(progress)
    target = Path(root.folder, FOLDER)
    with alone(Path(root.folder), steps):
        if not force and is_current(root):
            steps(f"the machine of {name} is up to date")
        else:
            _make(root, target, steps)
    if state:
        take_states(name, steps)
    return name


def _make(root: Root, target: Path, steps: Steps) -> None:
    """Make what is in a machine's folder, and put it there. Raises `EngineError`."""
    name = root.name
    bwrap, packer = bubblewrap_program(), shutil.which("mksquashfs")
    for program, remedy in ((bwrap, install_words("bubblewrap")), (packer, of_system("squashfs-tools"))):
        if program is None:
            raise EngineError(EndCode.ENGINE_NOT_SET_UP, f"a program is missing that packs disks: {remedy}")
    with tempfile.TemporaryDirectory(prefix=".machine-", dir=root.folder) as scratch:
        made = Path(scratch, FOLDER)
        made.mkdir(mode=0o755)
        steps("fetching the kernel and busybox, through apt")
        packages = _fetched(Path(scratch, "packages"))
        version = _first_files(packages, made, root, Path(scratch, "unpacked"))
        steps(f"packing the files of {name}, with kernel {version}")
        _disk(root, made, Path(scratch, "etc"), str(bwrap), str(packer))
        digests = {each: _digest(made / each) for each in FILES}
        said = {
            "format": FORMAT,
            "contents": root.contents,
            "guest": guest_digest(),
            "kernel": version,
            "made": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "files": digests,
        }
        (made / DESCRIPTION).write_text(json.dumps(said, indent=1))
        for each in (DESCRIPTION, *FILES):
            (made / each).chmod(0o644)
        if target.exists():
            target.rename(Path(scratch, "before"))
        made.rename(target)
    size = sum((target / each).stat().st_size for each in FILES)
    steps(f"made the machine of {name}, {format_bytes(size)}")


def take_states(name: str, steps: Steps) -> None:
    """Take states of the default settings; where that fails, machines start from nothing, and slower."""
    for entry, charts in ENTRY_POINTS.items():
        settings = Settings(engine="qemu", image=name, charts=charts)
        try:
            engine = make_engine(settings)
            if isinstance(engine, Preparing):
                with steps.during(f"taking a state to start from, for {entry}"):
                    asyncio.run(engine.prepare(new_spec(settings)))
        except (SandboxError, OSError, TimeoutError) as error:
            steps(f"  left out: {error}")


def is_current(root: Root) -> bool:
    """Return whether what is there was made of this root, by this version, and is whole."""
    folder = Path(root.folder, FOLDER)
    try:
        said = json.loads((folder / DESCRIPTION).read_bytes())
        fits = (said["format"], said["contents"], said["guest"]) == (FORMAT, root.contents, guest_digest())
        return fits and all((folder / each).is_file() for each in FILES)
    except (OSError, LookupError, TypeError, ValueError):
        return False


def state(name: str) -> RootState:
    """Say whether the root of a name is there and current, and what machines of it start from."""
    found = root_state(name)
    command = f"{BUILD} --tag {name}" if name not in BY_NAME else f"{BUILD} --kind {BY_NAME[name]}"
    if found.status == "wrong":
        return RootState("wrong", found.found, f"`{command}`")
    if not is_current(find_root(name)):
        return RootState("wrong", f"{name} has no machine that fits", f"`{command}`")
    return RootState(found.status, found.found, f"`{command}`" if found.status == "note" else "")


# --- the packages -----------------------------------------------------------------------------------------------------


def _fetched(folder: Path) -> list[Path]:
    """Download the kernel's package and busybox's as this user. Raises `EngineError`."""
    folder.mkdir()
    said = _run(["apt-cache", "depends", META], folder, "the distribution has no kernel for machines")
    names = [line.split()[-1] for line in said.splitlines() if "Depends: linux-image-" in line]
    if not names:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"apt knows no package {META}: machines are made on Debian")
    _run(["apt-get", "-q", "download", names[0], BUSYBOX], folder, "apt could not download the packages")
    return sorted(folder.glob("*.deb"))


def _first_files(packages: list[Path], made: Path, root: Root, unpacked: Path) -> str:
    """Write the kernel, and the archive of its first files; return the kernel's version."""
    for package in packages:
        _run(["dpkg-deb", "-x", str(package), str(unpacked)], unpacked.parent, f"{package.name} cannot be unpacked")
    kernels = sorted((unpacked / "boot").glob("vmlinuz-*"))
    busybox = next((path for path in (unpacked / "bin/busybox", unpacked / "usr/bin/busybox") if path.is_file()), None)
    if not kernels or busybox is None:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, "the packages have no kernel, or no busybox")
    version = kernels[0].name.removeprefix("vmlinuz-")
    (made / KERNEL).write_bytes(unpacked_kernel(kernels[0].read_bytes()))
    needed = dict(modules(unpacked))
    python = program_in(root, "python3")
    if python is None:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"the root {root.name!r} has no python3")
    first = FIRST.replace("PLACES", root.environment.get("PATH", os.defpath)).replace("PYTHON", python)
    entries: dict[str, tuple[int, bytes]] = {
        "bin/busybox": (0o100755, busybox.read_bytes()),
        "init": (0o100755, first.encode()),
        **{f"guest/{file}": (0o100644, text.encode()) for file, text in guest_sources().items()},
        "modules/order": (0o100644, "".join(f"{name}\n" for name in needed).encode()),
        **{f"modules/{name}": (0o100644, data) for name, data in needed.items()},
    }
    (made / INITRD).write_bytes(archive(entries, FOLDERS))
    return version


def unpacked_kernel(data: bytes) -> bytes:
    """Return the kernel that packs itself out when it starts, unpacked: emulated, that takes as long as all the rest.

    It would choose its addresses meanwhile; copies of a state share them anyway, and the wall is the machine.
    One that is packed in another way than with xz is returned as it is. QEMU starts both.
    """
    # Documentation/x86/boot.rst: setup_sects, "HdrS", payload_offset and payload_length
    if data[0x202:0x206] != b"HdrS":
        return data
    start = (1 + (data[0x1F1] or 4)) * 512 + int.from_bytes(data[0x248:0x24C], "little")
    packed = data[start : start + int.from_bytes(data[0x24C:0x250], "little")]
    if not packed.startswith(b"\xfd7zXZ\0"):
        return data
    unpacker = lzma.LZMADecompressor()
    kernel = unpacker.decompress(packed, MAX_KERNEL_BYTES)
    return kernel if unpacker.eof and kernel.startswith(b"\x7fELF") else data


def modules(unpacked: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the modules and all that they need, each after what it needs."""
    there = {path.name.partition(".ko")[0].replace("-", "_"): path for path in unpacked.rglob("*.ko*")}
    done: set[str] = set()

    def with_needs(name: str) -> Iterator[tuple[str, bytes]]:
        key = name.replace("-", "_")
        path = there.get(key)
        if key in done or path is None:
            return  # it is part of the kernel itself
        done.add(key)
        data = path.read_bytes()
        if path.suffix == ".xz":
            data = lzma.decompress(data)
        elif path.suffix != ".ko":
            raise EngineError(EndCode.IMAGE_NOT_BUILT, f"the kernel's module {path.name} is packed in an unknown way")
        _, _, rest = data.partition(b"\0depends=")
        for need in rest.partition(b"\0")[0].decode("ascii", "replace").split(","):
            yield from with_needs(need)
        yield f"{key}.ko", data

    for name in MODULES:
        yield from with_needs(name)


def archive(files: dict[str, tuple[int, bytes]], folders: tuple[str, ...]) -> bytes:
    """Return an archive as the kernel takes its first files (cpio, "newc"), of root's, without a date."""
    parts: list[bytes] = []
    entries = [(name, 0o040755, b"") for name in folders]
    entries += [(name, mode, data) for name, (mode, data) in files.items()]
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        path = name.encode() + b"\0"
        links = 2 if mode & 0o040000 else 1
        fields = (number, mode, 0, 0, links, 0, len(data), 0, 0, 0, 0, len(path), 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + path
        parts += [head, bytes(-len(head) % 4), data, bytes(-len(data) % 4)]
    return b"".join(parts)


# --- the disk ---------------------------------------------------------------------------------------------------------


def _disk(root: Root, made: Path, etc: Path, bwrap: str, packer: str) -> None:
    """Pack the root's files as a sandbox of bubblewrap's sees them, all root's, with room for what is mounted."""
    command = [bwrap, "--unshare-all", "--unshare-user", "--new-session", "--die-with-parent", "--clearenv"]
    command += ["--ro-bind", "/usr", "/usr", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]  # noqa: S108
    for name in ("bin", "lib", "lib64"):
        there = Path("/", name)
        command += ["--symlink", f"usr/{name}", str(there)] if there.is_symlink() else []
        command += ["--ro-bind", str(there), str(there)] if there.is_dir() and not there.is_symlink() else []
    view = "/view"
    command += ["--dir", view]
    # Some bubblewraps, Debian's 0.8 among them, make the folders above a bind for their user alone, who is root here.
    for folder in sorted({str(above) for _, inside in root.binds for above in PurePosixPath(inside).parents}):
        command += ["--dir", view + folder]
    for source, inside in root.binds:
        command += ["--ro-bind", source, view + inside]
    for says, inside in root.links:
        command += ["--symlink", says, view + inside]
    if not root.etc:
        etc.mkdir()
        for name in ETC:
            (etc / name).touch()
        command += ["--ro-bind", str(etc), f"{view}/etc"]
    for name in EMPTY:
        command += ["--dir", f"{view}/{name}"]
    command += ["--symlink", "/mnt/data", f"{view}/home/user", "--bind", str(made), "/made", "--chdir", "/"]
    command += [packer, view, f"/made/{DISK}", "-noappend", "-all-root", "-comp", "lz4", "-no-xattrs", "-no-progress"]
    _run([*command, "-quiet", "-mkfs-time", "0"], made, "the disk cannot be packed")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def _run(command: list[str], folder: Path, problem: str) -> str:
    """Run a step and return what it printed. Raises `EngineError`."""
    try:
        done = step(command, seconds=STEP_SECONDS, environment=ENVIRONMENT, folder=folder, umask=0o022)
    except (OSError, subprocess.SubprocessError) as error:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{problem}: {error}") from error
    if done.returncode != 0:
        raise EngineError(EndCode.IMAGE_NOT_BUILT, f"{problem}: {tail(done.stdout)}")
    return done.stdout
