"""The machine beneath: is there a container engine, and if not, which commands bring one.

Only setup and the image builder may use it.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import threading
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.codes import EndCode, UsageCode
from ..core.errors import ConfigurationError, EngineError, EngineUnavailable
from ..core.remedies import of_system, own_as_root, systemd_runs
from ..engines.docker import api_version
from ..engines.docker.discovery import ARCHITECTURES, OF_PODMAN, addresses, named, socket_path
from ..engines.select import DOCKER, PODMAN, answers, names, provider
from .command_steps import Say, Steps, run, tail

DAEMON_SETTINGS = Path("/etc/docker/daemon.json")
DAEMON_PID = Path("/var/run/docker.pid")
DAEMON_LOG = Path("/var/log/sandbox-kernel-dockerd.log")

BOOTSTRAP_PACKAGES = ("mmdebstrap", "debian-archive-keyring")
"""The keys are those that Debian's packages are signed with; Ubuntu does not have them by itself."""

GVISOR_ARGUMENTS = ("--network=none", "--platform=ptrace")
"""No network stack at all, and the platform that needs neither KVM nor a recent kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """What one quick look at the container engine shows."""

    available: bool
    host: str
    """The address that was asked, as in DOCKER_HOST."""
    product: str = ""
    """What it is: "docker" or "podman"."""
    server_version: str = ""
    architecture: str = ""
    """As `uname -m` says it: x86_64, aarch64."""
    runtimes: tuple[str, ...] = ()
    problem: str = ""
    """Empty if available; else what is wrong, in one sentence."""
    remedy: str = ""
    """Empty if available; else what to do about it."""


# --- finding an engine ----------------------------------------------------------------------------------------------


FIND_SECONDS = 3.0


def find_engine(engine: str | None = None, *, seconds: float | None = None) -> EngineStatus:
    """Return the first engine that answers, or why none does: at an address, or of a name; Docker or Podman for None.

    Ends within `seconds`, `FIND_SECONDS` if they are not given, whatever the other side does.
    """
    seconds = FIND_SECONDS if seconds is None else seconds
    hosts = _hosts(engine)
    found: list[EngineStatus] = []

    def look() -> None:
        for candidate in hosts:
            found.append(_ask(candidate, seconds, podman=engine != DOCKER and PODMAN in names()))
            if found[-1].available:
                return

    # A thread, as an engine that sends one byte a second would never reach a socket's own time limit.
    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    asked = list(found)
    if available := [status for status in asked if status.available]:
        return available[0]
    if asked:
        return asked[0]
    return _unavailable(hosts[0], f"the container engine at {hosts[0]} did not answer within {seconds:g} s")


def _hosts(engine: str | None) -> list[str]:
    """Return the addresses to ask, best first; one that the environment names is the only one."""
    if engine is not None and engine not in {DOCKER, PODMAN}:
        return [engine]
    whichever = engine is None and named(os.environ) is None
    if engine == PODMAN or (whichever and not answers(DOCKER) and answers(PODMAN)):
        return [provider(PODMAN).address()]
    return addresses(os.environ)


def named_engine() -> tuple[str, str] | None:
    """Return the address that Docker's own command asks here, and what names it. Raises `ConfigurationError`."""
    return named(os.environ)


def require_engine(status: EngineStatus | None = None) -> EngineStatus:
    """Return an engine that answers. Raises `EngineUnavailable`, which says what to do."""
    status = status or find_engine()
    if not status.available:
        raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"{status.problem}. {status.remedy}")
    return status


def connect(host: str, *, seconds: float) -> Any:
    """Return a docker-py client for `host`, whose requests may be silent for `seconds`.

    Raises OSError if nothing or no engine listens there, and `ConfigurationError` if it is on another machine.
    """
    import docker

    host = f"unix://{host.removeprefix(OF_PODMAN)}" if host.startswith(OF_PODMAN) else host
    version = api_version.ask(socket_path(host), seconds).removeprefix("/v")
    if not version:  # asked for it, docker-py would not close its connection
        raise OSError("what listens there does not say which version of Docker's API it speaks")
    return docker.DockerClient(base_url=host, version=version, timeout=seconds)


def _ask(host: str, seconds: float, *, podman: bool) -> EngineStatus:
    """Ask what is there; Podman counts if it may be that."""
    from docker.errors import DockerException
    from requests.exceptions import RequestException

    try:
        with closing(connect(host, seconds=seconds)) as client:
            version = client.version()
            is_podman = any("podman" in part.get("Name", "").lower() for part in version.get("Components") or ())
            info = {"Architecture": version.get("Arch")} if is_podman else client.info()  # it takes a second for each
    except ConfigurationError as error:
        return EngineStatus(available=False, host=host, problem=error.message, remedy=error.code.remedy)
    except (DockerException, RequestException, ValueError, OSError) as error:
        return _unavailable(host, _why(host, error))
    if is_podman and not podman:
        problem = f"Podman listens at {host}, which is not the engine docker"
        return EngineStatus(available=False, host=host, problem=problem, remedy=EndCode.ENGINE_LACKS_PROTECTION.remedy)
    return EngineStatus(
        available=True,
        host=f"{OF_PODMAN}{host.partition('://')[2]}" if is_podman else host,
        product=PODMAN if is_podman else DOCKER,
        server_version=str(version.get("Version", "")),
        architecture=ARCHITECTURES.get(found := str(info.get("Architecture", "")), found),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
    )


def _why(host: str, error: Exception) -> str:
    scheme, _, path = host.partition("://")
    if scheme != "" and not Path(path).exists():
        return f"no container engine listens at {path}"
    if scheme != "" and not os.access(path, os.R_OK | os.W_OK):
        return f"this user may not use the container engine at {path}"
    return f"the container engine at {host} does not answer: {str(error).splitlines()[0][:300]}"


def _unavailable(host: str, problem: str) -> EngineStatus:
    return EngineStatus(available=False, host=host, problem=problem, remedy=provider(host).remedy(host))


# --- installing on Debian and Ubuntu ----------------------------------------------------------------------------------


def install_engine(progress: Say = print) -> EngineStatus:
    """Return a running engine; as root on Debian or Ubuntu, install and start Docker's from the distribution first.

    Raises `EngineUnavailable` where that is not possible, with what to do instead.
    """
    status = find_engine()
    if status.available:
        return status
    if not _may_install() or named_engine() is not None:
        raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"{status.problem}. {status.remedy}")
    steps = Steps(progress)
    if not shutil.which("dockerd"):
        install_packages(["docker.io", "iptables", *BOOTSTRAP_PACKAGES], steps)
    return _start_daemon(steps)


def ensure_mmdebstrap(progress: Say = print) -> str:
    """Return the path of mmdebstrap, which bootstraps a Debian root file system; install it where that is possible."""
    if not shutil.which("mmdebstrap"):
        if not _may_install():
            raise EngineError(
                EndCode.ENGINE_NOT_SET_UP,
                "mmdebstrap, which makes a root file system of Debian's packages, is not installed: "
                f"{of_system('mmdebstrap')}, or let the engine pull debian:trixie-slim",
            )
        install_packages([*BOOTSTRAP_PACKAGES], Steps(progress))
    return str(shutil.which("mmdebstrap"))


def install_packages(names: list[str], steps: Steps) -> None:
    """Install Debian packages without a question asked; the package lists are fetched only if that fails at first."""
    command = ["apt-get", "install", "--yes", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=120", *names]
    with steps.during(f"installing {', '.join(names)} with apt-get"):
        if run(command, seconds=600).returncode == 0:
            return
    with steps.during("fetching the package lists with apt-get"):
        run(["apt-get", "update"], seconds=300)
    with steps.during(f"installing {', '.join(names)} with apt-get"):
        result = run(command, seconds=900)
    if result.returncode != 0:
        raise EngineError(EndCode.ENGINE_NOT_SET_UP, f"`{' '.join(command)}` failed: {tail(result.stdout)}")


def _may_install() -> bool:
    return bool(shutil.which("apt-get")) and os.geteuid() == 0


def _start_daemon(steps: Steps) -> EngineStatus:
    if systemd_runs():
        with steps.during("starting docker with systemctl"):
            run(["systemctl", "enable", "--now", "docker"], seconds=90)
            return require_engine(_wait_for_engine(30, None))
    if (status := _wait_for_engine(2, None)).available:  # the package's own start script may have done it
        return status
    for options in ([], ["--iptables=false", "--ip6tables=false"]):  # our containers have no network to need it
        text = f"starting {' '.join(['dockerd', *options])}, whose log is {DAEMON_LOG}"
        with steps.during(text), DAEMON_LOG.open("wb") as log:
            daemon = subprocess.Popen(
                ["dockerd", *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/", start_new_session=True
            )
            status = _wait_for_engine(60, daemon)
        if status.available or daemon.poll() is None:
            break
    if not status.available:
        lines = tail(DAEMON_LOG.read_text(errors="replace"))
        raise EngineUnavailable(EndCode.ENGINE_NOT_SET_UP, f"dockerd does not start: {lines}. Its log is {DAEMON_LOG}")
    return status


def _wait_for_engine(seconds: float, daemon: subprocess.Popen[bytes] | None) -> EngineStatus:
    until = time.monotonic() + seconds
    while True:
        status = find_engine()
        if status.available or time.monotonic() > until or (daemon and daemon.poll() is not None):
            return status
        time.sleep(0.2)


# --- gVisor -----------------------------------------------------------------------------------------------------------


def install_gvisor(progress: Say = print) -> EngineStatus:
    """Make gVisor available as the runtime "runsc" of the local Docker, running containers undisturbed."""
    status = require_engine()
    if "runsc" in status.runtimes:
        return status
    steps = Steps(progress)
    if not shutil.which("runsc"):
        if not _may_install():
            raise EngineUnavailable(
                EndCode.ENGINE_NOT_SET_UP, f"gVisor is not installed: `{own_as_root('setup --gvisor')}`"
            )
        install_packages(["runsc"], steps)
    before = DAEMON_SETTINGS.read_text() if DAEMON_SETTINGS.exists() else ""
    DAEMON_SETTINGS.parent.mkdir(parents=True, exist_ok=True)
    DAEMON_SETTINGS.write_text(with_runtime(before, "runsc", str(shutil.which("runsc")), GVISOR_ARGUMENTS))
    steps(f"registering the runtime runsc in {DAEMON_SETTINGS}")
    os.kill(int(DAEMON_PID.read_text()), signal.SIGHUP)  # reloads the runtimes; containers keep running
    until = time.monotonic() + 10
    while "runsc" not in (status := require_engine()).runtimes:
        if time.monotonic() > until:
            raise EngineUnavailable(
                EndCode.ENGINE_NOT_SET_UP, f"dockerd did not take the runtime runsc from {DAEMON_SETTINGS} within 10 s"
            )
        time.sleep(0.1)
    return status


def with_runtime(settings: str, name: str, path: str, arguments: tuple[str, ...]) -> str:
    """Return the text of a daemon.json with one runtime added; all else, and a runtime of that name, stays as it is."""
    where = str(DAEMON_SETTINGS)
    try:
        values = json.loads(settings) if settings.strip() else {}
    except ValueError as error:
        raise ConfigurationError(
            UsageCode.CONFIG_FILE_FAILED, f"{where} is not valid JSON: {error}", setting=where
        ) from error
    if not isinstance(values, dict) or not isinstance(values.setdefault("runtimes", {}), dict):
        raise ConfigurationError(
            UsageCode.CONFIG_FILE_FAILED, f"{where} does not hold an object of objects", setting=where
        )
    values["runtimes"].setdefault(name, {"path": path, "runtimeArgs": list(arguments)})
    return json.dumps(values, indent=4) + "\n"
