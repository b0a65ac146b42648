"""A machine of today in QEMU, by emulation: started, given commands over one port, and switched off.

It has no network, and what it writes to its disk is forgotten. No KVM: a machine of a cloud may have it, and no guest
comes up there.
"""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

MEMORY_MIB = 5120
PROCESSORS = 2
BOOT_SECONDS = 900
SLACK_SECONDS = 120
"""By which a command may be late before the machine is given up."""


@dataclass(frozen=True)
class Disk:
    """What QEMU starts."""

    image: Path
    kernel: Path
    initrd: Path


class MachineLost(Exception):
    """The machine ended, or says nothing any more."""


@dataclass(frozen=True)
class Done:
    """How a command ended; `code` is None if it took too long."""

    code: int | None
    lines: tuple[str, ...]
    seconds: float

    @property
    def text(self) -> str:
        return "\n".join(self.lines)


class Machine:
    """One that runs as long as the block does."""

    def __init__(self, disk: Disk, project: Path, folder: Path, *, keeps: bool = False) -> None:
        """`folder` is for its console and the socket of its port. What it writes to its disk is kept if so asked."""
        self.console = folder / "console.log"
        self._disk, self._project, self._socket = disk, project, folder / "port"
        self._snapshot = "off" if keeps else "on"
        self._used = 0.0

    def __enter__(self) -> Machine:
        self._port = socket.socket(socket.AF_UNIX)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(str(self._socket))
            listening.listen(1)
            listening.settimeout(SLACK_SECONDS)
            self._process = subprocess.Popen(self._command(), stdin=subprocess.DEVNULL)
            try:
                self._port = listening.accept()[0]
            except BaseException as error:
                self._process.kill()
                if isinstance(error, TimeoutError):
                    raise MachineLost("QEMU does not start") from error
                raise
        self._lines = self._port.makefile("rb")
        try:
            self.up_seconds = float(str(self._answer(BOOT_SECONDS)["up"]))
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.processor_seconds()
        self._process.kill()
        self._process.wait()
        self._lines.close()
        self._port.close()

    def _command(self) -> list[str]:
        drive = "if=virtio,format=raw"
        return [
            *(
                "nice",
                "-n",
                "5",
                "qemu-system-x86_64",
                "-M",
                "pc",
                "-cpu",
                "max",
                "-accel",
                "tcg,thread=multi,tb-size=512",
            ),
            *("-smp", str(PROCESSORS), "-m", str(MEMORY_MIB), "-nic", "none", "-display", "none", "-no-reboot"),
            *("-kernel", str(self._disk.kernel), "-initrd", str(self._disk.initrd)),
            *("-append", "root=/dev/vda rw console=ttyS0 quiet panic=-1 systemd.show_status=false"),
            *("-drive", f"file={self._disk.image},snapshot={self._snapshot},cache=unsafe,{drive}"),
            *("-drive", f"file={self._project},readonly=on,{drive}"),
            *("-device", "virtio-rng-pci", "-device", "virtio-serial-pci"),
            *("-chardev", f"socket,id=port,path={self._socket}", "-device", "virtserialport,chardev=port,name=host"),
            *("-serial", f"file:{self.console}", "-monitor", "none"),
        ]

    def run(self, *command: str, seconds: float, heard: Callable[[str], None] = lambda line: None) -> Done:
        """Run a command as root, in no folder of its own; `heard` gets each line as it comes. Raises `MachineLost`."""
        began, lines = time.monotonic(), []
        self._ask(run=command, seconds=seconds)
        while "exit" not in (answer := self._answer(seconds + SLACK_SECONDS)):
            lines.append(str(answer["line"]))
            heard(lines[-1])
        if "error" in answer:
            lines.append(str(answer["error"]))
        code = answer["exit"]
        return Done(code if isinstance(code, int) else None, tuple(lines), time.monotonic() - began)

    def read(self, path: str) -> bytes:
        """Return a file of the machine's, nothing for one that is not there. Raises `MachineLost`."""
        self._ask(read=path)
        return base64.b64decode(str(self._answer(SLACK_SECONDS)["data"]))

    def processor_seconds(self) -> float:
        """Return what QEMU has used of the real processors: what else is done on them is no part of it."""
        with contextlib.suppress(psutil.Error):  # it has ended: what was seen last
            times = psutil.Process(self._process.pid).cpu_times()
            self._used = max(self._used, times.user + times.system)
        return self._used

    def off(self) -> None:
        """Switch it off as a person does, so that its disk is whole. Raises `MachineLost`."""
        self._ask(run=["systemctl", "poweroff"], seconds=SLACK_SECONDS)
        try:
            self._process.wait(BOOT_SECONDS)
        except subprocess.TimeoutExpired as error:
            raise MachineLost(f"the machine does not switch off; its console: {self.last_words()}") from error

    def _ask(self, **words: object) -> None:
        try:
            self._port.sendall(json.dumps(words).encode() + b"\n")
        except OSError as error:
            raise MachineLost(f"the machine hears nothing; its console: {self.last_words()}") from error

    def _answer(self, seconds: float) -> dict[str, object]:
        self._port.settimeout(seconds)
        try:
            line = self._lines.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise MachineLost(f"the machine says nothing; its console: {self.last_words()}")
        answer: dict[str, object] = json.loads(line)
        return answer

    def last_words(self, lines: int = 5) -> str:
        """Return the end of what stands on its console."""
        text = self.console.read_text(errors="replace") if self.console.exists() else ""
        return " | ".join(text.strip().splitlines()[-lines:])


def as_user(user: str, command: Sequence[str], *, delegated: bool = False, **environment: str) -> list[str]:
    """Return a command for a user, in a session of theirs as a login makes one; root needs none.

    `delegated` puts it into a cgroup that the user's systemd hands over.
    """
    words = [f"{name}={value}" for name, value in environment.items()]
    if user == "root":
        return ["env", *words, *command]
    own = ["systemd-run", "--user", "--scope", "--quiet", "--property=Delegate=yes", "--"] if delegated else []
    login = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", f"--uid={user}", "--property=PAMName=login"]
    return [*login, f"--working-directory=/home/{user}", "--", *own, "env", *words, *command]
