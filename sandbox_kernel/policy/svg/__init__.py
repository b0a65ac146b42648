"""SVG images: parsed on the host and written again from an allow-list, within a budget.

- `repeats`: What a drawing comes to with all that it refers to, each as often as it is drawn.
- `sanitiser`: The elements and attributes that are kept.
"""

from __future__ import annotations

from .sanitiser import SVG, ImproperSVG, address, clean, is_costly_page, readdress

__all__ = ["SVG", "ImproperSVG", "address", "clean", "is_costly_page", "readdress"]
