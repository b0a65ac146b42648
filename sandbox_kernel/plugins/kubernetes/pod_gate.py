"""The first program of a pod: it waits for its owner, takes its limits, and becomes the sandbox's program.

What it becomes comes through the pipe. So no object of the cluster has a line of a session's, no secret among them; a
pod that nobody attaches to ends by itself; and no byte is written before somebody reads.

The gate is process 1 of its pod, which no signal ends that it does not handle: so it handles the alarm.

A pod has no limits of its own for open files and core files, and one for processes that its node shares out. The gate
sets them, for itself and for all that it becomes. The kernel counts processes by user, and a pod's user is its own.

A pod has addresses of IPv6 that no policy may know: each interface gives itself one. The gate closes that family.

Runs inside the container: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from typing import Any

from ...core.model import SandboxSpec
from ...engines.hardening import OF_A_USER
from ...engines.shipping import COMMAND, STARTER, sized

NODE = "SANDBOX_KERNEL_NODE"
"""Where the agent has the address of its node."""
KEPT = ("PATH", "HOME", "HOSTNAME", "KUBERNETES_SERVICE_HOST", NODE)
"""What stays of the pod's environment. The last two are addresses that must not answer; the agent looks."""

SOURCE = """\
import os, signal, sys
signal.signal(signal.SIGALRM, lambda *_: os._exit(142))
signal.alarm(int(sys.argv[1]))
def read(count):
    data = b""
    while len(data) < count:
        more = os.read(0, count - len(data))
        if not more:
            os._exit(0)
        data += more
    return data
told = eval(sys.argv[2] if len(sys.argv) > 2 else read(int(read(8), 16)))
import resource
for name, most in told["limits"].items():
    which = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(which)[1]
    most = most if hard < 0 else min(most, hard)
    resource.setrlimit(which, (most, most))
numbers = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}.get(os.uname().machine)
if numbers:
    import ctypes, struct
    lines = [
        (0x20, 0, 0, 4), (0x15, 0, 5, numbers[0]), (0x20, 0, 0, 0), (0x15, 0, 3, numbers[1]),
        (0x20, 0, 0, 16), (0x15, 0, 1, 10), (0x06, 0, 0, 0x00050000 | 97), (0x06, 0, 0, 0x7FFF0000),
    ]
    code = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
    whole = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(lines), ctypes.addressof(code)))
    ctypes.CDLL(None).prctl(22, 2, ctypes.c_void_p(ctypes.addressof(whole)), 0, 0)
if "program" in told:
    import base64, zlib
    with open("/tmp/agent", "xb+") as file:
        os.unlink(file.name)
        file.write(zlib.decompress(base64.b64decode(told["program"])))
        file.seek(0)
        os.dup2(file.fileno(), 9)
signal.alarm(0)
kept = {name: os.environ[name] for name in told["kept"] if name in os.environ}
try:
    os.execvpe(told["command"][0], told["command"], {**kept, **told["environment"]})
except OSError as error:
    sys.stderr.write("%s: %s\\n" % (told["command"][0], error.strerror))
    sys.exit(127)
"""
"""The filter: `socket` of the family 10 (AF_INET6) fails with EAFNOSUPPORT, of whatever kind.

The agent finds whether the kernel took it, which takes none from a process that could get rights. The numbers of other
architectures end at the agent's own filter.
"""
_FROM_A_FILE = "exec(compile(open(9, 'rb').read(), 'agent', 'exec'))"
WAITING = tuple(_FROM_A_FILE if word == STARTER else word for word in COMMAND)
"""The command of an agent whose program nobody sends: the gate has it, and leaves it open."""
NOT_THERE = 127
"""The exit code of a pod whose program cannot be started, as shells have it; its stderr says why."""


def told(spec: SandboxSpec) -> bytes:
    """Return what the gate is sent, and what it becomes."""
    return sized(document(spec)) + spec.program


def whole(spec: SandboxSpec) -> str:
    """Return what a gate becomes before anybody is there, with its program.

    The cluster writes a pod down whenever its state changes: packed, one is a third as large. Linux takes less than
    128 KiB of an argument (MAX_ARG_STRLEN).
    """
    return document(spec, program=base64.b64encode(zlib.compress(spec.program[8:], 9)).decode())


def document(spec: SandboxSpec, **more: str) -> str:
    """Return what the gate is to become, as Python's literals."""
    found: dict[str, Any] = {
        **more,
        "command": list(spec.command),
        "environment": dict(spec.environment),
        "kept": KEPT,
        "limits": limits(spec),
    }
    return repr(json.loads(json.dumps(found)))


def limits(spec: SandboxSpec) -> Mapping[str, int]:
    """Return the limits that the gate sets, as `resource` names them."""
    return {
        "NOFILE": spec.limits.open_files,
        "CORE": 0,
        "MSGQUEUE": 0,
        "NPROC": spec.limits.pids,
        **{name.upper(): most for name, most in OF_A_USER.items()},
    }
