"""The cluster's programs from their sources: Go modules with their sums beside this file, and one program in C."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
VERSION = "1.34.4"
"""The last minor version whose kubelet runs with cgroups of the first version without being asked to."""


def cache() -> Path:
    """Return the folder that keeps the programs between runs."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "sandbox-kernel" / "cluster"


class Program(NamedTuple):
    """One of them."""

    name: str
    module: str
    """The folder of its go.mod below `modules`."""
    package: str


_KUBERNETES = (
    "kubelet",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kube-proxy",
    "kubectl",
)
PROGRAMS = (
    *(Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}") for name in _KUBERNETES),
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Program("kube-router", "kube-router", "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"),
)
"""What a cluster is made of."""
OTHERS = (
    Program("agent-sandbox-controller", "agent-sandbox", "sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller"),
    Program("kwok", "kwok", "sigs.k8s.io/kwok/cmd/kwok"),
    Program("helm", "helm", "helm.sh/helm/v3/cmd/helm"),
)
"""What single tests take: built when one of them asks."""


PACKAGES = {
    "containerd": "containerd",
    "runc": "runc",
    "/usr/lib/cni/bridge": "containernetworking-plugins",
    "ip": "iproute2",
    "iptables": "iptables",
    "ipset": "ipset",
    "conntrack": "conntrack",
    "sysctl": "procps",
    "openssl": "openssl",
    "gcc": "gcc",
    "/usr/include/stdio.h": "libc6-dev",
}
"""What Debian has of it, by a program or a file that each brings."""


def install() -> None:
    """Install what is missing of Debian's packages."""
    names = [package for what, package in PACKAGES.items() if shutil.which(what) is None and not Path(what).exists()]
    if not names:
        return
    if shutil.which("apt-get") is None:
        raise SystemExit(f"the cluster needs what Debian has in {', '.join(names)}, and this machine has no apt-get")
    print(f"--- installing {', '.join(names)}", flush=True)
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *names]
    if subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode:
        subprocess.run(["apt-get", "update"], stdout=subprocess.DEVNULL, check=False)
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def build() -> Path:
    """Build what is missing of a cluster; return the folder of the programs. Minutes the first time."""
    programs = _folder()
    for one in PROGRAMS:
        _go(one, programs)
    _pause(programs)
    return programs


def program(name: str) -> Path:
    """Return a program by its name, built if it is missing."""
    (one,) = [one for one in (*PROGRAMS, *OTHERS) if one.name == name]
    _go(one, _folder())
    return _folder() / name


def _folder() -> Path:
    programs = cache() / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    return programs


def folder_of(module: str, package: str) -> Path:
    """Return where a package's sources are, for files that come with them; `module` is a folder below `modules`."""
    command = ["go", "list", "-f", "{{.Dir}}", package]
    return Path(_run(command, HERE / "modules" / module).strip())


def _go(program: Program, programs: Path) -> None:
    module = HERE / "modules" / program.module
    made_of = hashlib.sha256((module / "go.mod").read_bytes() + (module / "go.sum").read_bytes()).hexdigest()
    stamp, target = programs / f".{program.name}", programs / program.name
    if target.exists() and stamp.exists() and stamp.read_text() == made_of:
        return
    begin = time.monotonic()
    print(f"--- building {program.name}", flush=True)
    major, minor, _ = VERSION.split(".")
    version = "k8s.io/component-base/version"
    flags = "-s -w"
    if program.module == "kubernetes":
        flags += f" -X {version}.gitVersion=v{VERSION} -X {version}.gitMajor={major} -X {version}.gitMinor={minor}"
    _run(["go", "build", "-trimpath", "-ldflags", flags, "-o", str(target), program.package], module)
    stamp.write_text(made_of)
    print(f"    {time.monotonic() - begin:.0f} s, {target.stat().st_size >> 20} MiB", flush=True)


def _pause(programs: Path) -> None:
    """The first process of each pod: Kubernetes has it in C, beside its other sources."""
    target = programs / "pause"
    if not target.exists():
        source = folder_of("kubernetes", "k8s.io/kubernetes/cmd/kubelet").parents[1] / "build/pause/linux/pause.c"
        _run(["gcc", "-Os", "-static", f"-DVERSION={VERSION}", "-o", str(target), str(source)], HERE)


def _run(command: list[str], folder: Path) -> str:
    if shutil.which(command[0]) is None:
        raise SystemExit(f"the cluster is built with {command[0]}, which is not here (Go: 1.26 or newer)")
    # What the programs are made of is written beside this file, and no checkout of the machine's has a say in it.
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4000:]}")
    return done.stdout
