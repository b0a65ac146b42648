"""Engines whose containers have 65,536 user ids that are not the machine's: rootless ones, and with userns-remap.

A sandbox gets one of these few. No two have the same at a time: each container is created with its id as a label, and
started only after the engine has listed no other one with that label. Of two that drew the same id, whichever process
asks second sees the other; both may give way, and draw again.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.model import SandboxSpec
from ..user_ids import FEW_UIDS, new_uid
from .arguments import LABEL

if TYPE_CHECKING:
    from ..usage_watch import MayUse

USER = f"{LABEL}.user"
"""The label with the user id of a container's processes."""
LIMITED = {"MemoryLimit": "memory", "SwapLimit": "swap", "CpuCfsQuota": "cpus", "PidsLimit": "pids"}
USERS = {"name=rootless": "rootless", "name=userns": "set to userns-remap"}
REMAPPED = "docker with userns-remap"
TRIES = 20
"""With a thousand sandboxes, one draw of sixty is another one's."""


class FewUsers(NamedTuple):
    """Why an engine's containers have user ids of their own, and what else follows from it."""

    words: str
    limited: bool
    """Whether it limits what its containers use."""


class OwnUser(NamedTuple):
    """What a sandbox has in place of the user id that was asked for."""

    uid: int
    engine: FewUsers
    most: MayUse | None
    """What it may use, where nothing but a look at it keeps that; None where the engine limits it."""


known: dict[str, FewUsers] = {}
"""Such engines by their sockets, as this process was told. Each start asks again: another engine may be there now."""


class LacksUsers(EngineError):
    """The engine has no such user id."""


class UserTaken(EngineError):
    """Another sandbox has the user id."""


def users(info: Mapping[str, Any]) -> str:
    """Return why the user ids of its containers are not the machine's (`GET /info`); empty if they are."""
    options = {str(option).partition(",")[0] for option in info.get("SecurityOptions") or ()}
    return next((words for option, words in USERS.items() if option in options), "")


def note(path: str, info: Mapping[str, Any]) -> FewUsers | None:
    """Keep what the engine behind a socket says (`GET /info`), and return it if it has few user ids."""
    known.pop(path, None)
    if found := users(info):
        known[path] = FewUsers(found, all(info.get(name) for name in LIMITED))
    return known.get(path)


def drawn(spec: SandboxSpec, engine: FewUsers) -> OwnUser:
    """Return what a sandbox gets, by chance."""
    from ..usage_watch import MayUse

    kept = engine.limited or spec.limits_kept == "enforced"
    return OwnUser(new_uid(FEW_UIDS), engine, None if kept else MayUse.of(spec))


def told(state: Any) -> OwnUser | None:
    """Return what another process wrote down of a sandbox. Raises TypeError or ValueError for what is not one."""
    from ..usage_watch import MayUse

    if state is None:
        return None
    uid, (words, limited), most = state
    return OwnUser(int(uid), FewUsers(str(words), bool(limited)), None if most is None else MayUse(*map(int, most)))


def excused(own: OwnUser | None) -> str:
    """Return whose excuses hold for a sandbox, as in `EngineProvider.excuses`."""
    from ..attestation import DOCKER_WITHOUT_A_CGROUP

    if own is None:
        return ""
    if own.most is not None:
        return DOCKER_WITHOUT_A_CGROUP
    return REMAPPED if own.engine.words == USERS["name=userns"] else ""


def may_be(path: str) -> bool:
    """Return whether an engine has to be asked before it is given the machine's user ids.

    What listens as another user than root is rootless, or leads to an engine elsewhere.
    """
    if path in known or not hasattr(socket, "SO_PEERCRED"):
        return path in known
    with socket.socket(socket.AF_UNIX) as engine:
        engine.setblocking(False)
        try:
            engine.connect(path)
            said = engine.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        except OSError:
            return False  # who asks next says why
    return bool(struct.unpack("3i", said)[1])


async def why(error: EngineError, path: str, request: Callable[[str, str], Awaitable[Any]]) -> EngineError | None:
    """Return a better error, None if there is none: a runtime says of a user id that it lacks "invalid argument"."""
    if error.code != EndCode.ENGINE_FAILED or isinstance(error, UserTaken):
        return None
    try:
        found = note(path, await request("GET", "/info"))
    except EngineError:
        return None
    if found is None:
        return None
    return LacksUsers(
        EndCode.ENGINE_LACKS_USERS,
        f"this engine is {found.words}: its containers have a few user ids that are not the machine's, and one that a "
        f"sandbox may have is not among them (it said: {error.message[:300]})",
        setting="engine",
    )


async def require_alone(uid: str, identity: str, request: Callable[[str, str], Awaitable[Any]]) -> None:
    """Raise `UserTaken` if the engine has another container with this user id."""
    filters = quote(json.dumps({"label": [f"{USER}={uid}"]}), safe="")
    found = await request("GET", f"/containers/json?all=1&filters={filters}")
    if [one for one in found if one["Id"] != identity]:
        raise UserTaken(EndCode.ENGINE_FAILED, f"another sandbox has the user id {uid}")
