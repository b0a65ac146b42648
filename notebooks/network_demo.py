"""Run one_api.ipynb in a sandbox that reaches one API: a small one, which this script serves on the loopback.

The script does what a user can do: it allows an address, and runs the notebook by the command line. Nothing leaves the
machine; the hosts that are denied are not even looked up.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

NOTEBOOK = Path(__file__).resolve().parent / "one_api.ipynb"
ADDRESS = "127.0.0.2"
"""Of the loopback, and not 127.0.0.1: within a sandbox that is the sandbox itself, unless a rule names it."""
STATIONS = [
    {"name": "Aldwick", "region": "north", "rain_mm": 12.5},
    {"name": "Brackwater", "region": "north", "rain_mm": 7.0},
    {"name": "Corran", "region": "south", "rain_mm": 3.5},
]


class Api(BaseHTTPRequestHandler):
    """`GET /stations`, with a `limit`."""

    def do_GET(self) -> None:
        asked = urlsplit(self.path)
        limit = int(parse_qs(asked.query).get("limit", ["1000"])[0])
        found = STATIONS[:limit] if asked.path == "/stations" else None
        body = json.dumps(found if found is not None else {"error": "no such thing"}).encode()
        self.send_response(200 if found is not None else 404)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing: the notebook shows what it got."""


@contextlib.contextmanager
def serving() -> Iterator[int]:
    """Serve the API, and give its port."""
    with ThreadingHTTPServer((ADDRESS, 0), Api) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            yield int(server.server_address[1])
        finally:
            server.shutdown()
            thread.join(10)


def run(output: Path, settings: list[str]) -> int:
    """Run the notebook into the folder `output`; returns the exit code of the run."""
    with serving() as port:
        command = [sys.executable, "-m", "sandbox_kernel", "run", str(NOTEBOOK), "--output", str(output)]
        command += ["--report", str(output / "report.json"), "-p", "API", f"http://{ADDRESS}:{port}"]
        # That hosts are denied is what is shown here, and no reason to fail.
        command += ["--network", f"{ADDRESS}:{port}", "--fail-on-policy", "never", *settings]
        return subprocess.run(command, check=False).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0], allow_abbrev=False)
    parser.add_argument("--output", type=Path, default=Path("output/network"), metavar="FOLDER")
    options, settings = parser.parse_known_args()
    options.output.mkdir(parents=True, exist_ok=True)
    return run(options.output, settings)


if __name__ == "__main__":
    sys.exit(main())
