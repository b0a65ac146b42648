"""Images with kernels besides Python's own: the tests' image, and kernelspecs upon it."""

from __future__ import annotations

import io
import json
import secrets
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

FAKE = {
    "argv": ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"],
    "display_name": "Fake",
    "language": "fake",
}
"""A kernel of another language, by its own word: ipykernel by another name."""


@contextmanager
def image_with(image: str, files: Mapping[str, bytes | dict[str, Any]]) -> Iterator[str]:
    """Make an image of Docker's with these files in its folder of kernelspecs, and remove it after use."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        content = {f"kernels/{name}": text for name, text in files.items()}
        recipe = f"FROM {image}\nCOPY kernels /usr/local/share/jupyter/kernels\n"
        for name, text in {"Dockerfile": recipe.encode(), **content}.items():
            data = text if isinstance(text, bytes) else json.dumps(text).encode()
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(data))
    tag = f"sandbox-kernel-test:{secrets.token_hex(6)}"
    command = ["docker", "build", "--quiet", "--network", "none", "--tag", tag, "-"]
    subprocess.run(command, input=packed.getvalue(), check=True, capture_output=True, timeout=120)
    try:
        yield tag
    finally:
        subprocess.run(["docker", "image", "rm", "--no-prune", tag], check=False, capture_output=True, timeout=60)
