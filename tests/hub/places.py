"""What `make hub` installed, and whether it is there: a Python with JupyterHub for all users, and its proxy.

make hub            # in .cache/hub, which the users of the test must be able to read
make hub HUB=/opt/hub
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from sandbox_kernel.plugins.bubblewrap.discovery import reachable
from tests.support import ROOT

GIVEN = os.environ.get("SANDBOX_KERNEL_HUB")
"""Set by `make hub`: these tests take minutes, and make users, so `make test` leaves them out."""
HUB = Path(GIVEN or ROOT / ".cache/hub")
PYTHON = HUB / "venv/bin/python"
PROXY = HUB / "node_modules/configurable-http-proxy/bin/configurable-http-proxy"


def absent() -> str | None:
    """Return why there is no hub to be had, None if there is."""
    if GIVEN is None:
        return "they take minutes, and make users of the system: make hub"
    if os.geteuid():
        return "only root makes users"
    if not (HUB / "venv/bin/jupyterhub").exists() or not PROXY.exists() or shutil.which("node") is None:
        return "JupyterHub and its proxy are not installed: make hub"
    if not reachable(str(PYTHON.resolve())) or not reachable(str(ROOT)):
        return "other users cannot read this checkout, or start its Python: see HUB in the Makefile"
    return None
