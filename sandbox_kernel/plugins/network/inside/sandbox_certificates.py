"""The certificates that cells trust: the image's own, and what the host sends along.

Runs in the kernel, before its first cell, from source that the host ships: standard library only, and Python 3.9 and
later.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

ROOTS = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem")
"""Where an image has its certificates, if its system has any."""
PACKAGED = os.path.join("certifi", "cacert.pem")


def prepare(path: str, certificates: str, roots: Iterable[str] = ROOTS) -> None:
    """Write the file that the variables of a cell name, once for a sandbox.

    A cell that changes it changes what it trusts itself. So a later kernel leaves alone what is there.
    """
    if os.path.lexists(path):
        return
    found = [*roots, *(os.path.join(folder, PACKAGED) for folder in sys.path)]
    own = next((one for one in found if os.path.isfile(one)), None)
    new = "%s.%d" % (path, os.getpid())
    with open(new, "wb") as written:
        if own is not None:
            with open(own, "rb") as read:
                written.write(read.read() + b"\n")
        written.write(certificates.encode())
    os.rename(new, path)
