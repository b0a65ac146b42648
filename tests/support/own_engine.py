"""A Docker engine of a test's own, in a folder of its own: stopping it disturbs nobody. It needs root and dockerd."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from tests.support.kernels import eventually

IMAGE = "sandbox-kernel:base"
DISK_BYTES = 512 << 20
"""Of the engine's own disk, which has room for this image and little more."""


class OwnEngine:
    """A Docker engine with its own containerd, below one folder; without any network."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"unix://{folder}/s"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        folder = self.folder
        # In a network namespace of its own: an engine without a bridge removes docker0, which is another engine's.
        command = [
            "unshare",
            "--net",
            "dockerd",
            "--data-root",
            f"{folder}/d",
            "--exec-root",
            f"{folder}/x",
            "--pidfile",
            f"{folder}/p",
        ]
        command += ["--host", self.url, "--bridge=none", "--iptables=false", "--ip-masq=false"]
        with (folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        eventually(lambda: self.docker("version", check=False).returncode == 0, 30, "the engine answers")

    def docker(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["docker", "--host", self.url, *arguments], check=check, capture_output=True, text=True, timeout=60
        )

    def load(self, image: str) -> None:
        with subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE) as save:
            subprocess.run(
                ["docker", "--host", self.url, "load"], stdin=save.stdout, check=True, capture_output=True, timeout=60
            )

    def processes(self) -> list[psutil.Process]:
        """Return the engine, its containerd, and the shims of its containers."""
        found = []
        for process in psutil.process_iter(["name", "cmdline", "status"]):
            part = process.info["name"].startswith(("dockerd", "containerd"))  # a kernel's arguments name it too
            mine = any(str(self.folder) in argument for argument in process.info["cmdline"] or [])
            if part and mine and process.info["status"] != psutil.STATUS_ZOMBIE:
                found.append(process)
        return found

    def stop(self) -> None:
        """As an administrator stops it; the call does not wait for the end."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def crash(self) -> None:
        """End everything at once: engine, containerd, shims, and what ran in the containers.

        Each process goes before those that it started: an agent whose kernel went first would tell of that.
        """
        victims = self.processes()
        victims += [child for process in victims for child in process.children(recursive=True)]
        for process in dict.fromkeys(victims):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.ended()

    def ended(self) -> None:
        assert self.process is not None
        self.process.wait(30)
        eventually(lambda: not self.processes(), 30, "the engine's processes have ended")
        for name in ("p", "x/containerd/containerd.pid"):  # a crash of the machine would have removed them
            (self.folder / name).unlink(missing_ok=True)

    def mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        return [line.split()[4] for line in lines if line.split()[4].startswith(str(self.folder))]

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            self.process.wait(30)
        eventually(lambda: not self.processes(), 30, "the engine's processes have ended")
        for mount in sorted(self.mounts(), reverse=True):
            subprocess.run(["umount", "--lazy", mount], check=True)


@contextlib.contextmanager
def an_own_engine() -> Iterator[OwnEngine]:
    """Start one that has the image; at the end nothing of it is left."""
    # Not below tmp_path: the name of a unix socket has 107 characters at most.
    with tempfile.TemporaryDirectory(prefix="sk-", dir="/tmp") as folder:
        engine = OwnEngine(Path(folder))
        (disk := engine.folder / "d").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0711", "none", disk], check=True)
        try:
            engine.start()
            engine.load(IMAGE)
            yield engine
        finally:
            engine.close()
        assert engine.mounts() == []
