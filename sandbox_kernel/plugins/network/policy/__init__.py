"""Which connections may leave a sandbox: decided here, without a socket, a resolver or a clock, and always with a code.

- `hosts`: Hosts as they are written: one canonical form, or none.
- `addresses`: Addresses by what lies behind them.
- `host_rules`: One line of the setting `network`: what it says, and how to write it.
"""

from __future__ import annotations

from .addresses import Address, AddressKind, kind_of
from .host_rules import BadRule, HostRule, NetworkPolicy
from .hosts import RefusedConnection, Target, canonical, split

__all__ = [
    "Address",
    "AddressKind",
    "BadRule",
    "HostRule",
    "NetworkPolicy",
    "RefusedConnection",
    "Target",
    "canonical",
    "kind_of",
    "split",
]
