"""What a machine closes in: its column of docs/walls.md. Texts and nothing else."""

from __future__ import annotations

from ...engines.wall import Cell, Wall

OWN = Cell("yes", "in its own kernel")
WALL = Wall(
    name="QEMU",
    settings="engine = qemu",
    engine="qemu",
    for_whom="code that is expected to attack, where a fault of the machine's kernel must not be the end of it",
    kernel="a Linux of its own, on a machine that QEMU emulates; QEMU is a program in a sandbox of bubblewrap's",
    stops="the same, and faults of a Linux kernel in whatever call: the one that is met is the sandbox's own",
    leaves="a fault of QEMU's in the few devices that there are, and then one of the machine's kernel in the few "
    "calls that QEMU may make",
    needs="what bubblewrap needs, and QEMU; a kernel and a disk, which `build` makes on Debian for x86_64",
    costs="it is emulated, with KVM or without: computing takes about ten times as long, and a cold start seconds",
    enforces={
        "user": Cell("partly", "QEMU, if root starts it; otherwise it is the user who starts it"),
        "inodes": OWN,
        "sys": Cell("yes", "except for its own cgroup"),
        "kernel": Cell("yes", "Linux, on a machine that QEMU emulates"),
        "calls": OWN,
        "calls-agent": OWN,
        "ends": Cell("yes", "by its reaper"),
    },
)
