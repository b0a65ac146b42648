"""Which engine the settings name. Imports core, and each engine when it is the one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..core.errors import ConfigurationError, EngineUnavailable
from ..core.model import SandboxSpec, Settings
from ..core.usage_codes import UsageCode

if TYPE_CHECKING:
    from .about import Inspectable
    from .base import Ahead
    from .bubblewrap.roots import Root as Root  # noqa: PLC0414 (others name it, too)

AUTO, DOCKER, BUBBLEWRAP, BROKER, QEMU = "auto", "docker", "bubblewrap", "broker", "qemu"


def of_session(settings: Settings) -> Settings:
    """Return the settings of a session's engine: in the place of "auto" the address of this user's own broker.

    It has to listen, and to have the engine that `chosen` would take. Who looks after that engine, and after all that
    is on it, asks the engine itself.
    """
    path = _own_broker(settings) if settings.engine == AUTO else None
    return settings if path is None else replace(settings, engine=f"{BROKER}://{path}")


def chosen(settings: Settings) -> str:
    """Return the name of an engine, or the address of a socket; "auto" takes the first that is there.

    Where none is, it is Docker, whose error says what to do. What is there and then refuses a sandbox, or fails its
    attestation, is not replaced by the next: that could be a weaker wall, and somebody should look at the first.
    """
    if settings.engine != AUTO:
        return settings.engine
    from .broker.places import operators_answers

    if operators_answers():
        return BROKER
    return _without_broker()


def _without_broker() -> str:
    from .docker.discovery import answers

    if answers() or bubblewrap_program() is None:
        return DOCKER
    return BUBBLEWRAP


def _own_broker(settings: Settings) -> str | None:
    """Return where this user's own broker listens, if it has the engine that is `chosen`."""
    from .broker import places

    if not os.path.lexists(path := places.own()) or (engine := chosen(settings)) == BROKER:
        return None
    from .docker.discovery import socket_path

    return path if places.own_has(f"unix://{socket_path(None)}" if engine == DOCKER else engine) else None


def explained(settings: Settings) -> str:
    """Return which engine a session takes, and for "auto" why, as it is said to people."""
    engine = chosen(settings)
    if settings.engine != AUTO:
        return engine
    if engine == BROKER:
        return f"{engine}, the operator's, which answers this user"
    if _own_broker(settings) is not None:
        return f"{BROKER}, this user's own, which listens and has {engine}"
    from .broker.places import others

    strange = (f"; not the broker at {path}, which another installation of this package started" for path in others())
    return _without_own(engine) + "".join(strange)


def _without_own(engine: str) -> str:
    if engine == BUBBLEWRAP:
        return f"{engine}, for no Docker answers this user"
    from .docker.discovery import answers

    return f"{engine}, which {'answers' if answers() else 'does not answer'} this user"


def make_engine(settings: Settings, ahead: Ahead | None = None) -> Inspectable:
    """Return the engine that the settings name; a session's are those of `of_session`. Nothing is connected yet.

    What was asked `ahead`, which takes a running loop, goes on at once, and its first start takes it up.
    """
    engine = chosen(settings) if ahead is None else _asked_ahead(ahead) or chosen(settings)
    if is_broker(engine):
        from .broker.engine import BrokerEngine

        return BrokerEngine(engine, ahead)
    if engine == BUBBLEWRAP:
        from .bubblewrap.engine import BubblewrapEngine

        return BubblewrapEngine(ahead=ahead)
    if engine == QEMU:
        from .qemu.engine import QemuEngine

        return QemuEngine(preload=settings.preload)
    from .docker.engine import DockerEngine

    made = DockerEngine(base_url=_address(engine), ahead=ahead)
    if ahead is not None:
        made.go_on()
    return made


def _asked_ahead(ahead: Ahead) -> str:
    """Return the address of the broker that was asked ahead, an empty one for another engine."""
    from .broker.ahead import Asked

    return f"{BROKER}://{ahead.path}" if isinstance(ahead, Asked) else ""


def make_own_engine(settings: Settings) -> Inspectable:
    """Return the engine for a broker. Raises `ConfigurationError` if the settings name a broker."""
    if is_broker(settings.engine):
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "a broker needs an engine of its own", setting="engine")
    return make_engine(replace(settings, engine=_without_broker()) if settings.engine == AUTO else settings)


async def begin(engine: Inspectable) -> None:
    """Have the user's own broker listen, if that is the engine, as a session does. Raises `EngineUnavailable`."""
    if is_broker(engine.address):
        from .broker.engine import BrokerEngine

        await BrokerEngine(engine.address).begin()


def without_own_broker(settings: Settings) -> Settings:
    """Return the settings of the engine that the user's own broker takes, where they name that broker."""
    from .broker.places import is_own, path_of

    own = is_broker(settings.engine) and is_own(path_of(settings.engine))
    return replace(settings, engine=AUTO) if own else settings


async def make_engine_of_all(settings: Settings) -> Inspectable:
    """Return the engine to ask what is there: where the user's own broker does not listen, the one that it takes."""
    engine = make_engine(settings)
    if (behind := without_own_broker(settings)) is settings:
        return engine
    from .broker.engine import BrokerEngine

    try:
        await BrokerEngine(engine.address).status()
    except EngineUnavailable:
        return make_engine(behind)
    return engine


def is_broker(engine: str) -> bool:
    """Return whether a name or an address is a broker's."""
    return engine == BROKER or engine.startswith(f"{BROKER}://")


def ask_ahead(settings: Settings, spec: SandboxSpec) -> Ahead:
    """Ask the engine that the settings name for a container, before there is an event loop.

    Raises OSError if it does not take that in at once, `ConfigurationError` for an engine that cannot be, and
    `EngineError` for one that refuses.
    """
    engine = chosen(settings)
    if is_broker(engine):
        from .broker import ahead
        from .broker.places import path_of

        return ahead.ask_ahead(path_of(engine), spec)
    if engine == QEMU:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "a machine is asked to begin at once", setting="engine")
    if engine == BUBBLEWRAP:
        from .bubblewrap.ahead import begin_ahead

        return begin_ahead(spec)
    from .docker.ahead import ask_ahead
    from .docker.discovery import socket_path

    return ask_ahead(socket_path(_address(engine)), spec)


def addresses(environment: Mapping[str, str]) -> list[str]:
    """Return where an engine may be on this machine, best first, as those who set it up mean it (DOCKER_HOST)."""
    from .docker import discovery

    return discovery.addresses(environment)


def bubblewrap_program() -> str | None:
    """Return the path of bubblewrap, None where there is none that this process can start."""
    from .bubblewrap import discovery

    return discovery.bubblewrap_program()


def root_named(name: str) -> Root:
    """Return what bubblewrap has for a file system under a name. Raises `ImageMissing` and `EngineError`."""
    from .bubblewrap import roots

    return roots.find(name)


def program_in(root: Root, name: str) -> str | None:
    """Return where a program lies in a root, None where it has none of that name."""
    from .bubblewrap import roots

    return roots.program(root, name)


def root_folders() -> list[str]:
    """Return where such roots may lie, the user's own first."""
    from .bubblewrap import roots

    return roots.folders()


def _address(engine: str) -> str | None:
    return None if engine == DOCKER else engine
