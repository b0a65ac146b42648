"""The engines by their names, and which one the settings name.

Docker is a folder here, and each other engine comes with a plugin; each has an `EngineProvider`, and this module knows
no more of any. Imports core; an engine, and the index of plugins, when it is the one.

Public: plugins may import it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError
from ..core.model import SandboxSpec, Settings
from . import broker_sockets

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import ModuleType
    from typing import Any, Literal

    from .base import Ahead
    from .image_names import Kind
    from .inspectable import Inspectable
    from .wall import Wall

AUTO, DOCKER, PODMAN, BUBBLEWRAP, BROKER = "auto", "docker", "podman", "bubblewrap", "broker"
ORDER = (DOCKER, PODMAN, BUBBLEWRAP)
"""What "auto" looks for where no broker is taken, best first."""
APART = {"cpuset": None, "core_scheduling": "off"}
"""Settings that keep a sandbox off processors of others, and what asks for nothing."""


class EngineProvider:
    """One engine as all others know it: by its name. An engine overrides what it has.

    To make one loads nothing of the engine; each method imports what it needs.
    """

    name: str
    """As the setting `engine` names it."""
    image_kind: Literal["image", "root", "own"] = "image"
    """What `build` makes for it first: an image of Docker's, a root, which is a folder, or nothing."""
    is_shared = False
    """Whether its sandboxes are further kernels in another engine's: who looks at sandboxes looks at those of that."""
    is_emulated = False
    """Whether its sandboxes have an emulated processor: computing takes about ten times as long."""
    is_elsewhere = False
    """Whether its sandboxes are on other machines: no broker of this one has it."""
    ends_with_owner = False
    """Whether no sandbox of it passes to another process: no broker has it."""
    caveat: str = ""
    """What the banner of its kernels says of their answers: where they are not those of other machines."""
    excuses: Mapping[str, Mapping[str, tuple[str, str]]] = MappingProxyType({})
    """What the attestation accepts in place of what was asked for, and why: by `Inspection.engine`, the engine's
    name or begins with it and a space, and then by the name of the comparison. Everything else is a difference."""
    keeps_apart: frozenset[str] = frozenset()
    """Which of the settings in `APART` its sandboxes can have; the others are refused before anything starts."""
    openings: Mapping[str, str] = MappingProxyType({})
    """Attacks of `escape` that find something in its sandboxes, and why that is no way out."""

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        """Return the engine. Nothing is connected yet. `address` is its name, or that of a socket.

        What was asked `ahead`, which takes a running loop, goes on at once, and its first start takes it up.
        """
        raise NotImplementedError

    def ask_ahead(self, address: str, spec: SandboxSpec) -> Ahead:
        """Ask it for a container, before there is an event loop.

        Raises OSError if it does not take that in at once, `ConfigurationError` if it never does, `EngineError` if it
        refuses.
        """
        raise ConfigurationError(UsageCode.NOT_TOGETHER, f"{self.name} is asked for nothing ahead", setting="engine")

    def answers(self) -> bool:
        """Return whether "auto" may take it: it is here, and this user may use it."""
        return False

    def listening(self, address: str) -> str:
        """Return the address of the engine that listens at a socket, which may be another one with the same API."""
        return address

    def beside(self) -> str:
        """Return what else is here that could be meant, and why "auto" does not take that; empty if nothing is."""
        return ""

    def remedy(self, address: str) -> str:
        """Return what a person does where it cannot be used; empty where what it raises says all."""
        return ""

    def address(self) -> str:
        """Return where it is asked if only its name is given, as the engine itself says it."""
        return self.name

    def build(self, root: str, *, force: bool, progress: Callable[[str], None]) -> str:
        """Make what its sandboxes need besides a root or an image of this name; return what to call it.

        Raises `EngineError`.
        """
        return root

    def state(self, image: str) -> tuple[str, Literal["ok", "note", "wrong"], str, str] | None:
        """Return for the doctor what is there under the name of an image: a title, how it is, what was found, a remedy.

        None if that is what the engine itself says. May block.
        """
        return None if self.image_kind == "image" else provider(BUBBLEWRAP).state(image)

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
        """Make a root of a kind, or with the files of an image of Docker's, and return its name.

        bubblewrap makes those of all engines. Raises `EngineError`, and `ConfigurationError` for requirements that
        cannot be met.
        """
        raise NotImplementedError

    @property
    def differences(self) -> Mapping[str, str]:
        """Attacks of `escape` that its sandboxes refuse in another word than Docker's with runc, and this word."""
        return MappingProxyType({})

    def walls(self) -> tuple[Wall, ...]:
        """Return for `doctor --walls` what it closes in, for engines of plugins."""
        return ()


class ServiceProvider(EngineProvider):
    """An engine that is a process of its own: it has another engine, and makes sandboxes for those who ask it.

    One that `answers` is the operator's; each user may have an own one.
    """

    def own_with(self, engine: str) -> str | None:
        """Return the address of this user's own, if it listens and has the engine with this address."""
        raise NotImplementedError

    def others(self) -> list[str]:
        """Return where some of this user's listen that another installation of this package started."""
        raise NotImplementedError

    def keeper(self) -> Any:
        """Return what keeps sandboxes that outlive their caller: a `sdk.ownership.Keeper`."""
        raise NotImplementedError

    def is_own(self, address: str) -> bool:
        """Return whether this user's own is meant."""
        raise NotImplementedError

    async def begin(self, address: str) -> None:
        """Have it listen, if it is this user's own. Raises `EngineUnavailable`."""
        raise NotImplementedError

    async def listens(self, address: str) -> bool:
        """Return whether one listens there."""
        raise NotImplementedError


def provider(engine: str) -> EngineProvider:
    """Return the engine with a name or an address.

    Raises `ConfigurationError` if there is none, if it comes with a plugin of ours that is not here, or with one of
    another package that cannot be used.
    """
    name, has_scheme, _ = engine.partition("://")
    if engine.startswith("/") or name == "unix" or (has_scheme and name not in names()):
        name = DOCKER
    if name == DOCKER:
        found: EngineProvider = import_module(f"{__package__}.docker").PROVIDER
        return found
    if (plugin := _index().with_engine(name)) is not None:
        return _checked(plugin, name)
    raise ConfigurationError(
        EndCode.WRONG_SETTING,
        f"there is no engine of this name; there are {', '.join(names())}",
        setting="engine",
        value=name[:64],
    )


def _index() -> ModuleType:
    """Return the index of plugins, imported where a name is none of ours, and never else: a start waits for this."""
    from ..plugins import index

    return index


def _checked(plugin: Any, name: str) -> EngineProvider:
    found = next(one for one in plugin.engines if getattr(one, "name", None) == name)
    if not isinstance(found, EngineProvider):
        words = f"the engine {name} of the plugin {plugin.name} is no EngineProvider"
        raise ConfigurationError(UsageCode.PLUGIN_UNUSABLE, words, setting="engine", value=name[:64])
    return found


def require_apart(settings: Settings) -> None:
    """Raise `ConfigurationError` where the engine of a session cannot keep what a setting of `APART` asks for."""
    for name in asked_apart(settings):
        if name not in provider(chosen(settings)).keeps_apart:
            able = [one for one in names() if name in provider(one).keeps_apart]
            words = f"sandboxes of {chosen(settings)[:64]} cannot have it; those of {', '.join(able)} can"
            raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting=name, value=getattr(settings, name))


def asked_apart(settings: Settings) -> list[str]:
    """Return the settings of `APART` that ask for something."""
    return [name for name, nothing in APART.items() if getattr(settings, name) != nothing]


def names() -> tuple[str, ...]:
    """Return the names of all engines of this installation, but for those of other packages."""
    return (DOCKER, *_index().engines())


def of_plugins() -> tuple[EngineProvider, ...]:
    """Return the engines of our plugins that are a part of this installation."""
    return tuple(provider(name) for name in _index().engines())


def excuses(name: str) -> Mapping[str, tuple[str, str]] | None:
    """Return what an engine excuses under the name in its inspection; None if it has no such name.

    A name of no engine excuses nothing, so all that differs is a difference.
    """
    try:
        return provider(name.partition(" ")[0]).excuses.get(name)
    except ConfigurationError:
        return None


def of_session(settings: Settings) -> Settings:
    """Return the settings of a session's engine: in the place of "auto" the address of this user's own broker.

    It has to listen, and to have the engine that `chosen` would take. Who looks after that engine, and after all that
    is on it, asks the engine itself.
    """
    address = _own_broker(settings) if settings.engine == AUTO else None
    return settings if address is None else replace(settings, engine=address)


def chosen(settings: Settings) -> str:
    """Return the name of an engine, or the address of a socket; "auto" takes the first that is there.

    Where none is, it is Docker, whose error says what to do. What is there and then refuses a sandbox, or fails its
    attestation, is not replaced by the next: that could be a weaker wall, and somebody should look at the first.
    """
    if settings.engine != AUTO:
        is_socket = settings.engine.startswith(("/", "unix://"))
        return provider(DOCKER).listening(settings.engine) if is_socket else settings.engine
    brokers = _brokers() if broker_sockets.operators_is_there() else None
    return BROKER if brokers is not None and brokers.answers() else _without_broker()


def answers(name: str) -> bool:
    """Return whether "auto" may take an engine of `ORDER`: it is a part of this installation, and answers this user."""
    return (name == DOCKER or name in _index().engines()) and provider(name).answers()


def _without_broker() -> str:
    return next(filter(answers, ORDER), DOCKER)


def _own_broker(settings: Settings) -> str | None:
    """Return the address of this user's own broker, if that listens and has the engine that is `chosen`.

    None for what no broker's sandboxes can have.
    """
    brokers = _brokers() if broker_sockets.own_is_there() and not asked_apart(settings) else None
    if brokers is None or (engine := chosen(settings)) == BROKER:
        return None
    return brokers.own_with(provider(engine).address() if engine in ORDER else engine)


def _brokers() -> ServiceProvider | None:
    """Return what asks brokers; None where that plugin is not here, and none is taken."""
    found = provider(BROKER) if BROKER in _index().engines() else None
    return found if isinstance(found, ServiceProvider) else None


def explained(settings: Settings) -> str:
    """Return which engine a session takes, and for "auto" why, as people read it."""
    engine = chosen(settings)
    if settings.engine != AUTO:
        return engine
    if engine == BROKER:
        return f"{engine}, the operator's, which answers this user"
    if _own_broker(settings) is not None:
        return f"{BROKER}, this user's own, which listens and has {engine}"
    strange = (f"; not the broker at {path}, which another installation of this package started" for path in others())
    return _without_own(engine) + "".join(strange)


def others() -> list[str]:
    """Return where brokers of this user's listen that another installation started: none of them is taken."""
    brokers = _brokers() if os.path.lexists(broker_sockets.own_folder()) else None
    return [] if brokers is None else brokers.others()


def _without_own(engine: str) -> str:
    beside = provider(DOCKER).beside()
    why = f"; {beside}" if beside else ""
    if engine != DOCKER:
        before = " and no ".join(name.title() for name in ORDER[: ORDER.index(engine)] if name in names())
        return f"{engine}, for no {before} answers this user{why}"
    return f"{engine}, which {'answers' if provider(engine).answers() else 'does not answer'} this user{why}"


def make_engine(settings: Settings, ahead: Ahead | None = None) -> Inspectable:
    """Return the engine that the settings name; a session's are those of `of_session`. Nothing is connected yet.

    What was asked `ahead`, which takes a running loop, goes on at once, and its first start takes it up. Raises
    `ConfigurationError` for an engine that there is not.
    """
    engine = chosen(settings) if ahead is None else ahead.engine
    return provider(engine).make(engine, settings, ahead)


def beneath(settings: Settings) -> Settings:
    """Return the settings of a sandbox that is one by itself, where they name a shared one."""
    shared = settings.engine != AUTO and provider(settings.engine).is_shared
    return replace(settings, engine=AUTO) if shared else settings


def make_own_engine(settings: Settings) -> Inspectable:
    """Return the engine for a broker.

    Raises `ConfigurationError` if the settings name a broker, what is shared, or an engine whose sandboxes are on
    other machines or end with their owner.
    """
    if is_service(settings.engine) or beneath(settings) is not settings:
        raise ConfigurationError(UsageCode.NOT_TOGETHER, "a broker needs an engine of its own", setting="engine")
    if settings.engine != AUTO and provider(settings.engine).is_elsewhere:
        words = f"a broker has an engine of its machine, and sandboxes of {settings.engine} are on others"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting="engine")
    if settings.engine != AUTO and provider(settings.engine).ends_with_owner:
        words = f"a broker hands sandboxes over, and those of {settings.engine} end with the process that started them"
        raise ConfigurationError(UsageCode.NOT_TOGETHER, words, setting="engine")
    return make_engine(replace(settings, engine=_without_broker()) if settings.engine == AUTO else settings)


async def begin(engine: Inspectable) -> None:
    """Have the user's own broker listen, if that is the engine, as a session does. Raises `EngineUnavailable`."""
    if isinstance(service := provider(engine.address), ServiceProvider):
        await service.begin(engine.address)


def without_own_broker(settings: Settings) -> Settings:
    """Return the settings of the engine that the user's own broker takes, where they name that broker."""
    service = None if settings.engine == AUTO else provider(settings.engine)
    own = isinstance(service, ServiceProvider) and service.is_own(settings.engine)
    return replace(settings, engine=AUTO) if own else settings


async def make_engine_of_all(settings: Settings) -> Inspectable:
    """Return the engine to ask what is there: where the user's own broker does not listen, the one that it takes."""
    engine = make_engine(settings)
    if (behind := without_own_broker(settings)) is settings:
        return engine
    service = provider(engine.address)
    listens = isinstance(service, ServiceProvider) and await service.listens(engine.address)
    return engine if listens else make_engine(behind)


async def with_largest_image(settings: Settings) -> Settings:
    """Return the settings with the image `full`, if the engine has it for this user; as they are if it has not."""
    from ..core.errors import SandboxError
    from .image_names import FULL

    try:
        image = await (await make_engine_of_all(settings)).image(FULL)
    except SandboxError:
        return settings
    return replace(settings, image=FULL) if image.size_bytes else settings


def is_service(engine: str) -> bool:
    """Return whether a name or an address is that of a process that has an engine of its own, as a broker has."""
    return engine != AUTO and isinstance(provider(engine), ServiceProvider)


def ask_ahead(settings: Settings, spec: SandboxSpec) -> Ahead:
    """Ask the engine that the settings name for a container, before there is an event loop.

    Raises OSError if it does not take that in at once, `ConfigurationError` for an engine that cannot be, and
    `EngineError` for one that refuses.
    """
    engine = chosen(settings)
    return provider(engine).ask_ahead(engine, spec)
