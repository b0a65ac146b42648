"""The examples of docs/integrations.md, run as they are."""

from __future__ import annotations

import re
from typing import Any

from tests.support import ROOT

DOCUMENT = ROOT / "docs" / "integrations.md"


def run_example(section: str, number: int = 1, /, **names: Any) -> dict[str, Any]:
    """Run an example of a section, with `names` defined, and return all that is defined then."""
    text = DOCUMENT.read_text(encoding="utf-8")
    found = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE)
    assert found is not None, f"there is no section {section}"
    code = re.findall(r"^```python\n(.*?)^```$", found[1], re.DOTALL | re.MULTILINE)[number - 1]
    exec(compile(code, f"{DOCUMENT.name}: {section}", "exec"), names)  # noqa: S102 (our own document)
    return names
