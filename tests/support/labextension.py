"""Which sources the committed bundle of the JupyterLab extension was built of, by their digests.

    python -m tests.support.labextension

notes it, as the last step of `make labextension`. Node.js is needed to build, and by nothing else.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from tests.support import ROOT

FOLDER = ROOT / "labextension"
BUILT = FOLDER / "built/sandbox-kernel"
NOTED = FOLDER / "built/sha256"
OF = ("core/*", "src/*", "style/*", "package.json", "package-lock.json", "tsconfig.json", "webpack.config.js")
"""What the bundle is made of."""


def digests() -> str:
    """Return a line for each source and each file of the bundle, as sha256sum writes and checks them."""
    files = [path for pattern in (*OF, "built/sandbox-kernel/**/*") for path in FOLDER.glob(pattern) if path.is_file()]
    return "".join(f"{digest(path)}  {path.relative_to(FOLDER)}\n" for path in sorted(set(files)))


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    NOTED.write_text(digests())
