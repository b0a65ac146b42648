"""The engine: Docker's client, but for what Podman's form of Docker's API lacks, which is asked of libpod's API."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...core.codes import EndCode
from ...core.errors import EngineError
from ...core.home_folder import home_folder
from ...core.model import SandboxSpec
from ...engines.attachment import lacking
from ...engines.attestation import PODMAN_WITHOUT_A_CGROUP, as_list, at
from ...engines.base import Inspection
from ...engines.docker import few_users
from ...engines.docker.container import DockerContainer
from ...engines.docker.discovery import ARCHITECTURES, OF_PODMAN
from ...engines.docker.engine import DockerEngine
from ...engines.docker.engine_errors import NoSuchContainer
from ...engines.inspectable import Shown
from ...engines.select import PODMAN
from ...engines.shipping import without_home
from .create_body import filter_of, libpod_body
from .discovery import socket_path
from .inspection import LIBPOD, OWN_MASKS, RUNTIME, witness

VERSION = "/v4.0.0"
"""The oldest version of its own API, which Podman 4 and 5 speak."""
CONFIG_BYTES = 4 << 20
"""A container's document for its OCI runtime is about 100 KiB."""
CONTROLLERS = {"MemoryLimit": "memory", "SwapLimit": "memory", "CpuCfsQuota": "cpu", "PidsLimit": "pids"}
"""The controller of cgroups behind each limit of `few_users.LIMITED`."""


class PodmanContainer(DockerContainer):
    """A running container of Podman's."""

    def seen(self, spec: SandboxSpec, inspected: Mapping[str, Any], image_environment: object) -> Inspection:
        whose = PODMAN if self.held else PODMAN_WITHOUT_A_CGROUP
        return witness(spec.without_home(), inspected, image_environment)._replace(engine=whose)


class PodmanEngine(DockerEngine):
    """Podman, with or without root, behind a unix socket."""

    container = PodmanContainer

    def __init__(self, address: str, *, owner_pid: int | None = None) -> None:
        """`address` is "podman", or like "podman:///path" of a socket; `owner_pid` is the process to name."""
        super().__init__(f"unix://{socket_path(address)}", owner_pid=owner_pid)

    @property
    def address(self) -> str:
        return f"{OF_PODMAN}{self.path}"

    async def start(self, spec: SandboxSpec) -> DockerContainer:
        if layered := [one for one in spec.attached if one.layered]:
            why = "Podman gives a new volume to the owner of the image's folder, and this one cannot be written to"
            raise lacking(layered[0].setting, why)
        return await super().start(without_home(spec))  # it would follow the image's link to the other place

    async def request(self, method: str, target: str, body: object = None) -> Any:
        if target == "/info":
            # In Docker's form it says what its machine could limit, whether this user's service may or not.
            return docker_info(await super().request("GET", "/libpod/info"))
        return await super().request(method, target, body)

    async def inspect(self, identity: str) -> dict[str, Any] | None:
        """Return Docker's form of the document, with libpod's own, and with what the OCI runtime mounts itself."""
        if (found := await super().inspect(identity)) is None:
            return None
        try:
            libpod = await self.request("GET", f"/libpod/containers/{identity}/json")
        except NoSuchContainer:
            return None
        given, pid = _given(libpod), at(found, "State", "Pid")
        places = [at(one, "destination") for one in as_list(at(given, "mounts")) if at(one, "type") == "ext4"]
        own = [{"Destination": path, "Source": f"/proc/{pid}/root{path}"} for path in places] if pid else []
        return {**found, LIBPOD: libpod, RUNTIME: given, "Mounts": [*as_list(found.get("Mounts")), *own]}

    async def shown(self, container: str) -> Shown:
        return Shown(mounts=OWN_MASKS)

    def spoken(self, target: str, body: Any) -> tuple[str, Any]:
        path, _, name = target.partition("?name=")
        if path == "/containers/create":
            if (named := body["HostConfig"].get("Runtime")) is not None:
                words = f"the engine has no runtime {named!r} for a sandbox: Podman has one for all, in containers.conf"
                raise EngineError(EndCode.ENGINE_LACKS_RUNTIME, words, setting="runtime")
            few = few_users.known.get(self.path)
            file = filter_file(filter_of(body))
            return f"{VERSION}/libpod{path}", libpod_body(body, name, file, limited=few is None or few.limited)
        if target.startswith("/libpod/"):
            return f"{VERSION}{target}", body
        return super().spoken(target, body)


def docker_info(libpod: object) -> dict[str, Any]:
    """Return in Docker's words what Podman says of itself."""
    host = at(libpod, "host")
    arch, controllers = at(host, "arch"), as_list(at(host, "cgroupControllers"))
    options = {"name=seccomp": "seccompEnabled", "name=rootless": "rootless"}
    return {
        **{name: controller in controllers for name, controller in CONTROLLERS.items()},
        "Architecture": ARCHITECTURES.get(str(arch), arch),
        "CgroupVersion": str(at(host, "cgroupVersion")).removeprefix("v"),
        "DefaultRuntime": at(host, "ociRuntime", "name"),
        "DockerRootDir": at(libpod, "store", "graphRoot"),
        "MemTotal": at(host, "memTotal"),
        "SecurityOptions": [name for name, flag in options.items() if at(host, "security", flag) is True],
    }


def filter_file(text: str) -> str:
    """Return the path of a file with a filter of system calls, which the service reads at each create.

    It lies below the home folder, which also the machine of `podman machine` has. Raises `EngineError`.
    """
    folder = Path(home_folder() or "/nonexistent", ".local/state/sandbox-kernel")
    file = folder / f"seccomp-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    try:
        if not (file.is_file() and file.read_text(encoding="utf-8") == text):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            made = folder / f"{file.name}.{os.getpid()}"
            made.write_text(text, encoding="utf-8")
            made.rename(file)
    except OSError as error:
        words = f"Podman takes the filter of system calls as a file, and this user cannot write one: {error}"
        raise EngineError(EndCode.ENGINE_LACKS_PROTECTION, words, setting="engine") from error
    return str(file)


def _given(libpod: Any) -> object:
    """Return what the OCI runtime was given; None where this process cannot read it, or it is another machine's."""
    path = libpod.get("OCIConfigPath") if isinstance(libpod, Mapping) else None
    try:
        file = os.open(str(path), os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return json.loads(os.read(file, CONFIG_BYTES)) if stat.S_ISREG(os.fstat(file).st_mode) else None
        finally:
            os.close(file)
    except (OSError, ValueError, RecursionError):
        return None
