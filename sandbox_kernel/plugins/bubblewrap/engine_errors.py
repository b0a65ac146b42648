"""What bubblewrap and the machine refuse, as errors of ours: whose fault it is and what to do. Imports errors only."""

from __future__ import annotations

import os

from ...core.codes import EndCode
from ...core.errors import EngineError, EngineUnavailable, SandboxError
from ...core.model import ATTACHED, SandboxSpec
from ...core.remedies import FOR_NAMESPACES, bubblewrap, on_wheels, systemd_runs
from ...engines import attachment

PREFIX = "bwrap: "

WITHIN_A_CONTAINER = (
    f"within a container, start that with {FOR_NAMESPACES} (a pod with runAsUser: 1000 and seccompProfile: "
    "Unconfined), or with Docker's socket (docs/install.md)"
)
NO_NAMESPACES = (
    "this machine lets no ordinary user have a namespace of its own: `sandbox-kernel doctor --engine bubblewrap` names "
    f"the switch that forbids it; {WITHIN_A_CONTAINER}"
)
NO_PROC = (
    "no /proc can be mounted here: run it on the machine itself, or start the container with its /proc unmasked "
    "(--security-opt systempaths=unconfined)"
)
WITHOUT_PROC = (
    "none, for a part of this machine's is covered, as in most containers: programs find few files in /proc, contexts "
    "do not start, and the filter of system calls alone refuses namespaces within"
)
_ACCEPT = "`sandbox-kernel setup --engine bubblewrap --limits best-effort`"
NO_PLACE = "bubblewrap builds a sandbox's root on /tmp, and this machine has no such folder: create it (mode 1777)"


class NoLayers(EngineError):
    """This machine, or its bubblewrap, puts no layer above the folders of a root."""


def missing() -> EngineUnavailable:
    """There is no bubblewrap."""
    return EngineUnavailable(
        EndCode.ENGINE_NOT_FOUND,
        f"there is no bubblewrap here: {bubblewrap()}; {on_wheels()}",
        setting="engine",
    )


def unreachable(path: str) -> EngineError:
    """Root starts sandboxes as users that cannot read this."""
    return EngineError(
        EndCode.ENGINE_NOT_SET_UP,
        f"root's sandboxes run as users of their own, who cannot reach {path}: put it where every user may read it",
        setting="engine",
    )


def no_sight() -> EngineUnavailable:
    """Root, whose sandboxes have users of their own, may not look at processes of others."""
    return EngineUnavailable(
        EndCode.ENGINE_FORBIDDEN,
        "root may not look at other users' processes here, so no sandbox of it can be attested: start the container as "
        "an ordinary user (--user 1000), or with --cap-add SYS_PTRACE",
        setting="engine",
    )


def no_limits(why: str) -> EngineError:
    """There is no cgroup, and no setting accepts a sandbox without one."""
    return EngineError(
        EndCode.ENGINE_LACKS_PROTECTION,
        f"memory, processes and processors cannot be limited here ({why.strip()}): {_own_cgroup()}accept less, with "
        'Sandbox(limits="best-effort") in Python, --limits best-effort behind a command, and for a kernel of notebooks '
        f"{_ACCEPT}",
        setting="limits",
    )


def no_processors(cpuset: str, why: str) -> EngineError:
    """There is no cgroup with these processors, whatever `limits` accepts."""
    return EngineError(
        EndCode.ENGINE_LACKS_PROTECTION,
        f"no sandbox can be kept to these processors here ({why.strip()}): name some that the machine has, or leave "
        f"it out; an ordinary user needs a cgroup with the controllers cpuset, memory, pids and cpu (Delegate=)",
        value=cpuset,
        setting="cpuset",
    )


def no_namespaces(why: str = "") -> EngineUnavailable:
    """There is bubblewrap, and the machine refuses what it makes a sandbox of."""
    return EngineUnavailable(EndCode.ENGINE_FORBIDDEN, f"{NO_NAMESPACES}{why}; {on_wheels()}", setting="engine")


def no_proc(why: str) -> EngineUnavailable:
    """The machine mounts no new /proc, and no part of its own will do."""
    return EngineUnavailable(EndCode.ENGINE_FORBIDDEN, f"{NO_PROC} ({why}); {on_wheels()}", setting="engine")


def without_cgroup() -> str:
    """Return what a person does where no cgroup can be made: systemd gives one to a user who asks."""
    return f"{_own_cgroup()}accept less: {_ACCEPT}"


def _own_cgroup() -> str:
    if not systemd_runs() or os.geteuid() == 0:
        return ""
    return "start it in a cgroup that is yours, `systemd-run --user --scope -p Delegate=yes COMMAND`, or "


def no_layers(spec: SandboxSpec, why: str) -> EngineError:
    """What a sandbox has of the host's is given as a layer, or not at all."""
    setting = spec.attached[0].setting
    return attachment.lacking(
        setting, f"bubblewrap 0.11 and Linux 5.11 are needed for layers, and there are none here ({why})"
    )


def refusal(said: str) -> SandboxError:
    """Translate the last words of a bubblewrap that failed before it started the sandbox's program."""
    text = said.strip()
    words = text.removeprefix(PREFIX)
    low = words.lower()
    if "overlay mount on /newroot" + ATTACHED in words:
        path = words.partition("/newroot")[2].partition(" ")[0]
        why = "something is mounted below it, or its file system takes no layer above it"
        why += (
            f" ({words.rpartition(': ')[2][:100]}): name a folder without mounts below, on a local disk, or use Docker"
        )
        return attachment.provider().not_layered(path, why)
    if "overlay" in low:
        return NoLayers(EndCode.ENGINE_FAILED, f"no layer can be put above the root: {words[:500]}")
    if "namespace" in low or "uid map" in low or "gid map" in low or "loopback" in low:
        return no_namespaces(f" (it said: {words[:200]})")
    if "proc" in low and "mount" in low:
        return no_proc(f"it said: {words[:200]}")
    if "mount tmpfs: no such file" in low:
        return EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, NO_PLACE, setting="engine")
    return EngineError(
        EndCode.ENGINE_FAILED, f"bubblewrap did not start the sandbox: {words[:500] or 'it said nothing'}"
    )
