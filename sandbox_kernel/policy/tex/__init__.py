"""TeX: formulas that are found on the host, made of what only draws, and kept apart from everything else.

- `macros`: Macros and environments that only draw: an allow-list.
- `formulas`: Formulas, and what a page could take for one.
"""

from __future__ import annotations

from .formulas import (
    BOX,
    MAX_BOXES,
    MAX_FORMULA,
    MAX_FORMULAS,
    Allowance,
    apart,
    as_meant,
    boxes,
    clean,
    formula,
    has_marks,
    is_latex,
)

__all__ = [
    "BOX",
    "MAX_BOXES",
    "MAX_FORMULA",
    "MAX_FORMULAS",
    "Allowance",
    "apart",
    "as_meant",
    "boxes",
    "clean",
    "formula",
    "has_marks",
    "is_latex",
]
