"""Which connections may leave a sandbox: decided here, without a socket, a resolver or a clock, and always with a code.

- `hosts`: Hosts as they are written: one canonical form, or none.
- `addresses`: Addresses by what lies behind them.
- `host_rules`: One line of the setting `network`: what it says, and how to write it.
"""

from __future__ import annotations

from .addresses import Address, Kind, kind_of
from .host_rules import BadRule, NetworkPolicy, Rule
from .hosts import Refused, Target, canonical, split

__all__ = ["Address", "BadRule", "Kind", "NetworkPolicy", "Refused", "Rule", "Target", "canonical", "kind_of", "split"]
