"""etcd, the API server, the controller manager and the scheduler, on this machine's own addresses."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path
from typing import Any

from .configuration import Configuration, api_server_flags
from .programs import Programs

READY_SECONDS = 120.0


class ControlPlane:
    """The four of them."""

    NAMES = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")

    def __init__(self, binaries: Path, found: Configuration, programs: Programs, state: Path) -> None:
        self._binaries, self._found, self._programs, self._state = binaries, found, programs, state
        self._network = found.network
        self._etcd_address = f"https://127.0.0.1:{self._network.port(23790)}"

    def start(self) -> None:
        for name in self.NAMES:
            self.start_one(name)
        until = time.monotonic() + READY_SECONDS
        while self.kubectl("get", "--raw", "/readyz", check=False).returncode:
            if time.monotonic() > until:
                raise SystemExit(f"the API server is not ready after {READY_SECONDS:.0f} s: see its log")
            time.sleep(0.2)
            self.start_one("kube-apiserver")  # the last one may have been on its way out

    def start_one(self, name: str) -> None:
        self._programs.start(name, [str(self._binaries / name), *getattr(self, f"_{name.replace('-', '_')}")()])

    def stop(self) -> None:
        for name in reversed(self.NAMES):
            self._programs.stop(name)

    def kubectl(self, *words: str, given: Any = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl as the cluster's administrator; `given` is its stdin, in JSON."""
        command = [str(self._binaries / "kubectl"), f"--kubeconfig={self._found.kubeconfig('admin')}", *words]
        text = None if given is None else json.dumps(given)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if check and done.returncode:
            raise SystemExit(f"kubectl {' '.join(words)} failed:\n{done.stderr}")
        return done

    def _etcd(self) -> list[str]:
        path = self._found.path
        peers = f"http://127.0.0.1:{self._network.port(23800)}"
        return [
            "--name=tests",
            f"--data-dir={self._state / 'etcd'}",
            f"--listen-client-urls={self._etcd_address}",
            f"--advertise-client-urls={self._etcd_address}",
            f"--listen-peer-urls={peers}",
            f"--initial-advertise-peer-urls={peers}",
            f"--initial-cluster=tests={peers}",
            "--client-cert-auth",
            f"--trusted-ca-file={path('ca.crt')}",
            f"--cert-file={path('etcd.crt')}",
            f"--key-file={path('etcd.key')}",
            "--auto-compaction-retention=5m",
            "--quota-backend-bytes=8589934592",
            "--log-level=warn",
            "--unsafe-no-fsync",  # nothing here has to outlive the machine
        ]

    def _kube_apiserver(self) -> list[str]:
        return api_server_flags(self._found, self._etcd_address)

    def _kube_controller_manager(self) -> list[str]:
        path = self._found.path
        return [
            f"--kubeconfig={self._found.kubeconfig('controller-manager')}",
            f"--service-account-private-key-file={path('service-accounts.key')}",
            f"--root-ca-file={path('ca.crt')}",
            "--use-service-account-credentials",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._network.port(10257)}",
            "--node-monitor-grace-period=20s",
        ]

    def _kube_scheduler(self) -> list[str]:
        return [
            f"--kubeconfig={self._found.kubeconfig('scheduler')}",
            "--leader-elect=false",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._network.port(10259)}",
        ]
