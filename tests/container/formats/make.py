"""`python -m tests.container.formats.make` makes the files again, in a sandbox of the image `full`."""

from __future__ import annotations

import sys
from pathlib import Path

from sandbox_kernel import Sandbox
from sandbox_kernel.engines.image_names import FULL

FILES = Path(__file__).with_name("files")


def main() -> int:
    with Sandbox(image=FULL, memory="3G", cell_timeout=300) as sandbox:
        sandbox.files.make_dir("made")
        result = sandbox.run_code((FILES / "make.py").read_text(encoding="utf-8"))
        if result.error is not None:
            raise SystemExit(result.error.traceback)
        for entry in sandbox.files.list("made"):
            (FILES / entry.name).write_bytes(sandbox.files.read(f"made/{entry.name}", format="bytes"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
