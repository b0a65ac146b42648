"""The examples of docs/integrations.md, run as they are."""

from __future__ import annotations

import re
from typing import Any

from tests.support import ROOT

DOCUMENT = ROOT / "docs" / "integrations.md"


def run_example(section: str, **names: Any) -> dict[str, Any]:
    """Run the Python of a section, with `names` defined, and return all that is defined then."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"^## {section}\n.*?^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no example of {section}"
    exec(compile(found[1], f"{DOCUMENT.name}: {section}", "exec"), names)  # noqa: S102 (our own document)
    return names
