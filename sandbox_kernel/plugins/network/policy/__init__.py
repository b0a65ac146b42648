"""Which connections may leave a sandbox: decided here, without a socket, a resolver or a clock, and always with a code.

- `refusal`: What a refused connection raises.
- `hosts`: Hosts as they are written: one canonical form, or none.
- `addresses`: Addresses by what lies behind them.
- `rules`: One line of the setting `network`: what it says, and how to write it.
- `decision`: The rules together, and what they say of a target, its addresses and what a client says of it later.
"""

from __future__ import annotations

from .addresses import Address, Kind, kind_of
from .decision import NetworkPolicy
from .hosts import Target, canonical, split
from .refusal import Refused
from .rules import BadRule, Rule

__all__ = ["Address", "BadRule", "Kind", "NetworkPolicy", "Refused", "Rule", "Target", "canonical", "kind_of", "split"]
