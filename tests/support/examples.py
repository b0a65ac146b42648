"""How many examples a property is tried with: a quarter of them in `make test`, which draws others each time.

`make properties` is the long run, with all.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

SHARE = 1 if os.environ.get("SANDBOX_KERNEL_EXAMPLES") == "all" else 4


def examples(count: int = 100) -> settings:
    """Return the settings of a property that is tried `count` times in the long run; a slow machine fails none."""
    unchecked = (HealthCheck.too_slow, HealthCheck.data_too_large)  # chance decides
    return settings(max_examples=count // SHARE, deadline=None, suppress_health_check=unchecked)
