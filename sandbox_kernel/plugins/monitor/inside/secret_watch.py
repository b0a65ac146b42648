"""What code in a kernel looks for that no honest cell wants, and what it starts: seen by Python itself.

A hook for Python's audit events sees each file that Python opens, each folder that it lists, and the words of programs
that it starts. It tells the agent by a call that is refused (`call_watch`): the number of what was sought, and no word
of the code's; or that a program is started, and its name. What it does not see: code in C, what a started program opens
by itself, and a cell that takes it apart.
Runs inside the container, where the host ships its source: standard library only, Python 3.9 and later.
"""

from __future__ import annotations

import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

SECRETS = (
    r"(?:docker|containerd|crio|podman)\.sock(?![\w.])",
    r"/etc/(?:g?shadow|security/opasswd)(?![\w.])",
    r"/etc/sudoers",
    r"(?:^|[/ ])\.ssh(?![\w.])|/etc/ssh/ssh_host",
    r"(?:^|[/ ])\.(?:aws|azure|kube|config/gcloud)(?![\w.])",
    r"(?:^|[/ ])\.(?:netrc|git-credentials|pgpass|gnupg|docker/config\.json)(?![\w.])",
    r"/run/secrets(?![\w.])",
    r"(?<![\w./~-])/root(?![\w.-])",
    r"/proc/(?:(?:[0-9]+|[*?]+)/(?:task/[0-9]+/)?(?:environ|mem)|1/(?:root|cwd|fd|maps))(?![\w.])",
    r"/proc/(?:kcore|kallsyms|keys|kpage\w+|sysrq-trigger|sys/kernel/(?:core_pattern|modprobe|hotplug))(?![\w.])"
    r"|/dev/(?:k?mem|port|kmsg)(?![\w.])|/sys/(?:firmware|kernel/(?:debug|tracing|security|uevent_helper))(?![\w.])",
    r"(?!)",
)
"""What in a path or in a command says that a secret is sought: their names are the host's (`session/agent_messages`).
The agent itself sees the first, too; the last is a change of files of the system."""
SYSTEM = len(SECRETS) - 1
WORDS = tuple(
    """
    .sock shadow opasswd sudoers .ssh ssh_host .aws .azure .kube .config/gcloud .netrc .git-cred .pgpass .gnupg .docker/
    /run/secrets /root /proc/ /dev/k /dev/mem /dev/port /sys/
    """.split()  # noqa: SIM905 (one line a kind says no more)
)
"""What a text has for which a pattern is tried: all of them take a thousand times as long for a long command."""
MARK = {"x86_64": 212, "aarch64": 18}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
CHANGES = frozenset(
    ("os.chmod", "os.chown", "os.link", "os.mkdir", "os.remove", "os.rename", "os.symlink", "os.truncate")
)
OF_SYSTEM, CACHES = ("/etc/", "/usr/", "/bin/", "/sbin/", "/lib", "/boot/"), ("__pycache__", "-packages/", "/usr/tmp")
"""Files of the system, which no cell can change; and what libraries of honest code try to write there."""
FOLDERS, COMMANDS = ("os.listdir", "os.scandir"), ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn")
PLACES = ("/etc", "/root", "/proc/", "/sys/", "/dev/", "/run/", "/var/run", ".")
"""How a path begins that is compared with the patterns; or a part of it begins with a dot."""
LONGEST = 4096
"""Characters of a command that are looked at."""
STARTED = 1 << 16
"""In the place of a secret's number: a program is started (`call_watch.STARTED`)."""
MAX_NAME = 40
EXACT, PAUSE, MAX_NAMES = 16, 0.25, 256
"""How many of one program are told of each, while there is no such pause in seconds; of more, each doubling is."""
SHELLS = frozenset(("sh", "bash", "dash"))

_SOUGHT = re.compile("|".join("(%s)" % pattern for pattern in SECRETS))
_WRITTEN = re.compile(r"(?:>|\btee(?: -a)?)\s*/(?:etc|usr|s?bin|lib\w*|boot)/")


def sought(event: str, arguments: tuple[Any, ...]) -> int | None:
    """Return which secret an event of Python's is about; None for the usual."""
    if event in COMMANDS:
        text = " ".join(_words(event, arguments))[:LONGEST]
        if "/" in text and (">" in text or "tee" in text) and _WRITTEN.search(text):
            return SYSTEM
    else:
        text = arguments[0]
        if isinstance(text, bytes):
            text = os.fsdecode(text)
        if not isinstance(text, str):
            return None
        changes = event in CHANGES or (event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITES)
        if changes and text.startswith(OF_SYSTEM) and not any(part in text for part in CACHES):
            return SYSTEM
        if not (text.startswith(PLACES) or "/." in text or text.endswith(".sock")):
            return None  # nearly all of them: no pattern is tried
    found = _SOUGHT.search(text) if any(word in text for word in WORDS) else None
    if found is None or found.group().startswith("/proc/%d/" % os.getpid()):
        return None
    return int(found.lastindex or 1) - 1


def _words(event: str, arguments: tuple[Any, ...]) -> list[str]:
    words = arguments[:1] if event == "os.system" else arguments[:2]
    parts = [one for word in words for one in (word if isinstance(word, (list, tuple)) else [word])]
    return [os.fsdecode(one) for one in parts if isinstance(one, (str, bytes, os.PathLike))]


def started(event: str, arguments: tuple[Any, ...]) -> str:
    """Return the name of the program that a command starts: of a shell's, the first of its line."""
    words = _words(event, arguments)
    name, line = (words[0], "") if words else ("", "")
    if event == "os.system":
        line = name
    elif os.path.basename(name) in SHELLS and "-c" in words[:-1]:
        line = words[words.index("-c") + 1]
    first = next(iter(line[:LONGEST].split()), name).strip(";&|()'\"")
    return os.path.basename(first)[:MAX_NAME]


def is_told_already(event: str) -> bool:
    """Return whether it is `subprocess` that starts something: it has said by another event what. A hook calls this."""
    return event == "os.posix_spawn" and sys._getframe(2).f_globals.get("__name__") == "subprocess"  # noqa: SLF001


class Starts:
    """Which programs were started, and how often: telling of one takes as long as a tenth of its start."""

    def __init__(self) -> None:
        self._times: dict[bytes, tuple[int, float]] = {}

    def to_tell(self, name: bytes, now: float) -> int:
        """Count a start; return how many are to be told of now, which may be none."""
        times, last = self._times.get(name, (0, 0.0))
        times = 1 if now - last > PAUSE else times + 1
        if len(self._times) >= MAX_NAMES:
            self._times.clear()
        self._times[name] = times, now
        if times <= EXACT:
            return 1
        return 0 if times & (times - 1) else times // 2


def install_here() -> None:
    """Have this process look, for as long as it runs."""
    number = MARK.get(os.uname().machine)
    busy: list[str] = []
    calls: list[Any] = []
    starts = Starts()
    watched = frozenset(("open", *FOLDERS, *COMMANDS, *CHANGES))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event not in watched or busy:
            return
        try:
            found = sought(event, arguments)
            if number is not None and (found is not None or event in COMMANDS):
                busy.append(event)  # what follows makes events of its own
                if not calls:
                    import ctypes

                    calls.append(ctypes.CDLL(None).syscall)
                if found is not None:
                    calls[0](number, found)
                if event in COMMANDS and not is_told_already(event):
                    name = os.fsencode(started(event, arguments))
                    if times := starts.to_tell(name, time.monotonic()):
                        calls[0](number, STARTED, name, len(name), times)
        except Exception:  # noqa: S110 (what a cell passes may be anything; what it does is none of ours)
            pass
        finally:
            busy.clear()

    sys.addaudithook(hook)
