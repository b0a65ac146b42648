"""What the guarded way out costs, beside the same requests made on the host, in one run.

`python -m benchmarks.network [--mebibytes 1024] [--requests 300] [--runtime runsc]` starts a server on the loopback,
and a sandbox that is allowed to reach it: plainly, over TLS that stays the cell's own (`https`), and over TLS that ends
on the host because a secret is for that name (`secret`). Sizes are in MiB, speeds in MB/s (10^6 bytes), times in
milliseconds. What the engine's pipe does by itself is measured in the same run. Processor time is that of this process,
and of the sandbox with the program that downloads; neither has the engine's share.
"""

from __future__ import annotations

import argparse
import datetime
import inspect
import ipaddress
import json
import multiprocessing
import os
import secrets
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from .pipe import speeds

PIECE = bytes(1 << 20)
TURNS = 3
CELLS = 150
PROXY = 3128
NAME = "bench.example.test"
"""The server's, to whom a secret is sent."""
FILTERED = 8
"""A download that is searched for a secret is smaller by this factor."""

CLIENT = inspect.cleandoc("""
    import functools, http.client, json, ssl, statistics, sys, time

    @functools.cache
    def trusted():  # reading 150 authorities takes 8 ms, and clients do it once
        return ssl.create_default_context(cafile=AUTHORITY)

    def connect(scheme, port, proxy):
        if scheme == "http":
            return http.client.HTTPConnection("127.0.0.1", proxy or port)
        made = http.client.HTTPSConnection("127.0.0.1", proxy or port, context=trusted())
        if proxy:
            made.set_tunnel("bench.example.test" if scheme == "secret" else "127.0.0.1", port)
        return made

    def path_of(scheme, port, proxy, path):
        return f"http://127.0.0.1:{port}{path}" if proxy and scheme == "http" else path

    def download(scheme, port, proxy, size):
        connection, room, count = connect(scheme, port, proxy), bytearray(1 << 20), 0
        began = time.perf_counter()
        connection.request("GET", path_of(scheme, port, proxy, f"/{size}"))
        answer = connection.getresponse()
        while got := answer.readinto(room):
            count += got
        seconds = time.perf_counter() - began
        connection.close()
        assert (answer.status, count) == (200, size), (answer.status, count)
        return seconds

    def small(scheme, port, proxy, count):
        connection, times = connect(scheme, port, proxy), []
        for _ in range(count):
            began = time.perf_counter()
            connection.request("GET", path_of(scheme, port, proxy, "/100"))
            assert len(connection.getresponse().read()) == 100
            times.append(time.perf_counter() - began)
        connection.close()
        return times

    def fresh(scheme, port, proxy, count):
        return [small(scheme, port, proxy, 1)[0] for _ in range(count)]
""")
"""Runs in the sandbox and on the host alike."""


class Handler(BaseHTTPRequestHandler):
    """Answers `/N` with N bytes."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        size = int(self.path.rpartition("/")[2])
        self.send_response(200)
        self.send_header("Content-Length", str(size))
        self.end_headers()
        for begin in range(0, size, len(PIECE)):
            self.wfile.write(PIECE[: size - begin])

    def log_message(self, *_: Any) -> None:
        """Be quiet."""


class Server(ThreadingHTTPServer):
    """One whose clients may leave in the middle."""

    def handle_error(self, *_: Any) -> None:
        """Be quiet."""


def serve(folder: Path, tell: Connection) -> None:
    """Serve plainly and over TLS; tell both ports."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")
    secure = Server(("127.0.0.1", 0), Handler)
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    plain = Server(("127.0.0.1", 0), Handler)
    tell.send((plain.server_port, secure.server_port))
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    plain.serve_forever()


def write_certificate(folder: Path) -> Path:
    """Write a server's key and certificate for the loopback; return the authority's file, which is the same one."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "benchmarks")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectAlternativeName([address, x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "authority.pem").write_bytes(pem)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "server.pem").write_bytes(private + pem)
    return folder / "authority.pem"


def peak_bytes() -> int:
    """Return the highest resident size of this process since `forget_peak`."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def forget_peak() -> int:
    """Begin to measure the highest resident size again; return it as it is now, in bytes."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return peak_bytes()


class Bench:
    """The host's figures and the sandbox's, in turn."""

    def __init__(self, sandbox: Any, authority: Path, ports: dict[str, int], arguments: argparse.Namespace) -> None:
        self.sandbox = sandbox
        self.authority = authority
        self.ports = ports
        self.size = arguments.mebibytes << 20
        self.requests = arguments.requests
        self.host: dict[str, Any] = {"AUTHORITY": str(authority)}
        exec(CLIENT, self.host)  # noqa: S102 (the same program as in the sandbox)
        self.inside("import os; AUTHORITY = os.environ['SSL_CERT_FILE']\n" + CLIENT)

    def inside(self, code: str) -> Any:
        execution = self.sandbox.run_code(code)
        if not execution.ok:
            raise SystemExit(f"the sandbox failed: {execution.error}")
        return json.loads(execution.text.strip("'")) if execution.text else None

    def curl(self, scheme: str, size: int) -> float:
        command = ["curl", "--silent", "--noproxy", "*", "--cacert", str(self.authority), "--output", os.devnull]
        url = f"{'http' if scheme == 'http' else 'https'}://127.0.0.1:{self.ports[scheme]}/{size}"
        done = subprocess.run([*command, "--write-out", "%{time_total}", url], capture_output=True, check=True)
        return float(done.stdout)

    def downloads(self, scheme: str) -> float:
        """Print and return how fast the sandbox downloads."""
        port, size = self.ports[scheme], self.size // (FILTERED if scheme == "secret" else 1)
        curl, host, sandbox, peaks, here, there = [], [], [], [], [], []
        for _ in range(TURNS):
            curl.append(size / self.curl(scheme, size) / 1e6)
            host.append(size / self.host["download"](scheme, port, 0, size) / 1e6)
            before, used, used_inside = forget_peak(), time.process_time(), self.sandbox.usage().cpu_seconds
            took = self.inside(f"json.dumps(download({scheme!r}, {port}, {PROXY}, {size}))")
            peaks.append(peak_bytes() - before)
            here.append(time.process_time() - used)
            there.append(self.sandbox.usage().cpu_seconds - used_inside)
            sandbox.append(size / took / 1e6)
        by_curl, on_host, through = (statistics.median(speeds) for speeds in (curl, host, sandbox))
        print(
            f"download of {size >> 20} MiB, {scheme:6}: curl {by_curl:6.0f} MB/s, Python on the host {on_host:6.0f}, "
            f"in the sandbox {through:6.0f}: {through / by_curl:.2f} x of curl, {through / on_host:.2f} x of the same "
            f"program; processor seconds a GB: the host's process {statistics.median(here) / size * 1e9:.1f}, "
            f"the sandbox {statistics.median(there) / size * 1e9:.1f}; the host's process grew by "
            f"{max(peaks) / (1 << 20):.1f} MiB at its highest"
        )
        return through

    def pipe(self, runtime: str | None, reached: dict[str, float]) -> None:
        """Print what the engine's pipe does by itself, beside what downloads had of it."""
        turns = [speeds(runtime, self.size) for _ in range(TURNS)]
        into, out_of = (statistics.median(turn[way] for turn in turns) for way in (0, 1))
        shares = ", ".join(f"{scheme} {speed / into:.2f} x" for scheme, speed in reached.items())
        print(
            f"the engine's pipe by itself: {into:.0f} MB/s into a container, {out_of:.0f} MB/s out of it; of the "
            f"first, downloads reach: {shares}"
        )

    def small(self, scheme: str, kind: str) -> None:
        port, host, sandbox = self.ports[scheme], [], []
        for _ in range(TURNS):
            host += self.host[kind](scheme, port, 0, self.requests)
            sandbox += self.inside(f"json.dumps({kind}({scheme!r}, {port}, {PROXY}, {self.requests}))")
        there, here = (sorted(1000 * one for one in times) for times in (host, sandbox))
        added = statistics.median(here) - statistics.median(there)
        print(
            f"a small request, {scheme:6}, {'kept' if kind == 'small' else 'new':4} connection: p50 on the host "
            f"{statistics.median(there):5.2f} ms, in the sandbox {statistics.median(here):5.2f} ms, p95 "
            f"{here[len(here) * 95 // 100]:5.2f} ms: {added:+.2f} ms"
        )

    def beside(self, scheme: str) -> None:
        """Time `1 + 1` alone, and while another process of the sandbox downloads at full speed."""
        program = f"import os; AUTHORITY = os.environ['SSL_CERT_FILE']\n{CLIENT}\nwhile True:\n    "
        program += f"download({scheme!r}, {self.ports[scheme]}, {PROXY}, {64 << 20})"
        alone = self.cells()
        self.inside(f"import subprocess; busy = subprocess.Popen([sys.executable, '-c', {program!r}])")
        before = self.sandbox.network_usage.received_bytes
        while self.sandbox.network_usage.received_bytes < before + (32 << 20):
            self.cells()
        loaded = self.cells()
        self.inside("busy.kill(); busy.wait(); None")
        print(
            f"`1 + 1`: p50 alone {alone:.2f} ms, beside a download over {scheme} at full speed {loaded:.2f} ms: "
            f"{loaded / alone:.2f} x"
        )

    def cells(self) -> float:
        return statistics.median(self.sandbox.run_code("1 + 1").seconds * 1000 for _ in range(CELLS))


def measure(authority: Path, ports: dict[str, int], arguments: argparse.Namespace) -> None:
    """Print a row for each measure."""
    from sandbox_kernel import Sandbox
    from sandbox_kernel.plugins.network import dns_lookup

    hosts = authority.with_name("hosts")
    hosts.write_text(f"127.0.0.1 {NAME}\n", encoding="ascii")
    dns_lookup.HOSTS = str(hosts)
    os.environ["BENCHMARK_KEY"] = secrets.token_hex(20)
    with Sandbox(
        network=[*(f"127.0.0.1:{port}" for port in set(ports.values())), f"{NAME}:{ports['secret']}"],
        network_certificates=str(authority),
        network_bytes="500G",
        secrets={"KEY": {"env": "BENCHMARK_KEY", "hosts": [f"{NAME}:{ports['secret']}"]}},
        cell_timeout=600,
        runtime=arguments.runtime,
    ) as sandbox:
        bench = Bench(sandbox, authority, ports, arguments)
        for scheme in ports:
            bench.small(scheme, "small")
            bench.small(scheme, "fresh")
        if arguments.mebibytes:
            bench.pipe(arguments.runtime, {scheme: bench.downloads(scheme) for scheme in ports})
            bench.beside("https")


def main() -> None:
    """Start the server, and measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.network", description=__doc__, allow_abbrev=False)
    parser.add_argument("--mebibytes", type=int, default=1024, help="of a download; 0 for none")
    parser.add_argument("--requests", type=int, default=300, help="small requests of a turn")
    parser.add_argument("--runtime", default=None, help="the sandbox's OCI runtime")
    arguments = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, runtime {arguments.runtime or 'default'}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        authority = write_certificate(folder)
        spawn = multiprocessing.get_context("spawn")
        hears, tells = spawn.Pipe(duplex=False)
        server = spawn.Process(target=serve, args=(folder, tells), daemon=True)
        server.start()
        try:
            plain, secure = hears.recv()
            measure(authority, {"http": plain, "https": secure, "secret": secure}, arguments)
        finally:
            server.kill()
            server.join()


if __name__ == "__main__":
    sys.exit(main())
