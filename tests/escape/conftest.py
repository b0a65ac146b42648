"""The attacks and their tools are found by bare names, here and in the container."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parent.parent / "engines")]
