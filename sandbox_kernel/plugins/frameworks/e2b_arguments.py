"""E2B's arguments as those of this package: by their positions, by their names, and of no effect."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import update_wrapper, wraps
from typing import Any, TypeVar

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError, wrong_argument

T = TypeVar("T")

TEMPLATES = frozenset(("base", "code-interpreter-v1"))
"""Templates that E2B has by default: what code means by them is a Python with the usual packages."""
NO_EFFECT = frozenset((
    "access_token", "allow_network_mounts", "api_headers", "api_key", "api_url", "debug", "domain", "gzip", "headers",
    "http_version", "idempotency_key", "logger", "on_resume", "opts", "proxy", "request_timeout", "retries",
    "sandbox_url", "secure", "stream_idle_timeout", "use_octet_stream", "user", "validate_api_key",
))  # fmt: skip
"""How a service is reached and how files are carried: accepted, so that code which is moved over runs."""


def own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that have an effect. Raises `ConfigurationError` for another user than the sandbox's own."""
    if (user := given.get("user")) not in (None, "user", "sandbox"):
        raise wrong_argument("user", f"all in a sandbox is done as its own user, and not as {user!r}")
    return {name: value for name, value in given.items() if name not in NO_EFFECT}


def hosted(method: Callable[..., T], *positional: str) -> Callable[..., T]:
    """Return a method of this package that takes E2B's arguments, those of these names also by their positions."""

    def call(self: Any, *values: Any, **named: Any) -> T:
        by_position = dict(zip(positional, values, strict=False))
        if len(values) > len(positional) or by_position.keys() & named.keys():
            raise TypeError(f"{method.__name__} takes {', '.join(positional)}, each once")
        return method(self, **own(by_position | named))

    update_wrapper(call, method)
    del call.__dict__["__wrapped__"]  # whose arguments are others
    return call


def waited(method: Callable[..., Coroutine[Any, Any, T]]) -> Callable[..., T]:
    """Return the blocking form of a method of an asynchronous class with E2B's names."""

    @wraps(method)
    def call(self: Any, *values: Any, **named: Any) -> T:
        found: T = self._call(method, self._inner, *values, **named)
        return found

    return call


def opened(given: Any, keywords: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return what a sandbox is opened with. Raises `ConfigurationError`."""
    rest = own(keywords)
    template, internet = rest.pop("template", None), rest.pop("allow_internet_access", None)
    if internet:
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            "a sandbox has no way to the internet as a whole; name the hosts that its cells may reach",
            setting="network",
        )
    if isinstance(given, str):
        given, template = None, given
    if template is not None and template not in TEMPLATES:
        rest.setdefault("image", template)
    if isinstance(rest.get("network"), Mapping):
        rest["network"] = _allowed(rest["network"])
    return given, rest


_AS_IT_IS = (("allow_public_traffic", False), ("allow_public_traffic", None), ("mask_request_host", None))
"""What E2B is asked for, and no sandbox here is otherwise."""


def _allowed(network: Mapping[str, Any]) -> list[str]:
    """Return the rules of E2B's form: `{"allow_out": [...]}`.

    What asks for no more than is so in any case (`"allow_public_traffic": False`) is accepted; all else is refused.
    """
    asked = {name: value for name, value in network.items() if name != "deny_out" and (name, value) not in _AS_IT_IS}
    hosts = asked.pop("allow_out", [])
    if asked or not isinstance(hosts, (list, tuple)):
        name, value = next(iter(asked.items()), ("allow_out", hosts))
        raise ConfigurationError(
            UsageCode.WRONG_ARGUMENT,
            f"a sandbox has no {name}={value!r}"[:200]
            + ': network is a list of hosts that cells may reach, or {"allow_out": '
            "[...]}; all else is denied, and nothing reaches a sandbox from outside",
            setting="network",
        )
    return list(hosts)
