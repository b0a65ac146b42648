"""The settings for sandboxes that are ready before they are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...config.forms import Form, is_nothing, listed, number, path_from_root, refuse
from ...config.setting import rows, setting
from ...core.model import PRELOAD

STATE = "/var/lib/sandbox-kernel"
"""Where an operator's broker keeps what outlives it, if nobody says otherwise."""
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")


BESIDE = "/var/run/secrets/sandbox-kernel/"
"""Where a pod has what it takes to ask a broker of its cluster (docs/broker.md)."""


def _file(name: str, raw: object) -> str:
    if (found := path_from_root(raw)) is None:
        raise refuse(name, raw, f"{name} is not the path of a file from the root, or from ~, on")
    return found


def _file_or_none(name: str, raw: object) -> str | None:
    return None if is_nothing(raw) else _file(name, raw)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """Sandboxes that a broker keeps ready."""

    pool: int = setting(
        1,
        number(int, 0, 64),
        "How many sandboxes `sandbox-kernel broker` keeps ready, of the kinds that were requested last. Each uses as "
        "much memory as an idle kernel. 0: none.",
        scope="process",
    )
    preload: tuple[str, ...] = setting(
        PRELOAD,
        listed(_MODULE, "modules", "numpy, matplotlib.pyplot", "MODULES"),
        "Modules that the sandboxes of `sandbox-kernel broker` import while they wait, if the image has them. The "
        "first import in a cell then takes no time.",
        scope="process",
    )
    broker_authority: str = setting(
        f"{BESIDE}ca.crt",
        Form(_file, "a file", "FILE"),
        "A PEM file of the certificate authority that vouches for a broker on the network, `engine = "
        "broker://HOST:PORT`. No other is believed.",
        scope="process",
    )
    broker_token: str = setting(
        f"{BESIDE}token",
        Form(_file, "a file", "FILE"),
        "A file with the token by which a broker on the network knows this user, such as a pod's projected token. It "
        "is read again for each connection.",
        scope="process",
    )
    broker_certificate: str | None = setting(
        None,
        Form(_file_or_none, "a file", "FILE"),
        "A PEM file with the certificate by which a broker on the network knows this user, in place of a token.",
        "none",
        scope="process",
    )
    broker_private_key: str | None = setting(
        None,
        Form(_file_or_none, "a file", "FILE"),
        "The PEM file with the private key of `broker_certificate`, where that does not have it.",
        "none",
        scope="process",
    )


GROUP = "Warm sandboxes"
SETTINGS = rows(BrokerSettings)
