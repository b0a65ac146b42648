"""The command of a kernel of ours, as a kernelspec has it: what makes it ours whoever starts it.

Some front ends start a kernelspec's command themselves, and read none of its metadata: the command alone counts.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

SWITCHES = {"-I": "EP", "-E": "E", "-P": "P"}
"""Of Python, in such a command: without "E" and "P", another module may stand in for ours."""
PROVISIONER = "sandbox-kernel"
"""What starts any kernelspec in a sandbox, as jupyter_client knows it."""
FORK_NUMBER, FORK_SIZE = struct.Struct("!i"), struct.Struct("!I")
"""How a fork server and who asks it write the number or the exit code of a process, and the size of a request."""


def is_own(argv: Sequence[str]) -> bool:
    """Return whether this starts our kernel, and no module of the notebook's folder or of PYTHONPATH in its place."""
    at = next((number for number, word in enumerate(argv) if number and word not in SWITCHES), 0)
    isolated = {mark for word in argv[1:at] for mark in SWITCHES[word]}
    return list(argv[at : at + 2]) == ["-m", "sandbox_kernel"] and isolated == {"E", "P"}
