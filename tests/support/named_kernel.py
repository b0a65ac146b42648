"""A kernel process that resolves names as the tests invent them: run as a script, with a kernel's own arguments."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from sandbox_kernel.__main__ import main
from sandbox_kernel.plugins.network import egress
from tests.support.origins import Names

if __name__ == "__main__":
    setattr(egress, "Lookups", Names)  # noqa: B010 (a name that the module does not offer)
    sys.exit(main(sys.argv[1:]))
