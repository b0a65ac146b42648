"""psutil that measures the sandbox: a cell asks it how much it may use, and the machine around is not the answer.

A module of the image, `sandbox_measures`, for the moment when a cell imports psutil. What is replaced is what a person
sizes work by: memory, processors and disk. The figures are those of the limits as the system shows them in here; where
it shows none, psutil's own stay. It is a help and no wall: other processes, and /proc, still show the machine.
"""

import os
from functools import wraps

_SCRATCH = "/mnt/data"
_CGROUP = "/sys/fs/cgroup"


def _number(path, name=None):
    """Return the number in a file of the cgroup, or after `name` in its lines; None where there is no such thing."""
    try:
        with open(f"{_CGROUP}/{path}") as file:
            for line in file:
                key, _, value = line.strip().rpartition(" ")
                if key == (name or ""):
                    return int(value)
    except (OSError, ValueError):  # no limit is "max", which is no number
        pass
    return None


def _memory():
    """Return the bytes that may be used, and those that are: what the system drops when it needs room is not used."""
    for limit, now, cache in (
        ("memory.max", "memory.current", "inactive_file"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "total_inactive_file"),
    ):
        total, used = _number(limit), _number(now)
        if total is not None and used is not None:
            return total, max(0, used - (_number(f"{limit.partition('memory.')[0]}memory.stat", cache) or 0))
    return None


def fit(psutil):
    """Replace what psutil says of the machine."""
    virtual_memory, cpu_count, disk_usage = psutil.virtual_memory, psutil.cpu_count, psutil.disk_usage

    @wraps(virtual_memory)
    def of_sandbox():
        found, limits = virtual_memory(), _memory()
        if limits is None or limits[0] >= found.total:
            return found
        total, used = limits
        left = max(0, min(total - used, found.available))
        return found._replace(
            total=total, used=used, available=left, free=left, percent=round(100 * (total - left) / total, 1)
        )

    @wraps(cpu_count)
    def of_processors(logical=True):
        found, own = cpu_count(logical), os.environ.get("PYTHON_CPU_COUNT", "")
        return min(found, int(own)) if found and own.isdigit() else found

    @wraps(disk_usage)
    def of_disk(path):
        # What no cell can write is the image, on a disk of the machine's: nobody in here can fill any of it.
        return disk_usage(_SCRATCH if os.path.exists(path) and not os.access(path, os.W_OK) else path)

    psutil.virtual_memory, psutil.cpu_count, psutil.disk_usage = of_sandbox, of_processors, of_disk
