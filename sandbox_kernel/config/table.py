"""The table of all settings: what a user can choose, in groups, with how each is written and what it means.

`sources` says where values come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from ..core import time_zone
from ..core.model import GIB, KERNEL_NAME, KIB, MIB
from ..plugins import index
from .forms import NAME, Form, choice, downloads, engine, folder, listed, number, processors, seconds, size, text
from .setting import Setting

MAX_FILES = 10_000
"""Of a folder: scratch is looked at up to 20,000 entries."""


OWN: dict[str, tuple[Setting, ...]] = {
    "By need": (
        Setting(
            "preset",
            choice("none", "untrusted", "analysis", "interview", "agent"),
            "Values for several settings by what a sandbox is for (see above). A value that is given counts in its "
            "place. Beside a value of a config file, the stricter of both counts.",
            scope="process",
        ),
    ),
    "Where cells run": (
        Setting(
            "engine",
            engine,
            "What runs the sandboxes. docker: a local Docker socket. podman: Podman's, with root or without. "
            "unix:///PATH: a socket of either. bubblewrap: no root and no daemon. qemu: an emulated machine with its "
            "own kernel. broker: `sandbox-kernel broker`, the operator's or the user's own; broker:///PATH: the one "
            "there. shared:///NAME: one sandbox for several kernels. auto: the operator's broker if it answers this "
            "user, otherwise Docker, otherwise Podman, otherwise bubblewrap; the user's own broker before these, if it "
            "runs and has that engine. If the chosen engine fails, cells end with an error; no other engine is tried.",
            scope="sandbox",
        ),
        Setting(
            "runtime",
            text(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of an OCI runtime, such as runsc", none=True),
            'The OCI runtime, by the name that the engine has for it. "runsc" is gVisor. Empty: the engine\'s default.',
            "the engine's default",
            scope="sandbox",
        ),
        Setting(
            "image",
            text(re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@-]*"), "the name of an image"),
            "The image that cells run in. Any image with Python 3.9 or newer and ipykernel works. It is never pulled. "
            "For bubblewrap and qemu: the name of an environment, or its folder.",
            scope="sandbox",
        ),
        Setting(
            "kernel",
            text(re.compile(KERNEL_NAME), "the name of a kernelspec, such as bash"),
            "The kernel that runs the cells: python3, or the name of another kernelspec of the image, such as bash, "
            "sql, ir or deno (docs/languages.md). What is for Python alone (screen, packages, tools) is refused with "
            "another one.",
            scope="sandbox",
        ),
        Setting(
            "time_zone",
            text(re.compile(time_zone.FORM), 'a time zone such as Europe/Berlin, or "machine"', none=True),
            "The time zone of clocks in cells, by its name in the tz database. machine: the one of this machine. "
            "Empty: UTC. A zone that the image does not know is refused at the start; the default images know all.",
            scope="sandbox",
        ),
    ),
    "Warm sandboxes": (),
    "What a session may use": (
        Setting(
            "memory",
            size(64 * MIB),
            "Memory of one session: all its processes, and all files in /mnt/data, /tmp and /dev/shm. Swap is never "
            "added. A cell that exceeds it ends with OutOfMemory.",
            scope="sandbox",
        ),
        Setting(
            "cpus",
            number(float, 0.05, 4096),
            "Processors that one session may use. 0.5 is half of one.",
            scope="sandbox",
        ),
        Setting(
            "cpuset",
            processors,
            "The processors of this machine that one session runs on, by their numbers, within `cpus`. Two sessions "
            "with others in common have none (docs/isolation.md). Needs Docker, Podman or bubblewrap; an engine that "
            "cannot is refused.",
            "all",
            scope="sandbox",
        ),
        Setting(
            "core_scheduling",
            choice("off", "on"),
            "Whether nothing else may run on the other thread of a core while the session runs on it. on: needs "
            "bubblewrap, and Linux 5.14 or newer built with it on a machine with SMT; anything else is refused.",
            scope="sandbox",
        ),
        Setting(
            "pids",
            number(int, 32, 4_000_000),
            "Processes and threads of one session, counted together.",
            scope="sandbox",
        ),
        Setting(
            "limits",
            choice("enforced", "best-effort"),
            "Whether a cgroup must enforce memory, pids and cpus. enforced: an engine without one is refused. "
            "best-effort: without one, a process of the host checks what a session uses. Fast growth can get past it, "
            "and processors are not limited. It also accepts a folder for scratch = disk (docs/large-data.md).",
            scope="sandbox",
        ),
        Setting(
            "open_files",
            number(int, 128, 1 << 20),
            "Files that one process may have open.",
            scope="sandbox",
        ),
        Setting(
            "scratch",
            choice("memory", "disk"),
            "Where /mnt/data is. memory: a part of the session's memory. disk: a disk of its own on the host, of "
            "scratch_size, that is wiped with the session; programs spill there what does not fit into memory. Only "
            "root's engines can make one, also for others by a broker.",
            scope="sandbox",
        ),
        Setting(
            "scratch_size",
            size(MIB),
            "Size of /mnt/data, the working folder of cells. It ends with the session. Those of scratch_size, tmp_size "
            "and shm_size that are not set share what the others leave of three quarters of memory.",
            "a quarter of memory; 10 GiB on a disk",
            scope="sandbox",
        ),
        Setting(
            "tmp_size",
            size(MIB),
            "Size of /tmp in the sandbox, in memory. joblib and many other libraries put large arrays there.",
            "a quarter of memory",
            scope="sandbox",
        ),
        Setting(
            "shm_size",
            size(64 * KIB),
            "Size of /dev/shm in the sandbox, in memory: what processes of a cell share.",
            "a quarter of memory",
            scope="sandbox",
        ),
    ),
    "Time": (
        Setting(
            "cell_timeout",
            seconds(0.1),
            "How long one cell may run, in seconds (or 10m, 2h). The clock stops while a cell waits for input() or at "
            "a breakpoint. A cell that exceeds it ends with CellTimeout. The limit can be long, but it cannot be "
            "switched off.",
        ),
        Setting(
            "interrupt_grace",
            seconds(0.1, 3600),
            "How long a cell may take to end after it was interrupted for its time limit. Then its kernel is replaced.",
        ),
        Setting(
            "idle_timeout",
            seconds(1),
            "How long a session may go without a request (a cell, a completion, a file). Then its sandbox ends, with "
            "its variables and files.",
        ),
        Setting(
            "start_timeout",
            seconds(1, 3600),
            "How long engine, agent and kernel may take to start.",
        ),
    ),
    "Output": (
        Setting(
            "output_limit",
            size(KIB),
            "Output of one cell. A cell that exceeds it ends with OutputLimit. A message counts as a quarter of the "
            "memory that it takes here, if that is more; what a program builds from one answer may be four times this.",
        ),
        Setting(
            "output_messages",
            number(int, 10, 1_000_000_000),
            "Messages that one cell may send: pieces of text, displays and their updates.",
        ),
        Setting(
            "message_limit",
            # orjson crashes at texts near 2 GiB.
            size(64 * KIB, GIB),
            "Size of one message from the sandbox, such as one display with its buffers.",
            scope="sandbox",
        ),
        Setting(
            "display_lines",
            number(int, 100, 1_000_000_000),
            "Lines of output of one cell that the kernel sends to front ends. The rest is written to a file below "
            "/mnt/data/outputs, and its last lines are shown. Lines that are overwritten, such as progress bars, count"
            " once. A display counts as ten lines, or as one line for each five elements that it has; text, formulas "
            "and images count as elements, too. Clients that allow no input (nbclient, papermill, nbconvert), the "
            "Python interface, `run` and `mcp` "
            "have no such limit.",
        ),
        Setting(
            "display_size",
            size(16 * KIB),
            "The same limit in characters. It also applies to a single text.",
        ),
        Setting(
            "outputs",
            choice("safe", "strict", "trusted"),
            "What may reach the browser. safe: static types, sanitised HTML, and active HTML in a sandboxed frame "
            "without a network. strict: no active content. trusted: everything, unchanged; scripts of a cell then run "
            "in the browser.",
        ),
    ),
    "Files": (
        Setting(
            "uploads",
            Form(folder, "a folder", "FOLDER", from_notebook=True),
            "A host folder whose regular files are copied to /mnt/data: all of them at the start, and changed ones "
            "before each cell. A relative path starts at the notebook's folder.",
            scope="caller",
        ),
        Setting(
            "downloads",
            Form(downloads, "a folder of its own", "FOLDER", from_notebook=True),
            "A host folder that receives the regular files that cells create or change in /mnt/data. Cells choose "
            "names and contents, so use the folder for nothing else. A relative path starts at the notebook's folder.",
            scope="caller",
        ),
        Setting(
            "file_limit",
            size(0),
            "Size of one file that is copied into the sandbox or out of it, in any way. 0 is the size of scratch.",
        ),
        Setting(
            "folder_limit",
            size(0),
            "Total size of the files in the uploads folder, and of the files that one session writes to its downloads "
            "folder. 0 is the size of scratch, and 1G at least.",
        ),
        Setting(
            "folder_files",
            number(int, 1, MAX_FILES),
            "Number of files and folders in the uploads folder, and of those that one session writes to its downloads "
            "folder.",
        ),
    ),
    "Data": (),
    "Kubernetes": (),
    "Network": (),
    "Packages": (),
    "Screen and monitor": (),
    "Names and records": (
        Setting(
            "display_name",
            text(NAME, "a name of up to 100 printable characters"),
            "The name that front ends show.",
            scope="process",
        ),
        Setting(
            "clients",
            choice("own", "any"),
            "Whose processes may connect to the sockets of the kernel. own: those of the user who runs the kernel, and"
            " of root, on this machine. any: those of every user; then only the key in the connection file protects "
            "the kernel.",
            scope="process",
        ),
        Setting(
            "plugins",
            listed(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}"), "plugins", "rate-limit, journal", "NAMES"),
            "Plugins of other packages that take part in each session (docs/write-a-plugin.md). They run on the host.",
            singular="plugin",
        ),
    ),
}

"""Those that are no plugin's. All of a group are in `groups`."""


def groups() -> dict[str, tuple[Setting, ...]]:
    """Return all settings by the titles that they are listed below, without groups of plugins that are not here."""
    whole = {
        title: (*own, *(setting for module in index.settings_of(title) for setting in module.SETTINGS))
        for title, own in OWN.items()
    }
    return {title: group for title, group in whole.items() if group}


class SettingsByName(Mapping[str, Setting]):
    """All settings. A plugin's are read when one of them is asked for: a start that names none imports no plugin's."""

    def __init__(self) -> None:
        self.own = {setting.name: setting for group in OWN.values() for setting in group}
        """Those that are no plugin's."""
        self._read = dict(self.own)

    def __getitem__(self, name: str) -> Setting:
        if name not in self._read:
            for module in index.settings_with([name]):
                self._read |= {setting.name: setting for setting in module.SETTINGS}
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return (setting.name for group in groups().values() for setting in group)

    def __len__(self) -> int:
        return sum(map(len, groups().values()))


SETTINGS = SettingsByName()
