"""How packages that cells may install are written: names with extras, and where they come from.

Imports packaging when there is a name to read.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ...config.forms import Form, refuse, size, texts_of
from ...config.setting import rows, setting
from ...core.model import MIB

MAX_RULES = 500
_INDEX = re.compile(r"https?://[\w.\-\[\]:]+(/[\w.~/%-]*)?", re.ASCII)


def _packages(name: str, raw: object) -> tuple[str, ...]:
    texts = texts_of(name, raw, "packages")
    if len(texts) > MAX_RULES:
        raise refuse(name, len(texts), f"{name} has too many names", limit=str(MAX_RULES))
    return tuple(dict.fromkeys(_rule(name, text) for text in texts))


def _rule(name: str, text: str) -> str:
    """Return a name as it is written plainly."""
    if text == "*":
        return text
    from packaging.requirements import InvalidRequirement, Requirement
    from packaging.utils import canonicalize_name

    try:
        parsed = Requirement(text)
    except InvalidRequirement:
        raise refuse(name, text, f"{name} is a list of names, or * for all of the index") from None
    if parsed.url is not None or parsed.specifier or parsed.marker is not None:
        raise refuse(name, text, f"{name} is a list of names, without versions and addresses")
    extras = f"[{','.join(sorted(parsed.extras))}]" if parsed.extras else ""
    return f"{canonicalize_name(parsed.name)}{extras}"


def _index(name: str, raw: object) -> str | None:
    if raw is None or raw == "":
        return None
    if not isinstance(raw, str) or not _INDEX.fullmatch(raw):
        raise refuse(name, raw, f"{name} is no plain address of an index, such as https://pypi.example.org/simple")
    return raw


@dataclass(frozen=True, slots=True, kw_only=True)
class PackageSettings:
    """What cells may install, and where it comes from."""

    packages: tuple[str, ...] = setting(
        (),
        Form(
            _packages,
            "names, with commas between them, or `*`",
            "NAME",
            adds_up=True,
            written=lambda name, raw: list(_packages(name, raw)) or ["none"],
            types="str | Sequence[str]",
        ),
        "Packages that cells may install with `pip install`: names, with allowed extras, or `*` for the whole "
        "index. Dependencies are included. The host resolves, fetches and checks wheels.",
        singular="package",
        scope="caller",
    )
    packages_index: str | None = setting(
        None,
        Form(_index, "an address", "URL"),
        "The package index, also for `install`. It replaces the index that this machine's pip uses.",
        "pip's own",
        scope="process",
    )
    packages_size: int = setting(
        256 * MIB,
        size(MIB),
        "Size of the wheels that may be installed at one time.",
        scope="process",
    )


GROUP = "Packages"
SETTINGS = rows(PackageSettings)
