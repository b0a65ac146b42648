"""The format of what a machine starts from, for its builder and its starter.

A root's folder has a folder `machine` beside its `root.json`:

    machine/machine.json   {"format": 1, "contents": …, "guest": …, "kernel": …, "made": …, "files": {name: digest}}
    machine/kernel         the kernel, of the distribution's package, unpacked
    machine/initrd         its first files: busybox, the modules, and the first process (`inside/guest.py`)
    machine/root.squashfs  the root's files

`contents` is the root's, so a root that was made anew has no machine until that is built, too; `guest` is the digest of
the first process and what starts it, which have to be of this version.
"""

from __future__ import annotations

import hashlib
from functools import cache

from ...core.package_files import PACKAGE

FORMAT = 2
FOLDER = "machine"
DESCRIPTION = "machine.json"
KERNEL, INITRD, DISK = "kernel", "initrd", "root.squashfs"
FILES = (KERNEL, INITRD, DISK)

MODULES = (
    *("virtio_pci", "virtio_blk", "virtio_console", "virtio-rng", "squashfs"),
    *("crc32c_generic", "ext4", "9pnet_virtio", "9p"),
)
"""What the kernel is given, and what they need: a disk, serial ports, random numbers, and how the disk is read; and
for those who ask for it, a disk to write to, and folders of the host's."""

FIRST = """\
#!/bin/busybox sh
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs devtmpfs /dev
for name in $(/bin/busybox cat /modules/order); do /bin/busybox insmod /modules/$name; done
/bin/busybox mount -t squashfs -o ro,nosuid,nodev /dev/vda /new || exec /bin/busybox poweroff -f
/bin/busybox mount --move /proc /new/proc
/bin/busybox mount --move /sys /new/sys
/bin/busybox mount --move /dev /new/dev
/bin/busybox mount -t tmpfs -o mode=755,nosuid,nodev,size=4m tmpfs /new/run
/bin/busybox cp -r /guest /new/run/guest
export PATH=PLACES
exec /bin/busybox switch_root /new PYTHON -I -S -B /run/guest
"""
"""The machine's first program, which makes way for Python's; PLACES is the root's PATH, PYTHON where that is."""


GUEST = ("confinement", "guest")


@cache
def guest_sources() -> dict[str, str]:
    """Return the modules of the machine's first process, by the files of a package."""
    sources = {
        f"container/{name}.py": (PACKAGE / "plugins/qemu/inside" / f"{name}.py").read_text(encoding="utf-8")
        for name in GUEST
    }
    main = 'import sys\nsys.path.insert(0, "/run/guest")\nfrom container.guest import run\nrun()\n'
    return {"__main__.py": main, "container/__init__.py": "", **sources}


def guest_digest() -> str:
    """Return a name for the machine's first process and what starts it."""
    return hashlib.sha256(f"{FIRST}\0{MODULES}\0{guest_sources()}".encode()).hexdigest()
