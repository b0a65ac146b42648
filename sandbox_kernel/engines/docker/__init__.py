"""Docker, and whatever speaks its API.

- `arguments`: A sandbox's protections in Docker's words; pure, with snapshot tests.
- `ahead`: What a start asks of the engine, and asking it before there is an event loop.
- `discovery`: Where an engine listens.
- `few_users`: User ids of sandboxes where an engine has 65,536 of its own.
- `engine_errors`: What an engine refuses, and how it fails, as errors of ours.
- `api_version`: Which version of the Engine API is spoken.
- `api_client`: The Engine API over its socket: the HTTP client, and the calls that several modules need.
- `container`: One running container: its pipe, why it ended, and whether the engine made what it was asked for.
- `engine`: The Docker engine: start, adopt, list, reap, what it says of itself; and why a start failed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ..select import EngineProvider

if TYPE_CHECKING:
    from ...core.model import SandboxSpec, Settings
    from ..base import Ahead
    from ..inspectable import Inspectable


class DockerProvider(EngineProvider):
    """Docker, found by itself or at an address."""

    name = "docker"
    keeps_apart = frozenset({"cpuset"})
    excuses = MappingProxyType(
        {
            "docker with userns-remap": {
                "control groups": (
                    "writable",
                    "Docker leaves them so for user ids of their own; the folders are root's, and no place to write",
                )
            },
            "docker without a cgroup": {
                **dict.fromkeys(
                    ("memory limit", "swap", "process limit", "CPU quota and period"),
                    ("whatever it is", "limits = best-effort accepts that the host looks at what is used"),
                )
            },
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        from .engine import DockerEngine

        made = DockerEngine(base_url=self._url(address), ahead=ahead)
        if ahead is not None:
            made.go_on()
        return made

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        from .ahead import ask_ahead
        from .discovery import socket_path

        return ask_ahead(socket_path(self._url(address)), spec)

    def answers(self) -> bool:
        from . import discovery

        return discovery.answers()

    def listening(self, address: str) -> str:
        from . import discovery

        return discovery.listening(address)

    def beside(self) -> str:
        from . import discovery

        return discovery.elsewhere()

    def remedy(self, address: str) -> str:
        from . import engine_errors

        return engine_errors.remedy(address.removeprefix("unix://"))

    def address(self) -> str:
        from .discovery import socket_path

        return f"unix://{socket_path(None)}"

    def _url(self, address: str) -> str | None:
        return None if address == self.name else address


PROVIDER = DockerProvider()
