"""What the screen says of a cell that it cannot read, and of modules that are not on an operator's list."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight

RULES = (
    Rule(code=ScreenCode.IMPORT_NOT_ALLOWED, weight=Weight.HIGH, cwe=829),
    Rule(code=ScreenCode.CELL_TOO_LARGE, weight=Weight.HIGH, cwe=400),
    Rule(code=ScreenCode.CELL_TOO_DEEP, weight=Weight.HIGH, cwe=400),
    Rule(code=ScreenCode.CELL_UNPARSED, weight=Weight.LOW),
)
