"""The table of all settings: what a user can choose, in groups, with how each is written and what it means.

`sources` says where values come from.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ..core import zone
from ..core.model import GIB, KIB, MIB, Limits, Settings, format_bytes
from . import pool_values
from .monitor_values import command, monitor, webhook
from .network_values import certificates, proxy, rules, secrets
from .package_values import index as package_index
from .package_values import packages
from .screen_values import rules as screen_rules
from .values import Form, audit_file, choice, downloads, folder, key_file, number, seconds, size, text

MAX_FILES = 10_000
"""Of a folder: scratch is looked at up to 20,000 entries."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One thing a user can choose: its name everywhere, where it goes, how it is written, and what it means."""

    name: str
    field: str
    """Of `Limits` if it has such a field, else of `Settings`."""
    form: Form[Any]
    help: str
    default_text: str | None = None
    singular: str | None = None
    """What its flag is called, if a flag gives one of several."""

    @property
    def flag(self) -> str:
        return "--" + (self.singular or self.name).replace("_", "-")

    @property
    def metavar(self) -> str:
        """What stands for a value in the help of a command."""
        return self.form.metavar

    @property
    def default(self) -> Any:
        return getattr(Limits() if self.is_limit else Settings(), self.field)

    @property
    def default_for_people(self) -> str:
        if self.default_text is not None:
            return self.default_text
        is_size, is_time = self.field.endswith("_bytes"), self.field.endswith("_seconds")
        return format_bytes(self.default) if is_size else f"{self.default:g} s" if is_time else str(self.default)

    @property
    def is_limit(self) -> bool:
        return self.field in Limits.__dataclass_fields__


GROUPS: dict[str, tuple[Setting, ...]] = {
    "Where cells run": (
        Setting(
            "engine",
            "engine",
            text(
                re.compile(r"auto|docker|bubblewrap|broker|(?:unix|broker):///\S+"),
                'auto, docker, bubblewrap, broker, or the address of a socket: "unix:///..." or "broker:///..."',
            ),
            'What makes the sandboxes: "docker" finds a local Docker socket; "unix:///PATH" is a socket that speaks '
            'the same API, such as Podman\'s; "bubblewrap" needs neither root nor a daemon; "broker" asks '
            "`sandbox-kernel broker`, the operator's or the user's own, and \"broker:///PATH\" the one that listens "
            'there; "auto" takes the operator\'s broker if it answers this user, or else Docker, or else bubblewrap; '
            "what then fails is refused, and not replaced by the other.",
        ),
        Setting(
            "runtime",
            "runtime",
            text(re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*"), "the name of an OCI runtime, such as runsc", none=True),
            'The OCI runtime, as the engine knows it: "runsc" is gVisor. Empty for the engine\'s own default.',
            "the engine's default",
        ),
        Setting(
            "image",
            "image",
            text(re.compile(r"[A-Za-z0-9/][A-Za-z0-9._/:@-]*"), "the name of an image"),
            "The image that cells run in; any with Python (3.9 or newer) and ipykernel will do. It is never pulled. "
            "For bubblewrap it is an environment of that name, or the folder of one.",
        ),
        Setting(
            "time_zone",
            "time_zone",
            text(re.compile(zone.FORM), 'a time zone such as Europe/Berlin, or "machine"', none=True),
            "The time zone of clocks in cells, by its name in the tz database. machine: the one of this machine. "
            "Empty: UTC. The image has to know it, as ours do.",
        ),
    ),
    "Sandboxes that are ready before they are asked for": (
        Setting("pool", "pool", number(int, 0, 64), pool_values.POOL),
        Setting("preload", "preload", pool_values.modules, pool_values.PRELOAD, "numpy, pandas, matplotlib.pyplot"),
    ),
    "What a session may use": (
        Setting(
            "memory",
            "memory_bytes",
            size(64 * MIB),
            "Memory of one session, for all of its processes and all files in scratch, /tmp and /dev/shm. Swap is "
            "never added. Over it, the cell ends as OutOfMemory.",
        ),
        Setting(
            "cpus", "cpus", number(float, 0.05, 4096), "Processors that one session may keep busy; 0.5 is half of one."
        ),
        Setting("pids", "pids", number(int, 32, 4_000_000), "Processes and threads of one session, counted together."),
        Setting(
            "limits",
            "limits_kept",
            choice("enforced", "best-effort"),
            "Whether memory, pids and cpus must be limited by the machine's own kernel. An engine that has no cgroup "
            'for that is refused, unless this is "best-effort": a process of the host then looks at what a session '
            "uses, which a quick one outruns, and processors are not limited at all.",
        ),
        Setting("open_files", "open_files", number(int, 128, 1 << 20), "Files that one process may have open."),
        Setting(
            "scratch_size",
            "scratch_bytes",
            size(MIB),
            "Size of /mnt/data, the working folder of the cells. It lives in memory and dies with the session.",
            "a quarter of memory",
        ),
        Setting("tmp_size", "tmp_bytes", size(MIB), "Size of /tmp in the sandbox, in memory."),
        Setting("shm_size", "shm_bytes", size(64 * KIB), "Size of /dev/shm in the sandbox, in memory."),
    ),
    "Time": (
        Setting(
            "cell_timeout",
            "cell_seconds",
            seconds(0.1),
            "How long one cell may run, in seconds (or 10m, 2h). The clock stops while a cell waits for input() or "
            "stands at a breakpoint. Over it, the cell ends as CellTimeout. Every cell has a clock, if a long one.",
        ),
        Setting(
            "interrupt_grace",
            "interrupt_grace_seconds",
            seconds(0.1, 3600),
            "How long a cell may take to end after the interrupt for its time limit, before its kernel is replaced.",
        ),
        Setting(
            "idle_timeout",
            "idle_seconds",
            seconds(1),
            "How long a session may be without a request (a cell, a completion, a file) before its sandbox ends, with "
            "its variables and files.",
        ),
        Setting(
            "start_timeout",
            "start_seconds",
            seconds(1, 3600),
            "How long a start may take, until engine, agent and kernel are ready.",
        ),
    ),
    "Output": (
        Setting(
            "output_limit", "output_bytes", size(KIB), "Output of one cell. Over it, the cell ends as OutputLimit."
        ),
        Setting(
            "output_messages",
            "output_messages",
            number(int, 10, 1_000_000_000),
            "Messages that one cell may send: pieces of text, displays and their updates.",
        ),
        Setting(
            "message_limit",
            "message_bytes",
            # orjson crashes at texts near 2 GiB.
            size(64 * KIB, GIB),
            "Size of one message from the sandbox, such as one display with its buffers.",
        ),
        Setting(
            "display_lines",
            "display_lines",
            number(int, 100, 1_000_000_000),
            "Lines of one cell that a Jupyter kernel gives its front ends to show. The rest goes into a file below "
            "/mnt/data/outputs, and its end is shown. Lines that are drawn over count once; a display counts as ten, "
            "or as 750 microseconds of a browser each. Clients that allow no input (nbclient, papermill, nbconvert), "
            "the Python interface, `run` and `mcp` have no such limit.",
        ),
        Setting("display_size", "display_bytes", size(16 * KIB), "The same in characters, also of a single text."),
        Setting(
            "outputs",
            "outputs",
            choice("safe", "strict", "trusted"),
            "What may reach the browser. safe: static types, sanitised HTML, active HTML in a sandboxed frame without "
            "a network. strict: no active content. trusted: as it comes; scripts of a cell then run in the browser.",
        ),
    ),
    "Files": (
        Setting(
            "uploads",
            "uploads",
            Form(folder, "a folder", "FOLDER"),
            "A host folder whose regular files are copied into scratch: at start, and what changed before each cell. A "
            "relative path starts at the notebook's folder.",
            "none",
        ),
        Setting(
            "downloads",
            "downloads",
            Form(downloads, "a folder of its own", "FOLDER"),
            "A host folder that receives the regular files which cells make or change in scratch. Give it a folder of "
            "its own: cells choose names and contents. A relative path starts at the notebook's folder.",
            "none",
        ),
        Setting(
            "file_limit",
            "file_bytes",
            size(KIB),
            "Size of one file that is copied into the sandbox or out of it, by whatever way.",
        ),
        Setting(
            "folder_limit",
            "folder_bytes",
            size(KIB),
            "Size of all files of the uploads folder together; of all that one session puts into its downloads folder.",
        ),
        Setting(
            "folder_files",
            "folder_files",
            number(int, 1, MAX_FILES),
            "Number of files and folders, in the same two places.",
        ),
    ),
    "Network": (
        Setting(
            "network",
            "network",
            rules,
            "What cells may reach, by the host's own hands: `host`, `host:port`, `*.host` for all below it, with "
            "`GET` before it for plain HTTP; an address only as it is written. Without a rule, nothing.",
            "nothing",
        ),
        Setting(
            "secrets",
            "secrets",
            secrets,
            "Secrets that the host puts into requests of cells, which see a placeholder: where each is found, for "
            "which hosts, and the header that holds it if it is always the same. Never the value. It allows no "
            "connection.",
            "none",
            singular="secret",
        ),
        Setting(
            "network_connections",
            "network_connections",
            number(int, 1, 1000),
            "Connections that the cells of one session may have open at a time.",
        ),
        Setting(
            "network_bytes",
            "network_bytes",
            size(64 * KIB),
            "What the connections of one cell may bring in, and as much again for what they send. A session has ten "
            "times that.",
        ),
        Setting(
            "network_timeout",
            "network_seconds",
            seconds(1, 3600),
            "How long a connection may take to be made, and how long it may be silent. A cell's clock goes on.",
        ),
        Setting(
            "network_proxy",
            "network_proxy",
            proxy,
            "The HTTP proxy through which the host itself has to go. `environment`: the one that the kernel's own "
            "variables (HTTPS_PROXY, NO_PROXY, ...) name, as it is started.",
            "none",
        ),
        Setting(
            "network_certificates",
            "network_certificates",
            certificates,
            "A PEM file of authorities that cells trust besides the public ones, and the host too where it speaks TLS "
            "for a secret.",
            "none",
        ),
    ),
    "Packages": (
        Setting(
            "packages",
            "packages",
            packages,
            "Packages that cells may install with `pip install`: names, with the extras that they may have, or `*` "
            "for all of the index; what they need comes with them. The host resolves, fetches and checks wheels.",
            "none",
            singular="package",
        ),
        Setting(
            "packages_index",
            "packages_index",
            package_index,
            "The index that they come from, also for `install`, in place of the one that this machine's pip uses.",
            "pip's own",
        ),
        Setting("packages_size", "packages_bytes", size(MIB), "What may be installed at a time, as wheels."),
    ),
    "Sight": (
        Setting(
            "screen",
            "screen",
            choice("off", "warn", "block"),
            "Whether the code of a cell is read before it runs. warn: what is found is said in one line, and stands in "
            "the audit. block: from screen_threshold on, the cell ends as ScreenBlocked and never reaches the sandbox. "
            "It is triage and never the wall (docs/screen.md).",
        ),
        Setting(
            "screen_threshold",
            "screen_threshold",
            number(int, 1, 100),
            "Points from which a cell is blocked: a finding has 20, 40, 60 or 80, and they add up to 100 at most.",
        ),
        Setting(
            "screen_rules",
            "screen_rules",
            screen_rules,
            "A TOML file that adds rules to those of the screen, weighs them, switches them off, or lists the modules "
            "that may be imported.",
            "none",
        ),
        Setting(
            "screen_overrides",
            "screen_overrides",
            choice("allow", "forbid"),
            "Whether a comment in a cell may allow what was found in it: `# sandbox: allow CODE — REASON`. Forbid it "
            "where the author of the code is not trusted.",
        ),
        Setting(
            "monitor",
            "monitor",
            monitor,
            "What is noticed while code runs, and what comes of it at most: a note in the audit, an alert, or the end "
            "of the kernel with all its processes (`BehaviourBlocked`). A TOML file weighs and switches single rules. "
            "It is a smoke detector and never the wall (docs/monitor.md).",
            "off",
        ),
        Setting(
            "monitor_webhook",
            "monitor_webhook",
            webhook,
            "An address to which each alert is posted as JSON. It may hold a token: put it into a config file.",
            "none",
        ),
        Setting(
            "monitor_command",
            "monitor_command",
            command,
            "A program of the host's that is started for each alert, with the alert as JSON on its stdin.",
            "none",
        ),
    ),
    "Names and records": (
        Setting(
            "display_name",
            "display_name",
            text(re.compile(r"[^\x00-\x1f\x7f]{1,100}"), "a name of up to 100 printable characters"),
            "The name that front ends show.",
        ),
        Setting(
            "clients",
            "clients",
            choice("own", "any"),
            "Whose processes may connect to the kernel's sockets. own: those of the user that runs the kernel, and "
            "root's, if they are on this machine. any: of every user; the connection file's key then is the only wall.",
        ),
        Setting(
            "audit",
            "audit",
            Form(audit_file, "a file in a folder that exists", "FILE"),
            "A host file that receives one JSON line a cell, and one for each thing that was refused. Its lines are a "
            "chain: what is changed or missing later is found by `sandbox-kernel audit verify`.",
            "none",
        ),
        Setting(
            "audit_key",
            "audit_key",
            Form(key_file, "an absolute path in a folder that exists", "FILE"),
            "The key that seals the audit and signs receipts. It is made where there is none, and refused if others "
            "than its owner can read it. Keep it where nobody is who may write to the audit.",
            "~/.local/share/sandbox-kernel/audit.key",
        ),
        Setting(
            "audit_size",
            "audit_bytes",
            size(64 * KIB),
            "Size of one file of the audit. Over it, the file is renamed to FILE.1, FILE.2 and so on, and another one "
            "begun. None is removed.",
        ),
        Setting(
            "audit_source",
            "audit_source",
            choice("hash", "text"),
            "What the audit keeps of the code of cells. hash: its SHA-256. text: the code as well, up to 25,000 "
            "characters of a cell.",
        ),
    ),
}

SETTINGS: dict[str, Setting] = {setting.name: setting for group in GROUPS.values() for setting in group}
