"""What the host ships need not be compiled where an image was made by the same version of this package.

The image has the bytecode of each source beside that source (`images/warm.py`), so nothing of another version is taken.
Runs inside the container, before all else of the agent's and of a kernel's: standard library, Python 3.9 and later.
"""

from __future__ import annotations

import marshal
from _frozen_importlib_external import MAGIC_NUMBER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE = "/opt/sandbox/home/.cache/agent-bytecode"
codes: dict[tuple[str, str], bytes] = {}
try:
    with open(FILE, "rb") as file:
        python, found = marshal.load(file)  # noqa: S302 (the image's)
    codes = found if python == MAGIC_NUMBER else codes
except (OSError, ValueError, EOFError, TypeError):
    pass  # no image of ours


def compiled(source: str, name: str, mode: str = "exec") -> Any:
    """Return the code of a source, as `compile` does."""
    code = codes.get((name, source))
    if code is None:
        return compile(source, name, mode, dont_inherit=True)
    return marshal.loads(code)  # noqa: S302 (the image's)
