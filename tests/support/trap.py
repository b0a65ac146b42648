"""What an answer of a sandbox would do to the program that unpickles it."""

from __future__ import annotations

from pathlib import Path
from typing import Any


class Trap:
    """Would leave a file where it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))
