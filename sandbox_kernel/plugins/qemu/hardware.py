"""A machine in QEMU's words: as few devices and features as a Linux kernel starts with. Pure.

Each line of `DEVICES` and `FEATURES` is there for a reason, which the page docs/qemu.md shows as it stands here.
"""

from __future__ import annotations

from typing import NamedTuple

MIB = 1 << 20
KERNEL_BYTES = 160 * MIB
"""For the machine's own kernel and its first process, besides what the sandbox may use."""
TRANSLATED_BYTES = 128 * MIB
"""What QEMU keeps of translated code."""
OWN_BYTES = 160 * MIB
"""What QEMU needs besides."""
MAX_PROCESSORS = 8
DATASETS = "/mnt/datasets"
"""Where QEMU sees the folders that it shows to a machine."""

MACHINE = "pc,usb=off,graphics=off,hpet=off,vmport=off,smm=off"
DEVICES = {
    MACHINE: "the plain PC: under emulation `microvm` hangs at its clock. Without USB, graphics, HPET, VMware's port "
    "and system management mode; what is left of it are the chip set, an IDE controller without a drive, the keyboard "
    "controller, the clocks and the switch",
    "virtio-blk-pci": 'the disk with the files of the image, read-only; with `scratch = "disk"`, a second one to write '
    "to, whose file has no name and which the host never mounts",
    "virtio-9p-pci": "with `datasets` alone: their folders, which QEMU has as read-only layers of its own; it writes "
    "to none of them, opens no FIFO, socket or device there, and follows no link",
    "virtio-serial-pci": "the pipe into the sandbox, and beside it, for the machine's first process alone, the way by "
    "which the host says what to start and hears how it ended",
    "virtio-rng-pci": "random numbers of the host's, so that no machine has to wait for its own",
}
FEATURES = {
    "-nodefaults": "no network card, no screen, no floppy, no CD, no serial line",
    "-no-user-config": "nothing that this machine's files say is added",
    "-display none": "no screen, and no server for one",
    "-no-reboot": "a machine that wants to start again ends",
    "-accel tcg": "emulation: QEMU is a program without rights, and guest code does not reach the host's kernel",
    "-sandbox on": "QEMU's own filter besides ours: it starts nothing, gains nothing and limits nothing",
    "-mon": "QEMU's monitor on a socket of the host's that no device leads to",
}

KERNEL_LINE = "quiet panic=-1 random.trust_cpu=off mitigations=off no_timer_check tsc=reliable ipv6.disable=0 vdso=0"
"""The machine has one sandbox and no other secret: what keeps one's data from another's guesses is outside of it.

Without a vDSO and without the processor's own random numbers, all that a program draws is asked of the kernel, where a
machine of which a state is taken sees it.
"""


class Ends(NamedTuple):
    """QEMU's open files, by their numbers."""

    words: int
    monitor: int
    incoming: int | None = None
    """A state to go on from."""
    disk: int | None = None
    """The file of its second disk."""


def memory_bytes(sandbox_bytes: int) -> int:
    """Return the memory of a machine whose sandbox may use so much; a sixty-fourth is the kernel's to count pages."""
    whole = sandbox_bytes + sandbox_bytes // 64 + KERNEL_BYTES
    return -(-whole // MIB) * MIB


def state_bytes(memory_bytes: int) -> int:
    """Return what the state of a machine may come to, whose sandbox may use so much memory.

    It has all of the machine's memory, its kernel's and how that counts its pages included, and a little beside each.
    """
    return memory_bytes + memory_bytes // 48 + 192 * MIB


def process_bytes(sandbox_bytes: int) -> int:
    """Return what QEMU may use of the host's memory."""
    return memory_bytes(sandbox_bytes) + TRANSLATED_BYTES + OWN_BYTES


def processors(cpus: float, there: int) -> int:
    """Return how many processors a machine has; each is a thread of the host's."""
    return max(1, min(-(-int(cpus * 100) // 100), there, MAX_PROCESSORS))


def words(
    program: str, folder: str, sandbox_bytes: int, count: int, ends: Ends, *, datasets: bool = False
) -> tuple[str, ...]:
    """Return what QEMU is started with; the pipe is its stdin. With `datasets`, the machine sees what is there."""
    parts = [
        program,
        *("-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"),
        *("-M", MACHINE, "-accel", f"tcg,tb-size={TRANSLATED_BYTES // MIB}", "-cpu", "max,-rdrand,-rdseed"),
        *("-smp", str(count), "-m", f"{memory_bytes(sandbox_bytes) // MIB}M"),
        *("-kernel", f"{folder}/kernel", "-initrd", f"{folder}/initrd", "-append", KERNEL_LINE),
        *("-drive", f"if=none,id=root,format=raw,readonly=on,file={folder}/root.squashfs"),
        *("-device", "virtio-blk-pci,drive=root"),
        *(() if ends.disk is None else _scratch(ends.disk)),
        *("-device", "virtio-serial-pci,max_ports=3"),
        *("-chardev", "socket,id=pipe,fd=0", "-device", "virtserialport,nr=1,chardev=pipe,name=pipe"),
        *("-chardev", f"socket,id=words,fd={ends.words}", "-device", "virtserialport,nr=2,chardev=words,name=words"),
        *("-object", "rng-random,id=rng,filename=/dev/urandom", "-device", "virtio-rng-pci,rng=rng"),
        *("-chardev", f"socket,id=monitor,fd={ends.monitor}", "-mon", "chardev=monitor,mode=control"),
        *("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"),
    ]
    if datasets:
        folder = f"local,id=datasets,path={DATASETS},readonly=on,security_model=none,multidevs=remap"
        parts += ["-fsdev", folder, "-device", "virtio-9p-pci,fsdev=datasets,mount_tag=datasets"]
    if ends.incoming is not None:
        parts += ["-incoming", f"fd:{ends.incoming}"]
    return tuple(parts)


def _scratch(fd: int) -> tuple[str, ...]:
    """Nothing on it outlives the machine, so nothing has to reach the host's disk; its room is reserved, and kept."""
    drive = "if=none,id=scratch,format=raw,auto-read-only=off,file=/dev/fdset/1"
    how = "cache=unsafe,discard=ignore,werror=report,rerror=report"
    return "-add-fd", f"fd={fd},set=1", "-drive", f"{drive},{how}", "-device", "virtio-blk-pci,drive=scratch"
