"""Build such daemons, and test each, and Podman: `python -m tests.other_dockers build | test [NAME ...]`; as root.

`measure` in the place of `test` prints what starts and cells cost with all of them, beside the usual engines.

Each has folders, a socket, mounts and a network of its own in a temporary folder, and ends with its tests. A daemon
without a bridge removes the machine's `docker0`, so none is on the machine's network. Who is remapped, and to which
ids, is written into files that only its mounts show.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from . import podman
from .build import build, cache, environment
from .podman import UID, USER

IMAGE, OF_NOTEBOOKS = "sandbox-kernel:base", "sandbox-kernel:data"
FIRST, COUNT = 1_879_048_192, 65_536
"""The ids that a daemon gives to containers: of a user whom nothing else here knows."""
START_SECONDS, STOP_SECONDS = 60.0, 30.0
NAMES = ("docker-29", "docker-remapped", "docker-rootless", *podman.NAMES)
BARE = ("--iptables=false", "--ip6tables=false", "--bridge=none", "--ip-forward=false")
MOUNTS = """
for name in passwd group subuid subgid; do
    [ -e /etc/$name ] || touch /etc/$name
    mount --bind $0/etc/$name /etc/$name
done
mount --bind $0/etc/tun /dev/net/tun
mount --bind $PROGRAMS $0/programs
cd / && exec "$@"
"""


def files_of_users(folder: Path) -> None:
    """Write what the daemon's mounts show in the place of the machine's files."""
    own = folder / "etc"
    own.mkdir()
    (folder / "programs").mkdir()
    own.joinpath("passwd").write_text(f"{Path('/etc/passwd').read_text()}{USER}:x:{UID}:{UID}::{folder}/home:/bin/sh\n")
    own.joinpath("group").write_text(f"{Path('/etc/group').read_text()}{USER}:x:{UID}:\n")
    for name in ("subuid", "subgid"):
        own.joinpath(name).write_text(f"{USER}:{FIRST}:{COUNT}\n")
    os.mknod(own / "tun", 0o20666, os.makedev(10, 200))
    own.joinpath("tun").chmod(0o666)


def command(name: str, folder: Path) -> list[str]:
    """Return how a daemon is started. Its settings are its arguments alone."""
    daemon = ["dockerd", "--data-root", f"{folder}/data", "--pidfile", f"{folder}/pid", *BARE]
    daemon += ["--host", f"unix://{folder}/docker.sock", "--config-file", "/dev/null"]
    if name != "docker-rootless":
        daemon += ["--exec-root", f"{folder}/exec", "--cgroup-parent", f"/{folder.name}"]
        if name == "docker-29":
            return ["unshare", "--net", *daemon]
        return ["unshare", "--mount", "--net", "sh", "-c", MOUNTS, str(folder), *daemon, "--userns-remap", USER]
    for place in (folder, folder / "run", folder / "data"):
        place.mkdir(mode=0o700, exist_ok=True)
        os.chown(place, UID, UID)
    kit = ["rootlesskit", f"--state-dir={folder}/run/kit", "--net=slirp4netns", "--disable-host-loopback"]
    kit += ["--copy-up=/etc", "--copy-up=/run", "--propagation=rslave", "sh", "-c"]
    kit += [
        'rm -rf /run/docker /run/containerd; exec "$0" "$@"',
        *daemon,
        "--rootless",
        "--exec-root",
        f"{folder}/run/exec",
    ]
    user = ["setpriv", "--reuid", str(UID), "--regid", str(UID), "--clear-groups"]
    return ["unshare", "--mount", "sh", "-c", MOUNTS, str(folder), *user, *kit]


class Daemon(NamedTuple):
    address: str
    there: list[str]
    """How a program is started beside it."""
    variables: dict[str, str]
    """What such a program has in its environment."""


def limits(name: str) -> str:
    return "best-effort" if name.endswith("-rootless") else "enforced"


@contextlib.contextmanager
def daemon(name: str) -> Iterator[Daemon]:
    """Yield a daemon that has the images."""
    folder = Path(tempfile.mkdtemp(prefix=f"{name}-"))
    folder.chmod(0o755)
    files_of_users(folder)
    variables = {
        **os.environ,
        **environment(cache() if name == "docker-29" else folder / "programs"),
        "PROGRAMS": str(cache()),
    }
    (folder / "run").mkdir(mode=0o700)
    variables |= {"XDG_RUNTIME_DIR": f"{folder}/run", "HOME": f"{folder}/run"}
    address, start, own = f"unix://{folder}/docker.sock", command, dict[str, str]()
    if name in podman.NAMES:
        address, start, own = f"unix://{podman.socket(name)}", podman.command, podman.variables(name, folder)
        variables |= own
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            start(name, folder),
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    there = podman.beside(name, process.pid) if own else []
    try:
        until = time.monotonic() + START_SECONDS
        while subprocess.run([*there, "docker", "-H", address, "info"], capture_output=True, check=False).returncode:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{name} does not start:\n{(folder / 'log').read_text(errors='replace')[-2000:]}")
            time.sleep(0.2)
        with subprocess.Popen(["docker", "save", IMAGE, OF_NOTEBOOKS], stdout=subprocess.PIPE) as saved:
            subprocess.run([*there, "docker", "-H", address, "load", "--quiet"], stdin=saved.stdout, check=True)
        yield Daemon(address, there, own)
    finally:
        kept = podman.pause_process(process.pid) if own else None
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if kept is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(kept, signal.SIGKILL)
        shutil.rmtree(folder, ignore_errors=True)
        groups = Path("/sys/fs/cgroup")  # the daemon leaves the one that its containers' were in
        for group in (*groups.glob(f"*/{folder.name}"), *groups.glob(folder.name), *groups.glob("*/libpod_parent")):
            with contextlib.suppress(OSError):
                group.rmdir()


def is_here(name: str) -> bool:
    """Return whether a daemon can be had; of one that cannot, a line says why."""
    why = podman.absent() if name in podman.NAMES else None
    if why is not None:
        print(f"--- {name}: skipped, {why}", flush=True)
    return why is None


def test(name: str) -> bool:
    """Return whether a daemon does what the usual one does."""
    began = time.monotonic()
    with daemon(name) as (address, there, variables):
        chosen = ["--engine", address, "--limits", limits(name), "--image"]
        kernel = [str(Path(sys.executable).with_name("sandbox-kernel"))]
        own = {"SANDBOX_KERNEL_TEST_ENGINE": name, "SANDBOX_KERNEL_TEST_DOCKER": address, **variables}
        contract = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        with tempfile.TemporaryDirectory() as output:
            Path(output).chmod(0o777)
            from_nothing = [*kernel, "setup", "--yes", "--limits", limits(name), "--prefix", f"{output}/setup"]
            steps = {
                "contract": [*contract, "tests/container/engines/test_contract.py"],
                "attacks": [*contract, "tests/attacks/escape/test_attacks.py"],
                "ends": [
                    *("env", f"SANDBOX_KERNEL_TEST_ENGINE={address}", f"SANDBOX_KERNEL_TEST_LIMITS={limits(name)}"),
                    f"DOCKER_HOST={address}",
                    *(*contract, "tests/container/test_endings.py"),
                ],
                "verify": [*kernel, "verify", *chosen, IMAGE],
                "quickstart": [
                    *(sys.executable, "notebooks/demo.py", "--output", f"{output}/out", *chosen, OF_NOTEBOOKS),
                ],
            }
            if there:  # nothing names an engine
                demo = [sys.executable, "notebooks/demo.py", "--output", f"{output}/found", "--limits", limits(name)]
                steps |= {"setup from nothing": from_nothing, "demo from nothing": demo}
            lost = [
                what
                for what, step in steps.items()
                if subprocess.run([*there, *step], env=os.environ | own, check=False).returncode
            ]
    print(
        f"--- {name}: {', '.join(lost) + ' failed' if lost else 'all passed'}, {time.monotonic() - began:.0f} s",
        flush=True,
    )
    return not lost


def measure(names: Sequence[str]) -> bool:
    """Print what starts and cells cost: of all daemons and the usual engines in turn, and of each Podman by itself."""
    command = [sys.executable, "-m", "benchmarks", "--engines", "--image", OF_NOTEBOOKS]

    def beside(one: str, address: str) -> list[str]:
        return ["--beside", f"{one}=--engine {address} --limits {limits(one)}"]

    with contextlib.ExitStack() as stack:
        dockers = [name for name in names if name not in podman.NAMES]
        words = [word for name in dockers for word in beside(name, stack.enter_context(daemon(name)).address)]
        fine = subprocess.run([*command, *words], check=False).returncode == 0 if words else True
    for name in (name for name in names if name in podman.NAMES):
        with daemon(name) as (address, there, variables):
            done = subprocess.run([*there, *command, *beside(name, address)], env=os.environ | variables, check=False)
            fine = done.returncode == 0 and fine
    return fine


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.other_dockers", description=__doc__.partition("\n")[0], allow_abbrev=False
    )
    parser.add_argument("what", choices=["build", "test", "measure"])
    parser.add_argument("names", nargs="*", choices=[*NAMES, []], metavar="NAME")
    options = parser.parse_args()
    names = list(filter(is_here, options.names or NAMES))
    if not set(names) <= set(podman.NAMES):
        build()
    if options.what == "build":
        return 0
    if options.what == "measure":
        return 0 if measure(names) else 1
    failed = [name for name in names if not test(name)]  # each, also after one that fails
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
