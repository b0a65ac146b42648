"""How many examples a property is tried with: a quarter of them in `make test`, and 50 at most.

`make test` draws others each time. `make properties` is the long run, with all.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

ALL = os.environ.get("SANDBOX_KERNEL_EXAMPLES") == "all"
SHARE = 4
MAX_EXAMPLES = 50


def examples(count: int = 100) -> settings:
    """Return the settings of a property that is tried `count` times in the long run; a slow machine fails none."""
    unchecked = (HealthCheck.too_slow, HealthCheck.data_too_large)  # chance decides
    tried = count if ALL else min(count // SHARE, MAX_EXAMPLES)
    return settings(max_examples=tried, deadline=None, suppress_health_check=unchecked)
