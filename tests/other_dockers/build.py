"""Docker's programs from their sources, which Go proves by its own table of sums."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests.cluster.build import cache as cache_of_cluster

MODULES = {
    "dockerd": "github.com/moby/moby/v2/cmd/dockerd@v2.0.0-beta.24",
    "containerd": "github.com/containerd/containerd/v2/cmd/containerd@v2.2.1",
    "containerd-shim-runc-v2": "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2@v2.2.1",
    "runc": "github.com/opencontainers/runc@v1.3.4",
    "rootlesskit": "github.com/rootless-containers/rootlesskit/v2/cmd/rootlesskit@v2.3.5",
}
"""Docker 29's, by the name of each program. Docker 29 asks for a namespace of time, which runc has since 1.2."""
PACKAGES = ("libseccomp-dev", "uidmap", "libsubid4", "slirp4netns", "libslirp0")
"""Of Debian: what runc is built with, and what a rootless daemon starts. They are unpacked, and not installed."""
LIBRARIES = "usr/lib/x86_64-linux-gnu"


def cache() -> Path:
    """Return the folder that keeps the programs between runs."""
    return cache_of_cluster().parent / "other-dockers"


def environment(place: Path) -> dict[str, str]:
    """Return the variables with which the programs find each other, and their libraries, where `place` shows them."""
    unpacked = place / "debian"
    path = [place / "bin", unpacked / "usr/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"]
    return {"PATH": ":".join(map(str, path)), "LD_LIBRARY_PATH": str(unpacked / LIBRARIES)}


def build() -> None:
    """Make what is missing. Raises `CalledProcessError`, after the program has said why."""
    programs, unpacked, packages = cache() / "bin", cache() / "debian", cache() / "packages"
    if not (unpacked / "usr/bin/slirp4netns").exists():
        packages.mkdir(parents=True, exist_ok=True)
        subprocess.run(["apt-get", "download", "--quiet", *PACKAGES], cwd=packages, check=True)
        for package in packages.glob("*.deb"):
            subprocess.run(["dpkg", "-x", package, unpacked], check=True)
    own = {
        "GOBIN": str(programs),
        "GOFLAGS": "-buildvcs=false",
        "CGO_CFLAGS": f"-I{unpacked}/usr/include",
        "CGO_LDFLAGS": f"-L{unpacked}/{LIBRARIES}",
        "PKG_CONFIG_PATH": f"{unpacked}/{LIBRARIES}/pkgconfig",
    }
    for name, module in MODULES.items():
        if not (programs / name).exists():
            began = time.monotonic()
            tags = ["-tags", "seccomp"] if name == "runc" else []
            variables = {**os.environ, **own, "CGO_ENABLED": "1" if name == "runc" else "0"}
            subprocess.run(["nice", "go", "install", *tags, module], env=variables, check=True)
            print(f"{name}: {time.monotonic() - began:.0f} s", flush=True)
