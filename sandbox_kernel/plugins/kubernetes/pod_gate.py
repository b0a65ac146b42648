"""The first program of a pod: it waits for its owner, takes its limits, and becomes the sandbox's program.

What it becomes comes through the pipe. So no object of the cluster has a line of a session's, no secret among them; a
pod that nobody attaches to ends by itself; and no byte is written before somebody reads.

A pod has no limits of its own for open files and core files, and one for processes that its node shares out. The gate
sets them, for itself and for all that it becomes. The kernel counts processes by user, and a pod's user is its own.

Runs inside the container: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from ...core.model import SandboxSpec
from ...engines.hardening import OF_A_USER

KEPT = ("PATH", "HOME", "HOSTNAME", "KUBERNETES_SERVICE_HOST", "SANDBOX_KERNEL_NODE")
"""What stays of the pod's environment. The last two are addresses that must not answer; the agent looks."""

SOURCE = """\
import os, signal, sys
signal.alarm(int(sys.argv[1]))
def read(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
told = eval(read(int(read(8), 16)))
import resource
for name, most in told["limits"].items():
    which = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(which)[1]
    most = most if hard < 0 else min(most, hard)
    resource.setrlimit(which, (most, most))
signal.alarm(0)
kept = {name: os.environ[name] for name in told["kept"] if name in os.environ}
try:
    os.execvpe(told["command"][0], told["command"], {**kept, **told["environment"]})
except OSError as error:
    sys.stderr.write("%s: %s\\n" % (told["command"][0], error.strerror))
    sys.exit(127)
"""
NOT_THERE = 127
"""The exit code of a pod whose program cannot be started, as shells have it; its stderr says why."""


def told(spec: SandboxSpec) -> bytes:
    """Return what the gate is sent: a length in eight hexadecimal digits, and a document of Python's literals."""
    document = {
        "command": list(spec.command),
        "environment": dict(spec.environment),
        "kept": KEPT,
        "limits": limits(spec),
    }
    data = repr(json.loads(json.dumps(document))).encode()
    return b"%08x" % len(data) + data


def limits(spec: SandboxSpec) -> Mapping[str, int]:
    """Return the limits that the gate sets, as `resource` names them."""
    return {
        "NOFILE": spec.limits.open_files,
        "CORE": 0,
        "MSGQUEUE": 0,
        "NPROC": spec.limits.pids,
        **{name.upper(): most for name, most in OF_A_USER.items()},
    }
