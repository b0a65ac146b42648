"""What the sandbox can see of itself: the self-report for the attestation, and how much of its limits is used.

Runs inside the container, where the host ships its source: standard library only, Python 3.9 and later, and quick,
because every start waits for it. It reports and never judges; the host compares (engines/attestation.py).
"""

from __future__ import annotations

import _socket  # all of `socket` that is wanted here, and loaded in no time
import errno
import fcntl
import os
import resource
import stat
import sys
import time
from collections.abc import Callable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SCRATCH = "/mnt/data"
ATTACHED = ("/mnt/datasets/", "/mnt/volumes/")
CGROUP = "/sys/fs/cgroup"

WELL_KNOWN = tuple(
    """
    / /bin /boot /etc /home /lib /media /mnt /opt /root /run /run/lock /sbin /srv /usr /usr/bin /usr/lib /usr/local
    /usr/local/bin /usr/local/lib /var /var/cache /var/lib /var/lock /var/log /var/mail /var/spool /var/tmp
    /dev /dev/mqueue /proc/pressure/memory /proc/sys /proc/sysrq-trigger /sys/fs/cgroup
    """.split()  # noqa: SIM905 (one line a place says no more)
)
"""Places looked at for being writable, besides every mount point. The tests walk the whole tree."""

PROBES = {"AF_NETLINK": 16, "AF_PACKET": 17, "AF_ALG": 38, "AF_VSOCK": 40}
"""Socket families that must be closed. Without a filter AF_NETLINK opens on every kernel: the filter proves itself."""

OWN = "/proc/self" if os.path.exists("/proc/self") else "/proc/1"
"""This process's folder: some engines show that of process 1 alone."""
TIOCSTI = 0x5412
F_SETLEASE, F_UNLCK = 1024, 2

QUIET = {"lo", "tunl0", "gre0", "gretap0", "erspan0", "ip_vti0", "ip6_vti0", "sit0", "ip6tnl0", "ip6gre0"}
"""Interfaces that lead nowhere: besides them there are none, unless an engine gives each container one.

The attestation has a list of its own (`FALLBACK_TUNNELS`): this one is shipped, and a judge takes nothing from whom it
judges. One that is here alone would be refused there; one that is there alone would be looked at here for nothing."""
REACH_SECONDS = 0.15
"""How long something may take to answer. What is near does in a millisecond."""
POLICY_SECONDS = 5.0
"""How long a network's rules may take to hold for a new container. What answers until then is asked again."""

CAPABILITIES = {
    "inheritable": "CapInh",
    "permitted": "CapPrm",
    "effective": "CapEff",
    "bounding": "CapBnd",
    "ambient": "CapAmb",
}


def collect(status: dict[str, str], filters: dict[str, Any]) -> dict[str, object]:
    """Return the self-report, as plain JSON. A value that cannot be read is None.

    `status` is `own_status()` from before this process put filters around itself, which would look like the engine's;
    `filters` says what became of these.
    """
    network = _read(OWN + "/net/dev")
    lines = None if network is None else [line for line in network.splitlines() if ":" in line]
    interfaces = None if lines is None else [line.partition(":")[0].strip() for line in lines]
    tries = _tries() if set(interfaces or ()) - QUIET else None  # while they get their time, all else is looked at
    mounts = _mounts()
    return {
        "pid": os.getpid(),
        "uids": list(os.getresuid()),
        "gids": list(os.getresgid()),
        "groups": os.getgroups(),
        "capabilities": {name: _number(status.get(key), 16) for name, key in CAPABILITIES.items()},
        "no_new_privileges": _number(status.get("NoNewPrivs")),
        "seccomp_mode": _number(status.get("Seccomp")),
        "seccomp_filters": _number(status.get("Seccomp_filters")),
        "processors": status.get("Cpus_allowed_list", "").strip(),
        "own_filters": filters,
        "mounts": mounts,
        "interfaces": interfaces,
        "rlimits": {
            "nofile": list(resource.getrlimit(resource.RLIMIT_NOFILE)),
            "core": list(resource.getrlimit(resource.RLIMIT_CORE)),
            "sigpending": list(resource.getrlimit(resource.RLIMIT_SIGPENDING)),
            "memlock": list(resource.getrlimit(resource.RLIMIT_MEMLOCK)),
            "nproc": list(resource.getrlimit(resource.RLIMIT_NPROC)),
        },
        "cgroup": _limits(),
        "swap_kib": _field("/proc/meminfo", "SwapTotal:"),
        "writable": _writable(mounts),
        "devices": _devices(),
        "environment": sorted(os.environ),
        "hostname": _socket.gethostname(),
        "probes": _probe(filters["threads"]),
        "inotify": _watching(),
        "python": ".".join(map(str, sys.version_info[:3])),
        "kernel": os.uname().release,
        "reached": [] if tries is None else _reached(tries),
    }


def knows_zone(name: str) -> bool:
    """Return whether clocks can show a time zone. Where its file is missing, they show UTC and say nothing."""
    try:
        with open("/usr/share/zoneinfo/" + name, "rb") as file:
            return file.read(4) == b"TZif"
    except OSError:
        return name.rpartition("/")[2] in {"UTC", "UCT", "GMT", "Universal", "Zulu"}


def usage() -> dict[str, object]:
    """Return what the sandbox uses: bytes, CPU seconds since its start, processes and threads."""
    space = os.statvfs(SCRATCH) if os.path.isdir(SCRATCH) else None
    return {
        "memory_used": memory_used(),
        "cpu_seconds": cpu_seconds(),
        "pids_used": _number(_read((_v1("pids") or CGROUP) + "/pids.current")),
        "scratch_used": (space.f_blocks - space.f_bfree) * space.f_frsize if space else None,
    }


def memory_used() -> int | None:
    """Return the bytes in use; the system drops cached files before it runs out, so they are not counted as used."""
    v1 = _v1("memory")
    return _without_cache(_number(_read(v1 + "/memory.usage_in_bytes" if v1 else CGROUP + "/memory.current")))


def cpu_seconds() -> float | None:
    """Return the CPU seconds of all processes since the container's start."""
    nanoseconds = _number(_read(_v1("cpuacct") + "/cpuacct.usage"))
    if nanoseconds is not None:
        return nanoseconds / 1e9
    microseconds = _field(CGROUP + "/cpu.stat", "usage_usec")
    return microseconds / 1e6 if microseconds >= 0 else None


def _without_cache(count: int | None) -> int | None:
    v1 = _v1("memory")
    files = (
        _field(v1 + "/memory.stat", "total_inactive_file") if v1 else _field(CGROUP + "/memory.stat", "inactive_file")
    )
    return None if count is None else max(0, count - max(0, files))


def _highest() -> int | None:
    """Return the most bytes that were ever in use, cached files included: the system counts, and never backwards."""
    v1 = _v1("memory")
    return _number(_read(v1 + "/memory.max_usage_in_bytes" if v1 else CGROUP + "/memory.peak"))


class Meter:
    """CPU seconds and the peak of memory of one stretch of time, such as a cell.

    The peak is the system's own if it rose meanwhile, to the byte. Below an earlier peak only samples are left: they
    miss what comes and goes between two of them.
    """

    INTERVAL = 0.1
    """Seconds between two samples."""

    def __init__(self) -> None:
        self._cpu = cpu_seconds()
        self._highest = _highest()
        self._peak = memory_used()
        self._sampled = time.monotonic()

    def sample(self) -> None:
        """Look at the memory, unless that was done just now."""
        if time.monotonic() - self._sampled >= self.INTERVAL:
            self._sampled = time.monotonic()
            self._peak = max(self._peak or 0, memory_used() or 0) or None

    def read(self) -> dict[str, object]:
        """Return both figures up to now; what cannot be known is None."""
        self._sampled = 0.0
        self.sample()
        cpu, highest = cpu_seconds(), _highest()
        if highest is not None and self._highest is not None and highest > self._highest:
            self._peak = max(self._peak or 0, _without_cache(highest) or 0) or None
        return {
            "cpu_seconds": None if cpu is None or self._cpu is None else cpu - self._cpu,
            "memory_peak": self._peak,
        }


def oom_kills() -> int:
    """Return how many processes of this sandbox the system has killed for memory, -1 when that cannot be known."""
    v1 = _v1("memory")
    return _field(v1 + "/memory.oom_control" if v1 else CGROUP + "/memory.events", "oom_kill")


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None


def _number(text: str | None, base: int = 10) -> int | None:
    try:
        return None if text is None else int(text.strip(), base)
    except ValueError:
        return None


def _field(path: str, name: str) -> int:
    """Return the number after `name` in a file of "name number" lines, -1 when there is none."""
    for line in (_read(path) or "").splitlines():
        key, _, value = line.partition(" ")
        if key == name:
            number = _number(value.split()[0]) if value.strip() else None
            return -1 if number is None else number
    return -1


def own_status(text: str | None = None) -> dict[str, str]:
    """Return the lines of /proc/self/status, or of what it held before."""
    lines = (text or _read(OWN + "/status") or "").splitlines()
    return {key: value for key, _, value in (line.partition(":") for line in lines)}


def _mounts() -> list[dict[str, object]]:
    """Return what is mounted, in the order of mounting; `bytes` is the size of a file system of the sandbox's own.

    `identity` tells what the host gave from other folders: when it was last changed, in nanoseconds; of a disk, the
    number of its file system.
    """
    mounts: list[dict[str, object]] = []
    for line in (_read(OWN + "/mountinfo") or "").splitlines():
        # 36 35 98:0 /root /mount/point rw,nosuid optional... - type source rw,size=..., see proc(5)
        before, _, after = line.partition(" - ")
        fields, rest = before.split(" "), after.split(" ")
        if len(fields) < 6 or len(rest) < 3:
            mounts.append({"path": line, "type": None})
            continue
        path = fields[4].encode().decode("unicode_escape")
        mount: dict[str, object] = {"path": path, "type": rest[0], "options": fields[5].split(","), "root": fields[3]}
        if rest[0] in ("tmpfs", "ext4"):
            try:
                space = os.statvfs(path)
                mount["bytes"] = space.f_blocks * space.f_frsize
                mount["identity"] = space.f_fsid & 0xFFFFFFFF
            except OSError:
                mount["bytes"] = None
        elif path.startswith(ATTACHED):
            try:
                mount["identity"] = os.stat(path).st_ctime_ns
            except OSError:
                mount["identity"] = None
        mounts.append(mount)
    return mounts


Tries = list[tuple[str, _socket.socket, int, float]]
"""Connections on their way: to where, the number of the first error, and until when they have time."""


def _reached(tries: Tries) -> list[str]:
    """Return what answers, once nothing does or the network has had its time to close."""
    end = time.monotonic() + POLICY_SECONDS
    while (found := _answering(tries)) and time.monotonic() < end:
        time.sleep(REACH_SECONDS)
        tries = _tries()
    return found


def _tries() -> Tries:
    """Connect to the addresses that are always there, where there is a network: all of them must not answer.

    These are the API server, which tells each container its address; names' servers; the machine that the network goes
    through, and its kubelet; and what clouds tell their machines.
    """
    wanted = [
        ("169.254.169.254", 80),
        (os.environ.get("KUBERNETES_SERVICE_HOST", ""), 443),
        (os.environ.get("SANDBOX_KERNEL_NODE", ""), 10250),
    ]
    servers = [line.split()[1] for line in (_read("/etc/resolv.conf") or "").splitlines() if line[:11] == "nameserver "]
    wanted += [(server, 53) for server in servers if not server.startswith("127.") and ":" not in server]
    for line in (_read(OWN + "/net/route") or "").splitlines()[1:]:
        fields = line.split()
        if len(fields) > 2 and fields[2] != "00000000":
            gateway = ".".join(str(byte) for byte in reversed(bytes.fromhex(fields[2])))
            wanted += [(gateway, 10250), (gateway, 53)]
    tries = []
    for address, port in dict.fromkeys(wanted):
        if address:
            one = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
            one.setblocking(False)
            code = one.connect_ex((address, port))
            tries.append((f"{address}:{port}", one, code, time.monotonic() + REACH_SECONDS))
    return tries


def _answering(tries: Tries) -> list[str]:
    """Return which of them answered in their time.

    An answer is a connection: its refusal is what some networks send for what their policy drops, and the API server
    and kubelets always listen. Of IPv6, of which each interface gives itself an address, the family itself must be
    closed.
    """
    ends = [end for _, _, code, end in tries if code == errno.EINPROGRESS]
    time.sleep(max(0.0, max(ends, default=0.0) - time.monotonic()))
    found = []
    for name, one, begun, _ in tries:
        code = one.getsockopt(_socket.SOL_SOCKET, _socket.SO_ERROR) if begun == errno.EINPROGRESS else begun
        try:
            one.getpeername()
        except OSError:
            code = code or errno.EINPROGRESS
        one.close()
        if code == 0:
            found.append(name)
    try:
        _socket.socket(_socket.AF_INET6, _socket.SOCK_STREAM).close()
        found.append("IPv6")
    except OSError:
        pass
    return found


def _v1(controller: str) -> str:
    """Return the folder of a controller of cgroup v1, "" when there is none."""
    for folder in (controller, "cpu,cpuacct", "cpuacct,cpu"):
        path = CGROUP + "/" + folder
        if controller in folder and os.path.isdir(path):
            return path
    return ""


def _limits() -> dict[str, int | None]:
    """Return the limits that the cgroup files show; None where nothing can be read, or no limit is set."""
    memory, cpu = _v1("memory"), _v1("cpu")
    if memory:
        quota, period = _number(_read(cpu + "/cpu.cfs_quota_us")), _number(_read(cpu + "/cpu.cfs_period_us"))
        return {
            "memory_bytes": _number(_read(memory + "/memory.limit_in_bytes")),
            "memory_and_swap_bytes": _number(_read(memory + "/memory.memsw.limit_in_bytes")),
            "swap_bytes": None,
            "pids": _number(_read(_v1("pids") + "/pids.max")),
            "cpu_quota": quota,
            "cpu_period": period,
        }
    parts = (_read(CGROUP + "/cpu.max") or "").split()
    return {
        "memory_bytes": _number(_read(CGROUP + "/memory.max")),
        "memory_and_swap_bytes": None,
        "swap_bytes": _number(_read(CGROUP + "/memory.swap.max")),
        "pids": _number(_read(CGROUP + "/pids.max")),
        "cpu_quota": _number(parts[0]) if len(parts) == 2 else None,
        "cpu_period": _number(parts[1]) if len(parts) == 2 else None,
    }


def _writable(mounts: list[dict[str, object]]) -> list[str]:
    """Return which mount points and well-known places this user may write to, device nodes left out."""
    places = sorted({str(mount["path"]) for mount in mounts}.union(WELL_KNOWN))
    return [path for path in places if _changeable(path) and not stat.S_ISCHR(os.stat(path).st_mode)]


def _changeable(path: str) -> bool:
    if path.startswith(ATTACHED):  # gVisor does not know that the host's is read-only before it tries
        name = f"{path}/.sandbox-kernel-{os.urandom(8).hex()}"  # not what an earlier cell left in a volume
        try:
            os.mkdir(name)
            os.rmdir(name)
        except OSError as error:
            return error.errno not in (errno.EROFS, errno.EACCES, errno.EPERM)  # one that is full could be changed
        return True
    return os.access(path, os.W_OK)


def _devices() -> list[str]:
    """Return the device nodes in /dev, and in its folders, but for terminals that programs of this user have opened.

    A kernel that runs already may have some. Those of the host, were they here, would be another user's.
    """
    found, folders = [], ["/dev"]
    while folders:
        try:
            entries = list(os.scandir(folders.pop()))
        except OSError:
            continue
        for entry in entries:
            status = entry.stat(follow_symlinks=False)
            mode = status.st_mode
            if stat.S_ISDIR(mode):
                folders.append(entry.path)
            elif entry.path.startswith("/dev/pts/") and entry.name.isdigit() and status.st_uid == os.getuid():
                continue
            elif stat.S_ISCHR(mode) or stat.S_ISBLK(mode):
                found.append(entry.path)
    return sorted(found)


def _probe(threads: list[int]) -> dict[str, int]:
    """Return the error number of each try of what is forbidden, 0 where it worked; `threads` are this process's."""
    results = {}
    for name, family in PROBES.items():
        try:
            _socket.socket(family, _socket.SOCK_RAW if family in (16, 17) else _socket.SOCK_STREAM).close()
            results[name] = 0
        except OSError as error:
            results[name] = error.errno or -1
    # Types a space into one's own terminal; on the pipe that stdin is, an unfiltered kernel says ENOTTY.
    try:
        fcntl.ioctl(0, TIOCSTI, b" ")
        results["TIOCSTI"] = 0
    except OSError as error:
        results["TIOCSTI"] = error.errno or -1
    # Without a filter, a lease on what is no file of this user's is refused with another error.
    try:
        fcntl.fcntl(0, F_SETLEASE, F_UNLCK)
        results["F_SETLEASE"] = 0
    except OSError as error:
        results["F_SETLEASE"] = error.errno or -1
    # What cells inherit forbids both towards this process, and towards each of its threads.
    for tid in threads:
        results["priority of the agent"] = results.get("priority of the agent", 1) and _refused(
            os.setpriority, os.PRIO_PROCESS, tid, 0
        )
        results["signal to the agent"] = results.get("signal to the agent", 1) and _refused(os.kill, tid, 0)
    return results


def _watching() -> int:
    """Return the number of the error with which a queue for the uses of files is refused, 0 if it is not."""
    import ctypes  # the agent has it already

    libc = ctypes.CDLL(None, use_errno=True)
    opened = int(libc.inotify_init1(os.O_CLOEXEC))
    if opened < 0:
        return ctypes.get_errno()
    os.close(opened)
    return 0


def _refused(function: Callable[..., object], *arguments: int) -> int:
    try:
        function(*arguments)
    except OSError as error:
        return error.errno or -1
    return 0
