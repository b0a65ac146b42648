"""A package index of our own on the loopback: wheels that the tests make, under invented names."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path


def wheel(
    folder: Path,
    name: str,
    version: str = "1.0",
    *,
    needs: tuple[str, ...] = (),
    extras: tuple[str, ...] = (),
    files: Mapping[str, bytes] | None = None,
) -> Path:
    """Make a wheel."""
    path, meta = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [*(f"Provides-Extra: {one}" for one in extras), *(f"Requires-Dist: {need}" for need in needs)]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, data in ({f"{name}.py": f"VERSION = {version!r}\n".encode()} | dict(files or {})).items():
            archive.writestr(entry, data)
        archive.writestr(f"{meta}/METADATA", "\n".join([*lines, ""]))
        archive.writestr(f"{meta}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{meta}/RECORD", "")
    return path


class Index:
    """What is served, and what was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.asked: list[str] = []
        self.wrong: set[str] = set()
        """Files of which the index says another hash."""
        self.address = ""

    def page(self, name: str) -> bytes:
        rows = []
        for path in sorted(self.folder.iterdir()):
            if path.name.split("-")[0].replace("_", "-").lower() == name:
                digest = "0" * 64 if path.name in self.wrong else hashlib.sha256(path.read_bytes()).hexdigest()
                rows.append(f'<a href="/files/{path.name}#sha256={digest}">{path.name}</a>')
        return ("<!DOCTYPE html><html><body>" + "".join(rows) + "</body></html>").encode() if rows else b""


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Index]:
    """Serve the files of a folder."""
    index = Index(folder)

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            kind, name = self.path.strip("/").split("/")[:2]
            path = folder / name
            data = index.page(name) if kind == "simple" else path.read_bytes() if path.is_file() else b""
            self.send_response(200 if data else 404)
            self.send_header("Content-Type", "text/html" if kind == "simple" else "application/octet-stream")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002 (its name there)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    index.address = f"http://127.0.0.1:{server.server_address[1]}/simple"
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
