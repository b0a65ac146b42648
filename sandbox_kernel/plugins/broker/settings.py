"""The settings for sandboxes that are ready before they are asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...config.forms import listed, number
from ...config.setting import rows, setting
from ...core.model import PRELOAD

STATE = "/var/lib/sandbox-kernel"
"""Where an operator's broker keeps what outlives it, if nobody says otherwise."""
_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_]{0,63}){0,7}")


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


GROUP = "Warm sandboxes"
SETTINGS = rows(BrokerSettings)
