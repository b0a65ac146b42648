"""The settings as keywords of the SDK: what `make settings` writes is up to date."""

from __future__ import annotations

from sandbox_kernel.config.table import SETTINGS
from sandbox_kernel.sdk.keywords import SettingKeywords
from tests.support import setting_keywords


def test_the_keywords_are_those_of_the_table() -> None:
    assert setting_keywords.generated() == setting_keywords.KEYWORDS.read_text(encoding="utf-8"), "make settings"
    assert list(SettingKeywords.__annotations__) == list(SETTINGS)
