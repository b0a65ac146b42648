"""Writes sandbox_kernel/sdk/keywords.py, of the table of settings: `make settings`. A test compares."""

from __future__ import annotations

from sandbox_kernel.config.table import SETTINGS
from tests.support import ROOT

KEYWORDS = ROOT / "sandbox_kernel/sdk/keywords.py"
HEAD = '''"""The settings as keywords of `Sandbox`. Written by `make settings`, of the table of settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict


class SettingKeywords(TypedDict, total=False):
    """The settings, as keywords; `sandbox-kernel settings` explains them. None is the default."""

'''


def generated() -> str:
    """Return the module as it has to be."""
    return HEAD + "".join(f"    {one.name}: {one.form.types} | None\n" for one in SETTINGS.values())


if __name__ == "__main__":
    KEYWORDS.write_text(generated(), encoding="utf-8")
