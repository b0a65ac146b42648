"""Sandboxes of bubblewrap's that lack a protection, for its own positive controls: as `alterations` has for Docker.

An ordinary user's sandbox has no right over the machine that could be given to it: whoever is root inside is so in a
namespace of users, over what belongs to that. Attacks that want more have no control here, which `WITHOUT` says.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from sandbox_kernel.core.model import MIB, Limits, SandboxSpec
from sandbox_kernel.plugins.bubblewrap import launch, root_lookup
from sandbox_kernel.plugins.bubblewrap.arguments import arguments
from tests.support.roots import root_of_tests

Words = list[str]
Given = dict[str, Any]
Change = Callable[[Words, Given], Words]


class Weaker(NamedTuple):
    """What is changed of bubblewrap's arguments, and which limits are larger than the attacks are told."""

    change: Change = lambda words, _: words
    limits: Mapping[str, int] = {}


def add(*options: str) -> Change:
    """Put options after all others; a later mount covers an earlier one."""

    def change(words: Words, given: Given) -> Words:
        last = len(words) - words[::-1].index("--remount-ro") - 1  # of the root, which is the last to be closed
        return [*words[:last], *(option.format(**given) for option in options), *words[last:]]

    return change


def less(*options: str) -> Change:
    """Leave options out, with their values."""

    def change(words: Words, _: Given) -> Words:
        for option in options:
            at = len(words) - words[::-1].index(option) - 1
            values = 1 if option in {"--seccomp", "--cap-drop", "--remount-ro", "--proc"} else 0
            words = [*words[:at], *words[at + 1 + values :]]
        return words

    return change


def both(*changes: Change) -> Change:
    def change(words: Words, given: Given) -> Words:
        for each in changes:
            words = each(words, given)
        return words

    return change


def root(*capabilities: str) -> Change:
    """Be root within the sandbox's namespace of users."""

    def change(words: Words, given: Given) -> Words:
        words = less("--cap-drop")(words, given)
        for option in ("--uid", "--gid"):
            words[words.index(option) + 1] = "0"
        rights = [word for name in capabilities for word in ("--cap-add", f"CAP_{name}")]
        return add("--cap-drop", "ALL", *rights)(words, given)

    return change


def etc_that_can_be_written(words: Words, given: Given) -> Words:
    """A folder of the host's in the place of /etc, for whoever is inside."""
    folder = Path(given["folder"], "etc")
    if not folder.exists():
        folder.mkdir()
        folder.chmod(0o777)
        for name in root_lookup.ETC:
            (folder / name).write_text("of nobody\n")
            (folder / name).chmod(0o666)
    return add("--bind", str(folder), "/etc")(words, given)


def layers_that_can_be_written(words: Words, given: Given) -> Words:
    """Something to be written to above folders of the root."""
    tree = f"{root_of_tests()}/root"
    over = [("--overlay-src", tree + path, "--tmp-overlay", path) for path in ("/usr/local", "/usr/local/lib")]
    return add(*over[0], *over[1])(words, given)


def own_cgroup_that_can_be_written(words: Words, _: Given) -> Words:
    words = list(words)
    for at, word in enumerate(words):
        if word.startswith("/sys/fs/cgroup") and words[at - 2] == "--ro-bind":
            words[at - 2] = "--bind"
    return words


NO_FILTER = less("--seccomp", "--disable-userns")
ADMIN = "SYS_ADMIN", "SYS_CHROOT", "DAC_READ_SEARCH", "SYSLOG", "IPC_LOCK"

WEAKER: Mapping[str, Weaker] = {
    "a process like any other": Weaker(),
    "no filter": Weaker(NO_FILTER),
    "the host's network": Weaker(less("--unshare-net")),
    "the host's processes": Weaker(
        both(less("--unshare-pid", "--as-pid-1", "--proc"), add("--bind", "/proc", "/proc"))
    ),
    "the host's IPC": Weaker(both(less("--unshare-ipc"), add("--bind", "/dev/shm", "/dev/shm"))),
    "nothing masked": Weaker(add("--proc", "/proc", "--ro-bind", "/sys", "/sys")),
    "root and a writable root": Weaker(
        both(root("DAC_OVERRIDE"), layers_that_can_be_written, etc_that_can_be_written, less("--remount-ro"))
    ),
    "root and NET_ADMIN": Weaker(both(root("NET_ADMIN"), less("--disable-userns"))),
    "root, NET_RAW and NET_ADMIN, no filter": Weaker(both(root("NET_RAW", "NET_ADMIN"), NO_FILTER)),
    "root and SYS_ADMIN": Weaker(root("SYS_ADMIN")),
    "root and SYS_ADMIN, no filter": Weaker(both(root(*ADMIN), NO_FILTER, add("--dir", "/media"))),
    "root, nothing masked": Weaker(
        both(root("SYS_ADMIN", "NET_ADMIN"), less("--disable-userns"), add("--proc", "/proc"))
    ),
    "root and the host's control groups": Weaker(both(root("DAC_OVERRIDE"), own_cgroup_that_can_be_written)),
    "a folder of the host": Weaker(add("--ro-bind", "{folder}", "{folder}")),
    "a secret in the environment": Weaker(add("--setenv", "SECRET", "{session}")),
    "more memory": Weaker(limits={"memory": 640 * MIB}),
    "no process limit": Weaker(limits={"pids": 4096}),
    "more open files": Weaker(limits={"open_files": 4096}),
    "larger file systems": Weaker(limits=dict.fromkeys(("scratch_size", "tmp_size", "shm_size"), 64 * MIB)),
    "no limit of files": Weaker(),
    "no limit of sockets": Weaker(),
}


A_SOCKET = "the agent's streams are a socket, which nobody can open by its name"
THE_MACHINE_S = "a right over the machine, which nobody has in a namespace of users of their own"
ONE_USER = "there is one user in it, and no other to become"
A_SWITCH = "a switch of the machine's decides that for all its users"
OF_THE_USER = "it shows what the user of the sandbox may see anyway, which is nothing"

OTHERS_ONLY = "it looks for what another user has, and the bait is the user's who runs the sandbox as well"
ROOT_S = "the file is root's, whom nobody is in a namespace of users of their own"

_WITHOUT: Mapping[str, str] = {
    A_SOCKET: "pipe_of_the_agent input_of_the_agent",
    THE_MACHINE_S: """
        file_by_its_handle bpf_map memory_that_cannot_be_swapped the_kernel_s_log_by_system_call
        device_node_for_the_memory device_node_for_a_disk highest_priority realtime_disk_access page_frames
        program_run_by_the_kernel_for_a_crash release_agent_of_a_cgroup
    """,
    ROOT_S: f"""
        timers_of_the_machine physical_addresses the_kernel_s_log devices_of_the_host
        {"limits_of_a_cgroup" if os.geteuid() == 0 else ""}
    """,
    ONE_USER: "another_user_s_id groups_of_others",
    A_SWITCH: "performance_counters the_kernel_s_symbols",
    OF_THE_USER: "the_keys_of_others",
    OTHERS_ONLY: "unix_sockets_in_the_file_tree" if os.geteuid() != 0 else "",
}
WITHOUT = {name: reason for reason, names in _WITHOUT.items() for name in names.split()}
"""Attacks that have no control on bubblewrap, and why: they do not succeed whatever is left out."""

SEEN_LATE = frozenset({"worked", "sandbox out_of_memory"})
"""How what takes too much may end besides, where no cgroup holds the sandbox: the host looks, and may be late."""
BEST_EFFORT = frozenset({
    "memory_beyond_the_limit",
    "memory_beyond_the_limit_in_several_processes",
    "shared_memory_segments_beyond_the_limit",
    "memory_file_beyond_the_limit",
    "threads_without_end",
    "processes_without_end",
})  # fmt: skip
NOT_WITHOUT_A_CGROUP = frozenset(f"{what}_beyond_the_memory_limit" for what in ("sockets", "connections", "datagrams"))
"""Attacks that would succeed there, to everybody's harm: nobody counts the kernel's own memory for sockets."""


@contextlib.contextmanager
def weakened(name: str, given: Given) -> Iterator[Callable[[SandboxSpec], SandboxSpec]]:
    """Take a protection away from the sandboxes of this block; yield what does so with a spec."""
    weaker = WEAKER[name]

    def words(*asked: Any) -> Words:
        return weaker.change(arguments(*asked), given)

    def larger(spec: SandboxSpec) -> SandboxSpec:
        most: dict[str, Any] = dict(weaker.limits)
        if any(key.endswith("_size") for key in most):
            most.setdefault("memory", 640 * MIB)
        limits: Limits = replace(spec.limits, **most)
        return replace(spec, limits=limits)

    with patch.object(launch, "arguments", words):
        yield larger
