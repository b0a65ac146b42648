"""Documents that are compared with files, so that a change of them is seen in a diff."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def compare(path: Path, document: dict[str, Any]) -> None:
    """Compare with a file; SANDBOX_KERNEL_UPDATE_SNAPSHOTS=1 writes it again, for a person to read the diff."""
    text = json.dumps(document, indent=2, sort_keys=True) + "\n"
    if os.environ.get("SANDBOX_KERNEL_UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
