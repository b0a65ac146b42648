"""What a machine was made of: what has to be known of it again, by another process or at another time."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..bubblewrap.interface import Root, find_root
from . import hardware, profile
from .artifacts import MachineParts, find, needed


class RunningConfig(NamedTuple):
    root: Root
    """Of the sandbox in it."""
    machine: MachineParts
    program: str
    ends: hardware.Ends
    uid: int
    """The user's number within the machine."""
    memory_bytes: int
    processors: int
    datasets: bool = False
    """Whether it has any."""

    @property
    def inside(self) -> Root:
        """What QEMU sees of the host."""
        return profile.root_of(self.program, self.machine.folder, self.machine.contents)

    @property
    def is_whole(self) -> bool:
        """Whether a written state has all of it: neither a second disk nor a folder of the host's is in one."""
        return self.ends.disk is None and not self.datasets

    def words(self) -> tuple[str, ...]:
        size, count = self.memory_bytes, self.processors
        return hardware.words(self.program, profile.FOLDER, size, count, self.ends, datasets=self.datasets)

    def facts(self) -> dict[str, Any]:
        """Return what has to be the same where a machine's state is read."""
        return {
            "machine": self.machine.identity,
            "contents": self.machine.contents,
            "memory_bytes": self.memory_bytes,
            "processors": self.processors,
            "uid": self.uid,
        }

    def state(self) -> dict[str, Any]:
        """Return what another process has to be told, as plain JSON."""
        return {
            "image": self.root.name,
            "ends": [*self.ends],
            "uid": self.uid,
            "memory_bytes": self.memory_bytes,
            "processors": self.processors,
            "datasets": self.datasets,
        }

    @classmethod
    def read(cls, state: dict[str, Any]) -> RunningConfig:
        """Undo `state`. Raises LookupError, TypeError, ValueError and `EngineError`."""
        root = find_root(str(state["image"]))
        uid, memory, count = (int(state[name]) for name in ("uid", "memory_bytes", "processors"))
        ends, datasets = hardware.Ends(*state["ends"]), bool(state["datasets"])
        return cls(root, find(root), needed(), ends, uid, memory, count, datasets)
