"""What this plugin adds: the engine `kubernetes`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from ...core.codes import UsageCode
from ...core.errors import ConfigurationError
from ...core.remedies import install_words
from ...engines.select import EngineProvider
from ...engines.wall import Wall, WallCell
from ..api import Plugin
from .codes import KubernetesCode
from .warm_pool_command import COMMAND

if TYPE_CHECKING:
    from ...core.model import Settings
    from ...engines.base import Ahead
    from ...engines.inspectable import Inspectable

_OPTIONS = "noatime, rw or relatime, rw or rw"
_MEMORY = "the node's own way to mount memory; a pod has no setuid files and no device nodes by its other protections"
_FILE_SYSTEMS = ("ext4", "xfs", "btrfs", "overlay", "zfs", "tmpfs")
_NODE_S = " or ".join(f"/etc/hosts ({kind}, writable), /root/end ({kind}, writable)" for kind in _FILE_SYSTEMS)
_DROPPED = "each pod has an interface; the cluster's policy drops what is sent, and the sender is not told"
_SHOWN = "no runtime of a pod's covers a file within /proc; what it shows is of the machine, and nobody's data"
_COUNTED = "a pod's folders in memory have a size and no number of files; the limit of memory counts them"
_BY_USER = "the kernel counts them by the pod's user, see there"

WALL = Wall(
    name="Kubernetes",
    settings="engine = kubernetes",
    engine="kubernetes",
    for_whom="teams that have a cluster already, and more users than one machine has room for",
    kernel="the node's kernel, behind the node's filter and ours; with a runtime class, gVisor's or a machine's own",
    stops="the same as runc; the network is the cluster's to close, and each sandbox looks whether it is closed",
    leaves="the same as runc; files within /proc that tell of the node are not covered (its configuration, the names "
    "of its kernel's functions, its pressure, boot, drivers and file systems); on nodes with cgroup v1, memory of "
    "sockets has no limit; a packet that nobody answers can be sent, and is dropped",
    needs="a cluster whose network enforces policies, a namespace with the manifests of the page, and an image that "
    "its nodes find",
    costs="a cold start takes some seconds; what is asked for is kept free for the session; computing costs nothing",
    enforces={
        "network": WallCell("yes", "by the cluster's policy; a sandbox that is answered is refused"),
        "user": WallCell("partly", "one of a hundred million by chance; owners do not ask each other"),
        "sys": WallCell("no", "read-only, and facts about the machine are masked"),
        "kernel": WallCell("no", "unless a runtime class brings one"),
        "calls": WallCell("no", "the node has a list of its own, RuntimeDefault"),
        "files-number": WallCell("no", "they count as memory"),
        "threads": WallCell("yes", "by the pod's user"),
        "ends": WallCell("partly", "by its pipe, the agent's clock and its lifetime; else by its owner's machine"),
    },
)


_OF_SOCKETS = (
    "on nodes with cgroup v1, the kubelet limits no memory of sockets; on those with v2 the pod's limit has it"
)


class KubernetesProvider(EngineProvider):
    """A namespace of a cluster."""

    name = "kubernetes"
    is_elsewhere = True
    excuses = MappingProxyType(
        {
            "kubernetes": {
                "system call filter of the engine alone for AF_NETLINK (error number)": (
                    "0",
                    "the node has a filter of its own around the agent's",
                ),
                "process limit": ("nothing", _BY_USER),
                "network interfaces besides lo": ("eth0", "each pod has it; what it reaches is looked at"),
                "mounts besides the sandbox's own": (
                    _NODE_S,
                    "each container has these two files of its node's; cells write neither",
                ),
                "writable places": (
                    "/proc/pressure/memory",
                    "a pod covers nothing within /proc; a cell can wait there",
                ),
                "options of /tmp": (_OPTIONS, _MEMORY),
                "options of /mnt/data": (_OPTIONS, _MEMORY),
                "options of /dev/shm": (_OPTIONS, _MEMORY),
            }
        }
    )

    openings = MappingProxyType(
        {
            "udp_to_the_network": _DROPPED,
            "broadcast": _DROPPED,
            "multicast": _DROPPED,
            "the_keys_of_others": _SHOWN,
            "the_kernel_s_symbols": _SHOWN,
            "the_kernel_s_configuration": _SHOWN,
            "what_the_machine_s_pressure_wakes": _SHOWN,
            "file_systems_of_the_machine": _SHOWN,
            "the_boot_of_the_machine": _SHOWN,
            "buses_and_drivers_of_the_machine": _SHOWN,
            "connections_beyond_the_memory_limit": _OF_SOCKETS,
            "datagrams_beyond_the_memory_limit": _OF_SOCKETS,
            "empty_files_without_end": _COUNTED,
        }
    )

    def make(self, address: str, settings: Settings, ahead: Ahead | None = None) -> Inspectable:
        try:
            from . import cluster_api  # noqa: F401
        except ModuleNotFoundError as error:
            raise ConfigurationError(
                UsageCode.PACKAGE_MISSING,
                f"the engine kubernetes needs a package that is not installed ({error.name}): "
                f"{install_words('kubernetes')}",
                setting="engine",
            ) from error
        from .engine import KubernetesEngine
        from .settings import KubernetesSettings

        return KubernetesEngine(settings.of(KubernetesSettings))

    def walls(self) -> tuple[Wall, ...]:
        return (WALL,)


PLUGIN = Plugin(
    name="kubernetes",
    extra="kubernetes",
    codes={"Clusters": KubernetesCode},
    page="docs/kubernetes.md",
    engines=(KubernetesProvider(),),
    commands=(COMMAND,),
)
