"""SVG images: parsed on the host and written again from an allow-list, within a budget.

- `cost`: What a drawing comes to with all that it refers to, and how much that may be.
- `sanitiser`: The elements and attributes that are kept.
"""

from __future__ import annotations

from .cost import Allowance, CostlyError, RefusedError
from .sanitiser import SVG, address, clean, is_costly_page, readdress

__all__ = ["SVG", "Allowance", "CostlyError", "RefusedError", "address", "clean", "is_costly_page", "readdress"]
