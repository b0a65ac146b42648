"""How the packages of an extra are installed: by their own names, whatever index this package came from."""

from __future__ import annotations

import re
import shlex
from importlib import metadata

PROJECT = "sandbox-kernel"
_OF_AN_EXTRA = re.compile(r"""extra\s*==\s*['"]([\w-]+)['"]""")


def install_words(extra: str) -> str:
    """Return the command that installs what an extra of this package brings, such as "`pip install 'mcp>=2'`"."""
    try:
        wanted = metadata.requires(PROJECT) or []
    except metadata.PackageNotFoundError:
        wanted = []
    found = []
    for line in wanted:
        requirement, _, marker = line.partition(";")
        match = _OF_AN_EXTRA.search(marker)
        if match and match[1] == extra:
            found.append(shlex.quote(requirement.strip()))
    return f"`pip install {' '.join(found)}`" if found else f"install {PROJECT} with its extra [{extra}]"
