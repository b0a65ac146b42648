"""What a cell has in the place of a secret: random, of the length and look of the value, and worth nothing elsewhere.

Only characters that stand in an address as they are, so that no client writes it otherwise. Standard library only.
"""

from __future__ import annotations

import re
import secrets
import string

_PREFIXES = (
    *("sk-ant-api03-", "sk-ant-", "sk-or-v1-", "sk-proj-", "sk-svcacct-", "sk-", "sk_live_", "sk_test_", "rk_live_"),
    *("rk_test_", "pk_live_", "pk_test_", "whsec_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-"),
    *("xoxb-", "xoxp-", "xapp-", "hf_", "npm_", "pypi-", "dop_v1_", "AIza", "SG.", "r8_", "gsk_", "tvly-", "lin_api_"),
)
"""Public beginnings by which services tell their keys from others; client libraries look for them."""
_UUID = re.compile(rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", re.IGNORECASE)
_DIGITS, _LOWER, _UPPER = string.digits, string.ascii_lowercase, string.ascii_uppercase
_ALPHABETS = (
    *(_DIGITS, _DIGITS + "abcdef", _DIGITS + "ABCDEF", _DIGITS + _LOWER, _DIGITS + _UPPER),
    _DIGITS + _UPPER + _LOWER,
)
"""From the narrowest on. The first that the value is from is the placeholder's; the last one is for all others."""
_MIN_RANDOM = 8


def like(value: bytes) -> str:
    """Return a new placeholder for a value."""
    if _UUID.fullmatch(value):
        digits = _chosen(_DIGITS + ("ABCDEF" if value != value.lower() else "abcdef"), 32)
        return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    text = value.decode("ascii")
    prefix = max((one for one in _PREFIXES if text.startswith(one)), key=len, default="")
    if len(text) - len(prefix) < _MIN_RANDOM:
        prefix = ""
    rest = text[len(prefix) :]
    alphabet = next((one for one in _ALPHABETS if set(rest) <= set(one)), _ALPHABETS[-1])
    return prefix + _chosen(alphabet, len(rest))


def _chosen(alphabet: str, count: int) -> str:
    return "".join(secrets.choice(alphabet) for _ in range(count))
